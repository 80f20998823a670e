"""How far a closed-book answer's probability can be trusted: calibration, and accuracy by the share answered.

The confidence is exp(mean log-probability) of the answer's tokens, as the language model gave them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.params import params

BINS = 10  # bins with equal counts
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


class Answers(NamedTuple):
    """Closed-book answers of known probability, ordered by question id; all arrays (n,)."""

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    confidence: np.ndarray  # 0 for an empty answer
    right: np.ndarray  # bool


def of_rules(tuned: Mapping, chosen: SimpleNamespace, data: Path) -> tuple[dict[str, list[dict]], dict]:
    """Rows of both tables, and figures "confidence", of each language model's closed-book answers."""
    rows, figures = {name: [] for name in RULE_TABLES}, {}
    for dataset in chosen.parts.answered:
        questions = data / f"questions/{dataset}/{dataset}.parquet"
        by_lm = answer_files.sets(dataset, chosen.lms, retrievers=())
        for lm, files in by_lm.items():
            if "closed_book" in files:
                answers = read_confidence(questions, files["closed_book"])
                found, tables = evaluate(answers, chosen.thresholds, chosen.seed, chosen.report.bootstrap)
                for name, of_table in tables.items():
                    rows[name] += [{"dataset": dataset, "lm": lm} | row for row in of_table]
                figures |= {(dataset, lm): {"confidence": found}} if found else {}
    return rows, figures


def read_confidence(questions: Path, closed_book: Path) -> Answers:
    """The answers of a file that show a probability. Raises LongtailError as `answer_files.join` does."""
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))"}
    joined = answer_files.join(questions, {"closed_book": closed_book}, columns)
    said, right = joined.answers["closed_book"]["confidence"], joined.answers["closed_book"]["correct"] == 1
    return Answers(*(column[np.isfinite(said)] for column in (joined.ids, joined.subjects, said, right)))


def evaluate(
    answers: Answers, chosen: params.Thresholds, seed: int, resamples: int
) -> tuple[dict, dict[str, list[dict]]]:
    """Figures of metrics/adaptive.json and rows of both tables, without dataset and lm. Intervals draw subjects.

    Nothing is said of fewer than thresholds.min_questions answers.
    """
    if len(answers.ids) < chosen.min_questions:
        return {}, {}
    reliability, ece = reliability_of(answers, seed, resamples)
    figures = {"questions": len(answers.ids), "ece": ece.as_json()}
    return figures, {"reliability": reliability, "coverage": coverage(answers)}


def reliability_of(answers: Answers, seed: int, resamples: int) -> tuple[list[dict], intervals.Interval]:
    """A row for each bin, and the expected calibration error: the mean of |accuracy - confidence| over the bins.

    Bins are of as equal counts as can be, least confident first; ties by id. A bin weighs by its answers. The bins stay
    as they are in all resamples.
    """
    confidence = answers.confidence
    order = np.lexsort((answers.ids.astype(str), confidence))
    bins = np.zeros((BINS, len(order)), bool)
    for members, in_bin in zip(np.array_split(order, BINS), bins, strict=True):
        in_bin[members] = True
    asked = [("ece", calibration_error, [*bins, *(bins * answers.right), *(bins * confidence)])]
    generator = draws.generator(seed, "reliability")
    ece = intervals.of_clusters(asked, answers.subjects, generator, resamples)["ece"].within(0, 1)
    rows = [
        {"bin": number, "confidence": float(confidence[in_bin].mean())} | row
        for number, (in_bin, row) in enumerate(zip(bins, _accuracies(answers, bins), strict=True), start=1)
        if in_bin.any()
    ]
    return rows, ece


def _accuracies(answers: Answers, groups: np.ndarray) -> list[dict]:
    """Rows with the accuracy in each of `groups` (groups, n) bool."""
    return [
        {"questions": int(of.sum())} | intervals.share(answers.right[of], answers.subjects[of]).columns("accuracy")
        for of in groups
    ]


def calibration_error(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 3 BINS) sums: of answers, of right ones and of confidences, bin by bin."""
    counts, right, confidence = np.split(sums, 3, axis=1)
    return np.abs(right - confidence).sum(axis=1) / counts.sum(axis=1)


def coverage(answers: Answers) -> list[dict]:
    """Rows of coverage.parquet: the accuracy if only the most confident share of COVERAGES is answered.

    Answers of equal confidence are answered together, so that the share answered may be larger than was asked for.
    """
    n = len(answers.ids)
    descending = -np.sort(-answers.confidence)
    least = [descending[max(0, int(np.ceil(share * n - 1e-9)) - 1)] for share in COVERAGES]
    answered = answers.confidence >= np.array(least)[:, None]
    return [
        {"coverage": float(of.mean()), "least_confidence": float(cut)} | row
        for of, cut, row in zip(answered, least, _accuracies(answers, answered), strict=True)
    ]


def report_entries() -> list:
    """Are confident answers right?"""
    from pipelines.report.entries import Drawn, Entry, Shown, every, measured
    from pipelines.report.figures import lines
    from pipelines.report.page import label, percent

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
            asked = (lm for lm in by_lm if "confidence" in by_lm[lm])
            for lm in sorted(asked, key=lambda lm: (lm != inputs.main, inputs.sizes.get(lm) or math.inf, lm)):
                covered = [row for row in inputs.tables["coverage"] if (row["dataset"], row["lm"]) == (dataset, lm)]
                row = {"dataset": dataset, "lm": lm} | measured(by_lm[lm]["confidence"])
                for share in shares:
                    reached = (of["accuracy"] for of in covered if of["coverage"] >= share - 1e-9)
                    row[f"accuracy_{share:.0%}"] = next(reached, math.nan)  # an earlier run's metrics may lie beside
                rows.append(row)
        return rows

    def lead(inputs, rule):
        rows = [row for row in confident(inputs) if (row["dataset"], row["lm"]) == (inputs.main_questions, inputs.main)]
        return rows and (
            f"The confidence of {inputs.main} is {100 * rows[0]['ece'].value:.1f} points off on average; of its most "
            f"confident fifth of answers to {label(rows[0]['dataset'])}, "
            f"{percent(rows[0]['accuracy_20%'].value)} are right."
        )

    parts = [
        Drawn(
            lines, "reliability", reliable, lambda row: 100 * row["confidence"], "accuracy",
            "accuracy of the main language model by confidence in ten bins. On the line calibrated both are the "
            "same. Bands are 95 % intervals.",
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
    return [Entry("confidence", "Are confident answers right?", parts, says=lead, after="adaptive")]
