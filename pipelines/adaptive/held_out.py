"""Thresholds fitted on one side of many splits and judged on the other (PopQA, section 6).

A subject's questions all fall on the same side of a split, because a threshold with a subject on
both sides would be judged on what it was fitted to. The paper draws questions instead
(`thresholds.split_by: question`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines import draws, intervals
from pipelines.adaptive import budgets, refits, rule, searches
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.errors import LongtailError
from pipelines.params.params import Thresholds

CELLS_AT_A_TIME = 10_000_000  # questions x splits that thresholds are fitted to: bounds memory
SUBJECTS_AT_A_TIME = 50_000  # subjects whose sides are drawn: bounds memory


@dataclass(frozen=True)
class Fitted:
    """Thresholds, relation -> (splits,) or (resamples,), fitted to the splits' training sides and
    to resamples, and the decisions by them.
    """

    splits: Mapping[str, np.ndarray]
    whole: Mapping[str, np.ndarray]  # fitted to whole resamples
    policy: Policy


def split_train(seed: int, subjects: np.ndarray, splits: int, train_share: float) -> np.ndarray:
    """Which questions each split trains on, (n, splits) bool, decided by hash for each subject, or
    other unit.
    """
    names, numbers = np.unique(subjects, return_inverse=True)
    sides = []
    for start in range(0, max(len(names), 1), SUBJECTS_AT_A_TIME):
        block = names[start : start + SUBJECTS_AT_A_TIME].tolist()
        sides.append(draws.streams(seed, "thresholds splits", block, splits) < train_share)
    return np.concatenate(sides)[numbers]


def sides(
    pairs: Pairs, settings: Thresholds, seed: int, resamples: int
) -> tuple[np.ndarray, Resamples]:
    """What each split trains on, (n, splits) bool, and resamples.

    LongtailError if the splits hold no question out.
    """
    units = pairs.units(settings.split_by)
    train = split_train(seed, units, settings.splits, settings.train_share)
    if train.all():
        raise LongtailError(
            f"thresholds.splits: {settings.splits} hold none of {len(train)} questions out, "
            "expected some; set more"
        )
    drawn = refits.resample(pairs.subjects, units, settings.train_share, seed, resamples)
    return train, drawn


def fit(
    pairs: Pairs, train: np.ndarray, search: str, settings: Thresholds
) -> dict[str, np.ndarray]:
    """Each relation's threshold, fitted on each column of `train` (n, splits): relation ->
    (splits,).

    Small relations share the threshold of all relations together.
    """
    signal = pairs.signal
    gains = pairs.gains
    members = pairs.members()
    small = pairs.small_relations(settings.min_questions)
    order = np.argsort(signal, kind="stable")

    blocks: dict[str, list[np.ndarray]] = {relation: [] for relation in members}
    splits_at_a_time = max(1, CELLS_AT_A_TIME // max(len(signal), 1))
    for start in range(0, train.shape[1], splits_at_a_time):
        block = train[:, start : start + splits_at_a_time]
        relations = [(signal[rows], gains[rows], block[rows]) for rows in members.values()]
        if search == "shrunk":
            candidates = searches.quantile_cuts(signal[order], block[order])
            cuts, pooled = searches.shrunk(relations, candidates)
        else:
            find = {"exact": searches.exact, "bins": searches.bins}[search]
            cuts = [find(*questions) for questions in relations]
            if small:
                pooled = find(signal[order], gains[order], block[order])

        for relation, cut in zip(members, cuts, strict=True):
            blocks[relation].append(pooled if relation in small else cut)
    return {relation: np.concatenate(cuts) for relation, cuts in blocks.items()}


def fit_all(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, search: str, settings: Thresholds
) -> Fitted:
    """Thresholds of the splits and of resamples, which keep `thresholds.budget` where they are
    fitted.
    """

    def fit_in_budget(train: np.ndarray) -> dict[str, np.ndarray]:
        cuts = fit(pairs, train, search, settings)
        shifts = budgets.shifts(pairs, train, cuts, settings.budget)
        return {relation: budgets.shifted(cut, shifts) for relation, cut in cuts.items()}

    splits = fit_in_budget(train)
    whole = fit_in_budget(drawn.times)
    without = []
    for part in range(drawn.n_parts):
        cuts = fit_in_budget(drawn.without(part))
        without.append(below(pairs, cuts))
    retrieved = judge(pairs, train, splits)
    policy = refits.make_policy(retrieved, drawn, below(pairs, whole), without)
    return Fitted(splits, whole, policy)


def below(pairs: Pairs, cuts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether each question retrieves by thresholds, relation -> (splits,): (n, splits) bool."""
    decisions = []
    for relation, rows in pairs.members().items():
        decisions.append(pairs.signal[rows, None] < cuts[relation])
    return np.concatenate(decisions)


