"""What an index was made of: hashes of its documents and encoder, written beside it, compared when it is opened."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.retrieval import documents
from pipelines.shards import key_of


def describe(docs: Path, encoder: Path | None, **facts) -> dict:
    """meta.json of an index: hashes of what it was made of, its number of documents, and the facts given."""
    made_of = {"docs": key_of(docs), "count": documents.count(docs)}
    return made_of | ({"encoder": key_of(encoder)} if encoder else {}) | facts


def check(folder: Path, *, docs: Path, encoder: Path | None = None, **expected) -> None:
    """Compare the folder's meta.json with the files at hand; LongtailError names what differs and what to do."""
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
