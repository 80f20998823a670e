"""Streaming reads of source files, decompressed by suffix, in which no damage passes for the end of the data."""

from __future__ import annotations

import bz2
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import zstandard
from isal import isal_zlib

from pipelines.errors import LongtailError

if TYPE_CHECKING:
    from pipelines.sources.rejects import Rejects

# Compressed bytes in one read: what they become stays in the processor's cache and the allocator's heap, as a rule.
# Where it is made to be very much, it is still bounded: a kB of zstd is 32 MB at most, 8 kB of gzip 8 MB.
BLOCK = 1 << 13
ZSTD_BLOCK = 1 << 10
PIECE = 1 << 20  # bytes asked for at once where the format allows it (8 kB of bz2 can be gigabytes)
LONGEST = 1 << 26  # bytes of a line: ten times a bible, or the longest entity of Wikidata; a longer one isn't held
HTML = (b"<!doctype html", b"<html")
AGAIN = "fetch it again"
TOO_LONG = f"longer than {LONGEST >> 20} MB, expected a line for each row"

# The libraries' own file objects stop silently at a cut zstd frame and at a damaged later bz2 stream; so streams are
# taken one by one with decompressors, which say whether a stream ended.
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".gz": lambda: isal_zlib.decompressobj(wbits=31),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(),
}


def source_files(folder: Path) -> list[Path]:
    """The data files of one data set's folder under data/raw, by name; hidden files (.about.md) are none.

    Raises LongtailError where there is no file.
    """
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise LongtailError(f"{folder}: no files, expected a source's data; name some under fetch.files and run fetch")
    return files


def open_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the file's lines without their newline, decompressed by suffix (.bz2, .gz, .zst, or none).

    Raises LongtailError naming the file when it is missing, empty, cut in the middle, corrupt, or an HTML page, and
    the line when it is longer than LONGEST.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            raise LongtailError(f"{path}: line {number}: {TOO_LONG}; check what the file is")
        yield line


def open_rows(path: str | Path, rejects: Rejects) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of the file's lines that hold something, each counted in `rejects.read`.

    A line longer than LONGEST goes to `rejects` (too_long). Otherwise the same errors as `open_lines`.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            rejects.read += 1
            rejects.add(path, number, "too_long", TOO_LONG)
        elif line and not line.isspace():
            rejects.read += 1
            yield number, line


def bounded_lines(path: str | Path) -> Iterator[bytes | None]:
    """The file's lines as `open_lines`; None for one longer than LONGEST, of which no more than that is ever held."""
    parts: list[bytes] = []
    size = 0  # of the line that has begun
    for block in open_blocks(path):
        first, *rest = block.split(b"\n")
        size += len(first)
        if size > LONGEST:
            parts.clear()
        else:
            parts.append(first)
        if rest:
            yield b"".join(parts) if size <= LONGEST else None
            # As a rule no line within a block can be too long.
            whole = rest[:-1]
            yield from whole if len(block) <= LONGEST else (line if len(line) <= LONGEST else None for line in whole)
            parts, size = [rest[-1]], len(rest[-1])
    if size:
        yield b"".join(parts) if size <= LONGEST else None


def open_text(path: str | Path) -> Iterator[str]:
    """Yield the file's lines as `open_lines`, decoded; LongtailError names file and line where it isn't UTF-8."""
    for number, line in enumerate(open_lines(path), start=1):
        yield decode(line, f"{path}: line {number}")


def decode(data: bytes, where: str) -> str:
    """`data` as UTF-8 text; LongtailError that starts with `where` if it isn't."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LongtailError(
            f"{where}: not UTF-8 at byte {error.start} (0x{data[error.start]:02x}), expected UTF-8 text; {AGAIN}"
        ) from None


def open_bytes(path: str | Path) -> BinaryIO:
    """The decompressed file as a readable binary stream (for XML parsers), with the same errors as `open_lines`."""
    return io.BufferedReader(_Reader(open_blocks(path)), buffer_size=1 << 18)


def open_blocks(path: str | Path, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed file in blocks that are not empty, at least one, with the same errors as `open_lines`.

    A block is much shorter than LONGEST. Only the bytes from `begin` to `end` of the file as it lies are read; they
    must be whole streams.
    """
    path = Path(path)
    check_start(path)
    with path.open("rb") as raw:
        stream = _stored(raw, ZSTD_BLOCK if path.suffix == ".zst" else BLOCK, begin, end)
        make = DECOMPRESSORS.get(path.suffix)
        start = b""
        for block in stream if make is None else _decompressed(path, stream, make):
            if len(start) < 512:  # the start of the data itself: an error page can arrive compressed
                start += block[:512]
                _refuse_html(path, start)
            yield block
        if not start:
            raise LongtailError(f"{path}: nothing in it once decompressed, expected data; {AGAIN}")


