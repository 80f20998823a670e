"""Stage tune_thresholds: what other questions would have given, the rule put to use, and the files
it leaves.
"""

import io
import json
import math
import shutil
from contextlib import chdir, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from adaptive_pairs import CHOSEN, made_pairs, resampled, write_answers, write_questions
from profile_values import values_of
from scipy import stats

from pipelines.adaptive import held_out, rule, tune_thresholds, tuning
from pipelines.errors import LongtailError
from pipelines.intervals import Interval
from pipelines.pages.values import Percent, saves, show
from pipelines.params import params_file
from pipelines.params.params import Thresholds
from pipelines.tables.answers import THRESHOLDS

IDS = [f"q{i:03d}" for i in range(120)]
EVEN = np.arange(120) % 2 == 0  # the questions of P0
PAIR = "dense_below_genread"


def test_a_relations_row_has_both_intervals():
    pairs = made_pairs()
    evaluated = tune_thresholds.evaluate_thresholds(pairs, CHOSEN, 0, 150)
    rows = {(row["search"], row["relation"]): row for row in evaluated.relations}
    assert len(rows) == 5 * len(tune_thresholds.SEARCHES)
    for (search, relation), row in rows.items():
        assert row["threshold_low"] <= row["threshold_high"]
        for name in ("adaptive", "retrieved"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
        assert row["pooled"] == (relation == "rare")
        if relation != "rare":
            assert 200 < row["threshold_low"] <= row["threshold"] <= row["threshold_high"] < 5000, (
                search
            )
            assert row["adaptive"] > max(row["closed_book"], row["augmented"])


def test_as_good_thresholds_are_those_resamples_do_not_tell():
    """By a loop: the gain of each cut less that of the best, against its deviation over
    resamples.
    """
    rows = made_pairs().members()["P1"]
    pairs, drawn = made_pairs().take(rows), resampled(made_pairs()).take(rows)
    kept, cuts = [], [0.0, *np.unique(pairs.signal)[1:], np.inf]

    def gained(cut: float) -> np.ndarray:
        return (pairs.gains[pairs.signal < cut, None] * drawn.times[pairs.signal < cut]).sum(axis=0)

    totals = [pairs.gains[pairs.signal < cut].sum() for cut in cuts]
    best = int(np.argmax(totals))
    clusters = len(np.unique(pairs.subjects))
    reach = stats.t.ppf(0.95, clusters - 1) * np.sqrt(clusters / (clusters - 1))
    for cut, total in zip(cuts, totals, strict=True):
        if totals[best] - total <= reach * np.std(gained(cuts[best]) - gained(cut), ddof=1):
            kept.append(cut)
    assert tuning.as_good(pairs.signal, pairs.gains, drawn) == (kept[0], kept[-1])
    assert 200 < kept[0] < 1000 < kept[-1] < 5000


@pytest.mark.parametrize("search", tune_thresholds.SEARCHES)
def test_the_thresholds_in_use_are_of_the_search_named(search):
    made = tune_thresholds.evaluate_thresholds(
        made_pairs(200), CHOSEN.model_copy(update={"search": search}), 0, 5
    )
    found = {
        of: {row["relation"]: row["deployed"] for row in made.relations if row["search"] == of}
        for of in tune_thresholds.SEARCHES
    }
    assert made.rule.thresholds == found[search]
    assert len({tuple(cuts.values()) for cuts in found.values()}) == len(tune_thresholds.SEARCHES)


def test_splits_that_hold_nothing_out_are_an_error():
    one = np.array(["one"] * 30, dtype=object)
    chosen = CHOSEN.model_copy(update={"splits": 1, "train_share": 0.999})
    with pytest.raises(LongtailError, match=r"thresholds\.splits: 1 hold none of 30 questions out"):
        tune_thresholds.evaluate_thresholds(
            made_pairs(30, subjects=one, relations=one), chosen, 0, 10
        )


def test_resamples_are_of_subjects():
    famous = np.arange(100) >= 50
    pairs = made_pairs(
        100,
        relations=np.full(100, "P1", dtype=object),
        subjects=np.repeat(np.array(["unknown", "famous"], dtype=object), 50),
        signal=np.append(np.arange(1.0, 51), np.arange(101.0, 151)),
        right_above=famous,
        right_below=~famous,
    )
    drawn = held_out.fit_all(pairs, *held_out.sides(pairs, CHOSEN, 0, 40), "exact", CHOSEN).whole[
        "P1"
    ]
    assert set(drawn) == {0.0, 101.0, math.inf}  # the famous one twice, both, the unknown one twice


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """PopQA with popularity and EntityQuestions without, answered by a language model, and imports
    to PopQA.

    Of P0 only the small model's passages help, of P1 only the passage that it writes. An import
    fits, one has no closed-book answers, and one is to other questions.
    """
    folder, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    for dataset, known in (
        ("popqa", rng.integers(1, 10_000, 120).tolist()),
        ("entityquestions", [None] * 120),
    ):
        write_questions(folder / f"data/questions/{dataset}/{dataset}.parquet", IDS, known)
        for method, right in (
            ("closed_book", rng.random(120) < 0.5),
            ("dense", EVEN),
            ("genread", ~EVEN),
        ):
            file = folder / f"data/predictions/{dataset}/tiny/{method}.parquet"
            write_answers(file, IDS, right, mean_log_prob=-rng.random(120))
    imported = folder / "data/imported/popqa"
    for name in ("opt-13b/closed_book", "opt-13b/bm25", "alone/bm25"):
        write_answers(imported / f"{name}.parquet", IDS, rng.random(120) < 0.5)
    write_answers(imported / "opt-13b/web-search.parquet", [*IDS[1:], "elsewhere"], EVEN)
    values = values_of("sample")
    pairs = [{"above": "genread", "below": "dense"}]
    values["report"]["bootstrap"] = 20
    values["thresholds"] |= {"splits": 10, "pairs": pairs}
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture(scope="module")
def ran(world, tmp_path_factory):
    """What the stage leaves and says: files by name, of two runs each, the rules of PopQA, the
    metrics, and what MLflow is told.
    """
    folder, runs = shutil.copytree(world, tmp_path_factory.mktemp("ran") / "world"), []
    with chdir(folder), redirect_stdout(said := io.StringIO()):
        settings = params_file.load_settings(tune_thresholds.Settings)
        for work in (tune_thresholds.main, lambda: tune_thresholds.tune_thresholds(settings)):
            logged = work()
            written = [
                *(folder / "data/adaptive/popularity").iterdir(),
                folder / "data/metrics/adaptive.json",
            ]
            runs.append({file.name: file.read_bytes() for file in sorted(written)})
    rules, metrics = (json.loads(runs[0][name]) for name in ("thresholds.json", "adaptive.json"))

    def rows(name, schema):
        return pq.read_table(
            folder / f"data/adaptive/popularity/{name}.parquet", schema=schema
        ).to_pylist()

    return SimpleNamespace(
        runs=runs,
        said=said.getvalue(),
        rules=rules["rules"]["popqa"],
        metrics=metrics,
        logged=logged,
        rows=rows,
    )


def test_the_stage_leaves_its_files_and_the_same_bytes_again(ran):
    assert ran.runs[0] == ran.runs[1]
    assert {*ran.runs[0]} == {"adaptive.json", "thresholds.json", "thresholds.parquet"}
    assert "see data/adaptive" in ran.said
    assert (
        "opt-13b/web-search.parquet is left out: of its 120 rows 1 answer no question" in ran.said
    )


def test_every_closed_book_model_is_tuned_by_every_search(ran):
    pairs = {("tiny", method): ("closed_book", method) for method in ("dense", "genread")}
    pairs |= {("tiny", PAIR): ("genread", "dense"), ("opt-13b", "bm25"): ("closed_book", "bm25")}
    rows = ran.rows("thresholds", THRESHOLDS.schema)
    for (lm, method), (above, below) in pairs.items():
        of_choice = [row for row in rows if (row["lm"], row["method"]) == (lm, method)]
        assert {row["search"] for row in of_choice} == {*tune_thresholds.SEARCHES}
        in_use = ran.rules[lm][method]
        expected = (f"{lm}/{above}", f"{lm}/{below}", "shrunk")
        assert (in_use["above"], in_use["below"], in_use["search"]) == expected
        for row in (row for row in of_choice if row["search"] == "shrunk"):
            cut = in_use["thresholds"][row["relation"]]
            assert ((math.inf if cut is None else cut), in_use["policy"]) == (
                row["deployed"],
                row["policy"],
            )
            assert in_use["observed"][row["relation"]] == [
                row["popularity_least"],
                row["popularity_most"],
            ]
    assert (
        {(row["lm"], row["method"]) for row in rows}
        == {(lm, of) for lm, by in ran.rules.items() for of in by}
        == {*pairs}
    )
    unknown = ran.metrics["entityquestions"]["tiny"]
    assert unknown == {"questions": 0, "excluded_without_popularity": 120}
    popqa = ran.metrics["popqa"]
    assert popqa["tiny"]["excluded_without_popularity"] == 0
    assert {*popqa["tiny"]["dense"]} == {*tune_thresholds.SEARCHES, "uncertainty"}
    assert {*popqa["opt-13b"]["bm25"]} == {*tune_thresholds.SEARCHES}


def test_mlflow_shows_the_values_of_the_metrics_file(ran):
    assert len(ran.logged) == 4 * 3 * 5, "choices, searches, figures"
    for name, value in ran.logged.items():
        choice, search, figure = name.rsplit(".", 2)
        dataset, lm, method = choice.split(".")
        assert value == ran.metrics[dataset][lm][method][search][figure]["value"], name


def test_a_pair_has_the_right_answers_on_either_side(ran):
    """Always is deployed as null, and never as zero."""
    assert ran.rules["tiny"][PAIR]["thresholds"] == {"P0": None, "P1": 0.0}
    figures = ran.metrics["popqa"]["tiny"][PAIR]["shrunk"]
    found = [figures[policy]["value"] for policy in ("always", "never", "oracle")]
    assert found == [0.5, 0.5, 1.0]
    assert figures["adaptive"]["value"] > 0.9


def test_what_lacks_stops_the_stage_before_any_work(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(world, tmp_path / "world"))
    values = yaml.safe_load((world / "params.yaml").read_text())
    values["thresholds"]["pairs"] = [{"above": "closed_book", "below": "lsr"}]
    Path("params.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit):
        tune_thresholds.main()
    error = capsys.readouterr().err
    assert "tiny/lsr has no answers to popqa or entityqu" in error
    assert error.count("\n") == 1
    assert not Path("data/adaptive").exists()


CUTS, OBSERVED = {"P1": math.inf, "P2": 3.5}, {"P1": (1.0, 9.0), "P2": (2.0, 8.0)}
RULE = rule.make_rule("thresholds", "why", CUTS, 4.0, observed=OBSERVED, shared=["P2"])


@pytest.mark.parametrize(
    ("gain", "better", "retrieved", "policy", "why"),
    [
        ((2, 1, 3), "always", (80, 70, 90), "thresholds", "more accurate than always retrieving ("),
        ((2, 1, 3), "never", (40, 30, 50), "thresholds", "more accurate than without retrieval ("),
        ((-2, -3, -1), "always", (80, 70, 90), "always", "adaptive retrieval is clearly less accurate"),
        ((1, -1, 3), "never", (40, 30, 50), "never", "costs more and is not clearly more accurate"),
        ((-1, -3, 1), "always", (80, 70, 90), "thresholds", ", 20 % fewer [10, 30])"),
        ((1, -1, 3), "always", (99, 95, 100), "always", "saves no clear share of retrievals ("),
    ],
)  # fmt: skip
def test_adaptive_is_advised_if_better_or_cheaper(gain, better, retrieved, policy, why):
    figures = [Interval(*figure).times(0.01) for figure in (gain, retrieved)]
    chosen, verdict = rule.choose_policy(figures[0], better, figures[1])
    assert chosen == policy
    assert verdict.startswith(f"{rule.POLICY_NAMES[policy]}: ")
    assert why in verdict
    value, low, high = (f"{bound:+.1f}".replace("-", "\N{MINUS SIGN}") for bound in gain)
    assert f"{value} points [{low}, {high}]" in verdict


def test_a_verdict_has_the_digits_that_its_claim_needs():
    gain = Interval(0.05, 0.0003, 0.099)
    retrieved = Interval(0.9, 0.8, 0.998)
    _, verdict = rule.choose_policy(gain, "always", retrieved)
    assert verdict.endswith(
        "clearly more accurate than always retrieving (+5.00 points [+0.03, +9.90])"
    )
    assert show(Percent(gain, signed=True)) == "+5.00 [+0.03, +9.90]"
    assert saves(Interval(0.03, 0.01, 0.04)) == "save 0.03 %"
    _, verdict = rule.choose_policy(Interval(0.0, -0.01, 0.01), "always", retrieved)
    assert verdict.endswith("(0.0 points [\N{MINUS SIGN}1.0, +1.0], 10.0 % fewer [0.2, 20.0])")


@pytest.mark.parametrize("points", [-2.0, 2.0])
def test_what_a_perfect_choice_hardly_wins_can_not_be_told(points):
    """The better policy is advised, however clear the gain or the loss."""
    gain = Interval(points, points - 1, points + 1).times(0.01)
    assert rule.untestable(oracle=0.51, better=0.5, questions=1000) == ""
    assert rule.untestable(oracle=0.51, better=0.009, questions=1000) != ""
    untestable = rule.untestable(oracle=0.509, better=0.5, questions=1000)
    policy, verdict = rule.choose_policy(gain, "always", gain, untestable)
    assert policy == "always"
    assert "clearly" not in verdict
    assert "as 500 of 1,000 questions are right, and an oracle would win 9 more" in verdict


def test_a_rule_comes_back_from_its_json():
    always = rule.make_rule(
        "always", "why", {"P1": 3.0}, 4.0, observed={"P1": (1.0, 9.0)}, shared=()
    )
    assert (always.thresholds, always.together) == ({"P1": math.inf}, math.inf)
    assert [
        rule.parse(json.loads(json.dumps(rule.as_json(one))), "") for one in (RULE, always)
    ] == [RULE, always]
    with pytest.raises(
        LongtailError, match=r"^x: not whole \(together: .*\), expected the fields of docs/"
    ):
        rule.parse(rule.as_json(RULE) | {"together": math.nan}, "x")


@pytest.mark.parametrize(
    ("relation", "signal", "retrieve", "why"),
    [
        ("P1", 9, True, "9 is below the threshold of its relation, which is always to retrieve"),
        # always was the best up to 9; beyond, nobody knows
        ("P1", 10, True, "to retrieve; more than was tuned on"),
        ("P2", 0, True, "together, 3.5; less than was tuned on"),
        ("P2", 4, False, "4 is not below the threshold of all relations together, 3.5"),
        ("P3", 3, True, "together, as the rule has none of its relation, 4"),
        ("P2", math.nan, True, "not known: retrieve, as nothing says whether memory would do"),
    ],
)
def test_what_the_rule_does_not_know_is_said(relation, signal, retrieve, why):
    decided = RULE.decide(relation, signal)
    assert decided.retrieve == retrieve
    assert decided.why.endswith(why)


def test_where_thresholds_lose_the_rule_is_constant():
    """Retrieving helps one question in three whatever its popularity, and hurts one in ten."""
    kind = np.random.default_rng(0).random(600)
    pairs = made_pairs(right_above=kind < 0.1, right_below=kind > 0.67)
    tuned = tuning.tune_pairs(pairs, CHOSEN.model_copy(update={"search": "exact"}), 0, 200)
    figures = tuned.figures["exact"]
    assert figures["gain"]["high"] < 0
    assert (tuned.rule.policy, figures["policy"]) == ("always", "always")
    assert set(tuned.rule.thresholds.values()) == {math.inf}
    assert tuned.rule.together == math.inf
    rows = [row for row in tuned.relations if row["search"] == "exact"]
    assert {row["deployed"] for row in rows} == {math.inf} != {row["threshold"] for row in rows}


def test_as_few_subjects_as_params_allow_are_held_out():
    """Resamples are cut into as many parts as it takes to hold out so few."""
    known = Thresholds.model_fields["train_share"].metadata
    (most,) = (limit.le for limit in known if hasattr(limit, "le"))
    kind = np.random.default_rng(0).random(600)
    pairs = made_pairs(right_above=kind < 0.05, right_below=kind > 0.67)
    chosen = CHOSEN.model_copy(update={"train_share": most, "search": "exact"})
    tuned = tuning.tune_pairs(pairs, chosen, 0, 20, ["exact"])
    assert tuned.drawn.n_parts == 100
    assert tuned.drawn.parts.max() == 99


def test_where_thresholds_gain_they_are_the_rule():
    pairs = made_pairs()
    tuned = tuning.tune_pairs(pairs, CHOSEN, 0, 50)
    assert tuned.rule.policy == "thresholds"
    rows = [row for row in tuned.relations if row["search"] == CHOSEN.search]
    assert tuned.rule.thresholds == {row["relation"]: row["threshold"] for row in rows}
    assert tuned.rule.shared == ("rare",)
    assert tuned.rule.thresholds["rare"] == tuned.rule.together
    rows = pairs.members()["P1"]
    assert tuned.rule.observed["P1"] == (pairs.signal[rows].min(), pairs.signal[rows].max())
