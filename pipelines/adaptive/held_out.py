"""Thresholds fitted on one side of many splits and judged on the other (PopQA, section 6).

A subject's questions all fall on the same side of a split. They share a popularity, a page and what the model knows
about the subject, so a threshold with a subject on both sides would be judged on what it was fitted to. The paper draws
questions instead (`thresholds.split_by: question`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pipelines import draws, intervals, params
from pipelines.adaptive import searches
from pipelines.adaptive.pairs import Pairs

Key = TypeVar("Key", bound=Hashable)
POLICIES = ("adaptive", "always", "never", "oracle")


@dataclass(frozen=True)
class HeldOut:
    """Thresholds judged on the questions that each split holds out."""

    cuts: dict[str, np.ndarray]  # relation -> (splits,) thresholds
    table: dict[str, np.ndarray]  # column of splits.parquet -> (splits,)
    relations: dict[str, dict[str, np.ndarray]]  # relation -> accuracy of `adaptive` and share `retrieved`, (splits,)
    retrieved: np.ndarray  # (n,) in which share of the splits that hold a question out it retrieves; NaN if none does


def split_train(seed: int, subjects: np.ndarray, splits: int, train_share: float) -> np.ndarray:
    """Which questions each split trains on, (n, splits) bool, decided by hash for each subject, or other unit."""
    names, numbers = np.unique(subjects, return_inverse=True)
    return (draws.streams(seed, "thresholds splits", names.tolist(), splits) < train_share)[numbers]


def fit(pairs: Pairs, train: np.ndarray, search: str, chosen: params.Thresholds) -> dict[str, np.ndarray]:
    """Each relation's threshold, fitted on each column of `train` (n, splits): relation -> (splits,)."""
    gains, members = pairs.gains(chosen.cost_weight), pairs.members()
    few = {relation for relation, rows in members.items() if rows.stop - rows.start < chosen.min_questions}
    by_relation = [(pairs.signal[rows], gains[rows], train[rows]) for rows in members.values()]
    together = np.argsort(pairs.signal, kind="stable") if few or search == "shrunk" else []
    everything = pairs.signal[together], gains[together], train[together]
    if search == "shrunk":
        candidates = searches.quantile_cuts(everything[0], everything[2], chosen.quantiles)
        best, pooled = searches.shrunk(by_relation, candidates, chosen.pseudo_questions)
    else:
        find = {"exact": searches.exact, "bins": searches.bins}[search]
        best, pooled = [find(*questions) for questions in by_relation], find(*everything)
    return {relation: pooled if relation in few else cuts for relation, cuts in zip(members, best, strict=True)}


def judge(pairs: Pairs, train: np.ndarray, cuts: dict[str, np.ndarray]) -> HeldOut:
    """Every policy on the questions that each split holds out; its thresholds `cuts` were fitted on the others."""
    splits = train.shape[1]
    gains = pairs.gains(0.0)
    answers = np.stack([np.ones(len(gains)), pairs.closed, pairs.augmented, pairs.closed | pairs.augmented])
    answers, gain_one = answers.astype(np.float32), np.stack([np.ones(len(gains)), gains]).astype(np.float32)
    totals, retrieved = {}, np.empty(len(gains))
    for relation, rows in pairs.members().items():
        test = ~train[rows]
        below = pairs.signal[rows, None] < cuts[relation]
        # float32 holds these counts exactly and is the fastest to multiply
        retrieves = (below & test).astype(np.float32)
        held = test.astype(np.float32)
        asked, closed, augmented, either = answers[:, rows] @ held
        retrieving, gained = gain_one[:, rows] @ retrieves
        prefix = np.append(0, np.cumsum(gains[rows]))
        train_gained = prefix[np.searchsorted(pairs.signal[rows], cuts[relation])] - gained
        train_closed = pairs.closed[rows].sum() - closed
        totals[relation] = np.stack(
            [closed + gained, augmented, closed, either, retrieving, asked, train_closed + train_gained]
        )
        with np.errstate(invalid="ignore"):
            retrieved[rows] = retrieves.sum(axis=1) / held.sum(axis=1)
    summed = sum(totals.values(), np.zeros((7, splits)))
    names = (*POLICIES, "retrieved")
    with np.errstate(invalid="ignore", divide="ignore"):
        table = dict(zip(names, summed[:5] / summed[5], strict=True))
        table["train_adaptive"] = summed[6] / (len(gains) - summed[5])
        relations = {
            relation: {"adaptive": total[0] / total[5], "retrieved": total[4] / total[5]}
            for relation, total in totals.items()
        }
    return HeldOut(cuts, table | {"test_questions": summed[5].astype(np.int64)}, relations, retrieved)


def scores(pairs: Pairs, retrieved: np.ndarray) -> dict[str, np.ndarray]:
    """Each question's mean correctness under every policy over the splits that hold it out, and `retrieved` itself.

    Values are NaN for a question that no split holds out.
    """
    return {
        "adaptive": pairs.closed + retrieved * pairs.gains(0.0),
        "always": np.where(np.isnan(retrieved), np.nan, pairs.augmented),
        "never": np.where(np.isnan(retrieved), np.nan, pairs.closed),
        "oracle": np.where(np.isnan(retrieved), np.nan, pairs.augmented | pairs.closed),
        "retrieved": retrieved,
    }


def means(
    values: dict[Key, np.ndarray], subjects: np.ndarray, seed: int, resamples: int
) -> dict[Key, intervals.Interval]:
    """The mean of each column (n,) over the questions known in all columns, with an interval over subjects.

    All columns, and all calls on the same questions, use the same resamples, so they can be compared.
    """
    columns = np.stack([*values.values(), np.ones(len(subjects))], axis=1)
    held = np.isfinite(columns).all(axis=1)
    if not held.any():
        return dict.fromkeys(values, intervals.NOTHING)
    sums = intervals.cluster_sums(columns[held], subjects[held])
    statistics = [lambda drawn, i=i: drawn[:, i] / drawn[:, -1] for i in range(len(values))]
    generator = draws.generator(seed, "adaptive bootstrap")
    return dict(zip(values, intervals.bootstraps(sums, statistics, generator, resamples), strict=True))


def summary(pairs: Pairs, judged: HeldOut, seed: int, resamples: int) -> dict[str, dict[str, float | None]]:
    """One search's figures for the metrics file: means with intervals over questions and over splits.

    `low` and `high` are a bootstrap over subjects: what other questions would have given with the thresholds as fitted.
    `splits_low`, `splits_high` and `sd` say how much the figure moves from split to split. `gain` is adaptive - the
    better of always and never over all held-out questions.
    """
    better = "always" if np.nanmean(judged.table["always"] - judged.table["never"]) >= 0 else "never"
    columns, per_split = scores(pairs, judged.retrieved), dict(judged.table)
    for table in (columns, per_split):
        table["gain"] = table["adaptive"] - table[better]
    figures = {}
    for name, mean in means(columns, pairs.subjects, seed, resamples).items():
        over_splits = per_split[name][np.isfinite(per_split[name])]
        low, high = np.quantile(over_splits, [0.025, 0.975])
        figures[name] = mean.as_json() | {
            "mean_over_splits": float(over_splits.mean()),
            "sd": float(over_splits.std(ddof=1)) if len(over_splits) > 1 else 0.0,
            "splits_low": float(low),
            "splits_high": float(high),
        }
    return figures | {"train_adaptive": {"value": float(np.nanmean(per_split["train_adaptive"]))}}
