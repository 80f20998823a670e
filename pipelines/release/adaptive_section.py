"""The report's section on adaptive retrieval: policies compared, and the thresholds themselves (PopQA, section 6)."""

from __future__ import annotations

import math

from pipelines.adaptive import DATASETS
from pipelines.evaluation import popqa
from pipelines.release import figures
from pipelines.release.inputs import Inputs, interval
from pipelines.release.page import Figure, Percent, Section, Table, label, named


def adaptive(inputs: Inputs, search: str) -> Section:
    """Adaptive against always, never and the oracle, for every search, and the thresholds themselves."""
    metrics, title = inputs.metrics.get("adaptive", {}), "Adaptive retrieval"
    tuned = {d: {m: f for m, f in own.items() if isinstance(f, dict)} for d, own in metrics.items()}
    tuned = {dataset: own for dataset, own in tuned.items() if own}
    lacking = [label(d) for d in DATASETS if d not in tuned]
    missing = (
        f"Too few questions of {' and '.join(lacking)} have a known popularity to tune thresholds." if lacking else ""
    )
    blocks: list = [
        "Below a relation's popularity threshold the answer with the top passage counts, from it on the closed-book "
        "one. Thresholds are fitted on one part of the subjects and judged on the others, over many seeded splits.",
    ]
    for dataset, methods in tuned.items():
        rows = []
        for method, searches in methods.items():
            for name, figure in searches.items():
                shown = [Percent(interval(figure[policy])) for policy in ("adaptive", "always", "never", "oracle")]
                gain = interval(figure["gain"])
                rows.append(
                    [
                        label(method),
                        name,
                        *shown,
                        Percent(gain, signed=True),
                        100 * figure["adaptive"]["sd"],
                        100 * figure["retrieved"]["value"],
                        100 * figure["train_adaptive"]["value"],
                    ]
                )
        blocks.append(
            Table(
                f"adaptive-{dataset}",
                f"{label(dataset)}: held-out accuracy in per cent, intervals over subjects; gain over the better of "
                "always and never in points; sd over splits in points; share of the questions that retrieve and "
                f"accuracy on the training side in per cent. In use: {search}.",
                ["retriever", "search", "adaptive", "always", "never", "oracle", "gain", "sd", "retrieves", "training"],
                rows,
            )
        )
        blocks.append(_policies(dataset, methods, search))
        blocks += _thresholds(
            dataset, [r for r in inputs.thresholds if r["dataset"] == dataset and r["search"] == search]
        )
    return Section("adaptive", title, blocks if tuned else [], missing)


def _policies(dataset: str, methods: dict, search: str) -> Figure:
    policies = ("never", "always", "adaptive", "oracle")
    figure = {p: [interval(methods[m][search][p]).times(100) for m in methods] for p in policies}
    said = "; ".join(
        f"{label(m)}: " + ", ".join(f"{p} {figure[p][i].value:.1f} %" for p in policies) for i, m in enumerate(methods)
    )
    return figures.bars(
        f"policies-{dataset}",
        [label(m) for m in methods],
        figure,
        y="held-out accuracy, %",
        caption=f"{label(dataset)}: adaptive against always and never retrieving, before (dense) and after LSR; the "
        "oracle knows which of the two answers is right.",
        alt=f"Bar chart of held-out accuracy. {said}.",
    )


def _thresholds(dataset: str, rows: list[dict]) -> list:
    relations = sorted({row["relation"] for row in rows})
    methods = [m for m in popqa.RETRIEVERS if any(row["method"] == m for row in rows)]
    of = {(row["method"], row["relation"]): row for row in rows}
    finite = [row[key] for row in rows for key in ("threshold", "threshold_low", "threshold_high")]
    finite = [value for value in finite if 0 < value < math.inf] or [1.0]
    points = {
        m: [tuple(of[m, r][key] for key in ("threshold", "threshold_low", "threshold_high")) for r in relations]
        for m in methods
    }
    return [
        figures.ranges(
            f"thresholds-{dataset}",
            [named(relation) for relation in relations],
            points,
            (min(finite), max(finite)),
            x="popularity threshold, monthly page views (left edge: never retrieve, right edge: always)",
            caption=f"{label(dataset)}: thresholds fitted on all questions; bars span 95 % of the splits' thresholds.",
            alt=f"Thresholds of {len(relations)} relations for {len(methods)} retrievers; the numbers are in the "
            "table below.",
        ),
        Table(
            f"thresholds-{dataset}",
            f"{label(dataset)}: thresholds in monthly page views (0: never retrieve, ∞: always) and accuracies over "
            "the same questions in per cent; relations with few questions share the threshold of all together.",
            [
                "relation",
                "retriever",
                "questions",
                "own threshold",
                "threshold",
                "closed-book",
                "augmented",
                "adaptive",
                "retrieves",
            ],
            [
                [named(row["relation"]), label(m), row["questions"], not row["pooled"], row["threshold"]]
                + [100 * row[key] for key in ("closed_book", "augmented", "adaptive", "retrieved")]
                for r in relations
                for m in methods
                for row in [of[m, r]]
            ],
        ),
    ]
