"""The papers' numbers as data: complete, printed as they add up, and named as the outputs are."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from profile_values import values_of

from flows import profiles
from pipelines.adaptive.searches import SEARCHES
from pipelines.answering.answer_files import METHODS
from pipelines.intervals import Interval
from pipelines.params import params_file
from pipelines.questions.mmlu import CATEGORIES
from pipelines.report import comparison, papers
from pipelines.tables.analyses import BY_NAME

PAPERS = papers.read_papers()
# of MMLU's test split
ASKED = {"humanities": 4705, "social sciences": 3077, "STEM": 3018, "other": 3242}
# REPLUG's, and how many numbers both versions print
TABLES = {"Table 1": 40, "Table 2": 29, "Table 3": 28}
LARGEST = {"%": 100, "points": 100, "bits per byte": 8, "": 1}
PROFILES = {"paper-replug", "paper-popqa", "paper-popqa-rebuilt"}
REACH = {
    "no: its language model can't be had": 85,
    "no: LSR's teacher can't be had": 11,
    "no: no table has it": 30,
    "yes": 31,
}
KNOWN = {
    "method": set(METHODS),
    "against": {"closed_book"},
    "group": {"least popular", *CATEGORIES.values()},
    "retriever": {"none", "dense", "lsr"},
    "search": set(SEARCHES),
}


def figures_of(paper: str, place: str) -> list[papers.Published]:
    return [figure for figure in PAPERS.figures if (figure.paper, figure.place) == (paper, place)]


def values(paper: str, place: str) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for figure in figures_of(paper, place):
        rows.setdefault(figure.row, []).append(figure.value)
    return rows


def test_each_number_names_one_of_our_tables():
    columns = {name: dict.fromkeys(table.column_names) for name, table in BY_NAME.items()}
    columns["adaptive"] = dict.fromkeys(("dataset", "lm", "method", "search"))
    columns["adaptive"] |= dict.fromkeys(("adaptive", "gain", "retrieved"))
    columns["metrics"] = dict.fromkeys(("file", "questions", "matched_share"))
    for figure in PAPERS.figures:
        assert all((figure.paper, figure.place, figure.what, figure.row)), figure
        assert figure.profile in PROFILES
        assert figure.tolerance > 0, figure
        assert figure.bound in ("", "at most"), figure
        assert 0 < figure.value <= LARGEST.get(figure.unit, math.inf), figure
        assert float(f"{figure.value:.{figure.digits}f}") == figure.value, (
            "printed with as many digits"
        )
        if figure.missing:
            continue
        keys = figure.ours.keys() - {"table", "metric", "times"}
        assert {*keys, figure.ours["metric"]} <= columns[figure.ours["table"]].keys(), figure
        for column, allowed in KNOWN.items():
            named = figure.ours.get(column, [])
            named = named if isinstance(named, list) else [named]
            of_imports = {name for name in named if name.startswith("given_")}
            assert set(named) - of_imports - {"dense_below_genread"} <= allowed, figure


def test_no_number_is_there_twice():
    """None of the tables is missing."""
    times = Counter(
        (figure.paper, figure.place, figure.what, figure.name) for figure in PAPERS.figures
    )
    assert max(times.values()) == 1
    found = Counter(figure.place for figure in PAPERS.figures if figure.paper == "REPLUG")
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
    table_2 = figures_of("REPLUG", "Table 2")
    rows = {figure.row: figure for figure in table_2 if figure.column == "all"}
    gains = {
        figure.row: figure for figure in figures_of("REPLUG", "section 6.2 and Table 2's caption")
    }
    means = {}
    for name, row in values("REPLUG", "Table 2").items():
        if len(row) == 5:
            means[name] = np.average(row[:4], weights=[*ASKED.values()])
            assert rows[name].ours["table"] == "accuracy"
            if rows[name].also:
                assert rows[name].also == round(means[name], 1) != rows[name].value
                exact = Interval(*[means[name]] * 3)
                assert comparison.verdict(rows[name], exact) == "agrees", name
                assert comparison.verdict(replace(rows[name], also=None), exact) == "differs", name
    assert means["Atlas (11B)"] == pytest.approx(47.9, abs=0.05), (
        "the one that is printed as this mean"
    )
    for name in ("REPLUG", "REPLUG LSR"):
        gain, found = gains[f"{name}, all"], 100 * (means[f"Codex + {name}"] / means["Codex"] - 1)
        assert gain.also == round(found, 1) < gain.value
        for ours, expected in (
            (found, "agrees"),
            (gain.value, "agrees"),
            (gain.also - 0.3, "differs"),
            (0, "differs"),
        ):
            assert comparison.verdict(gain, Interval(*[ours] * 3)) == expected, (name, ours)


def test_the_first_llama_counts_in_table_3_alone():
    lm = params_file.parse(values_of("paper-replug")).lm["llama-2-13b"]
    for figure in PAPERS.figures:
        if "Llama 2" not in figure.row:
            continue
        names = [comparison.plain(name) for name in figure.lm]
        for path, counts in (
            (lm.path, True),
            ("meta-llama/Llama-2-13b", True),
            ("huggyllama/llama-13b", figure.place == "Table 3"),
            ("decapoda-research/llama-13b-hf", figure.place == "Table 3"),
        ):
            assert (comparison.plain(path) in names) is counts, (figure.place, path)


def test_each_number_within_reach_is_asked_for():
    """In its language model, its set-up and its table, as far as the profile's params tell."""
    assert Counter(PAPERS.reach(figure) for figure in PAPERS.figures) == REACH
    chosen = {name: params_file.parse(values_of(name)) for name in PROFILES}
    for figure in PAPERS.figures:
        if PAPERS.reach(figure) != "yes":
            continue
        params = chosen[figure.profile]
        if figure.lm:
            paths = {comparison.plain(params.lm[name].path) for name in params.lms}
            assert paths & {comparison.plain(name) for name in figure.lm}, figure
        assert list(comparison.differences(params, PAPERS.demands(figure))) == [], figure
        parts = params.parts
        asked = {"corpus": parts.scored, "dataset": parts.answered}
        assert all(
            figure.ours[key] in names for key, names in asked.items() if key in figure.ours
        ), figure


def test_set_ups_name_params_that_there_are(root):
    assert {name for figure in PAPERS.figures for name in figure.setup} == set(PAPERS.setups)
    assert {figure.profile for figure in PAPERS.figures} == PROFILES <= set(profiles.names(root))
    params = params_file.parse(values_of("paper-replug"))
    names = {name for setup in PAPERS.setups.values() for name in setup}
    assert len(names) > 20
    unset = [name for name in names if comparison.setting(params, name) is None]
    assert unset == ["retriever.query_path"]
