"""Streaming reads of source files, unpacked by their first bytes. A damaged or cut file is an error, never short."""

from __future__ import annotations

import bz2
import codecs
import json
import lzma
import math
import re
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from isal import igzip_lib

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.storage.file_kinds import (
    AGAIN,
    HEAD,
    PARQUET_MARK,
    UTF8_MARK,
    ZIPPED,
    check_link,
    head_of,
    refusal,
    refuse,
)

if TYPE_CHECKING:
    from pipelines.sources.rejects import Rejects

BLOCK = 1 << 16  # bytes in one read
PIECE = (
    1 << 18
)  # decompressed bytes at once, which fit in the processor's cache; of zstd see DECOMPRESSORS
MEMORY = 1 << 28  # bytes that a file in xz may ask for; `xz -9` takes a quarter of them
NO_DATA = re.compile(
    r"(?:.*/)?(?:\..*|Thumbs\.db|desktop\.ini)|__MACOSX/.*|.*/"
)  # files that a zip has besides
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape in JSON; two of them stand for a character
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
A_LINE = "a line for each row"
BEGINNING = 1 << 16  # bytes, decompressed, that tell how a file is written

Item = TypeVar("Item")


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
    ".gz": Decompressor(
        rb"\x1f\x8b", lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), padding=b"\0"
    ),
    ".xz": Decompressor(
        rb"\xfd7z|\x5d\0\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_AUTO, MEMORY), padding=b"\0"
    ),
    ".zip": Decompressor(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", None),
    # a frame, or one to be skipped
    ".zst": Decompressor(
        rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", _zstd, read=1 << 10, bound=()
    ),
}


def packing(start: bytes) -> str:
    """The suffix that files have which begin so, of DECOMPRESSORS; "" for what is not compressed."""
    return next(
        (suffix for suffix, kind in DECOMPRESSORS.items() if re.match(kind.start, start)), ""
    )


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
                raise LongtailError(
                    f"{path}: corrupt, expected {suffix} data ({error}); {AGAIN}"
                ) from None
            data = decompressor.unused_data if decompressor.eof else b""
            more = bool(kind.bound) and not decompressor.eof and not decompressor.needs_input
            if decompressor.eof:
                decompressor = None
            if out:
                yield out
    if decompressor is not None:
        raise LongtailError(
            f"{path}: cut in the middle, expected a complete {suffix} file; {AGAIN}"
        )


def _unzipped(path: Path) -> Iterator[bytes]:
    """The bytes of the one file in a zip. Raises LongtailError where there is no such file, or it can't be read."""
    try:
        with zipfile.ZipFile(path) as packed:
            names = [member.filename.encode() for member in packed.infolist()]
            if kind := next(
                (kind for kind in ZIPPED if any(re.match(kind.start, name) for name in names)), None
            ):
                raise refusal(path, kind)
            files = [
                member for member in packed.infolist() if not NO_DATA.fullmatch(member.filename)
            ]
            if len(files) != 1:
                shown = ", ".join(member.filename for member in files[:5]) + ", …" * (
                    len(files) > 5
                )
                has = f"{len(files)} files ({shown})" if files else "no file"
                raise LongtailError(
                    f"{path}: a zip with {has}, expected one; unpack it and give one of its files"
                )
            with packed.open(files[0]) as member:
                yield from iter(lambda: member.read(PIECE), b"")
    except (
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        RuntimeError,
        OSError,
    ) as error:  # or one with a password
        said = "cut in the middle or corrupt, expected a complete .zip file without a password"
        raise LongtailError(f"{path}: {said} ({error}); {AGAIN}") from None


def visible_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted, without hidden ones (.about.md)."""
    return sorted(
        file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")
    )


def source_files(folder: Path) -> list[Path]:
    """The visible files of one data set's folder under data/raw; raises LongtailError if there is none."""
    files = visible_files(folder)
    if not files:
        raise LongtailError(
            f"{folder}: no files, expected a source's data; name some under fetch.files and run fetch"
        )
    return files


