"""A query's candidates: comparable scores of BM25, random documents, the best of a corpus's
shares; scores by pair.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws
from pipelines.retrieval.embeddings import Embeddings
from pipelines.scoring import candidates, logprobs
from pipelines.scoring.logprobs import NONE


def test_random_documents_depend_on_the_query_alone():
    """They are never its own."""
    ids, excluded = np.array(["a", "b", "c"], object), np.array([[0, 0], [3, 45], [0, 0]])
    every = candidates.random_documents(0, ids, excluded, 50, 5)
    np.testing.assert_array_equal(
        candidates.random_documents(0, ids[1:], excluded[1:], 50, 5), every[1:]
    )
    assert all(len(set(row)) == 5 for row in every.tolist())
    assert not ((every[1] >= 3) & (every[1] < 45)).any()
    assert candidates.random_documents(0, ids, excluded * 0, 3, 5).shape == (3, 3)
    few = candidates.random_documents(0, ids, np.array([[0, 0], [0, 9], [0, 10]]), 10, 5)
    assert few[1].tolist() == [9] + [NONE] * 4
    assert few[2].tolist() == [NONE] * 5


def test_the_best_of_a_share_are_those_of_all_compared(tmp_path, monkeypatch):
    """60 documents, of which pairs have the same embedding, over several shards and blocks."""
    monkeypatch.setattr(candidates, "BLOCK_DOCUMENTS", 16)
    ids, draw = [f"d{i}" for i in range(60)], np.random.default_rng(1)
    vectors = np.repeat(draw.normal(size=(30, 8)), 2, axis=0).astype(np.float16)
    (tmp_path / "embeddings").mkdir()
    for number in range(3):
        np.save(tmp_path / f"embeddings/{number:06d}.npy", vectors[number * 25 : (number + 1) * 25])
    pq.write_table(pa.table({"id": ids}), tmp_path / "docs.parquet")
    queries = draw.normal(size=(3, 8)).astype(np.float32)
    of_corpus = tmp_path / "docs.parquet", Embeddings(tmp_path / "embeddings"), queries
    excluded = np.array([[0, 0], [10, 30], [0, 60]])
    best_of = candidates.best_of_shares(*of_corpus, excluded, [0.2, 0.6, 1.0], 7, 0)
    scores = np.round(queries @ vectors.astype(np.float32).T, 5)
    drawn, places = draws.uniforms(0, "datastore", ids), np.arange(60)
    for share, (positions, similarities) in best_of.items():
        for row, (first, stop) in enumerate(excluded):
            allowed = (drawn < share) & ~((places >= first) & (places < stop))
            best = [place for place in np.lexsort((places, -scores[row])) if allowed[place]][:7]
            assert positions[row].tolist() == best + [NONE] * (7 - len(best))
            np.testing.assert_allclose(similarities[row, : len(best)], scores[row, best], atol=2e-5)
            assert similarities[row, len(best) :].tolist() == [-np.inf] * (7 - len(best))


def test_bm25_counts_as_a_share_of_the_best_score():
    """Empty places stay."""
    scores = np.array(
        [[8.0, 4.0, 0.0], [2.0, 1.0, 1.0], [0.0, 0.0, -np.inf], [-np.inf] * 3], np.float32
    )
    shares = [[1, 0.5, 0], [1, 0.5, 0.5], [0, 0, -np.inf], [-np.inf] * 3]
    assert candidates.comparable(scores, "bm25").tolist() == shares
    assert candidates.comparable(scores, "dense") is scores


def test_continuations_of_unequal_length_are_filled():
    columns = (
        [1, 0, 0],
        [7, 7, 4],
        ["y", "y", "x"],
        [[-5.0], [-3.0, -4.0], [-1.0, -2.0]],
        [[6], [3, 4], [3, 4]],
    )
    made = pa.table(columns, schema=logprobs.SCORED_PAIRS)
    log_probs, n_bytes = logprobs.gather(made, np.array([1, 0]), np.array([[7], [7]]))
    assert log_probs.tolist() == [[[-5, 0]], [[-3, -4]]]
    assert n_bytes.tolist() == [[6, 0], [3, 4]]
    sums, tokens = logprobs.sums(made)
    assert (sums.tolist(), tokens.tolist()) == ([-5, -7, -3], [1, 2, 2])
