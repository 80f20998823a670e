"""Twelve months by `longtail schedule`, with all that goes wrong in a year."""

import pytest
from year import YEAR, Year

MONTHS = 3
pytestmark = pytest.mark.slow


@pytest.fixture
def year(root, wikimedia, databases, tmp_path):
    wikimedia.version = '"one"'
    tries = tuple(attempt for attempt in YEAR if attempt.month <= MONTHS)
    year = Year(tmp_path, root, wikimedia, databases, tries)
    yield year
    year.close()


def test_a_year_lands_month_by_month(year):
    year.play()
    for (state, message), attempt in zip(year.states(), year.tries, strict=True):
        print(attempt, state, message)
    assert 0