def open_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the file's lines without their newline, in UTF-8, decompressed (bz2, gzip, xz, zip, zstd) by its content.

    Raises LongtailError if it is missing, empty, cut, corrupt, of another kind (`file_kinds`), or has a line longer
    than `bounds.RECORD`.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            raise LongtailError(
                f"{path}: line {number}: {bounds.too_long(A_LINE)}; check what the file is"
            )
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
            name = shlex.quote(Path(path).name)
            does = f"convert it from its encoding, which may be windows-1252: iconv -f windows-1252 -t utf-8 {name}"
            said = f"line {number}: not UTF-8 at byte {error.start} (0x{line[error.start]:02x})"
            raise LongtailError(f"{path}: {said}; {AGAIN}, or {does} > utf8-{name}") from None


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
        return parse_json(text.decode("utf-8"))
    except UnicodeDecodeError:
        for _ in open_text(path):  # which says the line
            pass
        raise
    except ValueError as error:
        raise LongtailError(
            f"{path}: not JSON ({error}), expected a list of records or an object; check how it was written"
        ) from None


def open_blocks(path: str | Path) -> Iterator[bytes]:
    """Yield the decompressed file in blocks of UTF-8: at least one, none empty, all much shorter than a record may be.

    A byte order mark at the file's beginning is left out. Raises the errors of `open_lines`, except for long lines.
    """
    path = Path(path)
    suffix = packing(check_start(path))
    blocks = decompressed(path, suffix)
    start = b""
    while len(start) < HEAD and (block := next(blocks, None)) is not None:
        start += block
    if not start:
        raise LongtailError(f"{path}: nothing in it once decompressed, expected data; {AGAIN}")
    if inside := "Parquet" if start.startswith(PARQUET_MARK) else packing(start) if suffix else "":
        raise LongtailError(
            f"{path}: {inside} data{' inside ' * bool(suffix)}{suffix}, expected text; unpack it first"
        )
    refuse(path, start[:HEAD])
    if start.startswith(UTF16_MARKS):
        blocks = _from_utf16(path, chain([start], blocks))
        start = next(blocks, b"")
        refuse(path, start[:HEAD])
    yield start.removeprefix(UTF8_MARK) or b"\n"
    yield from blocks


def read_head(path: Path) -> bytes:
    """The first BEGINNING bytes of a file, decompressed. Raises the errors of `open_blocks`."""
    head = b""
    for block in open_blocks(path):
        head += block[: BEGINNING - len(head)]
        if len(head) >= BEGINNING:
            break
    return head


def open_runs(
    path: str | Path, size: int, blocks: Iterable[bytes] | None = None
) -> Iterator[list[bytes]]:
    """Yield the decompressed file in runs of whole lines, each of at least `size` bytes, as a list of its pieces.

    `blocks` are some of the file's lines, to be read in place of the file. Where a run ends depends on the data and
    `size` alone. Raises the errors of `open_lines`.
    """
    run: list[bytes] = []
    length, longest = 0, bounds.RECORD
    for block in open_blocks(path) if blocks is None else blocks:
        while length + len(block) >= size and (
            end := block.find(b"\n", max(size - 1 - length, 0)) + 1
        ):
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


def check_start(path: Path) -> bytes:
    """The first bytes of a file. Raises LongtailError if it is missing, empty, or of a kind that no reader takes."""
    check_link(path)
    if not path.is_file():
        raise LongtailError(
            f"{path}: no such file; check fetch.root and fetch.files, or run the fetch stage"
        )
    if not (head := head_of(path)):
        raise LongtailError(f"{path}: empty, expected data; {AGAIN}")
    refuse(path, head)
    return head


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes. Raises the errors of `check_start`."""
    return check_start(path).startswith(PARQUET_MARK)


def _from_utf16(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")()
    try:
        for block in chain(blocks, [b""]):
            if text := decoder.decode(block, final=not block):
                yield text.encode("utf-8")
    except UnicodeDecodeError as error:
        raise LongtailError(
            f"{path}: damaged or cut, expected UTF-16 ({error.reason}); {AGAIN}"
        ) from None
