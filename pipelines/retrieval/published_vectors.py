"""Takes the published vectors of a corpus's passages, in place of embedding them (REPLUG §3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import LongtailError
from pipelines.retrieval import documents, embeddings
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.published_files import read_vectors
from pipelines.sources.corpus_layouts import DPR_PREFIX
from pipelines.storage import parquet

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

CHECKED = 10  # passages that are embedded, to compare their vectors with the published ones
LEAST_COSINE = 0.99  # on average, of a passage's published vector and the encoder's
MOST_DIFFERENCE = 0.02  # of their lengths on average, a share of the encoder's


def take_published(path: Path, docs: Path, out: Path, encoder: Encoder) -> None:
    """Write the vectors that `path` has of all documents of `docs` to the folder `out`, in fp16.

    Their layouts are those of published_files.py. Their length becomes 1 if the encoder's
    similarity is cosine. Raises LongtailError if a document has no vector, or if the vectors are
    not the encoder's.
    """
    ids = _passage_ids(docs)
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    has_vector = np.zeros(len(ids), bool)
    shards = _Shards(out, len(ids), encoder)

    for part_ids, vectors in read_vectors(path):
        if vectors.shape[1] != encoder.dim:
            raise LongtailError(
                f"{path}: vectors of {vectors.shape[1]} numbers, expected {encoder.dim}, as the "
                "encoder's have"
            )
        published_ids = np.array([text.encode() for text in part_ids], bytes)
        places = np.searchsorted(sorted_ids, published_ids)
        places = np.minimum(places, len(ids) - 1)
        rows = np.flatnonzero(sorted_ids[places] == published_ids)
        positions = order[places[rows]]
        has_vector[positions] = True
        shards.put(positions, vectors, rows)

    n_missing = int((~has_vector).sum())
    if n_missing:
        example = ids[np.argmin(has_vector)].decode()
        raise LongtailError(
            f"{path}: no vectors of {n_missing:,} of the {len(ids):,} passages of {docs}, such as "
            f"{example}; expected vectors of all"
        )
    _check(path, docs, Embeddings(out), encoder)


class _Shards:
    """The shards of a new folder of embeddings, which are written in any order."""

    def __init__(self, folder: Path, count: int, encoder: Encoder) -> None:
        """Make shards for `count` documents, all zeros."""
        folder.mkdir()
        self.folder = folder
        self.unit = encoder.similarity == "cosine"
        ranges = embeddings.shard_ranges(count)
        _, self.size = ranges[0]
        for number, (start, stop) in enumerate(ranges):
            shape = (stop - start, encoder.dim)
            self._open(number, "w+", dtype=np.float16, shape=shape).flush()

    def put(self, positions: np.ndarray, vectors: np.ndarray, rows: np.ndarray) -> None:
        """Write the `vectors` at `rows` (n,) as those of the documents at `positions` (n,)."""
        for number, shard_rows, places in embeddings.by_shard(positions, self.size):
            vectors_of_shard = vectors[rows[places]].astype(np.float32)
            if self.unit:
                vectors_of_shard /= np.linalg.norm(vectors_of_shard, axis=1, keepdims=True)
            self._open(number, "r+")[shard_rows] = vectors_of_shard

    def _open(self, number: int, mode: str, **layout: Any) -> np.memmap:
        path = embeddings.shard_path(self.folder, number)
        return np.lib.format.open_memmap(path, mode, **layout)


def _check(path: Path, docs: Path, published: Embeddings, encoder: Encoder) -> None:
    """Raise LongtailError if some documents' published vectors are not those of the encoder."""
    spread = np.linspace(0, published.count - 1, CHECKED)
    positions = np.unique(spread.astype(np.int64))
    texts = documents.read_documents(docs, positions).filled(encoder.settings.document)
    expected = encoder.embed(texts.tolist())
    vectors = published.take(positions)

    expected_lengths = np.linalg.norm(expected, axis=1)
    lengths = np.linalg.norm(vectors, axis=1)
    products = (vectors * expected).sum(1)
    cosine = float(np.mean(products / (lengths * expected_lengths)))
    length = float(np.mean(lengths / expected_lengths))
    shown = f"a cosine of {cosine:.4f} with, and {length:.3f} times the length of,"
    if not cosine >= LEAST_COSINE or abs(length - 1) > MOST_DIFFERENCE:
        raise LongtailError(
            f"{path}: the vectors of {len(positions)} passages have {shown} the encoder's; "
            f"expected {LEAST_COSINE} and 1; check path, pooling, similarity, document and "
            "max_tokens, and that it is this corpus whose vectors were published"
        )
    print(f"{path}: the vectors of {len(positions)} passages have {shown} the encoder's")


def _passage_ids(docs: Path) -> np.ndarray:
    """The passages' ids as their files have them, (documents,) bytes.

    A part of a passage that was cut keeps the number of its token, and so has no vector.
    """
    documents.count_documents(docs)  # raises where there are none
    batches = []
    for batch in parquet.batches(docs, columns=["id"]):
        names = batch["id"].to_pylist()
        ids = [name.removeprefix(DPR_PREFIX).removesuffix(":0").encode() for name in names]
        batches.append(np.array(ids))
    return np.concatenate(batches)
