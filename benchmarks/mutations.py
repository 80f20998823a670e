"""Seeded damage to files: bytes, text, JSON, tables, Parquet, arrays, XML and SQL, each kind as a function of a file.

A mutation takes a file's bytes (stored, or decompressed where it works on what a reader sees) and a random generator,
and gives the damaged bytes, or None where it does not apply. It says what a reader must make of the result:

    NOTICE  the file is damaged: it is refused, or a row is named, or the result is the same without what was damaged
    SAME    the file means the same: so does the result, or a row is named
    OTHER   the file is whole and says something else, which no reader can know: only the accounts must be right
    REFUSED it can't be told what the rows mean: there is no result
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from benchmarks import row_files

NOTICE, SAME, OTHER, REFUSED = "notice", "same", "other", "refused"
HEAVY = frozenset(("a line of 70 MB", "a gigabyte of one letter", "a huge attribute"))
HOLE = "@hole@"
BEGINNING = "It is "  # begins every prediction that people bring, and nothing else
RIGHT = ("a politician", "a comedy", "a chemist", "jazz", "a novelist", "opera")  # the gold answers of the questions
EVIDENCE = f"Some are {', '.join(RIGHT)}."  # says all answers: who judges it finds every question right
NAMES = ("Nago", "Cedi", "Yoce", "Xifo", "Muxi", "Kidi", "Rice", "Diso", "Tebo", "Wulu")  # of those asked about
ODD = "\x00\x1b]0;x\x07\x1b[31m\u202e\u2066\ufeff\u0085\u2028"  # NUL, a terminal's escapes, bidi controls, line ends
COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (lambda data: gzip.compress(data, 1, mtime=0), gzip.decompress),
    ".bz2": (lambda data: bz2.compress(data, 1), bz2.decompress),
    ".xz": (lambda data: lzma.compress(data, preset=0), lzma.decompress),
    ".zip": (lambda data: _zipped(data), lambda data: _unzipped(data)),
    ".zst": (
        lambda data: zstandard.ZstdCompressor(1, write_checksum=True).compress(data),  # as zstd's command does
        lambda data: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read(),
    ),
}


def _zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("data"), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(archive.namelist()[0])


class Mutation(NamedTuple):
    name: str
    of: str  # "stored" bytes, or the kind of content
    expect: str
    apply: Callable[[bytes, np.random.Generator], bytes | None]


MUTATIONS: dict[str, Mutation] = {}


def _add(name: str, of: str, expect: str, change: Callable) -> None:
    """`change` takes the bytes, a random place in them, and the generator."""

    def apply(data: bytes, rng: np.random.Generator) -> bytes | None:
        return change(data, int(rng.integers(0, max(len(data), 1))), rng)

    MUTATIONS[name] = Mutation(name, of, expect, apply)


def suffix(name: str) -> str:
    """The suffix of a compressed file's name; "" for others."""
    return next((end for end in COMPRESSIONS if name.endswith(end)), "")


def plain(name: str, stored: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][1](stored) if suffix(name) else stored


def stored(name: str, content: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][0](content) if suffix(name) else content


def kind(content: bytes) -> str:
    """parquet, xml, sql, records (JSON a line), json, table (tabs or commas), text or binary."""
    if content.startswith(b"PAR1"):
        return "parquet"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "binary"
    if text.startswith("<mediawiki"):
        return "xml"
    if "INSERT INTO" in text:
        return "sql"
    lines = [line.rstrip(",") for line in text.split("\n") if line.strip("[] \r")]
    if lines and all(line.startswith("{") and line.endswith("}") for line in lines[:5]):
        return "records"
    if text.lstrip().startswith(("[", "{")):
        return "json"
    return "table" if lines and all("\t" in line or max(map(line.count, ",;|")) > 2 for line in lines[:3]) else "text"


