"""A run ends with its main results, which are the report's."""

import json
from pathlib import Path

import pytest
from small_results import PARTS, SETTINGS, settings

from pipelines.report import adaptive_section, main_results
from pipelines.report.inputs import read_inputs
from pipelines.report.page import Percent, show

EVERYTHING = [Path("data")]


def figures(line: str) -> str:
    """The figure with its interval in a line, as the report's tables show it."""
    return line[19:].partition("]")[0].replace(" %", "") + "]"


def test_the_accuracies_of_the_best_method_are_those_of_the_report(data):
    head, *lines = main_results.result_lines(EVERYTHING, SETTINGS)
    inputs = read_inputs(data, SETTINGS.lms, SETTINGS.parts, SETTINGS)
    rows = [r for r in adaptive_section.in_use(inputs) if (r["dataset"], r["lm"]) == ("popqa", "tiny")]
    assert len(rows) > 1
    best = max(rows, key=lambda row: row["adaptive"].value)
    assert [line[:17].strip() for line in lines] == ["never retrieve", "always retrieve", "adaptive"]
    assert [figures(line) for line in lines] == [show(Percent(best[p])) for p in ("never", "always", "adaptive")]
    assert f", the best of {len(rows)} methods; " in head
    assert lines[-1].endswith(f", and {100 * best['retrieved'].value:.0f} % of the questions retrieve")


def test_without_thresholds_they_are_of_closed_book_and_the_best_method(data):
    (data / "metrics/adaptive.json").unlink()
    head, closed_book, best = main_results.result_lines(EVERYTHING, SETTINGS)
    assert head == "PopQA, answered by tiny; right answers with 95 % intervals:"
    assert closed_book.startswith("  closed-book  ")
    assert best.endswith(", the best of 6 methods")


def test_without_questions_they_are_bits_per_byte(data):
    chosen = settings(["tiny"], corpora=["pile"], scored=["pile"])
    chosen.replug = SETTINGS.replug
    head, alone, replug, saved = main_results.result_lines(EVERYTHING, chosen)
    assert head == "Pile, read by tiny; bits per byte with 95 % intervals:"
    assert float(replug.split()[1]) < float(alone.split()[2])
    assert saved.endswith(" %")


def test_otherwise_they_are_the_rows_that_were_made_and_nothing_that_the_run_does_not_make(data):
    for name, counts in {"popqa": {"questions": 1234}, "corpus_pile": {"documents": 7}}.items():
        (data / f"metrics/{name}.json").write_text(json.dumps(counts))
    chosen = settings(["tiny"], question_sets=["popqa"], corpora=["pile"])
    lines = ["1,234 questions of PopQA", "7 passages of Pile"]
    assert main_results.result_lines([Path("data/metrics")], chosen) == lines
    assert main_results.result_lines([Path("data/metrics/corpus_pile.json")], chosen) == lines[1:]
    assert main_results.result_lines([Path("data/models")], SETTINGS) == []


@pytest.mark.parametrize("parts", [PARTS, settings(["tiny"]).parts])
def test_a_project_where_nothing_ran_has_none(tmp_path, monkeypatch, parts):
    monkeypatch.chdir(tmp_path)
    chosen = settings(["tiny"])
    chosen.parts = parts
    assert main_results.result_lines(EVERYTHING, chosen) == []
