"""A run's main result: a sentence, numbers and a figure with which the report begins, and lines for a terminal."""

from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

from pipelines.evaluation import stage_metrics
from pipelines.report import landed
from pipelines.report.accuracy_sections import enough_known
from pipelines.report.adaptive_section import best_policy
from pipelines.report.entries import Row, known, measured
from pipelines.report.inputs import Inputs, read_inputs
from pipelines.report.lm_sections import bits_by_k, saved_by_documents, solved_tasks
from pipelines.report.page import Percent, label, show

SHOWN = {"never": "never retrieving", "always": "always retrieving", "adaptive": "adaptive retrieval"}
INTERVALS = "with 95 % intervals"


def main_shares(inputs: Inputs) -> list[Row]:
    """Accuracy without retrieved text, always with it, and with it below popularity thresholds.

    They are those of the method with the highest adaptive accuracy. Where no thresholds were fitted, they are those of
    the first method and of the best other one, on the first question set or else on the first benchmark.
    """
    if best := best_policy(inputs):
        never, *others = (
            best | {"policy": words, "accuracy": best[name], "of": best["dataset"]} for name, words in SHOWN.items()
        )
        return [never | {"method": "closed_book"}, *others]
    rows = [
        row | {"accuracy": row["substring"], "of": row["dataset"]}
        for dataset in inputs.asked[:1]
        for row in inputs.rows("accuracy", dataset=dataset)
    ] or _first_benchmark(inputs)
    rows = [row | {"policy": label(row["method"])} for row in rows if known(row["accuracy"])]
    return [*rows[:1], *sorted(rows[1:], key=lambda row: -row["accuracy"].value)[:1]]


def _first_benchmark(inputs: Inputs) -> list[Row]:
    rows = [row | {"of": row["task"]} for row in solved_tasks(inputs) if row["category"] == "all"]
    return [row for row in rows if (row["of"], row["lm"]) == (rows[0]["of"], rows[0]["lm"])]


def main_curve(inputs: Inputs) -> list[Row]:
    """Accuracy by popularity of the methods of `main_shares`."""
    of = {(row["of"], row["lm"], row["method"]) for row in main_shares(inputs)}
    rows = [row for dataset in inputs.asked for row in inputs.answered("accuracy_by_popularity", dataset=dataset)]
    return [row for row in rows if (row["dataset"], row["lm"], row["method"]) in of and enough_known(inputs, row)]


def main_bits(inputs: Inputs) -> list[Row]:
    """Of a run without answers, bits per byte without documents, with the best retriever's and with random ones."""
    if main_shares(inputs) or not (saved := saved_by_documents(inputs)):
        return []
    none = next(row for row in bits_by_k(inputs) if row["retriever"] == "none")
    rows = [none, *(saved[name] for name in ("best", "random") if saved[name])]
    return [row | {"policy": label(row["retriever"])} for row in rows]


def main_bits_by_k(inputs: Inputs) -> list[Row]:
    """Bits per byte by the number of documents, of the retrievers of `main_bits`."""
    names = {row["retriever"] for row in main_bits(inputs)}
    return [row for row in bits_by_k(inputs) if row["retriever"] in names]


def result_lines(outs: Collection[Path], params: SimpleNamespace) -> list[str]:
    """The results of a run that made the files and folders `outs`, by its params.

    These are accuracies where questions are answered, else bits per byte, else how many rows were made.
    """
    if landed.is_made(landed.ANALYSES, outs):
        inputs = read_inputs(Path("data"), params.lms, params.parts, params)
        lines = [*_shares(main_shares(inputs)), *_bits(main_bits(inputs))]
    else:
        lines = [*_shares(_policies(outs, params))]
    return lines or [*_counts(outs, params)]


def _policies(outs: Collection[Path], params: SimpleNamespace) -> list[Row]:
    """The rows of `main_shares` where thresholds are fitted and nothing is analysed yet."""
    best = landed.headlines(outs, params)[1].get("best method")
    if not best:
        return []
    of, lm = params.parts.answered[0], params.lms[0]
    found = measured(stage_metrics.read_metrics(Path("data"))["adaptive"][of][lm][best][params.thresholds.search])
    return [
        found | {"policy": words, "accuracy": found[name], "of": of, "lm": lm, "method": best}
        for name, words in SHOWN.items()
    ]


def _shares(rows: list[Row]) -> Iterator[str]:
    """The accuracies of policies with one method, or of methods."""
    for row in rows[:1]:
        method = f" with passages by {label(rows[-1]['method'])}" * ("adaptive" in row)
        yield f"{label(row['of'])}, answered by {row['lm']}{method}: % right, {INTERVALS}"
    for row in rows:
        retrieves = row["policy"] == SHOWN["adaptive"]
        said = f"; {100 * row['retrieved'].value:.0f} % of the questions retrieve" if retrieves else ""
        yield f"  {row['policy']:{_width(rows)}}  {show(Percent(row['accuracy']))}{said}"


def _bits(rows: list[Row]) -> Iterator[str]:
    """Bits per byte without documents, and in REPLUG with a retriever's."""
    for row in rows[:1]:
        yield f"{label(row['corpus'])}, read by {row['lm']}: bits per byte with documents by, {INTERVALS}"
    for row in rows:
        yield f"  {row['policy']:{_width(rows)}}  {show(row['bits_per_byte'])}"


def _counts(outs: Collection[Path], params: SimpleNamespace) -> Iterator[str]:
    """How many questions, triples and passages there are."""
    for name, figure in landed.figures(outs, params).items():
        kind, _, of = name.partition("/")
        if kind in ("questions", "triples", "passages"):
            yield f"{figure.value:,.0f} {kind}{f' of {label(of)}' * bool(of)}"


def _width(rows: list[Row]) -> int:
    return max(len(row["policy"]) for row in rows)
