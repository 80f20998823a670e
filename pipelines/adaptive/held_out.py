"""Thresholds fitted on one side of many splits and judged on the other (PopQA, section 6).

A subject's questions all fall on the same side of a split, because a threshold with a subject on both sides would be
judged on what it was fitted to. The paper draws questions instead (`thresholds.split_by: question`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipelines import draws, intervals
from pipelines.adaptive import refits, rule, searches
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.errors import LongtailError
from pipelines.params import params

POLICIES = ("adaptive", "always", "never", "oracle")
CELLS = 10_000_000  # questions x splits that thresholds are fitted to at a time: bounds memory
NAMES = 50_000  # subjects whose sides are drawn at a time: bounds memory


class HeldOut(NamedTuple):
    """Thresholds judged on the questions that each split holds out."""

    table: dict[
        str, np.ndarray
    ]  # accuracies of POLICIES, `retrieved`, `train_adaptive`, `test_questions` -> (splits,)
    retrieved: (
        np.ndarray
    )  # (n,) in which share of the splits that hold a question out it retrieves; NaN if none does


class Fitted(NamedTuple):
    """Thresholds, relation -> (splits,) or (resamples,), fitted to the splits' training sides and to resamples."""

    splits: Mapping[str, np.ndarray]
    whole: Mapping[str, np.ndarray]  # fitted to whole resamples
    parts: tuple[Mapping[str, np.ndarray], ...]  # fitted to resamples without each of their parts


def split_train(seed: int, subjects: np.ndarray, splits: int, train_share: float) -> np.ndarray:
    """Which questions each split trains on, (n, splits) bool, decided by hash for each subject, or other unit."""
    names, numbers = np.unique(subjects, return_inverse=True)
    sides = [
        draws.streams(seed, "thresholds splits", names[start : start + NAMES].tolist(), splits)
        < train_share
        for start in range(0, max(len(names), 1), NAMES)
    ]
    return np.concatenate(sides)[numbers]


def sides(
    pairs: Pairs, chosen: params.Thresholds, seed: int, resamples: int
) -> tuple[np.ndarray, Resamples]:
    """What each split trains on, (n, splits) bool, and resamples. LongtailError if the splits hold no question out."""
    units = pairs.units(chosen.split_by)
    train = split_train(seed, units, chosen.splits, chosen.train_share)
    if train.all():
        raise LongtailError(
            f"thresholds.splits: {chosen.splits} hold none of {len(train)} questions out, expected some; set more"
        )
    return train, refits.resample(pairs.subjects, units, chosen.train_share, seed, resamples)


