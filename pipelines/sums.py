"""Checksums of the files in a folder, beside them: of models, tokenizers and indexes, compared when they are opened.

A check takes a tenth of a second for a GB that is in the system's cache. Of files beyond WHOLE bytes, which may be
memory-mapped and never read as a whole, it compares the size and both ends; `longtail status --verify` compares all.
"""

from __future__ import annotations

import json
from pathlib import Path

from isal import isal_zlib

from pipelines import shards
from pipelines.errors import LongtailError

SUMS = "sums.json"
WHOLE = 4 << 30  # bytes
END = 1 << 20  # bytes at either end of a larger file
BLOCK = 1 << 22

_checked: set[tuple[str, int, int]] = set()  # (path, size, time) of files that this process has compared


def write(folder: Path) -> None:
    """Write SUMS for all files that are below `folder` now."""
    shards.write_json(folder / SUMS, of(folder))


def of(folder: Path) -> dict[str, dict[str, int | str]]:
    """The size and checksums of all files below `folder`, by name."""
    files = sorted(file for file in Path(folder).rglob("*") if file.is_file() and file.name != SUMS)
    return {file.relative_to(folder).as_posix(): _facts(file) for file in files}


def check(folder: Path, *names: str) -> None:
    """Compare the files of these names, or all below `folder`, with its SUMS. A folder from elsewhere has none.

    Raises LongtailError that names a file which is missing or not as it was written.
    """
    again = f"remove {folder}, and `longtail run` brings it back"
    if not (Path(folder) / SUMS).is_file():
        return
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        expected = {folder / name: (int(facts["bytes"]), facts) for name, facts in sums.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise LongtailError(f"{folder / SUMS}: damaged, expected the files' checksums; {again}") from None
    for file in [folder / name for name in names if folder / name in expected] or expected:
        size, facts = expected[file]
        if not file.is_file():
            raise LongtailError(f"{file}: no such file, expected {size} bytes; {again}")
        state = file.stat()
        key = (str(file), state.st_size, state.st_mtime_ns)
        if key not in _checked:
            kind = "all" if state.st_size <= WHOLE else "ends"
            if state.st_size != size or _sum(file, kind) != facts.get(kind):
                raise LongtailError(f"{file}: not as it was written, expected the checksum in {SUMS}; {again}")
            _checked.add(key)


def _facts(file: Path) -> dict[str, int | str]:
    return {"bytes": file.stat().st_size} | {kind: _sum(file, kind) for kind in ("all", "ends")}


def _sum(file: Path, kind: str) -> str:
    """CRC-32 of all bytes, or of those at both ends."""
    total, buffer = 0, memoryview(bytearray(BLOCK))
    with file.open("rb") as stream:
        if kind == "ends":
            first = stream.read(END)
            stream.seek(max(file.stat().st_size - END, 0))
            return f"{isal_zlib.crc32(stream.read(END), isal_zlib.crc32(first)):08x}"
        while length := stream.readinto(buffer):
            total = isal_zlib.crc32(buffer[:length], total)
    return f"{total:08x}"
