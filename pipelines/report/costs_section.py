"""The report on costs: what answers cost, what thresholds save, and thresholds that weigh costs (PopQA, section 6)."""

from __future__ import annotations

import math

from pipelines.intervals import Interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs, bounded
from pipelines.report.page import Figure, Link, Percent, Section, Share, Table, label, show

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
    of = ["language model"] * bool(inputs.imported)
    for dataset in inputs.asked:
        rows, saved = (inputs.answered(name, dataset=dataset) for name in ("costs", "savings"))
        blocks += _drawn(dataset, rows)
        spent = ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")
        blocks.append(
            Table(
                f"cost-of-answers-{dataset}",
                f"{label(dataset)}: prompts of a question, tokens read and written in all of them, and the price of "
                "1,000 questions (0 if the model runs here).",
                ["answered", *of, "questions", "prompts", "tokens read", "tokens written", "cost of 1,000 questions"],
                [
                    [label(row["method"]), *(row["lm"] for _ in of), row["questions"], *(row[name] for name in spent)]
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
                ["answered", *of, "questions", *(f"{what}{over}" for what in SAVED for over in ("", ", over splits"))],
                [
                    [label(row["method"]), *(row["lm"] for _ in of), row["questions"]]
                    + [Percent(row[f"retrieved{over}"]) for over in ("", "_splits")]
                    + [Percent(row[f"{name}{over}"].times(0.01)) for name in savings for over in ("", "_splits")]
                    for row in saved
                    if any(math.isfinite(row[name].value) for name in savings)
                ],
            )
        )
    return Section("costs", "What answers cost", blocks, says=_says(inputs))


def _drawn(dataset: str, rows: list[dict]) -> list[Figure]:
    """Tokens of a question by method."""
    rows = [row for row in rows if row["prompt_tokens"] is not None]
    if not rows:
        return []
    read = [Interval(*[row["prompt_tokens"] or 0.0] * 3) for row in rows]
    names, caption = [label(row["series"]) for row in rows], f"{label(dataset)}: tokens that a question's prompts have."
    return [
        figures.bars(f"tokens-{dataset}", names, {"tokens read": read}, y="tokens read for a question", caption=caption)
    ]


def _says(inputs: Inputs) -> str:
    """The least and the most that a question makes the main language model read, and what thresholds save."""
    dataset = next(iter(inputs.asked), "")
    rows = [row for row in inputs.rows("costs", dataset=dataset) if row["prompt_tokens"] is not None]
    if len(rows) < 2:
        return ""
    rows.sort(key=lambda row: row["prompt_tokens"])
    tokens = [f"{row['prompt_tokens']:,.0f} tokens ({label(row['method'])})" for row in (rows[0], rows[-1])]
    said = f"A question of {label(dataset)} takes {inputs.main} from {tokens[0]} to {tokens[1]} to read"
    saved = [row for row in inputs.rows("savings", dataset=dataset) if math.isfinite(row["tokens_saved"].value)]
    if not saved:
        return f"{said}."
    row = next((row for row in saved if row["method"] == "dense"), saved[0])
    share = show(Percent(row["tokens_saved"].times(0.01)))
    return f"{said}; with {label(row['method'])}, thresholds save {share} % of the tokens of always retrieving."


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
