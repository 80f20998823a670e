"""Predictions that other people's systems wrote: many layouts, read as columns of one form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.sources.cell_values import answer_list, as_text, clean_id, composed, judgement, written_list
from pipelines.sources.prediction_layouts import (
    ANSWERS,
    FIELDS,
    IDS,
    JUDGED,
    KNOWN,
    PREDICTION,
    PROMPT,
    QUESTION,
    SAID,
    SCORES,
    TELLING,
    Flat,
    layout,
    of_harness,
    plain,
)
from pipelines.sources.prediction_records import listed, records

REASONING = re.compile(r"</?(?:think|thinking|reasoning|answer|search|information)>|\\boxed\{", re.IGNORECASE)
MARK = re.compile(r".\banswer:", re.IGNORECASE | re.DOTALL)  # with a text before it
EXPECTED = (
    f"one with what a model said ({', '.join(PREDICTION)}), or with whether that was right "
    f"({', '.join((*JUDGED, *SCORES))})"
)
PATTERN_FAULTS = {  # what RE2 says of a pattern -> in plain words
    "missing )": "a ( in it has no )",
    "unexpected )": "a ) in it has no (",
    "missing ]": "a [ in it has no ]",
    "no argument for repetition operator": "a *, + or ? in it has nothing before it to repeat",
    "bad repetition operator": "it repeats what is repeated already",
    "invalid repetition size": "it repeats something more than 1,000 times",
    "invalid perl operator": "it looks ahead or behind, or names a group, in a way that is not known here",
    "invalid escape sequence": "a backslash in it stands before a character where it means nothing",
    "Rewrite schema requests": "it has no group in parentheses around the answer",
}
LONG = 1000  # characters from which on a text is no answer but says how it was found


class Texts(Mapping):
    """Columns as texts, each made when it is asked for: of most files nobody asks."""

    def __init__(self, cells: dict[str, list[Any]]) -> None:
        self._cells, self._texts = cells, {}

    def __getitem__(self, name: str) -> list[str]:
        if name not in self._texts:
            self._texts[name] = list(map(as_text, self._cells[name]))
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


@dataclass(frozen=True)
class Predictions:
    """The rows of a file, (rows,) each; a column that the file lacks is None or not in its dictionary."""

    path: Path
    layout: str  # in words, such as "TSV" or "lm-evaluation-harness' samples"
    rows: int
    names: dict[str, str]  # "prediction", "correct", "question", "answers" -> the column's name in the file
    texts: list[str] | None  # what the model said, as NFC, without white space around it
    correct: list[bool] | None  # the file's own judgement
    ids: dict[str, list[str]]  # column -> ids
    questions: list[str] | None
    columns: Texts  # other columns that were asked for, and those of TELLING, as texts
    cells: dict[str, list[Any]]  # "answers" and "prompts" -> the column as it is in the file
    empty: int = 0  # predictions without a text
    lists: int = 0  # predictions that are lists; the first text of each is taken
    marked: int = 0  # predictions with a mark before the answer, such as "Answer:"
    reasoning: int = 0  # predictions that are whole texts of reasoning, by their tags or their length
    uncut: int | None = None  # predictions in which the pattern finds no answer; None if none was cut
    note: str = ""  # what was chosen from the file

    @cached_property
    def answers(self) -> list[tuple[str, ...]] | None:
        """The gold answers that the file carries; empty where it has none."""
        return list(map(answer_list, self.cells["answers"])) if "answers" in self.cells else None

    @cached_property
    def prompts(self) -> list[str] | None:
        return list(map(as_text, self.cells["prompts"])) if "prompts" in self.cells else None

    def described(self) -> list[str]:
        """What the file is and what its predictions look like, in lines for the one who brought it."""
        columns = ", ".join(f"{what} in `{name}`" for what, name in self.names.items())
        ids = ", ".join(f"ids in `{name}`" for name in self.ids)
        lines = [f"{self.path.name}: {self.layout}, {self.rows:,} rows; {', '.join(filter(None, [columns, ids]))}"]
        lines += [self.note] if self.note else []
        if self.empty:
            lines.append(f"{self.empty:,} of {self.rows:,} predictions are empty, and so wrong")
        if self.uncut:
            lines.append(f"{self.uncut:,} of them have nothing that --answer-pattern finds")
        if self.lists:
            lines.append(f"{self.lists:,} of {self.rows:,} predictions are lists; the first text of each is judged")
        if self.reasoning:
            lines.append(
                f"{self.reasoning:,} of {self.rows:,} predictions are whole texts of reasoning, where a name that is "
                "only mentioned counts; --answer-pattern '<answer>(.*?)</answer>' judges that part alone"
            )
        if self.marked:
            lines.append(
                f"{self.marked:,} of {self.rows:,} predictions say 'Answer:' before the answer, and all of the text is "
                "judged; --answer-pattern '(?i)answer:(.*)' judges what follows alone"
            )
        return lines


def read(path: Path, more: Collection[str] = (), pattern: str | None = None) -> Predictions:
    """The predictions of a file: a table, JSON, JSON lines or Parquet, compressed (.gz, .bz2, .zst) or not.

    `more` are names of further columns to keep. `pattern` cuts the answers out of longer texts, if any text has it; a
    text without it then is an empty prediction. Raises LongtailError, in one line, for a file that has neither
    predictions nor judgements, has a column twice or none below its header, or is damaged.
    """
    wanted = {*KNOWN, *more}
    kind, names, rows = records(path, lambda name: plain(name) in wanted | FIELDS, EXPECTED)
    first = next(rows)
    name, flat = layout(kind, {plain(name) for name in first[1]}, first[1])
    columns, filters = _columns(path, chain([first], rows), flat, wanted)
    column = {
        "prediction": _prediction_column(columns),
        "correct": next((name for name in (*JUDGED, *SCORES) if name in columns), ""),
        "question": next((name for name in QUESTION if name in columns), ""),
        "answers": next((name for name in ANSWERS if name in columns), ""),
    }
    ids = {name: [clean_id(value) for value in columns[name]] for name in IDS if name in columns}
    correct = _judgements(path, column["correct"], columns, next(iter(ids.values()), None))
    column["correct"] = column["correct"] if correct else ""
    if not column["prediction"] and correct is None:
        no_use = "; its answer has gold answers" if "answer" in columns else ""
        no_use += "".join(f"; its {name} is not true or false in every row" for name in SCORES if name in columns)
        raise LongtailError(f"{path}: its columns are {listed(names)}, expected {EXPECTED}; rename one{no_use}")
    texts, lists, uncut = None, 0, None
    if column["prediction"]:
        shaped = [_prediction(path, row, value) for row, value in enumerate(columns[column["prediction"]], start=1)]
        texts, lists = [text for text, _ in shaped], sum(is_list for _, is_list in shaped)
        stripped = [text.strip() for text in texts]
        parts = cut(texts, pattern) if pattern else []
        if None in parts:  # for a pattern that ends with $, say, a line end after the answer makes no difference
            parts = [a if a is not None else b for a, b in zip(parts, cut(stripped, pattern), strict=True)]
        uncut = parts.count(None) if any(part is not None for part in parts) else None
        texts = stripped if uncut is None else [(part or "").strip() for part in parts]
    size = len(next(iter(columns.values())))
    shown = {"answers": column["answers"], "prompts": next((name for name in PROMPT if name in columns), "")}
    return Predictions(
        path=path,
        layout=name,
        rows=size,
        names={what: name for what, name in (column | SAID.get(flat, {})).items() if name},
        texts=texts,
        correct=correct,
        ids=ids,
        questions=list(map(as_text, columns[column["question"]])) if column["question"] else None,
        columns=Texts({name: columns[name] for name in (*TELLING, *more) if name in columns}),
        cells={what: columns[name] for what, name in shown.items() if name},
        empty=texts.count("") if texts else 0,
        lists=lists,
        reasoning=sum(len(text) > LONG or bool(REASONING.search(text)) for text in texts or ()),
        marked=sum(bool(MARK.search(text)) for text in texts or ()) if uncut is None else 0,
        uncut=uncut,
        note=_filters_note(filters),
    )


def cut(texts: Sequence[str], pattern: str) -> list[str | None]:
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
        said = " ".join(str(error).split())[:200]
        fault = next((words for sign, words in PATTERN_FAULTS.items() if sign in said), said)
        raise LongtailError(
            f"--answer-pattern {pattern}: {fault}; expected a pattern with a group, as '<answer>(.*?)</answer>'"
        ) from None
    return [part if ok else None for part, ok in zip(parts, has, strict=True)]


def _columns(
    path: Path, rows: Iterator[tuple[int, dict[str, Any]]], flat: Flat, wanted: Collection[str]
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Column -> values, of the columns that are wanted; and how many rows each of the harness's filters has.

    The harness writes each sample once for each filter. Only the rows of the first one are taken.
    """
    columns: dict[str, list[Any]] = {}
    spelled: dict[str, str] = {}  # as the first row spells them -> plain
    names: Collection[str] = ()  # of the first row
    keys: frozenset[str] | None = None
    filters: Counter[str] = Counter()
    for number, row in rows:
        record = flat(row)
        if keys is None:
            spelled = {name: plain(name) for name in record if plain(name) in wanted}
            if twice := next((name for name, count in Counter(spelled.values()).items() if count > 1), None):
                raise LongtailError(
                    f"{path}: two columns {twice!r} (capitals make no difference), expected one; drop one"
                )
            names, keys, columns = record.keys(), frozenset(spelled), {name: [] for name in spelled.values()}
        more = () if record.keys() == names else record.keys() - keys
        if not keys <= record.keys() or (more and any(plain(name) in wanted for name in more)):
            lacks = sorted(keys - record.keys()) or sorted(n for n in more if plain(n) in wanted)
            raise LongtailError(
                f"{path}: row {number}: other columns than the first ({listed(lacks)}), expected the same in every row"
            )
        if flat is of_harness:
            filters[record["filter"]] += 1
            if record["filter"] != next(iter(filters)):
                continue
        for name, key in spelled.items():
            columns[key].append(record[name])
    return columns, filters


