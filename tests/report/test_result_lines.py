"""A run ends with its main results, which are those of the report."""

import json
from pathlib import Path

import pytest
from report_tables import tables_of
from small_results import PARTS, SETTINGS, settings

from pipelines.evaluation.tables import write_analyses
from pipelines.pages.values import Percent, show
from pipelines.report.result_lines import result_lines
from pipelines.report.result_section import main_shares
from pipelines.report.run_summary import headlines
from pipelines.report.run_tables import Tables

EVERYTHING = [Path("data")]


def test_the_accuracies_are_those_with_which_the_report_begins(data):
    head, *lines, odd, advice = result_lines(EVERYTHING, SETTINGS)
    assert odd.startswith("  Answers of tiny to popqa are one and the same text")
    rows = main_shares(Tables(data, SETTINGS))
    assert head == "PopQA, answered by tiny with passages by LSR: % right, with 95 % intervals"
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(f"  {row['policy']} ")
        assert show(Percent(row["accuracy"])) in line
    retrieved = 100 * rows[-1]["retrieved"].value
    assert lines[-1].endswith(f"; {retrieved:.0f} % of the questions retrieve")
    assert advice == f"  advice: {rows[0]['verdict']}"


def test_what_is_odd_about_answers_stands_before_the_advice(data):
    why = "Answers of tiny to popqa are empty (closed_book 11 of 20)."
    write_analyses(data / "analyses", "left_out", [{"dataset": "popqa", "why": why}])
    *_, odd, advice = result_lines(EVERYTHING, SETTINGS)
    assert odd == f"  {why}"
    assert advice.startswith("  advice: ")


def test_without_questions_they_are_bits_per_byte(data):
    chosen = settings(["tiny"], corpora=["pile"], scored=["pile"])
    chosen.thresholds = SETTINGS.thresholds
    head, alone, best, *_ = result_lines(EVERYTHING, chosen)
    assert head.startswith("Pile, read by tiny: bits per byte")
    assert alone.startswith("  no document ")
    assert float(best.split("[")[0].split()[-1]) < float(alone.split("[")[0].split()[-1])


def test_otherwise_they_are_the_rows_that_were_made(data):
    for name, counts in {"popqa": {"questions": 1234}, "corpus_pile": {"documents": 7}}.items():
        (data / f"metrics/{name}.json").write_text(json.dumps(counts))
    chosen = settings(["tiny"], question_sets=["popqa"], corpora=["pile"])
    lines = ["1,234 questions of PopQA", "7 passages of Pile"]
    assert result_lines([Path("data/metrics")], chosen) == lines
    assert result_lines([Path("data/metrics/corpus_pile.json")], chosen) == lines[1:]
    assert result_lines([Path("data/models")], SETTINGS) == []


@pytest.mark.parametrize("parts", [PARTS, settings(["tiny"]).parts])
def test_a_project_where_nothing_ran_has_none(tmp_path, monkeypatch, parts):
    monkeypatch.chdir(tmp_path)
    chosen = settings(["tiny"])
    chosen.parts = parts
    assert result_lines(EVERYTHING, chosen) == []


def test_without_models_the_headlines_are_numbers_of_questions(data, tmp_path):
    chosen = settings([], question_sets=["popqa", "nq"])
    popqa = {"questions": 443, "relation.P19": 240, "relation.P57": 203, "split.test": 443}
    tables = tables_of(tmp_path / "run", chosen, {"popqa": popqa, "nq": {"questions": 7}})
    counts = {
        "popqa_questions": 443.0,
        "popqa_questions_place_of_birth": 240.0,
        "popqa_questions_director": 203.0,
        "nq_questions": 7.0,
    }
    assert headlines(tables, []) == {"findings_tested": 0.0, "findings_shown": 0.0} | counts
    assert counts.keys().isdisjoint(headlines(Tables(data, SETTINGS), []))
