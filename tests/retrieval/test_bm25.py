"""BM25 scores as the formula says, with one analyser for documents and queries."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from test_index import PARAMS, write_docs

from pipelines.errors import LongtailError
from pipelines.retrieval import bm25, index
from pipelines.retrieval.open import open_retriever

TEXTS = [
    "The cities of Norland: Velm, Tosh and Ödegard.",
    "A city runs; cities are running.",
    "The author walked to the city of Velm, and wrote of Velm.",
    "The author walked to the city of Velm, and wrote of Velm.",
    "of the and",
    "東京 is a city",
]


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docs = write_docs(tmp_path / "docs.parquet", TEXTS)
    index.index_bm25(docs, tmp_path / "out", PARAMS)
    return docs, tmp_path / "out"


def opened(made):
    return open_retriever(made[1], made[0], None, None, None)


def formula(query, k1=1.5, b=0.75):
    """Lucene's BM25 of every text."""
    analyse = bm25.Analyser().terms
    documents = [analyse(text) for text in TEXTS]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for terms in documents:
        score = 0.0
        for term in analyse(query):
            holding = sum(term in d for d in documents)
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            tf = terms.count(term)
            score += idf * tf / (tf + k1 * (1 - b + b * len(terms) / mean))
        scores.append(score)
    return np.array(scores)


@pytest.mark.parametrize("query", ["Velm city", "velm VELM author", "東京", "Ödegard running"])
def test_scores_are_the_formulas_and_ties_go_by_position(made, query):
    positions, scores = opened(made).search([query], 6)
    expected = formula(query)
    order = np.lexsort((np.arange(6), -expected.astype(np.float32)))
    np.testing.assert_array_equal(positions[0], order)
    np.testing.assert_allclose(scores[0], expected[order], atol=1e-5)


def test_documents_and_queries_go_through_the_same_analyser(made):
    found = opened(made).search(["Running of the City", "CITIES run"], 1)
    assert found[0].tolist() == [[1], [1]]  # stemmed, lower-cased, without stop words on both sides


def test_a_query_of_unknown_words_scores_nothing(made):
    positions, scores = opened(made).search(["zzz", "", "Velm"], 3)
    assert positions[:2].tolist() == [[0, 1, 2]] * 2
    assert not scores[:2].any()
    assert scores[2, 0] > 0


def test_many_queries_equal_one_at_a_time(made, monkeypatch):
    queries = [*TEXTS, "Velm", "author city"]
    monkeypatch.setattr(bm25, "CELLS", 12)
    together = opened(made).search(queries, 2)
    for i, query in enumerate(queries):
        one = opened(made).search([query], 2)
        np.testing.assert_array_equal(together[0][i], one[0][0])
        np.testing.assert_array_equal(together[1][i], one[1][0])


def test_the_files_have_the_same_bytes_under_another_hash_seed(made, tmp_path, root):
    code = (
        "from pathlib import Path; from pipelines.retrieval import bm25; import pyarrow.parquet as pq;"
        f"docs = Path({str(made[0])!r}); index = bm25.build(pq.read_table(docs)['text'].to_pylist(), 1.5, 0.75);"
        f"bm25.save(index, Path({str(tmp_path / 'again')!r}), docs)"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)
    for file in made[1].iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name


def test_an_index_of_other_documents_is_refused(made):
    write_docs(made[0], TEXTS[:-1])
    with pytest.raises(LongtailError, match="another docs"):
        opened(made)


def test_an_index_by_another_analyser_is_refused(made, monkeypatch):
    monkeypatch.setattr(bm25.Analyser, "name", "words as they stand")
    with pytest.raises(LongtailError, match="another analyser"):
        opened(made)
