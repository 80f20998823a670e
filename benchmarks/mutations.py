"""Seeded damage to files: bytes, text, tables, Parquet, XML and SQL, each kind as a function of a file.

That to JSON and to rows is in benchmarks/mutations_records.py.

A mutation takes a file's bytes (stored, or decompressed where it works on what a reader sees) and a random generator,
and gives the damaged bytes, or None where it does not apply. It says what a reader must make of the result:

    NOTICE  the file is damaged: it is refused, or a row is named, or the result is the same without what was damaged
    SAME    the file means the same: so does the result, or a row is named
    OTHER   the file is whole and says something else, which no reader can know: only the accounts must be right
    REFUSED it can't be told what the rows mean: there is no result
"""

import io
import re
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.damaged_kinds import COMPRESSIONS, kind, plain, stored, suffix

NOTICE, SAME, OTHER, REFUSED = "notice", "same", "other", "refused"
HEAVY = frozenset(("a line of 70 MB", "a gigabyte of one letter", "a huge attribute"))
ODD = "\x00\x1b]0;x\x07\x1b[31m\u202e\u2066\ufeff\u0085\u2028"  # NUL, a terminal's escapes, bidi controls, line ends
WITHIN = {  # what a mutation is of -> kinds of content that have it
    "characters": ("xml", "sql", "records", "json", "table", "text"),
    "lines": ("records", "table", "text"),
    "field": ("records", "json"),
    "rows": ("records", "json", "table", "text", "parquet"),
}


class Mutation(NamedTuple):
    name: str
    of: str  # "stored" bytes, or the kind of content
    expect: str
    apply: Callable[[bytes, np.random.Generator], bytes | None]


MUTATIONS: dict[str, Mutation] = {}


def add(name: str, of: str, expect: str, change: Callable) -> None:
    """`change` takes the bytes, a random place in them, and the generator."""

    def apply(data: bytes, rng: np.random.Generator) -> bytes | None:
        return change(data, int(rng.integers(0, max(len(data), 1))), rng)

    MUTATIONS[name] = Mutation(name, of, expect, apply)


def fitting(name: str, content: bytes) -> list[Mutation]:
    """The mutations that apply to a file with this name and decompressed content."""
    of = {"stored", "packed" if suffix(name) else "bare", kind(content)}
    of |= {part for part, kinds in WITHIN.items() if kind(content) in kinds}
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
    add(f"cut{_what}", _of, _expect, lambda data, i, rng: data[:i])
    add(f"a flipped bit{_what}", _of, _expect, _flipped)
    add(
        f"a lost block{_what}",
        _of,
        _expect,
        lambda data, i, rng: data[:i] + data[i + int(rng.integers(1, 5000)) :],
    )
    add(
        f"a doubled block{_what}",
        _of,
        _expect,
        lambda data, i, rng: data[: i + int(rng.integers(5000))] + data[i:],
    )
    add(
        f"random bytes put in{_what}",
        _of,
        _expect,
        lambda data, i, rng: data[:i] + rng.bytes(300) + data[i:],
    )
    add(f"NULs in place of a block{_what}", _of, _expect, _zeroed)
_PAGE = b"<!DOCTYPE html>\n<html><body><h1>503 Service Unavailable</h1></body></html>\n"
add(
    "garbage after the end", "packed", NOTICE, lambda data, i, rng: data + b"\x01" + rng.bytes(2000)
)
add("an empty file", "stored", NOTICE, lambda data, i, rng: b"")
add("a web page in its place", "stored", NOTICE, lambda data, i, rng: _PAGE)
add(
    "a web page in its place, compressed",
    "packed",
    NOTICE,
    lambda data, i, rng: _packer(data)[0](_PAGE),
)
add(
    "an API's error in its place",
    "stored",
    NOTICE,
    lambda data, i, rng: b'{"error": {"code": "ratelimited"}}\n',
)
_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n"
)
add("a Git LFS pointer in its place", "stored", NOTICE, lambda data, i, rng: _POINTER)
for _end, (_pack, _) in COMPRESSIONS.items():
    add(f"{_end} without the suffix", "bare", NOTICE, lambda data, i, rng, pack=_pack: pack(data))
