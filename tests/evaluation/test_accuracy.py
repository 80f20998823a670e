"""Accuracy by method, relation, popularity and its bins, on small tables worked out by hand."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import draws, intervals
from pipelines.evaluation import accuracy, answer_sets, popularity_bins
from pipelines.questions.guessable import Guesses

N = 20
NUMBER = np.arange(N)


def test_rows_are_joined_by_id_and_what_is_not_said_is_not_known(answers):
    assert answers.popularity.tolist() == [10 * (i + 1) for i in range(N)]
    assert answers.relations[:3].tolist() == ["P2", "P1", "P2"]
    assert answers.by_method["closed_book"].correct.tolist() == [0.0] * 10 + [1.0] * 10
    assert answers.by_method["closed_book"].lm_calls.tolist() == [1.0] * N
    assert np.isnan(answers.by_method["dense"].lm_calls).all()
    silent = replace(
        answers,
        by_method={"dense": replace(answers.by_method["dense"], correct_word=np.full(N, np.nan))},
    )
    assert math.isnan(accuracy.accuracy(silent)[0]["word"].value)


def test_accuracy_is_correlated_with_log_popularity(answers):
    row, logs = accuracy.accuracy(answers)[0], np.log10(answers.popularity)
    assert (row["method"], row["questions"], row["popularity_known"]) == ("closed_book", N, N)
    assert (row["substring"].value, row["word"].value) == (0.5, 0.45)
    assert row["correlation"].value == pytest.approx(np.corrcoef(logs, NUMBER >= 10)[0, 1])
    assert row["correlation"].sign == 1
    rows = {(row["method"], row["relation"]): row for row in accuracy.by_relation(answers)}
    odd = NUMBER % 2 == 1
    expected = np.corrcoef(logs[odd], NUMBER[odd] < 15)[0, 1]
    assert rows["dense", "P1"]["correlation"].value == pytest.approx(expected)
    assert (rows["dense", "P1"]["substring"].value, rows["closed_book", "P2"]["questions"]) == (
        0.7,
        10,
    )
    few = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    assert math.isnan(accuracy.by_relation(few)[0]["correlation"].value)  # 8 questions are too few


def test_ranks_and_means_are_of_what_is_known(answers):
    """Intervals draw subjects."""
    unknown = replace(answers, popularity=np.where(NUMBER < 10, np.nan, answers.popularity))
    np.testing.assert_allclose(unknown.ranks, [*[np.nan] * 10, *(np.arange(10) + 0.5) / 10])
    values = np.where(NUMBER < 3, np.nan, NUMBER / 10)
    found = answers.means({"some": (values, NUMBER < 6), "none": (values, NUMBER < 3)})
    assert found["some"].value == pytest.approx(0.4)
    assert found["some"].low < 0.4 < found["some"].high
    assert math.isnan(found["none"].value)
    two = replace(
        answers, subjects=np.where(NUMBER < 10, "s1", "s2").astype(object), seed=3, resamples=200
    )
    right = two.by_method["closed_book"].correct
    found = two.means({"right": (right, np.ones(N, bool))})["right"]
    whole = intervals.mean(right, draws.generator(3, "popqa bootstrap"), 200, two.subjects)
    assert found == whole.within(-1, 1)
    assert (whole.high, found.high) == (
        pytest.approx(0.5 + 0.5 * 12.7062 * 2**0.5 / 1.95996, rel=1e-4),
        1,
    )


def by_group(answers: answer_sets.Answers, **guesses) -> list[dict]:
    nothing = {"usual": np.full(N, "x", object)} | dict.fromkeys(
        ("named", *accuracy.GUESSED[1:3]), np.zeros(N)
    )
    return accuracy.by_group(answers, Guesses(**nothing | guesses), {})


def test_accuracy_without_guessable_questions_is_shown(answers):
    """Questions 0 and 1 name an answer; the usual answer is right on 1 and 18, by the published
    rule on 19 as well."""
    named, word, right = (
        np.isin(NUMBER, these).astype(float) for these in ([0, 1], [1, 18], [1, 18, 19])
    )
    guessed = {"named": named, "majority": right, "majority_word": word}
    rows = {
        row["group"]: row for row in by_group(answers, **guessed) if row["method"] == "closed_book"
    }
    found = {group: (rows[group]["questions"], rows[group]["substring"].value) for group in rows}
    assert (found.pop("names an answer"), found.pop("usual answer")) == ((2, 0), (2, 0.5))
    assert found["guessable"] == (3, pytest.approx(1 / 3))
    assert found["not guessable"] == (17, pytest.approx(9 / 17))
    assert {"guessable", "names an answer"}.isdisjoint(row["group"] for row in by_group(answers))
    usual = np.where(NUMBER < 17, "red", "blue").astype(object)
    rows = accuracy.guessable(answers, Guesses(usual=usual, **guessed))
    assert [(row["relation"], row["usual"], row["questions"]) for row in rows] == [
        *(("", "", 20), ("P1", "red", 10), ("P2", "red", 10))
    ]
    assert [rows[0][name].value for name in accuracy.GUESSED] == pytest.approx(
        [0.1, 0.15, 0.1, 0.15]
    )
    assert [rows[1][name].value for name in accuracy.GUESSED] == pytest.approx([0.1, 0.2, 0.1, 0.1])
    assert [rows[0][f"closed_book{rule}"].value for rule in ("", "_word")] == [0.5, 0.45]


def test_ambiguous_questions_ask_about_several_subjects(files):
    """Questions 0 and 1 ask the same about two subjects; 2 and 3 the same about one, by two ids."""
    path = files["dense"].with_name("questions.parquet")
    table = pq.read_table(path).sort_by("question_id").to_pydict()
    table["question"][1] = table["question"][0]
    table["question"][3], table["s_uri"][3] = table["question"][2], table["s_uri"][2]
    pq.write_table(pa.table(table), path)
    answers = answer_sets.read_answered(path, files, seed=0, resamples=10)
    assert answers.ambiguous.tolist() == [True, True] + [False] * 18
    rows = {row["group"]: row for row in by_group(answers) if row["method"] == "dense"}
    assert (rows["ambiguous"]["questions"], rows["ambiguous"]["substring"].value) == (2, 1.0)
    assert (rows["unambiguous"]["questions"], rows["unambiguous"]["substring"].value) == (
        18,
        pytest.approx(13 / 18),
    )


def test_the_least_popular_are_the_papers_number_or_its_share(answers):
    assert accuracy.least_popular(answers).tolist() == list(range(6))
    rows = {(row["method"], row["group"]): row for row in by_group(answers)}
    assert (
        rows["dense", "least popular"]["questions"],
        rows["dense", "least popular"]["word"].value,
    ) == (6, 1.0)
    downwards = replace(answers, popularity=np.where(NUMBER < 2, np.nan, 1000.0 - NUMBER))
    assert accuracy.least_popular(downwards).tolist() == [19, 18, 17, 16, 15]
    equal = replace(answers, popularity=np.full(N, 5.0))
    assert accuracy.least_popular(equal).tolist() == list(range(6))
    for questions in (14_267, 20_000):
        assert len(accuracy.least_popular(answers.take(np.arange(questions) % N))) == 4_000


by_decile = popularity_bins.by_decile
by_log_popularity = popularity_bins.by_log_popularity
by_relative_popularity = popularity_bins.by_relative_popularity


@pytest.fixture
def single(monkeypatch):
    """A bin may have a single question."""
    monkeypatch.setattr(popularity_bins, "FEWEST", 1)
    monkeypatch.setattr(popularity_bins, "LEAST", 1)


def many(
    answers: answer_sets.Answers, popularity: list[float], relations: list[str] | None = None
) -> answer_sets.Answers:
    """The answers again and again, with these popularities."""
    repeated = answers.take(np.arange(len(popularity)) % N)
    names = np.array(relations, object) if relations else repeated.relations
    return replace(repeated, popularity=np.array(popularity, float), relations=names)


def test_deciles_hold_equal_numbers_and_ties_stay_together(answers, single):
    rows = by_decile(answers)
    closed, dense = rows[:10], rows[10:]
    assert [row["questions"] for row in closed] == [2] * 10
    assert [row["substring"].value for row in closed] == [0] * 5 + [1] * 5
    assert [row["gain"].value for row in dense] == [1] * 5 + [0, 0, -0.5, -1, -1]
    for popularity, sizes in (
        (np.repeat([1.0, 2.0], 10), [10, 10]),
        # a tie's rank is 2 of 20, an edge: the upper decile
        (np.array([1.0, 2, 2, *range(4, 21)]), [1, 3] + [2] * 8),
    ):
        rows = by_decile(replace(answers, popularity=popularity))
        assert [row["questions"] for row in rows] == sizes * 2


def test_questions_without_popularity_are_in_no_bin(answers, single):
    unknown = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    relative = by_relative_popularity(unknown)
    for rows in (by_decile(unknown), by_log_popularity(unknown), relative):
        assert sum(row["questions"] for row in rows if row["method"] == "dense") == 16
    nobody = replace(answers, popularity=np.full(N, np.nan))
    assert by_decile(nobody) == by_log_popularity(nobody) == by_relative_popularity(nobody) == []


def test_bins_are_half_powers_of_ten(answers, single):
    views = [0, 1, 3, 4, 10, 31, 32, 99, 100, 100, 999, 1000, *[10**5] * 8]
    rows = by_log_popularity(replace(answers, popularity=np.array(views, float)))
    closed = [row for row in rows if row["method"] == "closed_book"]
    assert [row["bin"] for row in closed] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["questions"] for row in closed] == [3, 1, 2, 2, 2, 1, 1, 8]
    edges = 10 ** (np.arange(8) / 2)
    assert [row["least"] for row in closed] == pytest.approx(edges)
    assert [row["below"] for row in closed] == pytest.approx([*edges[1:], 10**5.5])
    assert [row["popularity"] for row in closed][:3] == [1, 4, 20.5]
    assert [row["substring"].value for row in closed] == [0, 0, 0, 0, 0, 1, 1, 1]
    dense = [row for row in rows if row["method"] == "dense"]
    several = [row["gain"].value for row in dense if row["questions"] > 1]
    assert several == [1, 1, 1, 1, -5 / 8]
    assert {row["gain"] for row in dense if row["questions"] == 1} == {intervals.NOTHING}, (
        "of one subject"
    )


def test_gains_are_by_both_rules_and_need_closed_book_answers(answers, single):
    """By whole words, dense is right below 5 only, and closed-book answers not at 12."""
    stricter = replace(answers.by_method["dense"], correct_word=(NUMBER < 5).astype(float))
    rows = by_decile(replace(answers, by_method=answers.by_method | {"dense": stricter}))
    gains = [
        (row["gain"].value, row["gain_word"].value) for row in rows if row["method"] == "dense"
    ]
    assert gains == [
        (1, 1),
        (1, 1),
        (1, 0.5),
        (1, 0),
        (1, 0),
        (0, -1),
        (0, -0.5),
        (-0.5, -1),
        (-1, -1),
        (-1, -1),
    ]
    alone = replace(answers, by_method={"dense": answers.by_method["dense"]})
    assert all(math.isnan(row["gain"].value) for row in by_decile(alone))


def test_neighbours_are_put_together_until_each_has_enough():
    merged = partial(popularity_bins.merged, least=40)
    assert merged([40, 39, 1, 100]) == [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert merged([50, 0, 0, 50, 3]) == [slice(0, 1), slice(1, 5)], (
        "the rest joins the last, and none is empty"
    )
    assert merged([10, 10, 10, 9]) == merged([]) == []
    assert merged([39, 0, 1]) == [slice(0, 3)]


def test_no_bin_has_fewer_than_forty_questions(answers):
    """Three bins of equal size stand in place of deciles."""
    least = {
        questions: popularity_bins.least_of(questions)
        for questions in (9, 30, 60, 119, 120, 14_000)
    }
    assert least == {9: 10, 30: 10, 60: 20, 119: 39, 120: 40, 14_000: 40}
    for questions, sizes in ((130, [43, 44, 43]), (60, [20] * 3), (20, [10] * 2), (9, [])):
        some = many(
            answers,
            [10 ** (i / 20) for i in range(questions)],
            [f"P{i % 2}" for i in range(questions)],
        )
        deciles = popularity_bins.by_decile(some)
        bins = popularity_bins.by_log_popularity(some)
        assert [row["questions"] for row in deciles if row["method"] == "dense"] == sizes
        found = [row["questions"] for row in bins if row["method"] == "dense"]
        assert questions != 130 or sum(found) == 130
        assert min(found, default=40) >= popularity_bins.least_of(questions)


def test_a_relation_has_bins_of_its_own(answers):
    """P1 has 40 unpopular and 40 popular questions, P2 30 and 30. A bin has 5 or more."""
    views = [1] * 40 + [100] * 40 + [1] * 30 + [100] * 30
    some = many(answers, views, ["P1"] * 80 + ["P2"] * 60)
    rows = popularity_bins.by_relation(some)
    closed = [row for row in rows if row["method"] == "closed_book"]
    bins = [(row["relation"], row["bin"], row["questions"], row["popularity"]) for row in closed]
    assert bins == [("P1", 1, 40, 1), ("P1", 5, 40, 100), ("P2", 1, 30, 1), ("P2", 5, 30, 100)]
    shares = [row["substring"].value for row in closed]
    assert shares == pytest.approx([1 / 2, 1 / 2, 1 / 3, 2 / 3])
    assert (closed[1]["least"], closed[1]["below"]) == (100, pytest.approx(10**2.5))
    assert len([row for row in rows if row["method"] == "dense"]) == 4
    rows = popularity_bins.by_relation(
        many(answers, [*views, 1e4, 1e4, 1e4, 1e4], ["P1"] * 140 + ["P2"] * 4)
    )
    assert [(row["bin"], row["questions"]) for row in rows[:2]] == [(1, 70), (5, 70)]
    assert {row["relation"] for row in rows} == {"P1"}, "four questions are too few"
    rows = popularity_bins.by_relation(many(answers, [*views, *[1e4] * 5]))
    assert {row["bin"] for row in rows} == {1, 5}


def test_relative_popularity_compares_within_a_relation(answers, single):
    """Two relations, one a hundred times as popular as the other: the bins are the same for
    both."""
    popularity = [10.0 ** (i % 10 + 2 * (i // 10)) for i in range(N)]
    relations = np.repeat(["P1", "P2"], 10)
    twice = replace(answers, relations=relations.astype(object), popularity=np.array(popularity))
    rows = [row for row in by_relative_popularity(twice) if row["method"] == "closed_book"]
    assert sum(row["questions"] for row in rows) == N
    # as many of one relation (wrong) as of the other (right)
    assert all(row["substring"].value == 0.5 for row in rows)
    z = (np.arange(10) - 4.5) / np.arange(10).std()
    assert rows[0]["relative_popularity"] == pytest.approx(z[z < -1.5].mean())


def test_small_bins_of_relative_popularity_are_left_out(answers):
    """Logs 0, 2 and 4 are -1.98, 0 and 1.98 deviations from their mean: bins of 40, 250 and 39
    questions."""
    some = many(answers, [1] * 40 + [100] * 250 + [10_000] * 39, ["P1"] * 329)
    closed = [row for row in by_relative_popularity(some) if row["method"] == "closed_book"]
    assert [(row["bin"], row["questions"]) for row in closed] == [(1, 40), (5, 250)]


def test_the_more_popular_of_two_questions_is_one_deviation_above(answers):
    """As floats, many such pairs miss it by a last digit, and so would be in the bin below."""
    views = [popularity for low in range(2, 42) for popularity in (low, 7 * low)]
    relations = [f"P{pair}" for pair in range(40) for _ in range(2)]
    pairs = many(answers, views, relations)
    closed = [row for row in by_relative_popularity(pairs) if row["method"] == "closed_book"]
    assert [(row["bin"], row["questions"]) for row in closed] == [(3, 40), (7, 40)]
