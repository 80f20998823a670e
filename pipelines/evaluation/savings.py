"""What answers cost, and what thresholds save on questions that they were not fitted to (PopQA, section 6).

Thresholds are fitted on one side of every split of `adaptive.held_out` and judged here on the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines import params
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import Fitted
from pipelines.adaptive.pairs import read_pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.evaluation.accuracy import Answers, Method, of_relations
from pipelines.intervals import NOTHING, Interval

SPENT = ("calls", "tokens", "cost")


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
            fitted = held_out.fit_all(pairs, train[at], drawn.take(at), chosen.search, chosen)
            rows.append({"method": method} | saved(answers, method, fitted, ~train, drawn))
    return rows


def saved(answers: Answers, method: str, fitted: Fitted, test: np.ndarray, drawn: Resamples) -> dict:
    """What a method's thresholds save on the questions that splits hold out, (n, splits) bool.

    Judged are the questions with a known popularity and a relation that has thresholds. A figure is over all questions,
    each with the mean of the splits that hold it out. Its interval refits the thresholds to resampled subjects, `drawn`
    of `answers`. The same figure `_splits` is the mean over splits and the middle 95 % of them.
    """
    n, splits = test.shape
    retrieved, held = np.zeros(n), np.zeros(n)  # in how many of the splits that hold a question out it retrieves
    asked, retrieving = np.zeros(splits), np.zeros(splits)  # questions of each split
    spent = _spent(answers.by_method[method], answers.by_method["closed_book"])
    adaptive, always = {name: np.zeros(splits) for name in spent}, {name: np.zeros(splits) for name in spent}
    fitted_to, counted = np.zeros(drawn.times.shape, bool), np.zeros(drawn.times.shape, bool)
    for relation, of_relation in of_relations(answers).items():
        rows = np.flatnonzero(of_relation & np.isfinite(answers.popularity))
        if relation not in fitted.splits:
            continue
        popularity = answers.popularity[rows, None]
        retrieves = (popularity < fitted.splits[relation]) & test[rows]
        retrieved[rows], held[rows] = retrieves.sum(axis=1), test[rows].sum(axis=1)
        asked += test[rows].sum(axis=0)
        retrieving += retrieves.sum(axis=0)
        fitted_to[rows] = popularity < fitted.whole[relation]
        for part, cuts in enumerate(fitted.parts):
            counted[rows] |= (drawn.parts[rows] == part) & (popularity < cuts[relation])
        for name, (with_text, without) in spent.items():
            known = np.isfinite(with_text[rows]) & np.isfinite(without[rows])
            paid, spared = (np.where(known, values[rows], 0.0) for values in (with_text, without))
            adaptive[name] += paid @ retrieves + spared @ (test[rows] & ~retrieves)
            always[name] += paid @ test[rows]
    judged = held > 0
    share = np.divide(retrieved, held, out=np.full(n, np.nan), where=judged)
    policies = {"": Policy(share, fitted_to, counted).take(judged)}
    figures = {"retrieved": refits.means({"": Column(0.0, {"": 1.0}, apart=True)}, policies, drawn.take(judged))[""]}
    for name, (with_text, without) in spent.items():
        figures[f"{name}_saved"] = _saved(with_text[judged], without[judged], policies, drawn.take(judged))
    with np.errstate(invalid="ignore", divide="ignore"):
        per_split = {name: 100 * (1 - adaptive[name] / always[name]) for name in spent}
        shares = retrieving / asked
    return (
        {"questions": int(judged.sum())}
        | figures
        | {"retrieved_splits": _over_splits(shares)}
        | {f"{name}_saved_splits": _over_splits(values) for name, values in per_split.items()}
    )


def _spent(augmented: Method, closed: Method) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What is spent on each question with retrieval (n,), and without (n,)."""
    tokens = [method.prompt_tokens + method.new_tokens for method in (augmented, closed)]
    spent = (augmented.calls, closed.calls), (tokens[0], tokens[1]), (augmented.cost, closed.cost)
    return dict(zip(SPENT, spent, strict=True))


def _saved(with_text: np.ndarray, without: np.ndarray, policies: Mapping[str, Policy], drawn: Resamples) -> Interval:
    """What the policy "" saves of always retrieving, in per cent; questions of unknown costs (n,) are left out."""
    known = np.isfinite(with_text) & np.isfinite(without)
    policies, drawn = {"": policies[""].take(known)}, drawn.take(known)
    columns = {
        "adaptive": Column(without[known], {"": (with_text - without)[known]}, apart=True),
        "always": Column(with_text[known], apart=True),
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
