"""Where retrieval helps, recall, comparisons and examples, on small tables worked out by hand."""

import math
from pathlib import Path

import answer_tables
import numpy as np
import pytest

from pipelines.evaluation import accuracy, retrieval_effects

N = 20
NUMBER = np.arange(N)
ALL_RIGHT = np.ones(10, bool)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """20 questions, the more popular the higher their number; closed-book right from 10, dense below 15 but for 3."""
    relations = [f"P{i % 7}" for i in range(N)]
    answer_tables.write_questions(tmp_path / "questions.parquet", [10 * (i + 1) for i in range(N)], relations)
    files = {method: tmp_path / f"{method}.parquet" for method in ("closed_book", "dense", "lsr", "genread")}
    answer_tables.write_answers(files["closed_book"], NUMBER >= 10)
    namesake = (NUMBER >= 17) | (NUMBER == 5)
    whose = {"doc_is_subject": (NUMBER < 15) & ~namesake, "doc_is_namesake": namesake}
    found = (NUMBER < 12) & (NUMBER != 3)
    answer_tables.write_answers(files["dense"], (NUMBER < 15) & (NUMBER != 3), doc_has_answer=found, **whose)
    answer_tables.write_answers(files["lsr"], NUMBER < 17, doc_has_answer=NUMBER < 15, **whose)
    answer_tables.write_answers(files["genread"], NUMBER >= 9)
    return files


@pytest.fixture
def answers(files) -> accuracy.Answers:
    return accuracy.read(files["dense"].with_name("questions.parquet"), files)


def test_where_retrieval_helps(answers):
    rows = {
        row["group"]: row for row in retrieval_effects.where_retrieval_helps(answers, 0, 50) if row["method"] == "dense"
    }
    assert (rows["tail"]["questions"], rows["tail"]["gain"].value) == (12, pytest.approx(9 / 12))
    assert (rows["head"]["questions"], rows["head"]["gain_word"].value) == (3, -1.0)
    assert (rows["namesake's page, head"]["questions"], rows["namesake's page, head"]["gain"].value) == (3, -1.0)
    assert (rows["namesake's page"]["questions"], rows["namesake's page"]["gain"].value) == (4, -0.5)
    assert rows["another page"]["questions"] == 2
    assert rows["subject's page"]["gain"].value == pytest.approx(8 / 14)
    assert rows[retrieval_effects.TAIL_LESS_HEAD]["gain"].value == pytest.approx(9 / 12 + 1)
    assert rows["tail"]["closed_book"].value == pytest.approx(2 / 12)
    assert rows["tail"]["augmented"].value == pytest.approx(11 / 12)


def test_a_method_without_a_page_is_in_no_group_by_page(answers):
    rows = {
        row["group"]: row
        for row in retrieval_effects.where_retrieval_helps(answers, 0, 50)
        if row["method"] == "genread"
    }
    assert rows["all"]["gain"].value == pytest.approx(1 / 20)
    assert rows["another page"]["questions"] == 0
    assert math.isnan(rows["another page"]["gain"].value)


def test_recall_in_the_two_by_two(answers):
    rows = {row["answers"]: row for row in retrieval_effects.recall(answers) if row["method"] == "dense"}
    assert rows["all"]["recall"].value == pytest.approx(11 / 20)
    assert (rows["both right"]["share"], rows["both right"]["recall"].value) == (0.25, pytest.approx(2 / 5))
    assert rows["only augmented right"]["recall"].value == 1.0
    assert rows["only closed-book right"]["recall"].value == 0.0
    assert (rows["both wrong"]["questions"], rows["both wrong"]["recall"].value) == (1, 0.0)
    assert "genread" not in {
        row["method"] for row in retrieval_effects.recall(answers)
    }  # what it read is not known here


def test_methods_are_compared_question_by_question(answers):
    rows = {(row["method"], row["against"]): row for row in retrieval_effects.comparisons(answers, 0, 200)}
    assert rows["lsr", "dense"]["gain"].value == pytest.approx(3 / 20)
    assert rows["lsr", "dense"]["recall_gain"].value == pytest.approx(4 / 20)
    assert 0 <= rows["lsr", "dense"]["gain"].low < 0.15 < rows["lsr", "dense"]["gain"].high
    assert rows["genread", "dense"]["gain_word"].value == pytest.approx((11 - 14) / 20)
    assert set(rows) == {(m, "closed_book") for m in ("dense", "lsr", "genread")} | {
        ("lsr", "dense"),
        ("genread", "dense"),
    }


def test_without_closed_book_answers_there_is_nothing_to_hold_against(files):
    alone = accuracy.read(files["dense"].with_name("questions.parquet"), {"dense": files["dense"]})
    assert retrieval_effects.where_retrieval_helps(alone, 0, 10) == retrieval_effects.comparisons(alone, 0, 10) == []
    assert [row["answers"] for row in retrieval_effects.recall(alone)] == ["all"]
    assert all(math.isnan(row["gain"].value) for row in accuracy.by_popularity(alone, 0, 10))


