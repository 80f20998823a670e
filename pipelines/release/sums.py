"""SHA256SUMS of a release: written, and held against the files; `sha256sum -c SHA256SUMS` reads it as well."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pipelines.errors import LongtailError

FILE = "SHA256SUMS"


def sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(folder: Path) -> None:
    """Write the sums of all files below `folder` into it, by path."""
    lines = [f"{sha256(folder / name)}  {name}\n" for name in _files(folder)]
    (folder / FILE).write_text("".join(lines), encoding="utf-8")


def check(folder: Path) -> int:
    """The number of files that have their sums; raises LongtailError naming those changed, missing or not listed."""
    if not (folder / FILE).is_file():
        raise LongtailError(f"{folder}: no {FILE} in it, expected a release's folder")
    listed = {}
    for number, line in enumerate((folder / FILE).read_text(encoding="utf-8").splitlines(), start=1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise LongtailError(f"{folder / FILE}: line {number} is {line[:80]!r}, expected a sum and a file")
        listed[name] = digest
    there = set(_files(folder))
    faults = [f"{name} is missing" for name in listed if name not in there]
    faults += [f"{name} is changed" for name in listed if name in there and sha256(folder / name) != listed[name]]
    faults += [f"{name} is not listed" for name in sorted(there - listed.keys())]
    if faults:
        raise LongtailError(f"{folder}: not as it was released: {', '.join(faults)}; get it again")
    return len(listed)


def _files(folder: Path) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / FILE]
    return sorted(path.relative_to(folder).as_posix() for path in paths)
