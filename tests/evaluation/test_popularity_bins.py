"""Bins of popularity on small tables worked out by hand: who is in which, and that none has too few questions."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pipelines.evaluation import accuracy, popularity_bins

N = 20
NUMBER = np.arange(N)
by_decile = partial(popularity_bins.by_decile, least=1)
by_log_popularity = partial(popularity_bins.by_log_popularity, least=1)
by_relative_popularity = partial(popularity_bins.by_relative_popularity, least=1)


def many(answers: accuracy.Answers, popularity: list[float], relations: list[str] | None = None) -> accuracy.Answers:
    """The answers again and again, with these popularities."""
    repeated = answers.take(np.arange(len(popularity)) % N)
    names = np.array(relations, object) if relations else repeated.relations
    return replace(repeated, popularity=np.array(popularity, float), relations=names)


def test_deciles_hold_equal_numbers_and_ties_stay_together(answers):
    rows = by_decile(answers, 0, 50)
    closed, dense = rows[:10], rows[10:]
    assert [row["questions"] for row in closed] == [2] * 10
    assert [row["substring"].value for row in closed] == [0] * 5 + [1] * 5
    assert [row["gain"].value for row in dense] == [1] * 5 + [0, 0, -0.5, -1, -1]
    for popularity, sizes in (
        (np.repeat([1.0, 2.0], 10), [10, 10]),
        (np.array([1.0, 2, 2, *range(4, 21)]), [1, 3] + [2] * 8),  # a tie's rank is 2 of 20, an edge: the upper decile
    ):
        rows = by_decile(replace(answers, popularity=popularity), 0, 10)
        assert [row["questions"] for row in rows] == sizes * 2


def test_questions_without_popularity_are_in_no_bin(answers):
    unknown = replace(answers, popularity=np.where(NUMBER < 4, np.nan, answers.popularity))
    for rows in (by_decile(unknown, 0, 10), by_log_popularity(unknown, 0, 10), by_relative_popularity(unknown)):
        assert sum(row["questions"] for row in rows if row["method"] == "dense") == 16
    nobody = replace(answers, popularity=np.full(N, np.nan))
    assert by_decile(nobody, 0, 10) == by_log_popularity(nobody, 0, 10) == by_relative_popularity(nobody) == []


def test_bins_are_half_powers_of_ten_and_a_question_at_an_edge_is_in_the_upper_one(answers):
    views = [0, 1, 3, 4, 10, 31, 32, 99, 100, 100, 999, 1000, *[10**5] * 8]
    rows = by_log_popularity(replace(answers, popularity=np.array(views, float)), 0, 20)
    closed = [row for row in rows if row["method"] == "closed_book"]
    assert [row["bin"] for row in closed] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["questions"] for row in closed] == [3, 1, 2, 2, 2, 1, 1, 8]
    edges = 10 ** (np.arange(8) / 2)
    assert [row["least"] for row in closed] == pytest.approx(edges)
    assert [row["below"] for row in closed] == pytest.approx([*edges[1:], 10**5.5])
    assert [row["popularity"] for row in closed][:3] == [1, 4, 20.5]
    assert [row["substring"].value for row in closed] == [0, 0, 0, 0, 0, 1, 1, 1]
    dense = [row for row in rows if row["method"] == "dense"]
    assert [row["gain"].value for row in dense] == [1, 1, 1, 1, 1, 0, 0, -5 / 8]


def test_gains_are_by_both_rules_and_need_closed_book_answers(answers):
    """By whole words, dense is right below 5 only, and closed-book answers not at 12."""
    stricter = replace(answers.by_method["dense"], word=(NUMBER < 5).astype(float))
    rows = by_decile(replace(answers, by_method=answers.by_method | {"dense": stricter}), 0, 20)
    gains = [(row["gain"].value, row["gain_word"].value) for row in rows if row["method"] == "dense"]
    assert gains == [(1, 1), (1, 1), (1, 0.5), (1, 0), (1, 0), (0, -1), (0, -0.5), (-0.5, -1), (-1, -1), (-1, -1)]
    alone = replace(answers, by_method={"dense": answers.by_method["dense"]})
    assert all(math.isnan(row["gain"].value) for row in by_decile(alone, 0, 10))


def test_neighbours_are_put_together_until_each_has_enough():
    merged = partial(popularity_bins.merged, least=40)
    assert merged([40, 39, 1, 100]) == [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert merged([50, 0, 0, 50, 3]) == [slice(0, 1), slice(1, 5)], "the rest joins the last, and none is empty"
    assert merged([10, 10, 10, 9]) == merged([]) == []
    assert merged([39, 0, 1]) == [slice(0, 3)]


def test_no_bin_of_any_table_has_fewer_than_forty_questions_and_few_questions_have_fewer_and_smaller_bins(answers):
    """Three bins of equal size stand in place of deciles."""
    least = {questions: popularity_bins.least_of(questions) for questions in (9, 30, 60, 119, 120, 14_000)}
    assert least == {9: 10, 30: 10, 60: 20, 119: 39, 120: 40, 14_000: 40}
    for questions, sizes in ((130, [43, 44, 43]), (60, [20] * 3), (20, [10] * 2), (9, [])):
        some = many(answers, [10 ** (i / 20) for i in range(questions)], [f"P{i % 2}" for i in range(questions)])
        deciles, *others = (popularity_bins.by_decile(some, 0, 10), popularity_bins.by_log_popularity(some, 0, 10))
        others += [popularity_bins.by_relation(some, 0, 10), popularity_bins.by_relative_popularity(some)]
        assert [row["questions"] for row in deciles if row["method"] == "dense"] == sizes
        for rows in others:
            found = [row["questions"] for row in rows if row["method"] == "dense"]
            assert questions != 130 or sum(found) == 130
            assert min(found, default=40) >= popularity_bins.least_of(questions)


def test_a_relation_has_bins_of_its_own(answers):
    """P1 has 40 unpopular and 40 popular questions, P2 30 and 30."""
    views = [1] * 40 + [100] * 40 + [1] * 30 + [100] * 30
    rows = popularity_bins.by_relation(many(answers, views, ["P1"] * 80 + ["P2"] * 60), 0, 10)
    closed = [row for row in rows if row["method"] == "closed_book"]
    bins = [(row["relation"], row["bin"], row["questions"], row["popularity"]) for row in closed]
    assert bins == [("P1", 1, 40, 1), ("P1", 2, 40, 100), ("P2", 1, 60, 50.5)]
    assert [row["substring"].value for row in closed] == [0.5, 0.5, 0.5]
    assert (closed[2]["least"], closed[2]["below"]) == (1, pytest.approx(10**2.5))
    assert [row["gain"].value for row in rows if row["method"] == "dense"] == [0.25] * 2 + [pytest.approx(0.25)]


def test_relative_popularity_compares_within_a_relation(answers):
    """Two relations, one a hundred times as popular as the other: the bins are the same for both."""
    popularity, relations = [10.0 ** (i % 10 + 2 * (i // 10)) for i in range(N)], np.repeat(["P1", "P2"], 10)
    twice = replace(answers, relations=relations.astype(object), popularity=np.array(popularity))
    rows = [row for row in by_relative_popularity(twice) if row["method"] == "closed_book"]
    assert sum(row["questions"] for row in rows) == N
    assert all(row["substring"].value == 0.5 for row in rows)  # as many of one relation (wrong) as of the other (right)
    z = (np.arange(10) - 4.5) / np.arange(10).std()
    assert rows[0]["relative_popularity"] == pytest.approx(z[z < -1.5].mean())
