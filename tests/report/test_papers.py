"""The papers' numbers as data: complete, printed as they add up, and found where the outputs really have them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest
import yaml

from flows import profiles
from pipelines import params_file
from pipelines.answering.answer_files import METHODS
from pipelines.evaluation import tables
from pipelines.evaluation.mmlu import CATEGORIES
from pipelines.params import Params
from pipelines.report import comparison, papers

PAPERS = papers.read()
NUMBERS = [(group, number) for group in PAPERS.groups for number in group.numbers]
TABLES = {"Table 1": 40, "Table 2": 29, "Table 3": 28}  # REPLUG's, and how many numbers both versions print


def values(paper: str, place: str) -> dict[str, list[float]]:
    (group,) = [group for group in PAPERS.groups if (group.paper, group.place) == (paper, place)]
    rows: dict[str, list[float]] = {}
    for number in group.numbers:
        rows.setdefault(number.row, []).append(number.value)
    return rows


@pytest.mark.parametrize(("group", "number"), NUMBERS)
def test_each_number_is_whole(group, number):
    assert all((group.paper, group.place, group.what, group.profile, number.row))
    assert number.tolerance > 0
    assert number.bound in ("", "at most")
    assert bool(number.find) != bool(number.missing), "either ours is found somewhere, or it is said why not"
    assert set(number.setups) <= set(PAPERS.setups)
    largest = {"%": 100, "points": 100, "bits per byte": 8, "": 1}.get(number.unit, math.inf)
    assert 0 < number.value <= largest
    assert float(f"{number.value:.{number.digits}f}") == number.value, "printed with as many digits"


def test_no_number_is_there_twice_and_none_of_the_tables_is_missing():
    times = Counter((group.paper, group.place, group.what, number.row, number.column) for group, number in NUMBERS)
    assert [key for key, count in times.items() if count > 1] == []
    found = Counter(group.place for group, _ in NUMBERS if group.paper == "REPLUG")
    assert {place: found[place] for place in TABLES} == TABLES
    assert len(values("PopQA", "Table 1")) == 5


def test_the_printed_gains_follow_from_the_printed_bits_per_byte():
    for name, (original, replug, gain, tuned, tuned_gain) in values("REPLUG", "Table 1").items():
        for after, printed in ((replug, gain), (tuned, tuned_gain)):
            low, high = (100 * (1 - (after + end) / (original - end)) for end in (0.005, -0.005))
            assert min(low, high) - 0.05 <= printed <= max(low, high) + 0.05, name


def test_the_gains_in_the_text_follow_from_tables_2_and_3():
    mmlu, open_questions = (
        values("REPLUG", f"section {section}") for section in ("6.2 and Table 2's caption", "6.3 and Table 3's caption")
    )
    table_2, table_3 = values("REPLUG", "Table 2"), values("REPLUG", "Table 3")
    codex, replug, tuned = (table_2[f"Codex{more}"] for more in ("", " + REPLUG", " + REPLUG LSR"))
    assert 100 * (replug[4] / codex[4] - 1) == pytest.approx(mmlu["REPLUG, all"][0], abs=0.05)
    assert 100 * (tuned[4] / codex[4] - 1) == pytest.approx(mmlu["REPLUG LSR, all"][0], abs=0.05)
    assert 100 * (tuned[2] / codex[2] - 1) == pytest.approx(mmlu["REPLUG LSR, STEM"][0], abs=0.05)
    gains = [100 * (a / b - 1) for a, b in zip(table_3["Codex + REPLUG LSR"], table_3["Codex"], strict=True)]
    assert gains == pytest.approx([open_questions["Natural Questions"][0], open_questions["TriviaQA"][0]], abs=0.1)


def test_the_shares_of_table_1_and_the_money_add_up():
    cells = values("PopQA", "Table 1")
    shares = {name: row[1] for name, row in cells.items() if len(row) == 2}
    assert sum(shares.values()) == 100
    everything = cells["all questions (section 5.2)"][0]
    assert sum(cells[name][0] * share / 100 for name, share in shares.items()) == pytest.approx(everything, abs=0.02)
    *methods, total = (row[-1] for row in values("PopQA", "appendix B").values())
    assert sum(methods) == total


def test_names_of_different_models_are_not_alike():
    named = {tuple(number.lm) for _, number in NUMBERS if number.lm}
    for one_model, other in itertools.combinations(named, 2):
        if not set(one_model) & set(other):
            assert not any(comparison.alike(a, b) for a in one_model for b in other), (one_model, other)


@pytest.mark.parametrize("number", [number for _, number in NUMBERS if "table" in number.find])
def test_the_tables_have_the_columns_and_rows_that_numbers_name(number):
    find = dict(number.find)
    columns, value = tables.TABLES[find.pop("table")], find.pop("value")
    assert value in columns or value in comparison.DERIVED
    find.pop("times", None)
    assert set(find) <= set(columns)
    known = {
        "method": set(METHODS),
        "against": {"closed_book"},
        "category": {"all", *CATEGORIES.values()},
        "retriever": {"none", "dense", "lsr"},
    }
    for column, allowed in known.items():
        assert set(find[column] if isinstance(find.get(column), list) else [find.get(column)]) <= allowed | {None}


def test_set_ups_name_params_that_there_are(root, tmp_path):
    """A param that is renamed or gone raises; one with another value only counts as a difference."""
    chosen = params_file.parse(yaml.safe_load(profiles.compose("sample", root)))
    run = comparison.Run(tmp_path, chosen, PAPERS.setups)
    ours = ("questions", "files", "metrics")
    keys = {key for setup in PAPERS.setups.values() for key in setup if key.partition(".")[0] not in ours}
    assert len(keys) > 20
    for key in keys:
        section = key.partition(".")[0]
        assert section in Params.model_fields
        run.setting(key, "tiny")


def test_each_set_up_is_used_and_each_figure_has_its_table():
    assert {name for _, number in NUMBERS for name in number.setups} == set(PAPERS.setups)
    assert {entry["table"] for entry in PAPERS.drawn} <= set(tables.TABLES)


def test_profiles_are_there_or_named_after_the_papers(root):
    assert {group.profile for group in PAPERS.groups} == {"paper-replug", "paper-popqa"}
    assert {group.profile for group in PAPERS.groups} <= set(profiles.names(root))


def test_the_sample_has_a_figure_in_each_place(root):
    """So a metric that is renamed is noticed. The sample asks nothing of STEM, 4,000 questions or a paid model."""
    if not (root / "data/analyses/models.parquet").is_file():
        pytest.skip("no run in this checkout; `longtail run --profile sample` makes one")
    chosen = params_file.load(*Params.model_fields, path=root / "params.yaml")
    if chosen.profile != "sample":
        pytest.skip(f"params.yaml is of the profile {chosen.profile}, and this is about the sample")
    run = comparison.Run(root / "data", chosen, PAPERS.setups)
    absent = re.compile("STEM|least_popular|cost_saved|cost_per_1000")
    for _, number in NUMBERS:
        if number.find and not absent.search(str(number.find)):
            assert math.isfinite(run.measure(number.find, "tiny").value), number
    keys = {key for setup in PAPERS.setups.values() for key in setup if key.startswith(("metrics.", "files."))}
    assert {key for key in keys if run.setting(key, "tiny") is None} == set()
    assert [run.setting(f"questions.{name}", "tiny") for name in ("popqa", "mmlu", "nq", "triviaqa")] == [
        1263,
        150,
        150,
        150,
    ]
