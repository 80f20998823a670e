"""The source documents of a corpus: the split of each one, the ones that a capped corpus reads, and reading them.

A capped corpus takes source documents in the order of their keys, smallest first. A key is -ln(u) / weight, where u is
a hash of the document's id (Efraimidis and Spirakis, 2006). So a document's place depends on its id and weight alone,
not on files, processes or rounds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.params import params
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import Part
from pipelines.storage import parquet, shards

SPLITS = ("corpus", "test", "validation", "train")  # the corpus, and the splits of the queries
CHARACTERS_PER_TOKEN = 4.0  # a first guess; later rounds use what the rounds before have measured
MARGIN = 1.1  # how much more text is read than seems to be needed
BATCH_BYTES = 4_000_000  # of raw text
BATCH = pa.schema(
    [("source_document", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("file", pa.string()), ("row", pa.int64()), ("wikitext", pa.bool_()), ("whole", pa.bool_()),
     ("split", pa.string())]
)  # fmt: skip
BOUNDS = [2.0 ** (b / 64 - 80) for b in range(8192)]  # where each bucket of keys ends: 64 for each doubling


def sampling_key(seed: int, source_document: str, weight: float) -> float:
    """The document's key, 0 or more; documents with small keys are taken first."""
    return -math.log1p(-draws.uniform(seed, "corpus", source_document)) / weight


class Draw(NamedTuple):
    """The draw of one round, which reads the source documents with low < key <= high."""

    seed: int
    corpus: params.CorpusOf
    queries: params.Queries
    low: float = -1.0
    high: float = math.inf

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

    def key(self, source_document: str, source: str, split: str) -> float | None:
        """The document's key, or 0 if it gives queries: these are all read. None if its subset has no weight."""
        weights = self.corpus.weights
        weight = 1.0 if weights is None else weights.get(source, 0.0)
        if weight == 0:
            return None
        return sampling_key(self.seed, source_document, weight) if split == "corpus" else 0.0


class KeyHistogram:
    """A histogram over the keys of the corpus's source documents, in characters of their texts."""

    def __init__(self) -> None:
        self.characters = np.zeros(len(BOUNDS), dtype=np.int64)

    def add(self, key: float, characters: int) -> None:
        self.characters[_bucket(key)] += characters

    def bound(self, characters: float, low: float) -> float:
        """The smallest bound above `low` with at least so many characters up to it; infinity if there is none."""
        totals = np.cumsum(self.characters)
        first = 0 if low < 0 else _bucket(low) + 1
        bucket = max(int(np.searchsorted(totals, characters)), first)
        return math.inf if bucket >= len(BOUNDS) - 1 or totals[bucket] == totals[-1] else BOUNDS[bucket]

    def characters_up_to(self, high: float) -> int:
        """Characters of the source documents with keys up to `high`, a bound that `bound` gave."""
        return int(self.characters[: _bucket(high) + 1].sum())


def _bucket(key: float) -> int:
    """The first bucket that ends at the key or above it; the last one takes all larger keys."""
    return min(bisect_left(BOUNDS, key), len(BOUNDS) - 1)


def measure_part(name: str, draw: Draw, part: Part, out: Path) -> None:
    """Write the KeyHistogram of one part of a source file to the file `out`."""
    histogram = KeyHistogram()
    for document in read_raw(name, part, Rejects(1.0)):
        split = draw.split(document.source_document, document.file)
        if key := draw.key(document.source_document, document.source, split):
            histogram.add(key, len(document.text))
    out.write_bytes(histogram.characters.tobytes())


def read_part(name: str, max_reject_share: float, batch_bytes: int, draw: Draw, part: Part, out: Path) -> None:
    """Write a part's drawn documents to the folder `out`, in files of `batch_bytes`; also rejects and read.json."""
    out.mkdir()
    rejects = Rejects(max_reject_share)
    batch: list[tuple] = []
    sources: Counter[str] = Counter()
    size = batches = 0
    for document in read_raw(name, part, rejects):
        sources[document.source] += 1
        split = draw.split(document.source_document, document.file)
        key = draw.key(document.source_document, document.source, split)
        if key is None:
            rejects.skip("no_weight")
        elif draw.low < key <= draw.high:
            batch.append((*document, split))
            size += len(document.text.encode("utf-8"))
        if size >= batch_bytes:
            write_batch(batch, out / f"{batches:06d}.parquet")
            batch, size, batches = [], 0, batches + 1
    if batch:
        write_batch(batch, out / f"{batches:06d}.parquet")
    rejects.write(out / "rejects.parquet")
    shards.write_json(out / "read.json", {"read": rejects.read, "skipped": rejects.skipped, "sources": sources})


def write_batch(batch: list[tuple], path: Path) -> None:
    """Write documents, tuples of BATCH's columns, to a Parquet file."""
    columns = [pa.array(column, field.type) for column, field in zip(zip(*batch, strict=True), BATCH, strict=True)]
    parquet.write_parquet(pa.table(columns, schema=BATCH), path)
