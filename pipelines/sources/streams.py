"""Streaming reads of source files, decompressed by suffix. A damaged or cut file is an error, never a short file."""

from __future__ import annotations

import bz2
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import zstandard
from isal import igzip_lib

from pipelines.errors import LongtailError
from pipelines.params import bounds

if TYPE_CHECKING:
    from pipelines.sources.rejects import Rejects

BLOCK = 1 << 16  # bytes in one read
ZSTD_BLOCK = 1 << 10  # bytes read at once: zstd makes at most 32 MB of them, even in a malicious file
PIECE = 1 << 18  # decompressed bytes of bz2 and gzip at once; they fit in the processor's cache
HTML = (b"<!doctype html", b"<html")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # bytes that some programs write before UTF-8 text
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape in JSON; two of them stand for a character
AGAIN = "fetch or copy it again"
A_LINE = "a line for each row"

Item = TypeVar("Item")

# The libraries' own file objects stop silently at a cut zstd frame and at a damaged second bz2 stream. These
# decompressors read one stream at a time, and say whether it ended.
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".gz": lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(),
}


def visible_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted, without hidden ones (.about.md)."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))


def source_files(folder: Path) -> list[Path]:
    """The visible files of one data set's folder under data/raw; raises LongtailError if there is none."""
    files = visible_files(folder)
    if not files:
        raise LongtailError(f"{folder}: no files, expected a source's data; name some under fetch.files and run fetch")
    return files


def open_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the file's lines without their newline, decompressed by suffix (.bz2, .gz, .zst, or none).

    Raises LongtailError if it is missing, empty, cut, corrupt, an HTML page, or has a line longer than `bounds.RECORD`.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            raise LongtailError(f"{path}: line {number}: {bounds.too_long(A_LINE)}; check what the file is")
        yield line


def open_rows(path: str | Path, rejects: Rejects) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of the lines that aren't blank; `rejects` counts them and gets the lines too long."""
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            rejects.read += 1
            rejects.add(path, number, "too_long", bounds.too_long(A_LINE))
        elif line and not line.isspace():
            rejects.read += 1
            yield number, line


def bounded_lines(path: str | Path) -> Iterator[bytes | None]:
    """Yield the file's lines, and None for a line longer than `bounds.RECORD`; only so many of its bytes are held."""
    longest, size = bounds.RECORD, 0
    parts: list[bytes] = []  # of the unfinished line
    for block in open_blocks(path):
        first, *rest = block.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            parts.clear()
        if rest:
            yield b"".join(parts) if size <= longest else None
            yield from (line if len(line) <= longest else None for line in rest[:-1])
            parts, size = rest[-1:], len(rest[-1])
    if size:
        yield b"".join(parts) if size <= longest else None


