"""What answers cost, and what thresholds save on questions that they were not fitted to (PopQA, section 6).

Thresholds are fitted on one side of every split of `adaptive.held_out` and judged here on the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import Fitted
from pipelines.adaptive.pairs import Pairs, read_pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.evaluation.accuracy import Answers
from pipelines.intervals import NOTHING, Interval
from pipelines.params import params


def costs(answers: Answers) -> list[dict]:
    """Prompts and tokens of a question and money of 1,000, by method: means, NaN where a file does not say."""
    return [
        {"method": method, "questions": len(answers.ids)}
        | {name: _known_mean(getattr(answer, name)) for name in ("calls", "prompt_tokens", "new_tokens")}
        | {"cost_per_1000": 1000 * _known_mean(answer.cost)}
        for method, answer in answers.by_method.items()
    ]


def savings(
    answers: Answers,
    questions: Path,
    files: Mapping[str, Path],
    chosen: params.Thresholds,
    seed: int,
    resamples: int,
) -> list[dict]:
    """What retrieving only below thresholds saves against always retrieving, in per cent (Figures 11 and 12).

    `answers` were read from `questions` and `files`. A method with too few questions for a threshold has no row.
    """
    if "closed_book" not in files:
        return []
    units = answers.subjects if chosen.split_by == "subject" else answers.ids
    train = held_out.split_train(seed, units, chosen.splits, chosen.train_share)
    drawn = refits.resample(answers.subjects.astype(str), units.astype(str), chosen.train_share, seed, resamples)
    places = {id_: place for place, id_ in enumerate(answers.ids)}
    rows = []
    for method in (method for method in files if method != "closed_book"):
        pairs = read_pairs(questions, files["closed_book"], files[method], chosen.cost, split=chosen.imported).known()
        if pairs.usable(chosen.min_questions):
            at = np.array([places[id_] for id_ in pairs.ids])
            own, again = train[at], drawn.take(at)
            fitted = held_out.fit_all(pairs, own, again, chosen.search, chosen)
            rows.append({"method": method} | saved(pairs, spent(answers.take(at), method), fitted, ~own, again))
    return rows


def saved(pairs: Pairs, spent: Mapping[str, np.ndarray], fitted: Fitted, test: np.ndarray, drawn: Resamples) -> dict:
    """What thresholds save on the questions that splits hold out, (n, splits) bool, of what is `spent`.

    A figure is over all questions, each with the mean of the splits that hold it out. Its interval refits the
    thresholds to resampled subjects, `drawn`. The same figure `_splits` is the mean over splits and the middle 95 % of
    them.
    """
    below = held_out.below(pairs, fitted.splits)
    retrieves = below & test
    with np.errstate(invalid="ignore", divide="ignore"):
        retrieved, shares = (retrieves.sum(axis=i) / test.sum(axis=i) for i in (1, 0))
    policy, order = held_out.policy(pairs, retrieved, drawn, fitted), np.argsort(pairs.ids.astype(str))
    policies, drawn = {"": policy.take(order)}, drawn.take(order)
    row = {"questions": int(np.isfinite(retrieved).sum()), "retrieved_splits": _over_splits(shares)}
    row["retrieved"] = refits.means({"": Column(0.0, {"": 1.0}, apart=True)}, policies, drawn)[""]
    for name, both in spent.items():
        known = np.isfinite(both).all(axis=0)
        row[f"{name}_saved"] = _saved(both[:, order], policies, drawn)
        paid, spared = both[:, known]
        adaptive = paid @ retrieves[known] + spared @ (test & ~below)[known]
        with np.errstate(invalid="ignore", divide="ignore"):
            row[f"{name}_saved_splits"] = _over_splits(100 * (1 - adaptive / (paid @ test[known])))
    return row


def spent(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """What is spent on each question with retrieval by a method, and without, (2, n)."""
    both = answers.by_method[method], answers.by_method["closed_book"]
    of_kind = {
        "calls": [of.calls for of in both],
        "tokens": [of.prompt_tokens + of.new_tokens for of in both],
        "cost": [of.cost for of in both],
    }
    return {name: np.stack(of) for name, of in of_kind.items()}


def _saved(both: np.ndarray, policies: Mapping[str, Policy], drawn: Resamples) -> Interval:
    """What the policy "" saves of always retrieving, in per cent; questions of unknown costs (2, n) are left out."""
    known = np.isfinite(both).all(axis=0) & np.isfinite(policies[""].retrieved)
    policies, drawn = {"": policies[""].take(known)}, drawn.take(known)
    with_text, without = both[:, known]
    columns = {
        "adaptive": Column(without, {"": with_text - without}, apart=True),
        "always": Column(with_text, apart=True),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        spent = [refits.values(column, policies).sum() for column in columns.values()]
        again = refits.sums(columns, policies, drawn)
        return refits.around(100 * (1 - np.divide(*spent)), 100 * (1 - again["adaptive"] / again["always"]))


def _over_splits(values: np.ndarray) -> Interval:
    known = values[np.isfinite(values)]
    return Interval(known.mean(), *np.quantile(known, [0.025, 0.975])) if len(known) else NOTHING


def _known_mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
