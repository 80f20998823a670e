"""A figure that got worse than the last landed run's is named; one that moved within its interval is not."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from flows import earlier
from flows.graph import Stage

CACHE = Path("cache")
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


def land(**files: str) -> None:
    """Land a run of the profile sample with these metrics in its dvc.lock and in DVC's cache."""
    outs = []
    for name, text in files.items():
        md5 = hashlib.md5(text.encode()).hexdigest()
        held = CACHE / md5[:2] / md5[2:]
        held.parent.mkdir(parents=True, exist_ok=True)
        held.write_text(text)
        outs.append({"path": f"data/metrics/{name}.json", "md5": md5})
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {"a": {"outs": outs}}}))
    earlier.keep_lock("sample")


@pytest.fixture(autouse=True)
def before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(earlier, "_cache", lambda: CACHE)
    write(BEFORE)
    land(a=json.dumps(BEFORE))


def worse(tolerance=0.05, profile="sample"):
    return earlier.find_regressions(profile, STAGES, tolerance)


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
    assert [each.figure for each in worse()] == figures


def test_the_worst_comes_first_says_by_how_much_and_a_run_of_a_part_keeps_the_other_figures():
    land(a=json.dumps(BEFORE), b='{"questions": 5}')
    write(BEFORE | {"questions": 90, "loss": 3.0})
    first, second = worse()
    assert str(first) == "loss of data/metrics/a.json from 2 to 3 (+50.0%)"
    assert str(second) == "questions of data/metrics/a.json from 100 to 90 (-10.0%)"
    assert worse(tolerance=0.2) == [first]
    assert worse(profile="smoke") is None, "another profile is not compared with"
    shutil.rmtree(CACHE)
    assert worse() is None, "DVC's cache lacks the figures"
