"""The report's section on adaptive retrieval: policies, and the thresholds themselves (PopQA, section 6)."""

from __future__ import annotations

import math
from statistics import median

import pyarrow.parquet as pq

from pipelines.adaptive.searches import SEARCHES
from pipelines.answering.answer_files import METHODS
from pipelines.intervals import Interval, interval
from pipelines.report import deciding_section, figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Section, Table, label, named

POLICIES = ("never", "always", "adaptive", "oracle")
DRAWN = ("bm25", "dense", "lsr")  # of the methods, in the figures of thresholds; the tables have all
Tuned = dict[str, dict[str, dict]]  # language model -> method -> figures of metrics/adaptive.json


def adaptive(inputs: Inputs, search: str) -> Section:
    """Adaptive against always, never and the oracle, for every search, and the thresholds themselves."""
    tuned = {dataset: found for dataset in inputs.parts.answered if (found := _tuned(inputs, dataset))}
    lacking = [label(dataset) for dataset in inputs.parts.answered if dataset not in tuned]
    blocks: list = [
        "Below a relation's popularity threshold the answer with retrieved text counts, from it on the closed-book "
        "one. Thresholds are fitted on one part of the subjects and judged on the others, over many seeded splits.",
    ]
    costs = inputs.data / "adaptive/popularity/costs.parquet"
    curve = pq.read_table(costs).to_pylist() if tuned else []
    for dataset, models in tuned.items():
        lm = next(iter(models))
        thresholds = [row for row in inputs.thresholds if row["dataset"] == dataset and row["search"] == search]
        blocks += [_searches(dataset, models, search), _policies(dataset, lm, models[lm], search)]
        blocks += _thresholds(dataset, lm, thresholds)
        blocks += deciding_section.costs(dataset, lm, [row for row in curve if row["dataset"] == dataset])
        blocks += deciding_section.signals(dataset, lm, models)
        blocks += _by_size(dataset, models, thresholds, inputs.sizes, search)
    missing = (
        f"Too few questions of {' and '.join(lacking)} have a known popularity to tune thresholds." if lacking else ""
    )
    return Section("adaptive", "Adaptive retrieval", blocks if tuned else [], missing)


def _tuned(inputs: Inputs, dataset: str) -> Tuned:
    """The language models with thresholds, the main one first, and their methods in one order."""
    found = inputs.metrics.get("adaptive", {}).get(dataset, {})
    order = [lm for lm in inputs.models if lm in found] + sorted(set(found) - set(inputs.models))
    methods = {lm: {m: found[lm][m] for m in METHODS if m in found[lm]} for lm in order}
    return {lm: own for lm, own in methods.items() if own}


def _searches(dataset: str, models: Tuned, search: str) -> Table:
    return Table(
        f"adaptive-{dataset}",
        f"{label(dataset)}: held-out accuracy in per cent, intervals over subjects; gain over the better of always and "
        "never in points; adaptive's mean, middle 95 % and standard deviation over splits; share of the questions that "
        f"retrieve and accuracy on the training side in per cent. In use: {search}.",
        [
            *("language model", "retriever", "search", "adaptive", "always", "never", "oracle", "gain"),
            *("over splits", "sd", "retrieves", "training"),
        ],
        [
            [lm, label(method), name]
            + [Percent(interval(figure[policy])) for policy in ("adaptive", "always", "never", "oracle")]
            + [Percent(interval(figure["gain"]), signed=True)]
            + [Percent(_over_splits(figure["adaptive"])), 100 * figure["adaptive"]["sd"]]
            + [Percent(interval(figure["retrieved"])), 100 * figure["train_adaptive"]["value"]]
            for lm, methods in models.items()
            for method, found in methods.items()
            for name, figure in ((one, found[one]) for one in SEARCHES)
        ],
    )


def _policies(dataset: str, lm: str, methods: dict[str, dict], search: str) -> Figure:
    shown = {p: [interval(found[search][p]).times(100) for found in methods.values()] for p in POLICIES}
    return figures.bars(
        f"policies-{dataset}",
        [label(method) for method in methods],
        shown,
        y="held-out accuracy, %",
        caption=f"{label(dataset)}, {lm}: adaptive against always and never retrieving, by where the text comes from; "
        "the oracle knows which of the two answers is right.",
        alt=f"Bar chart of held-out accuracy. {deciding_section.said(shown, methods)}.",
    )


