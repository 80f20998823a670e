"""Where retrieval helps, recall and examples, on small tables worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import answer_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.evaluation import paired, retrieval_effects
from pipelines.evaluation.examples import draw_examples

N = 20
NUMBER = np.arange(N)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """20 questions, the more popular the higher their number; closed-book right from 10, dense
    below 15 but for 3."""
    relations = [f"P{i % 7}" for i in range(N)]
    answer_tables.write_questions(
        tmp_path / "questions.parquet", [10 * (i + 1) for i in range(N)], relations
    )
    files = {
        method: tmp_path / f"{method}.parquet"
        for method in ("closed_book", "dense", "lsr", "genread")
    }
    answer_tables.write_answers(files["closed_book"], NUMBER >= 10)
    namesake = (NUMBER >= 17) | (NUMBER == 5)
    whose = {"doc_is_subject": (NUMBER < 15) & ~namesake, "doc_is_namesake": namesake}
    found = (NUMBER < 12) & (NUMBER != 3)
    answer_tables.write_answers(
        files["dense"], (NUMBER < 15) & (NUMBER != 3), doc_has_answer=found, **whose
    )
    answer_tables.write_answers(files["lsr"], NUMBER < 17, doc_has_answer=NUMBER < 15, **whose)
    answer_tables.write_answers(files["genread"], NUMBER >= 9)
    return files


def test_where_retrieval_helps(answers):
    helps = retrieval_effects.where_retrieval_helps(answers)
    rows = {row["group"]: row for row in helps if row["method"] == "dense"}
    found = {group: (row["questions"], row["gain"].value) for group, row in rows.items()}
    assert found["tail"] == (12, pytest.approx(9 / 12))
    assert found["namesake's page, head"] == (3, -1.0)
    assert found["namesake's page"] == (4, -0.5)
    assert found["another page"][0] == 2
    assert found["subject's page"][1] == pytest.approx(8 / 14)
    assert found[retrieval_effects.TAIL_LESS_HEAD][1] == pytest.approx(9 / 12 + 1)
    assert (rows["head"]["questions"], rows["head"]["gain_word"].value) == (3, -1.0)
    assert rows["tail"]["closed_book"].value == pytest.approx(2 / 12)
    assert rows["tail"]["augmented"].value == pytest.approx(11 / 12)
    # a method without a page is in no group by page
    rows = {row["group"]: row for row in helps if row["method"] == "genread"}
    assert rows["all"]["gain"].value == pytest.approx(1 / 20)
    assert rows["another page"]["questions"] == 0
    assert math.isnan(rows["another page"]["gain"].value)


def test_recall_in_the_two_by_two(answers):
    every = retrieval_effects.recall(answers)
    rows = {row["answers"]: row for row in every if row["method"] == "dense"}
    assert rows["all"]["recall"].value == pytest.approx(11 / 20)
    assert (rows["both right"]["share"].value, rows["both right"]["recall"].value) == (
        0.25,
        pytest.approx(2 / 5),
    )
    assert rows["only augmented right"]["recall"].value == 1.0
    assert rows["only closed-book right"]["recall"].value == 0.0
    assert (rows["both wrong"]["questions"], rows["both wrong"]["recall"].value) == (1, 0.0)
    assert "genread" not in {row["method"] for row in every}, "what it read is not known here"
    alone = replace(answers, by_method={"dense": answers.by_method["dense"]})
    assert [row["answers"] for row in retrieval_effects.recall(alone)] == ["all"]
    assert (
        retrieval_effects.where_retrieval_helps(alone) == paired.comparisons({"tiny": alone}) == []
    )


def examples(files, seed=0):
    names = ("questions.parquet", "closed_book.parquet", "dense.parquet", "docs.parquet")
    return draw_examples(*map(files["dense"].with_name, names), seed)


def test_examples_are_of_both_kinds_one_a_relation(files):
    first = examples(files)
    assert [row["effect"] for row in first] == ["retrieving helps"] * 4 + ["retrieving hurts"] * 4
    assert first == examples(files) != examples(files, 1)
    helped, hurt = first[:4], first[4:]
    assert all(int(row["question"][1:-1]) < 10 for row in helped)
    assert all(int(row["question"][1:-1]) >= 15 for row in hurt)
    for rows in (helped, hurt):
        assert len({row["relation"] for row in rows}) == 4


def test_an_example_is_right_by_both_rules(files):
    questions = files["dense"].with_name("questions.parquet")
    relations = [f"P{i % 7}" for i in range(N)]
    answer_tables.write_questions(
        questions, [None if i == 4 else 10 * (i + 1) for i in range(N)], relations
    )
    shown = examples(files)
    assert "P4" not in {row["relation"] for row in shown if row["effect"] == "retrieving helps"}
    assert len(shown) == 8
    answer_tables.write_answers(files["dense"], NUMBER < 15, correct_word=NUMBER < 2)
    helped = [row["question_id"] for row in examples(files) if row["effect"] == "retrieving helps"]
    assert sorted(helped) == ["q000", "q001"]


def test_examples_show_the_beginning_of_the_best_document(files):
    """The best document of question 4 is d4; the text of d5 is longer than what is shown."""
    ids, titles = [f"d{i}" for i in range(N)], [f"Title {i}" for i in range(N)]
    texts = {4: "So it is A4, they say.", 5: "x" * 1_000 + " a5", 6: "a66"}
    table = {"id": ids, "title": titles, "text": [texts.get(i, f"text {i}") for i in range(N)]}
    pq.write_table(
        pa.table(table).take(np.arange(N)[::-1]), files["dense"].with_name("docs.parquet")
    )
    answer_tables.write_answers(files["dense"], NUMBER < 7, doc_id=ids, doc_title=titles)
    answer_tables.write_answers(files["closed_book"], np.zeros(N, bool))
    questions = files["dense"].with_name("questions.parquet")
    answer_tables.write_questions(
        questions, [10 * (i + 1) for i in range(N)], [f"P{max(i, 3)}" for i in range(N)]
    )
    shown = {row["question_id"]: row for row in examples(files)}
    found = [shown[f"q00{i}"]["passage"] for i in (4, 5, 6)]
    assert found == ["So it is A4, they say.", "x" * 1_000, "a66"]
    assert shown["q004"]["doc_title"] == "Title 4"
    answer_tables.write_answers(files["dense"], NUMBER < 7, doc_id=ids, doc_title=["elsewhere"] * N)
    assert {row["passage"] for row in examples(files)} == {None}, (
        "an import's document may have another one's id"
    )
    answer_tables.write_answers(files["dense"], NUMBER < 7, passage=["made up"] * N)
    assert {row["passage"] for row in examples(files)} == {"made up"}
