"""The index finds what brute force finds, and is refused over other documents or another encoder."""

import json
import shutil
from types import SimpleNamespace

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.retrieval import dense, index
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.open import open_retriever

COMPUTE = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
RETRIEVER = params.Retriever(
    source="train", path=None, revision=None, similarity="cosine", batch_size=16, max_tokens=64, training=None
)
PARAMS = SimpleNamespace(
    seed=0, compute=COMPUTE, retriever=RETRIEVER, index=params.Index(kind="auto", bm25_k1=1.5, bm25_b=0.75)
)


def write_docs(path, texts):
    columns = {
        "id": [f"d:{i}" for i in range(len(texts))],
        "title": [f"t{i}" for i in range(len(texts))],
        "text": texts,
    }
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A corpus with repeated documents, an encoder, and its index."""
    monkeypatch.chdir(tmp_path)
    texts = tiny_models.words(50, 0)
    texts[20:30] = texts[40:50] = texts[0:10]
    docs, model = write_docs(tmp_path / "docs.parquet", texts), tiny_models.encoder(tmp_path / "model")
    metrics = index.index_dense(docs, model, tmp_path / "out", PARAMS, "index@test")
    return SimpleNamespace(texts=texts, docs=docs, model=model, out=tmp_path / "out", metrics=metrics, folder=tmp_path)


def test_search_equals_brute_force_and_ties_go_by_position(made):
    retriever = open_retriever(made.out, made.docs, made.model, RETRIEVER, COMPUTE)
    queries = tiny_models.words(13, 1) + made.texts[:5]
    positions, scores = retriever.search(queries, 7)
    encoder = Encoder.open(made.model, RETRIEVER, COMPUTE)
    stored = encoder.embed(made.texts).astype(np.float16).astype(np.float32)
    every = np.round(encoder.embed(queries) @ stored.T, dense.DECIMALS)
    expected = np.argsort(-every, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(every, expected, 1), atol=2e-5)
    assert (positions.dtype, scores.dtype, retriever.count) == (np.int64, np.float32, 50)
    assert positions[-5:, :3].tolist() == [[i, i + 20, i + 40] for i in range(5)]  # the same text three times


def test_more_documents_than_there_are_are_not_made_up(made):
    positions, _ = open_retriever(made.out, made.docs, made.model, RETRIEVER, COMPUTE).search(["Velm"], 80)
    assert sorted(positions[0]) == list(range(50))


def test_embeddings_are_half_precision_and_the_same_bytes_again(made):
    assert np.load(made.out / "embeddings.npy", mmap_mode="r").dtype == np.float16
    index.index_dense(made.docs, made.model, made.folder / "again", PARAMS, "index@test")
    for file in made.out.iterdir():
        assert file.read_bytes() == (made.folder / "again" / file.name).read_bytes()


def test_embedding_goes_on_where_it_was_killed(made, monkeypatch):
    monkeypatch.setattr(index, "SHARD", 16)
    real, calls = Encoder.embed, []

    def dying(self, texts):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(Encoder, "embed", dying)
    with pytest.raises(KeyboardInterrupt):
        index.index_dense(made.docs, made.model, made.folder / "again", PARAMS, "index@test")
    assert not (made.folder / "again").exists()
    index.index_dense(made.docs, made.model, made.folder / "again", PARAMS, "index@test")
    assert calls == [16, 16, 16, 16, 2]


def test_an_index_of_other_documents_is_refused(made):
    write_docs(made.docs, [*made.texts[:-1], "another text"])
    with pytest.raises(LongtailError, match=r"another docs.*run the stage `index` again"):
        open_retriever(made.out, made.docs, made.model, RETRIEVER, COMPUTE)


def test_an_index_by_another_encoder_is_refused(made):
    shutil.rmtree(made.model)
    tiny_models.encoder(made.model, seed=1)
    with pytest.raises(LongtailError, match="another encoder"):
        open_retriever(made.out, made.docs, made.model, RETRIEVER, COMPUTE)


def test_a_missing_or_broken_index_is_named(made):
    (made.out / "meta.json").write_text("{")
    with pytest.raises(LongtailError, match=r"no meta\.json to read"):
        open_retriever(made.out, made.docs, made.model, RETRIEVER, COMPUTE)


def test_an_empty_corpus_is_an_error(made):
    with pytest.raises(LongtailError, match="no documents"):
        index.index_dense(write_docs(made.docs, []), made.model, made.folder / "x", PARAMS, "index@test")
    assert not (made.folder / "x").exists()


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_compressed_and_graph_indexes_find_nearly_all(kind, tmp_path):
    draw = np.random.default_rng(0)
    vectors = (
        (draw.normal(size=(60, 32))[:, None] + 0.3 * draw.normal(size=(60, 50, 32)))
        .reshape(3000, 32)
        .astype(np.float32)
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    made = dense.build(vectors.astype(np.float16), kind, seed=0, threads=1)
    assert dense.recall(made, vectors.astype(np.float16), seed=0) > 0.9
    faiss.write_index(made, str(tmp_path / "index"))
    again = faiss.read_index(str(tmp_path / "index"), faiss.IO_FLAG_MMAP_IFC)
    for one, other in zip(dense.search(made, vectors[:5], 40), dense.search(again, vectors[:5], 40), strict=True):
        np.testing.assert_array_equal(one, other)


def test_recall_is_measured_and_kept(made):
    assert json.loads((made.out / "meta.json").read_text())["recall_at_10"] == made.metrics["recall_at_10"] == 1.0
