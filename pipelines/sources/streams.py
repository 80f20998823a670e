"""Streaming reads of source files as blocks, lines and JSON.

A damaged or cut file is an error. It is never read as if it were a shorter file.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines import safe_text
from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources.decompression import decompressed, packing
from pipelines.storage.file_kinds import (
    AGAIN,
    HEAD,
    PARQUET_MARK,
    UTF8_MARK,
    check_link,
    check_log,
    head_of,
    other_encoding,
    refuse,
)

# Half of a surrogate pair, or the escape in JSON for it; two of them stand for a character.
SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
A_LINE = "a line for each row"
HEAD_BYTES = 1 << 16  # decompressed bytes of a file that tell how it is written


def visible_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted, without hidden ones (.about.md)."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file for file in files if not file.name.startswith("."))


def source_files(folder: Path) -> list[Path]:
    """The visible files of one data set's folder under data/raw; raises LongtailError if there is
    none.
    """
    files = visible_files(folder)
    if not files:
        raise LongtailError(
            f"{folder}: no files, expected a source's data; "
            "name some under fetch.files and run fetch"
        )
    return files


def check_start(path: Path) -> bytes:
    """The first bytes of a file. Raises LongtailError if it is missing, empty, or of a kind that no
    reader takes.
    """
    check_link(path)
    check_log(path)
    if not path.is_file():
        raise LongtailError(
            f"{path}: no such file; check fetch.root and fetch.files, or run the fetch stage"
        )
    head = head_of(path)
    if not head:
        raise LongtailError(f"{path}: empty, expected data; {AGAIN}")
    refuse(path, head)
    return head


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes. Raises the errors of `check_start`."""
    return check_start(path).startswith(PARQUET_MARK)


def open_blocks(path: str | Path) -> Iterator[bytes]:
    """Yield the decompressed file in blocks of UTF-8: at least one, none empty, all much shorter
    than a record may be.

    A byte order mark at the file's beginning is left out. Half of a surrogate pair in UTF-16 turns
    into bytes that are not UTF-8. Raises the errors of `open_lines`, except for long lines.
    """
    path = Path(path)
    suffix = packing(check_start(path))
    blocks = decompressed(path, suffix)
    start = b""
    for block in blocks:
        start += block
        if len(start) >= HEAD:
            break

    _check_content(path, suffix, start)

    if start.startswith(UTF16_MARKS):
        blocks = _from_utf16(path, chain([start], blocks))
        start = next(blocks, b"")
        refuse(path, start[:HEAD])

    yield start.removeprefix(UTF8_MARK) or b"\n"
    yield from blocks


def _check_content(path: Path, suffix: str, start: bytes) -> None:
    """Raise LongtailError for decompressed data that are no text; they begin with `start`."""
    if not start:
        raise LongtailError(f"{path}: nothing in it once decompressed, expected data; {AGAIN}")
    inner = packing(start) if suffix else ""
    if start.startswith(PARQUET_MARK):
        inner = "Parquet"
    if inner:
        place = f" inside {suffix}" if suffix else ""
        raise LongtailError(f"{path}: {inner} data{place}, expected text; unpack it first")
    refuse(path, start[:HEAD])


