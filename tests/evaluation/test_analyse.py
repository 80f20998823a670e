"""The stage `analyse`: tables of every language model's answers, imported ones too, and of other
stages' figures."""

import copy
from pathlib import Path
from types import SimpleNamespace

import answer_tables
import numpy as np
import pyarrow.parquet as pq
import pytest
import small_results
from analysis_rows import read_analyses

from pipelines.evaluation import analyse, stage_metrics
from pipelines.intervals import NOTHING, Interval
from pipelines.storage.atomic import write_json

N, FIRST = 480, 390
PARAMS = copy.copy(small_results.SETTINGS)
PARAMS.report = SimpleNamespace(bootstrap=50)
ANSWERED = ["popqa", "entityquestions", "mmlu"]
PARAMS.parts = small_results.PARTS.model_copy(update={"answered": ANSWERED})


def figure(value: float) -> dict:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def write_data(data: Path) -> None:
    """PopQA answered by two language models and an imported one, by unlike methods; EntityQuestions
    by none.

    The second language model was asked only the FIRST of the questions.
    """
    number, questions = np.arange(N), data / "questions"
    popqa, popularity = questions / "popqa/popqa.parquet", [*range(1, N + 1)]
    answer_tables.write_questions(popqa, popularity, [f"P{i % 3}" for i in number])
    answer_tables.write_questions(questions / "entityquestions/entityquestions.parquet", [], [])
    answer_tables.write_questions(questions / "nq/nq.parquet", popularity, ["" for _ in number])
    write_mmlu(data)
    own = data / "predictions/popqa"
    for lm, methods in {
        "tiny": ("closed_book", "dense", "genread"),
        "big": ("closed_book",),
    }.items():
        for shift, method in enumerate(methods):
            right = (number + shift) % 3 == 0
            columns = {}
            if lm == "big":
                right = right[:FIRST]
                columns["prediction"] = np.where(right, "p", "Sure! Here is the answer:").tolist()
            answer_tables.write_answers(own / lm / f"{method}.parquet", right, **columns)
    answer_tables.write_answers(
        own / "tiny/dense.parquet", number < N // 2, doc_has_answer=number < 2 * N // 3
    )
    for method in ("closed_book", "dense"):
        answer_tables.write_answers(
            data / f"imported/popqa/davinci/{method}.parquet", number >= N // 10
        )
    # to others
    answer_tables.write_answers(data / "imported/popqa/davinci/bm25.parquet", np.arange(N + 1) > 5)
    bits = {
        "bpb_none": figure(1.0),
        "bpb_dense_k10": figure(0.8),
        "gain_dense_k10": figure(20.0),
        "queries": 3,
    }
    write_json(data / "metrics/language_modelling_pile.json", {"tiny": bits, "big": bits})


