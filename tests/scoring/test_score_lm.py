"""The stage `score_lm` asks the language model once about each query and candidate, and writes
what it said.
"""

import copy
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.evaluation import evaluate_lm
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import MODELS, open_lm, supervising_lm
from pipelines.scoring import score_lm
from pipelines.storage.atomic import SCRATCH

OUT, CORPUS = score_lm.OUT / "pile/tiny", Path("data/corpus/pile")


def rows(name, folder=OUT):
    return pq.read_table(folder / f"{name}.parquet").to_pylist()


def test_a_tables_row_is_the_models_own_score(scored):
    """It is by its own tokens, on the same bytes and documents."""
    queries, docs = ({row["id"]: row for row in rows(name, CORPUS)} for name in ("queries", "docs"))
    tests, tokens = sorted(name for name, query in queries.items() if query["split"] == "test"), {}
    for name in ("tiny", "small"):
        lm = open_lm(MODELS / name, scored.params.lm[name], scored.params.compute, scoring=True)
        table = rows("logprobs", OUT.with_name(name))
        keys = [(row["query_id"], row["doc_id"]) for row in table]
        assert keys == sorted(set(keys))
        assert [query for query, doc in keys if not doc] == tests
        assert {row["lm"] for row in table} == {name}
        for row in table[::17]:
            query = queries[row["query_id"]]
            document = docs[row["doc_id"]]["text"] + "\n" if row["doc_id"] else ""
            scores = lm.score([Prompt(query["context"], document)], [query["continuation"]])
            np.testing.assert_allclose(row["log_probs"], scores.log_probs[0], atol=1e-4)
            assert row["bytes"] == scores.bytes[0].tolist()
            assert sum(row["bytes"]) == len(query["continuation"].encode())
        tokens[name] = {key: len(row["bytes"]) for key, row in zip(keys, table, strict=True)}
    assert tokens["tiny"].keys() == tokens["small"].keys()
    assert all(tokens["tiny"][key] < tokens["small"][key] for key in tokens["tiny"])
    assert rows("retrieved") == rows("retrieved", OUT.with_name("small"))


def test_candidates_are_never_of_the_querys_own_source(scored):
    of_query, of_document = (
        {row["id"]: row["source_document"] for row in rows(name, CORPUS)}
        for name in ("queries", "docs")
    )
    retrieved, groups, best = rows("retrieved"), {}, set()
    for row in retrieved:
        groups.setdefault((row["retriever"], row["query_id"]), []).append(row)
    keys = [(r["query_id"], r["retriever"], r["rank"]) for r in retrieved]
    assert keys == sorted(keys)
    sizes = {name: len({q for other, q in groups if other == name}) for name, _ in groups}
    assert sizes == {
        "bm25": 12,
        "dense": 12,
        "lsr": 12,
        "random": 12,
        "dense@0.05": 6,
        "dense@0.5": 6,
        "dense@1": 6,
    }
    assert {of_query[query] for _, query in groups} & set(of_document.values()) == {"s9"}
    for (name, query), group in groups.items():
        similarities = [row["similarity"] for row in group]
        ids = [row["doc_id"] for row in group if row["doc_id"]]
        assert [row["rank"] for row in group] == [1, 2, 3, 4]
        assert similarities == sorted(similarities, reverse=True)
        assert [row["doc_id"] for row in group] == ids + [""] * (4 - len(ids))
        if query == scored.bare:
            assert (ids, similarities) == ([], [0] + [-np.inf] * 3), (
                "nothing is searched for without a context"
            )
            continue
        assert len(set(ids)) == len(ids) == sum(np.isfinite(similarities))
        assert (len(ids) < 4) == (name == "dense@0.05")
        assert of_query[query] not in {of_document[i] for i in ids}
        assert name != "random" or {*similarities} == {0}
        if name == "dense@1":  # the whole corpus as a share is what the exact index finds
            whole = groups["dense", query]
            assert ids == [row["doc_id"] for row in whole]
            assert similarities == pytest.approx([row["similarity"] for row in whole], abs=2e-5)
    best = [
        group[0]["similarity"]
        for (name, query), group in groups.items()
        if (name, query != scored.bare) == ("bm25", True)
    ]
    assert set(best) == {0, 1}, (
        "a share of the best score; 0 if no document has a term of the query"
    )


