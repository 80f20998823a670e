"""Stage tune_thresholds: pairing by id, splits by subject, held-out accuracy, and the files it leaves."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.adaptive import DATASETS, thresholds
from pipelines.adaptive.answer import METHODS, SCHEMA
from pipelines.errors import LongtailError

CHOSEN = params.Thresholds(
    search="shrunk", splits=20, train_share=0.75, pseudo_questions=60.0, quantiles=20, min_questions=20
)


def made_pairs(n: int = 600, seed: int = 0, crossing: float = 1000.0) -> thresholds.Pairs:
    """Closed-book answers are right above `crossing`, augmented ones below it, with some noise; one rare relation."""
    rng = np.random.default_rng(seed)
    popularity = np.sort(10 ** rng.normal(3, 1, n)).astype(np.int64)
    flip = rng.random((2, n)) < 0.2
    relations = np.array([f"P{i}" for i in rng.integers(0, 4, n)], dtype=object)
    relations[::60] = "rare"
    return thresholds.Pairs(
        subjects=np.array([f"Q{i // 3}" for i in range(n)], dtype=object),
        relations=relations,
        popularity=popularity,
        closed=(popularity >= crossing) ^ flip[0],
        augmented=(popularity < crossing) ^ flip[1],
        excluded=0,
    )


def write_answers(folder: Path, ids, correct) -> Path:
    nulls = {f.name: pa.nulls(len(ids), f.type) for f in SCHEMA}
    pq.write_table(pa.table(nulls | {"question_id": ids, "correct": correct}).cast(SCHEMA), folder)
    return folder


def write_questions(path: Path, n: int, popularity) -> Path:
    table = {
        "question_id": [f"q{i:03d}" for i in range(n)],
        "relation": [f"P{i % 2}" for i in range(n)],
        "question": ["the same text"] * n,
        "subj": [f"s{i}" for i in range(n)],
        "s_uri": pa.nulls(n),
        "s_pop": pa.array(popularity, pa.int64()),
    }
    pq.write_table(pa.table(table), path)
    return path


def test_answers_are_paired_by_id_and_unknown_popularity_is_counted(tmp_path):
    questions = write_questions(tmp_path / "q.parquet", 4, [30, None, 10, 20])
    ids = ["q000", "q001", "q002", "q003"]
    closed = write_answers(tmp_path / "c.parquet", ids, [True, True, False, False])
    augmented = write_answers(tmp_path / "a.parquet", ids[::-1], [True, False, False, False])
    pairs = thresholds.read_pairs(questions, closed, augmented)
    assert pairs.excluded == 1
    assert pairs.popularity.tolist() == [10, 20, 30]
    assert pairs.gains.tolist() == [0, 1, -1]
    assert pairs.subjects.tolist() == ["s2", "s3", "s0"]


def test_answers_to_other_questions_are_an_error(tmp_path):
    questions = write_questions(tmp_path / "q.parquet", 3, [1, 2, 3])
    closed = write_answers(tmp_path / "c.parquet", ["q000", "q001"], [True, True])
    augmented = write_answers(tmp_path / "a.parquet", ["q000", "q002"], [True, True])
    with pytest.raises(LongtailError, match=r"a\.parquet: answers other questions"):
        thresholds.read_pairs(questions, closed, augmented)


def test_a_subject_is_on_one_side_of_each_split_and_splits_differ():
    pairs = made_pairs()
    train = thresholds.split_train(0, pairs.subjects, 20, 0.75)
    for subject in np.unique(pairs.subjects)[:50]:
        own = train[:, pairs.subjects == subject]
        assert (own == own[:, :1]).all()
    assert train.mean() == pytest.approx(0.75, abs=0.03)
    assert len({row.tobytes() for row in train}) == 20
    fewer = thresholds.split_train(0, pairs.subjects[:100], 20, 0.75)
    assert (fewer == train[:, :100]).all()  # a subject's side depends on nothing but itself


def test_held_out_accuracy_is_the_definitions():
    pairs = made_pairs()
    train = thresholds.split_train(0, pairs.subjects, 5, 0.75)
    cuts = thresholds.fit(pairs, train, "exact", CHOSEN)
    judged = thresholds.judge(pairs, train, cuts)
    for split in range(5):
        held = np.flatnonzero(~train[split])
        right = [
            pairs.augmented[i] if pairs.popularity[i] < cuts[pairs.relations[i]][split] else pairs.closed[i]
            for i in held
        ]
        assert judged.table["adaptive"][split] == pytest.approx(np.mean(right))
        assert judged.table["always"][split] == pytest.approx(pairs.augmented[held].mean())
        assert judged.table["never"][split] == pytest.approx(pairs.closed[held].mean())
        assert judged.table["oracle"][split] == pytest.approx((pairs.closed | pairs.augmented)[held].mean())


@pytest.mark.parametrize("search", thresholds.SEARCHES)
def test_where_there_is_a_crossing_adaptive_beats_always_and_never(search):
    pairs = made_pairs()
    judged, final = thresholds.tune(pairs, CHOSEN, 0)
    summary = thresholds.summary(pairs, judged[search], 0, 300)
    assert summary["gain"]["low"] > 0.1
    assert summary["oracle"]["value"] >= summary["adaptive"]["value"]
    assert summary["gain"]["mean_over_splits"] == pytest.approx(
        summary["adaptive"]["mean_over_splits"]
        - max(summary["always"]["mean_over_splits"], summary["never"]["mean_over_splits"])
    )
    common = [final[search][f"P{i}"] for i in range(4)]
    assert all(300 < cut < 3000 for cut in common)


def test_where_there_is_nothing_to_learn_the_interval_touches_zero():
    rng = np.random.default_rng(0)
    pairs = replace(made_pairs(), closed=rng.random(600) < 0.5, augmented=rng.random(600) < 0.5)
    for search, judged in thresholds.tune(pairs, CHOSEN, 0)[0].items():
        assert thresholds.summary(pairs, judged, 0, 300)["gain"]["low"] < 0, search


def test_exact_fits_its_training_side_best():
    judged, _ = thresholds.tune(made_pairs(), CHOSEN, 0)
    exact = judged["exact"].table["train_adaptive"]
    assert (
        exact >= judged["bins"].table["train_adaptive"] - 0.01
    ).all()  # but for the rare relation's pooled threshold


def test_rare_relations_take_the_threshold_of_all_together():
    pairs = made_pairs()
    train = np.ones((1, 600), dtype=bool)
    together = replace(pairs, relations=np.full(600, "all", dtype=object))
    for search in thresholds.SEARCHES:
        rare = thresholds.fit(pairs, train, search, CHOSEN)["rare"]
        pooled = thresholds.fit(together, train, search, CHOSEN.model_copy(update={"pseudo_questions": 1e-9}))["all"]
        assert rare == pooled, search


@pytest.fixture
def _stage(tmp_path, monkeypatch, root):
    """A working folder with two question sets, PopQA with popularity and EntityQuestions without."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for dataset in DATASETS:
        (tmp_path / "data" / dataset).mkdir(parents=True)
        (tmp_path / "data/predictions" / dataset).mkdir(parents=True)
        known = rng.integers(1, 10_000, 120).tolist()
        questions = tmp_path / f"data/{dataset}/{dataset}.parquet"
        write_questions(questions, 120, known if dataset == "popqa" else [None] * 120)
        for method in METHODS:
            path = tmp_path / f"data/predictions/{dataset}/{method}.parquet"
            write_answers(path, [f"q{i:03d}" for i in range(120)], rng.random(120) < 0.5)
    from flows.profiles import compose

    (tmp_path / "params.yaml").write_text(compose("sample", root))


