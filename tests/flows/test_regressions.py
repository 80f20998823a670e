"""A figure that got worse than the last landed run's is named; one that moved within its interval is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import regressions
from flows.graph import Stage

PATH = Path("data/metrics/a.json")
STAGES = [Stage("a", "", (), None, (PATH,))]
BEFORE = {
    "questions": 100,
    "loss": 2.0,
    "seconds": 1.0,
    "curve": [1, 2],
    "pile": {"bpb_lsr_k10": {"value": 0.50, "low": 0.48, "high": 0.52}},
    "tasks": {"accuracy": {"value": 0.40, "low": 0.30, "high": 0.50}},
}


def write(figures: dict) -> None:
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(figures))


@pytest.fixture(autouse=True)
def before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(BEFORE)
    regressions.keep("sample", STAGES)


def worse(tolerance=0.05, profile="sample"):
    return regressions.find(Path.cwd(), profile, STAGES, tolerance)


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        ({}, []),
        ({"questions": 94}, ["questions"]),
        ({"questions": 96}, []),  # within the tolerance
        ({"loss": 2.2}, ["loss"]),
        ({"loss": 1.0}, []),
        ({"seconds": 9.0}, []),  # nobody said which way is better
        ({"pile": {"bpb_lsr_k10": {"value": 0.55, "low": 0.53, "high": 0.57}}}, ["pile/bpb_lsr_k10"]),
        ({"tasks": {"accuracy": {"value": 0.35, "low": 0.25, "high": 0.45}}}, []),  # 0.40 is in its interval
        ({"tasks": {"accuracy": {"value": 0.20, "low": 0.10, "high": 0.30}}}, ["tasks/accuracy"]),
        ({"pile": {}}, []),  # no longer measured
    ],
)
def test_worse_is_beyond_the_tolerance_and_the_interval(change, figures):
    write(BEFORE | change)
    assert [each.figure for each in worse()] == figures


def test_the_worst_comes_first_says_by_how_much_and_a_run_of_a_part_keeps_the_other_figures():
    other = Path("data/metrics/b.json")
    other.write_text('{"questions": 5}')
    regressions.keep("sample", [Stage("b", "", (), None, (other,))])
    write(BEFORE | {"questions": 90, "loss": 3.0})
    first, second = worse()
    assert str(first) == "loss of data/metrics/a.json from 2 to 3 (+50.0%)"
    assert str(second) == "questions of data/metrics/a.json from 100 to 90 (-10.0%)"
    assert worse(tolerance=0.2) == [first]
    assert worse(profile="tiny") is None, "another profile is not compared with"
