"""The report on costs: what answers cost, what thresholds save, and thresholds that weigh costs (PopQA, section 6)."""

from __future__ import annotations

import math

from pipelines.report import figures
from pipelines.report.inputs import Inputs, bounded
from pipelines.report.page import Figure, Link, Percent, Section, Share, Table, label

LATENCY = "Seconds of a question by method, with the machine that they were measured on (data/latency/index.html)"
SAVED = ("retrieves", "prompts saved", "tokens saved", "cost saved")


def costs(inputs: Inputs) -> Section:
    """Prompts, tokens and money by method, and what the thresholds in use save; only what is known."""
    blocks: list = [
        "How much a language model must read decides how long an answer takes and what it costs. Seconds are not on "
        "this page, because the same inputs must give the same page.",
    ]
    if inputs.models and inputs.asked:
        blocks.append(Link(LATENCY, "../latency/index.html"))
    for dataset in inputs.asked:
        rows, saved = (inputs.rows(name, dataset=dataset) for name in ("costs", "savings"))
        spent = ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")
        blocks.append(
            Table(
                f"cost-of-answers-{dataset}",
                f"{label(dataset)}: prompts of a question, tokens read and written in all of them, and the price of "
                "1,000 questions (0 if the model runs here).",
                ["answered", "questions", "prompts", "tokens read", "tokens written", "cost of 1,000 questions"],
                [
                    [label(row["method"]), row["questions"], *(row[name] for name in spent)]
                    for row in rows
                    if any(row[name] is not None for name in spent)
                ],
            )
        )
        savings = [f"{what}_saved" for what in ("calls", "tokens", "cost")]
        blocks.append(
            Table(
                f"savings-{dataset}",
                f"{label(dataset)}: what retrieving only below the thresholds saves against always retrieving, in per "
                "cent, on questions that they were not fitted to. The first of each two columns has an interval over "
                "subjects, the second the mean and the middle 95 % of the splits.",
                ["answered", "questions"] + [f"{what}{over}" for what in SAVED for over in ("", ", over splits")],
                [
                    [label(row["method"]), row["questions"]]
                    + [Percent(row[f"retrieved{over}"]) for over in ("", "_splits")]
                    + [Percent(row[f"{name}{over}"].times(0.01)) for name in savings for over in ("", "_splits")]
                    for row in saved
                    if any(math.isfinite(row[name].value) for name in savings)
                ],
            )
        )
    return Section("costs", "What answers cost", blocks)


def prices(dataset: str, lm: str, curve: list[dict]) -> list[Figure | Table]:
    """Accuracy by the share that retrieves, as retrieving grows dearer; nothing if costs are not known.

    `curve` are the question set's rows of adaptive/popularity/costs.parquet; the figure is of the language model `lm`.
    """
    if not curve:
        return []
    unit = {"retrievals": "retrievals", "tokens": "thousands of tokens", "money": "money"}[curve[0]["unit"]]
    methods = list(dict.fromkeys(row["method"] for row in curve if row["lm"] == lm))
    by_method = {m: [row for row in curve if (row["lm"], row["method"]) == (lm, m)] for m in methods}
    series = {
        m: ([100 * row["retrieved"] for row in rows], [bounded(row, "adaptive").times(100) for row in rows])
        for m, rows in by_method.items()
    }
    drawn = [
        figures.lines(
            f"prices-{dataset}",
            series,
            x="share of the questions that retrieve, %",
            y="held-out accuracy, %",
            caption=f"{label(dataset)}, {lm}: thresholds fitted to accuracy less the cost of retrieving. On the right "
            "retrieving costs nothing; on the left each retrieval must earn a whole right answer.",
        )
    ]
    return (drawn if series else []) + [
        Table(
            f"prices-{dataset}",
            f"{label(dataset)}: held-out accuracy and share retrieving in per cent, and the cost of a question in "
            f"{unit}, by the points of accuracy that a retrieval must earn. The weight (thresholds.cost_weight) is "
            "these points divided by the mean extra cost of a retrieval.",
            ["language model", "retriever", "must earn", "weight", "accuracy", "retrieves", "cost"],
            [
                [row["lm"], label(row["method"]), Share(row["price"]), row["cost_weight"]]
                + [Percent(bounded(row, name)) for name in ("adaptive", "retrieved")]
                + [bounded(row, "cost")]
                for row in curve
            ],
        )
    ]
