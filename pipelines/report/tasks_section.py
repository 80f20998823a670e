"""The report's section on benchmarks: accuracy by language model and method, and by category (REPLUG, section 6)."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines import database
from pipelines.intervals import NOTHING, interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import NONE, Figure, Percent, Section, Share, Table, label, points

OF_RETRIEVER = ("replug", "replug_lsr")
METHODS = ("closed_book", "replug_random", "replug_bm25", "replug", "replug_lsr")


def tasks(inputs: Inputs) -> Section:
    """Accuracy on each benchmark, and by category on those that have categories."""
    metrics, title = inputs.metrics.get("tasks", {}), "Benchmarks"
    solved = {
        (name, lm): metrics[name][lm]
        for name in inputs.parts.benchmarks
        for lm in inputs.models
        if "closed_book" in metrics.get(name, {}).get(lm, {})
    }
    if not solved:
        return Section("tasks", title)
    names = list(dict.fromkeys(name for name, _ in solved))
    lacking = [label(name) for name in inputs.parts.benchmarks if name not in names]
    blocks = [
        _drawn(names, solved),
        "A multiple-choice question is answered by the likeliest of its four letters; guessing is right on 25 %. Other "
        "questions are answered by generation; an answer is right if it equals a gold answer after normalisation. "
        "REPLUG's ensembles answer by the mixture of probabilities where the language model shows them, else by a vote "
        "over an answer with each document. Random and BM25's documents are in ensembles of the same size.",
        Table(
            "tasks",
            "Accuracy in per cent (Wilson's intervals), and the change against closed-book in points (bootstrap over "
            "questions).",
            ["task", "language model", "method", "answered by", "questions", "accuracy", "change"],
            [
                [
                    *(label(name), lm, label(method), figures["answered_by"] or NONE, figures["questions"]),
                    Percent(interval(figures["accuracy"])),
                    Percent(interval(figures.get("gain")), signed=True),
                ]
                for (name, lm), content in solved.items()
                for method, figures in _by_method(content).items()
            ],
        ),
        *(line for (name, lm), content in solved.items() for line in _left_out(name, lm, content)),
    ]
    for name in names:
        of_lm = {lm: _by_method(content) for (task, lm), content in solved.items() if task == name}
        categories = next(iter(of_lm.values()))["closed_book"].get("categories", {})
        if not categories:
            continue
        blocks.append(
            Table(
                name,
                f"{label(name)} by category, in per cent. The last column is the mean over the categories, as in the "
                "paper.",
                ["language model", "method", *categories, "mean"],
                [
                    [
                        *(lm, label(method)),
                        *(Percent(interval(figures["categories"].get(category))) for category in categories),
                        Share(figures["mean_of_categories"]),
                    ]
                    for lm, by_method in of_lm.items()
                    for method, figures in by_method.items()
                ],
            )
        )
    return Section(
        "tasks",
        title,
        blocks,
        f"There were no questions of {' or '.join(lacking)}." if lacking else "",
        _says(solved, inputs),
    )


def _drawn(names: list[str], solved: dict[tuple[str, str], dict]) -> Figure:
    """Accuracy of the first language model by benchmark and method."""
    lm = next(lm for _, lm in solved)
    by_task = {label(name): _by_method(solved[name, lm]) for name in names if (name, lm) in solved}
    return figures.bars(
        "tasks",
        [*by_task],
        {
            method: [
                interval(of[method]["accuracy"]).times(100) if method in of else NOTHING for of in by_task.values()
            ]
            for method in METHODS
            if any(method in of for of in by_task.values())
        },
        y="accuracy, %",
        caption=f"{lm}: accuracy by benchmark and method. Bars are Wilson's 95 % intervals.",
    )


def _says(solved: dict[tuple[str, str], dict], inputs: Inputs) -> str:
    """What REPLUG changes on each benchmark, for its first language model."""
    parts = {}
    for (name, lm), content in solved.items():
        if "gain" in content.get("replug", {}):
            gains = {method: points(interval(content[method]["gain"])) for method in OF_RETRIEVER if method in content}
            of_lsr = f", with LSR's documents by {gains['replug_lsr']}" if "replug_lsr" in gains else ""
            parts.setdefault(name, f"{gains['replug']}{of_lsr} on {label(name)} ({lm})")
    if not parts:
        return "No ensemble answered a benchmark; the figure has the closed-book answers."
    said = f"Against closed-book answers, REPLUG changes accuracy by {'; '.join(parts.values())}."
    return " ".join([said, *_unmoved(solved, inputs)])


def _unmoved(solved: dict[tuple[str, str], dict], inputs: Inputs) -> Iterator[str]:
    """Where a language model has but one answer to a multiple-choice benchmark, whatever it reads."""
    for name, lm in solved:
        file = inputs.data / "tasks" / name / lm / "predictions.parquet"
        query = "SELECT count(DISTINCT prediction), min(prediction), count(DISTINCT method) FROM predictions"
        if file.is_file() and solved[name, lm]["closed_book"].get("categories"):
            answers, only, ways = database.ask(query, predictions=file).fetchall()[0]
            if answers == 1 and ways > 1:
                yield f"{lm} answers {only} to every question of {label(name)}, so no document changes anything there."


def _by_method(content: dict) -> dict[str, dict]:
    return {method: content[method] for method in METHODS if method in content}


def _left_out(name: str, lm: str, content: dict) -> list[str]:
    """What a language model could not be asked, as sentences."""
    lines = []
    if list(_by_method(content)) == ["closed_book"]:
        lines.append(f"{lm} shows no log-probabilities of its answers to {label(name)}, so REPLUG was left out.")
    if too_long := content.get("too_long"):
        subjects = ", ".join(f"{subject or 'questions'} ({n:,})" for subject, n in too_long.items())
        lines.append(f"{label(name)}, {lm}: prompts too long for the language model are left out: {subjects}.")
    return lines