def _filters_note(filters: Counter[str]) -> str:
    if len(filters) < 2:
        return ""
    chosen = next(iter(filters))
    return (
        f"of the filters {', '.join(filters)}, the responses of {chosen} are taken; keep another's lines to take those"
    )


def _prediction_column(columns: dict[str, list[Any]]) -> str:
    """The column with what the model said. `answer` is taken only where nothing else judges, and it has no lists."""
    name = next((name for name in PREDICTION if name in columns), "")
    if name != "answer":
        return name
    judged = any(other in columns for other in JUDGED)
    return "" if judged or all(answer_list(value) for value in columns[name]) else name


def _prediction(path: Path, row: int, value: Any) -> tuple[str, bool]:
    """What was said, and whether it was a list."""
    if isinstance(value, dict):
        raise LongtailError(f"{path}: row {row}: the prediction is an object ({str(value)[:80]}), expected a text")
    if isinstance(value, str):
        texts = written_list(value.strip()) if value[:1] in "[ " else None
        if texts is None or not all(isinstance(text, str) for text in texts):
            return composed(value), False
        value = texts
    if isinstance(value, (list, tuple)):
        head: Any = value
        while isinstance(head, (list, tuple)) and head:
            head = head[0]
        if isinstance(head, (float, int)) and not isinstance(head, bool) and len(value) > 1:
            raise LongtailError(f"{path}: row {row}: the prediction is a list of numbers, expected generated text")
        return ("" if isinstance(head, (list, tuple)) else as_text(head)), True
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return as_text(value), False


def _judgements(path: Path, name: str, columns: dict[str, list[Any]], ids: list[str] | None) -> list[bool] | None:
    if not name:
        return None
    judged = []
    for row, value in enumerate(columns[name]):
        truth = judgement(value)
        if truth is None:
            if name in SCORES:
                return None  # F1, say
            which = ids[row] if ids else f"row {row + 1}"
            raise LongtailError(f"{path}: {name} of {which} is {as_text(value)!r}, expected true or false; correct it")
        judged.append(truth)
    return judged