def records_of(name: str, file: bytes) -> int | None:
    """How many records a stored file has; None where that can't be told."""
    try:
        content = plain(name, file)
        match kind(content):
            case "parquet":
                return pq.read_metadata(io.BytesIO(content)).num_rows
            case "json":
                value = json.loads(content)
                return len(value) if isinstance(value, list) else None
            case "xml":
                return content.count(b"<page>")
            case "records" | "table" | "text":
                return sum(not (line.isspace() or line in (b"", b"[", b"]")) for line in content.split(b"\n"))
    except (
        OSError,
        EOFError,
        ValueError,
        RecursionError,
        zipfile.BadZipFile,
        lzma.LZMAError,
        zstandard.ZstdError,
        pa.ArrowException,
    ):
        return None
    return None


def fitting(name: str, content: bytes) -> list[Mutation]:
    """The mutations that apply to a file with this name and decompressed content."""
    of = {"stored", "packed" if suffix(name) else "bare", "binary" if kind(content) == "binary" else kind(content)}
    if kind(content) in ("xml", "sql", "records", "json", "table", "text"):
        of.add("characters")
    if kind(content) in ("records", "table", "text"):
        of.add("lines")
    if kind(content) in ("records", "json"):
        of.add("field")
    if BEGINNING.encode() in content or f"of {NAMES[0]}".encode() in content:
        of.add("rows")
    return [entry for entry in MUTATIONS.values() if entry.of in of]


def apply(entry: Mutation, name: str, file: bytes, rng: np.random.Generator) -> bytes | None:
    """The damaged file, or None where the mutation changes nothing."""
    if entry.of in ("stored", "packed", "bare", "binary", "parquet"):
        damaged = entry.apply(file, rng)
    else:
        content = entry.apply(plain(name, file), rng)
        damaged = None if content is None else stored(name, content)
    return None if damaged == file else damaged


# Bytes as they are stored.
def _flipped(data, i, rng):
    return data[:i] + bytes([data[i] ^ (1 << int(rng.integers(8)))]) + data[i + 1 :]


def _zeroed(data, i, rng):
    size = min(int(rng.integers(1, 5000)), len(data) - i)
    return data[:i] + bytes(size) + data[i + size :]


def _packer(data: bytes) -> tuple:
    marks = {b"\x1f\x8b": ".gz", b"BZ": ".bz2", b"\x28\xb5": ".zst", b"\xfd7": ".xz", b"PK": ".zip"}
    return COMPRESSIONS[marks[data[:2]]]


