"""Seeded damage to files: bytes, text, JSON, tables, Parquet, arrays, XML and SQL, each kind as a function of a file.

A mutation takes a file's bytes (stored, or decompressed where it works on what a reader sees) and a random generator,
and gives the damaged bytes, or None where it does not apply. It says what a reader must make of the result:

    NOTICE  the file is damaged: it is refused, or a row is named, or the result is the same without what was damaged
    SAME    the file means the same: so does the result, or a row is named
    OTHER   the file is whole and says something else, which no reader can know: only the accounts must be right
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

NOTICE, SAME, OTHER = "notice", "same", "other"
HEAVY = frozenset(("a line of 70 MB", "a gigabyte of one letter", "a dictionary of gigabytes", "a huge attribute"))
HOLE = "@hole@"
ODD = (
    "\x00\x1b]0;x\x07\x1b[31m\u202e\u2066\ufeff\u0085\u2028"  # NUL, a terminal's escapes, bidi controls, odd line ends
)
COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (lambda data: gzip.compress(data, 1, mtime=0), gzip.decompress),
    ".bz2": (lambda data: bz2.compress(data, 1), bz2.decompress),
    ".zst": (
        lambda data: zstandard.ZstdCompressor(1, write_checksum=True).compress(data),  # as zstd's command does
        lambda data: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read(),
    ),
}


class Mutation(NamedTuple):
    name: str
    of: str  # "stored" bytes, or the kind of content
    expect: str
    apply: Callable[[bytes, np.random.Generator], bytes | None]


MUTATIONS: dict[str, Mutation] = {}


def mutation(name: str, of: str, expect: str) -> Callable:
    def keep(apply: Callable) -> Callable:
        MUTATIONS[name] = Mutation(name, of, expect, apply)
        return apply

    return keep


def suffix(name: str) -> str:
    """The suffix of a compressed file's name; "" for others."""
    return next((end for end in COMPRESSIONS if name.endswith(end)), "")


def plain(name: str, stored: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][1](stored) if suffix(name) else stored


def stored(name: str, content: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][0](content) if suffix(name) else content


def kind(content: bytes) -> str:
    """parquet, array, xml, sql, records (JSON a line), json, table (tabs or commas), text or binary."""
    if content.startswith(b"PAR1"):
        return "parquet"
    if content.startswith(b"\x93NUMPY"):
        return "array"
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
    return "table" if lines and all("\t" in line or line.count(",") > 2 for line in lines[:3]) else "text"


def records_of(name: str, file: bytes) -> int | None:
    """How many records a stored file has; None where that can't be told."""
    try:
        return records(plain(name, file))
    except (OSError, EOFError, ValueError, zstandard.ZstdError):
        return None


def records(content: bytes) -> int | None:
    """How many records a file has; None where that can't be told."""
    match kind(content):
        case "parquet":
            try:
                return pq.read_metadata(io.BytesIO(content)).num_rows
            except (pa.ArrowException, OSError):
                return None
        case "json":
            try:
                value = json.loads(content)
            except (ValueError, RecursionError):
                return None
            return len(value) if isinstance(value, list) else None
        case "xml":
            return content.count(b"<page>")
        case "records" | "table" | "text":
            return sum(not (line.isspace() or line in (b"", b"[", b"]")) for line in content.split(b"\n"))
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
    return [entry for entry in MUTATIONS.values() if entry.of in of]


def apply(entry: Mutation, name: str, file: bytes, rng: np.random.Generator) -> bytes | None:
    """The damaged file, or None where the mutation changes nothing."""
    if entry.of in ("stored", "packed", "bare", "binary", "parquet"):
        damaged = entry.apply(file, rng)
    else:
        content = entry.apply(plain(name, file), rng)
        damaged = None if content is None else stored(name, content)
    return None if damaged == file else damaged


def _place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(0, max(len(data), 1)))


# Bytes as they are stored.
@mutation("cut", "packed", NOTICE)
def _(data, rng):
    return data[: _place(data, rng)]


@mutation("cut anywhere", "bare", OTHER)
def _(data, rng):
    return data[: _place(data, rng)]


@mutation("a flipped bit", "packed", NOTICE)
def _(data, rng):
    return _flipped(data, rng)


@mutation("a flipped bit of plain bytes", "bare", OTHER)
def _flipped(data, rng):
    place = _place(data, rng)
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


def _blocks(of: str, expect: str, what: str) -> None:
    @mutation(f"a lost block{what}", of, expect)
    def _(data, rng):
        place = _place(data, rng)
        return data[:place] + data[place + int(rng.integers(1, 5000)) :]

    @mutation(f"a doubled block{what}", of, expect)
    def _(data, rng):
        place = _place(data, rng)
        return data[: place + int(rng.integers(1, 5000))] + data[place:]

    @mutation(f"random bytes put in{what}", of, expect)
    def _(data, rng):
        place = _place(data, rng)
        return data[:place] + rng.bytes(int(rng.integers(1, 600))) + data[place:]

    @mutation(f"NULs in place of a block{what}", of, expect)
    def _(data, rng):
        place = _place(data, rng)
        size = min(int(rng.integers(1, 5000)), len(data) - place)
        return data[:place] + bytes(size) + data[place + size :]


