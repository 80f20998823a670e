"""Passages: documents of their own for an ensemble, or the best ones together as one passage; each searched once."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.answering import passages

POSITIONS = np.array([[2, 0, 1], [1, -1, -1]])  # the second question has one document only
SIMILARITIES = np.array([[3.0, 2.0, 1.0], [0.5, -np.inf, -np.inf]], np.float32)


@pytest.fixture
def docs(tmp_path):
    names = ["zero", "one", "two"]
    path = tmp_path / "docs.parquet"
    pq.write_table(
        pa.table({"id": [f"d{name}" for name in names], "title": [name.title() for name in names], "text": names}), path
    )
    return path


def find(docs, k, *, together, template="{text}"):
    retriever = SimpleNamespace(search=lambda texts, k: (POSITIONS[:, :k], SIMILARITIES[:, :k]))
    return passages.retrieved(retriever, docs, k, template, together=together).find(["a?", "b?"]).to_pydict()


def test_documents_together_are_one_passage_that_goes_by_the_best(docs):
    found = find(docs, 3, together=True)
    assert found["texts"] == [["two\n\nzero\n\none"], ["one"]]
    assert (found["doc_ids"], found["titles"]) == ([["dtwo"], ["done"]], [["Two"], ["One"]])
    assert found["similarities"] == [[3.0], [0.5]]


def test_documents_of_an_ensemble_are_passages_of_their_own(docs):
    found = find(docs, 3, together=False)
    assert found["texts"] == [["two", "zero", "one"], ["one", "", ""]]
    assert found["doc_ids"] == [["dtwo", "dzero", "done"], ["done", "", ""]]
    assert find(docs, 1, together=False) == find(docs, 1, together=True)


def test_every_passage_has_its_own_title(docs):
    titled = "{title}\n{text}"
    assert find(docs, 2, together=True, template=titled)["texts"] == [["Two\ntwo\n\nZero\nzero"], ["One\none"]]
    assert find(docs, 2, together=False, template=titled)["texts"] == [["Two\ntwo", "Zero\nzero"], ["One\none", ""]]
    assert find(docs, 1, together=True, template=titled)["titles"] == [["Two"], ["One"]]


@pytest.mark.usefixtures("workplace")
def test_each_question_is_searched_once_whatever_the_order_asked():
    searched = []

    def find(texts):
        searched.extend(texts)
        return pa.table(
            [[[text] for text in texts], *[[[None]] * len(texts)] * 3, *[[0] * len(texts)] * 2], schema=passages.SCHEMA
        )

    texts = {7: "seven", 2: "two", 5: "five"}
    lookup = passages.Lookup(passages.Source(find, 2, written=False), texts, "passages", "k")
    assert [row["texts"] for row in lookup.rows([5, 2, 5, 7])] == [["five"], ["two"], ["five"], ["seven"]]
    assert searched == ["two", "five", "seven"]
    assert passages.Lookup(None, texts, "passages", "k").rows([5, 2]) == [passages.CLOSED_BOOK] * 2
