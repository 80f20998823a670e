"""A run's main results as lines for a terminal: those with which the report begins."""

from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace

from pipelines.evaluation import stage_metrics
from pipelines.report import landed, main_result
from pipelines.report.entries import Row, measured
from pipelines.report.inputs import read_inputs
from pipelines.report.page import Percent, label, show

INTERVALS = "with 95 % intervals"


def result_lines(outs: Collection[Path], params: SimpleNamespace) -> list[str]:
    """The results of a run that made the files and folders `outs`, by its params.

    These are accuracies where questions are answered, else bits per byte, else how many rows were made.
    """
    if landed.is_made(landed.ANALYSES, outs):
        inputs = read_inputs(Path("data"), params.lms, params.parts, params)
        lines = [*_shares(main_result.main_shares(inputs)), *_bits(main_result.main_bits(inputs))]
    else:
        lines = [*_shares(_policies(outs, params))]
    return lines or [*_counts(outs, params)]


def _policies(outs: Collection[Path], params: SimpleNamespace) -> list[Row]:
    """The rows of `main_result.main_shares` where thresholds are fitted and nothing is analysed yet."""
    best = landed.headlines(outs, params)[1].get("best method")
    if not best:
        return []
    of, lm = params.parts.answered[0], params.lms[0]
    found = measured(stage_metrics.read_metrics(Path("data"))["adaptive"][of][lm][best][params.thresholds.search])
    return [
        found | {"policy": words, "accuracy": found[name], "of": of, "lm": lm, "method": best}
        for name, words in main_result.SHOWN.items()
    ]


def _shares(rows: list[Row]) -> Iterator[str]:
    """The accuracies of policies with one method, or of methods."""
    for row in rows[:1]:
        method = f" with passages by {label(rows[-1]['method'])}" * ("adaptive" in row)
        yield f"{label(row['of'])}, answered by {row['lm']}{method}: % right, {INTERVALS}"
    for row in rows:
        retrieves = row["policy"] == main_result.SHOWN["adaptive"]
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
