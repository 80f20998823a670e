"""Thresholds from two sets of answers: fitted, judged held out, with intervals, and the rule to use (PopQA, section 6).

`tune_arrays` takes plain arrays. `tune_pairs` takes the same as `Pairs`, which the stage reads from files of answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines import intervals
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import HeldOut
from pipelines.adaptive.pairs import Pairs, of_known
from pipelines.adaptive.rule import Rule, make_rule
from pipelines.adaptive.searches import SEARCHES
from pipelines.errors import LongtailError
from pipelines.params import params

DEFAULTS = params.Thresholds(  # the values of conf/config.yaml
    pairs=[], search="shrunk", splits=100, split_by="subject", train_share=0.75, min_questions=20
)


@dataclass(frozen=True)
class Tuned:
    """Thresholds and what they are worth. The names of columns and figures are those of data/README.md."""

    questions: int  # of known popularity
    excluded: int  # questions of unknown popularity
    figures: dict[
        str, dict
    ]  # search -> figures of metrics/adaptive.json, with "policy" and "verdict"
    relations: list[dict]  # rows of thresholds.parquet, by search and relation
    rule: Rule  # what to put to use: the thresholds of the search in use, or always, or never
    judged: HeldOut  # the splits' thresholds of the search in use
    fitted: held_out.Fitted  # thresholds of the search in use, fitted to splits and resamples
    pairs: Pairs  # the questions, in the order of `train` and `drawn`
    train: np.ndarray  # which questions each split trains on, (n, splits) bool
    drawn: refits.Resamples


def tune_arrays(
    popularity: np.ndarray,
    relations: Sequence[str] | np.ndarray,
    subjects: Sequence[str] | np.ndarray,
    without: np.ndarray,
    augmented: np.ndarray,
    *,
    chosen: params.Thresholds = DEFAULTS,
    seed: int = 0,
    resamples: int = 1000,
    searches: Sequence[str] = SEARCHES,
    ids: Sequence[str] | np.ndarray | None = None,
) -> Tuned:
    """Tune a popularity threshold for each relation; all arrays (n,), a question each, in any order.

    `popularity` may be any signal that is not negative, NaN where it is not known, and `relations` any grouping.
    `without` and `augmented` say which of the two answers is right, without and with retrieved text. Splits and
    resamples draw `subjects`. The result does not depend on the questions' order if `ids` are given. Raises
    LongtailError if there are too few questions for any threshold.
    """
    n, views = len(popularity), np.asarray(popularity, dtype=float)
    texts = [f"{i:012d}" for i in range(n)] if ids is None else ids, subjects, relations
    right = np.asarray(without, dtype=bool), np.asarray(augmented, dtype=bool)
    known = of_known(
        Pairs(*(np.array(of, dtype=object) for of in texts), views, np.full(n, np.nan), *right)
    )
    if not known.usable(chosen.min_questions):
        raise LongtailError(
            f"{len(known.signal):,} questions of known popularity, but no relation has thresholds.min_questions "
            f"({chosen.min_questions}) of them; bring more answers, or set it lower"
        )
    return tune_pairs(known, chosen, seed, resamples, searches)


def tune_pairs(
    pairs: Pairs,
    chosen: params.Thresholds,
    seed: int,
    resamples: int,
    searches: Sequence[str] = SEARCHES,
) -> Tuned:
    """`tune_arrays` of questions of known popularity. The search in use must be one of `searches`.

    Raises LongtailError if the splits hold no question out.
    """
    assert chosen.search in searches
    train, drawn = held_out.sides(pairs, chosen, seed, resamples)
    pairs = replace(
        pairs, subjects=np.unique(pairs.subjects, return_inverse=True)[1]
    )  # faster to compare than texts
    everything, members = np.ones((len(pairs.signal), 1), dtype=bool), pairs.members()
    of_one = replace(pairs, relations=np.full(len(pairs.signal), "")).take(
        np.argsort(pairs.signal, kind="stable")
    )
    observed = {
        of: (float(pairs.signal[rows][0]), float(pairs.signal[rows][-1]))
        for of, rows in members.items()
    }
    shared = tuple(
        of for of, rows in members.items() if rows.stop - rows.start < chosen.min_questions
    )
    figures, relations, in_use = {}, [], ()
    for search in searches:
        fitted = held_out.fit_all(pairs, train, drawn, search, chosen)
        judged = held_out.judge(pairs, train, fitted.splits)
        policy = held_out.policy(pairs, judged.retrieved, drawn, fitted)
        cuts = {
            r: float(cut[0]) for r, cut in held_out.fit(pairs, everything, search, chosen).items()
        }
        figures[search] = found = held_out.summary(pairs, judged, policy, drawn)
        together = float(held_out.fit(of_one, everything, search, chosen)[""][0])
        rule = make_rule(
            found["policy"], found["verdict"], cuts, together, observed=observed, shared=shared
        )
        for relation, rows in members.items():
            of_relation = pairs.take(rows)
            low, high = as_good(of_relation.signal, of_relation.gains, drawn.take(rows))
            row = {
                "search": search,
                "relation": relation,
                "questions": len(of_relation.signal),
                "pooled": relation in shared,
                "popularity_least": observed[relation][0],
                "popularity_most": observed[relation][1],
                "threshold": cuts[relation],
                "threshold_low": min(low, cuts[relation]),
                "threshold_high": max(high, cuts[relation]),
                "policy": rule.policy,
                "deployed": rule.thresholds[relation],
            }
            for name, right in (
                ("closed_book", of_relation.right_above),
                ("augmented", of_relation.right_below),
            ):
                row |= intervals.share(right, of_relation.subjects).columns(name)
            columns, policies = held_out.policy_columns(of_relation), {"": policy.take(rows)}
            for name, mean in refits.refitted_means(columns, policies, drawn.take(rows)).items():
                row |= mean.columns(name)
            relations.append(row)
        in_use = (rule, judged, fitted) if search == chosen.search else in_use
    return Tuned(
        len(pairs.signal), pairs.excluded, figures, relations, *in_use, pairs, train, drawn
    )


def as_good(signal: np.ndarray, gains: np.ndarray, drawn: refits.Resamples) -> tuple[float, float]:
    """The least and the largest cut that may be the best of very many such questions: they are not clearly worse here.

    `signal` (n,) is ascending, `gains` (n,) are what retrieving gains each question. A cut is clearly worse if the best
    one is right more often by more than chance (one-sided, 5 %), by the deviation of the difference over resamples.
    """
    first = np.flatnonzero(
        np.append(True, signal[1:] != signal[:-1])
    )  # where each distinct value begins
    gained = np.zeros(
        (len(first) + 1, 1 + drawn.n)
    )  # below each cut, of the questions and of each resample
    weights = np.column_stack([np.ones(len(signal), np.int8), drawn.times])
    np.cumsum(np.add.reduceat(weights * gains[:, None], first, axis=0), axis=0, out=gained[1:])
    less = gained[np.argmax(gained[:, 0])] - gained
    with np.errstate(invalid="ignore"):  # of one subject, chance is not known
        chance = less[:, 1:].std(axis=1, ddof=1) * intervals.reach(
            len(np.unique(drawn.clusters)), 0.90
        )
    kept = np.flatnonzero(~(less[:, 0] > chance))
    cuts = np.concatenate([[0.0], signal[first[1:]], [np.inf]])
    return float(cuts[kept[0]]), float(cuts[kept[-1]])
