"""Accuracy by method, relation and popularity on small tables worked out by hand."""

import csv
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import answer_tables
import numpy as np
import pyarrow as pa
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


def test_correlations_of_many_relations_hold_the_columns_of_one_at_a_time():
    """A million questions of sixteen relations took 4 GB when all columns were held at once."""
    n, relations = 200_000, 40
    subjects, correct = np.array([f"Q{i}" for i in range(n)], dtype=object), np.arange(n) % 3 == 0
    method = accuracy.Method(correct.astype(float), *[np.full(n, np.nan)] * 8)
    of = np.array([f"P{i % relations}" for i in range(n)], dtype=object)
    popularity = 1.0 + np.arange(n) * 7919 % n
    answers = accuracy.Answers(subjects, of, subjects, popularity, np.zeros(n, bool), {"a": method})
    tracemalloc.start()
    rows = accuracy.by_relation(answers, 0, 5)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(rows) == relations
    assert all(math.isfinite(row["correlation"].low) for row in rows)
    assert held < 200e6, "all columns of all relations are 384 MB"


def test_ranks_are_among_the_questions_whose_popularity_is_known(answers):
    unknown = replace(answers, popularity=np.where(NUMBER < 10, np.nan, answers.popularity))
    np.testing.assert_allclose(unknown.ranks, [*[np.nan] * 10, *(np.arange(10) + 0.5) / 10])


def test_intervals_draw_subjects_and_not_questions(answers):
    two = replace(answers, subjects=np.where(NUMBER < 10, "s1", "s2").astype(object))
    right = two.by_method["closed_book"].correct
    found = two.means({"right": (right, np.ones(N, bool))}, 3, 200)["right"]
    assert found == intervals.mean(right, draws.generator(3, "popqa bootstrap"), 200, two.subjects)
    assert (found.low, found.high) == (0, 1)


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


def test_questions_of_one_subject_and_relation_count_once_with_their_mean(answers):
    """Dense is right below 15: question 14 is, 15 to 17 are not. As one they are a quarter right, of 17 in all."""
    four = (NUMBER >= 14) & (NUMBER < 18)
    same = replace(
        answers,
        subjects=np.where(four, "s", answers.subjects).astype(object),
        relations=np.where(four, "P1", answers.relations).astype(object),
    )
    rows = {(row["method"], row["group"]): row for row in accuracy.by_group(same, 0, 100)}
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
    rows = {(row["method"], row["group"]): row for row in accuracy.by_group(answers, 0, 10)}
    assert (rows["dense", "ambiguous"]["questions"], rows["dense", "ambiguous"]["substring"].value) == (2, 1.0)
    unambiguous = rows["dense", "unambiguous"]
    assert (unambiguous["questions"], unambiguous["substring"].value) == (18, pytest.approx(13 / 18))


def test_a_group_without_questions_has_no_row(answers):
    assert {row["group"] for row in accuracy.by_group(answers, 0, 10)} == {
        accuracy.ONCE,
        "unambiguous",
        "least popular",
    }


def test_the_least_popular_are_the_papers_number_or_its_share(answers):
    """4,000 of 14,267: 6 of 20, and 4,000 of more."""
    assert accuracy.least_popular(answers).tolist() == list(range(6))
    rows = {(row["method"], row["group"]): row for row in accuracy.by_group(answers, 0, 10)}
    assert (rows["dense", "least popular"]["questions"], rows["dense", "least popular"]["word"].value) == (6, 1.0)
    downwards = replace(answers, popularity=np.where(NUMBER < 2, np.nan, 1000.0 - NUMBER))
    assert accuracy.least_popular(downwards).tolist() == [19, 18, 17, 16, 15]
    tied = replace(answers, popularity=np.full(N, 5.0))
    assert accuracy.least_popular(tied, 3).tolist() == [0, 1, 2]
    assert len(accuracy.least_popular(downwards, 19)) == 18, "never one of unknown popularity"
    published = answers.take(np.arange(14_267) % N)
    assert len(accuracy.least_popular(published)) == 4_000
    assert len(accuracy.least_popular(answers.take(np.arange(20_000) % N))) == 4_000


def test_the_published_questions_that_are_doubled_or_ambiguous(real, tmp_path):
    """Of 14,267 questions 467 ask again for a relation of a subject; 1,385 have the text of another subject's."""
    with (real / "popqa/popQA.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    columns = {name: [row[name] for row in rows] for name in ("subj", "s_uri", "question")}
    columns |= {"question_id": [row["id"] for row in rows], "relation": [row["prop"] for row in rows]}
    columns["s_pop"] = [int(row["s_pop"]) for row in rows]
    pq.write_table(pa.table(columns), tmp_path / "questions.parquet")
    right = np.ones(len(rows), bool)
    answer_tables.write_answers(tmp_path / "dense.parquet", right, question_id=columns["question_id"])
    published = accuracy.read(tmp_path / "questions.parquet", {"dense": tmp_path / "dense.parquet"})
    groups = {row["group"]: row["questions"] for row in accuracy.by_group(published, 0, 10)}
    assert groups[accuracy.ONCE] == accuracy.OF_PUBLISHED - 467
    assert (groups["ambiguous"], groups["unambiguous"]) == (1_385, 12_882)
    assert groups["least popular"] == accuracy.LEAST_POPULAR
