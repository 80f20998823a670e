"""Thresholds from two sets of answers: fitted, judged held out, with intervals, and the rule to use
(PopQA, section 6).

`tune_arrays` takes plain arrays. `tune_pairs` takes the same as `Pairs`, which the stage reads from
files of answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines import intervals
from pipelines.adaptive import budgets, held_out, refits
from pipelines.adaptive.pairs import Pairs, of_known
from pipelines.adaptive.rule import Rule, make_rule
from pipelines.adaptive.searches import SEARCHES, gained_below
from pipelines.errors import LongtailError
from pipelines.params.params import Thresholds

DEFAULTS = Thresholds(  # the values of conf/config.yaml
    pairs=[],
    search="shrunk",
    budget=1,
    splits=100,
    split_by="subject",
    train_share=0.75,
    min_questions=20,
)


@dataclass(frozen=True)
class Tuned:
    """Thresholds and what they are worth.

    The names of columns and figures are those of docs/columns.md.
    """

    # search -> figures of metrics/adaptive.json, with "policy" and "verdict"
    figures: dict[str, dict]
    relations: list[dict]  # rows of thresholds.parquet, by search and relation
    rule: Rule  # what to put to use: the thresholds of the search in use, or always, or never
    fitted: held_out.Fitted  # thresholds of the search in use, and the decisions by them
    pairs: Pairs  # the questions of known popularity, in the order of `train` and `drawn`
    train: np.ndarray  # which questions each split trains on, (n, splits) bool
    drawn: refits.Resamples


def tune_arrays(
    popularity: np.ndarray,
    relations: Sequence[str] | np.ndarray,
    subjects: Sequence[str] | np.ndarray,
    right_above: np.ndarray,
    right_below: np.ndarray,
    *,
    settings: Thresholds = DEFAULTS,
    seed: int = 0,
    resamples: int = 1000,
    searches: Sequence[str] = SEARCHES,
    ids: Sequence[str] | np.ndarray | None = None,
) -> Tuned:
    """Tune a popularity threshold for each relation; all arrays (n,), a question each, in any
    order.

    `popularity` may be any signal that is not negative, NaN where it is not known, and `relations`
    any grouping. `right_above` says where the answer from the threshold on is right, as a rule the
    closed-book one, and `right_below` where the answer below it is. Splits and resamples draw
    `subjects`. The result does not depend on the questions' order if `ids` are given. Raises
    LongtailError if there are too few questions for any threshold.
    """
    n = len(popularity)
    if ids is None:
        ids = [f"{i:012d}" for i in range(n)]
    ids = np.array(ids, dtype=object)
    subjects = np.array(subjects, dtype=object)
    relations = np.array(relations, dtype=object)
    pairs = Pairs(
        ids=ids,
        subjects=subjects,
        relations=relations,
        signal=np.asarray(popularity, dtype=float),
        confidence=np.full(n, np.nan),
        right_above=np.asarray(right_above, dtype=bool),
        right_below=np.asarray(right_below, dtype=bool),
    )
    known = of_known(pairs)
    if not known.usable(settings.min_questions):
        least = f"thresholds.min_questions ({settings.min_questions})"
        raise LongtailError(
            f"{len(known.signal):,} questions of known popularity, but no relation has {least} of "
            "them; bring more answers, or set it lower"
        )
    return tune_pairs(known, settings, seed, resamples, searches)


def tune_pairs(
    pairs: Pairs,
    settings: Thresholds,
    seed: int,
    resamples: int,
    searches: Sequence[str] = SEARCHES,
) -> Tuned:
    """Tune a threshold for each relation of `pairs`. The search in use must be one of `searches`.

    Raises LongtailError if the splits hold no question out.
    """
    assert settings.search in searches
    train, drawn = held_out.sides(pairs, settings, seed, resamples)
    numbers = np.unique(pairs.subjects, return_inverse=True)[1]
    pairs = replace(pairs, subjects=numbers)  # faster to compare than texts
    rows_of = pairs.members()
    observed = {}
    for relation, rows in rows_of.items():
        signal = pairs.signal[rows].tolist()
        observed[relation] = (signal[0], signal[-1])
    shared = tuple(pairs.small_relations(settings.min_questions))

    figures = {}
    relations = []
    for search in searches:
        fitted = held_out.fit_all(pairs, train, drawn, search, settings)
        policy = fitted.policy
        summary = held_out.summary(pairs, policy, drawn, settings.budget)
        summary |= budgets.figures(pairs, train, fitted.splits, settings.budget)
        figures[search] = summary

        cuts, together = _fit_everything(pairs, search, settings)
        rule = make_rule(
            summary["policy"],
            summary["verdict"],
            cuts,
            together,
            budget=None if settings.budget == 1 else settings.budget,
            observed=observed,
            shared=shared,
        )
        for relation, rows in rows_of.items():
            least, most = observed[relation]
            row = {
                "search": search,
                "relation": relation,
                "questions": rows.stop - rows.start,
                "pooled": relation in shared,
                "popularity_least": least,
                "popularity_most": most,
                "policy": rule.policy,
                "deployed": rule.thresholds[relation],
            }
            pairs_of_relation = pairs.take(rows)
            policy_of_relation = policy.take(rows)
            drawn_of_relation = drawn.take(rows)
            row |= _relation_figures(
                pairs_of_relation, policy_of_relation, drawn_of_relation, cuts[relation]
            )
            relations.append(row)

        if search == settings.search:
            rule_in_use = rule
            fitted_in_use = fitted

    return Tuned(
        figures=figures,
        relations=relations,
        rule=rule_in_use,
        fitted=fitted_in_use,
        pairs=pairs,
        train=train,
        drawn=drawn,
    )


def _fit_everything(
    pairs: Pairs, search: str, settings: Thresholds
) -> tuple[dict[str, float], float]:
    """Thresholds fitted to all questions, within the budget: relation -> its threshold, and that of
    all relations together.
    """
    n = len(pairs.signal)
    everything = np.ones((n, 1), dtype=bool)
    cuts = held_out.fit(pairs, everything, search, settings)

    one_relation = replace(pairs, relations=np.full(n, ""))
    order = np.argsort(pairs.signal, kind="stable")
    one_relation = one_relation.take(order)
    together = held_out.fit(one_relation, everything, search, settings)[""]

    shifts = budgets.shifts(pairs, everything, cuts, settings.budget)
    cut_of_relation = {}
    for relation, cut in cuts.items():
        cut_of_relation[relation] = budgets.shifted(cut, shifts).item()
    return cut_of_relation, budgets.shifted(together, shifts).item()


def _relation_figures(
    pairs: Pairs, policy: refits.Policy, drawn: refits.Resamples, cut: float
) -> dict[str, float | None]:
    """What thresholds.parquet says of one relation's threshold and accuracies."""
    low, high = as_good(pairs.signal, pairs.gains, drawn)
    low = min(low, cut)
    high = max(high, cut)
    figures: dict[str, float | None] = {
        "threshold": cut,
        "threshold_low": low,
        "threshold_high": high,
    }
    accuracy_above = intervals.share(pairs.right_above, pairs.subjects)
    accuracy_below = intervals.share(pairs.right_below, pairs.subjects)
    figures |= accuracy_above.columns("closed_book") | accuracy_below.columns("augmented")
    means = refits.refitted_means(held_out.policy_columns(pairs), {"": policy}, drawn)
    for name, mean in means.items():
        figures |= mean.columns(name)
    return figures


def as_good(signal: np.ndarray, gains: np.ndarray, drawn: refits.Resamples) -> tuple[float, float]:
    """The least and the largest cut that may be the best of very many such questions.

    `signal` (n,) is ascending, `gains` (n,) are what retrieving gains each question. These cuts are
    not clearly worse here than the best one. A cut is clearly worse if the best one is right more
    often by more than chance (one-sided, 5 %), by the deviation of the difference over resamples.
    """
    # what is gained below each cut, by the questions and by each resample
    once = np.ones(len(signal), np.int8)
    times = np.column_stack([once, drawn.times])
    first, gained = gained_below(signal, times * gains[:, None])
    best = np.argmax(gained[:, 0])
    less = gained[best] - gained

    reach = intervals.reach(len(np.unique(drawn.clusters)), 0.90)
    with np.errstate(invalid="ignore"):  # of one subject, chance is not known
        chance = less[:, 1:].std(axis=1, ddof=1) * reach
    values = signal[first]  # the least is no cut, as nothing lies below it
    cuts = np.concatenate([[0.0], values[1:], [np.inf]])
    cuts_as_good = cuts[~(less[:, 0] > chance)]
    return float(cuts_as_good[0]), float(cuts_as_good[-1])
