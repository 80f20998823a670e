"""Keep the vectors of a corpus by the content of its texts, so that a month embeds new texts alone.

The last run of each index stage and encoder leaves a folder in the store of work, as "vectors":

    hashes.npy       (documents, 2) uint64: 128 bits for the text of each document in its template
    embeddings/      the vectors of the documents in the same order, hard links where possible
    checksum         of these files
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.params import params
from pipelines.retrieval import documents, embeddings
from pipelines.retrieval.embeddings import Embeddings
from pipelines.storage.atomic import atomic, scratch_folder
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

HASH_BYTES = 16


@dataclass(frozen=True)
class KeptVectors:
    """The vectors of a corpus, and the hashes of its texts."""

    hashes: np.ndarray  # (documents, 2) uint64
    embeddings: Embeddings

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The row (n,) of a text with each of the `hashes` (n, 2); -1 where there is none."""
        # Both are sorted by the first half of a hash, which almost always decides. A text whose
        # first half is that of another text counts as not kept.
        order = np.argsort(self.hashes[:, 0], kind="stable")
        order_asked = np.argsort(hashes[:, 0], kind="stable")
        sorted_hashes = self.hashes[order]
        sorted_asked = hashes[order_asked]

        places = np.searchsorted(sorted_hashes[:, 0], sorted_asked[:, 0])
        places = np.minimum(places, len(order) - 1)
        is_same = (sorted_hashes[places] == sorted_asked).all(axis=1)
        rows = np.full(len(hashes), -1)
        rows[order_asked[is_same]] = order[places[is_same]]
        return rows


def embed_new_texts(
    docs: Path,
    model: Path,
    out: Path,
    *,
    encoder: Encoder,
    compute: params.Compute,
    name: str,
) -> int:
    """Write the embeddings of `docs` to `out`, as `embed_corpus` does; returns how many are new.

    `encoder` is the one in the folder `model`. A text that the last run of the stage `name`
    embedded with the same encoder and template has the vector that it had there.
    """
    settings = (encoder.facts, encoder.numerics, compute.device)
    key = content_key(settings, code.fingerprint(__name__), model)
    state = WorkStore().path("vectors", f"{name}-{key}")
    kept = _read(state)
    hashes = _hash_texts(docs, encoder.settings.document)
    rows = np.full(len(hashes), -1)
    if kept:
        rows = kept.find(hashes)
    new_positions = np.flatnonzero(rows < 0)

    def embed(folder: Path) -> None:
        embeddings.embed_corpus(
            docs,
            model,
            folder,
            retriever=encoder.settings,
            compute=compute,
            name=name,
            positions=new_positions,
        )

    if kept is None or len(new_positions) == len(rows):
        embed(out)
    elif np.array_equal(hashes, kept.hashes):
        embeddings.link_shards(kept.embeddings.files, out)
    else:
        with scratch_folder() as scratch:
            new = Path(scratch, "embeddings")
            if len(new_positions):
                embed(new)
            _merge(kept.embeddings, rows, new, out)
    _write(state, hashes, out)
    return len(new_positions)


def _hash_texts(docs: Path, template: str) -> np.ndarray:
    """128 bits for each document's text in the template, (documents, 2) uint64."""
    count = documents.count_documents(docs)
    hashes = np.empty((count, 2), np.uint64)
    start = 0
    for texts in documents.filled(docs, 0, count, template):
        digests = [
            hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest() for text in texts
        ]
        stop = start + len(texts)
        hashes[start:stop] = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        start = stop
    return hashes


def _merge(kept: Embeddings, rows: np.ndarray, new: Path, out: Path) -> None:
    """Write each document's vector to `out`, from its row (documents,) in `kept`.

    Where the row is -1, it is the next one of the folder `new`.
    """
    next_new = 0
    with atomic(out) as folder:
        folder.mkdir()
        for number, (start, stop) in enumerate(embeddings.shard_ranges(len(rows))):
            rows_of_shard = rows[start:stop]
            is_new = rows_of_shard < 0
            vectors = np.empty((stop - start, kept.dim), np.float16)
            vectors[~is_new] = kept.take(rows_of_shard[~is_new])
            if is_new.any():
                first_new = next_new
                next_new += int(is_new.sum())
                vectors[is_new] = Embeddings(new).rows(first_new, next_new)
            np.save(embeddings.shard_path(folder, number), vectors)


def _read(state: Path) -> KeptVectors | None:
    """What a run left; None if there is nothing, or a file is missing or damaged."""
    try:
        checksum = (state / "checksum").read_text(encoding="utf-8")
    except OSError:
        return None
    if checksum != _checksum(state):
        print(f"{state}: damaged, all texts are embedded anew")
        return None
    hashes = embeddings.map_array(state / "hashes.npy")
    return KeptVectors(hashes, Embeddings(state / "embeddings"))


def _write(state: Path, hashes: np.ndarray, shards: Path) -> None:
    """Keep the vectors in the folder `shards` for the next run."""
    with atomic(state) as folder:
        folder.mkdir()
        np.save(folder / "hashes.npy", hashes)
        embeddings.link_shards(sorted(shards.iterdir()), folder / "embeddings")
        (folder / "checksum").write_text(_checksum(folder), encoding="utf-8")


def _checksum(state: Path) -> str:
    return content_key((), "", state / "hashes.npy", state / "embeddings")