def fit(
    pairs: Pairs, train: np.ndarray, search: str, chosen: params.Thresholds
) -> dict[str, np.ndarray]:
    """Each relation's threshold, fitted on each column of `train` (n, splits): relation -> (splits,)."""
    gains, members = pairs.gains, pairs.members()
    few = {
        relation
        for relation, rows in members.items()
        if rows.stop - rows.start < chosen.min_questions
    }
    together = np.argsort(pairs.signal, kind="stable") if few or search == "shrunk" else []
    size = max(1, CELLS // max(len(gains), 1))
    cuts: dict[str, list[np.ndarray]] = {relation: [] for relation in members}
    for start in range(0, train.shape[1], size):
        sides = train[:, start : start + size]
        by_relation = [(pairs.signal[rows], gains[rows], sides[rows]) for rows in members.values()]
        everything = pairs.signal[together], gains[together], sides[together]
        if search == "shrunk":
            best, pooled = searches.shrunk(
                by_relation, searches.quantile_cuts(everything[0], everything[2])
            )
        else:
            find = {"exact": searches.exact, "bins": searches.bins}[search]
            best, pooled = [find(*questions) for questions in by_relation], find(*everything)
        for relation, of_relation in zip(members, best, strict=True):
            cuts[relation].append(pooled if relation in few else of_relation)
    return {relation: np.concatenate(blocks) for relation, blocks in cuts.items()}


def fit_all(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, search: str, chosen: params.Thresholds
) -> Fitted:
    """Thresholds of the splits and of resamples."""
    sides = train, drawn.times, *(drawn.without(part) for part in range(drawn.n_parts))
    splits, whole, *parts = (fit(pairs, side, search, chosen) for side in sides)
    return Fitted(splits, whole, tuple(parts))


def policy(pairs: Pairs, retrieved: np.ndarray, drawn: Resamples, fitted: Fitted) -> Policy:
    """The decisions by thresholds `fitted` to splits, by which `retrieved` is judged, and to resamples."""
    parts = (below(pairs, cuts) for cuts in fitted.parts)
    return refits.make_policy(retrieved, drawn, below(pairs, fitted.whole), parts)


def below(pairs: Pairs, cuts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether each question retrieves by thresholds, relation -> (splits,): (n, splits) bool."""
    return np.concatenate(
        [pairs.signal[rows, None] < cuts[relation] for relation, rows in pairs.members().items()]
    )


def judge(pairs: Pairs, train: np.ndarray, cuts: Mapping[str, np.ndarray]) -> HeldOut:
    """Every policy on the questions that each split holds out; its thresholds `cuts` were fitted on the others."""
    splits = train.shape[1]
    gains, right, right_below = pairs.gains, pairs.right_above, pairs.right_below
    answers = np.stack([np.ones(len(gains)), right, right_below, right | right_below])
    answers, gain_one = (
        answers.astype(np.float32),
        np.stack([np.ones(len(gains)), gains]).astype(np.float32),
    )
    totals, retrieved = np.zeros((7, splits)), np.empty(len(gains))
    for relation, rows in pairs.members().items():
        test = ~train[rows]
        # float32 holds these counts exactly and is the fastest to multiply
        retrieves = ((pairs.signal[rows, None] < cuts[relation]) & test).astype(np.float32)
        held = test.astype(np.float32)
        asked, above, below, either = answers[:, rows] @ held
        retrieving, gained = gain_one[:, rows] @ retrieves
        prefix = np.append(0, np.cumsum(gains[rows]))
        train_gained = prefix[np.searchsorted(pairs.signal[rows], cuts[relation])] - gained
        train_above = right[rows].sum() - above
        totals += np.stack(
            [above + gained, below, above, either, retrieving, asked, train_above + train_gained]
        )
        with np.errstate(invalid="ignore"):
            retrieved[rows] = retrieves.sum(axis=1) / held.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        table = dict(zip((*POLICIES, "retrieved"), totals[:5] / totals[5], strict=True))
        table["train_adaptive"] = totals[6] / (len(gains) - totals[5])
    return HeldOut(table | {"test_questions": totals[5].astype(np.int64)}, retrieved)


def policy_columns(pairs: Pairs, name: str = "") -> dict[str, Column]:
    """The accuracy by the policy `name`, called as the policy or "adaptive", and the share that retrieves by it."""
    share = {f"retrieved_{name}" if name else "retrieved": Column(0.0, {name: 1.0}, apart=True)}
    return {name or "adaptive": Column(pairs.right_above, {name: pairs.gains})} | share


def fixed_shares(pairs: Pairs, retrieved: np.ndarray) -> dict[str, intervals.Interval]:
    """The accuracy of always, never and the oracle on the questions that splits hold out, clustered by subject."""
    held = np.isfinite(retrieved)
    right = {
        "always": pairs.right_below,
        "never": pairs.right_above,
        "oracle": pairs.right_above | pairs.right_below,
    }
    return {
        name: intervals.share(values[held], pairs.subjects[held]) for name, values in right.items()
    }


def summary(pairs: Pairs, judged: HeldOut, policy: Policy, drawn: Resamples) -> dict:
    """One search's figures for the metrics file: means with intervals over questions and over splits, and the verdict.

    `low` and `high` are what other questions would have given. Those of `adaptive`, `retrieved` and `gain` come from
    thresholds fitted again to resampled subjects (`refits`). `splits_low` and `splits_high` say how much a figure moves
    from split to split. `gain` is adaptive - the better of always and never over all held-out questions.
    """
    always_less_never = np.nanmean(judged.table["always"] - judged.table["never"])
    better = rule.ALWAYS if always_less_never >= 0 else rule.NEVER
    per_split = judged.table | {"gain": judged.table["adaptive"] - judged.table[better]}
    columns = policy_columns(pairs)
    columns["gain"] = Column(-pairs.gains if better == rule.ALWAYS else 0.0, {"": pairs.gains})
    figures = fixed_shares(pairs, judged.retrieved)
    figures |= refits.refitted_means(columns, {"": policy}, drawn)
    made: dict = {}
    for name, mean in figures.items():
        over_splits = per_split[name][np.isfinite(per_split[name])]
        low, high = np.quantile(over_splits, [0.025, 0.975])
        made[name] = mean.as_json() | {
            "mean_over_splits": float(over_splits.mean()),
            "splits_low": float(low),
            "splits_high": float(high),
        }
    made["train_adaptive"] = {"value": float(np.nanmean(per_split["train_adaptive"]))}
    made["policy"], made["verdict"] = rule.choose_policy(
        figures["gain"], better, figures["retrieved"].value
    )
    return made
