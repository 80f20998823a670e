"""Stages `index` and `index_lsr`: a corpus's embeddings and vector index, or its BM25 index (REPLUG §3.1)."""

from pathlib import Path
from types import SimpleNamespace

from pipelines import catalogue, methods
from pipelines.language import language
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage


def index_dense(
    docs: Path, model: Path, out: Path, params: SimpleNamespace, name: str
) -> stage.Metrics:
    """Embed all of `docs` with the encoder in `model`, and write embeddings and vector index to the folder `out`.

    `params` are those of this retriever (methods.with_retriever); `name` is the stage's.
    A killed run continues from its shards. Raises LongtailError before any work if the corpus is empty, or the index
    does not fit `index.memory_gb`.
    """
    from pipelines.retrieval import dense, documents, embeddings
    from pipelines.retrieval.encoder import Encoder

    encoder = Encoder.open(model, params.retriever, params.compute)
    dense.choose_index(
        documents.count_documents(docs), encoder.dim, params.index
    )  # raises if it does not fit
    with atomic(out) as folder:
        folder.mkdir()
        embeddings.embed_corpus(docs, model, folder / "embeddings", params, name)
        _, facts = dense.build_and_tune(
            folder,
            lambda: encoder.embed_queries(dense.tuning_queries(docs, params.seed)),
            params,
            name,
        )
        facts |= encoder.facts | {"dim": encoder.dim}
        write_json(folder / "meta.json", documents.describe(docs, model, **facts))
    embeddings.forget_embeddings(name)
    return {
        "documents": documents.count_documents(docs),
        "dim": encoder.dim,
        "recall_at_10": facts["recall_at_10"],
    }


if __name__ == "__main__":
    kinds = "bm25, or dense_NAME or lsr_NAME of a retriever"
    asked = stage.arguments(__doc__, corpus=catalogue.names("documents"), index=kinds)
    kind, retriever = methods.split(asked.index)
    docs, out = (
        Path("data/corpus", asked.corpus, "docs.parquet"),
        methods.index(kind, retriever, asked.corpus),
    )
    name = f"index{'' if kind == 'dense' else f'_{kind}'}@{asked.corpus}{retriever and f'-{retriever}'}"

    def work(params: SimpleNamespace) -> stage.Metrics:
        if kind == "bm25":
            from pipelines.retrieval import bm25

            spoken = language.read_language(params.language)
            return bm25.build(docs, out, params.index, params.compute, name, spoken)
        model = methods.encoder(kind, retriever)
        return index_dense(docs, model, out, methods.with_retriever(params, retriever), name)

    stage.run(name, ("seed", "language", "compute", "retriever", "index"), work, out=str(out))
