"""A CSV table of what thresholds within a budget are worth, with 95 % intervals.

    .venv/bin/python -m benchmarks.budget_costs --files FILES

It has the shipped example, which is a run of the sample, and the published answers of
`benchmarks.published_answers`, whose files are fetched to FILES. Figures are in per cent of the
questions; `broken` is the per cent of the splits in which more held-out questions retrieve than the
budget lets.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator

from benchmarks.project_copy import ROOT, RUN, write_csv
from benchmarks.published_answers import ONCE, SETS, Files, arguments, percent, read_set, tune_set
from pipelines.intervals import interval

BUDGETS = (1.0, 0.5, 0.3, 0.1)  # 1 is no budget
EXAMPLE, QUESTIONS = (
    ("examples/without_retrieval.csv", "examples/bm25.csv"),
    "examples/questions.tsv",
)
HEAD = ["questions", "signal", "budget", "threshold", "retrieves", "broken"]


def of_example(budget: float) -> list[str]:
    """The row of the shipped example."""
    with tempfile.TemporaryDirectory() as out:
        options = ["--budget", str(budget), "--out", out, "--json"]
        command = [*RUN[:-1], "thresholds", *EXAMPLE, "--questions", QUESTIONS, *options]
        called = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    values = json.loads(called.stdout)
    (figures,) = values["pairs"]
    return _row("the example", values["signal"], budget, figures)


def of_sets(files: Files) -> Iterator[list[str]]:
    """The rows of Llama's published answers, by each of its doubts; it retrieves once."""
    for name in SETS:
        of_set = read_set(name, files)
        for signal in of_set.signals:
            for budget in BUDGETS:
                figures = tune_set(of_set, ONCE, signal, budget)
                yield _row(name, signal, budget, figures)


def _row(name: str, signal: str, budget: float, figures: dict) -> list[str]:
    broken = f"{figures['over_budget']:.0%}".rstrip("%") if budget < 1 else ""
    adaptive = percent(interval(figures["adaptive"]))
    retrieves = percent(interval(figures["retrieved"]))
    return [name, signal, f"{100 * budget:.0f}", adaptive, retrieves, broken]


def main() -> None:
    args = arguments(__doc__)
    rows = [of_example(budget) for budget in BUDGETS]
    rows += of_sets(Files(args.base, args.files))
    file = args.out / "budgets.csv"
    write_csv(file, HEAD, rows)
    print(file)


if __name__ == "__main__":
    main()
