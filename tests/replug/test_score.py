"""The stage `score_lm` writes one table, and its bits per byte are what the formula says of it."""

import json
import math

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.lm.local import LocalModel
from pipelines.lm.open import open_lm
from pipelines.lm.protocol import Prompt
from pipelines.replug import score, table
from pipelines.replug.queries import questions


@pytest.fixture
def scored(project):
    project.metrics = score.score(project.params)
    project.written = json.loads(score.METRICS.read_text())
    return project


def rows(name):
    return pq.read_table(score.OUT / f"{name}.parquet").to_pylist()


def test_a_tables_row_is_the_models_own_score(scored):
    lm = open_lm(score.LM, scored.params.lm, scored.params.compute)
    queries = {q["id"]: q for q in pq.read_table("data/corpus/pile/queries.parquet").to_pylist()}
    docs = {d["id"]: d["text"] for d in pq.read_table("data/corpus/pile/docs.parquet").to_pylist()}
    found = rows("logprobs")
    assert [r["query_id"] for r in found if r["doc_id"] == ""] == sorted(
        k for k, q in queries.items() if q["split"] == "test"
    )
    for row in found[::17]:
        query = queries[row["query_id"]]
        document = docs[row["doc_id"]] + "\n" if row["doc_id"] else ""
        own = lm.score([Prompt(query["context"], document)], [query["continuation"]])
        np.testing.assert_allclose(row["log_probs"], own.log_probs[0], atol=1e-4)
        assert row["bytes"] == own.bytes[0].tolist()
        assert sum(row["bytes"]) == len(query["continuation"].encode())


def test_bits_per_byte_are_the_papers_formula_over_the_table(scored):
    table_of = {(r["query_id"], r["doc_id"]): r for r in rows("logprobs")}
    retrieved = rows("retrieved")
    for name, k in (("dense", 3), ("bm25", 2), ("lsr", 4), ("random", 1)):
        nats, n_bytes = 0.0, 0
        for query in sorted({r["query_id"] for r in retrieved}):
            top = [r for r in retrieved if (r["query_id"], r["retriever"]) == (query, name) and r["rank"] <= k]
            exps = [math.exp(r["similarity"]) for r in top]
            each = [table_of[query, r["doc_id"]]["log_probs"] for r in top]
            for t in range(len(each[0])):
                nats -= math.log(sum(e / sum(exps) * math.exp(own[t]) for e, own in zip(exps, each, strict=True)))
            n_bytes += sum(table_of[query, ""]["bytes"])
        expected = nats / math.log(2) / n_bytes
        assert scored.written[f"bpb_{name}_k{k}"]["value"] == pytest.approx(expected, abs=1e-6)
        none = scored.written["bpb_none"]["value"]
        assert scored.written[f"gain_{name}_k{k}"]["value"] == pytest.approx(100 * (1 - expected / none), abs=1e-4)
        (stored,) = duckdb.sql(
            f"""SELECT sum(nats) / ln(2) / sum(bytes) FROM '{score.OUT}/bpb.parquet'
            WHERE retriever = '{name}' AND k = {k}"""
        ).fetchall()[0]
        assert stored == pytest.approx(expected, abs=1e-6)


def test_every_figure_has_an_interval_around_it(scored):
    figures = {name: figure for name, figure in scored.written.items() if isinstance(figure, dict)}
    for name in (
        "bpb_none",
        "perplexity_none",
        "perplexity_lsr_k4",
        "lsr_gain_k4",
        "bpb_dense_k4_t0.1",
        "gain_random_k1",
    ):
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"], name
    same = figures["bpb_dense_k4_t1"]
    assert same == figures["bpb_dense_k4"], "the sweep at the temperature in use is that figure"
    assert figures["bpb_dense_k4_t0.1"] != same
    assert scored.metrics["bpb_none"] == figures["bpb_none"]["value"]


