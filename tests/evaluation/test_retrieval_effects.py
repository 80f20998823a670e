"""Where retrieval helps, recall and examples, on small tables worked out by hand."""

import math
from pathlib import Path

import answer_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.evaluation import accuracy, paired, retrieval_effects

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


def test_without_closed_book_answers_there_is_nothing_to_hold_against(files):
    alone = accuracy.read(files["dense"].with_name("questions.parquet"), {"dense": files["dense"]})
    assert retrieval_effects.where_retrieval_helps(alone, 0, 10) == paired.comparisons({"tiny": alone}, 0, 10) == []
    assert [row["answers"] for row in retrieval_effects.recall(alone)] == ["all"]


def test_examples_are_of_both_kinds_one_a_relation_and_chosen_by_their_draw(files):
    chosen = [
        *map(files["dense"].with_name, ("questions.parquet", "closed_book.parquet", "dense.parquet", "docs.parquet"))
    ]
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
    chosen = [
        *map(files["dense"].with_name, ("questions.parquet", "closed_book.parquet", "dense.parquet", "docs.parquet"))
    ]
    helped = [row for row in retrieval_effects.examples(*chosen, 0) if row["effect"] == "retrieving helps"]
    assert {row["question_id"] for row in helped} == {"q000", "q001"}


def test_a_question_of_unknown_popularity_is_no_example(files):
    questions = files["dense"].with_name("questions.parquet")
    relations = [f"P{i % 7}" for i in range(N)]
    answer_tables.write_questions(questions, [None if i == 4 else 10 * (i + 1) for i in range(N)], relations)
    shown = retrieval_effects.examples(questions, files["closed_book"], files["dense"], Path("none"), 0)
    assert "P4" not in {row["relation"] for row in shown if row["effect"] == "retrieving helps"}
    assert len(shown) == 8


def test_examples_show_the_beginning_of_the_best_document_and_the_answer_in_it(files):
    """The best document of question 4, d4, has its answer a4; d5 has it behind its beginning, d6 within a word."""
    ids, titles = [f"d{i}" for i in range(N)], [f"Title {i}" for i in range(N)]
    texts = {4: "So it is A4, they say.", 5: "x" * 1_000 + " a5", 6: "a66"}
    docs = files["dense"].with_name("docs.parquet")
    table = {"id": ids, "title": titles, "text": [texts.get(i, f"text {i}") for i in range(N)]}
    pq.write_table(pa.table(table).take(np.arange(N)[::-1]), docs)
    answer_tables.write_answers(files["dense"], NUMBER < 7, doc_id=ids, doc_title=titles)
    answer_tables.write_answers(files["closed_book"], np.zeros(N, bool))
    questions = files["dense"].with_name("questions.parquet")
    answer_tables.write_questions(questions, [10 * (i + 1) for i in range(N)], [f"P{max(i, 3)}" for i in range(N)])
    shown = {
        row["question_id"]: row
        for row in retrieval_effects.examples(questions, files["closed_book"], files["dense"], docs, 0)
    }
    assert [(shown[f"q00{i}"]["passage"], shown[f"q00{i}"]["passage_answer"]) for i in (4, 5, 6)] == [
        ("So it is A4, they say.", "a4"),
        ("x" * 1_000, None),
        ("a66", None),
    ]
    assert shown["q004"]["doc_title"] == "Title 4"
    answer_tables.write_answers(files["dense"], NUMBER < 7, doc_id=ids, doc_title=["elsewhere"] * N)
    rows = retrieval_effects.examples(questions, files["closed_book"], files["dense"], docs, 0)
    assert {row["passage"] for row in rows} == {None}, "an import's document may have the id of another one here"
    answer_tables.write_answers(files["dense"], NUMBER < 7, passage=["made up"] * N)
    rows = retrieval_effects.examples(questions, files["closed_book"], files["dense"], docs, 0)
    assert {row["passage"] for row in rows} == {"made up"}


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
