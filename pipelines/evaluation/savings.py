"""What answers cost, and what thresholds save on questions that they were not fitted to (PopQA, section 6).

Thresholds are fitted on one side of every split of `adaptive.held_out` and judged here on the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.pairs import read_pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.evaluation.accuracy import Answers
from pipelines.intervals import Interval
from pipelines.params import params


def costs(answers: Answers) -> list[dict]:
    """Prompts and tokens of a question and money of 1,000, by method: means, NaN where a file does not say."""
    return [
        {"method": method, "questions": len(answers.ids)}
        | {name: _known_mean(getattr(answer, name)) for name in ("calls", "prompt_tokens", "new_tokens")}
        | {"cost_per_1000": 1000 * _known_mean(answer.cost)}
        for method, answer in answers.by_method.items()
    ]


def _known_mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


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
    places, rows = {id_: place for place, id_ in enumerate(answers.ids)}, []
    for method in files if "closed_book" in files else ():
        pairs = read_pairs(questions, files["closed_book"], files[method], chosen.imported).known()
        if method != "closed_book" and pairs.usable(chosen.min_questions):
            train, drawn = held_out.sides(pairs, chosen, seed, resamples)
            fitted = held_out.fit_all(pairs, train, drawn, chosen.search, chosen)
            retrieved = held_out.judge(pairs, train, fitted.splits).retrieved
            policy = held_out.policy(pairs, retrieved, drawn, fitted)
            of_pairs = answers.take(np.array([places[id_] for id_ in pairs.ids]))
            rows.append({"method": method} | saved(spent(of_pairs, method), policy, drawn))
    return rows


def spent(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """What is spent on each question with retrieval by a method, and without, (2, n)."""
    both = answers.by_method[method], answers.by_method["closed_book"]
    of_kind = {
        "calls": [of.calls for of in both],
        "tokens": [of.prompt_tokens + of.new_tokens for of in both],
        "cost": [of.cost for of in both],
    }
    return {name: np.stack(of) for name, of in of_kind.items()}


def saved(spent: Mapping[str, np.ndarray], policy: Policy, drawn: Resamples) -> dict:
    """What thresholds save on the questions that splits hold out, of what is `spent`, (2, n) each.

    A figure is over all questions, each with the mean of the splits that hold it out. Its interval refits the
    thresholds to resampled subjects, `drawn`.
    """
    share = refits.refitted_means({"": Column(0.0, {"": 1.0}, apart=True)}, {"": policy}, drawn)[""]
    return {"questions": int(np.isfinite(policy.retrieved).sum()), "retrieved": share} | {
        f"{name}_saved": _saved(both, policy, drawn) for name, both in spent.items()
    }


def _saved(both: np.ndarray, policy: Policy, drawn: Resamples) -> Interval:
    """What a policy saves of always retrieving, in per cent; questions of unknown costs (2, n) are left out."""
    known = np.isfinite(both).all(axis=0) & np.isfinite(policy.retrieved)
    policies, drawn = {"": policy.take(known)}, drawn.take(known)
    with_text, without = both[:, known]
    columns = {
        "adaptive": Column(without, {"": with_text - without}, apart=True),
        "always": Column(with_text, apart=True),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        spent = [refits.values(column, policies).sum() for column in columns.values()]
        again = refits.sums(columns, policies, drawn)
        return refits.around(100 * (1 - np.divide(*spent)), 100 * (1 - again["adaptive"] / again["always"]))