_blocks("packed", NOTICE, "")
_blocks("bare", OTHER, " of plain bytes")


@mutation("garbage after the end", "packed", NOTICE)
def _(data, rng):
    return data + b"\x01" + rng.bytes(int(rng.integers(1, 3000)))


@mutation("an empty file", "stored", NOTICE)
def _(data, rng):
    return b""


@mutation("a web page in its place", "stored", NOTICE)
def _(data, rng):
    return b"<!DOCTYPE html>\n<html><body><h1>503 Service Unavailable</h1></body></html>\n"


@mutation("a web page in its place, compressed", "packed", NOTICE)
def _(data, rng):
    return gzip.compress(b"<html><body>Not found</body></html>\n") if data[:2] == b"\x1f\x8b" else None


@mutation("an API's error in its place", "stored", NOTICE)
def _(data, rng):
    return b'{"error": {"code": "ratelimited", "info": "too many requests"}}\n'


@mutation("another compression", "packed", NOTICE)
def _(data, rng):
    other = [pack for end, (pack, _) in COMPRESSIONS.items()]
    return other[int(rng.integers(len(other)))](b"{}\n")[:-1] + data


@mutation("compressed without the suffix", "bare", NOTICE)
def _(data, rng):
    return gzip.compress(data)


@mutation("not compressed in spite of the suffix", "packed", NOTICE)
def _(data, rng):
    return b"plain text\n" * 9


@mutation("two members", "packed", SAME)
def _(data, rng):
    return _members(data, rng)


@mutation("a damaged second member", "packed", NOTICE)
def _(data, rng):
    pack = _packer(data)
    whole = pack[1](data)
    place = _place(whole, rng)
    second = bytearray(pack[0](whole[place:]))
    second[len(second) // 2] ^= 0xFF
    return pack[0](whole[:place]) + bytes(second)


def _packer(data: bytes) -> tuple:
    marks = {b"\x1f\x8b": ".gz", b"BZ": ".bz2", b"\x28\xb5": ".zst"}
    return COMPRESSIONS[marks[data[:2]]]


def _members(data, rng):
    pack, unpack = _packer(data)
    whole = unpack(data)
    place = _place(whole, rng)
    return pack(whole[:place]) + pack(whole[place:])


@mutation("a gigabyte of one letter", "packed", OTHER)
def _(data, rng):
    return _bomb(_packer(data)[0]) + data


@cache
def _bomb(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(b"a" * (1 << 26)) * 16


# Characters of any text.
def _characters(name: str, expect: str, put: Callable[[np.random.Generator], bytes]) -> None:
    @mutation(name, "characters", expect)
    def _(data, rng):
        place = _place(data, rng)
        return data[:place] + put(rng) + data[place:]


_characters(
    "bytes that are not UTF-8", OTHER, lambda rng: (b"\xff", b"\xe9 ", b"\xc3(", b"\xf0\x9f\x98")[rng.integers(4)]
)
_characters("half a surrogate pair", OTHER, lambda rng: (b"\xed\xa0\xbd", b"\\ud83d", b"\\udc00")[rng.integers(3)])
_characters("control and bidi characters", OTHER, lambda rng: ODD[rng.integers(len(ODD))].encode())
_characters("a stray quote", OTHER, lambda rng: (b'"', b"'", b'\\"', b'""')[rng.integers(4)])
_characters(
    "a stray delimiter", OTHER, lambda rng: (b"\t", b",", b"\n", b"|", b"\r", b"}", b"<", b"&")[rng.integers(8)]
)
_characters("a word of 200,000 letters", OTHER, lambda rng: b"a" * 200_000)


@mutation("a byte order mark", "characters", SAME)
def _(data, rng):
    return b"\xef\xbb\xbf" + data


@mutation("UTF-16", "characters", NOTICE)
def _(data, rng):
    return data.decode("utf-8").encode("utf-16")


@mutation("lines that end in CR LF", "characters", SAME)
def _(data, rng):
    return data.replace(b"\n", b"\r\n")


@mutation("lines that end in CR", "lines", NOTICE)
def _(data, rng):
    return data.replace(b"\n", b"\r")


@mutation("no newline at the end", "lines", SAME)
def _(data, rng):
    return data.rstrip(b"\n")


@mutation("a line of garbage at the end", "lines", NOTICE)
def _(data, rng):
    return data + b"\x00\xff\xfe garbage \x80\n"
