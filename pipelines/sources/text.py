"""Streaming reads of source files, decompressed by suffix, in which no damage passes for the end of the data."""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from pipelines.errors import LongtailError

BLOCK = 1 << 18  # compressed bytes in one read
HTML = (b"<!doctype html", b"<html")
AGAIN = "fetch it again"

# The libraries' own file objects stop silently at a cut zstd frame and at a damaged later bz2 stream; so streams are
# taken one by one with decompressors, which say whether a stream ended.
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".gz": lambda: zlib.decompressobj(wbits=31),
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

    Raises LongtailError naming the file when it is missing, empty, cut in the middle, corrupt, or an HTML page.
    """
    parts: list[bytes] = []
    for block in _blocks(Path(path)):
        first, *rest = block.split(b"\n")
        parts.append(first)
        if rest:
            yield b"".join(parts)
            yield from rest[:-1]
            parts = [rest[-1]]
    if last := b"".join(parts):
        yield last


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
    return io.BufferedReader(_Reader(_blocks(Path(path))), buffer_size=BLOCK)


def check_start(path: Path) -> None:
    """Raise LongtailError naming the file when it is missing, empty or an HTML page; reads a few bytes only."""
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; check fetch.root and fetch.files, or run the fetch stage")
    with path.open("rb") as raw:
        head = raw.read(512)
    if not head:
        raise LongtailError(f"{path}: empty, expected data; {AGAIN}")
    _refuse_html(path, head)


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


def _blocks(path: Path) -> Iterator[bytes]:
    """Non-empty decompressed blocks; at least one, or an error."""
    check_start(path)
    with path.open("rb") as raw:
        stream = iter(lambda: raw.read(BLOCK), b"")
        make = DECOMPRESSORS.get(path.suffix)
        start = b""
        for block in stream if make is None else _decompressed(path, stream, make):
            if len(start) < 512:  # the start of the data itself: an error page can arrive compressed
                start += block[:512]
                _refuse_html(path, start)
            yield block
        if not start:
            raise LongtailError(f"{path}: nothing in it once decompressed, expected data; {AGAIN}")


def _refuse_html(path: Path, start: bytes) -> None:
    if start[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(HTML):
        raise LongtailError(f"{path}: an HTML page, expected data (an error page saved in its place?); {AGAIN}")


def _decompressed(path: Path, stream: Iterator[bytes], make: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress streams (bz2), members (gzip) or frames (zstd) that follow one another; all must be complete."""
    decompressor, data = None, b""
    for block in stream:
        data = block
        while data:
            if decompressor is None:
                if path.suffix == ".gz" and not (data := data.lstrip(b"\0")):  # gzip allows padding after a member
                    break
                decompressor = make()
            try:
                out = decompressor.decompress(data)
            except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
                raise LongtailError(f"{path}: corrupt, expected {path.suffix} data ({error}); {AGAIN}") from None
            data = decompressor.unused_data if decompressor.eof else b""
            if decompressor.eof:
                decompressor = None
            if out:
                yield out
    if decompressor is not None:
        raise LongtailError(f"{path}: cut in the middle, expected a complete {path.suffix} file; {AGAIN}")
