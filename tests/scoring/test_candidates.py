"""A query's candidates: BM25's scores made comparable, random documents by its hash, the best of a corpus's shares."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_project import UNTUNED

from pipelines import draws, methods
from pipelines.retrieval import index
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.retriever import open_retriever
from pipelines.scoring import candidates
from pipelines.scoring.logprobs import NONE, Candidates
from pipelines.scoring.queries import read_language_modelling

NOTHING = np.zeros((3, 2), np.int64)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """60 documents, of which pairs have the same embedding, over several shards and blocks."""
    monkeypatch.setattr(candidates, "BLOCK", 16)
    docs, folder = tmp_path / "docs.parquet", tmp_path / "embeddings"
    pq.write_table(pa.table({"id": [f"d{i}" for i in range(60)]}), docs)
    vectors = np.repeat(np.random.default_rng(1).normal(size=(30, 8)), 2, axis=0).astype(np.float16)
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"{number:06d}.npy", vectors[number * 25 : (number + 1) * 25])
    return docs, Embeddings(folder), vectors.astype(np.float32)


def test_random_documents_depend_on_the_query_alone_and_are_never_its_own():
    ids, excluded = np.array(["a", "b", "c"], object), np.array([[0, 0], [3, 45], [0, 0]])
    every = candidates.random_documents(0, ids, excluded, 50, 5)
    np.testing.assert_array_equal(candidates.random_documents(0, ids[1:], excluded[1:], 50, 5), every[1:])
    assert all(len(set(row)) == 5 for row in every.tolist())
    assert not ((every[1] >= 3) & (every[1] < 45)).any()
    assert candidates.random_documents(0, ids, NOTHING, 3, 5).shape == (3, 3)
    few = candidates.random_documents(0, ids, np.array([[0, 0], [0, 9], [0, 10]]), 10, 5)
    assert few[1].tolist() == [9] + [NONE] * 4
    assert few[2].tolist() == [NONE] * 5


def test_the_best_of_a_share_are_those_of_all_its_documents_compared(corpus):
    docs, embeddings, vectors = corpus
    queries = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)
    excluded = np.array([[0, 0], [10, 30], [0, 60]])
    best_of = candidates.best_of_shares(docs, embeddings, queries, excluded, [0.2, 0.6, 1.0], 7, 0)
    scores = np.round(queries @ vectors.T, 5)
    members = {}
    for share, (positions, similarities) in best_of.items():
        members[share] = set()
        for row in range(3):
            best = [p for p in positions[row].tolist() if p != NONE]
            members[share] |= set(best)
            assert positions[row].tolist() == best + [NONE] * (7 - len(best))
            assert similarities[row, len(best) :].tolist() == [-np.inf] * (7 - len(best))
            np.testing.assert_allclose(similarities[row, : len(best)], scores[row, best], atol=2e-5)
            assert not [p for p in best if excluded[row, 0] <= p < excluded[row, 1]]
    for row in (0, 1):
        best = [p for p in np.lexsort((np.arange(60), -scores[row])) if not excluded[row, 0] <= p < excluded[row, 1]]
        assert best_of[1.0][0][row].tolist() == best[:7]
    # whoever is best in a larger share and is in the smaller one is best there too
    drawn = draws.uniforms(0, "datastore", [f"d{i}" for i in range(60)])
    for small, large in ((0.2, 0.6), (0.6, 1.0)):
        for row in (0, 1):
            kept = [p for p in best_of[large][0][row].tolist() if p != NONE and drawn[p] < small]
            assert best_of[small][0][row].tolist()[: len(kept)] == kept
            assert all(drawn[p] < small for p in best_of[small][0][row].tolist() if p != NONE)


def test_a_shares_best_are_what_an_index_built_of_its_documents_alone_finds(project):
    folder, encoder, params = Path("data/corpus/pile"), UNTUNED, project.params
    curve = params.logprobs.datastore.model_copy(update={"shares": [0.1, 0.5]})
    params.logprobs = params.logprobs.model_copy(update={"datastore": curve})
    queries, sources, _ = read_language_modelling(folder, "test", params.seed, params.logprobs.max_queries)
    docs, k = pq.read_table(folder / "docs.parquet"), params.logprobs.top_k
    every = np.array(docs["id"].to_pylist(), object)
    inside = draws.uniforms(params.seed, "datastore", every.tolist())
    of_shares = {
        retrieved.retriever: retrieved
        for retrieved in candidates.find("pile", queries, sources, params)
        if "@" in retrieved.retriever
    }
    assert list(of_shares) == ["dense@0.1", "dense@0.5", "dense@1"]
    for share, retrieved in zip((0.1, 0.5, 1.0), of_shares.values(), strict=True):
        part, built = Path(f"part{share}.parquet"), Path(f"index{share}")
        pq.write_table(docs.filter(inside < share), part)
        of_retriever = methods.with_retriever(params, "dense")
        index.index_dense(part, encoder, built, of_retriever, "index@part")
        retriever = open_retriever(built, part, encoder, of_retriever.retriever, params.compute)
        texts, without = (column[retrieved.queries].tolist() for column in (queries.texts, sources))
        positions, scores = retriever.search(texts, k, without=without)
        few = positions.shape[1]  # the smallest share has fewer than k documents
        expected = np.where(positions < 0, "", every[inside < share][positions])
        ids = np.where(retrieved.positions == NONE, "", every[retrieved.positions])
        assert ids[:, :few].tolist() == expected.tolist()
        assert (ids[:, few:] == "").all()
        np.testing.assert_allclose(retrieved.similarities[:, :few], scores, atol=2e-5)
    assert 0 < (inside < 0.1).sum() < k < (inside < 0.5).sum() < len(docs)


def test_the_union_has_each_pair_once_and_every_query_alone():
    of_retrievers = [
        Candidates("a", np.array([0, 1]), np.array([[4, 2], [2, -1]]), np.zeros((2, 2))),
        Candidates("b", np.array([1]), np.array([[2, 3]]), np.zeros((1, 2))),
    ]
    pairs = [[0, -1], [0, 2], [0, 4], [1, -1], [1, 2], [1, 3], [2, -1]]
    assert candidates.union(3, of_retrievers).tolist() == pairs


def test_bm25_counts_as_a_share_of_the_best_score_and_empty_places_stay():
    scores = np.array([[8.0, 4.0, 0.0], [2.0, 1.0, 1.0], [0.0, 0.0, -np.inf], [-np.inf] * 3], np.float32)
    shares = [[1, 0.5, 0], [1, 0.5, 0.5], [0, 0, -np.inf], [-np.inf] * 3]
    assert candidates.comparable(scores, "bm25").tolist() == shares
    assert candidates.comparable(scores, "dense") is scores
