"""Right or wrong: the published substring rule with its flaw, whole words, exact match, and namesakes."""

import pytest

from pipelines.questions import matching


def test_a_short_alias_is_a_substring_of_anything_but_no_word_of_it():
    assert matching.substring(" New York", ["W"])
    assert matching.substring(" New York", ["w"])
    assert not matching.word(" New York", ["W"])
    assert matching.word(" George W. Bush", ["W"])


@pytest.mark.parametrize(
    ("prediction", "answer", "right"),
    [
        ("a Politician", "politician", True),  # capitalised
        ("a politician", "Politician", True),  # lower-cased
        ("A POLITICIAN", "politician", False),  # no other case
        ("the united States", "United States", False),
        ("United states", "United States", True),  # capitalise() lowers the rest
        ("anything", "", False),  # an empty alias is no answer
        ("anything", " ", False),
    ],
)
def test_substring_knows_three_forms(prediction, answer, right):
    assert matching.substring(prediction, [answer]) is right


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("He was a POLITICIAN.", "politician", True),
        ("politicians", "politician", False),
        ("plays C++ well", "C++", True),
        ("born in Saint-Denis", "Saint-Denis", True),
        ("Zu\u0308rich", "Z\u00fcrich", True),  # composed and decomposed
        ("stra\u00dfe", "STRASSE", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("x", "", False),
    ],
)
def test_word(text, answer, right):
    assert matching.word(text, [answer]) is right


def test_exact_match_ignores_case_articles_punctuation_and_spaces():
    assert matching.normalise("The  Beatles, a band!") == "beatles band"
    assert matching.exact("the Who.", ["Who"])
    assert not matching.exact("Who are they", ["Who"])
    assert matching.exact("the the", ["The The"])
    assert not matching.exact("", ["The The"])


@pytest.mark.parametrize(
    ("title", "subject", "page", "namesake"),
    [
        ("Titanic (1997 film)", "Titanic", "Titanic", True),
        ("Titanic", "Titanic", "Titanic", False),
        ("Titanic", "Titanic", "Titanic (1953 film)", True),
        ("Springfield, Ohio", "Springfield", "Springfield, Illinois", True),
        ("Atlantic", "Titanic", "Titanic", False),
        ("titanic (Film)", "Ship", "Titanic", True),
    ],
)
def test_a_namesake_is_another_page_by_the_same_name(title, subject, page, namesake):
    assert matching.namesake(title, subject, page) is namesake
