"""Passages: documents of their own for an ensemble, or the best ones together as one passage;
each searched once.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from small_project import TUNED, UNTUNED

from pipelines import methods
from pipelines.answering import passages
from pipelines.lm.language_model import Generation
from pipelines.retrieval.bm25 import BM25
from pipelines.retrieval.dense import Dense
from pipelines.retrieval.encoder import Encoder

POSITIONS = np.array([[2, 0, 1], [1, -1, -1]])  # the second question has one document only
SIMILARITIES = np.array([[3.0, 2.0, 1.0], [0.5, -np.inf, -np.inf]], np.float32)


@pytest.fixture
def find(tmp_path):
    """A function that finds the k best of three documents for two questions."""
    names, path = ["zero", "one", "two"], tmp_path / "docs.parquet"
    table = {
        "id": [f"d{name}" for name in names],
        "title": [name.title() for name in names],
        "text": names,
    }
    pq.write_table(pa.table(table), path)
    retriever = SimpleNamespace(search=lambda texts, k: (POSITIONS[:, :k], SIMILARITIES[:, :k]))

    def find(k, together, template="{text}"):
        between = "\n\n" if together else None
        source = passages.retrieved(retriever, path, k, template, between=between)
        return source.find(["a?", "b?"]).to_pydict()

    return find


def test_documents_together_go_by_the_best(find):
    found = find(3, True)
    assert found["texts"] == [["two\n\nzero\n\none"], ["one"]]
    assert found["best"] == ["two", "one"]
    assert (found["doc_ids"], found["titles"]) == ([["dtwo"], ["done"]], [["Two"], ["One"]])
    assert found["similarities"] == [[3.0], [0.5]]


def test_documents_of_an_ensemble_are_passages_of_their_own(find):
    found = find(3, False)
    assert found["texts"] == [["two", "zero", "one"], ["one", "", ""]]
    assert found["doc_ids"] == [["dtwo", "dzero", "done"], ["done", "", ""]]
    assert find(1, False) == find(1, True)


def test_every_passage_has_its_own_title(find):
    titled = "{title}\n{text}"
    assert find(2, True, titled)["texts"] == [["Two\ntwo\n\nZero\nzero"], ["One\none"]]
    assert find(2, False, titled)["texts"] == [["Two\ntwo", "Zero\nzero"], ["One\none", ""]]


@pytest.fixture
def chosen(project):
    changes = {"passages": 2, "passage_tokens": 8, "passage": "{title} is told of: {text}"}
    project.params.answer = project.params.answer.model_copy(update=changes)
    return project.params


@pytest.mark.parametrize(
    ("method", "index", "k"),
    [
        ("bm25", "bm25", 2),
        ("dense", "dense", 2),
        ("lsr", "lsr", 2),
        ("replug", "dense", 4),
        ("replug_lsr", "lsr", 4),
    ],
)
def test_a_method_reads_so_many_documents_of_its_own_index(method, index, k, chosen):
    """`answer.passages` together, or `replug.top_k` each by itself."""
    texts, corpus = tiny_models.words(6, 3, at_least=3), chosen.parts.datastore
    docs, name = Path("data/corpus", corpus, "docs.parquet"), "" if index == "bm25" else "dense"
    folder = methods.index_folder(methods.Method(index, name), corpus)
    model = {"bm25": None, "dense": UNTUNED, "lsr": TUNED}[index]
    encoder = model and Encoder.open(model, chosen.retriever["dense"], chosen.compute)
    retriever = Dense(folder, docs, model, encoder, chosen.compute) if model else BM25(folder, docs)
    between = "\n\n" if method == index else None
    source = passages.retrieved(retriever, docs, k, chosen.answer.passage, between=between)
    expected = source.find(texts)
    assert passages.open_source(method, None, chosen, Path("data")).find(texts).equals(expected)


def test_a_written_passage_may_be_longer_than_an_answer(chosen):
    """The model says how many tokens it was asked for."""
    lm = SimpleNamespace(
        name="tiny",
        generate=lambda prompts, most: [Generation(f"{most} tokens", -1.0, 1, 1)] * len(prompts),
    )
    source = passages.open_source("genread", lm, chosen, Path("data"))
    assert source.find(["Who?"])["texts"].to_pylist() == [["8 tokens"]]


@pytest.mark.usefixtures("workplace")
def test_each_question_is_searched_once_whatever_the_order_asked():
    searched = []

    def find(texts):
        searched.extend(texts)
        one, unknown, nothing = [[text] for text in texts], [[None]] * len(texts), [0] * len(texts)
        columns = [one, *[unknown] * 3, nothing, nothing, texts]
        return pa.table(columns, schema=passages.SCHEMA)

    texts = {7: "seven", 2: "two", 5: "five"}
    lookup = passages.Lookup(passages.Source(find, 2, written=False), texts, "passages", "k")
    expected = [["five"], ["two"], ["five"], ["seven"]]
    assert [row["texts"] for row in lookup.rows([5, 2, 5, 7])] == expected
    assert searched == ["two", "five", "seven"]
    assert passages.Lookup(None, texts, "passages", "k").rows([5, 2]) == [passages.CLOSED_BOOK] * 2