def _thresholds(dataset: str, lm: str, rows: list[dict]) -> list[Figure | Table]:
    of = {(row["lm"], row["method"], row["relation"]): row for row in rows}
    relations = sorted({row["relation"] for row in rows if row["lm"] == lm})
    methods = [m for m in METHODS if any((lm, m, r) in of for r in relations)]
    drawn = [m for m in methods if m in DRAWN] or methods
    keys = ("threshold", "threshold_low", "threshold_high")
    points = {m: [tuple(of[lm, m, r][key] for key in keys) for r in relations] for m in drawn}
    finite = [value for own in points.values() for point in own for value in point if 0 < value < math.inf] or [1.0]
    middle = {m: median(of[lm, m, r]["threshold"] for r in relations) for m in drawn}
    return [
        figures.ranges(
            f"thresholds-{dataset}",
            [named(relation) for relation in relations],
            points,
            (min(finite), max(finite)),
            x="popularity threshold, monthly page views (left edge: never retrieve, right edge: always)",
            caption=f"{label(dataset)}, {lm}: thresholds fitted on all questions; bars span the middle 95 % of what "
            "other subjects would have given (a bootstrap).",
            alt=f"Thresholds of {len(relations)} relations. The median over relations is "
            + "; ".join(f"{label(m)}: {'always' if v == math.inf else f'{v:,.0f} views'}" for m, v in middle.items())
            + ". The numbers are in the table below.",
        ),
        Table(
            f"thresholds-{dataset}",
            f"{label(dataset)}: thresholds in monthly page views (0: never retrieve, ∞: always), between which 95 % of "
            "them lie over resampled subjects and over splits; accuracies in per cent, adaptive's and the share that "
            "retrieves held out. Relations with few questions share the threshold of all together.",
            [
                *("language model", "relation", "retriever", "questions", "own threshold", "threshold", "from", "to"),
                *("splits from", "splits to", "closed-book", "augmented"),
                *("adaptive", "adaptive, over splits", "retrieves", "retrieves, over splits"),
            ],
            [
                [row["lm"], named(row["relation"]), label(row["method"]), row["questions"], not row["pooled"]]
                + [row[key] for key in (*keys, "threshold_splits_low", "threshold_splits_high")]
                + [100 * row["closed_book"], 100 * row["augmented"]]
                + [
                    Percent(deciding_section.bounded(row, name))
                    for name in ("adaptive", "adaptive_splits", "retrieved", "retrieved_splits")
                ]
                for row in rows
            ],
        ),
    ]


def _by_size(
    dataset: str, models: Tuned, thresholds: list[dict], sizes: dict[str, int | None], search: str
) -> list[Figure | Table]:
    """Share retrieving and thresholds by language model; the figure needs two of known size."""
    if len(models) < 2:
        return []
    ordered = sorted(models, key=lambda lm: (sizes.get(lm) is None, sizes.get(lm) or 0))
    sized = [lm for lm in ordered if sizes.get(lm)]
    methods = [m for m in METHODS if sum(m in models[lm] for lm in sized) > 1]
    series = {
        m: (
            [sizes[lm] for lm in sized if m in models[lm]],
            [interval(models[lm][m][search]["retrieved"]).times(100) for lm in sized if m in models[lm]],
        )
        for m in methods
    }
    said = "; ".join(f"{label(m)}: {y[0].value:.0f} % to {y[-1].value:.0f} %" for m, (_, y) in series.items())
    drawn = [
        figures.lines(
            f"retrieves-by-lm-{dataset}",
            series,
            x="parameters",
            y="share of the questions that retrieve, %",
            caption=f"{label(dataset)}: how much language models retrieve by their size, held out.",
            alt=f"Line chart of the share retrieving from the smallest language model to the largest. {said}.",
            log_x=True,
        )
    ]
    cuts = {
        (lm, m): [row["threshold"] for row in thresholds if (row["lm"], row["method"]) == (lm, m)]
        for lm in models
        for m in models[lm]
    }
    return (drawn if series else []) + [
        Table(
            f"adaptive-by-lm-{dataset}",
            f"{label(dataset)}: language models by size, adaptive and never retrieving held out in per cent, share of "
            "the questions that retrieve in per cent, and the median of the relations' thresholds in monthly page "
            f"views. Search: {search}.",
            ["language model", "parameters", "retriever", "never", "adaptive", "gain", "retrieves", "median threshold"],
            [
                [lm, sizes.get(lm), label(m)]
                + [Percent(interval(found[search][policy])) for policy in ("never", "adaptive")]
                + [Percent(interval(found[search]["gain"]), signed=True)]
                + [Percent(interval(found[search]["retrieved"])), float(median(cuts[lm, m]))]
                for lm in ordered
                for m, found in models[lm].items()
            ],
        )
    ]


def _over_splits(figure: dict) -> Interval:
    return Interval(figure["mean_over_splits"], figure["splits_low"], figure["splits_high"])
