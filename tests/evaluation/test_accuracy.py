"""Accuracy by method, relation and popularity on small tables worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import answer_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines import draws, intervals
from pipelines.errors import LongtailError
from pipelines.evaluation import accuracy

N = 20
NUMBER = np.arange(N)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """20 questions, the more popular the higher their number; closed-book right from 10 on, dense right below 15."""
    relations = ["P1" if i % 2 else "P2" for i in range(N)]
    answer_tables.write_questions(tmp_path / "questions.parquet", [10 * (i + 1) for i in range(N)], relations)
    files = {method: tmp_path / f"{method}.parquet" for method in ("closed_book", "dense")}
    answer_tables.write_answers(
        files["closed_book"], NUMBER >= 10, correct_word=(NUMBER >= 10) & (NUMBER != 12), lm_calls=[1] * N
    )
    answer_tables.write_answers(files["dense"], NUMBER < 15)
    return files


@pytest.fixture
def answers(files) -> accuracy.Answers:
    return accuracy.read(files["dense"].with_name("questions.parquet"), files)


def test_rows_are_joined_by_id_and_what_is_not_said_is_not_known(answers):
    assert answers.popularity.tolist() == [10 * (i + 1) for i in range(N)]
    assert answers.relations[:3].tolist() == ["P2", "P1", "P2"]
    assert answers.by_method["closed_book"].correct.tolist() == [0.0] * 10 + [1.0] * 10
    assert answers.by_method["closed_book"].calls.tolist() == [1.0] * N
    assert np.isnan(answers.by_method["dense"].calls).all()


@pytest.mark.parametrize(
    ("method", "change", "said"),
    [
        ("closed_book", lambda table: table.slice(1), r"closed_book.parquet: lacks the id q000 of .*dense"),
        ("dense", lambda table: table.slice(0, 19), r"dense.parquet: lacks the id q019 of .*closed_book"),
        ("dense", lambda table: table.take([0, *range(N)]), r"dense.parquet: has the id q000 more than once"),
        ("questions", lambda table: table.slice(1), r"questions.parquet: lacks the id q019 of .*closed_book"),
        ("questions", lambda table: table.take([3, *range(N)]), r"questions.parquet: has the id q016 more than once"),
    ],
)
def test_a_missing_or_doubled_id_is_an_error_that_names_it(files, method, change, said):
    file = files["dense"].with_name(f"{method}.parquet")
    pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(LongtailError, match=said):
        accuracy.read(file.with_name("questions.parquet"), files)


def test_accuracy_by_both_rules_and_its_correlation_with_log_popularity(answers):
    row = accuracy.accuracy(answers, 0, 200)[0]
    assert (row["method"], row["questions"], row["popularity_known"]) == ("closed_book", N, N)
    assert (row["substring"].value, row["word"].value) == (0.5, 0.45)
    assert row["correlation"].value == pytest.approx(np.corrcoef(np.log10(answers.popularity), NUMBER >= 10)[0, 1])
    assert row["correlation"].sign == 1


def test_every_relation_has_its_own_correlation(answers):
    rows = {(row["method"], row["relation"]): row for row in accuracy.by_relation(answers, 0, 100)}
    odd = NUMBER % 2 == 1
    expected = np.corrcoef(np.log10(answers.popularity[odd]), NUMBER[odd] < 15)[0, 1]
    assert rows["dense", "P1"]["correlation"].value == pytest.approx(expected)
    assert rows["dense", "P1"]["substring"].value == 0.7
    assert rows["closed_book", "P2"]["questions"] == 10
    few = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    assert math.isnan(accuracy.by_relation(few, 0, 10)[0]["correlation"].value)  # 8 questions are too few


def test_deciles_hold_equal_numbers_and_ties_stay_together(answers):
    rows = accuracy.by_popularity(answers, 0, 50)
    closed, dense = rows[:10], rows[10:]
    assert [row["questions"] for row in closed] == [2] * 10
    assert [row["substring"].value for row in closed] == [0] * 5 + [1] * 5
    assert [row["gain"].value for row in dense] == [1] * 5 + [0, 0, -0.5, -1, -1]
    tied = replace(answers, popularity=np.repeat([1.0, 2.0], 10))
    assert [row["questions"] for row in accuracy.by_popularity(tied, 0, 10)] == [10, 10] * 2


def test_a_question_at_the_edge_of_two_deciles_is_in_the_upper_one_alone(answers):
    """The second and third question tie, so their rank is 2 of 20."""
    tied = replace(answers, popularity=np.array([1.0, 2, 2, *range(4, 21)]))
    assert [row["questions"] for row in accuracy.by_popularity(tied, 0, 10)[:10]] == [1, 3] + [2] * 8


def test_ranks_are_among_the_questions_whose_popularity_is_known(answers):
    unknown = replace(answers, popularity=np.where(NUMBER < 10, np.nan, answers.popularity))
    np.testing.assert_allclose(unknown.ranks, [*[np.nan] * 10, *(np.arange(10) + 0.5) / 10])


def test_intervals_draw_subjects_and_not_questions(answers):
    two = replace(answers, subjects=np.where(NUMBER < 10, "s1", "s2").astype(object))
    right = two.by_method["closed_book"].correct
    found = two.means({"right": (right, np.ones(N, bool))}, 3, 200)["right"]
    assert found == intervals.mean(right, draws.generator(3, "popqa bootstrap"), 200, two.subjects)
    assert (found.low, found.high) == (0, 1)


def test_questions_without_popularity_are_in_no_bin(answers):
    unknown = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    for rows in (accuracy.by_popularity(unknown, 0, 10), accuracy.by_relative_popularity(unknown)):
        assert sum(row["questions"] for row in rows if row["method"] == "dense") == 16
    nobody = replace(answers, popularity=np.full(N, np.nan))
    assert accuracy.by_popularity(nobody, 0, 10) == accuracy.by_relative_popularity(nobody) == []


def test_fifths_are_those_of_all_relations_and_an_empty_cell_has_no_row(answers):
    split = replace(answers, relations=np.where(NUMBER < 6, "P1", "P2").astype(object))
    rows = [row for row in accuracy.by_relation_and_popularity(split, 0, 20) if row["method"] == "closed_book"]
    assert [(row["relation"], row["fifth"], row["questions"]) for row in rows] == [
        ("P1", 1, 4),
        ("P1", 2, 2),
        ("P2", 2, 2),
        ("P2", 3, 4),
        ("P2", 4, 4),
        ("P2", 5, 4),
    ]
    assert (rows[1]["least"], rows[1]["most"], rows[3]["substring"].value) == (50.0, 80.0, 0.5)
    dense = [row for row in accuracy.by_relation_and_popularity(split, 0, 20) if row["method"] == "dense"]
    assert [row["gain"].value for row in dense] == [1.0, 1.0, 1.0, 0.5, -0.25, -1.0]


def test_relative_popularity_compares_within_a_relation(answers):
    """Two relations, one a hundred times as popular as the other: the bins are the same for both."""
    twice = replace(
        answers,
        relations=np.repeat(["P1", "P2"], 10).astype(object),
        popularity=np.concatenate([10.0 ** np.arange(10), 10.0 ** (np.arange(10) + 2)]),
    )
    rows = [row for row in accuracy.by_relative_popularity(twice) if row["method"] == "closed_book"]
    assert sum(row["questions"] for row in rows) == N
    assert all(row["substring"].value == 0.5 for row in rows)  # as many of one relation (wrong) as of the other (right)
    z = (np.arange(10) - 4.5) / np.arange(10).std()
    assert rows[0]["relative_popularity"] == pytest.approx(z[z < -1.5].mean())


def test_what_is_not_known_is_left_out_of_a_mean(answers):
    values = np.where(NUMBER < 3, np.nan, NUMBER.astype(float))
    found = answers.means({"some": (values, NUMBER < 6), "none": (values, NUMBER < 3)}, 0, 50)
    assert found["some"].value == pytest.approx(4.0)
    assert found["some"].low < 4.0 < found["some"].high
    assert math.isnan(found["none"].value)


def test_a_file_that_does_not_say_whole_words_has_no_accuracy_by_them(files):
    answer_tables.write_answers(files["dense"], NUMBER < 15, correct_word=[None] * N)
    row = accuracy.accuracy(accuracy.read(files["dense"].with_name("questions.parquet"), files), 0, 10)[1]
    assert row["substring"].value == 0.75
    assert math.isnan(row["word"].value)
