"""Controls of the ensemble: its documents in one prompt, and more of the text itself instead of a document."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.replug import bits
from pipelines.scoring import controls, score_lm

OUT = score_lm.OUT / "pile/tiny"
CORPUS = Path("data/corpus/pile")


@pytest.fixture
def scored(project):
    score_lm.score(project.params, "pile", "tiny")
    return project


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def ranked(project, retriever: str, query: str) -> list[str]:
    """The texts of a query's documents in the template, best first."""
    texts = {doc["id"]: f"{doc['text']}\n" for doc in rows(CORPUS / "docs.parquet")}
    retrieved = [r for r in rows(OUT / "retrieved.parquet") if (r["retriever"], r["query_id"]) == (retriever, query)]
    retrieved.sort(key=lambda row: row["rank"])
    return [texts[row["doc_id"]] for row in retrieved if row["doc_id"]][: project.params.replug.top_k]


def test_the_best_document_is_nearest_the_context_and_only_the_worst_ones_that_do_not_fit_are_left_out(scored):
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    queries, counts = {q["id"]: q for q in rows(CORPUS / "queries.parquet")}, set()
    of_control = [row for row in rows(OUT / "controls.parquet") if row["control"] == "concatenated"]
    assert {row["retriever"] for row in of_control} == {"dense", "lsr"}
    for row in of_control:
        query, documents = queries[row["query_id"]], ranked(scored, row["retriever"], row["query_id"])
        n = row["documents"]
        text = "".join(reversed(documents[:n]))
        (log_probs,) = lm.score([Prompt(query["context"], text)], [query["continuation"]]).log_probs
        np.testing.assert_allclose(row["log_probs"], log_probs, atol=1e-4)
        assert row["added_bytes"] == len(text.encode())
        read = [len(lm.tokenizer(part)["input_ids"]) for part in (text + query["context"], query["continuation"])]
        assert sum(read) - 1 <= lm.max_tokens or n == 1, "the continuation has no <s> of its own"
        if n < len(documents):
            more = "".join(reversed(documents[: n + 1])) + query["context"]
            assert len(lm.tokenizer(more)["input_ids"]) + read[1] - 1 > lm.max_tokens
        counts.add((n, len(documents)))
    assert {n for n, _ in counts} >= {2, 3}
    assert any(n < retrieved for n, retrieved in counts)


def test_more_of_the_text_stands_before_the_context_and_is_cut_at_its_far_end(scored):
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    queries = {q["id"]: q for q in rows(CORPUS / "queries.parquet")}
    of_control = [row for row in rows(OUT / "controls.parquet") if row["control"] == "longer_context"]
    assert [row["query_id"] for row in of_control] == sorted(q["id"] for q in queries.values() if q["split"] == "test")
    assert {(row["retriever"], row["documents"]) for row in of_control} == {("", 0)}
    for row in of_control:
        query = queries[row["query_id"]]
        (log_probs,) = lm.score([Prompt(query["before"] + query["context"])], [query["continuation"]]).log_probs
        np.testing.assert_allclose(row["log_probs"], log_probs, atol=1e-4)
        assert row["added_bytes"] == len(query["before"].encode()) > 0


def test_controls_are_read_in_the_order_of_the_queries(scored):
    measured = bits.measure(OUT, scored.params.replug)
    keys = [(control.control, control.retriever) for control in measured.controls]
    assert keys == [("concatenated", "dense"), ("concatenated", "lsr"), ("longer_context", "")]
    expected = {(r["control"], r["retriever"], r["query_id"]): r for r in rows(OUT / "controls.parquet")}
    for control in measured.controls:
        for i, query in enumerate(measured.ids):
            row = expected[control.control, control.retriever, query]
            assert control.nats[i] == pytest.approx(-sum(row["log_probs"]), rel=1e-5)
            assert (control.documents[i], control.added_bytes[i]) == (row["documents"], row["added_bytes"])


def test_a_run_without_controls_has_none(project):
    project.params.logprobs = project.params.logprobs.model_copy(update={"controls": False})
    assert score_lm.score(project.params, "pile", "tiny")["controls"] == 0
    assert {path.name for path in OUT.iterdir()} == {"logprobs.parquet", "retrieved.parquet"}
    assert bits.measure(OUT, project.params.replug).controls == []


def test_without_an_encoder_the_documents_of_bm25_are_concatenated():
    def named(*names):
        empty = np.empty((0, 0), int)
        return [controls.Candidates(name, np.empty(0, int), empty, empty) for name in names]

    compared = [[one.retriever for one in controls.compared(named(*names))] for names in (("bm25", "random"), ())]
    assert compared == [["bm25"], []]
    both = controls.compared(named("bm25", "dense", "lsr", "random", "dense@0.1"))
    assert [one.retriever for one in both] == ["dense", "lsr"]
