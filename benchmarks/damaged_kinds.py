"""What a file is: its compression by its name, and its kind and number of records by its content."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (lambda data: gzip.compress(data, 1, mtime=0), gzip.decompress),
    ".bz2": (lambda data: bz2.compress(data, 1), bz2.decompress),
    ".xz": (lambda data: lzma.compress(data, preset=0), lzma.decompress),
    ".zip": (lambda data: _zipped(data), lambda data: _unzipped(data)),
    ".zst": (
        lambda data: zstandard.ZstdCompressor(1, write_checksum=True).compress(
            data
        ),  # as zstd's command does
        lambda data: (
            zstandard.ZstdDecompressor()
            .stream_reader(io.BytesIO(data), read_across_frames=True)
            .read()
        ),
    ),
}


def _zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("data"), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(archive.namelist()[0])


def suffix(name: str) -> str:
    """The suffix of a compressed file's name; "" for others."""
    return next((end for end in COMPRESSIONS if name.endswith(end)), "")


def plain(name: str, stored: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][1](stored) if suffix(name) else stored


def stored(name: str, content: bytes) -> bytes:
    return COMPRESSIONS[suffix(name)][0](content) if suffix(name) else content


def kind(content: bytes) -> str:
    """parquet, xml, sql, records (JSON a line), json, table (tabs or commas), text or binary."""
    if content.startswith(b"PAR1"):
        return "parquet"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "binary"
    if text.startswith("<mediawiki"):
        return "xml"
    if "INSERT INTO" in text:
        return "sql"
    lines = [line.rstrip(",") for line in text.split("\n") if line.strip("[] \r")]
    if lines and all(line.startswith("{") and line.endswith("}") for line in lines[:5]):
        return "records"
    if text.lstrip().startswith(("[", "{")):
        return "json"
    return (
        "table"
        if lines and all("\t" in line or max(map(line.count, ",;|")) > 2 for line in lines[:3])
        else "text"
    )


def records_of(name: str, file: bytes) -> int | None:
    """How many records a stored file has; None where that can't be told."""
    try:
        content = plain(name, file)
        match kind(content):
            case "parquet":
                return pq.read_metadata(io.BytesIO(content)).num_rows
            case "json":
                value = json.loads(content)
                return len(value) if isinstance(value, list) else None
            case "xml":
                return content.count(b"<page>")
            case "records" | "table" | "text":
                return sum(
                    not (line.isspace() or line in (b"", b"[", b"]"))
                    for line in content.split(b"\n")
                )
    except (
        OSError,
        EOFError,
        ValueError,
        RecursionError,
        zipfile.BadZipFile,
        lzma.LZMAError,
        zstandard.ZstdError,
        pa.ArrowException,
    ):
        return None
    return None
