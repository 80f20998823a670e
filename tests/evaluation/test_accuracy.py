"""Accuracy by method, relation and popularity on small tables worked out by hand."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import draws, intervals
from pipelines.evaluation import accuracy

N = 20
NUMBER = np.arange(N)


def test_rows_are_joined_by_id_and_what_is_not_said_is_not_known(answers):
    assert answers.popularity.tolist() == [10 * (i + 1) for i in range(N)]
    assert answers.relations[:3].tolist() == ["P2", "P1", "P2"]
    assert answers.by_method["closed_book"].correct.tolist() == [0.0] * 10 + [1.0] * 10
    assert answers.by_method["closed_book"].calls.tolist() == [1.0] * N
    assert np.isnan(answers.by_method["dense"].calls).all()
    silent = replace(answers, by_method={"dense": replace(answers.by_method["dense"], word=np.full(N, np.nan))})
    assert math.isnan(accuracy.accuracy(silent, 0, 10)[0]["word"].value)


def test_accuracy_by_both_rules_and_its_correlation_with_log_popularity_also_by_relation(answers):
    row, logs = accuracy.accuracy(answers, 0, 200)[0], np.log10(answers.popularity)
    assert (row["method"], row["questions"], row["popularity_known"]) == ("closed_book", N, N)
    assert (row["substring"].value, row["word"].value) == (0.5, 0.45)
    assert row["correlation"].value == pytest.approx(np.corrcoef(logs, NUMBER >= 10)[0, 1])
    assert row["correlation"].sign == 1
    rows = {(row["method"], row["relation"]): row for row in accuracy.by_relation(answers, 0, 100)}
    odd = NUMBER % 2 == 1
    expected = np.corrcoef(logs[odd], NUMBER[odd] < 15)[0, 1]
    assert rows["dense", "P1"]["correlation"].value == pytest.approx(expected)
    assert (rows["dense", "P1"]["substring"].value, rows["closed_book", "P2"]["questions"]) == (0.7, 10)
    few = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    assert math.isnan(accuracy.by_relation(few, 0, 10)[0]["correlation"].value)  # 8 questions are too few


def test_correlations_of_many_relations_hold_the_columns_of_one_at_a_time():
    n, relations = 200_000, 40
    subjects, known = np.array([f"Q{i}" for i in range(n)], dtype=object), 1.0 + np.arange(n) * 7919 % n
    method = accuracy.Method((np.arange(n) % 3 == 0).astype(float), *[np.full(n, np.nan)] * 8)
    of = np.array([f"P{i % relations}" for i in range(n)], dtype=object)
    answers = accuracy.Answers(subjects, of, subjects, known, np.zeros(n, bool), {"a": method})
    tracemalloc.start()
    rows = accuracy.by_relation(answers, 0, 5)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(rows) == relations
    assert all(math.isfinite(row["correlation"].low) for row in rows)
    assert held < 200e6, "all columns of all relations are 384 MB"


def test_ranks_and_means_are_of_what_is_known_and_intervals_draw_subjects(answers):
    unknown = replace(answers, popularity=np.where(NUMBER < 10, np.nan, answers.popularity))
    np.testing.assert_allclose(unknown.ranks, [*[np.nan] * 10, *(np.arange(10) + 0.5) / 10])
    values = np.where(NUMBER < 3, np.nan, NUMBER.astype(float))
    found = answers.means({"some": (values, NUMBER < 6), "none": (values, NUMBER < 3)}, 0, 50)
    assert found["some"].value == pytest.approx(4.0)
    assert found["some"].low < 4.0 < found["some"].high
    assert math.isnan(found["none"].value)
    two = replace(answers, subjects=np.where(NUMBER < 10, "s1", "s2").astype(object))
    right = two.by_method["closed_book"].correct
    found = two.means({"right": (right, np.ones(N, bool))}, 3, 200)["right"]
    assert found == intervals.mean(right, draws.generator(3, "popqa bootstrap"), 200, two.subjects)
    assert (found.low, found.high) == (0, 1)


def test_questions_of_one_subject_and_relation_count_once_with_their_mean(answers):
    """Dense is right below 15: question 14 is, 15 to 17 are not. As one they are a quarter right, of 17 in all."""
    four = (NUMBER >= 14) & (NUMBER < 18)
    subjects = np.where(four, "s", answers.subjects).astype(object)
    same = replace(answers, subjects=subjects, relations=np.where(four, "P1", answers.relations).astype(object))
    rows = {(row["method"], row["group"]): row for row in accuracy.by_group(same, 0, 100)}
    assert {group for _, group in rows} == {accuracy.ONCE, "unambiguous", "least popular"}, "none without questions"
    once = rows["dense", accuracy.ONCE]
    assert once["questions"] == 17
    assert once["substring"].value == once["word"].value == pytest.approx((14 + 1 / 4) / 17)
    assert once["substring"].low < once["substring"].value < once["substring"].high
    assert rows["closed_book", accuracy.ONCE]["word"].value == pytest.approx((3 + 1 + 2) / 17)
    other = replace(same, relations=np.where(NUMBER < 16, "P1", "P2").astype(object))
    assert accuracy.by_group(other, 0, 10)[0]["questions"] == 18, "a subject's other relation is another question"


def test_ambiguous_questions_are_those_whose_text_asks_about_several_subjects(files):
    """Questions 0 and 1 ask the same about two subjects; 2 and 3 the same about one, by two ids."""
    path = files["dense"].with_name("questions.parquet")
    table = pq.read_table(path).sort_by("question_id").to_pydict()
    table["question"][1] = table["question"][0]
    table["question"][3], table["s_uri"][3] = table["question"][2], table["s_uri"][2]
    pq.write_table(pa.table(table), path)
    answers = accuracy.read(path, files)
    assert answers.ambiguous.tolist() == [True, True] + [False] * 18
    rows = {row["group"]: row for row in accuracy.by_group(answers, 0, 10) if row["method"] == "dense"}
    assert (rows["ambiguous"]["questions"], rows["ambiguous"]["substring"].value) == (2, 1.0)
    assert (rows["unambiguous"]["questions"], rows["unambiguous"]["substring"].value) == (18, pytest.approx(13 / 18))


def test_the_least_popular_are_the_papers_number_or_its_share(answers):
    assert accuracy.least_popular(answers).tolist() == list(range(6))
    rows = {(row["method"], row["group"]): row for row in accuracy.by_group(answers, 0, 10)}
    assert (rows["dense", "least popular"]["questions"], rows["dense", "least popular"]["word"].value) == (6, 1.0)
    downwards = replace(answers, popularity=np.where(NUMBER < 2, np.nan, 1000.0 - NUMBER))
    assert accuracy.least_popular(downwards).tolist() == [19, 18, 17, 16, 15]
    assert accuracy.least_popular(replace(answers, popularity=np.full(N, 5.0)), 3).tolist() == [0, 1, 2]
    assert len(accuracy.least_popular(downwards, 19)) == 18, "never one of unknown popularity"
    for questions in (14_267, 20_000):
        assert len(accuracy.least_popular(answers.take(np.arange(questions) % N))) == 4_000
