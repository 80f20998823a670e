"""Reads a part of an ordinary bz2 dump without what stands before it, by its blocks, which begin at
any bit.
"""

import bz2
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.decompression import packing
from pipelines.sources.streams import check_start, open_blocks
from pipelines.storage.file_kinds import AGAIN

BLOCK_MARK = 0x314159265359  # begins a block
END_MARK = 0x177245385090  # ends a stream
MARK_BITS = 48
MARK_BYTES = MARK_BITS // 8
MARK_MASK = (1 << MARK_BITS) - 1
CHECKSUM_BITS = 32  # a checksum stands after either mark
CHECKSUM_MASK = (1 << CHECKSUM_BITS) - 1
HEADER = b"BZh9"  # begins a stream with blocks of up to 900 kB, the largest that exist
BLOCK_BITS = 1 << 23  # bits of a compressed block at most
WINDOW_BYTES = 1 << 18  # bytes searched at once
PART_BYTES = 1 << 24  # compressed bytes in a part: about 70 MB of XML, a few seconds

# never in a page's text, where "<" is "&lt;"
OPEN = b"<mediawiki>"
PAGE = b"<page>"
CLOSE = b"</mediawiki>"


class Part(NamedTuple):
    """A source file, or what begins in its bytes `begin` to `end`."""

    file: Path
    begin: int = 0
    end: int | None = None  # None: the end of the file


class Mark(NamedTuple):
    bit: int  # of the file, at which the mark begins
    value: int  # BLOCK_MARK or END_MARK


def bz2_parts(path: Path, size: int | None = None) -> list[Part]:
    """The parts of a file, of at most `size` bytes (PART_BYTES). A file that is not bz2 is one
    part.
    """
    if packing(check_start(path)) != ".bz2":
        return [Part(path)]
    starts = range(0, path.stat().st_size, size or PART_BYTES)
    return [Part(path, begin, end) for begin, end in zip_longest(starts, starts[1:])]


def open_lines(part: Part) -> Iterator[bytes]:
    """Yield the lines of a file, or those that begin after a newline in the blocks of a part, in
    pieces; see `open_pages`.
    """
    if _is_whole(part):
        yield from open_blocks(part.file)
    else:
        yield from _from_mark(_blocks(part), part.begin == 0, b"\n", skipped=1)


def open_pages(part: Part) -> Iterator[bytes]:
    """Yield the XML of a file, or of the pages that begin in the blocks that begin in a part.

    What stands before the first page belongs to the first part. Raises LongtailError naming the
    file if it is missing, cut or corrupt.
    """
    if _is_whole(part):
        yield from open_blocks(part.file)
        return
    if part.begin:
        yield OPEN
    yield from _from_mark(_blocks(part), part.begin == 0, PAGE, close=CLOSE)


def _is_whole(part: Part) -> bool:
    return part.begin == 0 and part.end is None


def _from_mark(
    blocks: Iterator[tuple[bytes, bool]],
    begun: bool,
    mark: bytes,
    skipped: int = 0,
    close: bytes = b"",
) -> Iterator[bytes]:
    """Yield what stands from the first mark in a part to the first mark behind the part.

    It stands from the part's start if `begun`. The part is the data of the `blocks` (data, True);
    (data, False) follows it. Text begins and ends `skipped` bytes behind a mark's start. `close` is
    added, unless the text ends with the file.
    """
    text = b""
    part_bytes = 0  # so many bytes of `text` belong to the part
    for data, in_part in blocks:
        text += data
        if in_part:
            part_bytes = len(text)
        if not begun:
            place = text.find(mark)
            if 0 <= place < part_bytes:
                begun = True
                text = text[place + skipped :]
                part_bytes -= place + skipped
            elif not in_part and part_bytes == 0:
                break

        if begun:
            place = text.find(mark, part_bytes)
            if place >= 0:
                yield text[: place + skipped] + close
                return

        finished = max(len(text) - len(mark) + 1, 0)  # after it, a mark may begin
        if begun and finished:
            yield text[:finished]
        text = text[finished:]
        part_bytes = max(part_bytes - finished, 0)

    last = text if begun else close
    if last:
        yield last