def open_runs(path: str | Path, size: int) -> Iterator[Iterator[bytes]]:
    """Yield the decompressed file in runs of whole lines, each of at least `size` bytes and in pieces, as they come.

    A run is to be read to its end before the next. Where it ends depends on the data and `size` alone. The same errors
    as `open_lines`.
    """
    blocks, rest = open_blocks(path), b""

    def run() -> Iterator[bytes]:
        nonlocal rest
        length = 0
        while block := rest or next(blocks, b""):
            end = block.find(b"\n", max(size - length - 1, 0)) + 1 if length + len(block) >= size else 0
            rest = block[end:] if end else b""
            yield block[:end] if end else block
            if end:
                return
            length += len(block)

    while rest := rest or next(blocks, b""):
        yield run()


def line_spans(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """Yield the lines of a text in pieces, each as (some bytes, where it starts in them, where it ends): not copied.

    For long lines of which most is not used: to copy them is half of what splitting a text takes.
    """
    parts: list[bytes] = []
    for piece in pieces:
        start = 0
        if parts:
            if (end := piece.find(b"\n")) < 0:
                parts.append(piece)
                continue
            line = b"".join([*parts, piece[:end]])
            yield line, 0, len(line)
            start, parts = end + 1, []
        while (end := piece.find(b"\n", start)) >= 0:
            yield piece, start, end
            start = end + 1
        if start < len(piece):
            parts = [piece[start:]]
    if parts:
        line = b"".join(parts)
        yield line, 0, len(line)


def check_start(path: Path) -> None:
    """Raise LongtailError naming the file when it is missing, empty or an HTML page; reads a few bytes only."""
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; check fetch.root and fetch.files, or run the fetch stage")
    with path.open("rb") as raw:
        head = raw.read(512)
    if not head:
        raise LongtailError(f"{path}: empty, expected data; {AGAIN}")
    _refuse_html(path, head)


def _stored(raw: BinaryIO, size: int, begin: int, end: int | None) -> Iterator[bytes]:
    raw.seek(begin)
    while data := raw.read(size if end is None else min(size, end - raw.tell())):
        yield data


class _Reader(io.RawIOBase):
    """A raw stream over an iterator of byte blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _refuse_html(path: Path, start: bytes) -> None:
    if start[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(HTML):
        raise LongtailError(f"{path}: an HTML page, expected data (an error page saved in its place?); {AGAIN}")


def _decompressed(path: Path, stream: Iterator[bytes], make: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress streams (bz2), members (gzip) or frames (zstd) that follow one another; all must be complete."""
    bound = (PIECE,) if path.suffix == ".bz2" else ()
    decompressor, data = None, b""
    for block in stream:
        data, more = block, False
        while data or more:
            if decompressor is None:
                if path.suffix == ".gz" and not (data := data.lstrip(b"\0")):  # gzip allows padding after a member
                    break
                decompressor = make()
            try:
                out = decompressor.decompress(data, *bound)
            except (OSError, EOFError, isal_zlib.error, zstandard.ZstdError) as error:
                raise LongtailError(f"{path}: corrupt, expected {path.suffix} data ({error}); {AGAIN}") from None
            data = decompressor.unused_data if decompressor.eof else b""
            more = bool(bound) and not decompressor.eof and not decompressor.needs_input
            if decompressor.eof:
                decompressor = None
            if out:
                yield out
    if decompressor is not None:
        raise LongtailError(f"{path}: cut in the middle, expected a complete {path.suffix} file; {AGAIN}")
