"""What pages say in words: ranges, marks."""

import unicodedata

import pytest

from pipelines.explorer import pages


@pytest.mark.parametrize(
    ("text", "answers", "marks"),
    [
        ("In New York City.", ["York", "New York", "New York City"], ["New York City"]),
        ("W is in New York, W. too", ["W"], ["W", "W"]),
        ("a POET, poets", ["poet"], ["POET"]),
        ("C++ (x) [y]", ["C++", "[y]", "x) ["], ["C++", "[y]"]),
        ("nothing here", ["", "  "], []),
        ("nothing here", [], []),
        (unicodedata.normalize("NFD", "Ødegård café"), ["café"], ["café"]),
    ],
)
def test_answers_are_marked_where_they_stand_whole_and_the_text_stays(text, answers, marks):
    parts = pages.marked(text, answers)
    assert "".join(parts) == unicodedata.normalize("NFC", text)
    assert parts[1::2] == marks


def test_ranges_are_said_in_words():
    said = {
        "1000-3162": "1,000 to 3,162",
        "1000-": "1,000 or more",
        "-99": "up to 99",
        "0-3": "0 to 3",
        "-": "0 or more",
    }
    assert {name: pages.range_of(name) for name in said} == said
    assert pages.range_of("unknown") == "unknown"
