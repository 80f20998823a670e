"""What an index was made of: fingerprints of documents, encoder and files, kept beside it, compared on opening."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.retrieval import documents

WHOLE = 64 << 20  # bytes: no more than that is read whole
PIECES, PIECE = 256, 64 << 10  # of a larger one, so many pieces of so many bytes,
END = 16 << 20  # and its last bytes: a Parquet file's say place, size and extremes of every chunk of every column


def fingerprint(path: Path) -> str:
    """A short name for what a file or folder holds, in a fraction of a second whatever its size.

    Up to WHOLE bytes all are read; beyond, names, sizes, the end and pieces spread evenly. A corpus, encoder or index
    that was made anew from other input differs in size, or nearly everywhere; what a piece could miss is a few bytes
    changed in place, by hand, and DVC's own checksums are there for that.
    """
    path = Path(path)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    sizes = [file.stat().st_size for file in files]
    ends, names = list(accumulate(sizes)), [file.name for file in files]
    digest = hashlib.blake2b(repr((names, sizes)).encode(), digest_size=8)
    pieces: dict[int, list[tuple[int, int]]] = {}  # number of a file -> where to read in it, and how much
    if sum(sizes) <= WHOLE:
        pieces = {i: [(0, size)] for i, size in enumerate(sizes)}
    else:
        for i in range(PIECES):  # the middles of equal stretches of all the files' bytes laid end to end
            middle = (2 * i + 1) * ends[-1] // (2 * PIECES)
            number = bisect_right(ends, middle)
            pieces.setdefault(number, []).append((middle - ends[number] + sizes[number], PIECE))
        pieces.setdefault(len(files) - 1, []).append((max(0, sizes[-1] - END), END))
    for number, places in pieces.items():
        with files[number].open("rb") as stream:
            for at, length in places:
                stream.seek(at)
                digest.update(stream.read(length))
    return digest.hexdigest()


def describe(docs: Path, encoder: Path | None, **facts) -> dict:
    """meta.json of an index: fingerprints of what it was made of, its number of documents, and the facts given."""
    made_of = {"docs": fingerprint(docs), "count": documents.count(docs)}
    return made_of | ({"encoder": fingerprint(encoder)} if encoder else {}) | facts


def check(folder: Path, *, docs: Path, encoder: Path | None = None, **expected) -> dict:
    """The folder's meta.json, once it agrees with the files at hand; LongtailError names what differs, what to do."""
    try:
        meta = json.loads((Path(folder) / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LongtailError(f"{folder}: no meta.json to read, expected an index; run the stage `index`") from None
    for name, value in describe(docs, encoder, **expected).items():
        if meta.get(name) != value:
            source = {"docs": docs, "encoder": encoder}.get(name, name)
            raise LongtailError(
                f"{folder}: was made with another {name} ({meta.get(name)}; {source} is {value}); "
                "run the stage `index` again"
            )
    return meta
