"""The source documents of a corpus: the split of each one, the ones that a capped corpus reads, and reading them.

A capped corpus takes source documents in the order of their keys, smallest first. A key is a hash of the document's id.
So a document's place does not depend on files, processes or rounds.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pipelines import draws
from pipelines.params import params
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import Part
from pipelines.storage import parquet, shards

SPLITS = ("corpus", "test", "validation", "train")  # the corpus, and the splits of the queries
FIRST_ROUND = 0.01  # share of the source documents that the first round of a capped corpus reads
MARGIN = 1.1  # how much more is read in the next round than seems to be needed
BATCH_BYTES = 4_000_000  # of raw text
BATCH = pa.schema(
    [("source_document", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("file", pa.string()), ("row", pa.int64()), ("wikitext", pa.bool_()), ("whole", pa.bool_()),
     ("split", pa.string()), ("key", pa.float64())]
)  # fmt: skip


class Draw(NamedTuple):
    """The draw of one round, which reads the source documents with low < key <= high."""

    seed: int
    corpus: params.CorpusOf
    queries: params.Queries
    low: float = -1.0
    high: float = 1.0

    def split(self, source_document: str, file: str) -> str:
        """The split of a source document, one of SPLITS: a hash of (seed, document id) decides.

        Documents in the files of a published test or validation split have that split, and no others have it.
        """
        published = {"test": self.corpus.test_files, "validation": self.corpus.validation_files}
        for split, glob in published.items():
            if glob is not None and fnmatchcase(file, glob):
                return split
        if draws.uniform(self.seed, "query source", source_document) >= self.corpus.query_share:
            return "corpus"
        u = draws.uniform(self.seed, "query split", source_document)
        for split, share in (("test", self.queries.test_share), ("validation", self.queries.validation_share)):
            if published[split] is None:
                if u < share:
                    return split
                u -= share
        return "train"

    def key(self, source_document: str, split: str) -> float:
        """A hash of the document's id from 0 to 1; 0 for one that gives queries, as these are all read."""
        return draws.uniform(self.seed, "corpus", source_document) if split == "corpus" else 0.0


def read_part(name: str, max_reject_share: float, batch_bytes: int, draw: Draw, part: Part, out: Path) -> None:
    """Write a part's drawn documents to the folder `out`, in files of `batch_bytes`; also rejects and read.json."""
    out.mkdir()
    rejects = Rejects(max_reject_share)
    batch: list[tuple] = []
    size = batches = 0
    for document in read_raw(name, part, rejects):
        split = draw.split(document.source_document, document.file)
        key = draw.key(document.source_document, split)
        if draw.low < key <= draw.high:
            batch.append((*document, split, key))
            size += len(document.text.encode("utf-8"))
        if size >= batch_bytes:
            write_batch(batch, out / f"{batches:06d}.parquet")
            batch, size, batches = [], 0, batches + 1
    if batch:
        write_batch(batch, out / f"{batches:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    shards.write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped})


def write_batch(batch: list[tuple], path: Path) -> None:
    """Write documents, tuples of BATCH's columns, to a Parquet file."""
    columns = [pa.array(column, field.type) for column, field in zip(zip(*batch, strict=True), BATCH, strict=True)]
    parquet.write_parquet(pa.table(columns, schema=BATCH), path)
