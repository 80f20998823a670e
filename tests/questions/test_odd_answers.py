"""What is odd about a method's answers is said in one line each, and nothing where nothing is odd."""

import pytest

from pipelines.questions import matching, odd_answers
from pipelines.questions.odd_answers import find_oddities

NAMES = [f"Name {number}" for number in range(20)]
GOLDS = [[name] for name in NAMES]


def oddities(texts: list[str]) -> dict[str, int]:
    right = [matching.substring(*pair) for pair in zip(texts, GOLDS, strict=True)]
    return find_oddities(texts, GOLDS, right)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("assistant", odd_answers.SAME + "'assistant'"),
        ("", odd_answers.EMPTY),
        ("No idea.", odd_answers.REFUSALS),
        ("Sure! Here is the answer:", odd_answers.COLONS),
        ("Voici la r\u00e9ponse\uff1a", odd_answers.COLONS),
    ],
)
def test_what_most_answers_are_is_one_line(said, what):
    assert oddities([said] * 12 + NAMES[12:]) == {what: 12}


def test_answers_that_end_in_a_colon_may_differ():
    texts = [f"Answer number {number}:" for number in range(12)]
    assert oddities(texts + NAMES[12:]) == {odd_answers.COLONS: 12}


def test_nothing_is_said_where_nothing_is_odd():
    assert oddities(NAMES) == {}
    assert oddities([*NAMES[:16], "no", "", "No idea.", "Answer:"]) == {}
    assert find_oddities([], [], []) == {}
    assert find_oddities(["a"] * 3, GOLDS[:3], [False] * 3) == {}, "too few for a share"


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("Saint\u2011Denis", "Saint-Denis"),
        ("O\u2019Brien", "O'Brien"),
        ("Los\u00a0Angeles", "Los Angeles"),
        ("Los\u202fAngeles", "Los Angeles"),
        ("O'Brien", "O\u2019Brien"),
        ("1914-1918", "1914\u20131918"),
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("Bundes\u00adtag", "Bundestag"),
    ],
)
def test_an_answer_that_is_wrong_for_its_typography_alone_is_counted(said, gold):
    assert not matching.substring(said, [gold])
    assert find_oddities([said, "London"], [[gold]] * 2, [False] * 2) == {odd_answers.TYPOGRAPHY: 1}
    assert find_oddities([said], [["Paris"]], [False]) == {}
