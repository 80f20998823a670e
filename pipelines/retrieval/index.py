"""Stages `index` and `index_lsr`: a corpus's embeddings and FAISS index, or its BM25 index (REPLUG §3.1)."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

from pipelines import shards, stage

MODELS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr"), "bm25": None}
SHARD = 4096  # documents embedded between two points that a killed run goes on from


def index_bm25(docs: Path, out: Path, params: SimpleNamespace) -> stage.Metrics:
    """BM25 over all of `docs`, into the folder `out`."""
    import pyarrow.parquet as pq

    from pipelines.retrieval import bm25, documents

    count = documents.count(docs)
    index = bm25.build(
        pq.read_table(docs, columns=["text"])["text"].to_pylist(), params.index.bm25_k1, params.index.bm25_b
    )
    with shards.atomic(out) as folder:
        folder.mkdir()
        bm25.save(index, folder, docs)
    return {"documents": count, "terms": len(index.vocab_dict)}


def index_dense(docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str) -> stage.Metrics:
    """Embeddings of all of `docs` by the encoder in `model`, and their FAISS index, into the folder `out`.

    Embedded shard by shard under `name`; raises LongtailError for an empty corpus.
    """
    import faiss
    import numpy as np

    from pipelines.retrieval import dense, documents, meta
    from pipelines.retrieval.encoder import Encoder

    count = documents.count(docs)
    encoder = Encoder.open(model, params.retriever, params.compute)

    def embed(start: int, path: Path) -> None:
        texts = documents.read(docs, np.arange(start, min(start + SHARD, count))).texts
        with path.open("wb") as file:
            np.save(file, encoder.embed(list(texts)).astype(np.float16))

    key = shards.key_of(docs, model, params.retriever)
    files = shards.map_shards(name, key, embed, range(0, count, SHARD))
    with shards.atomic(out) as folder:
        folder.mkdir()
        vectors = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float16, (count, encoder.dim))
        for start, file in zip(range(0, count, SHARD), files, strict=True):
            vectors[start : start + SHARD] = np.load(file)
        vectors.flush()
        index = dense.build(vectors, params.index.kind, params.seed, params.compute.threads)
        faiss.write_index(index, str(folder / "faiss.index"))
        found = dense.recall(index, vectors, params.seed)
        facts = {
            "kind": type(faiss.downcast_index(index)).__name__,
            "dim": encoder.dim,
            "recall_at_10": round(found, 4),
        }
        shards.write_json(folder / "meta.json", meta.describe(docs, model, similarity=encoder.similarity, **facts))
    shards.forget(name, key)
    return {"documents": count, "dim": encoder.dim, "recall_at_10": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=["wikipedia", "pile"])
    parser.add_argument("retriever", choices=list(MODELS))
    asked = parser.parse_args()
    docs, out = Path("data/corpus", asked.corpus, "docs.parquet"), Path("data/index", asked.corpus, asked.retriever)
    name = f"index{'_lsr' if asked.retriever == 'lsr' else ''}@{asked.corpus}"
    name += "" if asked.retriever == "lsr" else f"-{asked.retriever}"

    def work(params: SimpleNamespace) -> stage.Metrics:
        if MODELS[asked.retriever] is None:
            return index_bm25(docs, out, params)
        return index_dense(docs, MODELS[asked.retriever], out, params, name)

    stage.run(name, ("seed", "compute", "retriever", "index"), work, out=str(out))


if __name__ == "__main__":
    main()
