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
from pipelines.adaptive import held_out
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
        _OF_LM
        | {"calibration": pa.string(), "bin": pa.int32(), "questions": pa.int64(), "confidence": pa.float64()}
        | _ACCURACY
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
    """Reliability in BINS bins and the expected calibration error, before and after isotonic regression; coverage.

    The regression is fitted on each split's training side, and an answer's calibrated confidence is the mean over the
    splits that hold it out. Both calibration errors are over these answers. Intervals draw subjects. Nothing is said of
    fewer than thresholds.min_questions answers.
    """
    if len(answers.ids) < chosen.min_questions:
        return Trusted({}, [], [])
    units = answers.subjects if chosen.split_by == "subject" else answers.ids
    train = held_out.split_train(seed, units, chosen.splits, chosen.train_share)
    calibrated, errors = over_splits(answers, train)
    held = np.isfinite(calibrated)
    if not held.any():
        return Trusted({}, [], [])
    figures: dict = {"questions": int(held.sum())}
    reliability = []
    for name, values in (("none", answers.confidence), ("isotonic", calibrated)):
        rows, error = reliability_of(
            values[held], answers.right[held], answers.ids[held], answers.subjects[held], seed, resamples
        )
        reliability += [{"calibration": name} | row for row in rows]
        figures["ece" if name == "none" else f"ece_{name}"] = error.as_json()
    for name, values in errors.items():
        low, high = np.nanquantile(values, [0.025, 0.975])
        figures[name] |= {"mean_over_splits": float(np.nanmean(values))}
        figures[name] |= {"splits_low": float(low), "splits_high": float(high)}
    figures["risk_area"] = risk_area(answers, seed, resamples).as_json()
    wrong = held_out.means({"error": 1.0 - answers.right}, answers.subjects, seed, resamples)
    figures["error"] = wrong["error"].as_json()
    return Trusted(figures, reliability, coverage(answers, seed, resamples))


