"""Predictions that other people's systems wrote: many layouts, read as columns of one form."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.sources import prediction_layouts as layouts
from pipelines.sources.cell_values import answer_list, as_text, clean_id, composed, judgement, written_list
from pipelines.sources.record_files import columns_of, listed, read_any_records

REASONING = re.compile(r"</?(?:think|thinking|reasoning|answer|search|information)>|\\boxed\{", re.IGNORECASE)
LONG = 1000  # characters from which on a text is no answer but says how it was found
MARK = re.compile(r".\banswer:", re.IGNORECASE | re.DOTALL)  # with a text before it
EXPECTED = (
    f"one with what a model said ({', '.join(layouts.PREDICTION)}), or with whether that was right "
    f"({', '.join((*layouts.JUDGED, *layouts.SCORES))})"
)


@dataclass(frozen=True)
class Predictions:
    """The rows of a file, (rows,) each; a column that the file lacks is None or not in its dictionary."""

    path: Path
    layout: str  # in words, such as "TSV" or "lm-evaluation-harness' samples"
    rows: int
    names: dict[str, str]  # "prediction", "correct", "question", "answers", "prompt" -> the column's name in the file
    texts: list[str] | None  # what the model said, as NFC, without white space around it
    correct: list[bool] | None  # the file's own judgement
    ids: dict[str, list[str]]  # column -> ids
    questions: list[str] | None
    cells: dict[str, list[Any]]  # column -> its cells, as they are in the file
    places: Mapping[str, str]  # column -> its place in the records, where a layout has it elsewhere
    is_cut: bool  # by a pattern
    notes: list[str]  # what may surprise who brought it, in lines

    @cached_property
    def answers(self) -> list[tuple[str, ...]] | None:
        """The gold answers that the file carries; empty where it has none."""
        return list(map(answer_list, self.cells[self.names["answers"]])) if "answers" in self.names else None

    def column(self, name: str) -> list[str] | None:
        """A column as texts."""
        return list(map(as_text, self.cells[name])) if name in self.cells else None

    def described(self) -> list[str]:
        """What the file is and what its predictions look like, in lines for the one who brought it."""
        columns = [f"{what} in `{self.places.get(name, name)}`" for what, name in self.names.items()]
        columns += [f"ids in `{name}`" for name in self.ids]
        return [f"{self.path.name}: {self.layout}, {self.rows:,} rows; {', '.join(columns)}", *self.notes]


def read_predictions(path: Path, more: Collection[str] = (), pattern: str | None = None) -> Predictions:
    """The predictions of a file: a table, JSON, JSON lines or Parquet, compressed (.gz, .bz2, .zst) or not.

    `more` are names of further columns to keep. `pattern` cuts the answers out of longer texts, if any text has it; a
    text without it then is an empty prediction. Raises LongtailError, in one line, for a file that has neither
    predictions nor judgements, has a column twice or none below its header, or is damaged.
    """
    kind, header, records = read_any_records(path, {*layouts.KNOWN, *layouts.FIELDS, *more}, EXPECTED)
    number, first = next(records)
    layout = layouts.layout_of(first)
    flat = ((number, layouts.flattened(row, layout)) for number, row in chain([(number, first)], records))
    cells, notes = columns_of(path, flat, {*layouts.KNOWN, *more, *([layouts.FILTER] if layout else ())}), []
    filters = cells.pop(layouts.FILTER, [])
    if len(several := list(dict.fromkeys(filters))) > 1:  # the harness writes a sample once for each of its filters
        chosen = [name == several[0] for name in filters]
        cells = {name: list(compress(values, chosen)) for name, values in cells.items()}
        notes.append(
            f"of the filters {', '.join(several)}, the responses of {several[0]} are taken; keep another's lines to "
            "take those"
        )
    column = {
        "prediction": _prediction_column(cells),
        "correct": _first(cells, (*layouts.JUDGED, *layouts.SCORES)),
        "question": next((name for name in layouts.QUESTION if any(cells.get(name, ()))), ""),
        "answers": _first(cells, layouts.ANSWERS),
        "prompt": _first(cells, layouts.PROMPT),
    }
    ids = {name: list(map(clean_id, cells[name])) for name in layouts.IDS if name in cells}
    correct = _judgements(path, column["correct"], cells, ids) if column["correct"] else None
    if not column["prediction"] and correct is None:
        no_use = "; its answer has gold answers" if "answer" in cells else ""
        no_use += "".join(f"; its {name} is not true or false in every row" for name in layouts.SCORES if name in cells)
        raise LongtailError(f"{path}: its columns are {listed(header)}, expected {EXPECTED}; rename one{no_use}")
    column["correct"] = column["correct"] if correct else ""
    texts, is_cut = None, False
    if column["prediction"]:
        texts, is_cut, more_notes = _texts(path, cells[column["prediction"]], pattern)
        notes += more_notes
    names = {what: name for what, name in column.items() if name}
    questions = list(map(as_text, cells[column["question"]])) if column["question"] else None
    rows, places = len(next(iter(cells.values()))), layout.columns if layout else {}
    kind = layout.name if layout else kind
    return Predictions(path, kind, rows, names, texts, correct, ids, questions, cells, places, is_cut, notes)


def cut_answers(texts: Sequence[str], pattern: str) -> list[str | None]:
    """What the first group of `pattern` holds in each text, at the match that begins last; None where a text has none.

    The pattern is of RE2's kind, which takes time in proportion to the text, whatever the pattern; `.` matches line
    ends too. Raises LongtailError for a pattern that is none or has no group, also if there are no texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values, nothing = pa.array(texts, pa.large_string()), pa.array([""], pa.large_string())
    last = rf"(?s)\A.*(?:{pattern}).*\z"
    try:
        pc.match_substring_regex(nothing, pattern)  # alone, as `last` could close a parenthesis or a bracket of it
        pc.replace_substring_regex(nothing, last, r"\1", max_replacements=1)
        has = pc.match_substring_regex(values, last).to_pylist()
        parts = pc.replace_substring_regex(values, last, r"\1", max_replacements=1).to_pylist()
    except pa.ArrowInvalid as error:
        said = " ".join(str(error).split())[:200].removeprefix("Invalid regular expression: ")
        raise LongtailError(
            f"--answer-pattern {pattern}: {said}; expected a pattern with a group, as '<answer>(.*?)</answer>'"
        ) from None
    return [part if ok else None for part, ok in zip(parts, has, strict=True)]