def judge(pairs: Pairs, train: np.ndarray, cuts: Mapping[str, np.ndarray]) -> np.ndarray:
    """The share of the splits that hold a question out by which it retrieves, (n,); NaN if none
    does. Each split's thresholds `cuts` were fitted on the others.
    """
    held_out = (~train).astype(np.float32)  # holds these counts exactly
    retrieves = held_out * below(pairs, cuts)
    with np.errstate(invalid="ignore"):
        retrieved = retrieves.sum(axis=1) / held_out.sum(axis=1)
    return retrieved.astype(float)


def policy_columns(pairs: Pairs, name: str = "") -> dict[str, Column]:
    """Two columns of a policy: its accuracy, and the share of the questions that retrieve by it.

    Without a `name` they are "adaptive" and "retrieved", else `name` and "retrieved_<name>".
    """
    accuracy = Column(pairs.right_above, {name: pairs.gains})
    share = Column(0.0, {name: 1.0}, apart=True)
    if name:
        return {name: accuracy, f"retrieved_{name}": share}
    return {"adaptive": accuracy, "retrieved": share}


def fixed_shares(pairs: Pairs, retrieved: np.ndarray) -> dict[str, intervals.Interval]:
    """The accuracy of always, never and the oracle on the questions that splits hold out, clustered
    by subject.
    """
    held_out = pairs.take(np.isfinite(retrieved))
    right_either = held_out.right_above | held_out.right_below
    return {
        "always": intervals.share(held_out.right_below, held_out.subjects),
        "never": intervals.share(held_out.right_above, held_out.subjects),
        "oracle": intervals.share(right_either, held_out.subjects),
    }


def summary(pairs: Pairs, policy: Policy, drawn: Resamples, budget: float = 1) -> dict:
    """One search's figures for the metrics file: means with intervals, how many questions they are
    over, and the verdict.

    `low` and `high` are what other questions would have given. Those of `adaptive`, `retrieved` and
    `gain` come from thresholds fitted again to resampled subjects (`refits`). `gain` is adaptive -
    the better of always and never over all held-out questions. Thresholds that are judged where
    they were fitted never lose, so where one constant policy is nearly best for every question,
    their gain hardly varies over resamples. So its interval is the wider one of theirs and that of
    answers paired by question, each with the mean over the splits that hold it out. Always
    retrieving keeps no budget below 1, so the verdict then goes by `gain_over_never`.
    """
    means = fixed_shares(pairs, policy.retrieved)
    better = max(rule.ALWAYS, rule.NEVER, key=lambda name: means[name].value)
    columns = policy_columns(pairs)
    # what never retrieving gains over the better constant policy
    gain_of_never = -pairs.gains if better == rule.ALWAYS else 0.0
    gains = {"gain": Column(gain_of_never, {"": pairs.gains})}
    gain = "gain"
    if budget < 1:
        better = rule.NEVER
        gain = "gain_over_never"
        gains[gain] = Column(0.0, {"": pairs.gains})
    columns |= gains

    means |= refits.refitted_means(columns, {"": policy}, drawn)
    held_out = np.isfinite(policy.retrieved)
    for name, column in gains.items():
        of_questions = refits.values(column, {"": policy})
        paired = intervals.gain(of_questions[held_out], pairs.subjects[held_out])
        means[name] = max(means[name], paired, key=lambda mean: mean.high - mean.low)

    figures: dict = {name: mean.as_json() for name, mean in means.items()}
    questions = int(held_out.sum())
    untestable = rule.untestable(means["oracle"].value, means[better].value, questions)
    policy_in_use, verdict = rule.choose_policy(means[gain], better, means["retrieved"], untestable)
    return figures | {"questions": questions, "policy": policy_in_use, "verdict": verdict}
