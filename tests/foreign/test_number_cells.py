"""Numbers in cells: which marks group thousands, which begin decimals, and when a column does not say it."""

import pytest

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import read_numbers


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["12.345", "12.5"], [12.345, 12.5]),
        (["12.345", "1.234.567", "917"], [12345, 1234567, 917]),
        (["12,345", "1,234,567"], [12345, 1234567]),
        (["12,345", "12.5"], [12345, 12.5]),
        (["12.345", "1.234,5"], [12345, 1234.5]),
        (["12,5", "1.234"], [12.5, 1234]),
        (["1,234.5", "-1,234.25"], [1234.5, -1234.25]),
        (["1e4", "12.345e3", "1.5E3"], [10000, 12345, 1500]),
        (["0.123", "12.345"], [0.123, 12.345]),
        (["1234.567", "12.345"], [1234.567, 12.345]),
        ([12.345, 7, ".5", "5."], [12.345, 7, 0.5, 5]),
    ],
)
def test_a_mark_is_read_as_the_column_shows_it(cells, numbers):
    assert read_numbers(cells, "") == numbers


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            ["917", "12.345"],
            "is 12.345, which is 12345 in one language and 12.345 in another, and no row says which; write",
        ),
        (
            ["917", "12,345"],
            "is 12,345, which is 12345 in one language and 12.345 in another, and no row says which; write",
        ),
        (["917", "-12.345"], "write -12345 or -12.3450"),
        (
            ["917", "12 34"],
            "'12 34', expected a number, or nothing where it is not known; name another",
        ),
        (["917", "1.23.456"], "'1.23.456', expected a number"),
        (["917", "1,234,5"], "'1,234,5', expected a number"),
        (["917", "1.234,567.8"], "'1.234,567.8', expected a number"),
        (["917", "1.2k"], "'1.2k', expected a number"),
    ],
)
def test_a_number_that_could_be_two_or_is_none_is_refused_by_its_row(cells, said):
    with pytest.raises(LongtailError) as refused:
        read_numbers(cells, "a.csv: views", "; name another")
    assert str(refused.value).startswith("a.csv: views of row 2 is ")
    assert said in str(refused.value)


def test_two_ways_to_write_numbers_in_one_column_are_refused():
    with pytest.raises(
        LongtailError,
        match=r"v is 12\.5 in row 1 and 12,5 in row 3, expected one way to write numbers",
    ):
        read_numbers(["12.5", "1", "12,5"], "v")


def test_what_tables_write_for_an_unknown_number_is_unknown():
    found = read_numbers(["NA", "#N/A", r"\N", "null", "12", None, ""], "s_pop")
    assert [value for value in found if value == value] == [12]