def _blocks(part: Part) -> Iterator[tuple[bytes, bool]]:
    """Yield the data of each block from the part's first one to the file's end, and whether the
    block begins in the part.
    """
    path = part.file
    check_start(path)
    with path.open("rb") as raw:
        size = raw.seek(0, 2)
        end_bit = 8 * (size if part.end is None else part.end)
        marks = _marks(raw, 8 * part.begin)
        mark = next(marks, None)
        if part.begin == 0:
            _check_stream(path, raw, 0, mark)

        while mark is not None:
            if mark.value == BLOCK_MARK:
                data, following = _decompress(path, raw, mark.bit, marks)
                yield data, mark.bit < end_bit
                mark = following
            else:
                stream_end = _whole_bytes(mark.bit + MARK_BITS + CHECKSUM_BITS)
                mark = next(marks, None)
                if stream_end != size:
                    _check_stream(path, raw, stream_end, mark)


def _whole_bytes(bits: int) -> int:
    """The bytes that bits take; a stream is padded to whole bytes."""
    return -(-bits // 8)


def _check_stream(path: Path, raw: BinaryIO, byte: int, mark: Mark | None) -> None:
    """Raise LongtailError if no stream begins at `byte`, in which `mark` is the first one."""
    raw.seek(byte)
    has_header = raw.read(len(HEADER)).startswith(HEADER[:3])
    first_bit = 8 * (byte + len(HEADER))
    if not has_header or mark is None or mark.bit != first_bit:
        raise LongtailError(
            f"{path}: corrupt, expected .bz2 data (no stream at byte {byte}); {AGAIN}"
        )


def _decompress(path: Path, raw: BinaryIO, begin: int, marks: Iterator[Mark]) -> tuple[bytes, Mark]:
    """The data of the block at bit `begin`, and the mark that follows it: one of the `marks` after
    it.
    """
    problem = "cut in the middle, expected a complete .bz2 file"
    for mark in marks:
        if mark.bit - begin > BLOCK_BITS:
            break
        try:
            return bz2.decompress(_as_stream(raw, begin, mark.bit)), mark
        except (OSError, ValueError) as error:
            # the block is damaged, or some of its bits look like a mark by chance
            problem = f"corrupt, expected .bz2 data ({error})"
    raise LongtailError(f"{path}: {problem}; {AGAIN}")


def _as_stream(raw: BinaryIO, begin: int, end: int) -> bytes:
    """A stream of one block, the file's bits `begin` to `end`. The stream's checksum is the
    block's.
    """
    raw.seek(begin // 8)
    bits = int.from_bytes(raw.read(_whole_bytes(end) - begin // 8))
    size = end - begin
    block = bits >> -end % 8 & (1 << size) - 1
    checksum = block >> size - MARK_BITS - CHECKSUM_BITS & CHECKSUM_MASK

    stream = (block << MARK_BITS | END_MARK) << CHECKSUM_BITS | checksum
    size += MARK_BITS + CHECKSUM_BITS
    padded = stream << -size % 8
    return HEADER + padded.to_bytes(_whole_bytes(size))


def _marks(raw: BinaryIO, begin: int) -> Iterator[Mark]:
    """Yield the marks from bit `begin` on, in order."""
    byte = begin // 8
    while True:
        raw.seek(byte)
        data = raw.read(WINDOW_BYTES + MARK_BYTES + 1)  # a mark may begin in the window's last byte
        marks = []
        for value in (BLOCK_MARK, END_MARK):
            for bit in _find(data, value):
                mark = Mark(8 * byte + bit, value)
                if bit < 8 * WINDOW_BYTES and mark.bit >= begin:
                    marks.append(mark)
        yield from sorted(marks)
        if len(data) <= WINDOW_BYTES:
            return
        byte += WINDOW_BYTES


def _find(data: bytes, value: int) -> Iterator[int]:
    """Yield the bits of `data` at which a mark stands."""
    for shift in range(8):
        # the five whole bytes that the mark has if it begins at this bit of a byte
        inner = (value >> shift & (1 << 40) - 1).to_bytes(5)
        place = data.find(inner, 1)
        while place > 0:
            around = int.from_bytes(data[place - 1 : place + 6].ljust(7, b"\0"))
            if around >> 8 - shift & MARK_MASK == value:
                yield 8 * (place - 1) + shift
            place = data.find(inner, place + 1)
