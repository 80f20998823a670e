"""The report's section on what answers cost, and what thresholds save of it (PopQA, section 6)."""

from __future__ import annotations

from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Table, label


def costs(inputs: Inputs) -> Section:
    """Prompts, tokens and money by method, and what the thresholds in use save."""
    title = "What answers cost"
    if not inputs.asked:
        return Section("costs", title, missing="There were no questions to answer.")
    blocks: list = [
        "What a language model must read decides how long an answer takes and what it costs. Seconds are no part of "
        "this page, whose bytes repeat: every run of the stage answer records its seconds_per_question in MLflow.",
    ]
    for dataset in inputs.asked:
        rows, saved = (inputs.rows(name, dataset=dataset) for name in ("costs", "savings"))
        blocks.append(
            Table(
                f"cost-of-answers-{dataset}",
                f"{label(dataset)}: a question's prompts, the tokens read and written for it in all of them, and the "
                "price of 1,000 questions (0 where the model runs here).",
                ["answered", "questions", "prompts", "tokens read", "tokens written", "cost of 1,000 questions"],
                [
                    [label(row["method"]), row["questions"]]
                    + [row[name] for name in ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")]
                    for row in rows
                ],
            )
        )
        if saved:
            blocks.append(
                Table(
                    f"savings-{dataset}",
                    f"{label(dataset)}: what retrieving only below the thresholds in use saves against always "
                    "retrieving, in per cent, over the questions whose popularity is known.",
                    ["answered", "questions", "retrieves, %", "prompts saved", "tokens saved", "cost saved"],
                    [
                        [label(row["method"]), row["questions"], 100 * row["retrieved"]]
                        + [row[f"{name}_saved"] for name in ("calls", "tokens", "cost")]
                        for row in saved
                    ],
                )
            )
    return Section("costs", title, blocks)
