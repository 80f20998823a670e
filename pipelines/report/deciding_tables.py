"""What decides: policies and thresholds as figures, which rule is put to use, a gate, confidence, other thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import THRESHOLDS
from pipelines.intervals import Interval, interval
from pipelines.report import figures
from pipelines.report.inputs import bounded
from pipelines.report.page import Block, Figure, Percent, Share, Table, label, named, points, show

POLICIES = ("never", "always", "adaptive", "oracle")
CUTS = ("threshold", "threshold_low", "threshold_high")
CALIBRATION = {"none": "as the model says", "isotonic": "after isotonic regression"}


def policies(name: str, groups: Sequence[str], held: Sequence[dict], caption: str) -> Figure:
    """Held-out accuracy by policy of each group, from its figures, as `held_out.summary` has them."""
    shown = {policy: [interval(figure[policy]).times(100) for figure in held] for policy in POLICIES}
    return figures.bars(
        name,
        groups,
        shown,
        y="held-out accuracy, %",
        caption=f"{caption} The oracle knows which of the two answers is right.",
    )


def thresholds(
    name: str, rows: Mapping[str, dict[str, dict]], names: Mapping[str, str], signal: str, of: str
) -> Figure:
    """Thresholds fitted to all questions `of` a set; `rows` are method -> relation -> row, `names` the relations'."""
    points = {
        m: [tuple(of_method[relation][key] for key in CUTS) for relation in names] for m, of_method in rows.items()
    }
    values = [value for of_method in points.values() for point in of_method for value in point]
    finite = [value for value in values if 0 < value < math.inf] or [1.0]
    middle = {method: median(point[0] for point in of_method) for method, of_method in points.items()}
    return figures.ranges(
        name,
        [*names.values()],
        points,
        (min(finite), max(finite)),
        x=f"threshold, {signal} (left edge: never retrieve, right edge: always)",
        caption=f"{of}: thresholds fitted on all questions. Bars span the middle 95 % of the thresholds over resampled "
        "subjects (a bootstrap).",
        alt=f"Thresholds of {len(names)} relations, in {signal}. The median over relations is "
        f"{'; '.join(f'{label(m)}: {show(cut(value))}' for m, value in middle.items())}. The numbers are in the table "
        "below.",
    )


def cut(value: float) -> float | str:
    """A threshold as a cell: never and always in words."""
    return "never" if value == 0 else "always" if value == math.inf else value


def verdicts(dataset: str, models: dict[str, dict[str, dict]], search: str) -> list[str]:
    """Whose rule is not the thresholds, since they lose accuracy held out, and why."""
    lost = [
        f"{lm}, {label(method)}: {by_search[search]['verdict']}"
        for lm, methods in models.items()
        for method, by_search in methods.items()
        if by_search[search]["policy"] != THRESHOLDS
    ]
    if not lost:
        return []
    return [
        f"On {label(dataset)} thresholds are not put to use where they lose accuracy to always or never retrieving, "
        "with the whole interval of the gain, or to never at all. `longtail ask` and a release follow this verdict: "
        f"{'; '.join(lost)}."
    ]


def pooled(dataset: str, lm: str, rows: list[dict], least: int) -> list[str]:
    """Which relations have no threshold of their own, and what theirs is fitted to, by the first method of `lm`."""
    of_lm = [row for row in rows if row["lm"] == lm]
    of_method = [row for row in of_lm if row["method"] == of_lm[0]["method"]]
    sharing = [named(row["relation"]) for row in of_method if row["pooled"]]
    if not sharing:
        return []
    return [
        f"{len(sharing):,} of the {len(of_method):,} relations {'has' if len(sharing) == 1 else 'have'} fewer than "
        f"{least:,} questions of {label(dataset)} (thresholds.min_questions): {', '.join(sharing)}. The threshold "
        f"there is pooled: it is fitted to the {sum(row['questions'] for row in of_method):,} questions of all "
        "relations."
    ]


