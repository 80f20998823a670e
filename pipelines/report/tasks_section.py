"""The report's section on benchmarks: accuracy by method, and by category (REPLUG, section 6)."""

from __future__ import annotations

from pipelines.intervals import interval
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label

METHODS = ("closed_book", "replug", "replug_lsr")


def tasks(inputs: Inputs) -> Section:
    """Accuracy on each benchmark, and by category on those that have categories."""
    metrics, title = inputs.metrics.get("tasks", {}), "Benchmarks"
    solved = {
        name: {method: metrics[name][method] for method in METHODS if method in metrics[name]}
        for name in inputs.parts.benchmarks
        if "closed_book" in metrics.get(name, {})
    }
    if not solved:
        return Section("tasks", title)
    lacking = [label(name) for name in inputs.parts.benchmarks if name not in solved]
    blocks = [
        "A multiple-choice question is answered by the likeliest of its four letters; guessing is right on 25 %. Other "
        "questions are answered by generation; an answer is right if it equals a gold answer after normalisation.",
        Table(
            "tasks",
            "Accuracy in per cent (Wilson's intervals), and the change against closed-book in points (bootstrap over "
            "questions).",
            ["task", "method", "questions", "accuracy", "change"],
            [
                [
                    *(label(name), label(method), figures["questions"]),
                    Percent(interval(figures["accuracy"])),
                    Percent(interval(figures.get("gain")), signed=True),
                ]
                for name, by_method in solved.items()
                for method, figures in by_method.items()
            ],
        ),
    ]
    for name in solved:
        if left_out := metrics[name].get("too_long"):
            subjects = ", ".join(f"{subject or 'questions'} ({n:,})" for subject, n in left_out.items())
            blocks.append(f"{label(name)}: prompts too long for the language model are left out: {subjects}.")
    for name, by_method in solved.items():
        if "categories" not in by_method["closed_book"]:
            continue
        categories = list(by_method["closed_book"]["categories"])
        blocks.append(
            Table(
                name,
                f"{label(name)} by category, in per cent. The last column is the mean over the categories, as in the "
                "paper.",
                ["method", *categories, "mean"],
                [
                    [
                        label(method),
                        *(Percent(interval(figures["categories"][category])) for category in categories),
                        100 * figures["mean_of_categories"],
                    ]
                    for method, figures in by_method.items()
                ],
            )
        )
    return Section("tasks", title, blocks, f"There were no questions of {' or '.join(lacking)}." if lacking else "")
