"""Compressed files, told by their first bytes and unpacked piece by piece. A damaged or cut one is an error."""

import bz2
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from isal import igzip_lib

from pipelines.errors import LongtailError
from pipelines.storage.file_kinds import AGAIN, ZIPPED, refusal

BLOCK = 1 << 16  # bytes in one read
PIECE = 1 << 18  # decompressed bytes at once, which fit in the processor's cache; of zstd see DECOMPRESSORS
MEMORY = 1 << 28  # bytes that a file in xz may ask for; `xz -9` takes a quarter of them
NO_DATA = re.compile(r"(?:.*/)?(?:\..*|Thumbs\.db|desktop\.ini)|__MACOSX/.*|.*/")  # files that a zip has besides


def _zstd() -> Any:
    import zstandard  # 24 MB, for the pipeline: evaluations do not write it

    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


class Decompressor(NamedTuple):
    """How files that begin with `start` are decompressed; zip has its own reader."""

    start: bytes  # a pattern
    new: Callable[[], Any] | None
    read: int = BLOCK  # bytes read at once
    bound: tuple[int, ...] = (PIECE,)  # the most bytes that it makes at once, if it can be told
    padding: bytes = b""  # may stand after a stream


# The libraries' own file objects stop silently at a cut zstd frame and at a damaged second bz2 stream. These
# decompressors read one stream at a time, and say whether it ended. zstd makes at most 32 MB of a kilobyte.
DECOMPRESSORS = {
    ".bz2": Decompressor(rb"BZh[1-9]", bz2.BZ2Decompressor),
    ".gz": Decompressor(rb"\x1f\x8b", lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), padding=b"\0"),
    ".xz": Decompressor(rb"\xfd7z|\x5d\0\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_AUTO, MEMORY), padding=b"\0"),
    ".zip": Decompressor(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", None),
    # a frame, or one to be skipped
    ".zst": Decompressor(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", _zstd, read=1 << 10, bound=()),
}


def packing(start: bytes) -> str:
    """The suffix that files have which begin so, of DECOMPRESSORS; "" for what is not compressed."""
    return next((suffix for suffix, kind in DECOMPRESSORS.items() if re.match(kind.start, start)), "")


def decompressed(path: Path, suffix: str) -> Iterator[bytes]:
    """The bytes of a file, unpacked as files with a suffix are."""
    if suffix == ".zip":
        yield from _unzipped(path)
        return
    with path.open("rb") as raw:
        stored = iter(lambda: raw.read(DECOMPRESSORS[suffix].read if suffix else BLOCK), b"")
        yield from _streams(path, suffix, stored) if suffix else stored


def _streams(path: Path, suffix: str, stored: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one or more streams (bz2, xz), members (gzip) or frames (zstd). All of them must be complete."""
    kind, decompressor = DECOMPRESSORS[suffix], None
    for data in stored:
        more = False
        while data or more:
            if decompressor is None:
                if not (data := data.lstrip(kind.padding) if kind.padding else data):
                    break
                decompressor = kind.new()
            try:
                out = decompressor.decompress(data, *kind.bound)
            except Exception as error:  # each library has its own
                raise LongtailError(f"{path}: corrupt, expected {suffix} data ({error}); {AGAIN}") from None
            data = decompressor.unused_data if decompressor.eof else b""
            more = bool(kind.bound) and not decompressor.eof and not decompressor.needs_input
            if decompressor.eof:
                decompressor = None
            if out:
                yield out
    if decompressor is not None:
        raise LongtailError(f"{path}: cut in the middle, expected a complete {suffix} file; {AGAIN}")


def _unzipped(path: Path) -> Iterator[bytes]:
    """The bytes of the one file in a zip. Raises LongtailError where there is no such file, or it can't be read."""
    try:
        with zipfile.ZipFile(path) as packed:
            names = [member.filename.encode() for member in packed.infolist()]
            if kind := next((kind for kind in ZIPPED if any(re.match(kind.start, name) for name in names)), None):
                raise refusal(path, kind)
            files = [member for member in packed.infolist() if not NO_DATA.fullmatch(member.filename)]
            if len(files) != 1:
                shown = ", ".join(member.filename for member in files[:5]) + ", …" * (len(files) > 5)
                has = f"{len(files)} files ({shown})" if files else "no file"
                raise LongtailError(f"{path}: a zip with {has}, expected one; unpack it and give one of its files")
            with packed.open(files[0]) as member:
                yield from iter(lambda: member.read(PIECE), b"")
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, OSError) as error:  # or one with a password
        said = "cut in the middle or corrupt, expected a complete .zip file without a password"
        raise LongtailError(f"{path}: {said} ({error}); {AGAIN}") from None
