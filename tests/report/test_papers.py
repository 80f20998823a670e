"""The papers' numbers as data: complete, printed as they add up, and found where the outputs
really have them.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import yaml

from flows import profiles
from pipelines.answering.answer_files import METHODS
from pipelines.evaluation.task_items import CATEGORIES
from pipelines.intervals import Interval
from pipelines.params import params_file
from pipelines.params.params import Params
from pipelines.report import comparison, papers, run_figures
from pipelines.tables.analyses import BY_NAME

PAPERS = papers.read_papers()
NUMBERS = [(group, number) for group in PAPERS.groups for number in group.numbers]
ASKED = {
    "humanities": 4705,
    "social sciences": 3077,
    "STEM": 3018,
    "other": 3242,
}  # of MMLU's test split
TABLES = {
    "Table 1": 40,
    "Table 2": 29,
    "Table 3": 28,
}  # REPLUG's, and how many numbers both versions print
LARGEST = {"%": 100, "points": 100, "bits per byte": 8, "": 1}
PROFILES = {"paper-replug", "paper-popqa", "paper-popqa-rebuilt"}
REACH = {"gone": 85, "teacher": 11, "unmeasured": 26, "reached": 35, "unreached": 0}
KNOWN = {
    "method": set(METHODS),
    "against": {"closed_book"},
    "category": {"all", *CATEGORIES.values()},
    "retriever": {"none", "dense", "lsr"},
}


def values(paper: str, place: str) -> dict[str, list[float]]:
    (group,) = [group for group in PAPERS.groups if (group.paper, group.place) == (paper, place)]
    rows: dict[str, list[float]] = {}
    for number in group.numbers:
        rows.setdefault(number.row, []).append(number.value)
    return rows


def test_each_number_is_in_our_tables():
    for group, number in NUMBERS:
        assert all((group.paper, group.place, group.what, group.profile, number.row)), number
        assert number.tolerance > 0, number
        assert number.bound in ("", "at most"), number
        assert bool(number.find) != bool(number.missing), (
            "either ours is found somewhere, or it is said why not"
        )
        assert (
            sum({*number.lm} <= {*names} for names in PAPERS.models.values()) == 1 or not number.lm
        ), number.lm
        assert 0 < number.value <= LARGEST.get(number.unit, math.inf), number
        assert float(f"{number.value:.{number.digits}f}") == number.value, (
            "printed with as many digits"
        )
        find = {name: value for name, value in number.find.items() if name not in ("times", "way")}
        if "table" in find:
            columns = BY_NAME[find.pop("table")].column_names
            value = find.pop("value")
            assert value in columns or value in run_figures.DERIVED, number
            assert set(find) <= set(columns), number
            for column, allowed in KNOWN.items():
                named = find[column] if isinstance(find.get(column), list) else [find.get(column)]
                assert set(named) <= allowed | {None}, number


def test_no_number_is_there_twice():
    """None of the tables is missing."""
    times = Counter(
        (group.paper, group.place, group.what, number.row, number.column)
        for group, number in NUMBERS
    )
    assert max(times.values()) == 1
    found = Counter(group.place for group, _ in NUMBERS if group.paper == "REPLUG")
    assert {place: found[place] for place in TABLES} == TABLES
    assert len(values("PopQA", "Table 1")) == 5


def test_the_printed_gains_follow_from_the_rest():
    for name, (original, replug, gain, tuned, tuned_gain) in values("REPLUG", "Table 1").items():
        for after, printed in ((replug, gain), (tuned, tuned_gain)):
            low, high = (100 * (1 - (after + end) / (original - end)) for end in (0.005, -0.005))
            assert min(low, high) - 0.05 <= printed <= max(low, high) + 0.05, name
    mmlu = values("REPLUG", "section 6.2 and Table 2's caption")
    open_questions = values("REPLUG", "section 6.3 and Table 3's caption")
    table_2, table_3 = values("REPLUG", "Table 2"), values("REPLUG", "Table 3")
    codex, replug, tuned = (table_2[f"Codex{more}"] for more in ("", " + REPLUG", " + REPLUG LSR"))
    for row, after, at in (
        ("REPLUG, all", replug, 4),
        ("REPLUG LSR, all", tuned, 4),
        ("REPLUG LSR, STEM", tuned, 2),
    ):
        assert 100 * (after[at] / codex[at] - 1) == pytest.approx(mmlu[row][0], abs=0.05)
    gains = [
        100 * (a / b - 1)
        for a, b in zip(table_3["Codex + REPLUG LSR"], table_3["Codex"], strict=True)
    ]
    assert gains == pytest.approx(
        [open_questions["Natural Questions"][0], open_questions["TriviaQA"][0]], abs=0.1
    )
    cells = values("PopQA", "Table 1")
    shares = {name: row[1] for name, row in cells.items() if len(row) == 2}
    assert sum(shares.values()) == 100
    everything = cells["all questions (section 5.2)"][0]
    assert sum(cells[name][0] * share / 100 for name, share in shares.items()) == pytest.approx(
        everything, abs=0.02
    )
    *methods, total = (row[-1] for row in values("PopQA", "appendix B").values())
    assert sum(methods) == total


def test_table_2_is_compared_with_the_mean_over_questions():
    """Which the printed categories give; a run that repeats them exactly is not said to differ."""
    rows = {
        number.row: number
        for group, number in NUMBERS
        if group.place == "Table 2" and number.column == "all"
    }
    gains = {
        number.row: number
        for group, number in NUMBERS
        if group.place.startswith("section 6.2 and Table 2")
    }
    means = {}
    for name, row in values("REPLUG", "Table 2").items():
        if len(row) == 5:
            means[name] = np.average(row[:4], weights=[*ASKED.values()])
            assert rows[name].find.get("category", "all") == "all"
            if rows[name].also:
                assert rows[name].also == round(means[name], 1) != rows[name].value
                exact = Interval(*[means[name]] * 3)
                assert comparison.verdict(rows[name], exact) == "ok", name
                assert comparison.verdict(replace(rows[name], also=None), exact) == "differs", name
    assert means["Atlas (11B)"] == pytest.approx(47.9, abs=0.05), (
        "the one that is printed as this mean"
    )
    for name in ("REPLUG", "REPLUG LSR"):
        gain, found = gains[f"{name}, all"], 100 * (means[f"Codex + {name}"] / means["Codex"] - 1)
        assert gain.also == round(found, 1) < gain.value
        for ours, expected in (
            (found, "ok"),
            (gain.value, "ok"),
            (gain.also - 0.3, "differs"),
            (0, "differs"),
        ):
            assert comparison.verdict(gain, Interval(*[ours] * 3)) == expected, (name, ours)


def test_the_first_llama_counts_in_table_3_alone(root):
    lm = params_file.parse(yaml.safe_load(profiles.compose("paper-replug", root))).lm["llama-2-13b"]
    for group, number in NUMBERS:
        if "Llama 2" not in number.row:
            continue
        for path, counts in (
            (lm.path, True),
            ("meta-llama/Llama-2-13b", True),
            ("huggyllama/llama-13b", group.place == "Table 3"),
            ("decapoda-research/llama-13b-hf", group.place == "Table 3"),
        ):
            matches = any(comparison.alike(path, name) for name in number.lm)
            assert matches is counts, (group.place, path)


def test_each_number_within_reach_is_asked_for(root):
    """In its language model, its set-ups and what it is found in, as far as params tell."""
    chosen = {
        name: params_file.parse(yaml.safe_load(profiles.compose(name, root))) for name in PROFILES
    }
    reach = comparison.reach(PAPERS, chosen)
    assert [(number.row, number.column) for number in reach["unreached"]] == []
    assert {kind: len(numbers) for kind, numbers in reach.items()} == REACH
    for group, number in (
        (group, number) for group, number in NUMBERS if number in reach["reached"]
    ):
        params, find = chosen[group.profile], number.find
        parts, method = params.parts, find.get("method") or find.get("key", "").split(".")[-3:][0]
        asked = {"task": parts.benchmarks, "corpus": parts.scored, "dataset": parts.answered}
        assert all(find[key] in names for key, names in asked.items() if key in find), number
        assert "task" in find or method not in METHODS or method in params.ways, number
    short = params_file.parse(yaml.safe_load(profiles.compose("sample", root)))
    unreached = comparison.reach(PAPERS, dict.fromkeys(chosen, short))["unreached"]
    assert unreached == [number for number in reach["reached"] if number.lm], (
        "the sample has none of their models"
    )


def test_set_ups_name_params_that_there_are(root, tmp_path):
    """A param that is renamed or gone raises; one with another value only counts as a
    difference.
    """
    assert {name for _, number in NUMBERS for name in number.setups} == set(PAPERS.setups)
    assert {entry["table"] for entry in PAPERS.drawn} <= set(BY_NAME)
    assert {group.profile for group in PAPERS.groups} == PROFILES <= set(profiles.names(root))
    chosen = params_file.parse(yaml.safe_load(profiles.compose("sample", root)))
    run = comparison.Run(tmp_path, chosen, PAPERS.setups)
    keys = {key for setup in PAPERS.setups.values() for key in setup}
    keys = {key for key in keys if not key.startswith(comparison.MEASURED)}
    assert len(keys) > 20
    for key in keys:
        assert key.partition(".")[0] in Params.model_fields
        run.setting(key, "tiny")