def gate(dataset: str, models: dict[str, dict[str, dict]]) -> list[Block]:
    """The learned gate beside the popularity rule; `models` are language model -> method -> figures."""
    compared = [
        (lm, method, by_search["gate"])
        for lm, methods in models.items()
        for method, by_search in methods.items()
        if "gate" in by_search
    ]
    if not compared:
        return []
    return [
        "A small gate can learn more than a threshold: a logistic regression on the popularity, the relation, the "
        "retriever's score and its margin over the second passage, and the closed-book answer's log-probability, which "
        "predicts whether the augmented answer gains. It is fitted and judged on the same splits. Unlike the "
        "popularity rule, it needs the closed-book answer and the search before it decides.",
        Table(
            f"gate-{dataset}",
            f"{label(dataset)}: held-out accuracy of the learned gate and of the popularity rule in per cent, the "
            "difference on the same questions in points, with the middle 95 % over splits, and the share that "
            "retrieves in per cent. Questions of unknown popularity count; the rule retrieves for them.",
            [
                *("language model", "retriever", "questions", "gate", "popularity rule", "gate less rule"),
                *("splits from", "splits to", "retrieves, gate", "retrieves, rule"),
            ],
            [
                [lm, label(method), figure["questions"]]
                + [Percent(interval(figure[name])) for name in ("gate", "popularity")]
                + [Percent(interval(figure["difference"]), signed=True)]
                + [Share(figure["difference"][f"splits_{end}"]) for end in ("low", "high")]
                + [Percent(interval(figure[f"retrieved_{name}"])) for name in ("gate", "popularity")]
                for lm, method, figure in compared
            ],
        ),
    ]


def confidence(dataset: str, by_lm: dict[str, dict], reliability: list[dict], coverage: list[dict]) -> list[Block]:
    """Whether closed-book answers are as often right as they are probable, and accuracy by the share answered.

    `by_lm` are the figures "confidence" of language models; the rows are the question set's of reliability.parquet and
    coverage.parquet.
    """
    if not by_lm:
        return []
    lm = next(iter(by_lm))
    lines = {
        words: [row for row in reliability if (row["lm"], row["calibration"]) == (lm, calibration)]
        for calibration, words in CALIBRATION.items()
    }
    known = [100 * row["confidence"] for rows in lines.values() for row in rows]
    ends = [min(known, default=0.0), max(known, default=0.0)]
    covered = {name: [row for row in coverage if row["lm"] == name] for name in by_lm}
    shares = (0.2, 0.5)
    return [
        "The closed-book answer's confidence is the geometric mean of its tokens' probabilities. The calibration error "
        "(ECE) is the mean distance of accuracy and confidence over ten bins of equal counts. The isotonic regression "
        "is fitted on the training sides of the splits and judged on the others; the interval of its error holds it "
        "fixed and covers 90 % in simulations. The area of risk is the error rate among all answers at least as "
        "confident, on average over the answers.",
        figures.lines(
            f"reliability-{dataset}",
            {
                words: ([100 * row["confidence"] for row in rows], [_percent(row) for row in rows])
                for words, rows in lines.items()
            }
            | {"calibrated": (ends, [Interval(end, end, end) for end in ends])},
            x="confidence of the closed-book answer, %",
            y="accuracy, %",
            caption=f"{label(dataset)}, {lm}: accuracy by confidence in ten bins. On the line `calibrated` both "
            "are the same.",
        ),
        figures.lines(
            f"coverage-{dataset}",
            {
                name: ([100 * row["coverage"] for row in rows], [_percent(row) for row in rows])
                for name, rows in covered.items()
            },
            x="share of the questions that are answered, the most confident first, %",
            y="accuracy of the answers, %",
            caption=f"{label(dataset)}: accuracy of closed-book answers if only the most confident are given.",
        ),
        Table(
            f"confidence-{dataset}",
            f"{label(dataset)}: calibration error of closed-book answers, its mean over the splits' held-out sides, "
            "and the area of risk, in per cent, and accuracy in per cent if the most confident are answered.",
            [
                *("language model", "answers", "ECE", "ECE, isotonic", "ECE, a split", "ECE, isotonic, a split"),
                *("area of risk", "error", *(f"accuracy, {share:.0%}" for share in shares)),
            ],
            [
                [name, figure["questions"]]
                + [Percent(interval(figure[key])) for key in ("ece", "ece_isotonic")]
                + [Percent(over_splits(figure[key])) for key in ("ece", "ece_isotonic")]
                + [Percent(interval(figure[key])) for key in ("risk_area", "error")]
                + [Percent(_at(covered[name], share)) for share in shares]
                for name, figure in by_lm.items()
            ],
        ),
        Table(
            f"reliability-{dataset}",
            f"{label(dataset)}: closed-book answers in ten bins, with confidence and accuracy in per cent. "
            "Intervals hold the bins fixed: in simulations they cover 83 %.",
            ["language model", "calibration", "bin", "answers", "confidence", "accuracy"],
            [
                [
                    *(row["lm"], CALIBRATION[row["calibration"]], row["bin"], row["questions"]),
                    *(Share(row["confidence"]), Percent(bounded(row, "accuracy"))),
                ]
                for row in reliability
            ],
        ),
    ]


