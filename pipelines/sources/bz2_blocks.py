"""Parts of an ordinary Wikipedia dump, which is one long bz2 stream: each is read by itself, by the stream's blocks.

A block is compressed by itself and has a checksum of its own. It begins at any bit of the file, with 48 that mark it.
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

BLOCK, END = 0x314159265359, 0x177245385090  # the marks of a block, and of a stream's end
MARK = 6  # bytes
CHECKSUM = 4  # bytes, of the whole stream, behind its end's mark
HEADER = b"BZh9"  # of a stream with blocks of up to 900 kB, the largest
WINDOW = 1 << 18  # bytes looked at together
OPEN, PAGE, CLOSE = b"<mediawiki>", b"<page>", b"</mediawiki>"  # never in a page's text, where "<" is "&lt;"


def open_pages(path: Path, begin: int, end: int | None) -> Iterator[bytes]:
    """Yield, in pieces, a dump of the pages that begin in the blocks that begin in bytes `begin` to `end` of the file.

    So parts that share out the file's bytes share out its pages. Raises LongtailError naming the file where it is
    missing, cut or corrupt.
    """
    check_start(path)
    with path.open("rb") as raw:
        first = _find(raw, BLOCK, 8 * begin) if begin else _next_stream(path, raw, 0)
        stop = None if end is None else _find(raw, BLOCK, 8 * end)
        if first in (None, stop):
            yield OPEN + CLOSE
            return
        beyond = iter(()) if stop is None else _unpacked(path, raw, stop, None)
        yield from _pages(_unpacked(path, raw, first, stop), beyond, whole=begin == 0)


def _pages(own: Iterator[bytes], beyond: Iterator[bytes], whole: bool) -> Iterator[bytes]:
    """From the first PAGE that begins in `own`, or all of it, to the first that begins `beyond`, or to the end."""
    held, begun = b"", whole
    if not whole:
        yield OPEN
    for piece in own:
        if begun:
            yield piece
            continue
        held += piece
        if begun := (at := held.find(PAGE)) >= 0:
            yield held[at:]
        held = held[1 - len(PAGE) :]  # it may hold the first bytes of a PAGE
    if not begun:
        start = b""
        while len(start) < len(PAGE) and (piece := next(beyond, b"")):
            start += piece
        at = (held + start[: len(PAGE) - 1]).find(PAGE)
        if at < 0:
            yield CLOSE
            return
        yield held[at:]
        beyond = chain([start], beyond)
    held = b""
    for piece in beyond:
        held += piece
        if (at := held.find(PAGE)) >= 0:
            yield held[:at] + CLOSE
            return
        yield held[: 1 - len(PAGE)]
        held = held[1 - len(PAGE) :]
    yield held


def _unpacked(path: Path, raw: BinaryIO, begin: int, stop: int | None) -> Iterator[bytes]:
    """Yield what the blocks from bit `begin` to bit `stop`, where blocks begin, or to the file's end become."""
    size = 8 * raw.seek(0, 2)
    stop, at = size if stop is None else stop, begin
    while at is not None and at < stop:  # a stream each
        decompressor, ended = _decompressor(), False
        while not ended:
            upto = min(at + 8 * WINDOW, stop)
            end = _end(raw, at, upto)
            if end is None and upto == size:
                raise LongtailError(f"{path}: cut in the middle, expected a complete .bz2 file; {AGAIN}")
            at, begin, ended = upto if end is None else end, at, end is not None or upto == stop
            data, rest = _bits(raw, begin, at)
            try:
                yield from _decompressed(decompressor, data)
            except (OSError, EOFError) as error:
                raise LongtailError(f"{path}: corrupt, expected .bz2 data ({error}); {AGAIN}") from None
            if ended and not _is_whole(decompressor, rest):
                raise LongtailError(f"{path}: corrupt, expected .bz2 data (a block without an end); {AGAIN}")
        if at < stop:
            at = _next_stream(path, raw, _behind(at))


def _decompressor() -> bz2.BZ2Decompressor:
    decompressor = bz2.BZ2Decompressor()
    decompressor.decompress(HEADER)
    return decompressor


def _decompressed(decompressor: bz2.BZ2Decompressor, data: bytes) -> Iterator[bytes]:
    while piece := decompressor.decompress(data, PIECE):
        yield piece
        data = b""


def _is_whole(decompressor: bz2.BZ2Decompressor, rest: bytes) -> bool:
    """Whether no block is left unfinished: the end of a stream, with a wrong checksum, is then seen to be wrong."""
    try:
        decompressor.decompress(rest)
    except OSError:
        return True
    return decompressor.eof


def _bits(raw: BinaryIO, at: int, upto: int) -> tuple[bytes, bytes]:
    """The file's bits from `at` to `upto`, filled up to whole bytes by an END, and the rest of that END."""
    raw.seek(at // 8)
    stored = np.frombuffer(raw.read(-(-upto // 8) - at // 8), dtype=np.uint8)
    shift, (whole, more) = at % 8, divmod(upto - at, 8)
    if shift:
        stored = (stored << shift) | (np.append(stored[1:], np.uint8(0)) >> (8 - shift))
    data = stored.tobytes()
    last = data[whole] >> (8 - more) if more else 0
    end = ((last << 8 * MARK | END) << 8 * CHECKSUM) << (8 - more) % 8
    filled = end.to_bytes(MARK + CHECKSUM + bool(more), "big")
    return data[:whole] + filled[: bool(more)], filled[bool(more) :]


def _find(raw: BinaryIO, mark: int, begin: int, until: int | None = None) -> int | None:
    """The first bit from `begin` on, and before `until`, where `mark` stands."""
    byte, low = divmod(begin, 8)
    while until is None or 8 * byte < until:
        raw.seek(byte)
        data = raw.read(WINDOW + MARK + 1)  # with a mark that begins at the end
        if (found := _first(data, mark, low)) is not None:
            found += 8 * byte
            return found if until is None or found < until else None
        if len(data) <= WINDOW:
            return None
        byte, low = byte + WINDOW, 0
    return None


def _first(data: bytes, mark: int, low: int) -> int | None:
    """The first bit of `data`, from `low` on, where `mark` stands."""
    found = []
    for shift in range(8):
        inner = (mark >> shift & (1 << 40) - 1).to_bytes(5, "big")  # all bytes of it but the first, and parts of two
        at = low // 8
        while (at := data.find(inner, at + 1)) > 0:
            bit, bits = 8 * (at - 1) + shift, int.from_bytes(data[at - 1 : at + 6].ljust(7, b"\0"), "big")
            if bit >= low and bits >> (8 - shift) & (1 << 48) - 1 == mark:
                found.append(bit)
                break
    return min(found, default=None)


def _end(raw: BinaryIO, begin: int, until: int) -> int | None:
    """The first bit from `begin` on, and before `until`, where a stream ends: with nothing or another one behind it."""
    while (end := _find(raw, END, begin, until)) is not None:
        raw.seek(_behind(end) - 1)
        last, following = raw.read(1), raw.read(3)
        if last and following in (b"", HEADER[:3]):
            return end
        begin = end + 1
    return None


def _behind(end: int) -> int:
    """The byte behind a stream's end, which is filled up to whole bytes."""
    return -(-end // 8) + MARK + CHECKSUM


def _next_stream(path: Path, raw: BinaryIO, byte: int) -> int | None:
    """The bit where the first block begins of the streams from `byte` on; None where there is none."""
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
