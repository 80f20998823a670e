"""How far a closed-book answer's probability can be trusted: accuracy by confidence, and the calibration error.

The confidence is exp(mean log-probability) of the answer's tokens, as the language model gave them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws, intervals
from pipelines.answering import answer_files

BINS = 10  # bins with equal counts
_COLUMNS = ("confidence", "accuracy", "accuracy_low", "accuracy_high")
RULE_TABLES = {
    "reliability": pa.schema(
        {"dataset": pa.string(), "lm": pa.string(), "bin": pa.int32(), "questions": pa.int64()}
        | dict.fromkeys(_COLUMNS, pa.float64())
    )
}


class Answers(NamedTuple):
    """Closed-book answers of known probability, ordered by question id; all arrays (n,)."""

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    confidence: np.ndarray  # 0 for an empty answer
    right: np.ndarray  # bool


def of_rules(tuned: Mapping, chosen: SimpleNamespace, data: Path) -> tuple[dict[str, list[dict]], dict]:
    """Rows of the table, and figures "confidence", of each language model's closed-book answers.

    Nothing is said of fewer than thresholds.min_questions answers.
    """
    rows, figures = [], {}
    for dataset in chosen.parts.answered:
        questions = data / f"questions/{dataset}/{dataset}.parquet"
        for lm, files in answer_files.sets(dataset, chosen.lms, retrievers=()).items():
            answers = read_confidence(questions, files["closed_book"]) if "closed_book" in files else None
            if answers and len(answers.ids) >= chosen.thresholds.min_questions:
                of_bins, ece = reliability(answers, chosen.seed, chosen.report.bootstrap)
                rows += [{"dataset": dataset, "lm": lm} | row for row in of_bins]
                figures[dataset, lm] = {"confidence": {"questions": len(answers.ids), "ece": ece.as_json()}}
    return {"reliability": rows}, figures


def read_confidence(questions: Path, closed_book: Path) -> Answers:
    """The answers of a file that show a probability. Raises LongtailError as `answer_files.join` does."""
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))"}
    asked, answers = answer_files.join(questions, {"closed_book": closed_book}, columns)
    said, right = answers["closed_book"]["confidence"], answers["closed_book"]["correct"] == 1
    return Answers(*(column[np.isfinite(said)] for column in (asked["ids"], asked["subjects"], said, right)))


def reliability(answers: Answers, seed: int, resamples: int) -> tuple[list[dict], intervals.Interval]:
    """A row for each bin, and the expected calibration error: the mean of |accuracy - confidence| over the bins.

    Bins are of as equal counts as can be, least confident first; ties by id. A bin weighs by its answers. The bins stay
    as they are in all resamples of subjects.
    """
    confidence, right, subjects = answers.confidence, answers.right, answers.subjects
    order = np.lexsort((answers.ids.astype(str), confidence))
    bins = np.zeros((BINS, len(order)), bool)
    for members, in_bin in zip(np.array_split(order, BINS), bins, strict=True):
        in_bin[members] = True
    asked = [("ece", calibration_error, [*bins, *(bins * right), *(bins * confidence)])]
    generator = draws.generator(seed, "reliability")
    ece = intervals.of_clusters(asked, subjects, generator, resamples)["ece"].within(0, 1)
    rows = [
        {"bin": number, "confidence": float(confidence[in_bin].mean()), "questions": int(in_bin.sum())}
        | intervals.share(right[in_bin], subjects[in_bin]).columns("accuracy")
        for number, in_bin in enumerate(bins, start=1)
        if in_bin.any()
    ]
    return rows, ece


def calibration_error(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 3 BINS) sums: of answers, of right ones and of confidences, bin by bin."""
    counts, right, confidence = np.split(sums, 3, axis=1)
    return np.abs(right - confidence).sum(axis=1) / counts.sum(axis=1)


def report_entries() -> list:
    """Are confident answers right?"""
    from pipelines.report.entries import Drawn, Entry, Shown, measured
    from pipelines.report.figures import lines

    def reliable(inputs):
        """The bins of the main language model, and the line on which confidence and accuracy are the same."""
        rows = [row | {"series": row["lm"]} for row in inputs.tables["reliability"] if row["lm"] == inputs.main]
        return rows + [row | {"series": "calibrated", "accuracy": row["confidence"]} for row in rows]

    def confident(inputs):
        """The calibration error of each question set and language model, the main one first."""
        return [
            {"dataset": dataset, "lm": lm} | measured(by_lm[lm]["confidence"])
            for dataset, by_lm in inputs.metrics.get("adaptive", {}).items()
            for lm in sorted(by_lm, key=lambda lm: (lm != inputs.main, lm))
            if "confidence" in by_lm[lm]
        ]

    def lead(inputs, rule):
        rows = [row for row in confident(inputs) if (row["dataset"], row["lm"]) == (inputs.main_questions, inputs.main)]
        return rows and f"The confidence of {inputs.main} is {100 * rows[0]['ece'].value:.1f} points off on average."

    parts = [
        Drawn(
            lines, "reliability", reliable, lambda row: 100 * row["confidence"], "accuracy",
            "accuracy of the main language model by confidence in ten bins. On the line calibrated both are the "
            "same. Bands are 95 % intervals.",
            {"x": "confidence of the closed-book answer, %", "y": "accuracy, %"}, each="dataset",
        ),
        "The closed-book answer's confidence is the geometric mean of its tokens' probabilities. The calibration error "
        "(ECE) is the mean distance of accuracy and confidence over ten bins of equal counts.",
        Shown(
            "confidence", confident, ["dataset", "lm", "questions", "ece"],
            "Calibration error of closed-book answers, in per cent.", {"questions": "answers"},
        ),
    ]  # fmt: skip
    return [Entry("confidence", "Are confident answers right?", parts, says=lead, after="adaptive")]