def test_a_texts_beginning_is_predicted_without_documents(scored):
    measured = evaluate_lm.measure(OUT, CORPUS / "queries.parquet", scored.params.replug)
    row = list(measured.ids).index(scored.bare)
    (continuation,) = (q["continuation"] for q in rows("queries", CORPUS) if q["id"] == scored.bare)
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    (alone,) = lm.score([Prompt("")], [continuation]).log_probs
    whole = {setting: nats[row] for setting, nats in measured.nats.items() if "@" not in setting[0]}
    assert {name for name, *_ in whole} == {"none", "bm25", "dense", "lsr", "random"}
    np.testing.assert_allclose([*whole.values()], -alone.sum(), rtol=1e-5)


def test_each_pair_is_scored_once_whatever_the_parts(scored, tmp_path, monkeypatch):
    """It is killed while candidates and while controls are scored.

    What a run with other pairs or batches left is not taken.
    """
    real, union, seen, limits = LocalModel.score, score_lm.union, [], []

    def dying(self, prompts, continuations):
        if len(seen) > limits[-1]:
            raise KeyboardInterrupt
        seen.extend(zip(prompts, continuations, strict=True))
        return real(self, prompts, continuations)

    shutil.copytree(
        scored.folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("logprobs")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(score_lm, "QUERIES", 2)
    monkeypatch.setattr(LocalModel, "score", dying)
    other_batches = copy.copy(scored.params)
    lm = scored.params.lm["tiny"].model_copy(update={"batch_tokens": 1500})
    other_batches.lm = scored.params.lm | {"tiny": lm}
    others = ((30, 1, scored.params), (30, 0, other_batches))
    for most, left_out, params in (*others, (60, 0, scored.params), (190, 0, scored.params)):
        limits.append(most)
        monkeypatch.setattr(
            score_lm, "union", lambda n, retrieved, less=left_out: union(n, retrieved)[less:]
        )
        with pytest.raises(KeyboardInterrupt):
            score_lm.score_corpus(params, "pile", "tiny")
        if (most, left_out, params) in others:
            seen.clear()
    assert not OUT.exists()
    limits.append(np.inf)
    metrics = score_lm.score_corpus(scored.params, "pile", "tiny")
    tokens = {"lm_tokens_read", "lm_tokens_shared"}  # of this process alone
    assert {name: metrics[name] for name in metrics.keys() - tokens} == {
        name: scored.metrics["tiny"][name] for name in scored.metrics["tiny"].keys() - tokens
    }
    assert len(seen) == metrics["pairs"] + metrics["controls"]
    assert len(list(Path(SCRATCH / "work").glob("*/*"))) == 2, "what the other runs left"
    whole = scored.folder / OUT
    assert rows("retrieved") == rows("retrieved", whole)
    for name in ("logprobs", "controls"):
        in_parts, at_once = (
            {
                tuple(v for v in row.values() if not isinstance(v, list)): row["log_probs"]
                for row in rows(name, folder)
            }
            for folder in (OUT, whole)
        )
        assert in_parts.keys() == at_once.keys()
        for key, log_probs in in_parts.items():
            np.testing.assert_allclose(log_probs, at_once[key], atol=1e-4)


def test_no_test_queries_is_an_error(project):
    queries = Path("data/corpus/pile/queries.parquet")
    pq.write_table(pq.read_table(queries).slice(0, 12), queries)
    with pytest.raises(
        LongtailError, match=r"no queries in the split 'test'; raise corpus\.pile\.query_share"
    ):
        score_lm.score_corpus(project.params, "pile", "tiny")
