"""BM25 ranks real passages for real questions as bm25s does, and as Lucene's formula does, on the same terms.

Lucene's score of a term that a document has tf times is

    ln(1 + (N - n + 0.5) / (n + 0.5)) * tf / (tf + k1 (1 - b + b * length / mean length))

with N documents of which n have the term. Lucene keeps a document's length in one byte: exact up to 40 terms, above
that rounded down by less than an eighth. Longtail and bm25s keep it exact, so a passage's score may be five percent
from Lucene's. Lucene's N and mean leave out documents without any term; Longtail's count them.

The terms are Longtail's on both sides. Lucene's StandardAnalyzer splits words by UAX 29 and lower-cases them; by
default it keeps stop words and does not stem. Lucene's EnglishAnalyzer also cuts a possessive 's, leaves out the 33
stop words that Longtail leaves out, and stems by Porter's first algorithm. Longtail differs from EnglishAnalyzer in
these ways: texts are normalised (NFKC); every character that is no letter, digit or underscore ends a word, so
"O'Neill" and "3.14" are two words, where UAX 29 has one; a possessive "s" is a term; stems are Snowball's (Porter's
second algorithm); a run of Chinese characters is one word, where UAX 29 has one for each.
"""

import math
from collections import Counter

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from pipelines import params_file
from pipelines.retrieval import bm25, bm25_build

K = 100
PARAMS = [
    pytest.param((0.9, 0.4), id="Pyserini's default"),
    pytest.param((1.2, 0.75), id="Lucene's default", marks=pytest.mark.slow),
    pytest.param((1.5, 0.75), id="bm25s's default", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def texts(passages) -> list[str]:
    return [f"{passage.title} {passage.text}" for passage in passages]


@pytest.fixture(scope="module")
def docs(texts, tmp_path_factory):
    """The texts as a docs.parquet."""
    path = tmp_path_factory.mktemp("corpus") / "docs.parquet"
    ids = [f"{i:05d}" for i in range(len(texts))]
    pq.write_table(pa.table({"id": ids, "title": [""] * len(texts), "text": texts, "source_document": ids}), path)
    return path


@pytest.fixture(scope="module")
def terms(texts) -> list[list[str]]:
    return list(bm25.Analyser().terms(texts))


@pytest.fixture(scope="module")
def questions(popqa) -> list[str]:
    return [row["question"] for row in popqa[::40]]


@pytest.fixture(scope="module")
def postings(terms) -> dict[str, list[tuple[int, int]]]:
    """Term -> (document, times) of each document that has it."""
    found: dict[str, list[tuple[int, int]]] = {}
    for position, words in enumerate(terms):
        for word, times in Counter(words).items():
            found.setdefault(word, []).append((position, times))
    return found


@pytest.fixture(scope="module", params=PARAMS)
def k1_b(request) -> tuple[float, float]:
    return request.param


@pytest.fixture(scope="module")
def searched(root, docs, questions, k1_b, tmp_path_factory) -> tuple[np.ndarray, np.ndarray]:
    """The K best positions, and their scores, for each question."""
    folder = tmp_path_factory.mktemp("bm25")
    settings = params_file.load("index", path=root / "params.yaml").index
    settings = settings.model_copy(update={"bm25_k1": k1_b[0], "bm25_b": k1_b[1]})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        bm25_build.build(docs, folder / "index", settings, tiny_models.compute(), "index@parity-bm25")
    return bm25.BM25.load(folder / "index", docs).search(questions, K)


def check(searched: tuple[np.ndarray, np.ndarray], scores: np.ndarray) -> None:
    """The rankings are those by `scores` (questions, documents); equal scores may change places."""
    positions, found_scores = searched
    best = -np.sort(-scores, axis=1)[:, :K]
    np.testing.assert_allclose(found_scores, best, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, positions, axis=1), best, rtol=1e-5)
    assert all(len(set(row)) == K for row in positions.tolist())


def test_rankings_are_those_of_bm25s(searched, terms, questions, k1_b):
    index = bm25s.BM25(method="lucene", k1=k1_b[0], b=k1_b[1])
    index.index(terms, show_progress=False)
    check(searched, np.array([index.get_scores(list(words)) for words in bm25.Analyser().terms(questions)]))


def test_rankings_are_those_of_lucenes_formula(searched, terms, postings, questions, k1_b):
    k1, b = k1_b
    lengths = np.array([len(words) for words in terms])
    mean = lengths.mean()
    scores = np.zeros((len(questions), len(terms)))
    for row, words in zip(scores, bm25.Analyser().terms(questions), strict=True):
        for word in words:
            n = len(of_word := postings.get(word, []))
            idf = math.log(1 + (len(terms) - n + 0.5) / (n + 0.5))
            for position, tf in of_word:
                row[position] += idf * tf / (tf + k1 * (1 - b + b * lengths[position] / mean))
    check(searched, scores)