def write_mmlu(data: Path) -> None:
    """Questions with letters for answers, in two categories, of which one is known."""
    path = data / "questions/mmlu/mmlu.parquet"
    answer_tables.write_questions(path, [None] * N, ["virology"] * N)
    categories = ["STEM" if i < N // 4 else "other" for i in range(N)[::-1]]
    pq.write_table(pq.read_table(path).append_column("category", [categories]), path)
    for method in ("closed_book", "replug"):
        right = np.arange(N) >= (N // 8 if method == "replug" else N // 4)
        answer_tables.write_answers(data / f"predictions/mmlu/tiny/{method}.parquet", right)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder of the tables, the stage's metrics)."""
    home = tmp_path_factory.mktemp("analysed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        write_data(home / "data")
        metrics = analyse.analyse(home / "data", PARAMS)
    return home / "data/analyses", metrics


def on_popqa(folder: Path, name: str) -> list[dict]:
    """The rows of a table that are about PopQA."""
    return [row for row in read_analyses(folder, name) if row["dataset"] == "popqa"]


def test_every_model_and_method_has_its_rows(made):
    rows = on_popqa(made[0], "accuracy")
    methods = {
        "tiny": ["closed_book", "dense", "genread"],
        "big": ["closed_book"],
        "davinci": ["closed_book", "dense"],
    }
    assert [(row["lm"], row["method"]) for row in rows] == [
        (lm, name) for lm in methods for name in methods[lm]
    ]
    assert [round(row["substring"].value, 2) for row in rows] == [0.33, 0.5, 0.33, 0.33, 0.9, 0.9]
    assert {row["lm"] for row in read_analyses(made[0], "retrieval_effect")} == {"tiny", "davinci"}
    models = read_analyses(made[0], "models")
    expected = [("tiny", False), ("big", False), ("davinci", True)]
    assert [(row["lm"], row["imported"]) for row in models] == expected
    out, odd = read_analyses(made[0], "left_out")
    assert "davinci/bm25.parquet is left out: of its 481 rows 1 answer no question" in out["why"]
    assert odd["why"] == (
        "Answers of big to popqa end in a colon, so what follows it is missing (closed_book 260 of "
        "390)."
    )


def test_models_are_compared_on_what_both_answered(made):
    rows = [row for row in read_analyses(made[0], "comparisons") if row["lm"] != row["against_lm"]]
    named = [" ".join(row[key] for key in ("lm", "against_lm", "method")) for row in rows]
    closed = [f"{lms} closed_book" for lms in ("big tiny", "davinci tiny", "davinci big")]
    assert named == [*closed[:2], "davinci tiny dense", closed[2]]
    assert [row["questions"] for row in rows] == [FIRST, N, N, FIRST]
    assert (rows[0]["gain"].value, rows[0]["p"]) == (0, 1), (
        "big answers as tiny does where both answer"
    )
    assert rows[2]["gain"].value == pytest.approx(0.9 - 0.5)


def test_tables_in_common_have_the_same_questions(made):
    for name in ("accuracy", "accuracy_by_log_popularity", "accuracy_by_relation"):
        rows = [
            row
            for row in read_analyses(made[0], f"common_{name}")
            if row["method"] == "closed_book"
        ]
        keys = ("questions", *{"bin", "relation"} & set(rows[0]))
        tiny, big, davinci = (
            [[row[key] for key in keys] for row in rows if row["lm"] == lm]
            for lm in ("tiny", "big", "davinci")
        )
        assert tiny == big == davinci != [], name
    common = {(row["lm"], row["method"]): row for row in read_analyses(made[0], "common_accuracy")}
    assert {row["questions"] for row in common.values()} == {FIRST}
    assert common["davinci", "closed_book"]["substring"].value == pytest.approx(
        (FIRST - N // 10) / FIRST
    )
    assert common["tiny", "dense"]["substring"].value == pytest.approx(N / 2 / FIRST)


def test_savings_are_of_each_models_own_thresholds(made):
    """tiny's dense answers are right in the first half alone; davinci's as often as its closed-book
    ones: always."""
    rows = {(row["lm"], row["method"]): row for row in read_analyses(made[0], "savings")}
    assert set(rows) == {("tiny", "dense"), ("tiny", "genread"), ("davinci", "dense")}
    assert 0.4 < rows["tiny", "dense"]["retrieved"].value < 0.6
    assert rows["davinci", "dense"]["retrieved"].value in (0, 1), "its threshold is another one"
    # examples are the main language model's
    rows = read_analyses(made[0], "examples")
    assert {(row["lm"], row["method"]) for row in rows} == {("tiny", "dense")}
    effects = [row["effect"] for row in rows]  # one of each relation with such questions
    assert effects == ["retrieving helps"] * 2 + ["retrieving hurts"]


def test_figures_of_other_stages_become_rows(made):
    saved = {
        row["lm"]: row["saved"].value
        for row in read_analyses(made[0], "bits_per_byte")
        if row["k"] == 10
    }
    assert saved == {"tiny": 20, "big": 20}
    dense = {row["retriever"]: row for row in read_analyses(made[0], "retrievers")}["dense"]
    assert (dense["bits_per_byte"].value, dense["popqa_recall_at_1"].value) == (
        0.8,
        pytest.approx(2 / 3),
    )
    assert dense["real_recall_at_1"] == NOTHING
    assert read_analyses(made[0], "rare_words") == []
    popularity = [row for row in read_analyses(made[0], "popularity") if row["dataset"] == "nq"]
    assert sum(row["questions"] for row in popularity) == N
    assert all(row["below"] == pytest.approx(row["least"] * 10**0.25) for row in popularity)


def test_accuracy_is_told_by_the_question_sets_own_categories(made):
    """Nothing is guessed from questions that have the options in them."""
    rows = read_analyses(made[0], "accuracy_by_group")
    of_mmlu = [row for row in rows if row["dataset"] == "mmlu"]
    shares = {(row["method"], row["group"]): row["substring"].value for row in of_mmlu}
    assert {group for _, group in shares} >= {"STEM", "other"}
    assert not {group for _, group in shares} & {"guessable", "names an answer", "usual answer"}
    assert (shares["closed_book", "STEM"], shares["replug", "STEM"]) == (0, 0.5)
    assert shares["closed_book", "other"] == shares["replug", "other"] == 1
    guessed = {row["dataset"] for row in read_analyses(made[0], "guessable")}
    assert guessed == {"popqa"}


def test_gains_are_over_a_models_own_closed_book_answers(made):
    folder, metrics = made
    assert metrics["popqa.tiny.dense.substring"] == metrics["popqa.tiny.dense.word"] == 0.5
    assert metrics["popqa.davinci.dense.substring"] == pytest.approx(0.9)
    gains = {}
    for row in on_popqa(folder, "comparisons"):
        if row["lm"] == row["against_lm"] and row["against"] == "closed_book":
            gains[row["lm"], row["method"]] = row["gain"].value
    assert set(gains) == {("tiny", "dense"), ("tiny", "genread"), ("davinci", "dense")}
    closed_book = metrics["popqa.tiny.closed_book.substring"]
    assert gains["tiny", "dense"] == pytest.approx(0.5 - closed_book)
    assert gains["tiny", "genread"] == pytest.approx(0)


def test_retrievers_are_compared_at_one_k():
    """What is saved is over no documents."""
    figures = {"bpb_none": figure(1.0), "bpb_dense_k10_t0.1": figure(0.7)}
    for k, gain in ((10, 20.0), (2, 10.0), (16, 30.0)):
        figures |= {f"bpb_dense_k{k}": figure(1 - gain / 100), f"gain_dense_k{k}": figure(gain)}
        figures |= {f"gain_over_random_dense_k{k}": figure(gain - 5)}
    bits = stage_metrics.StageMetrics(
        {"language_modelling": {"pile": {"tiny": figures}}}, ["pile"], ["tiny"]
    ).bits_per_byte()
    found = {(row["retriever"], row["k"]): row["bits_per_byte"] for row in bits}
    assert list(found) == [("none", 0), ("dense", 2), ("dense", 10), ("dense", 16)], (
        "none by another temperature"
    )
    assert found["dense", 10] == Interval(0.8, 0.8 - 0.1, 0.8 + 0.1)
    saved = {
        row["k"]: (row["saved"].value, row["saved_over_random"].value) for row in bits if row["k"]
    }
    assert saved == {2: (10, 5), 10: (20, 15), 16: (30, 25)}
    for k in saved:
        (row,) = stage_metrics.retrievers(bits, {}, {}, {}, k)
        assert row["saved"].value == saved[k][0]
    assert stage_metrics.retrievers([], {}, {}, {}, 10) == [], "nothing was measured"
