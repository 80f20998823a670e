"""Stages `index`, `index_lsr` and `index_bm25`: the indexes of a corpus (REPLUG §3.1).

A dense index is embeddings and a vector index over them.
"""

from pathlib import Path

import numpy as np

from pipelines import catalogue, methods
from pipelines.language import language
from pipelines.methods import Method
from pipelines.params import params
from pipelines.retrieval.retriever import RetrievalSettings
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage


class Settings(RetrievalSettings):
    """The sections of params.yaml that this stage reads."""

    seed: int
    language: str
    ingest: params.Ingest


def build_index(settings: Settings, index: Method, corpus: str, name: str) -> stage.Metrics:
    """Write the index of a corpus to data/index; `name` is the stage's."""
    docs = Path("data/corpus", corpus, "docs.parquet")
    out = methods.index_folder(index, corpus)
    if index.kind != "bm25":
        model = methods.encoder_folder(index)
        vectors = None
        if index.kind == "dense":
            vectors = settings.retriever[index.retriever].vectors.get(corpus)
        return index_dense(
            docs, model, out, settings, retriever=index.retriever, name=name, vectors=vectors
        )

    from pipelines.retrieval import bm25_build

    spoken = language.read_language(settings.language)
    return bm25_build.build(
        docs, out, settings.ingest.memory_gb, settings.compute, name=name, language=spoken
    )


def index_dense(
    docs: Path,
    model: Path,
    out: Path,
    settings: Settings,
    *,
    retriever: str,
    name: str,
    vectors: str | None = None,
) -> stage.Metrics:
    """Embed all of `docs` with the encoder in `model`; write embeddings and vector index to `out`.

    `retriever` is the encoder's name in params.yaml, and `name` the stage's. With `vectors`, the
    path of published vectors, nothing is embedded. A killed run continues from its shards. Raises
    LongtailError before any work if the corpus is empty, or the index does not fit
    `ingest.memory_gb`; and if the published vectors are not those of the documents.
    """
    from pipelines.retrieval import (
        dense_build,
        dense_tuning,
        documents,
        embeddings,
        kept_vectors,
        published_vectors,
    )
    from pipelines.retrieval.encoder import Encoder

    encoder_settings = settings.retriever[retriever]
    encoder = Encoder.open(model, encoder_settings, settings.compute)
    count = documents.count_documents(docs)
    memory_gb = settings.ingest.memory_gb
    dense_build.choose_index(count, encoder.dim, memory_gb)  # raises if it does not fit

    def tuning_queries() -> np.ndarray:
        return encoder.embed_queries(dense_tuning.tuning_queries(docs, settings.seed))

    with atomic(out) as folder:
        folder.mkdir()
        n_new = 0
        if vectors:
            published_vectors.take_published(
                Path(vectors), docs, folder / "embeddings", encoder=encoder
            )
        elif encoder_settings.keep_vectors:
            n_new = kept_vectors.embed_new_texts(
                docs,
                model,
                folder / "embeddings",
                encoder=encoder,
                compute=settings.compute,
                name=name,
            )
        else:
            n_new = count
            embeddings.embed_corpus(
                docs,
                model,
                folder / "embeddings",
                retriever=encoder.settings,
                compute=settings.compute,
                name=name,
            )
        _, facts = dense_build.build_and_tune(
            folder,
            tuning_queries,
            memory_gb=memory_gb,
            compute=settings.compute,
            seed=settings.seed,
            name=name,
        )
        facts |= encoder.facts | {"dim": encoder.dim}
        write_json(folder / "meta.json", documents.describe(docs, model, **facts))
    embeddings.forget_embeddings(name)

    n_kept = count - n_new
    source = vectors or "the last run"
    print(f"{name}: {n_new:,} documents embedded, {n_kept:,} vectors taken from {source}")
    return {
        "documents": count,
        "embedded": n_new,
        "kept": n_kept,
        "dim": encoder.dim,
        "recall_at_10": facts["recall_at_10"],
    }


def stage_name(index: Method, corpus: str) -> str:
    """The stage's name in dvc.yaml, as index@pile-contriever, index_lsr@pile-contriever."""
    if index.kind == "bm25":
        return f"index_bm25@{corpus}"
    stage_of_kind = "index" if index.kind == "dense" else f"index_{index.kind}"
    return f"{stage_of_kind}@{corpus}-{index.retriever}"


def main() -> None:
    arguments = stage.arguments(
        __doc__,
        corpus=catalogue.names("documents"),
        index="bm25, or dense_NAME or lsr_NAME of a retriever",
    )
    corpus = arguments.corpus
    index = Method.of_name(arguments.index)
    name = stage_name(index, corpus)

    def work(settings: Settings) -> stage.Metrics:
        return build_index(settings, index, corpus, name)

    stage.run(name, Settings, work, out=str(methods.index_folder(index, corpus)))


if __name__ == "__main__":
    main()
