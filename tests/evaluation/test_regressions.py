"""A figure that got worse than the last landed run's is named; one that moved within its interval
is not."""

import json
from pathlib import Path

import pytest

from pipelines.evaluation.regressions import find_regressions, keep_figures

FILE = Path("data/metrics/a.json")
OTHER = Path("data/metrics/b.json")
BEFORE = {
    "questions": 100,
    "loss": 2.0,
    "seconds": 1.0,
    "curve": [1, 2],
    "train_adaptive": {"value": 0.5},
    "pile": {"bpb_lsr_k10": {"value": 0.50, "low": 0.48, "high": 0.52}},
    "tasks": {"accuracy": {"value": 0.40, "low": 0.30, "high": 0.50}},
}


def write(figures: dict, file: Path = FILE) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures))


@pytest.fixture(autouse=True)
def before(workplace):
    write(BEFORE)
    keep_figures("sample", [FILE])


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        ({}, []),
        (
            {"tasks": {"accuracy": {"value": None, "low": None, "high": None}}},
            [],
        ),  # nothing could be measured
        ({"questions": 94}, ["questions"]),
        ({"questions": 96}, []),  # within the tolerance
        ({"loss": 2.2}, ["loss"]),
        ({"loss": 1.0}, []),
        ({"seconds": 9.0}, []),  # nobody said which way is better
        (
            {"pile": {"bpb_lsr_k10": {"value": 0.55, "low": 0.53, "high": 0.57}}},
            ["pile/bpb_lsr_k10"],
        ),
        (
            {"tasks": {"accuracy": {"value": 0.35, "low": 0.25, "high": 0.45}}},
            [],
        ),  # 0.40 is in its interval
        ({"tasks": {"accuracy": {"value": 0.20, "low": 0.10, "high": 0.30}}}, ["tasks/accuracy"]),
        ({"pile": {}}, []),  # no longer measured
    ],
)
def test_worse_is_beyond_the_tolerance_and_the_interval(change, figures):
    write(BEFORE | change)
    worse = find_regressions("sample", [FILE], 0.05)
    assert [regression.figure for regression in worse] == figures


def test_the_worst_comes_first_and_says_by_how_much():
    write(BEFORE | {"questions": 90, "loss": 3.0})
    first, second = find_regressions("sample", [FILE], 0.05)
    assert str(first) == "loss of data/metrics/a.json from 2 to 3 (+50.0%)"
    assert str(second) == "questions of data/metrics/a.json from 100 to 90 (-10.0%)"
    assert find_regressions("sample", [FILE], 0.2) == [first]


def test_a_run_of_another_part_or_profile_keeps_the_figures():
    write({"questions": 5}, OTHER)
    assert find_regressions("sample", [OTHER], 0.05) is None, "no such run has landed"
    assert find_regressions("smoke", [FILE], 0.05) is None
    keep_figures("sample", [OTHER])
    keep_figures("smoke", [OTHER])
    write(BEFORE | {"loss": 3.0})
    (regression,) = find_regressions("sample", [FILE, OTHER], 0.05)
    assert regression.figure == "loss"


def test_a_file_that_is_gone_has_no_figures():
    FILE.unlink()
    assert find_regressions("sample", [FILE], 0.05) == []
