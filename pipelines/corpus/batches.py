"""Source files to batches of raw documents on disk, so that a big dump keeps every process busy and is resumable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import shards
from pipelines.corpus.sample import Draw, Sizes
from pipelines.sources.multistream import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw

BATCH_BYTES = 4_000_000  # of raw text
BATCH = pa.schema(
    [("source_document", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("file", pa.string()), ("row", pa.int64()), ("wikitext", pa.bool_()), ("side", pa.string())]
)  # fmt: skip


def measure_part(name: str, draw: Draw, part: Part, out: Path) -> None:
    """Write the characters of the corpus's source documents by their keys, `Sizes.characters`."""
    sizes = Sizes()
    for row in read_raw(name, part, Rejects(1.0)):
        side = draw.side(row.source_document, row.file)
        if place := draw.place(row.source_document, row.source, side):
            sizes.add(place, len(row.text))
    out.write_bytes(sizes.characters.tobytes())


def read_part(name: str, max_reject_share: float, batch_bytes: int, draw: Draw, part: Part, out: Path) -> None:
    """Write a folder: batches of one part's drawn documents (NNNNNN.parquet), rejects.parquet, read.json."""
    out.mkdir()
    rejects = Rejects(max_reject_share)
    rows: list[tuple] = []
    sources: Counter[str] = Counter()
    size = count = 0
    for row in read_raw(name, part, rejects):
        sources[row.source] += 1
        side = draw.side(row.source_document, row.file)
        place = draw.place(row.source_document, row.source, side)
        if place is None:
            rejects.skip("no_weight")
        if place is None or not draw.low < place <= draw.high:
            continue
        rows.append((*row, side))
        size += len(row.text.encode("utf-8"))
        if size >= batch_bytes:
            write_rows(rows, BATCH, out / f"{count:06d}.parquet")
            rows, size, count = [], 0, count + 1
    if rows:
        write_rows(rows, BATCH, out / f"{count:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    shards.write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped, "sources": sources})


def write_rows(rows: list, schema: pa.Schema, path: Path) -> None:
    """Write tuples as one Parquet file of `schema`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    pq.write_table(pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
                            schema=schema), path, compression="zstd")  # fmt: skip