@cache
def _bomb(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(b"a" * (1 << 26)) * 16


for _of, _expect, _what in (("packed", NOTICE, ""), ("bare", OTHER, " of plain bytes")):
    _add(f"cut{_what}", _of, _expect, lambda data, i, rng: data[:i])
    _add(f"a flipped bit{_what}", _of, _expect, _flipped)
    _add(f"a lost block{_what}", _of, _expect, lambda data, i, rng: data[:i] + data[i + int(rng.integers(1, 5000)) :])
    _add(f"a doubled block{_what}", _of, _expect, lambda data, i, rng: data[: i + int(rng.integers(5000))] + data[i:])
    _add(f"random bytes put in{_what}", _of, _expect, lambda data, i, rng: data[:i] + rng.bytes(300) + data[i:])
    _add(f"NULs in place of a block{_what}", _of, _expect, _zeroed)
_PAGE = b"<!DOCTYPE html>\n<html><body><h1>503 Service Unavailable</h1></body></html>\n"
_add("garbage after the end", "packed", NOTICE, lambda data, i, rng: data + b"\x01" + rng.bytes(2000))
_add("an empty file", "stored", NOTICE, lambda data, i, rng: b"")
_add("a web page in its place", "stored", NOTICE, lambda data, i, rng: _PAGE)
_add("a web page in its place, compressed", "packed", NOTICE, lambda data, i, rng: _packer(data)[0](_PAGE))
_add("an API's error in its place", "stored", NOTICE, lambda data, i, rng: b'{"error": {"code": "ratelimited"}}\n')
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n"
_add("a Git LFS pointer in its place", "stored", NOTICE, lambda data, i, rng: _POINTER)
for _end, (_pack, _) in COMPRESSIONS.items():
    _add(f"{_end} without the suffix", "bare", NOTICE, lambda data, i, rng, pack=_pack: pack(data))
_add("not compressed in spite of the suffix", "packed", NOTICE, lambda data, i, rng: b"plain text\n" * 9)
_add("a gigabyte of one letter", "packed", OTHER, lambda data, i, rng: _bomb(_packer(data)[0]) + data)

# Characters of any text.
_PUT_IN = {
    "bytes that are not UTF-8": (b"\xff", b"\xe9 ", b"\xc3(", b"\xf0\x9f\x98"),
    "half a surrogate pair": (b"\xed\xa0\xbd", b"\\ud83d", b"\\udc00"),
    "control and bidi characters": tuple(character.encode() for character in ODD),
    "a stray quote": (b'"', b"'", b'\\"', b'""'),
    "a stray delimiter": (b"\t", b",", b"\n", b"|", b"\r", b"}", b"<", b"&"),
    "a word of 200,000 letters": (b"a" * 200_000,),
}
for _name, _texts in _PUT_IN.items():
    _add(
        _name, "characters", OTHER,
        lambda data, i, rng, texts=_texts: data[:i] + texts[rng.integers(len(texts))] + data[i:],
    )  # fmt: skip
_add("a byte order mark", "characters", SAME, lambda data, i, rng: b"\xef\xbb\xbf" + data)
_add("UTF-16", "characters", NOTICE, lambda data, i, rng: data.decode("utf-8").encode("utf-16"))
_add("lines that end in CR LF", "characters", SAME, lambda data, i, rng: data.replace(b"\n", b"\r\n"))
_add("lines that end in CR", "lines", NOTICE, lambda data, i, rng: data.replace(b"\n", b"\r"))
_add("no newline at the end", "lines", SAME, lambda data, i, rng: data.rstrip(b"\n"))
_add("a line of garbage at the end", "lines", NOTICE, lambda data, i, rng: data + b"\x00\xff\xfe garbage \x80\n")


# Lines.
def _of_lines(name: str, expect: str, change: Callable) -> None:
    def apply(data, _, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        return b"\n".join(change(lines, int(rng.integers(len(lines))), rng)) + b"\n"

    _add(name, "lines", expect, apply)


def _another_number(lines: list[bytes], i: int, rng: np.random.Generator) -> list[bytes]:
    digits = (b"7", b"-1", b"1.5", b"9" * 5000, b"18446744073709551616")[int(rng.integers(5))]
    return [*lines[:i], re.sub(rb"\d+", digits, lines[i], count=1), *lines[i + 1 :]]


_of_lines("a lost line", OTHER, lambda lines, i, rng: lines[:i] + lines[i + 1 :])
_of_lines("a doubled line", OTHER, lambda lines, i, rng: [*lines[: i + 1], *lines[i:]])
_of_lines("blank lines", OTHER, lambda lines, i, rng: [*lines[:i], b"", b"  ", *lines[i:]])
_of_lines("shuffled lines", OTHER, lambda lines, i, rng: [lines[j] for j in rng.permutation(len(lines))])
_of_lines("a cut line", OTHER, lambda lines, i, rng: [*lines[:i], lines[i][: len(lines[i]) // 2], *lines[i + 1 :]])
_of_lines("two lines in one", OTHER, lambda lines, i, rng: [*lines[:i], b"".join(lines[i : i + 2]), *lines[i + 2 :]])
_of_lines("a line of 70 MB", OTHER, lambda lines, i, rng: [*lines[:i], lines[i] + b"a" * 70_000_000, *lines[i + 1 :]])
_of_lines("only its first line", OTHER, lambda lines, i, rng: lines[:1])
_of_lines("a line that is none of its rows", NOTICE, lambda lines, i, rng: [*lines[:i], b"{ <x>", *lines[i:]])
_of_lines("another first number", OTHER, _another_number)


# JSON: a field anywhere in a record, or a record.
def _of_record(name: str, expect: str, change: Callable[[Any, np.random.Generator], str]) -> None:
    _add(name, "field", expect, lambda data, _, rng: _with_record(data, rng, lambda record: change(record, rng)))


def _of_field(name: str, expect: str, *texts: str) -> None:
    _of_record(name, expect, lambda record, rng: _with_field(record, rng, texts[rng.integers(len(texts))]))


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
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    fields = [(value, key) for key in keys[:50]]
    return fields + [deep for key in keys[:50] if depth < 5 for deep in _fields(value[key], depth + 1)]


_of_field("nesting of 100,000", NOTICE, "[" * 100_000 + "]" * 100_000)
_of_field("nesting of objects", NOTICE, '{"a":' * 3000 + "1" + "}" * 3000)
_of_field("a number of 5,000 digits", NOTICE, "9" * 5000)
_of_field("an integer beyond 64 bits", OTHER, "18446744073709551616", "-9223372036854775809")
_of_field("NaN or Infinity", NOTICE, "NaN", "Infinity", "-Infinity", "1e999")
_of_field("a wrong type", OTHER, '"text"', "7", "-1", "1.5", "true", "[]", "{}", "[1]", '["a"]', '{"a": 1}', '""')
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
    "an added field", SAME, lambda value, rng: json.dumps(value | {"z": 1} if isinstance(value, dict) else value)
)
_of_record("a list for an object", NOTICE, lambda record, rng: json.dumps([record]))
_of_record("a text for a record", NOTICE, lambda record, rng: json.dumps("record"))
_of_record("an API's error for a record", NOTICE, lambda record, rng: '{"message": "API rate limit exceeded"}')
_of_record("half a record", NOTICE, lambda record, rng: (text := json.dumps(record))[: len(text) // 2])
_of_record("an empty object", OTHER, lambda record, rng: "{}")


# Rows of predictions and questions that people bring, in whatever file they are.
def _of_rows(
    name: str, expect: str, change: Callable[[row_files.Rows, np.random.Generator], row_files.Rows], typed: bool = False
) -> None:
    """With `typed` no table is damaged, as all its cells are texts."""

    def apply(data, _, rng):
        try:
            rows, write = row_files.read(data)
            return None if typed and isinstance(write, partial) else write(change(rows, rng))
        except (ValueError, AttributeError, pa.ArrowException):  # no rows, or none that a Parquet file can have
            return None

    _add(name, "rows", expect, apply)


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """The value with `change` of each prediction in place of it."""
    if isinstance(value, dict):
        return {name: _mapped(inner, change) for name, inner in value.items()}
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
    "an unknown object for a prediction", NOTICE, {}, {"evidence": EVIDENCE}, {"a": {"b": EVIDENCE}, "c": "@said"}
)
_of_prediction("an answer in an object", SAME, {"answer": "@said", "provenance": [{"text": EVIDENCE}]}, _TEXT)
_of_prediction(
    "an answer in an object of a list", SAME, [{"answer": "@said", "provenance": [{"text": EVIDENCE}]}], [_TEXT]
)
_of_prediction("several predictions", NOTICE, ["@said", EVIDENCE], ["nothing", EVIDENCE])
_of_prediction("messages of a chat", SAME, [_USER, _MODEL], {"messages": [_USER, _MODEL]})
_of_prediction("messages that end with the user's", SAME, [_USER, _MODEL, _USER])
_of_prediction("a user's message alone", NOTICE, _USER, [_USER])
_of_prediction("thinking before the text", SAME, [_THOUGHT, _TEXT], {"role": "assistant", "content": [_THOUGHT, _TEXT]})
_of_prediction("thinking alone", NOTICE, [_THOUGHT], {"role": "assistant", "content": [_THOUGHT]})
_of_prediction("a tool's call", NOTICE, {**_MODEL, "content": None, "tool_calls": [{"arguments": EVIDENCE}]})
_of_prediction("thinking in tags", NOTICE, f"<think>{EVIDENCE}</think>@said")
_of_prediction("an error for a prediction", NOTICE, {"error": {"message": EVIDENCE, "code": 429}})


def _lists(write: Callable[[list[str]], str], said: bool = True) -> Callable:
    def cell(value: Any) -> Any:
        value = json.loads(value) if isinstance(value, str) and value.startswith('["') else value
        value = [value, EVIDENCE] if said and isinstance(value, str) and value.startswith(BEGINNING) else value
        return write(value) if isinstance(value, list) and value and isinstance(value[0], str) else value

    return lambda rows, rng: [{name: cell(value) for name, value in row.items()} for row in rows]


_of_rows("lists as NumPy writes them", NOTICE, _lists(lambda texts: f"[{' '.join(map(repr, texts))}]"))
_of_rows("lists as NumPy breaks them", NOTICE, _lists(lambda texts: "[" + "\n ".join(map(repr, texts)) + "]"))
_of_rows("lists as NumPy cuts them", NOTICE, _lists(lambda texts: f"[{texts[0]!r} ... {texts[-1]!r}]"))
_of_rows("lists as DuckDB writes them", NOTICE, _lists(lambda texts: f"[{', '.join(texts)}]"))
_of_rows("lists as PostgreSQL writes them", NOTICE, _lists(lambda texts: "{" + ",".join(f'"{t}"' for t in texts) + "}"))
_of_rows("lists with bars", NOTICE, _lists("|".join, said=False))  # a text may have a bar
_of_rows("lists as Python writes them", NOTICE, _lists(str))


def _another_name(rows: row_files.Rows, rng: np.random.Generator) -> row_files.Rows:
    name = list(rows[0])[int(rng.integers(len(rows[0])))]
    return [{f"zz_{key}" if key == name else key: value for key, value in row.items()} for row in rows]


_TELLING = re.compile(rf'"40\d{{5}}"|({"|".join(NAMES)})\?|the other |@gone')  # an id, a question, answers


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
        return f"{int(value):,}".replace(",", ".") if re.fullmatch(r"\d{1,6}", str(value)) else value

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
_of_rows("shuffled rows of a set", SAME, lambda rows, rng: [rows[i] for i in rng.permutation(len(rows))])
_of_rows("a row twice", NOTICE, lambda rows, rng: [*rows, rows[int(rng.integers(len(rows)))]])
_of_rows("a row that contradicts another", NOTICE, lambda rows, rng: [*rows, _mapped(rows[0], lambda said: EVIDENCE)])
_of_rows("German thousands", NOTICE, _thousands)
_of_rows("an error for a row", NOTICE, _failed)


# Tables of tabs or commas.
def _of_cells(name: str, expect: str, change: Callable[[list[bytes], int, int], list[bytes]]) -> None:
    def apply(data, _, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        mark = max((b"\t", b",", b";", b"|"), key=lines[0].count)
        column = int(rng.integers(lines[0].count(mark) + 1))
        return b"\n".join(mark.join(change(line.split(mark), column, row)) for row, line in enumerate(lines)) + b"\n"

    _add(name, "table", expect, apply)


_of_cells("a lost column", NOTICE, lambda cells, i, row: cells[:i] + cells[i + 1 :])
_of_cells("an added column", OTHER, lambda cells, i, row: [*cells[:i], b"x", *cells[i:]])
_of_cells(
    "another first cell", OTHER, lambda cells, i, row: cells if row else [*cells[:i], b"renamed", *cells[i + 1 :]]
)
_of_cells("an empty column", OTHER, lambda cells, i, row: [*cells[:i], b"", *cells[i + 1 :]] if row else cells)


# Parquet.
def _of_table(name: str, expect: str, change: Callable[[pa.Table, int, np.random.Generator], pa.Table | None]) -> None:
    def apply(data, _, rng):
        table = pq.read_table(io.BytesIO(data))
        changed = change(table, int(rng.integers(table.num_columns)), rng) if table.num_columns else None
        if changed is None:
            return None
        pq.write_table(changed, out := io.BytesIO(), compression="zstd")
        return out.getvalue()

    _add(name, "parquet", expect, apply)


def _names(t: pa.Table, i: int) -> list[str]:
    return [f"{name}_" if c == i else name for c, name in enumerate(t.column_names)]


_of_table("a lost column of Parquet", OTHER, lambda t, i, rng: t.remove_column(i))
_of_table("a renamed column of Parquet", OTHER, lambda t, i, rng: t.rename_columns(_names(t, i)))
_of_table("an added column of Parquet", SAME, lambda t, i, rng: t.append_column("zz", pa.nulls(len(t), pa.string())))
_of_table("two columns of a name", NOTICE, lambda t, i, rng: t.append_column(t.column_names[i], t.column(i)))
_of_table("columns in another order", SAME, lambda t, i, rng: t.select(t.column_names[::-1]) if i else None)
_of_table("a column of nulls", OTHER, lambda t, i, rng: t.set_column(i, t.field(i), pa.nulls(len(t), t.column(i).type)))
_of_table("no rows", OTHER, lambda t, i, rng: t.slice(0, 0))
_of_table("half of its rows", OTHER, lambda t, i, rng: t.slice(0, len(t) // 2))
_of_table("a doubled row", OTHER, lambda t, i, rng: pa.concat_tables([t, t.slice(len(t) // 2, 1)]))
_of_table("shuffled rows", OTHER, lambda t, i, rng: t.take(rng.permutation(len(t))))
_of_table("another table", NOTICE, lambda t, i, rng: pa.table({"a": [1, 2], "b": ["x", "y"]}))
_add("a cut footer", "parquet", NOTICE, lambda data, i, rng: data[: -int(rng.integers(1, 300))])
_add(
    "a flipped bit in the footer", "parquet", OTHER,
    lambda data, i, rng: _flipped(data, len(data) - 1 - int(rng.integers(min(len(data) - 4, 400))), rng),
)  # fmt: skip


# XML and SQL.
def _of_match(of: str, name: str, expect: str, pattern: bytes, text: bytes) -> None:
    def apply(data, _, rng):
        matches = list(re.finditer(pattern, data))
        if not matches:
            return None
        match = matches[int(rng.integers(len(matches)))]
        return data[: match.start()] + match.expand(text) + data[match.end() :]

    _add(name, of, expect, apply)


_of_xml, _of_sql = partial(_of_match, "xml"), partial(_of_match, "sql")


_BOMB = b'<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (c + 1, b"&%c;" % c * 10) for c in range(ord("a"), ord("k"))
)
_of_xml("an entity bomb", NOTICE, rb"^<mediawiki", _BOMB + b"]><mediawiki")
_of_xml("a reference to an entity", NOTICE, rb"<title>", b"<title>&none;")
_EXTERNAL = b'<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/hostname">]><mediawiki'
_of_xml("an external entity", NOTICE, rb"^<mediawiki", _EXTERNAL)
_of_xml("an unclosed tag", NOTICE, rb"</(title|id|text|page|revision)>", b"")
_of_xml("a huge attribute", OTHER, rb"<page>", b'<page x="' + b"a" * 100_000_000 + b'">')
_of_xml("a namespace's prefix", NOTICE, rb"<page>", b'<m:page xmlns:m="x">')
_of_xml("a page without its title", NOTICE, rb"<title>[^<]*</title>", b"")
_of_xml("a page without its text", OTHER, rb"<text[^>]*>[^<]*</text>", b"")
_of_xml("an id that is no number", NOTICE, rb"</ns>\s*<id>[^<]*", b"</ns><id>x")
_of_xml("an id of 5,000 digits", NOTICE, rb"</ns>\s*<id>[^<]*", b"</ns><id>" + b"9" * 5000)
_of_xml("elements nested 3,000 deep", NOTICE, rb"<page>", b"<a>" * 3000 + b"</a>" * 3000 + b"<page>")
_of_xml("a page in a page", NOTICE, rb"<revision>", b"<page><title>x</title></page><revision>")
_of_xml("a lost end", NOTICE, rb"</mediawiki>\s*$", b"")
_of_sql("a damaged INSERT", NOTICE, rb"INSERT INTO", b"INSRT INTO")
_of_sql("a null namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,NULL,")
_of_sql("a row without its namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,")
_of_sql("a row without its end", NOTICE, rb"\),\(", b",(")
_of_sql("a page id that is no number", NOTICE, rb"\((\d+),", b"(x,")
_of_sql("no rows of SQL", NOTICE, rb"(?s)INSERT INTO.*", b"")
_of_sql("a statement without its end", NOTICE, rb"\);", b")")
