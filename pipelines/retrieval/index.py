"""Stages `index` and `index_lsr`: a corpus's embeddings and vector index, or its BM25 index (REPLUG §3.1)."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

from pipelines import catalogue, shards, stage

MODELS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr"), "bm25": None}


def index_bm25(docs: Path, out: Path, params: SimpleNamespace, name: str = "index_bm25") -> stage.Metrics:
    """BM25 over all of `docs`, into the folder `out`; see `bm25_build.build`."""
    from pipelines.retrieval import bm25_build

    chosen = {"k1": params.index.bm25_k1, "b": params.index.bm25_b, "memory_gb": params.index.memory_gb}
    return bm25_build.build(docs, out, **chosen, compute=params.compute, name=name)


def index_dense(docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str) -> stage.Metrics:
    """Embeddings of all of `docs` by the encoder in `model`, and their vector index, into the folder `out`.

    Shards are kept under `name` for a killed run. Raises LongtailError for an empty corpus, and before any work where
    the index that is asked for does not fit `index.memory_gb`.
    """
    from pipelines.retrieval import dense, documents, embeddings, meta, search_depth, sizing
    from pipelines.retrieval.encoder import Encoder

    encoder = Encoder.open(model, params.retriever, params.compute)
    sizing.choose(documents.count(docs), encoder.dim, params.index)
    with shards.atomic(out) as folder:
        folder.mkdir()
        embeddings.embed_corpus(docs, model, folder / "embeddings", params, name)

        def queries():
            return encoder.embed_queries(search_depth.held_out(docs, params.seed))

        _, facts = search_depth.make(folder, queries, params.index, params.seed, params.compute, name)
        facts |= encoder.facts | dense.belonging(folder, encoder)
        shards.write_json(folder / "meta.json", meta.describe(docs, model, **facts))
    embeddings.forget(name)
    return {"documents": documents.count(docs), "dim": encoder.dim, "recall_at_10": facts["recall_at_10"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=catalogue.names("documents"))
    parser.add_argument("retriever", choices=list(MODELS))
    asked = parser.parse_args()
    docs, out = Path("data/corpus", asked.corpus, "docs.parquet"), Path("data/index", asked.retriever, asked.corpus)
    name = f"index{'_lsr' if asked.retriever == 'lsr' else ''}@{asked.corpus}"
    name += "" if asked.retriever == "lsr" else f"-{asked.retriever}"

    def work(params: SimpleNamespace) -> stage.Metrics:
        if MODELS[asked.retriever] is None:
            return index_bm25(docs, out, params, name)
        return index_dense(docs, MODELS[asked.retriever], out, params, name)

    stage.run(name, ("seed", "compute", "retriever", "index"), work, out=str(out))


if __name__ == "__main__":
    main()