def _from_utf16(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    try:
        for block in chain(blocks, [b""]):
            text = decoder.decode(block, final=not block)
            if text:
                yield text.encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise LongtailError(
            f"{path}: damaged or cut, expected UTF-16 ({error.reason}); {AGAIN}"
        ) from None


def read_head(path: Path) -> bytes:
    """The first HEAD_BYTES of a file, decompressed. Raises the errors of `open_blocks`."""
    head = b""
    for block in open_blocks(path):
        head += block[: HEAD_BYTES - len(head)]
        if len(head) >= HEAD_BYTES:
            break
    return head


def open_runs(path: str | Path, size: int) -> Iterator[list[bytes]]:
    """Yield the decompressed file in runs of whole lines; see `runs_of`. Raises the errors of
    `open_lines`.
    """
    return runs_of(path, open_blocks(path), size)


def runs_of(path: str | Path, blocks: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the blocks of a file in runs of whole lines, each of at least `size` bytes, as a list
    of its pieces.

    Where a run ends depends on the data and `size` alone.
    """
    run: list[bytes] = []
    length = 0
    for block in blocks:
        while length + len(block) >= size:
            end = block.find(b"\n", max(size - 1 - length, 0)) + 1
            if end == 0:
                break
            yield [*run, block[:end]]
            block = block[end:]
            run = []
            length = 0

        length += len(block)
        if block:
            run.append(block)
        if length > size + bounds.RECORD:
            raise LongtailError(f"{path}: a line {bounds.too_long(A_LINE)}; check what the file is")

    if run:
        yield run


def bounded_lines(path: str | Path) -> Iterator[bytes | None]:
    """Yield the file's lines, and None for a line longer than `bounds.RECORD`; only so many of its
    bytes are held.
    """
    longest = bounds.RECORD
    size = 0  # of the unfinished line
    parts: list[bytes] = []  # of it

    for block in open_blocks(path):
        first, *following = block.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            parts.clear()
        if following:
            yield b"".join(parts) if size <= longest else None
            for line in following[:-1]:
                yield line if len(line) <= longest else None
            parts = following[-1:]
            size = len(following[-1])

    if size:
        yield b"".join(parts) if size <= longest else None


def open_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the file's lines without their newline, in UTF-8, decompressed (bz2, gzip, xz, zip,
    zstd) by its content.

    Raises LongtailError if it is missing, empty, cut, corrupt, of another kind (`file_kinds`), or
    has a line longer than `bounds.RECORD`.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            raise LongtailError(
                f"{path}: line {number}: {bounds.too_long(A_LINE)}; check what the file is"
            )
        yield line


def open_text(path: str | Path) -> Iterator[str]:
    """Yield the lines of `open_lines` decoded. Raises LongtailError naming the file and the line
    that isn't UTF-8.
    """
    for number, line in enumerate(open_lines(path), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise LongtailError(
                f"{path}: line {number}: not UTF-8 at byte {error.start} "
                f"(0x{line[error.start]:02x}); {other_encoding(path)}"
            ) from None


def open_escaped(path: str | Path) -> Iterator[str]:
    """Yield the lines of `open_lines` decoded, whatever bytes they have.

    A byte that is not UTF-8 becomes a character of safe_text.UNREADABLE. A byte order mark at the
    beginning of a line is left out: files that were put together have such marks.
    """
    for line in open_lines(path):
        yield line.removeprefix(UTF8_MARK).decode("utf-8", "surrogateescape")


def is_readable(value: Any) -> bool:
    """Whether all characters of a JSON value could be read."""
    text = json.dumps(value, ensure_ascii=False)
    return text.isascii() or not safe_text.UNREADABLE.search(text)


def parse_escaped(text: str) -> Any:
    """A JSON value, in which half of a surrogate pair stays, and control characters too.

    Raises ValueError for what is none, or is nested too deeply.
    """
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_json(text: bytes | bytearray | str) -> Any:
    """A JSON value. Raises ValueError for what is none, is nested too deeply, or has half of a
    surrogate pair.
    """
    decoded = text if isinstance(text, str) else text.decode("utf-8")
    value = parse_escaped(decoded)
    if SURROGATE.search(decoded) and not is_readable(value):
        raise ValueError("half of a surrogate pair")
    return value


def parse_whole(path: Path) -> Any:
    """The JSON value that a file is; a character that can't be read becomes one of
    safe_text.UNREADABLE.

    Raises LongtailError for what is no JSON, or longer than `bounds.WHOLE`.
    """
    text = bytearray()
    for block in open_blocks(path):
        text += block
        if len(text) > bounds.WHOLE:
            raise bounds.too_large(path, "a short list; write a record a line")

    try:
        return parse_escaped(text.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise LongtailError(
            f"{path}: not JSON ({error}), expected a list of records or an object; "
            "check how it was written"
        ) from None