@pytest.mark.usefixtures("_stage")
def test_the_stage_leaves_its_files_and_the_same_bytes_again(tmp_path, capsys):
    contents = []
    for _ in range(2):
        thresholds.main()
        files = sorted(path for path in (tmp_path / "data").rglob("*") if "adaptive" in str(path) and path.is_file())
        contents.append({path.name: path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == ["adaptive.json", "splits.parquet", "thresholds.json", "thresholds.parquet"]
    rows = pq.read_table(tmp_path / "data/adaptive/thresholds.parquet").to_pylist()
    assert {(row["method"], row["search"]) for row in rows} == {
        (method, search) for method in thresholds.METHODS for search in thresholds.SEARCHES
    }
    used = json.loads((tmp_path / "data/adaptive/thresholds.json").read_text())
    for row in rows:
        if row["search"] == used["search"]:
            cut = used["thresholds"][row["dataset"]][row["method"]][row["relation"]]
            assert (math.inf if cut is None else cut) == row["threshold"]
    metrics = json.loads((tmp_path / "data/metrics/adaptive.json").read_text())
    assert metrics["entityquestions"] == {"questions": 0, "excluded_without_popularity": 120}
    assert metrics["popqa"]["excluded_without_popularity"] == 0
    assert "see data/adaptive" in capsys.readouterr().out
