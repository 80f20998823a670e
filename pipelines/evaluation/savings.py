"""What answering costs by method, and what popularity thresholds save (PopQA, section 6).

Thresholds are fitted on one side of every split of `adaptive.held_out` and judged here on the
other.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.pairs import read_pairs
from pipelines.adaptive.refits import Column, Policy, Resamples
from pipelines.evaluation.answer_sets import Answers
from pipelines.intervals import Interval
from pipelines.params.params import Thresholds


def costs(answers: Answers) -> list[dict]:
    """Prompts and tokens of a question and money of 1,000, by method.

    The figures are means, NaN where a file does not say.
    """
    rows = []
    for method, method_answers in answers.by_method.items():
        row = {"method": method, "questions": len(answers.ids)}
        row["calls"] = _mean(method_answers.lm_calls)
        row["prompt_tokens"] = _mean(method_answers.prompt_tokens)
        row["new_tokens"] = _mean(method_answers.new_tokens)
        row["cost_per_1000"] = _mean(1000 * method_answers.cost)
        rows.append(row)
    return rows


def _mean(values: np.ndarray) -> float:
    """The mean of the values that are known; NaN if none is."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def savings(
    answers: Answers,
    questions: Path,
    files: Mapping[str, Path],
    thresholds: Thresholds,
) -> list[dict]:
    """What retrieving only below thresholds saves against always retrieving, in per cent.

    These are Figures 11 and 12. `answers` were read from `questions` and `files`. A method with too
    few questions for a threshold has no row.
    """
    if "closed_book" not in files:
        return []

    rows = []
    ids = answers.ids.astype(str)
    for method, file in files.items():
        pairs = read_pairs(questions, above=files["closed_book"], below=file)
        pairs = pairs.take(np.isin(pairs.ids.astype(str), ids))  # with answers by all methods
        if method == "closed_book" or not pairs.usable(thresholds.min_questions):
            continue
        train, drawn = held_out.sides(pairs, thresholds, answers.seed, answers.resamples)
        fitted = held_out.fit_all(pairs, train, drawn, thresholds.search, thresholds)
        answers_of_pairs = answers.take(np.searchsorted(ids, pairs.ids.astype(str)))
        row = {"method": method}
        rows.append(row | saved(spent(answers_of_pairs, method), fitted.policy, drawn))

    return rows


def spent(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """What is spent on each question with retrieval by a method, and without, (2, n)."""
    both = [answers.by_method[method], answers.by_method["closed_book"]]
    return {
        "calls": np.stack([method_answers.lm_calls for method_answers in both]),
        "tokens": np.stack([method_answers.tokens for method_answers in both]),
        "cost": np.stack([method_answers.cost for method_answers in both]),
    }


def saved(spent: Mapping[str, np.ndarray], policy: Policy, drawn: Resamples) -> dict:
    """What thresholds save on the questions that splits hold out, of what is `spent`, (2, n) each.

    A figure is over all questions, each with the mean of the splits that hold it out. Its interval
    refits the thresholds to resampled subjects, `drawn`.
    """
    retrieves = {"": Column(0.0, {"": 1.0}, apart=True)}
    row: dict = {"questions": int(np.isfinite(policy.retrieved).sum())}
    row["retrieved"] = refits.refitted_means(retrieves, {"": policy}, drawn)[""]
    for name, amounts in spent.items():
        row[f"{name}_saved"] = _saved(amounts, policy, drawn)
    return row


def _saved(amounts: np.ndarray, policy: Policy, drawn: Resamples) -> Interval:
    """What a policy saves of always retrieving, in per cent.

    `amounts` (2, n) are what is spent on each question with retrieval and without. Questions of
    which an amount is not known are left out. The interval ends where the dearest and the cheapest
    decisions on the questions would.
    """
    finite = np.isfinite(amounts).all(axis=0) & np.isfinite(policy.retrieved)
    policies = {"": policy.take(finite)}
    drawn = drawn.take(finite)
    with_retrieval, without = amounts[:, finite]
    adaptive = Column(without, {"": with_retrieval - without}, apart=True)
    always = Column(with_retrieval, apart=True)

    with np.errstate(invalid="ignore", divide="ignore"):
        adaptive_sum = refits.values(adaptive, policies).sum()
        dearest = np.maximum(with_retrieval, without).sum()
        cheapest = np.minimum(with_retrieval, without).sum()
        spent = np.array([adaptive_sum, dearest, cheapest])
        saved, least, most = 100 * (1 - spent / with_retrieval.sum())
        sums = refits.sums({"adaptive": adaptive, "always": always}, policies, drawn)
        saved_of_resamples = 100 * (1 - sums["adaptive"] / sums["always"])
        interval = refits.around(saved, saved_of_resamples, len(np.unique(drawn.clusters)))
        return interval.within(least, most)