def test_ranks_follow_similarity_and_random_documents_are_distinct(scored):
    groups = {}
    for row in rows("retrieved"):
        groups.setdefault((row["retriever"], row["query_id"]), []).append(row)
    assert {name for name, _ in groups} == {"bm25", "dense", "lsr", "random"}
    for (name, _), group in groups.items():
        assert [row["rank"] for row in group] == [1, 2, 3, 4]
        assert [row["similarity"] for row in group] == sorted((row["similarity"] for row in group), reverse=True)
        assert len({row["doc_id"] for row in group}) == 4
        assert name != "random" or {row["similarity"] for row in group} == {0}


def test_each_pair_is_scored_once_and_a_killed_run_goes_on(project, monkeypatch):
    real, seen = LocalModel.score, []

    def counted(self, prompts, continuations):
        seen.extend(zip(prompts, continuations, strict=True))
        return real(self, prompts, continuations)

    def dying(self, prompts, continuations):
        if len(seen) > 60:
            raise KeyboardInterrupt
        return counted(self, prompts, continuations)

    monkeypatch.setattr(table, "SHARD", 25)
    monkeypatch.setattr(LocalModel, "score", dying)
    with pytest.raises(KeyboardInterrupt):
        score.score(project.params)
    assert not score.OUT.exists()
    monkeypatch.setattr(LocalModel, "score", counted)
    metrics = score.score(project.params)
    assert len(seen) == metrics["pairs"] == len(rows("logprobs"))
    first = {path.name: path.read_bytes() for path in [*score.OUT.iterdir(), score.METRICS]}
    score.score(project.params)
    assert first == {path.name: path.read_bytes() for path in [*score.OUT.iterdir(), score.METRICS]}
    assert not list((project.folder / shards.SCRATCH / "shards").iterdir())


def test_no_test_queries_is_an_error(project):
    queries = pq.read_table("data/corpus/pile/queries.parquet")
    pq.write_table(queries.slice(0, 12), "data/corpus/pile/queries.parquet")
    with pytest.raises(LongtailError, match=r"no queries in the split 'test'; raise corpus\.pile\.query_share"):
        score.score(project.params)


def test_random_documents_depend_on_the_query_alone():
    ids = np.array(["a", "b", "c"], object)
    every = score.random_documents(0, ids, 50, 5)
    np.testing.assert_array_equal(score.random_documents(0, ids[1:], 50, 5), every[1:])
    assert all(len(set(row)) == 5 for row in every.tolist())
    assert score.random_documents(0, ids, 3, 5).shape == (3, 3)


def test_gathered_continuations_of_unequal_length_are_filled_with_nothing():
    made = pa.table({"query": [0, 0, 1], "document": [4, 7, 7], "log_probs": [[-1.0, -2.0], [-3.0, -4.0], [-5.0]],
                     "bytes": [[3, 4], [3, 4], [6]]}, schema=table.COLUMNS)  # fmt: skip
    log_probs, n_bytes = table.gather(made, np.array([1, 0]), np.array([[7], [7]]))
    assert log_probs.tolist() == [[[-5, 0]], [[-3, -4]]]
    assert n_bytes.tolist() == [[6, 0], [3, 4]]
    sums, tokens = table.sums(made)
    assert (sums.tolist(), tokens.tolist()) == ([-3, -7, -5], [2, 2, 1])


def test_questions_that_judge_share_no_subject_with_those_learnt_from(project):
    popqa = project.folder / "data/popqa/popqa.parquet"
    train, held, pages = questions(popqa, 0, 0.4, 100, 100)
    subjects = {row["question_id"]: row for row in pq.read_table(popqa).to_pylist()}
    assert not {subjects[i]["s_uri"] for i in train.ids} & {subjects[i]["s_uri"] for i in held.ids}
    assert {subjects[i]["split"] for i in [*train.ids, *held.ids]} == {"train"}
    assert len(train) + len(held) == 16
    assert len(held)
    assert pages.tolist() == [subjects[i]["s_wiki_title"] for i in held.ids]
    assert train.prompt(0, "A passage.") == Prompt(f"Q: {train.texts[0]} A:", "A passage.\n\n")
    assert train.continuations[0] == " " + subjects[train.ids[0]]["possible_answers"][0]
