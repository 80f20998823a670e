"""Where retrieval helps, recall, comparisons and examples, on small tables worked out by hand."""

import math
from pathlib import Path

import answer_tables
import numpy as np
import pytest

from pipelines.evaluation import accuracy, retrieval_effects

N = 20
NUMBER = np.arange(N)


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


def test_halves_are_the_worlds_own(answers):
    """The report's halves are those that the offline world drew when it wrote the language model's text."""
    from pipelines.world.facts import World

    class Numbered:
        seed, value_labels = 3, ()

        def qid(self, entity):
            return f"Q{entity}"

    drawn = np.array([World.asked_as_evaluated(Numbered(), i) for i in range(N)])
    asked, never = retrieval_effects.halves(answers, 3, 20)
    assert 0 < drawn.sum() < N
    assert (asked["questions"], never["questions"]) == (drawn.sum(), (~drawn).sum())
    assert asked["substring"].value == pytest.approx((NUMBER >= 10)[drawn].mean())