def _first(columns: Collection[str], names: Sequence[str]) -> str:
    return next((name for name in names if name in columns), "")


def _prediction_column(columns: dict[str, list[Any]]) -> str:
    """The column with what the model said. `answer` is taken only where nothing else judges, and it has no lists.

    A column without any text, as an import of judgements has one, is taken only where nothing judges either.
    """
    judged = any(other in columns for other in layouts.JUDGED)
    filled = [name for name in layouts.PREDICTION if any(cell not in (None, "") for cell in columns.get(name, ()))]
    name = _first(filled, layouts.PREDICTION) or ("" if judged else _first(columns, layouts.PREDICTION))
    if name != "answer":
        return name
    return "" if judged or all(map(answer_list, columns[name])) else name


def _texts(path: Path, cells: Sequence[Any], pattern: str | None) -> tuple[list[str], bool, list[str]]:
    """What was said, whether a pattern cut it out of more, and what may surprise about it, in lines."""
    whole, lists = [], 0
    for row, value in enumerate(cells, start=1):
        text, several = _prediction(path, row, value)
        whole.append(text)
        lists += several
    texts, is_cut = [text.strip() for text in whole], False
    if pattern:
        parts = cut_answers(whole, pattern)
        if None in parts:  # for a pattern that ends with $, say, a line end after the answer makes no difference
            parts = [a if a is not None else b for a, b in zip(parts, cut_answers(texts, pattern), strict=True)]
        if is_cut := any(part is not None for part in parts):
            texts = [(part or "").strip() for part in parts]
    reasoning = sum(len(text) > LONG or bool(REASONING.search(text)) for text in texts)
    marked = 0 if is_cut else sum(bool(MARK.search(text)) for text in texts)
    counts = {
        "are empty, and so wrong": texts.count(""),
        "have nothing that --answer-pattern finds": parts.count(None) if is_cut else 0,
        "are lists; the first text of each is judged": lists,
        "are whole texts of reasoning, where a name that is only mentioned counts; --answer-pattern "
        "'<answer>(.*?)</answer>' judges that part alone": reasoning,
        "say 'Answer:' before the answer, and all of the text is judged; --answer-pattern '(?i)answer:(.*)' judges "
        "what follows alone": marked,
    }
    return texts, is_cut, [f"{n:,} of {len(texts):,} predictions {what}" for what, n in counts.items() if n]


def _prediction(path: Path, row: int, value: Any) -> tuple[str, bool]:
    """What was said, and whether it was the first of several texts."""
    if isinstance(value, str):
        written = written_list(value.strip()) if value[:1] in "[ " else None
        if written is None or not all(isinstance(text, str) for text in written):
            return composed(value), False
        value = written
    several = False
    while isinstance(value, list):
        several |= len(value) != 1
        value = next(iter(value), "")
        if several and isinstance(value, float | int) and not isinstance(value, bool):
            raise LongtailError(f"{path}: row {row}: the prediction is a list of numbers, expected generated text")
    if isinstance(value, dict):
        raise LongtailError(f"{path}: row {row}: the prediction is an object ({str(value)[:80]}), expected a text")
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value), several


def _judgements(path: Path, name: str, columns: dict[str, list[Any]], ids: dict[str, list[str]]) -> list[bool] | None:
    """What a column says is right; None for one of SCORES that is neither true nor false somewhere, such as F1."""
    judged = list(map(judgement, columns[name]))
    if None not in judged or name in layouts.SCORES:
        return None if None in judged else judged
    row = judged.index(None)
    which, said = next(iter(ids.values()))[row] if ids else f"row {row + 1}", as_text(columns[name][row])
    raise LongtailError(f"{path}: {name} of {which} is {said!r}, expected true or false; correct it")
