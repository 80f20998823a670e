"""Controls of the ensemble: its documents in one prompt, and more of the text itself instead of a
document."""

import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import logprob_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.evaluation import evaluate_lm
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.params import params
from pipelines.scoring import score_lm
from pipelines.studies import controls
from pipelines.with_studies import run_score_lm

OUT = score_lm.OUT / "pile/tiny"
CORPUS = Path("data/corpus/pile")


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_controls_are_the_models_own_scores_of_their_prompts(scored):
    """The best document is nearest the context, and only the worst ones that don't fit are left
    out."""
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    queries, counts = {q["id"]: q for q in rows(CORPUS / "queries.parquet")}, set()
    texts, ranked = (
        {doc["id"]: f"{doc['text']}\n" for doc in rows(CORPUS / "docs.parquet")},
        defaultdict(list),
    )
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
    ids, expected = (
        evaluate_lm.measure(OUT, CORPUS / "queries.parquet", scored.params.replug).ids,
        {},
    )
    found = controls.read_controls(OUT, ids)
    for row in table:
        own = -sum(row["log_probs"]), row["documents"], row["added_bytes"]
        expected[row["control"], row["retriever"], row["query_id"]] = own
    assert tuple((control.control, control.retriever) for control in found) == named
    for of in found:
        own = np.array([expected[of.control, of.retriever, query] for query in ids])
        np.testing.assert_allclose(
            np.stack([of.nats, of.documents, of.added_bytes], axis=1), own, rtol=1e-5
        )


def test_a_run_without_controls_has_none(project):
    project.params.logprobs = project.params.logprobs.model_copy(
        update={"controls": False, "max_queries": 2}
    )
    assert "controls" not in score_lm.score_corpus(
        project.params, "pile", "tiny", run_score_lm.STUDIES
    )
    assert {path.name for path in OUT.iterdir()} == {"logprobs.parquet", "retrieved.parquet"}
    assert controls.read_controls(OUT, np.array(["q"])) == []


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


def test_controls_are_compared_on_the_same_documents(tmp_path):
    """With none, one or all documents in the prompt; a longer context is compared with each
    retriever's best one."""
    replug = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
    chosen, n = (
        SimpleNamespace(seed=0, replug=replug, report=SimpleNamespace(bootstrap=40)),
        logprob_tables.QUERIES,
    )
    logprob_tables.write(tmp_path / "tables")
    logprob_tables.write_queries(tmp_path / "queries.parquet")
    measured, counts, nats = (
        evaluate_lm.measure(tmp_path / "tables", tmp_path / "queries.parquet", replug),
        np.arange(n) % 4,
        np.linspace(3, 9, n),
    )
    of_both = enumerate(("dense", "lsr"))
    concatenated = [
        controls.Control("concatenated", name, nats + i, counts, counts) for i, name in of_both
    ]
    longer = controls.Control("longer_context", "", nats + 2, 0 * counts, 7 + 0 * counts)
    intervals_of = partial(evaluate_lm.over_documents, measured.source_documents, chosen)
    rows = controls.compare_controls(measured, [*concatenated, longer], replug, intervals_of)
    named = [
        (control, name)
        for control in ("concatenated", "longer_context")
        for name in ("dense", "lsr")
    ]
    assert [(row["control"], row["retriever"]) for row in rows] == named
    for row, control in zip(rows, (*concatenated, longer, longer), strict=True):
        under = {k: measured.nats[row["retriever"], k, 1.0] for k in (1, 2, 3)} | {
            0: measured.nats["none", 0, 1.0]
        }
        sizes = counts if row["control"] == "concatenated" else np.ones(n, int)
        same = sum(under[k][i] for i, k in enumerate(sizes))
        against = {
            "saved": under[0].sum(),
            "saved_over_same": same,
            "saved_over_ensemble": under[3].sum(),
        }
        for name, other in against.items():
            assert row[name]["value"] == pytest.approx(100 * (1 - control.nats.sum() / other))
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
        assert row["bits_per_byte"]["value"] == pytest.approx(
            control.nats.sum() / math.log(2) / measured.bytes.sum()
        )
        assert (row["k"], row["documents"]) == (
            3,
            np.mean([1, 2, 3] * 2 + [1]) if control is not longer else 0,
        )
        assert row["added_bytes"] == control.added_bytes.mean()
