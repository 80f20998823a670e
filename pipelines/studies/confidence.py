"""How far a closed-book answer's probability can be trusted: calibration, and accuracy by the share answered.

The confidence is exp(mean log-probability) of the answer's tokens, as the language model gave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.adaptive.tune_thresholds import AllRules

BINS = 10  # of equal counts
COVERAGES = tuple(share / 20 for share in range(1, 21))  # shares of the questions that are answered
_OF_LM = {"dataset": pa.string(), "lm": pa.string()}
_ACCURACY = dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), pa.float64())
RULE_TABLES = {
    "reliability": pa.schema(
        _OF_LM | {"bin": pa.int32(), "questions": pa.int64(), "confidence": pa.float64()} | _ACCURACY
    ),
    "coverage": pa.schema(
        _OF_LM | {"coverage": pa.float64(), "least_confidence": pa.float64(), "questions": pa.int64()} | _ACCURACY
    ),
}


@dataclass(frozen=True)
class Answers:
    """Closed-book answers of known probability, ordered by question id; all arrays (n,)."""

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    confidence: np.ndarray  # 0 for an empty answer
    right: np.ndarray  # bool


@dataclass(frozen=True)
class Trusted:
    """The results for one language model; rows lack the key (dataset, lm)."""

    figures: dict  # of metrics/adaptive.json
    reliability: list[dict]  # rows of reliability.parquet
    coverage: list[dict]  # rows of coverage.parquet


def of_rules(of: AllRules) -> tuple[dict[str, list[dict]], dict]:
    """Rows of both tables, and figures "confidence", of each language model's closed-book answers."""
    rows, figures = {name: [] for name in RULE_TABLES}, {}
    settings = of.params.thresholds
    for dataset in of.params.parts.answered:
        questions = of.data / f"questions/{dataset}/{dataset}.parquet"
        by_lm = answer_files.sets(dataset, of.params.lms, retrievers=(), split=settings.imported)
        for lm, files in by_lm.items():
            if "closed_book" not in files:
                continue
            answers = read_confidence(questions, files["closed_book"], settings.imported)
            trusted = evaluate(answers, settings, of.params.seed, of.params.report.bootstrap)
            for name in RULE_TABLES:
                rows[name] += [{"dataset": dataset, "lm": lm} | row for row in getattr(trusted, name)]
            figures |= {(dataset, lm): {"confidence": trusted.figures}} if trusted.figures else {}
    return rows, figures


def read_confidence(questions: Path, closed_book: Path, split: str = "all") -> Answers:
    """The answers of a file that show a probability; `split` is params.thresholds.imported.

    Raises LongtailError as `answer_files.join` does.
    """
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))"}
    joined = answer_files.join(questions, {"closed_book": closed_book}, columns, split)
    answers = joined.answers["closed_book"]
    known = np.isfinite(answers["confidence"])
    return Answers(
        joined.ids[known], joined.subjects[known], answers["confidence"][known], answers["correct"][known] == 1
    )


def evaluate(answers: Answers, chosen: params.Thresholds, seed: int, resamples: int) -> Trusted:
    """Reliability in BINS bins, the expected calibration error, and coverage. Intervals draw subjects.

    Nothing is said of fewer than thresholds.min_questions answers.
    """
    if len(answers.ids) < chosen.min_questions:
        return Trusted({}, [], [])
    reliability, ece = reliability_of(answers, seed, resamples)
    figures = {"questions": len(answers.ids), "ece": ece.as_json()}
    return Trusted(figures, reliability, coverage(answers, seed, resamples))


def reliability_of(answers: Answers, seed: int, resamples: int) -> tuple[list[dict], intervals.Interval]:
    """A row for each bin, and the expected calibration error: the mean of |accuracy - confidence| over the bins.

    Bins are of as equal counts as can be, least confident first; ties by id. A bin weighs by its answers. The bins stay
    as they are in all resamples.
    """
    confidence, right = answers.confidence, answers.right[:, None]
    order = np.lexsort((answers.ids.astype(str), confidence))
    member = np.zeros((len(order), BINS))
    for number, members in enumerate(np.array_split(order, BINS)):
        member[members, number] = 1
    columns = np.hstack([member, member * right, member * confidence[:, None]])
    sums = intervals.cluster_sums(columns, answers.subjects)
    statistics = [lambda drawn, i=i: drawn[:, BINS + i] / drawn[:, i] for i in range(BINS)]
    generator = draws.generator(seed, "reliability")
    *accuracies, error = intervals.bootstraps(sums, [*statistics, calibration_error], generator, resamples)
    rows = [
        {"bin": i + 1, "questions": int(of_bin.sum()), "confidence": float(confidence[of_bin].mean())}
        | accuracy.columns("accuracy")
        for i, (accuracy, of_bin) in enumerate(zip(accuracies, member.T == 1, strict=True))
        if of_bin.any()
    ]
    return rows, error


