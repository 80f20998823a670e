"""Numbers in cells: with a point before decimals, and never two numbers in one text."""

import pytest

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import read_numbers


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["12.345", "12.5"], [12.345, 12.5]),
        (["1e4", "12.345e3", "1.5E3"], [10000, 12345, 1500]),
        (["0.123", "12.345"], [0.123, 12.345]),
        (["1234.567", "12.345"], [1234.567, 12.345]),
        ([12.345, 7, ".5", "5."], [12.345, 7, 0.5, 5]),
    ],
)
def test_numbers_have_a_point_before_decimals(cells, numbers):
    assert read_numbers(cells, "") == numbers


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["917", "12.345"], "is 12.345, which is 12345 in one language and 12.345 in another"),
        (["917", "-12.345"], "write -12345 or -12.3450"),
        (["917", "12,345"], "'12,345', expected a number"),
        (["12.5", "12,5"], "'12,5', expected a number"),
        (["917", "12 34"], "or nothing where it is not known; name another"),
        (["917", "1.23.456"], "'1.23.456', expected a number"),
        (["917", "1.2k"], "'1.2k', expected a number"),
    ],
)
def test_an_ambiguous_number_is_refused_by_its_row(cells, said):
    with pytest.raises(LongtailError) as refused:
        read_numbers(cells, "a.csv: views", "; name another")
    assert str(refused.value).startswith("a.csv: views of row 2 is ")
    assert said in str(refused.value)


def test_what_tables_write_for_an_unknown_number_is_unknown():
    found = read_numbers(["NA", "#N/A", r"\N", "null", "12", None, ""], "s_pop")
    assert [value for value in found if value == value] == [12]
