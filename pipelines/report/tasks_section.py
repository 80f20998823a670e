"""The report's section on MMLU, Natural Questions and TriviaQA (REPLUG, section 6)."""

from __future__ import annotations

from pipelines.intervals import interval
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label

METHODS = ("closed_book", "replug", "replug_lsr")


def tasks(inputs: Inputs) -> Section:
    """MMLU, Natural Questions and TriviaQA, and MMLU by category."""
    found = {
        name: own
        for name, own in inputs.metrics.get("tasks", {}).items()
        if isinstance(own, dict) and "closed_book" in own
    }
    lacking = [label(name) for name in inputs.parts.benchmarks if name not in found]
    missing = f"This profile has no questions of {' or '.join(lacking)}." if lacking else ""
    if not found:
        return Section("tasks", "Tasks", missing=missing)
    rows = [
        [
            label(task),
            label(method),
            own[method]["questions"],
            Percent(interval(own[method]["accuracy"])),
            Percent(interval(own[method].get("gain")), signed=True),
        ]
        for task, own in found.items()
        for method in METHODS
    ]
    blocks = [
        "MMLU is answered by the likeliest of four letters (chance: 25 %), the others by generation and a vote over "
        "documents, counted right on an exact match after normalisation.",
        Table(
            "tasks",
            "Accuracy in per cent (Wilson's intervals) and the change against closed-book in points (bootstrap over "
            "questions).",
            ["task", "method", "questions", "accuracy", "change"],
            rows,
        ),
    ]
    if "mmlu" in found:
        categories = list(found["mmlu"]["closed_book"]["categories"])
        blocks.append(
            Table(
                "mmlu",
                "MMLU by category, in per cent; the last column is the mean over the categories, as in the paper.",
                ["method", *categories, "mean"],
                [
                    [
                        label(method),
                        *(Percent(interval(own["categories"][category])) for category in categories),
                        100 * own["mean_of_categories"],
                    ]
                    for method in METHODS
                    for own in [found["mmlu"][method]]
                ],
            )
        )
    return Section("tasks", "Tasks", blocks, missing)
