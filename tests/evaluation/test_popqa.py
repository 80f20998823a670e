"""PopQA's analyses on small tables worked out by hand."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.adaptive.answer import METHODS, SCHEMA
from pipelines.evaluation import popqa

N = 20


@pytest.fixture
def folder(tmp_path) -> Path:
    """20 questions, the more popular the higher their number; closed-book right from 10 on, dense right below 15."""
    ids = [f"q{i:02d}" for i in range(N)]
    questions = {
        "question_id": ids[::-1],
        "relation": ["P1" if i % 2 else "P2" for i in range(N)][::-1],
        "subj": [f"s{i}" for i in range(N)][::-1],
        "s_uri": pa.array([f"http://www.wikidata.org/entity/Q{i}" for i in range(N)][::-1]),
        "question": [f"Q{i}?" for i in range(N)][::-1],
        "possible_answers": [[f"a{i}"] for i in range(N)][::-1],
        "s_pop": pa.array([10 * (i + 1) for i in range(N)][::-1], pa.int64()),
    }
    pq.write_table(pa.table(questions), tmp_path / "questions.parquet")
    number = np.arange(N)
    for method in METHODS:
        table = {field.name: pa.nulls(N, field.type) for field in SCHEMA}
        right = number >= 10 if method == "closed_book" else number < 15
        table |= {"question_id": ids, "prediction": ids, "correct": right, "correct_word": right & (number != 12)}
        if method != "closed_book":
            table |= {"doc_has_answer": number < 12, "doc_is_subject": number < 15, "doc_is_namesake": number >= 17}
        pq.write_table(pa.table(table).cast(SCHEMA), tmp_path / f"{method}.parquet")
    return tmp_path


@pytest.fixture
def answers(folder) -> popqa.Answers:
    return popqa.read(folder / "questions.parquet", folder)


def test_rows_are_joined_by_id(answers):
    assert answers.popularity.tolist() == [10 * (i + 1) for i in range(N)]
    assert answers.correct["closed_book"].tolist() == [False] * 10 + [True] * 10


def test_accuracy_by_both_rules(answers):
    row = popqa.accuracy(answers)[0]
    assert (row["method"], row["substring"].value, row["word"].value) == ("closed_book", 0.5, 0.45)


def test_correlation_with_popularity(answers):
    found = popqa.correlation(answers, "closed_book", 0, 200)
    expected = np.corrcoef(np.log10(answers.popularity), answers.correct["closed_book"])[0, 1]
    assert found.value == pytest.approx(expected)
    assert found.sign == 1


def test_deciles_hold_equal_numbers_and_ties_stay_together(answers):
    rows = popqa.by_popularity(answers)
    assert [row["questions"] for row in rows] == [2] * 10
    assert [row["closed_book"].value for row in rows] == [0] * 5 + [1] * 5
    tied = popqa.Answers(**{**answers.__dict__, "popularity": np.repeat([1.0, 2.0], 10)})
    assert [row["questions"] for row in popqa.by_popularity(tied)] == [10, 10]


def test_questions_without_popularity_are_in_no_decile(answers):
    unknown = answers.popularity.copy()
    unknown[:4] = np.nan
    rows = popqa.by_popularity(popqa.Answers(**{**answers.__dict__, "popularity": unknown}))
    assert sum(row["questions"] for row in rows) == 16


def test_where_retrieval_helps(answers):
    rows = {r["questions of"]: r for r in popqa.where_retrieval_helps(answers, 0, 50) if r["retriever"] == "dense"}
    assert (rows["tail"]["questions"], rows["tail"]["gain"].value) == (12, pytest.approx(10 / 12))
    assert (rows["head"]["questions"], rows["head"]["gain"].value) == (3, -1.0)
    assert (rows["namesake's page, head"]["questions"], rows["namesake's page"]["gain"].value) == (3, -1.0)
    assert rows["another page"]["questions"] == 2
    assert rows["subject's page"]["gain"].value == pytest.approx(10 / 15)


def test_recall_in_the_two_by_two(answers):
    rows = {r["answers"]: r for r in popqa.recall(answers) if r["retriever"] == "lsr"}
    assert rows["all"]["recall"].value == pytest.approx(12 / 20)
    assert (rows["both right"]["share"], rows["both right"]["recall"].value) == (0.25, pytest.approx(2 / 5))
    assert rows["only augmented right"]["recall"].value == 1.0
    assert rows["only closed-book right"]["recall"].value == 0.0
    assert math.isnan(rows["both wrong"]["recall"].value)


def test_examples_are_of_both_kinds_and_the_same_every_time(folder):
    first = popqa.examples(folder / "questions.parquet", folder, "dense", 0, 3)
    assert [row["effect"] for row in first] == ["retrieving helps"] * 3 + ["retrieving hurts"] * 3
    assert first == popqa.examples(folder / "questions.parquet", folder, "dense", 0, 3)
    assert all(int(row["question"][1:-1]) >= 15 for row in first[3:])


def test_halves_are_the_worlds_own(answers):
    """The report's halves are those that the offline world drew when it wrote the language model's text."""
    from pipelines.sources.world_facts import World

    class Numbered:
        seed, value_labels = 3, ()

        def qid(self, entity):
            return f"Q{entity}"

    drawn = [World.asked_as_evaluated(Numbered(), i) for i in range(N)]
    assert popqa.asked_as_evaluated(answers, 3).tolist() == drawn
    assert len(set(drawn)) == 2
