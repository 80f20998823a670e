"""Controls of the ensemble: its documents in one prompt, and more of the text itself instead of a
document."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipelines.evaluation import control_figures, evaluate_lm
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.scoring import controls, score_lm

OUT = score_lm.OUT / "pile/tiny"
CORPUS = Path("data/corpus/pile")


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_controls_are_the_models_own_scores_of_their_prompts(scored):
    """The best document is nearest the context, and only the worst ones that don't fit are left
    out."""
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    queries, counts = {q["id"]: q for q in rows(CORPUS / "queries.parquet")}, set()
    texts = {doc["id"]: f"{doc['text']}\n" for doc in rows(CORPUS / "docs.parquet")}
    ranked = defaultdict(list)
    for row in rows(OUT / "retrieved.parquet"):
        if row["doc_id"] and row["rank"] <= scored.params.replug.top_k:
            ranked[row["retriever"], row["query_id"]].append(texts[row["doc_id"]])
    table = rows(OUT / "controls.parquet")
    tests = [q["id"] for q in queries.values() if q["split"] == "test"]
    keys = sorted((row["control"], row["retriever"], row["query_id"]) for row in table)
    named = ("concatenated", "dense"), ("concatenated", "lsr"), ("longer_context", "")
    assert keys == [(*name, query) for name in named for query in sorted(tests)]
    for row in table:
        query, n = queries[row["query_id"]], row["documents"]
        documents = ranked[row["retriever"], row["query_id"]]
        text = "".join(reversed(documents[:n])) if row["retriever"] else query["before"]
        prompt = (
            Prompt(query["context"], text) if row["retriever"] else Prompt(text + query["context"])
        )
        (log_probs,) = lm.score([prompt], [query["continuation"]]).log_probs
        np.testing.assert_allclose(row["log_probs"], log_probs, atol=1e-4)
        assert row["added_bytes"] == len(text.encode())
        if row["retriever"] and query["id"] != scored.bare:
            read = [
                len(lm.tokenizer(part)["input_ids"])
                for part in (text + query["context"], query["continuation"])
            ]
            assert sum(read) - 1 <= lm.max_tokens or n == 1, (
                "the continuation has no <s> of its own"
            )
            if n < len(documents):
                more = "".join(reversed(documents[: n + 1])) + query["context"]
                assert len(lm.tokenizer(more)["input_ids"]) + read[1] - 1 > lm.max_tokens
            counts.add((n, len(documents)))
    assert {n for n, _ in counts} >= {2, 3}
    assert any(n < retrieved for n, retrieved in counts)
    ids = evaluate_lm.measure(OUT, CORPUS / "queries.parquet", scored.params.replug).ids
    expected = {}
    found = control_figures.read_controls(OUT, ids)
    for row in table:
        own = -sum(row["log_probs"]), row["documents"], row["added_bytes"]
        expected[row["control"], row["retriever"], row["query_id"]] = own
    assert tuple((control.control, control.retriever) for control in found) == named
    for of in found:
        own = np.array([expected[of.control, of.retriever, query] for query in ids])
        np.testing.assert_allclose(
            np.stack([of.nats, of.documents, of.added_bytes], axis=1), own, rtol=1e-5
        )


def test_without_an_encoder_bm25s_documents_are_joined():
    empty = np.empty((0, 0), int)
    for found, compared in (
        (("bm25", "random"), ["bm25"]),
        ((), []),
        (("bm25", "dense", "lsr", "random", "dense@0.1"), ["dense", "lsr"]),
    ):
        of_retrievers = [
            controls.Candidates(name, np.empty(0, int), empty, empty) for name in found
        ]
        assert [one.retriever for one in controls.compared(of_retrievers)] == compared