def calibration_error(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 3 BINS) sums: of answers, of right ones and of confidences, bin by bin."""
    counts, right, confidence = np.split(sums, 3, axis=1)
    return np.abs(right - confidence).sum(axis=1) / counts.sum(axis=1)


def coverage(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Rows of coverage.parquet: the accuracy if only the most confident share of COVERAGES is answered.

    Answers of equal confidence are answered together, so that the share answered may be larger than was asked for.
    """
    n = len(answers.ids)
    descending = -np.sort(-answers.confidence)
    least = [descending[max(0, int(np.ceil(share * n - 1e-9)) - 1)] for share in COVERAGES]
    answered = answers.confidence[:, None] >= least
    columns = np.hstack([answered, answered * answers.right[:, None]]).astype(float)
    sums, m = intervals.cluster_sums(columns, answers.subjects), len(least)
    statistics = [lambda drawn, i=i: drawn[:, m + i] / drawn[:, i] for i in range(m)]
    accuracies = intervals.bootstraps(sums, statistics, draws.generator(seed, "coverage"), resamples)
    return [
        {"coverage": float(mask.mean()), "least_confidence": float(cut), "questions": int(mask.sum())}
        | accuracy.columns("accuracy")
        for mask, cut, accuracy in zip(answered.T, least, accuracies, strict=True)
    ]


def report_entries() -> list:
    """Are confident answers right?"""
    from pipelines.report.entries import Drawn, Entry, Shown, every, measured
    from pipelines.report.figures import lines

    shares = (0.2, 0.5)

    def reliable(inputs):
        """The bins of the main language model, and the line on which confidence and accuracy are the same."""
        rows = [row | {"series": row["lm"]} for row in inputs.tables["reliability"] if row["lm"] == inputs.main]
        for dataset in dict.fromkeys(row["dataset"] for row in rows):
            known = [row["confidence"] for row in rows if row["dataset"] == dataset]
            rows += [
                {"dataset": dataset, "series": "calibrated", "confidence": end, "accuracy": end}
                for end in (min(known), max(known))
            ]
        return rows

    def confident(inputs):
        """The figures of each language model, with the accuracy at the least coverage that reaches each share."""
        rows = []
        for dataset, by_lm in inputs.metrics.get("adaptive", {}).items():
            for lm in (lm for lm in by_lm if "confidence" in by_lm[lm]):
                covered = [row for row in inputs.tables["coverage"] if (row["dataset"], row["lm"]) == (dataset, lm)]
                reached = {
                    f"accuracy_{share:.0%}": next(of["accuracy"] for of in covered if of["coverage"] >= share - 1e-9)
                    for share in shares
                }
                rows.append({"dataset": dataset, "lm": lm} | measured(by_lm[lm]["confidence"]) | reached)
        return rows

    parts = [
        Drawn(
            lines, "reliability", reliable, lambda row: 100 * row["confidence"], "accuracy",
            "accuracy of the main language model by confidence in ten bins. On the line `calibrated` both are the "
            "same. Intervals hold the bins fixed: in simulations they cover 83 %.",
            {"x": "confidence of the closed-book answer, %", "y": "accuracy, %"}, each="dataset",
        ),
        Drawn(
            lines, "coverage", every("coverage"), lambda row: 100 * row["coverage"], "accuracy",
            "accuracy of closed-book answers if only the most confident are given.",
            {"x": "share of the questions that are answered, the most confident first, %",
             "y": "accuracy of the answers, %"}, series="lm", each="dataset",
        ),
        "The closed-book answer's confidence is the geometric mean of its tokens' probabilities. The calibration error "
        "(ECE) is the mean distance of accuracy and confidence over ten bins of equal counts.",
        Shown(
            "confidence", confident,
            ["dataset", "lm", "questions", "ece", *(f"accuracy_{share:.0%}" for share in shares)],
            "Calibration error of closed-book answers, and accuracy if the most confident are answered, in per cent.",
            {"questions": "answers"},
        ),
    ]  # fmt: skip
    return [Entry("confidence", "Are confident answers right?", parts, after="adaptive")]
