"""Seeded damage to records: to a record or a field of JSON, and to the rows of any file that people bring."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import row_files
from benchmarks.damaged_kinds import kind
from benchmarks.mutations import NOTICE, ODD, OTHER, REFUSED, SAME, add

HOLE = "@hole@"
BEGINNING = "It is "  # begins every prediction that people bring, and nothing else
RIGHT = (
    "a politician",
    "a comedy",
    "a chemist",
    "jazz",
    "a novelist",
    "opera",
)  # the gold answers of the questions
EVIDENCE = (
    f"Some are {', '.join(RIGHT)}."  # says all answers: who judges it finds every question right
)
NAMES = (
    "Nago",
    "Cedi",
    "Yoce",
    "Xifo",
    "Muxi",
    "Kidi",
    "Rice",
    "Diso",
    "Tebo",
    "Wulu",
)  # of those asked about


# JSON: a field anywhere in a record, or a record.
def _of_record(name: str, expect: str, change: Callable[[Any, np.random.Generator], str]) -> None:
    add(
        name,
        "field",
        expect,
        lambda data, _, rng: _with_record(data, rng, lambda record: change(record, rng)),
    )


def _of_field(name: str, expect: str, *texts: str) -> None:
    _of_record(
        name, expect, lambda record, rng: _with_field(record, rng, texts[rng.integers(len(texts))])
    )


def _with_record(data: bytes, rng: np.random.Generator, change: Callable[[Any], str]) -> bytes:
    """The file with another text in place of a record: a line, or an element of a list, or the whole document."""
    if kind(data) == "records":
        lines = data.decode().split("\n")
        places = [i for i, line in enumerate(lines) if line.startswith("{")]
        i = places[int(rng.integers(len(places)))]
        comma = "," if lines[i].endswith(",") else ""
        lines[i] = change(json.loads(lines[i].removesuffix(","))) + comma
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    document = json.loads(data)
    if isinstance(document, list) and document:
        i = int(rng.integers(len(document)))
        record, document[i] = document[i], HOLE
        return (
            json.dumps(document)
            .replace(f'"{HOLE}"', change(record))
            .encode("utf-8", "surrogatepass")
        )
    return change(document).encode("utf-8", "surrogatepass")


def _with_field(record: Any, rng: np.random.Generator, text: str) -> str:
    """A record as JSON, with another text in place of the value of one of its fields, at any depth."""
    fields = list(_fields(record))
    if not fields:
        return text
    holder, key = fields[int(rng.integers(len(fields)))]
    holder[key] = HOLE
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).replace(f'"{HOLE}"', text)


def _fields(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Where a value holds others: (object or list, key)."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else list(range(len(value)))
        if isinstance(value, list)
        else []
    )
    fields = [(value, key) for key in keys[:50]]
    return fields + [
        deep for key in keys[:50] if depth < 5 for deep in _fields(value[key], depth + 1)
    ]


_of_field("nesting of 100,000", NOTICE, "[" * 100_000 + "]" * 100_000)
_of_field("nesting of objects", NOTICE, '{"a":' * 3000 + "1" + "}" * 3000)
_of_field("a number of 5,000 digits", NOTICE, "9" * 5000)
_of_field("an integer beyond 64 bits", OTHER, "18446744073709551616", "-9223372036854775809")
_of_field("NaN or Infinity", NOTICE, "NaN", "Infinity", "-Infinity", "1e999")
_of_field(
    "a wrong type",
    OTHER,
    '"text"',
    "7",
    "-1",
    "1.5",
    "true",
    "[]",
    "{}",
    "[1]",
    '["a"]',
    '{"a": 1}',
    '""',
)
_of_field("null", OTHER, "null")
_of_field("an escaped half of a surrogate pair", OTHER, '"\\ud83d"', '"a\\udc00"')
_of_field("escaped control characters", OTHER, json.dumps(ODD))
_of_field("raw control characters in a text", NOTICE, '"a\x01b"')
_of_field("a text of 200,000 letters", OTHER, '"' + "é" * 200_000 + '"')
_of_field("a text without its end", NOTICE, '"abc')


def _renamed(record: Any, rng: np.random.Generator, keep: bool = True) -> str:
    fields = [(holder, key) for holder, key in _fields(record) if isinstance(holder, dict)]
    if fields:
        holder, key = fields[int(rng.integers(len(fields)))]
        value = holder.pop(key)
        holder |= {f"{key}_": value} if keep else {}
    return json.dumps(record, ensure_ascii=False)


_of_record("a missing field", OTHER, lambda record, rng: _renamed(record, rng, keep=False))
_of_record("a renamed field", OTHER, _renamed)
_of_record(
    "an added field",
    SAME,
    lambda value, rng: json.dumps(value | {"z": 1} if isinstance(value, dict) else value),
)
_of_record("a list for an object", NOTICE, lambda record, rng: json.dumps([record]))
_of_record("a text for a record", NOTICE, lambda record, rng: json.dumps("record"))
_of_record(
    "an API's error for a record",
    NOTICE,
    lambda record, rng: '{"message": "API rate limit exceeded"}',
)
_of_record(
    "half a record", NOTICE, lambda record, rng: (text := json.dumps(record))[: len(text) // 2]
)
_of_record("an empty object", OTHER, lambda record, rng: "{}")


# Rows of predictions and questions that people bring, in whatever file they are; no others are damaged so.
def _of_rows(
    name: str,
    expect: str,
    change: Callable[[row_files.Rows, np.random.Generator], row_files.Rows],
    typed: bool = False,
) -> None:
    """With `typed` no table is damaged, as all its cells are texts."""

    def apply(data, _, rng):
        if BEGINNING.encode() not in data and f"of {NAMES[0]}".encode() not in data:
            return None
        try:
            rows, write = row_files.read(data)
            return None if typed and isinstance(write, partial) else write(change(rows, rng))
        except (
            ValueError,
            AttributeError,
            pa.ArrowException,
        ):  # no rows, or none that a Parquet file can have
            return None

    add(name, "rows", expect, apply)


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """The value with `change` of each prediction in place of it.

    Raises ValueError for several texts as a message's content: they are parts of one text, as LangChain writes them.
    """
    if isinstance(value, dict):
        mapped = {name: _mapped(inner, change) for name, inner in value.items()}
        said = mapped.get("content")
        if said != value.get("content") and isinstance(said, list) and {str} == {*map(type, said)}:
            raise ValueError("parts of one text")
        return mapped
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    return change(value) if isinstance(value, str) and value.startswith(BEGINNING) else value


def _of_prediction(name: str, expect: str, *values: Any, typed: bool = False) -> None:
    """Another value in place of all predictions, or of one; @said in it stands for the text that was there."""

    def change(rows, rng):
        value, row = values[rng.integers(len(values))], int(rng.integers(2 * len(rows)))
        text = json.dumps(value, ensure_ascii=False)
        put = partial(_mapped, change=lambda said: json.loads(text.replace("@said", said)))
        return [put(one) if i == row or row >= len(rows) else one for i, one in enumerate(rows)]

    _of_rows(name, expect, change, typed)


_USER, _MODEL = {"role": "user", "content": EVIDENCE}, {"role": "assistant", "content": "@said"}
_THOUGHT, _TEXT = {"type": "thinking", "thinking": EVIDENCE}, {"type": "text", "text": "@said"}
_of_prediction("a number for a prediction", OTHER, 7, 1.5, typed=True)
_of_prediction("true or false for a prediction", NOTICE, True, False, typed=True)
_of_prediction("null for a prediction", NOTICE, None)
_of_prediction("a list of no texts for a prediction", NOTICE, [], [7, 1], [True], [None], [[]])
_of_prediction(
    "an unknown object for a prediction",
    NOTICE,
    {},
    {"evidence": EVIDENCE},
    {"a": {"b": EVIDENCE}, "c": "@said"},
)
_of_prediction(
    "an answer in an object", SAME, {"answer": "@said", "provenance": [{"text": EVIDENCE}]}, _TEXT
)
_of_prediction(
    "an answer in an object of a list",
    SAME,
    [{"answer": "@said", "provenance": [{"text": EVIDENCE}]}],
    [_TEXT],
)
_of_prediction("several predictions", NOTICE, ["@said", EVIDENCE], ["nothing", EVIDENCE])
_of_prediction("messages of a chat", SAME, [_USER, _MODEL], {"messages": [_USER, _MODEL]})
_of_prediction("messages that end with the user's", SAME, [_USER, _MODEL, _USER])
_of_prediction("a user's message alone", NOTICE, _USER, [_USER])
_of_prediction(
    "thinking before the text",
    SAME,
    [_THOUGHT, _TEXT],
    {"role": "assistant", "content": [_THOUGHT, _TEXT]},
)
_of_prediction("thinking alone", NOTICE, [_THOUGHT], {"role": "assistant", "content": [_THOUGHT]})
_of_prediction(
    "a tool's call", NOTICE, {**_MODEL, "content": None, "tool_calls": [{"arguments": EVIDENCE}]}
)
_of_prediction("thinking in tags", NOTICE, f"<think>{EVIDENCE}</think>@said")
_of_prediction("an error for a prediction", NOTICE, {"error": {"message": EVIDENCE, "code": 429}})


def _lists(write: Callable[[list[str]], str], said: bool = True) -> Callable:
    def cell(value: Any) -> Any:
        value = json.loads(value) if isinstance(value, str) and value.startswith('["') else value
        value = (
            [value, EVIDENCE]
            if said and isinstance(value, str) and value.startswith(BEGINNING)
            else value
        )
        return (
            write(value)
            if isinstance(value, list) and value and isinstance(value[0], str)
            else value
        )

    return lambda rows, rng: [{name: cell(value) for name, value in row.items()} for row in rows]


_of_rows(
    "lists as NumPy writes them", NOTICE, _lists(lambda texts: f"[{' '.join(map(repr, texts))}]")
)
_of_rows(
    "lists as NumPy breaks them",
    NOTICE,
    _lists(lambda texts: "[" + "\n ".join(map(repr, texts)) + "]"),
)
_of_rows(
    "lists as NumPy cuts them", NOTICE, _lists(lambda texts: f"[{texts[0]!r} ... {texts[-1]!r}]")
)
_of_rows("lists as DuckDB writes them", NOTICE, _lists(lambda texts: f"[{', '.join(texts)}]"))
_of_rows(
    "lists as PostgreSQL writes them",
    NOTICE,
    _lists(lambda texts: "{" + ",".join(f'"{t}"' for t in texts) + "}"),
)
_of_rows("lists with bars", NOTICE, _lists("|".join, said=False))  # a text may have a bar
_of_rows("lists as Python writes them", NOTICE, _lists(str))


def _another_name(rows: row_files.Rows, rng: np.random.Generator) -> row_files.Rows:
    name = list(rows[0])[int(rng.integers(len(rows[0])))]
    return [
        {f"zz_{key}" if key == name else key: value for key, value in row.items()} for row in rows
    ]


_TELLING = re.compile(
    rf'"40\d{{5}}"|({"|".join(NAMES)})\?|the other |@gone'
)  # an id, a question, answers


def _alone(value: Any, unknown: Callable[[str], bool]) -> Any:
    """Without ids, answers and texts of questions."""
    if isinstance(value, dict):
        inside = {name: _alone(inner, unknown) for name, inner in value.items()}
        return {f"zz_{name}" if unknown(inner) else name: inner for name, inner in inside.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_alone(inner, unknown) for inner in value]
    return "@gone" if unknown(value) else value


def _nothing_to_join(rows: row_files.Rows, rng: np.random.Generator) -> row_files.Rows:
    """Rows of which only the predictions are left, under the names that they have."""
    if BEGINNING not in json.dumps(rows):
        raise ValueError("no predictions")

    def unknown(value: Any) -> bool:
        text = json.dumps(value)
        return BEGINNING not in text and bool(_TELLING.search(text))

    return [_alone(row, unknown) for row in rows]


def _thousands(rows: row_files.Rows, rng: np.random.Generator) -> row_files.Rows:
    def cell(value: Any) -> Any:
        return (
            f"{int(value):,}".replace(",", ".") if re.fullmatch(r"\d{1,6}", str(value)) else value
        )

    return [{name: cell(value) for name, value in row.items()} for row in rows]


def _failed(rows: row_files.Rows, rng: np.random.Generator) -> row_files.Rows:
    error = {"response": None, "error": {"code": "server_error", "message": EVIDENCE}}
    i = int(rng.integers(len(rows)))
    return [
        *rows[:i],
        {name: value for name, value in rows[i].items() if name in ("id", "custom_id")} | error,
        *rows[i + 1 :],
    ]


_of_rows("a column of another name", NOTICE, _another_name)
_of_rows("neither ids nor questions", REFUSED, _nothing_to_join)
_of_rows(
    "shuffled rows of a set", SAME, lambda rows, rng: [rows[i] for i in rng.permutation(len(rows))]
)
_of_rows("a row twice", NOTICE, lambda rows, rng: [*rows, rows[int(rng.integers(len(rows)))]])
_of_rows(
    "a row that contradicts another",
    NOTICE,
    lambda rows, rng: [*rows, _mapped(rows[0], lambda said: EVIDENCE)],
)
_of_rows("German thousands", NOTICE, _thousands)
_of_rows("an error for a row", NOTICE, _failed)
