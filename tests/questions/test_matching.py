"""Right or wrong: the published substring rule with its flaw, whole words, exact match as in SQuAD, and namesakes."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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


PIECES = ["a", "an", "the", "A", "The", "U.S.", "L'\u00c9tranger", "e\u0301", "caf\u00e9", "\u201cA\u201d"]
PIECES += ["\u2014", "-", "B-52", "_", "42", "\u6771"]


def squad(text: str) -> str:
    """By its definition: lower case, then punctuation goes, then articles that are whole words, then spaces."""
    kept, word = [], ""
    for c in [*(c for c in text.lower() if c not in string.punctuation), " "]:
        if c.isalnum():
            word += c
        else:
            kept += ["" if word in ("a", "an", "the") else word, " " if word in ("a", "an", "the") else "", c]
            word = ""
    return " ".join("".join(kept).split())


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The U.S.A.", "usa"),
        ("B-52s, the band", "b52s band"),
        ("Theatre an anthem", "theatre anthem"),
        ("L'\u00c9tranger", "l\u00e9tranger"),
        ("na\u00efve  caf\u00e9\t\u6771\u4eac", "na\u00efve caf\u00e9 \u6771\u4eac"),
        ("\u201cThe Who\u201d", "\u201c who\u201d"),  # typographic quotes are no punctuation, and part words
        ("the\u2014end", "\u2014end"),
        ("A$AP", "aap"),
        ("a.b.c", "abc"),
        ("an_other", "another"),
        ("$1,000", "1000"),
        ("\u0130stanbul", "i\u0307stanbul"),
        ("5\u20137", "5\u20137"),
    ],
)
def test_tricky_texts_have_squads_normal_form(text, normal):
    assert matching.normalise(text) == squad(text) == normal


@given(st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, " ", ",", "."])).map("".join)))
@example("a\u0301 la carte")
def test_any_text_has_squads_normal_form_if_that_is_not_empty(text):
    assert matching.normalise(text) == (squad(text) or text.lower().strip())


def test_an_answer_that_is_an_article_is_kept_apart():
    """SQuAD's normalisation leaves nothing of it, so that "" or "the" would be as right."""
    assert matching.exact("A", ["A"])
    assert matching.exact("the the", ["The The"])
    assert not any(matching.exact(said, ["A"]) for said in ("", "the", "an", "B"))