def carried(dataset: str, rows: list[dict]) -> list[Block]:
    """Thresholds of another language model or month; `rows` are the question set's of carried.parquet."""
    if not rows:
        return []
    return [
        "Thresholds may be carried over: those fitted to another language model's answers, or to another month's page "
        "views, are judged on the same splits as thresholds of their own.",
        Table(
            f"carried-{dataset}",
            f"{label(dataset)}: held-out accuracy in per cent by thresholds of their own and by those carried over, "
            "the difference in points with the middle 95 % over splits, and the share that retrieves in per cent. "
            "Between months a threshold keeps its page views, or its rank among the relation's questions.",
            [
                *("language model", "retriever", "fitted to", "judged on", "by", "questions", "own", "carried"),
                *("carried less own", "splits from", "splits to", "retrieves, own", "retrieves, carried"),
            ],
            [
                [row["lm"], label(row["method"]), row["fitted"], row["judged"], row["scale"], row["questions"]]
                + [Percent(bounded(row, name)) for name in ("own", "carried")]
                + [Percent(bounded(row, "difference"), signed=True)]
                + [Share(row[f"difference_splits_{end}"]) for end in ("low", "high")]
                + [Percent(bounded(row, f"retrieved_{name}")) for name in ("own", "carried")]
                for row in rows
            ],
        ),
    ]


def _percent(row: dict) -> Interval:
    return bounded(row, "accuracy").times(100)


def over_splits(figure: dict) -> Interval:
    """The mean over splits, and the middle 95 % of them."""
    return Interval(figure["mean_over_splits"], figure["splits_low"], figure["splits_high"])


def _at(rows: list[dict], share: float) -> Interval:
    """The accuracy at the least coverage that reaches `share`."""
    return bounded(next(row for row in rows if row["coverage"] >= share - 1e-9), "accuracy")


def of_best(method: str, by_method: dict[str, dict], search: str) -> str:
    """What choosing adds to the method that is right most often when always used, in a sentence; "" if it is `method`.

    Answers that stand in for closed-book ones (pairs) don't count.
    """
    always = {name: of[search]["always"]["value"] for name, of in by_method.items() if BELOW not in name}
    best = max(always, key=lambda name: (always[name], name == method), default=method)
    if best == method:
        return ""
    gain, share = interval(by_method[best][search]["gain"]), 100 * always[best]
    return f" With {label(best)}, the most often right if always used ({share:.1f} %), choosing adds {points(gain)}."