add(
    "not compressed in spite of the suffix",
    "packed",
    NOTICE,
    lambda data, i, rng: b"plain text\n" * 9,
)
add(
    "a gigabyte of one letter", "packed", OTHER, lambda data, i, rng: _bomb(_packer(data)[0]) + data
)

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
    add(
        _name, "characters", OTHER,
        lambda data, i, rng, texts=_texts: data[:i] + texts[rng.integers(len(texts))] + data[i:],
    )  # fmt: skip
add("a byte order mark", "characters", SAME, lambda data, i, rng: b"\xef\xbb\xbf" + data)
add("UTF-16", "characters", NOTICE, lambda data, i, rng: data.decode("utf-8").encode("utf-16"))
add(
    "lines that end in CR LF", "characters", SAME, lambda data, i, rng: data.replace(b"\n", b"\r\n")
)
add("lines that end in CR", "lines", NOTICE, lambda data, i, rng: data.replace(b"\n", b"\r"))
add("no newline at the end", "lines", SAME, lambda data, i, rng: data.rstrip(b"\n"))
add(
    "a line of garbage at the end",
    "lines",
    NOTICE,
    lambda data, i, rng: data + b"\x00\xff\xfe garbage \x80\n",
)


# Lines.
def _of_lines(name: str, expect: str, change: Callable) -> None:
    def apply(data, _, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        return b"\n".join(change(lines, int(rng.integers(len(lines))), rng)) + b"\n"

    add(name, "lines", expect, apply)


def _another_number(lines: list[bytes], i: int, rng: np.random.Generator) -> list[bytes]:
    digits = (b"7", b"-1", b"1.5", b"9" * 5000, b"18446744073709551616")[int(rng.integers(5))]
    return [*lines[:i], re.sub(rb"\d+", digits, lines[i], count=1), *lines[i + 1 :]]


_of_lines("a lost line", OTHER, lambda lines, i, rng: lines[:i] + lines[i + 1 :])
_of_lines("a doubled line", OTHER, lambda lines, i, rng: [*lines[: i + 1], *lines[i:]])
_of_lines("blank lines", OTHER, lambda lines, i, rng: [*lines[:i], b"", b"  ", *lines[i:]])
_of_lines(
    "shuffled lines", OTHER, lambda lines, i, rng: [lines[j] for j in rng.permutation(len(lines))]
)
_of_lines(
    "a cut line",
    OTHER,
    lambda lines, i, rng: [*lines[:i], lines[i][: len(lines[i]) // 2], *lines[i + 1 :]],
)
_of_lines(
    "two lines in one",
    OTHER,
    lambda lines, i, rng: [*lines[:i], b"".join(lines[i : i + 2]), *lines[i + 2 :]],
)
_of_lines(
    "a line of 70 MB",
    OTHER,
    lambda lines, i, rng: [*lines[:i], lines[i] + b"a" * 70_000_000, *lines[i + 1 :]],
)
_of_lines("only its first line", OTHER, lambda lines, i, rng: lines[:1])
_of_lines(
    "a line that is none of its rows",
    NOTICE,
    lambda lines, i, rng: [*lines[:i], b"{ <x>", *lines[i:]],
)
_of_lines("another first number", OTHER, _another_number)


# Tables of tabs or commas.
def _of_cells(
    name: str, expect: str, change: Callable[[list[bytes], int, int], list[bytes]]
) -> None:
    def apply(data, _, rng):
        lines = data.removesuffix(b"\n").split(b"\n")
        mark = max((b"\t", b",", b";", b"|"), key=lines[0].count)
        column = int(rng.integers(lines[0].count(mark) + 1))
        return (
            b"\n".join(
                mark.join(change(line.split(mark), column, row)) for row, line in enumerate(lines)
            )
            + b"\n"
        )

    add(name, "table", expect, apply)


_of_cells("a lost column", NOTICE, lambda cells, i, row: cells[:i] + cells[i + 1 :])
_of_cells("an added column", OTHER, lambda cells, i, row: [*cells[:i], b"x", *cells[i:]])
_of_cells(
    "another first cell",
    OTHER,
    lambda cells, i, row: cells if row else [*cells[:i], b"renamed", *cells[i + 1 :]],
)
_of_cells(
    "an empty column",
    OTHER,
    lambda cells, i, row: [*cells[:i], b"", *cells[i + 1 :]] if row else cells,
)


# Parquet.
def _of_table(
    name: str, expect: str, change: Callable[[pa.Table, int, np.random.Generator], pa.Table | None]
) -> None:
    def apply(data, _, rng):
        table = pq.read_table(io.BytesIO(data))
        changed = (
            change(table, int(rng.integers(table.num_columns)), rng) if table.num_columns else None
        )
        if changed is None:
            return None
        pq.write_table(changed, out := io.BytesIO(), compression="zstd")
        return out.getvalue()

    add(name, "parquet", expect, apply)


def _names(t: pa.Table, i: int) -> list[str]:
    return [f"{name}_" if c == i else name for c, name in enumerate(t.column_names)]


_of_table("a lost column of Parquet", OTHER, lambda t, i, rng: t.remove_column(i))
_of_table("a renamed column of Parquet", OTHER, lambda t, i, rng: t.rename_columns(_names(t, i)))
_of_table(
    "an added column of Parquet",
    SAME,
    lambda t, i, rng: t.append_column("zz", pa.nulls(len(t), pa.string())),
)
_of_table(
    "two columns of a name",
    NOTICE,
    lambda t, i, rng: t.append_column(t.column_names[i], t.column(i)),
)
_of_table(
    "columns in another order",
    SAME,
    lambda t, i, rng: t.select(t.column_names[::-1]) if i else None,
)
_of_table(
    "a column of nulls",
    OTHER,
    lambda t, i, rng: t.set_column(i, t.field(i), pa.nulls(len(t), t.column(i).type)),
)
_of_table("no rows", OTHER, lambda t, i, rng: t.slice(0, 0))
_of_table("half of its rows", OTHER, lambda t, i, rng: t.slice(0, len(t) // 2))
_of_table("a doubled row", OTHER, lambda t, i, rng: pa.concat_tables([t, t.slice(len(t) // 2, 1)]))
_of_table("shuffled rows", OTHER, lambda t, i, rng: t.take(rng.permutation(len(t))))
_of_table("another table", NOTICE, lambda t, i, rng: pa.table({"a": [1, 2], "b": ["x", "y"]}))
add("a cut footer", "parquet", NOTICE, lambda data, i, rng: data[: -int(rng.integers(1, 300))])
add(
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

    add(name, of, expect, apply)


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
_of_xml(
    "elements nested 3,000 deep", NOTICE, rb"<page>", b"<a>" * 3000 + b"</a>" * 3000 + b"<page>"
)
_of_xml("a page in a page", NOTICE, rb"<revision>", b"<page><title>x</title></page><revision>")
_of_xml("a lost end", NOTICE, rb"</mediawiki>\s*$", b"")
_of_sql("a damaged INSERT", NOTICE, rb"INSERT INTO", b"INSRT INTO")
_of_sql("a null namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,NULL,")
_of_sql("a row without its namespace", NOTICE, rb"(\(\d+),\d+,", rb"\1,")
_of_sql("a row without its end", NOTICE, rb"\),\(", b",(")
_of_sql("a page id that is no number", NOTICE, rb"\((\d+),", b"(x,")
_of_sql("no rows of SQL", NOTICE, rb"(?s)INSERT INTO.*", b"")
_of_sql("a statement without its end", NOTICE, rb"\);", b")")
