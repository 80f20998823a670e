"""The stage `score_lm` asks the language model once about each query and candidate, and writes what it said."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.replug import bits
from pipelines.scoring import candidates, logprobs, score_lm

OUT = score_lm.OUT / "pile/tiny"


@pytest.fixture
def scored(project):
    project.metrics = score_lm.score(project.params, "pile", "tiny")
    return project


def rows(name):
    return pq.read_table(OUT / f"{name}.parquet").to_pylist()


def test_a_tables_row_is_the_models_own_score(scored):
    lm = open_lm(*supervising_lm(scored.params), scored.params.compute)
    queries = {q["id"]: q for q in pq.read_table("data/corpus/pile/queries.parquet").to_pylist()}
    docs = {d["id"]: d["text"] for d in pq.read_table("data/corpus/pile/docs.parquet").to_pylist()}
    scored = rows("logprobs")
    keys = [(r["lm"], r["query_id"], r["doc_id"]) for r in scored]
    assert keys == sorted(set(keys))
    assert [q for _, q, d in keys if d == ""] == sorted(k for k, q in queries.items() if q["split"] == "test")
    for row in scored[::17]:
        query = queries[row["query_id"]]
        document = docs[row["doc_id"]] + "\n" if row["doc_id"] else ""
        scores = lm.score([Prompt(query["context"], document)], [query["continuation"]])
        np.testing.assert_allclose(row["log_probs"], scores.log_probs[0], atol=1e-4)
        assert row["bytes"] == scores.bytes[0].tolist()
        assert sum(row["bytes"]) == len(query["continuation"].encode())


def test_candidates_are_ranked_distinct_and_never_of_the_querys_own_source(scored):
    of_query, of_document = (
        {row["id"]: row["source_document"] for row in pq.read_table(f"data/corpus/pile/{name}.parquet").to_pylist()}
        for name in ("queries", "docs")
    )
    retrieved, groups = rows("retrieved"), {}
    for row in retrieved:
        groups.setdefault((row["retriever"], row["query_id"]), []).append(row)
    assert [(r["query_id"], r["retriever"], r["rank"]) for r in retrieved] == sorted(
        (r["query_id"], r["retriever"], r["rank"]) for r in retrieved
    )
    sizes = {name: len({q for other, q in groups if other == name}) for name, _ in groups}
    assert sizes == {"bm25": 12, "dense": 12, "lsr": 12, "random": 12, "dense@0.05": 6, "dense@0.5": 6, "dense@1": 6}
    assert {of_query[query] for _, query in groups} & set(of_document.values()) == {"s9"}
    for (name, query), group in groups.items():
        assert [row["rank"] for row in group] == [1, 2, 3, 4]
        assert [row["similarity"] for row in group] == sorted((row["similarity"] for row in group), reverse=True)
        ids = [row["doc_id"] for row in group if row["doc_id"]]
        assert len(set(ids)) == len(ids) == sum(np.isfinite(row["similarity"]) for row in group)
        assert [row["doc_id"] for row in group] == ids + [""] * (4 - len(ids))
        assert (len(ids) < 4) == (name == "dense@0.05")
        assert of_query[query] not in {of_document[i] for i in ids}
        assert name != "random" or {row["similarity"] for row in group} == {0}
    best = [group[0]["similarity"] for (name, _), group in groups.items() if name == "bm25"]
    assert set(best) == {0, 1}, "a share of the best score; 0 if no document has a term of the query"


def test_the_whole_corpus_as_a_share_is_what_the_exact_index_finds(scored):
    retrieved = {(r["query_id"], r["retriever"], r["rank"]): (r["doc_id"], r["similarity"]) for r in rows("retrieved")}
    curve = {key: value for key, value in retrieved.items() if key[1] == "dense@1"}
    assert len(curve) == 24
    for (query, _, rank), (doc_id, similarity) in curve.items():
        assert retrieved[query, "dense", rank][0] == doc_id
        assert retrieved[query, "dense", rank][1] == pytest.approx(similarity, abs=2e-5)


def test_the_beginning_of_a_text_is_predicted_without_documents_by_every_retriever(project):
    path = Path("data/corpus/pile/queries.parquet")
    queries = pq.read_table(path).to_pylist()
    first = next(query for query in queries if query["split"] == "test")
    first["context"] = ""
    pq.write_table(pa.Table.from_pylist(queries, pq.read_schema(path)), path)
    score_lm.score(project.params, "pile", "tiny")
    measured = bits.measure(OUT, project.params.replug)
    row = list(measured.ids).index(first["id"])
    lm = open_lm(*supervising_lm(project.params), project.params.compute)
    (alone,) = lm.score([Prompt("")], [first["continuation"]]).log_probs
    whole = {setting: nats[row] for setting, nats in measured.nats.items() if "@" not in setting[0]}
    assert {name for name, *_ in whole} == {"none", "bm25", "dense", "lsr", "random"}
    np.testing.assert_allclose([*whole.values()], -alone.sum(), rtol=1e-5)
    other = np.arange(len(measured.ids)) != row
    assert not np.allclose(measured.nats["none", 0, 1.0][other], measured.nats["dense", 1, 1.0][other])


@pytest.mark.parametrize("scored_before", [60, 190])  # while candidates, or controls, are scored
def test_each_pair_is_scored_once_and_a_killed_run_goes_on(project, monkeypatch, scored_before):
    real, seen = LocalModel.score, []

    def counted(self, prompts, continuations):
        seen.extend(zip(prompts, continuations, strict=True))
        return real(self, prompts, continuations)

    def dying(self, prompts, continuations):
        if len(seen) > scored_before:
            raise KeyboardInterrupt
        return counted(self, prompts, continuations)

    def run():
        return score_lm.score(project.params, "pile", "tiny")

    monkeypatch.setattr(score_lm, "QUERIES", 2)
    monkeypatch.setattr(LocalModel, "score", dying)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not OUT.exists()
    monkeypatch.setattr(LocalModel, "score", counted)
    metrics = run()
    assert (metrics["pairs"], metrics["controls"]) == (len(rows("logprobs")), len(rows("controls")))
    assert len(seen) == metrics["pairs"] + metrics["controls"]
    first = {path.name: path.read_bytes() for path in OUT.iterdir()}
    run()
    assert first == {path.name: path.read_bytes() for path in OUT.iterdir()}
    assert not list((project.folder / shards.SCRATCH / "shards").iterdir())
    in_parts, of_controls = rows("retrieved"), controls_by_query()
    monkeypatch.setattr(score_lm, "QUERIES", 64)
    run()
    assert rows("retrieved") == in_parts
    at_once = controls_by_query()
    assert at_once.keys() == of_controls.keys()
    for key, log_probs in at_once.items():
        np.testing.assert_allclose(log_probs, of_controls[key], atol=1e-4)


def controls_by_query() -> dict[tuple, list[float]]:
    names = ("query_id", "control", "retriever", "documents", "added_bytes")
    return {tuple(row[name] for name in names): row["log_probs"] for row in rows("controls")}


def test_unfinished_work_is_known_by_its_pairs_without_spelling_them_out(project, monkeypatch):
    real, union, keys = shards.key_of, candidates.union, []

    def short(*parts):
        if isinstance(parts[0], dict):  # the checksums by which the trials of a model are known
            return real(*parts)
        assert len(repr(parts)) < 1000
        keys.append(real(*parts))
        return keys[-1]

    monkeypatch.setattr(shards, "key_of", short)
    project.params.logprobs = project.params.logprobs.model_copy(update={"controls": False})
    for left_out in (0, 1, 1):
        monkeypatch.setattr(candidates, "union", lambda n, retrieved, less=left_out: union(n, retrieved)[less:])
        monkeypatch.setattr(logprobs, "write", lambda *_: None)
        score_lm.score(project.params, "pile", "tiny")
    assert keys[0] != keys[1] == keys[2]


def test_no_test_queries_is_an_error(project):
    queries = pq.read_table("data/corpus/pile/queries.parquet")
    pq.write_table(queries.slice(0, 12), "data/corpus/pile/queries.parquet")
    with pytest.raises(LongtailError, match=r"no queries in the split 'test'; raise corpus\.pile\.query_share"):
        score_lm.score(project.params, "pile", "tiny")
