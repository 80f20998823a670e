"""Where words begin and end, for texts that are shown in part."""

import pytest

from pipelines.language import words


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("a poet of Velm", 14, "a poet of Velm"),
        ("a poet of Velm", 13, "a poet of …"),
        ("a poet of Velm", 6, "a poet …"),
        ("a poet, of Velm", 6, "a poet …"),
        ("a poet of Velm", 5, "a …"),
        ("unbroken", 3, "unb …"),
        ("\u6771\u4eac\u90fd\u306f", 2, "\u6771\u4eac …"),
        ("x cafe\u0301s", 6, "x …"),
    ],
)
def test_a_text_that_is_shown_in_part_ends_with_a_whole_word(text, most, shown):
    assert words.beginning(text, most) == shown
