"""Stages `index` and `index_lsr`: a corpus's embeddings and vector index, or its BM25 index (REPLUG §3.1)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pipelines import catalogue, shards, stage

MODELS = {"dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr"), "bm25": None}


def index_dense(docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str) -> stage.Metrics:
    """Embed all of `docs` with the encoder in `model`, and write embeddings and vector index to the folder `out`.

    A killed run continues from its shards. Raises LongtailError before any work if the corpus is empty, or the index
    does not fit `index.memory_gb`.
    """
    from pipelines.retrieval import dense, documents, embeddings, faiss_build, index_plan
    from pipelines.retrieval.encoder import Encoder
    from pipelines.retrieval.retriever import describe

    encoder = Encoder.open(model, params.retriever, params.compute)
    index_plan.choose(documents.count(docs), encoder.dim, params.index)  # raises if the index does not fit
    with shards.atomic(out) as folder:
        folder.mkdir()
        embeddings.embed_corpus(docs, model, folder / "embeddings", params, name)

        def queries():
            return encoder.embed_queries(faiss_build.tuning_queries(docs, params.seed))

        _, facts = faiss_build.build_and_tune(folder, queries, params, name)
        facts |= encoder.facts | dense.facts_of_parts(folder, encoder)
        shards.write_json(folder / "meta.json", describe(docs, model, **facts))
    embeddings.forget(name)
    return {"documents": documents.count(docs), "dim": encoder.dim, "recall_at_10": facts["recall_at_10"]}


def main() -> None:
    asked = stage.arguments(__doc__, corpus=catalogue.names("documents"), retriever=list(MODELS))
    docs, out = Path("data/corpus", asked.corpus, "docs.parquet"), Path("data/index", asked.retriever, asked.corpus)
    name = f"index{'_lsr' if asked.retriever == 'lsr' else ''}@{asked.corpus}"
    name += "" if asked.retriever == "lsr" else f"-{asked.retriever}"

    def work(params: SimpleNamespace) -> stage.Metrics:
        if MODELS[asked.retriever] is None:
            from pipelines.retrieval import bm25_build

            return bm25_build.build(docs, out, params.index, params.compute, name)
        return index_dense(docs, MODELS[asked.retriever], out, params, name)

    stage.run(name, ("seed", "compute", "retriever", "index"), work, out=str(out))


if __name__ == "__main__":
    main()