def bins_of(confidence: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Each answer's bin, (n,) from 0: BINS bins of as equal counts as can be, least confident first; ties by id."""
    order = np.lexsort((ids.astype(str), confidence))
    bins = np.empty(len(order), np.int64)
    for number, members in enumerate(np.array_split(order, BINS)):
        bins[members] = number
    return bins


def reliability_of(
    confidence: np.ndarray, right: np.ndarray, ids: np.ndarray, subjects: np.ndarray, seed: int, resamples: int
) -> tuple[list[dict], intervals.Interval]:
    """A row for each bin, and the expected calibration error: the mean of |accuracy - confidence| over the bins.

    A bin weighs by its answers. The bins stay as they are in all resamples.
    """
    columns = _by_bin(confidence, right, ids)
    member = columns[:, :BINS] == 1
    sums = intervals.cluster_sums(columns, subjects) if len(ids) else columns
    statistics = [lambda drawn, i=i: drawn[:, BINS + i] / drawn[:, i] for i in range(BINS)]
    generator = draws.generator(seed, "reliability")
    *accuracies, error = intervals.bootstraps(sums, [*statistics, calibration_error], generator, resamples)
    rows = [
        {"bin": i + 1, "questions": int(member[:, i].sum()), "confidence": float(confidence[member[:, i]].mean())}
        | accuracy.columns("accuracy")
        for i, accuracy in enumerate(accuracies)
        if member[:, i].any()
    ]
    return rows, error


def calibration_error(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 3 BINS) sums: of answers, of right ones and of confidences, bin by bin."""
    counts, right, confidence = np.split(sums, 3, axis=1)
    return np.abs(right - confidence).sum(axis=1) / counts.sum(axis=1)


def over_splits(answers: Answers, train: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Isotonic regression of being right on the confidence, fitted on each column of `train` (n, splits).

    The first is each answer's calibrated confidence, (n,), the mean over the splits that hold it out, NaN if none does.
    The second is the calibration error on each split's held-out answers alone, before and after its regression.
    """
    total, errors = np.zeros(len(answers.ids)), {"ece": [], "ece_isotonic": []}
    for side in train.T:
        held = ~side
        raw = answers.confidence[held]
        calibrated = isotonic(answers.confidence[side], answers.right[side], raw)
        total[held] += calibrated
        for name, values in (("ece", raw), ("ece_isotonic", calibrated)):
            sums = _by_bin(values, answers.right[held], answers.ids[held]).sum(axis=0)
            errors[name].append(float(calibration_error(sums[None])[0]) if held.any() else np.nan)
    with np.errstate(invalid="ignore"):
        calibrated = total / np.where(times := (~train).sum(axis=1), times, np.nan)
    return calibrated, {name: np.array(values) for name, values in errors.items()}


def _by_bin(confidence: np.ndarray, right: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Whether an answer is in each bin, whether it is right there, and its confidence there, (n, 3 BINS)."""
    member = bins_of(confidence, ids)[:, None] == np.arange(BINS)
    return np.hstack([member, member * right[:, None], member * confidence[:, None]]).astype(float)


def isotonic(confidence: np.ndarray, right: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The non-decreasing function of least squares through (confidence, right), linear between them, at `asked`."""
    if not len(confidence):
        return asked
    from scipy.optimize import isotonic_regression

    distinct, places, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=right) / counts
    return np.interp(asked, distinct, isotonic_regression(means, weights=counts).x)


def risk_area(answers: Answers, seed: int, resamples: int) -> intervals.Interval:
    """The area under the curve of risk by coverage, with an interval over subjects.

    It is the mean over answers of the share of wrong ones among all that are at least as confident. Answers of equal
    confidence are answered together.
    """
    if not len(answers.ids):
        return intervals.NOTHING
    names, numbers = np.unique(answers.subjects, return_inverse=True)
    value = float(area(answers.confidence, answers.right, np.ones((len(answers.ids), 1)))[0])
    drawn = [
        area(answers.confidence, answers.right, times.T[numbers])
        for times in intervals.resampled(len(names), draws.generator(seed, "risk area"), resamples)
    ]
    low, high = np.quantile(np.concatenate(drawn), [0.025, 0.975])
    return intervals.Interval(value, float(low), float(high))


def area(confidence: np.ndarray, right: np.ndarray, times: np.ndarray) -> np.ndarray:
    """`risk_area` of the answers taken `times` (n, resamples) each: (resamples,)."""
    order = np.argsort(-confidence, kind="stable")
    sorted_confidence, times = confidence[order], times[order].astype(float)
    last = np.append(np.flatnonzero(np.diff(sorted_confidence)), len(order) - 1)  # of each level of confidence
    answered = np.cumsum(times, axis=0)[last]
    wrong = np.cumsum(times * ~right[order][:, None], axis=0)[last]
    of_level = np.diff(answered, axis=0, prepend=0.0)
    return (of_level * wrong / np.maximum(answered, 1)).sum(axis=0) / answered[-1]


def coverage(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Rows of coverage.parquet: the accuracy if only the most confident share of COVERAGES is answered.

    Answers of equal confidence are answered together, so that the share answered may be larger than was asked for.
    """
    n = len(answers.ids)
    if not n:
        return []
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
        names = {"none": "as the model says", "isotonic": "after isotonic regression"}
        rows = [row | {"series": names[row["calibration"]]} for row in inputs.tables["reliability"]]
        rows = [row for row in rows if row["lm"] == inputs.main]
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
        "(ECE) is the mean distance of accuracy and confidence over ten bins of equal counts. The isotonic regression "
        "is fitted on the training sides of the splits and judged on the others; the interval of its error holds it "
        "fixed and covers 90 % in simulations. The area of risk is the error rate among all answers at least as "
        "confident, on average over the answers.",
        Shown(
            "confidence", confident,
            ["dataset", "lm", "questions", "ece", "ece_isotonic", "ece_splits", "ece_isotonic_splits", "risk_area",
             "error", *(f"accuracy_{share:.0%}" for share in shares)],
            "Calibration error of closed-book answers, its mean over the splits' held-out sides, and the area of risk, "
            "in per cent, and accuracy in per cent if the most confident are answered.",
            {"questions": "answers"},
        ),
    ]  # fmt: skip
    return [Entry("confidence", "Are confident answers right?", parts, after="adaptive")]
