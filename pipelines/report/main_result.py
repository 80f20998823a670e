"""A run's main result: a sentence, numbers and a figure with which the report begins, and lines for a terminal."""

from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

from pipelines.report import landed
from pipelines.report.entries import Row, answered, cell, known
from pipelines.report.inputs import Inputs, read_inputs
from pipelines.report.lm_sections import bits_by_k, saved_by_documents, solved_tasks
from pipelines.report.page import label, show
from pipelines.report.question_sections import best_policy, enough_known

SHOWN = {"never": "never retrieving", "always": "always retrieving", "adaptive": "adaptive retrieval"}
INTERVALS = "with 95 % intervals"


def main_shares(inputs: Inputs) -> list[Row]:
    """Accuracy without retrieved text, always with it, and with it below popularity thresholds.

    They are those of the method with the highest adaptive accuracy. Where no thresholds were fitted, they are those of
    the first method and of the best other one, on the first question set or else on the first benchmark.
    """
    if best := best_policy(inputs):
        best = best | {"of": best["dataset"]}
        rows = [best | {"policy": words, "accuracy": best[name]} for name, words in SHOWN.items()]
        return [rows[0] | {"method": "closed_book"}, *rows[1:]]
    rows = [row | {"accuracy": row["substring"], "of": row["dataset"]} for row in answered("accuracy")(inputs)]
    rows = rows or [row | {"of": row["task"]} for row in solved_tasks(inputs) if row["category"] == "all"]
    rows = [row for row in rows if (row["of"], row["lm"]) == (rows[0]["of"], rows[0]["lm"])]
    rows = [row | {"policy": label(row["method"])} for row in rows if known(row["accuracy"])]
    return [*rows[:1], *sorted(rows[1:], key=lambda row: -row["accuracy"].value)[:1]]


def main_curve(inputs: Inputs) -> list[Row]:
    """Accuracy by popularity of the methods of `main_shares`."""
    of = {(row["of"], row["lm"], row["method"]) for row in main_shares(inputs)}
    rows = answered("accuracy_by_popularity")(inputs)
    return [row for row in rows if (row["dataset"], row["lm"], row["method"]) in of and enough_known(inputs, row)]


def main_bits(inputs: Inputs) -> list[Row]:
    """Of a run without answers, bits per byte without documents, with the best retriever's and with random ones."""
    if main_shares(inputs) or not (saved := saved_by_documents(inputs)):
        return []
    none = next(row for row in bits_by_k(inputs) if row["retriever"] == "none")
    rows = [none, *(saved[name] for name in ("best", "random") if saved[name])]
    return [row | {"policy": label(row["retriever"])} for row in rows]


def result_lines(outs: Collection[Path], params: SimpleNamespace) -> list[str]:
    """The results of a run that made the files and folders `outs`, by its params.

    These are accuracies where questions are answered, else bits per byte, else how many rows were made.
    """
    if landed.is_made(landed.ANALYSES, outs):
        inputs = read_inputs(Path("data"), params.lms, params.parts, params)
        for row in (rows := main_shares(inputs))[:1]:
            method = f" with passages by {label(rows[-1]['method'])}" * ("adaptive" in row)
            return [*_lines(f"{label(row['of'])}, answered by {row['lm']}{method}: % right", rows, "accuracy")]
        for row in (rows := main_bits(inputs))[:1]:
            corpus = label(row["corpus"])
            return [*_lines(f"{corpus}, read by {row['lm']}: bits per byte with documents by", rows, "bits_per_byte")]
    return [*_counts(outs, params)]


def _lines(head: str, rows: list[Row], column: str) -> Iterator[str]:
    yield f"{head}, {INTERVALS}"
    for row in rows:
        retrieves = row["policy"] == SHOWN["adaptive"]
        said = f"; {100 * row['retrieved'].value:.0f} % of the questions retrieve" if retrieves else ""
        yield f"  {row['policy']:{max(len(row['policy']) for row in rows)}}  {show(cell(row[column], column))}{said}"


def _counts(outs: Collection[Path], params: SimpleNamespace) -> Iterator[str]:
    for name, figure in landed.figures(outs, params).items():
        kind, _, of = name.partition("/")
        if kind in ("questions", "triples", "passages"):
            yield f"{figure.value:,.0f} {kind}{f' of {label(of)}' * bool(of)}"
