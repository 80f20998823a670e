"""The mutations of what stands in a file: lines, JSON, tables, Parquet, arrays, XML and SQL (see mutations.py)."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.mutations import HOLE, NOTICE, ODD, OTHER, SAME, kind, mutation


# Lines.
def _of_lines(name: str, expect: str, change: Callable, of: str = "lines") -> None:
    @mutation(name, of, expect)
    def _(data, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        changed = change(lines, int(rng.integers(len(lines))), rng)
        return None if changed is None else b"\n".join(changed) + b"\n"


_of_lines("a lost line", OTHER, lambda lines, i, rng: lines[:i] + lines[i + 1 :])
_of_lines("a doubled line", OTHER, lambda lines, i, rng: [*lines[: i + 1], *lines[i:]])
_of_lines("blank lines", OTHER, lambda lines, i, rng: [*lines[:i], b"", b"  ", *lines[i:]])
_of_lines("shuffled lines", OTHER, lambda lines, i, rng: [lines[j] for j in rng.permutation(len(lines))])
_of_lines("a cut line", OTHER, lambda lines, i, rng: [*lines[:i], lines[i][: len(lines[i]) // 2], *lines[i + 1 :]])
_of_lines("two lines in one", OTHER, lambda lines, i, rng: [*lines[:i], b"".join(lines[i : i + 2]), *lines[i + 2 :]])
_of_lines("a line of 70 MB", OTHER, lambda lines, i, rng: [*lines[:i], lines[i] + b"a" * 70_000_000, *lines[i + 1 :]])
_of_lines("only its first line", OTHER, lambda lines, i, rng: lines[:1])
_of_lines("a line that is none of its rows", NOTICE, lambda lines, i, rng: [*lines[:i], b"{ <x>", *lines[i:]])
_of_lines("another first number", OTHER, lambda lines, i, rng: _another_number(lines, i, rng))


def _another_number(lines: list[bytes], i: int, rng: np.random.Generator) -> list[bytes] | None:
    digits = (b"7", b"-1", b"1.5", b"9" * 5000, b"18446744073709551616")[int(rng.integers(5))]
    changed = re.sub(rb"\d+", digits, lines[i], count=1)
    return None if changed == lines[i] else [*lines[:i], changed, *lines[i + 1 :]]


# JSON: a field anywhere in a record, or a record.
def _of_field(name: str, expect: str, text: Callable[[Any, np.random.Generator], str]) -> None:
    @mutation(name, "field", expect)
    def _(data, rng):
        return _with_record(data, rng, lambda record: _with_field(record, rng, lambda value: text(value, rng)))


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
        return json.dumps(document).replace(f'"{HOLE}"', change(record)).encode("utf-8", "surrogatepass")
    return change(document).encode("utf-8", "surrogatepass")


def _with_field(record: Any, rng: np.random.Generator, text: Callable[[Any], str]) -> str:
    """A record as JSON, with another text in place of the value of one of its fields, at any depth."""
    fields = list(_fields(record))
    if not fields:
        return text(record)
    holder, key = fields[int(rng.integers(len(fields)))]
    value, holder[key] = holder[key], HOLE
    whole = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return whole.replace(f'"{HOLE}"', text(value))


def _fields(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Where a value holds others: (object or list, key)."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    fields = [(value, key) for key in keys[:50]]
    return fields + [deep for key in keys[:50] if depth < 5 for deep in _fields(value[key], depth + 1)]


_WRONG = ('"text"', "7", "-1", "1.5", "true", "[]", "{}", "[1]", '["a"]', '{"a": 1}', '""')
_of_field("nesting of 100,000", NOTICE, lambda value, rng: "[" * 100_000 + "]" * 100_000)
_of_field("nesting of objects", NOTICE, lambda value, rng: '{"a":' * 3000 + "1" + "}" * 3000)
_of_field("a number of 5,000 digits", NOTICE, lambda value, rng: "9" * 5000)
_of_field(
    "an integer beyond 64 bits",
    OTHER,
    lambda value, rng: ("18446744073709551616", "-9223372036854775809")[rng.integers(2)],
)
_of_field("NaN or Infinity", NOTICE, lambda value, rng: ("NaN", "Infinity", "-Infinity", "1e999")[rng.integers(4)])
_of_field("a wrong type", OTHER, lambda value, rng: _WRONG[rng.integers(len(_WRONG))])
_of_field("null", OTHER, lambda value, rng: "null")
_of_field("an escaped half of a surrogate pair", OTHER, lambda value, rng: ('"\\ud83d"', '"a\\udc00"')[rng.integers(2)])
_of_field("escaped control characters", OTHER, lambda value, rng: json.dumps(ODD))
_of_field("raw control characters in a text", NOTICE, lambda value, rng: '"a\x01b"')
_of_field("a text of 200,000 letters", OTHER, lambda value, rng: '"' + "é" * 200_000 + '"')
_of_field("a text without its end", NOTICE, lambda value, rng: '"abc')


def _of_record(name: str, expect: str, change: Callable[[Any, np.random.Generator], str]) -> None:
    @mutation(name, "field", expect)
    def _(data, rng):
        return _with_record(data, rng, lambda record: change(record, rng))


def _without(record: Any, rng: np.random.Generator) -> str:
    fields = [(holder, key) for holder, key in _fields(record) if isinstance(holder, dict)]
    if fields:
        holder, key = fields[int(rng.integers(len(fields)))]
        del holder[key]
    return json.dumps(record, ensure_ascii=False)


def _renamed(record: Any, rng: np.random.Generator) -> str:
    fields = [(holder, key) for holder, key in _fields(record) if isinstance(holder, dict)]
    if fields:
        holder, key = fields[int(rng.integers(len(fields)))]
        holder[f"{key}_"] = holder.pop(key)
    return json.dumps(record, ensure_ascii=False)


def _doubled(record: Any, rng: np.random.Generator) -> str:
    text = json.dumps(record, ensure_ascii=False)
    keys = list(record) if isinstance(record, dict) else []
    return text.replace("{", f"{{{json.dumps(keys[rng.integers(len(keys))])}: null, ", 1) if keys else text


_of_record("a missing field", OTHER, _without)
_of_record("a renamed field", OTHER, _renamed)
_of_record("a doubled key", OTHER, _doubled)
_of_record(
    "an added field", SAME, lambda record, rng: json.dumps(record | {"zz": [1]} if isinstance(record, dict) else record)
)
_of_record("a list for an object", NOTICE, lambda record, rng: json.dumps([record]))
_of_record("a text for a record", NOTICE, lambda record, rng: json.dumps("record"))
_of_record("an API's error for a record", NOTICE, lambda record, rng: '{"message": "API rate limit exceeded"}')
_of_record("half a record", NOTICE, lambda record, rng: (text := json.dumps(record))[: len(text) // 2])
_of_record("an empty object", OTHER, lambda record, rng: "{}")


# Tables of tabs or commas.
def _of_cells(name: str, expect: str, change: Callable[[list[bytes], int, int], list[bytes]]) -> None:
    @mutation(name, "table", expect)
    def _(data, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        mark = b"\t" if b"\t" in lines[0] else b","
        column = int(rng.integers(lines[0].count(mark) + 1))
        return b"\n".join(mark.join(change(line.split(mark), column, row)) for row, line in enumerate(lines)) + b"\n"


_of_cells("a lost column", NOTICE, lambda cells, column, row: cells[:column] + cells[column + 1 :])
_of_cells("an added column", OTHER, lambda cells, column, row: [*cells[:column], b"x", *cells[column:]])
_of_cells(
    "another first cell",
    OTHER,
    lambda cells, column, row: [b"renamed" if c == column and not row else cell for c, cell in enumerate(cells)],
)
_of_cells(
    "an empty column",
    OTHER,
    lambda cells, column, row: [b"" if c == column and row else cell for c, cell in enumerate(cells)],
)


# Parquet.
def _of_table(name: str, expect: str, change: Callable[[pa.Table, int, np.random.Generator], pa.Table | None]) -> None:
    @mutation(name, "parquet", expect)
    def _(data, rng):
        table = pq.read_table(io.BytesIO(data))
        if not table.num_columns:
            return None
        changed = change(table, int(rng.integers(table.num_columns)), rng)
        if changed is None:
            return None
        pq.write_table(changed, out := io.BytesIO(), compression="zstd")
        return out.getvalue()


def _retyped(table: pa.Table, i: int, rng: np.random.Generator) -> pa.Table:
    column, kinds = table.column(i), (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.int64()))
    kind_ = kinds[int(rng.integers(len(kinds)))]
    try:
        column = column.cast(kind_)
    except (pa.ArrowException, ValueError):
        column = pa.nulls(len(table), kind_)
    return table.set_column(i, table.column_names[i], column)


def _with_cell(table: pa.Table, i: int, rng: np.random.Generator, value: Any) -> pa.Table | None:
    """The table with another value in one row of a column; None where its type has no such value."""
    values = table.column(i).to_pylist()
    if not values:
        return None
    values[int(rng.integers(len(values)))] = value
    try:
        return table.set_column(
            i, table.schema.field(i).with_nullable(True), pa.array(values, table.schema.field(i).type)
        )
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _of_type(table: pa.Table, i: int, test: Callable) -> int | None:
    """The first column from the i-th on whose type is such."""
    places = [*range(i, table.num_columns), *range(i)]
    return next((place for place in places if test(table.schema.field(place).type)), None)


def _text_cell(value: Any) -> Callable:
    def change(table, i, rng):
        place = _of_type(table, i, lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_))
        return None if place is None else _with_cell(table, place, rng, value)

    return change


def _not_utf8(table, i, rng):
    place = _of_type(table, i, pa.types.is_string)
    if place is None or not len(table):
        return None
    texts = [text.encode() if text is not None else None for text in table.column(place).to_pylist()]
    texts[int(rng.integers(len(texts)))] = b"\xff\xfe\xc3("
    array = pa.array(texts, pa.binary())
    return table.set_column(
        place, table.column_names[place], pa.Array.from_buffers(pa.string(), len(array), array.buffers())
    )


def _huge_dictionary(table, i, rng):
    place = _of_type(table, i, pa.types.is_string)
    if place is None:
        return None
    wide = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3000, np.int32)), pa.array(["a" * 1_000_000]))
    rows = table.take(np.zeros(3000, np.int64)) if len(table) else None
    return rows and rows.set_column(place, table.column_names[place], wide)


_of_table("a column of another type", OTHER, _retyped)
_of_table("a lost column of Parquet", OTHER, lambda table, i, rng: table.remove_column(i))
_of_table(
    "a renamed column of Parquet",
    OTHER,
    lambda table, i, rng: table.rename_columns(
        [f"{name}_" if c == i else name for c, name in enumerate(table.column_names)]
    ),
)
_of_table(
    "an added column of Parquet",
    SAME,
    lambda table, i, rng: table.append_column("zz", pa.nulls(len(table), pa.string())),
)
_of_table(
    "two columns of a name", NOTICE, lambda table, i, rng: table.append_column(table.column_names[i], table.column(i))
)
_of_table("columns in another order", SAME, lambda table, i, rng: table.select(table.column_names[::-1]) if i else None)
_of_table(
    "a column of nulls",
    OTHER,
    lambda table, i, rng: table.set_column(i, table.column_names[i], pa.nulls(len(table), table.column(i).type)),
)
_of_table("a null", OTHER, lambda table, i, rng: _with_cell(table, i, rng, None))
_of_table("not a number", OTHER, lambda table, i, rng: _with_cell(table, i, rng, float("nan")))
_of_table("a negative number", OTHER, lambda table, i, rng: _with_cell(table, i, rng, -(2**40)))
_of_table("an empty list", OTHER, lambda table, i, rng: _with_cell(table, i, rng, []))
_of_table("a huge text", OTHER, _text_cell("a" * 5_000_000))
_of_table("an odd text", OTHER, _text_cell(ODD))
_of_table("an empty text", OTHER, _text_cell(""))
_of_table("a text that is not UTF-8", OTHER, _not_utf8)
_of_table("no rows", OTHER, lambda table, i, rng: table.slice(0, 0))
_of_table("half of its rows", OTHER, lambda table, i, rng: table.slice(0, len(table) // 2))
_of_table("a doubled row", OTHER, lambda table, i, rng: pa.concat_tables([table, table.slice(len(table) // 2, 1)]))
_of_table("shuffled rows", OTHER, lambda table, i, rng: table.take(rng.permutation(len(table))))
_of_table("another table", NOTICE, lambda table, i, rng: pa.table({"a": [1, 2], "b": ["x", "y"]}))
_of_table("a dictionary of gigabytes", OTHER, _huge_dictionary)


@mutation("a cut footer", "parquet", NOTICE)
def _(data, rng):
    return data[: -int(rng.integers(1, 300))]


@mutation("a flipped bit in the footer", "parquet", OTHER)
def _(data, rng):
    place = len(data) - 1 - int(rng.integers(min(len(data) - 4, 400)))
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


# Arrays.
def _of_array(name: str, expect: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    @mutation(name, "array", expect)
    def _(data, rng):
        np.save(out := io.BytesIO(), change(np.load(io.BytesIO(data))))
        return out.getvalue()


_of_array("an array of another type", OTHER, lambda array: array.astype(np.float64))
_of_array("an array of another shape", NOTICE, lambda array: array.reshape(-1)[: array.size // 2])
_of_array("an array of half the rows", NOTICE, lambda array: array[: len(array) // 2])
_of_array("an array of objects", NOTICE, lambda array: array.astype(object))


# XML.
def _of_xml(name: str, expect: str, pattern: bytes, text: bytes | Callable[[re.Match], bytes]) -> None:
    @mutation(name, "xml", expect)
    def _(data, rng):
        matches = list(re.finditer(pattern, data))
        if not matches:
            return None
        match = matches[int(rng.integers(len(matches)))]
        return data[: match.start()] + (text if isinstance(text, bytes) else text(match)) + data[match.end() :]


_BOMB = b'<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (c + 1, b"&%c;" % c * 10) for c in range(ord("a"), ord("k"))
)
_of_xml("an entity bomb", NOTICE, rb"^<mediawiki", _BOMB + b"]><mediawiki")
_of_xml("a reference to an entity", NOTICE, rb"<title>", b"<title>&none;")
_of_xml(
    "an external entity", NOTICE, rb"^<mediawiki", b'<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/hostname">]><mediawiki'
)
_of_xml("an unclosed tag", NOTICE, rb"</(title|id|text|page|revision)>", b"")
_of_xml("a huge attribute", OTHER, rb"<page>", b'<page x="' + b"a" * 100_000_000 + b'">')
_of_xml("an attribute of 1 MB", SAME, rb"<page>", b'<page x="' + b"a" * 1_000_000 + b'">')
_of_xml("another root", NOTICE, rb"^<mediawiki", b"<html")
_of_xml("a namespace's prefix", NOTICE, rb"<page>", b'<m:page xmlns:m="x">')
_of_xml("a page without its title", NOTICE, rb"<title>[^<]*</title>", b"")
_of_xml("a page without its id", NOTICE, rb"</ns>\s*<id>[^<]*</id>", b"</ns>")
_of_xml("a page without its text", OTHER, rb"<text[^>]*>[^<]*</text>", b"")
_of_xml("a page without its revision", OTHER, rb"<revision>.*?</revision>", b"")
_of_xml("an id that is no number", NOTICE, rb"</ns>\s*<id>[^<]*", b"</ns><id>x")
_of_xml("an id of 5,000 digits", NOTICE, rb"</ns>\s*<id>[^<]*", b"</ns><id>" + b"9" * 5000)
_of_xml("a namespace of 5,000 digits", NOTICE, rb"<ns>[^<]*", b"<ns>" + b"9" * 5000)
_of_xml("elements nested 3,000 deep", NOTICE, rb"<page>", b"<a>" * 3000 + b"</a>" * 3000 + b"<page>")
_of_xml("a page in a page", NOTICE, rb"<revision>", b"<page><title>x</title></page><revision>")
_of_xml("a renamed element", NOTICE, rb"(?s)<page>(.*?)</page>", lambda match: b"<pages>" + match[1] + b"</pages>")
_of_xml("a lost end", NOTICE, rb"</mediawiki>\s*$", b"")


# SQL.
def _of_sql(name: str, expect: str, pattern: bytes, text: bytes) -> None:
    @mutation(name, "sql", expect)
    def _(data, rng):
        matches = list(re.finditer(pattern, data))
        if not matches:
            return None
        match = matches[int(rng.integers(len(matches)))]
        return data[: match.start()] + match.expand(text) + data[match.end() :]


_of_sql("a damaged INSERT", NOTICE, rb"INSERT INTO", b"INSRT INTO")
_of_sql("an INSERT of another table", NOTICE, rb"INSERT INTO `\w+`", b"INSERT INTO `other`")
_of_sql("a null namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,NULL,")
_of_sql("a row without its namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,")
_of_sql("a row without its quote", NOTICE, rb"(\(\d+,\d+,)'", rb"\1")
_of_sql("a row without its end", NOTICE, rb"\),\(", b",(")
_of_sql("a page id that is no number", NOTICE, rb"\((\d+),", b"(x,")
_of_sql("a page id beyond 64 bits", NOTICE, rb"\((\d+),", b"(18446744073709551616,")
_of_sql("no rows of SQL", NOTICE, rb"(?s)INSERT INTO.*", b"")
_of_sql("a statement that is none of a dump", NOTICE, rb"INSERT INTO", b"DELETE FROM x;\nINSERT INTO")
_of_sql("a statement without its end", NOTICE, rb"\);", b")")
