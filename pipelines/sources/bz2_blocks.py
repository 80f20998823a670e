"""Reads a part of an ordinary Wikipedia dump, which is one long bz2 stream, without the parts before it.

A stream consists of blocks, each compressed independently and with its own checksum. A block can begin at any bit of
the file. It begins with a mark of 48 bits.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pipelines.errors import LongtailError
from pipelines.sources.streams import AGAIN, PIECE, check_start

BLOCK, END = 0x314159265359, 0x177245385090  # the marks of a block and of a stream's end
MARK = 6  # bytes
CHECKSUM = 4  # bytes; the whole stream's checksum stands after the mark of its end
HEADER = b"BZh9"  # begins a stream with blocks of up to 900 kB, the largest that exist
WINDOW = 1 << 18  # bytes searched at once
OPEN, PAGE, CLOSE = b"<mediawiki>", b"<page>", b"</mediawiki>"  # never in a page's text, where "<" is "&lt;"


def open_pages(path: Path, begin: int, end: int | None) -> Iterator[bytes]:
    """Yield the XML of the pages that begin in certain blocks: those that begin in bytes `begin` to `end` of the file.

    If parts divide the file's bytes among them, each page is in exactly one part. `end` is None for the file's end.
    Raises LongtailError naming the file if it is missing, cut or corrupt.
    """
    check_start(path)
    with path.open("rb") as raw:
        first = _find(raw, BLOCK, 8 * begin) if begin else _next_stream(path, raw, 0)
        stop = None if end is None else _find(raw, BLOCK, 8 * end)
        if first in (None, stop):
            yield OPEN + CLOSE
            return
        following = iter(()) if stop is None else _decompress_blocks(path, raw, stop, None)
        yield from _whole_pages(_decompress_blocks(path, raw, first, stop), following, from_start=begin == 0)


def _whole_pages(part: Iterator[bytes], following: Iterator[bytes], from_start: bool) -> Iterator[bytes]:
    """Yield the XML of the pages that begin in `part`, the last of them completed from the data `following` it.

    With `from_start`, what stands before the part's first page belongs to it too.
    """
    held, begun = b"", from_start
    if not from_start:
        yield OPEN
    for piece in part:
        if begun:
            yield piece
            continue
        held += piece
        if begun := (at := held.find(PAGE)) >= 0:
            yield held[at:]
        held = held[1 - len(PAGE) :]  # perhaps the first bytes of a PAGE
    if not begun:
        start = b""
        while len(start) < len(PAGE) and (piece := next(following, b"")):
            start += piece
        at = (held + start[: len(PAGE) - 1]).find(PAGE)
        if at < 0:
            yield CLOSE
            return
        yield held[at:]
        following = chain([start], following)
    held = b""
    for piece in following:
        held += piece
        if (at := held.find(PAGE)) >= 0:
            yield held[:at] + CLOSE
            return
        yield held[: 1 - len(PAGE)]
        held = held[1 - len(PAGE) :]
    yield held


def _decompress_blocks(path: Path, raw: BinaryIO, begin: int, stop: int | None) -> Iterator[bytes]:
    """Yield the data of the blocks from bit `begin` to bit `stop`, where blocks begin; to the file's end for None."""
    size = 8 * raw.seek(0, 2)
    stop, at = size if stop is None else stop, begin
    while at is not None and at < stop:  # one stream in each round
        decompressor, ended = bz2.BZ2Decompressor(), False
        decompressor.decompress(HEADER)
        while not ended:
            window_end = min(at + 8 * WINDOW, stop)
            end = _stream_end(raw, at, window_end)
            if end is None and window_end == size:
                raise LongtailError(f"{path}: cut in the middle, expected a complete .bz2 file; {AGAIN}")
            begin, at = at, window_end if end is None else end
            ended = end is not None or window_end == stop
            data, rest = _read_bits(raw, begin, at)
            try:
                while piece := decompressor.decompress(data, PIECE):
                    yield piece
                    data = b""
            except (OSError, EOFError) as error:
                raise LongtailError(f"{path}: corrupt, expected .bz2 data ({error}); {AGAIN}") from None
            if ended and not _last_block_ended(decompressor, rest):
                raise LongtailError(f"{path}: corrupt, expected .bz2 data (a block without an end); {AGAIN}")
        if at < stop:
            at = _next_stream(path, raw, _byte_after(at))