def test_examples_are_of_both_kinds_one_a_relation_and_chosen_by_their_draw(files):
    chosen = [files["dense"].with_name("questions.parquet"), files["closed_book"], files["dense"]]
    first = retrieval_effects.examples(*chosen, 0)
    assert [row["effect"] for row in first] == ["retrieving helps"] * 4 + ["retrieving hurts"] * 4
    assert first == retrieval_effects.examples(*chosen, 0)
    assert first != retrieval_effects.examples(*chosen, 1)
    helped, hurt = first[:4], first[4:]
    assert all(int(row["question"][1:-1]) < 10 for row in helped)
    assert all(int(row["question"][1:-1]) >= 15 for row in hurt)
    for rows in (helped, hurt):
        assert len({row["relation"] for row in rows}) == 4


def test_an_answer_that_only_one_rule_calls_right_is_no_example(files):
    answer_tables.write_answers(files["dense"], NUMBER < 15, correct_word=NUMBER < 2)
    chosen = [files["dense"].with_name("questions.parquet"), files["closed_book"], files["dense"]]
    helped = [row for row in retrieval_effects.examples(*chosen, 0) if row["effect"] == "retrieving helps"]
    assert {row["question_id"] for row in helped} == {"q000", "q001"}


def test_a_question_of_unknown_popularity_is_no_example(files):
    questions = files["dense"].with_name("questions.parquet")
    relations = [f"P{i % 7}" for i in range(N)]
    answer_tables.write_questions(questions, [None if i == 4 else 10 * (i + 1) for i in range(N)], relations)
    shown = retrieval_effects.examples(questions, files["closed_book"], files["dense"], 0)
    assert "P4" not in {row["relation"] for row in shown if row["effect"] == "retrieving helps"}
    assert len(shown) == 8


def test_halves_are_the_worlds_own(answers):
    """The report's halves are those that the offline world drew when it wrote the language model's text."""
    from pipelines.world.facts import World

    class Numbered:
        seed = 3

        def item(self, entity):
            return entity

        def qid(self, item):
            return f"Q{item}"

    drawn = np.array([World.asked_as_evaluated(Numbered(), i) for i in range(N)])
    asked, never = retrieval_effects.halves(answers, 3, 20)
    assert 0 < drawn.sum() < N
    assert (asked["questions"], never["questions"]) == (drawn.sum(), (~drawn).sum())
    assert asked["substring"].value == pytest.approx((NUMBER >= 10)[drawn].mean())


@pytest.fixture
def priced(tmp_path) -> accuracy.Answers:
    """Ten questions of two relations, popularity 1 to 9 and unknown; GenRead asks twice and costs ten times as much."""
    relations = ["P1"] * 5 + ["P2"] * 5
    answer_tables.write_questions(tmp_path / "questions.parquet", [*range(1, 10), None], relations)
    files: dict[str, Path] = {m: tmp_path / f"{m}.parquet" for m in ("closed_book", "genread", "dense")}
    spent = {"prompt_tokens": [8] * 10, "new_tokens": [2] * 10, "lm_calls": [1] * 10, "cost": [0.1] * 10}
    answer_tables.write_answers(files["closed_book"], ALL_RIGHT, **spent)
    more = {"prompt_tokens": [80] * 10, "new_tokens": [20] * 10, "lm_calls": [2] * 10, "cost": [1.0] * 10}
    answer_tables.write_answers(files["genread"], ALL_RIGHT, **more)
    answer_tables.write_answers(files["dense"], ALL_RIGHT)
    return accuracy.read(tmp_path / "questions.parquet", files)


def test_costs_are_means_of_a_question_and_unknown_where_not_said(priced):
    closed, genread, dense = retrieval_effects.costs(priced)
    assert [genread[name] for name in ("calls", "prompt_tokens", "new_tokens")] == [2.0, 80.0, 20.0]
    assert (closed["cost_per_1000"], genread["cost_per_1000"]) == (pytest.approx(100), 1000)
    assert math.isnan(dense["calls"])


def test_what_thresholds_save(priced):
    """P1 retrieves below 3 (2 of 5), P2 always (4, its fifth has no popularity): 6 of 9 retrieve."""
    genread, dense = retrieval_effects.savings(
        priced, {"lsr": {}, "dense": {"P1": 3.0}, "genread": {"P1": 3.0, "P2": None}}, 0, 100
    )
    assert (genread["questions"], genread["retrieved"]) == (9, pytest.approx(6 / 9))
    assert genread["tokens_saved"].value == pytest.approx(100 * (1 - (6 * 100 + 3 * 10) / 900))
    assert genread["calls_saved"].value == pytest.approx(100 * (1 - (6 * 2 + 3) / 18))
    assert genread["cost_saved"].value == pytest.approx(30.0)
    assert genread["tokens_saved"].low <= genread["tokens_saved"].value <= genread["tokens_saved"].high
    assert (dense["questions"], dense["retrieved"]) == (5, 0.4)
    assert math.isnan(dense["tokens_saved"].value)


def test_a_threshold_of_zero_never_retrieves(priced):
    (row,) = retrieval_effects.savings(priced, {"genread": {"P1": 0.0, "P2": 0.0}}, 0, 10)
    assert (row["retrieved"], row["cost_saved"].value) == (0.0, pytest.approx(90.0))