def open_text(path: str | Path) -> Iterator[str]:
    """Yield the lines of `open_lines` decoded. Raises LongtailError naming the file and the line that isn't UTF-8."""
    for number, line in enumerate(open_lines(path), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            at = error.start
            raise LongtailError(f"{path}: line {number}: not UTF-8 at byte {at} (0x{line[at]:02x}); {AGAIN}") from None


def parse_json(text: bytes | bytearray | str) -> Any:
    """A JSON value. Raises ValueError for what is none, is nested too deeply, or has half of a surrogate pair."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if SURROGATE.search(text if isinstance(text, str) else text.decode("utf-8")):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair") from None
    return value


def parse_whole(path: Path) -> Any:
    """The JSON value that a file is. Raises LongtailError for what is none, or longer than `bounds.WHOLE`."""
    text = bytearray()
    for block in open_blocks(path):
        text += block
        if len(text) > bounds.WHOLE:
            raise bounds.too_large(path, "a short list; write a record a line")
    try:
        return parse_json(text)
    except ValueError as error:
        raise LongtailError(f"{path}: not JSON ({error}), expected a list of records or an object; {AGAIN}") from None


def open_blocks(path: str | Path) -> Iterator[bytes]:
    """Yield the decompressed file in blocks: at least one, none empty, all much shorter than a record may be.

    A byte order mark at the file's beginning is left out. Raises the errors of `open_lines`, except for long lines.
    """
    path = Path(path)
    check_start(path)
    with path.open("rb") as raw:
        stored = iter(lambda: raw.read(ZSTD_BLOCK if path.suffix == ".zst" else BLOCK), b"")
        start = b""
        for block in _decompressed(path, stored) if path.suffix in DECOMPRESSORS else stored:
            if not start:
                block = block.removeprefix(BYTE_ORDER_MARK) or b"\n"
            if len(start) < 512:  # an error page can arrive compressed
                start += block[:512]
                _refuse_html(path, start)
            yield block
        if not start:
            raise LongtailError(f"{path}: nothing in it once decompressed, expected data; {AGAIN}")


def open_runs(path: str | Path, size: int, blocks: Iterable[bytes] | None = None) -> Iterator[list[bytes]]:
    """Yield the decompressed file in runs of whole lines, each of at least `size` bytes, as a list of its pieces.

    `blocks` are some of the file's lines, to be read in place of the file. Where a run ends depends on the data and
    `size` alone. Raises the errors of `open_lines`.
    """
    run: list[bytes] = []
    length, longest = 0, bounds.RECORD
    for block in open_blocks(path) if blocks is None else blocks:
        while length + len(block) >= size and (end := block.find(b"\n", max(size - 1 - length, 0)) + 1):
            yield [*run, block[:end]]
            run, length, block = [], 0, block[end:]
        length += len(block)
        run += [block] if block else []
        if length > size + longest:
            raise LongtailError(f"{path}: a line {bounds.too_long(A_LINE)}; check what the file is")
    if run:
        yield run


def in_batches(
    items: Iterable[Item], size: Callable[[Item], int], largest: int, most: float = math.inf
) -> Iterator[list[Item]]:
    """Yield the items in lists of up to `most` whose sizes add up to `largest` at most, or of one that is larger."""
    batch: list[Item] = []
    held = 0
    for item in items:
        if batch and (len(batch) == most or held + size(item) > largest):
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size(item)
    if batch:
        yield batch


def check_start(path: Path) -> None:
    """Raise LongtailError if the file is missing, empty or an HTML page. Reads only a few bytes."""
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; check fetch.root and fetch.files, or run the fetch stage")
    with path.open("rb") as raw:
        head = raw.read(512)
    if not head:
        raise LongtailError(f"{path}: empty, expected data; {AGAIN}")
    _refuse_html(path, head)


def _refuse_html(path: Path, start: bytes) -> None:
    if start[:512].removeprefix(BYTE_ORDER_MARK).lstrip().lower().startswith(HTML):
        raise LongtailError(f"{path}: an HTML page, expected data (an error page saved in its place?); {AGAIN}")


def _decompressed(path: Path, stored: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one or more streams (bz2), members (gzip) or frames (zstd). All of them must be complete."""
    bound = () if path.suffix == ".zst" else (PIECE,)
    decompressor = None
    for data in stored:
        more = False
        while data or more:
            if decompressor is None:
                if path.suffix == ".gz" and not (data := data.lstrip(b"\0")):  # gzip allows padding after a member
                    break
                decompressor = DECOMPRESSORS[path.suffix]()
            try:
                out = decompressor.decompress(data, *bound)
            except (OSError, EOFError, igzip_lib.error, zstandard.ZstdError) as error:
                raise LongtailError(f"{path}: corrupt, expected {path.suffix} data ({error}); {AGAIN}") from None
            data = decompressor.unused_data if decompressor.eof else b""
            more = bool(bound) and not decompressor.eof and not decompressor.needs_input
            if decompressor.eof:
                decompressor = None
            if out:
                yield out
    if decompressor is not None:
        raise LongtailError(f"{path}: cut in the middle, expected a complete {path.suffix} file; {AGAIN}")
