"""BM25 ranks real passages for real questions as bm25s does by Lucene's formula, on the same terms.

Lucene itself keeps a document's length in one byte, rounded down by less than an eighth above 40
terms, and its N and mean leave out documents without any term. Longtail and bm25s keep it exact, so
a score may be five percent from Lucene's. Lucene's EnglishAnalyzer has the same stop words, but
words by UAX 29 ("O'Neill" is one) and without NFKC, no possessive "s", and stems by Porter's first
algorithm, where Longtail's are Snowball's.
"""

from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines.retrieval import bm25, bm25_build
from pipelines.retrieval.analyser import Analyser

K = 100


@pytest.mark.parametrize(
    ("k1", "b"),
    [
        pytest.param(0.9, 0.4, id="Pyserini's default"),
        pytest.param(1.2, 0.75, id="Lucene's default", marks=pytest.mark.slow),
        pytest.param(1.5, 0.75, id="bm25s's default", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_rankings_are_those_of_bm25s(root, passages, popqa, k1, b, monkeypatch):
    """Equal scores may change places."""
    texts = [f"{passage.title} {passage.text}" for passage in passages]
    ids, docs, out = [f"{i:05d}" for i in range(len(texts))], Path("docs.parquet"), Path("index")
    pq.write_table(
        pa.table({"id": ids, "title": [""] * len(texts), "text": texts, "source_document": ids}),
        docs,
    )
    monkeypatch.setattr(bm25_build, "K1", k1)
    monkeypatch.setattr(bm25_build, "B", b)
    bm25_build.build(docs, out, 4.0, tiny_models.compute(), "index@parity-bm25")
    questions = [row["question"] for row in popqa[::40]]
    positions, found_scores = bm25.BM25(out, docs).search(questions, K)
    theirs, analyser = bm25s.BM25(method="lucene", k1=k1, b=b), Analyser()
    theirs.index([*analyser.terms(texts)], show_progress=False)
    scores = np.array([theirs.get_scores(list(words)) for words in analyser.terms(questions)])
    best = -np.sort(-scores, axis=1)[:, :K]
    np.testing.assert_allclose(found_scores, best, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, positions, axis=1), best, rtol=1e-5)
    assert all(len(set(row)) == K for row in positions.tolist())
