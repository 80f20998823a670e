"""Unpacks files by their first bytes (bz2, gzip, xz, zip, zstd).

A damaged or cut file is an error. It is never read as if it were a shorter file.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from isal import igzip_lib

from pipelines.errors import LongtailError
from pipelines.storage.file_kinds import AGAIN, ZIPPED, refusal

READ_BYTES = 1 << 16  # bytes of a file in one read
PIECE_BYTES = 1 << 18  # decompressed bytes at once, which fit in the processor's cache
XZ_MEMORY = 1 << 28  # bytes that a file in xz may ask for; `xz -9` takes a quarter of them
ZSTD_WINDOW = 1 << 31  # bytes; the largest that zstd's command makes
MESSAGE_LENGTH = 200  # characters of a zip's list of files in a message
NO_DATA = re.compile(  # files that a zip has besides
    r"(?:.*/)?(?:\..*|Thumbs\.db|desktop\.ini)|__MACOSX/.*|.*/"
)


class Decompressor(NamedTuple):
    """How files that begin with `start` are decompressed; zip has its own reader."""

    start: bytes  # a pattern
    open: Callable[[], Any] | None  # gives an object that decompresses one stream
    read_bytes: int = READ_BYTES
    piece_bytes: int | None = PIECE_BYTES  # None: the library takes no bound
    padding: bytes = b""  # may stand after a stream


def _open_gzip() -> igzip_lib.IgzipDecompressor:
    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)


def _open_xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, XZ_MEMORY)


def _open_zstd() -> Any:
    import zstandard  # 24 MB, for the pipeline: evaluations do not write it

    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()


# The libraries' own file objects stop silently at a cut zstd frame and at a damaged second bz2
# stream. These decompressors read one stream at a time, and say whether it ended. zstd makes at
# most 32 MB of a kilobyte.
DECOMPRESSORS = {
    ".bz2": Decompressor(rb"BZh[1-9]", bz2.BZ2Decompressor),
    ".gz": Decompressor(rb"\x1f\x8b", _open_gzip, padding=b"\0"),
    ".xz": Decompressor(rb"\xfd7z|\x5d\0\0", _open_xz, padding=b"\0"),
    ".zip": Decompressor(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", None),
    # a frame, or one to be skipped
    ".zst": Decompressor(
        rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
        _open_zstd,
        read_bytes=1 << 10,
        piece_bytes=None,
    ),
}


def packing(start: bytes) -> str:
    """The suffix, of DECOMPRESSORS, of files that begin so; "" for what is not compressed."""
    for suffix, decompressor in DECOMPRESSORS.items():
        if re.match(decompressor.start, start):
            return suffix
    return ""


def decompressed(path: Path, suffix: str) -> Iterator[bytes]:
    """The bytes of a file in pieces, unpacked as files with a suffix are; "" for a file that is not
    compressed.
    """
    if suffix == ".zip":
        yield from _unzipped(path)
        return
    read_bytes = DECOMPRESSORS[suffix].read_bytes if suffix else READ_BYTES
    with path.open("rb") as raw:
        stored = iter(partial(raw.read, read_bytes), b"")
        if suffix:
            yield from _streams(path, suffix, stored)
        else:
            yield from stored


def _streams(path: Path, suffix: str, stored: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one or more streams (bz2, xz), members (gzip) or frames (zstd). All of them must
    be complete.
    """
    settings = DECOMPRESSORS[suffix]
    bound = () if settings.piece_bytes is None else (settings.piece_bytes,)
    stream = None
    for data in stored:
        has_more = False  # of what the stream was given before
        while data or has_more:
            if stream is None:
                if settings.padding:
                    data = data.lstrip(settings.padding)
                if not data:
                    break
                stream = settings.open()

            try:
                piece = stream.decompress(data, *bound)
            except Exception as error:  # each library has its own
                raise LongtailError(
                    f"{path}: corrupt, expected {suffix} data ({error}); {AGAIN}"
                ) from None
            if stream.eof:
                data = stream.unused_data
                has_more = False
                stream = None
            else:
                data = b""
                has_more = bool(bound) and not stream.needs_input
            if piece:
                yield piece

    if stream is not None:
        raise LongtailError(
            f"{path}: cut in the middle, expected a complete {suffix} file; {AGAIN}"
        )


def _unzipped(path: Path) -> Iterator[bytes]:
    """The bytes of the one file in a zip. Raises LongtailError where there is no such file, or it
    can't be read.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            member = _data_file(path, packed)
            with packed.open(member) as file:
                yield from iter(partial(file.read, PIECE_BYTES), b"")
    except (
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        RuntimeError,  # or one with a password
        OSError,
    ) as error:
        raise LongtailError(
            f"{path}: cut in the middle or corrupt, expected a complete .zip file "
            f"without a password ({error}); {AGAIN}"
        ) from None


def _data_file(path: Path, packed: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The one file with data in a zip. Raises LongtailError for a zip of another format, as .docx,
    or of more files.
    """
    members = packed.infolist()
    names = [member.filename.encode() for member in members]
    for zipped_format in ZIPPED:
        if any(re.match(zipped_format.start, name) for name in names):
            raise refusal(path, zipped_format)

    files = [member for member in members if not NO_DATA.fullmatch(member.filename)]
    if len(files) == 1:
        return files[0]
    names_shown = ", ".join(file.filename for file in files)[:MESSAGE_LENGTH]
    content = f"{len(files)} files ({names_shown})" if files else "no file"
    raise LongtailError(
        f"{path}: a zip with {content}, expected one; unpack it and give one of its files"
    )