def _last_block_ended(decompressor: bz2.BZ2Decompressor, rest: bytes) -> bool:
    """Whether the decompressor takes `rest` for the stream's end, so that no block is left unfinished."""
    try:
        decompressor.decompress(rest)
    except OSError:  # it compared the end's checksum, which is zero
        return True
    return decompressor.eof


def _read_bits(raw: BinaryIO, begin: int, stop: int) -> tuple[bytes, bytes]:
    """The file's bits from `begin` to `stop`, with END and a zero checksum after them, cut in two where a byte ends.

    The first part is what the decompressor needs for the bits, the second is the rest of END and the checksum.
    """
    raw.seek(begin // 8)
    stored = np.frombuffer(raw.read(-(-stop // 8) - begin // 8), dtype=np.uint8)
    shift, (whole_bytes, more_bits) = begin % 8, divmod(stop - begin, 8)
    if shift:
        stored = (stored << shift) | (np.append(stored[1:], np.uint8(0)) >> (8 - shift))
    data = stored.tobytes()
    last_bits = data[whole_bytes] >> (8 - more_bits) if more_bits else 0
    end = ((last_bits << 8 * MARK | END) << 8 * CHECKSUM) << (8 - more_bits) % 8
    tail = end.to_bytes(MARK + CHECKSUM + bool(more_bits), "big")
    return data[:whole_bytes] + tail[: bool(more_bits)], tail[bool(more_bits) :]


def _find(raw: BinaryIO, mark: int, begin: int, until: int | None = None) -> int | None:
    """The first bit from `begin` on, and before `until`, at which `mark` stands."""
    byte, low = divmod(begin, 8)
    while until is None or 8 * byte < until:
        raw.seek(byte)
        data = raw.read(WINDOW + MARK + 1)  # long enough for a mark that begins in the window's last byte
        if (bit := _find_in(data, mark, low)) is not None:
            bit += 8 * byte
            return bit if until is None or bit < until else None
        if len(data) <= WINDOW:
            return None
        byte, low = byte + WINDOW, 0
    return None


def _find_in(data: bytes, mark: int, low: int) -> int | None:
    """The first bit of `data`, from bit `low` on, at which `mark` stands."""
    found = []
    for shift in range(8):
        inner = (mark >> shift & (1 << 40) - 1).to_bytes(5, "big")  # the mark's whole bytes, if it begins at this shift
        at = low // 8
        while (at := data.find(inner, at + 1)) > 0:
            bit, bits = 8 * (at - 1) + shift, int.from_bytes(data[at - 1 : at + 6].ljust(7, b"\0"), "big")
            if bit >= low and bits >> (8 - shift) & (1 << 48) - 1 == mark:
                found.append(bit)
                break
    return min(found, default=None)


def _stream_end(raw: BinaryIO, begin: int, until: int) -> int | None:
    """The first bit from `begin` on, and before `until`, at which a stream ends.

    An END counts if the file ends after it or another stream begins there; otherwise it is data that looks like one.
    """
    while (end := _find(raw, END, begin, until)) is not None:
        raw.seek(_byte_after(end) - 1)
        last, following = raw.read(1), raw.read(3)
        if last and following in (b"", HEADER[:3]):
            return end
        begin = end + 1
    return None


def _byte_after(end: int) -> int:
    """The byte after a stream whose END stands at bit `end`; a stream is padded to whole bytes."""
    return -(-end // 8) + MARK + CHECKSUM


def _next_stream(path: Path, raw: BinaryIO, byte: int) -> int | None:
    """The bit at which the first block of the streams from `byte` on begins; None if there is no block."""
    while True:
        raw.seek(byte)
        if not (head := raw.read(len(HEADER) + MARK)):
            return None
        mark = int.from_bytes(head[len(HEADER) :], "big")
        if head[:3] != HEADER[:3] or mark not in (BLOCK, END):
            raise LongtailError(f"{path}: corrupt, expected .bz2 data (no stream at byte {byte}); {AGAIN}")
        byte += len(HEADER)
        if mark == BLOCK:
            return 8 * byte
        byte += MARK + CHECKSUM
