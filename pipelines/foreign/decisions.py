"""When other systems retrieved, and how unsure they are: numbers of columns in many spellings."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipelines.foreign.cell_values import as_text, judgement, number_of
from pipelines.foreign.layouts import DOUBT, RETRIEVED
from pipelines.foreign.record_file import Cells

# Routes of Adaptive-RAG and tokens of Self-RAG: how often they retrieve.
ROUTES = {"a": 0, "b": 1, "c": 2, "[no retrieval]": 0, "[retrieval]": 1}


def read_calls(cells: Cells, names: dict[str, str], notes: list[str]) -> list[float] | None:
    """How often a system retrieved, NaN where that is not known; `names` gets the column."""
    expected = "decision or number of retrievals"
    for column, calls in _numbers(cells, notes, RETRIEVED, calls_of, expected):
        names["retrieved"] = column
        return calls
    return None


def read_doubt(cells: Cells, names: dict[str, str], notes: list[str]) -> list[float] | None:
    """How unsure a system is, infinite where that is not known; `names` gets the column."""
    for column, values in _numbers(cells, notes, DOUBT, number_of, "number"):
        names["doubt"] = column
        sign = DOUBT[column]
        return [math.inf if math.isnan(value) else sign * value for value in values]
    return None


def _numbers(
    cells: Cells,
    notes: list[str],
    names: Iterable[str],
    parse: Callable[[Any], float | None],
    expected: str,
) -> Iterator[tuple[str, list[float]]]:
    """Yield the columns that have numbers; a note names what has something else."""
    for name in names:
        values = [parse(cell) for cell in cells.get(name, [])]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values):
            row = values.index(None)
            shown = as_text(cells[name][row])[:60]
            notes.append(f"`{name}` is left aside: {shown!r} in row {row + 1} is no {expected}")
        elif not all(map(math.isnan, numbers)):
            yield name, numbers


def calls_of(value: Any) -> float | None:
    """How many retrievals a cell speaks of: 1 for yes, NaN if it is empty, None if of none.

    Adaptive-RAG's route C stands for several retrievals and counts as two. An object is Self-RAG's
    `all_results`: what it wrote without, and with each passage that it read. A list is FLARE's
    `retrieval`, of a list for each retrieval.
    """
    if isinstance(value, list) and all(isinstance(step, list) for step in value):
        return float(len(value))
    if isinstance(value, dict):
        names = set(value) - {"no_retrieval"}
        if not all(name.startswith("retrieval_") for name in names):
            return None
        return float(bool(names))

    text = as_text(value).lower()
    if text in ROUTES:
        return float(ROUTES[text])
    is_yes = judgement(value)
    number = number_of(value) if is_yes is None else float(is_yes)
    if number is None or number < 0 or number % 1 > 0:
        return None
    return number
