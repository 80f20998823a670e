"""Reads a part of an ordinary bz2 dump without what stands before it, by its blocks, which begin at any bit."""

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import LongtailError
from pipelines.sources.streams import check_start, packing
from pipelines.storage.file_kinds import AGAIN

BLOCK, END = 0x314159265359, 0x177245385090  # the marks of a block and of a stream's end
MARK, CHECKSUM = 48, 32  # bits; a checksum stands after either mark
HEADER = b"BZh9"  # begins a stream with blocks of up to 900 kB, the largest that exist
LARGEST = 1 << 23  # bits of a compressed block at most
WINDOW = 1 << 18  # bytes searched at once
PART = 1 << 24  # compressed bytes in a part: about 70 MB of XML, a few seconds
OPEN, PAGE, CLOSE = (
    b"<mediawiki>",
    b"<page>",
    b"</mediawiki>",
)  # never in a page's text, where "<" is "&lt;"


def bz2_parts(path: Path, size: int | None = None) -> list[tuple[int, int | None]]:
    """(begin, end) of parts of at most `size` bytes (PART) for `open_pages` or `open_lines`; one if it is not bz2."""
    starts = range(
        0, path.stat().st_size if packing(check_start(path)) == ".bz2" else 1, size or PART
    )
    return list(zip(starts, [*starts[1:], None], strict=True))


def open_lines(path: Path, begin: int, end: int | None) -> Iterator[bytes]:
    """Yield the lines that begin after a newline of certain blocks, in pieces; see `open_pages`."""
    yield from _from_mark(_blocks(path, begin, end), begin == 0, b"\n", 1)


def open_pages(path: Path, begin: int, end: int | None) -> Iterator[bytes]:
    """Yield the XML of the pages that begin in the blocks that begin in bytes `begin` to `end` of the file.

    What stands before the first page belongs to the first part. `end` is None for the file's end. Raises LongtailError
    naming the file if it is missing, cut or corrupt.
    """
    if begin:
        yield OPEN
    yield from _from_mark(_blocks(path, begin, end), begin == 0, PAGE, 0, CLOSE)


def _from_mark(
    blocks: Iterator[tuple[bytes, bool]], begun: bool, mark: bytes, after: int, close: bytes = b""
) -> Iterator[bytes]:
    """Yield what stands from the first mark in a part, or its start if `begun`, to the first mark behind the part.

    The part are the (data, True) of `blocks`; (data, False) follows it. Text begins and ends `after` bytes behind a
    mark's start. `close` follows it, unless the file ends there.
    """
    text, of_part = b"", 0  # of_part: so many bytes of `text` belong to the part
    for data, in_part in blocks:
        text += data
        of_part = len(text) if in_part else of_part
        if not begun and 0 <= (at := text.find(mark)) < of_part:
            begun, text, of_part = True, text[at + after :], of_part - at - after
        if begun and (at := text.find(mark, of_part)) >= 0:
            yield text[: at + after] + close
            return
        if not (begun or in_part or of_part):
            break
        done = max(len(text) - len(mark) + 1, 0)  # after it, the first bytes of a mark may stand
        if begun and done:
            yield text[:done]
        text, of_part = text[done:], max(of_part - done, 0)
    if last := text if begun else close:
        yield last


def _blocks(path: Path, begin: int, end: int | None) -> Iterator[tuple[bytes, bool]]:
    """Yield the data of each block from byte `begin` on, and whether the block begins before byte `end`."""
    check_start(path)
    with path.open("rb") as raw:
        last = 8 * (raw.seek(0, 2) if end is None else end)
        if begin:
            at, mark = next(
                (place for place in _marks(raw, 8 * begin) if place[1] == BLOCK), (0, None)
            )
        else:
            at, mark = _first_mark(path, raw, 0)
        marks = _marks(raw, at + 1)
        while mark is not None:
            if mark == BLOCK:
                data, following, mark = _decompress(path, raw, at, marks)
                yield data, at < last
                at = following
            else:  # the stream is padded to whole bytes
                at, mark = _first_mark(path, raw, -(-(at + MARK + CHECKSUM) // 8))
                marks = _marks(raw, at + 1)


def _first_mark(path: Path, raw: BinaryIO, byte: int) -> tuple[int, int | None]:
    """(bit, mark) of the first mark in the stream that begins at `byte`; the mark is None at the file's end."""
    if byte == raw.seek(0, 2):
        return 0, None
    raw.seek(byte)
    head = raw.read(len(HEADER) + MARK // 8)
    mark = int.from_bytes(head[len(HEADER) :])
    if head[:3] != HEADER[:3] or mark not in (BLOCK, END):
        raise LongtailError(
            f"{path}: corrupt, expected .bz2 data (no stream at byte {byte}); {AGAIN}"
        )
    return 8 * (byte + len(HEADER)), mark


def _decompress(
    path: Path, raw: BinaryIO, at: int, marks: Iterator[tuple[int, int]]
) -> tuple[bytes, int, int]:
    """The data of the block at bit `at`, and the bit and the mark that follow it: one of the `marks` after `at`."""
    problem = "cut in the middle, expected a complete .bz2 file"
    for following, mark in marks:
        if following - at > LARGEST:
            break
        try:
            return bz2.decompress(_as_stream(raw, at, following)), following, mark
        except (
            OSError,
            ValueError,
        ) as error:  # the block is damaged, or its bits look like a mark by chance
            problem = f"corrupt, expected .bz2 data ({error})"
    raise LongtailError(f"{path}: {problem}; {AGAIN}")


def _as_stream(raw: BinaryIO, begin: int, end: int) -> bytes:
    """A stream of one block, the file's bits `begin` to `end`. The stream's checksum is the block's."""
    raw.seek(begin // 8)
    bits = int.from_bytes(raw.read(-(-end // 8) - begin // 8))
    block = bits >> -end % 8 & (1 << end - begin) - 1
    checksum = block >> end - begin - MARK - CHECKSUM & (1 << CHECKSUM) - 1
    stream, size = (block << MARK | END) << CHECKSUM | checksum, end - begin + MARK + CHECKSUM
    return HEADER + (stream << -size % 8).to_bytes(-(-size // 8))


def _marks(raw: BinaryIO, begin: int) -> Iterator[tuple[int, int]]:
    """Yield (bit, BLOCK or END) of the marks from bit `begin` on, in order."""
    byte = begin // 8
    while True:
        raw.seek(byte)
        data = raw.read(
            WINDOW + MARK // 8 + 1
        )  # long enough for a mark that begins in the window's last byte
        places = [
            (8 * byte + bit, mark)
            for mark in (BLOCK, END)
            for bit in _find(data, mark)
            if bit < 8 * WINDOW
        ]
        yield from sorted(place for place in places if place[0] >= begin)
        if len(data) <= WINDOW:
            return
        byte += WINDOW


def _find(data: bytes, mark: int) -> Iterator[int]:
    """Yield the bits of `data` at which `mark` stands."""
    for shift in range(8):
        inner = (mark >> shift & (1 << 40) - 1).to_bytes(
            5
        )  # the mark's whole bytes, if it begins at this shift
        at = 0
        while (at := data.find(inner, at + 1)) > 0:
            if (
                int.from_bytes(data[at - 1 : at + 6].ljust(7, b"\0")) >> (8 - shift)
                & (1 << MARK) - 1
                == mark
            ):
                yield 8 * (at - 1) + shift
