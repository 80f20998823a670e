"""The report on adaptive retrieval: what the tables say is what was measured, and what is not known is left out."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import carried, confidence, tune_thresholds
from pipelines.intervals import Interval
from pipelines.report import adaptive_section, findings
from pipelines.report.page import Figure, Table, label

NAMES = ("policies", "thresholds", "prices", "deciding")


def evaluate(**columns):
    return tune_thresholds.evaluate(made_pairs(**columns), CHOSEN, 0, 30)


@pytest.fixture(scope="module")
def found():
    """(lm, method) -> evaluated: the main model, a larger one, and an imported one that told neither costs nor
    probabilities.
    """
    nothing = {"confidence": np.full(600, np.nan), "augmented_cost": np.full(600, np.nan)}
    return {
        ("small", "dense"): evaluate(),
        ("small", "genread"): evaluate(seed=1),
        ("large", "dense"): evaluate(crossing=300.0),
        ("elsewhere", "bm25"): evaluate(**nothing),
    }


def section(found, folder, models=("small", "large"), excluded=0, trusted=None, brought=(), also=None, chosen=CHOSEN):
    """The section of these models' results on PopQA; `also` are figures of other question sets."""
    metrics: dict = {}
    rows, curve = [], []
    for (lm, method), one in found.items():
        key = {"dataset": "popqa", "lm": lm, "method": method}
        metrics.setdefault(lm, {"questions": 600, "excluded_without_popularity": excluded})[method] = one.figures
        rows += [key | row for row in one.relations]
        curve += [key | row for row in one.curve]
    reliability, coverage = [], []
    for lm in metrics if trusted else ():
        metrics[lm]["confidence"] = trusted[lm].figures
        key = {"dataset": "popqa", "lm": lm}
        reliability += [key | row for row in trusted[lm].reliability]
        coverage += [key | row for row in trusted[lm].coverage]
    (folder / "adaptive/popularity").mkdir(parents=True, exist_ok=True)
    for name, of_table, schema in (
        ("costs", curve, tune_thresholds.COSTS),
        ("reliability", reliability, tune_thresholds.RELIABILITY),
        ("coverage", coverage, tune_thresholds.COVERAGE),
        ("carried", brought, tune_thresholds.CARRIED),
    ):
        pq.write_table(pa.Table.from_pylist(of_table, schema), folder / f"adaptive/popularity/{name}.parquet")
    inputs = SimpleNamespace(
        data=folder,
        metrics={"adaptive": {"popqa": metrics} | (also or {})},
        models=list(models),
        parts=small_results.PARTS,
        sizes={"small": 1_000_000, "large": 50_000_000, "elsewhere": None},
        thresholds=pa.Table.from_pylist(rows, tune_thresholds.THRESHOLDS).to_pylist(),
    )
    made = adaptive_section.adaptive(inputs, chosen)
    tables = {block.name: block for block in made.blocks if isinstance(block, Table)}
    return made, tables, {block.name: block for block in made.blocks if isinstance(block, Figure)}


def rows_of(table, **wanted):
    """The table's rows as dicts, those with the wanted cells."""
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    return [row for row in rows if all(row[name.replace("_", " ")] == value for name, value in wanted.items())]


def test_every_search_of_every_model_is_shown_with_its_policies(found, tmp_path):
    _, tables, drawn = section(found, tmp_path)
    table = tables["adaptive-popqa"]
    assert len(table.rows) == 4 * 4
    (row,) = rows_of(table, language_model="large", search="exact")
    figures = found["large", "dense"].figures["exact"]
    for name in ("adaptive", "always", "never", "oracle", "gain"):
        assert row[name].interval.value == figures[name]["value"]
    assert row["over splits"].interval.low == figures["adaptive"]["splits_low"]
    assert row["training"] == figures["train_adaptive"]["value"]
    assert "small" in drawn["policies-popqa"].caption
    adaptive = 100 * found["small", "dense"].figures["shrunk"]["adaptive"]["value"]
    assert f"; adaptive: dense {adaptive:.3g}, " in drawn["policies-popqa"].alt


def test_thresholds_that_lose_accuracy_are_named_with_what_is_used_instead(found, tmp_path):
    made, _, _ = section(found, tmp_path)
    assert not [block for block in made.blocks if isinstance(block, str) and "not put to use" in block]
    rng = np.random.default_rng(0)
    kind = rng.random(600)
    lost = tune_thresholds.evaluate(
        made_pairs(closed=kind < 0.05, augmented=kind > 0.67), CHOSEN.model_copy(update={"search": "exact"}), 0, 100
    )
    chosen = CHOSEN.model_copy(update={"search": "exact"})
    made, tables, _ = section(found | {("small", "dense"): lost}, tmp_path, chosen=chosen)
    (said,) = [block for block in made.blocks if isinstance(block, str) and "not put to use" in block]
    assert f"small, dense: {lost.figures['exact']['verdict']}" in said
    assert lost.figures["exact"]["verdict"].startswith("always retrieve: thresholds lose ")
    (row,) = rows_of(tables["adaptive-popqa"], language_model="small", retriever="dense", search="exact")
    assert row["use"] == "always"
    in_use = {row["in use"] for row in rows_of(tables["thresholds-popqa"], language_model="small", retriever="dense")}
    assert in_use == {np.inf}


def test_questions_of_unknown_popularity_are_counted_and_left_out(found, tmp_path):
    for excluded in (12, 0):
        made, _, _ = section(found, tmp_path, excluded=excluded)
        said = [block for block in made.blocks if isinstance(block, str) and "unknown popularity" in block]
        assert [text.split(" of PopQA")[0] for text in said] == ["12 questions"] * bool(excluded)


def test_pooled_thresholds_are_said_to_be_pooled_and_from_how_many_questions(found, tmp_path):
    for least, said in (
        (
            20,
            "1 of the 5 relations has fewer than 20 questions of PopQA (thresholds.min_questions): rare. The threshold",
        ),
        (5, None),
    ):
        fewest = CHOSEN.model_copy(update={"min_questions": least})
        again = {
            ("small", method): tune_thresholds.evaluate(made_pairs(), fewest, 0, 30) for method in ("dense", "genread")
        }
        made, _, _ = section(again, tmp_path, chosen=fewest)
        pooled = [block for block in made.blocks if isinstance(block, str) and "pooled" in block]
        assert pooled == [f"{said} there is pooled: it is fitted to the 600 questions of all relations."] * bool(said)


def test_a_set_without_thresholds_says_how_many_questions_there_are_and_how_many_are_needed(found, tmp_path):
    made, _, _ = section(found, tmp_path, also={"entityquestions": {"small": {"questions": 1060}}})
    assert made.missing == (
        "There are no thresholds: 1,060 questions of EntityQuestions were answered and have a known popularity, but no "
        "relation has 20 of them (thresholds.min_questions). If one relation has, those with fewer use the pooled "
        "threshold. Set answer.max_questions higher."
    )


def test_a_finding_that_was_not_measured_says_how_many_questions_there_are_and_how_many_are_needed():
    for figures, said in (
        (
            {"questions": 60},
            "There are no thresholds: 60 questions of PopQA were answered and have a known popularity, but no relation "
            "has 20 of them (thresholds.min_questions).",
        ),
        ({}, "No two kinds of answers to the questions of PopQA are there to choose from."),
    ):
        inputs = SimpleNamespace(
            parts=small_results.PARTS,
            main="small",
            main_questions="popqa",
            metrics={"adaptive": {"popqa": {"small": figures}}},
            methods=lambda _: ["closed_book", "dense"],
        )
        (finding,) = findings._adaptive(inputs, CHOSEN)
        assert finding.measured.startswith(said)


def test_each_imported_models_thresholds_are_a_finding_whatever_its_methods_are_called():
    gain = {"gain": Interval(0.02, 0.01, 0.03).as_json(), "adaptive": {"value": 0.5}}
    inputs = SimpleNamespace(
        main_questions="popqa",
        imported=["gpt-4.1", "none"],
        metrics={"adaptive": {"popqa": {"gpt-4.1": {"questions": 60, "web-search": {CHOSEN.search: gain}}}}},
    )
    (finding,) = findings._of_imported(inputs, CHOSEN)
    assert (finding.id, finding.verdict) == ("adaptive-gpt-4.1-web-search", "shown")
    assert "its closed-book answer and that by web-search" in finding.claim
    assert "right on 50.0 % of the questions. Adaptive less the better of always and never is +2.0" in finding.measured


def test_imported_models_policies_stand_beside_the_main_ones(found, tmp_path):
    _, _, drawn = section(found, tmp_path)
    alt = drawn["policies-popqa"].alt
    assert "BM25, elsewhere " in alt
    assert ", small" not in alt
    assert ", large" not in alt, "the run's other models stand in the table"
    assert "small and elsewhere: " in drawn["policies-popqa"].caption


def test_thresholds_are_shown_by_relation_with_both_intervals(found, tmp_path):
    _, tables, drawn = section(found, tmp_path)
    rows = rows_of(tables["thresholds-popqa"], language_model="small", retriever="dense", relation="P1")
    (own,) = [r for r in found["small", "dense"].relations if (r["search"], r["relation"]) == ("shrunk", "P1")]
    assert [rows[0][name] for name in ("threshold", "from", "to")] == [
        own[name] for name in ("threshold", "threshold_low", "threshold_high")
    ]
    assert rows[0]["splits from"] == own["threshold_splits_low"]
    assert rows[0]["retrieves"].interval.high == own["retrieved_high"]
    assert rows[0]["adaptive, over splits"].interval.value == own["adaptive_splits"]
    assert {row["own threshold"] for row in rows_of(tables["thresholds-popqa"], relation="rare")} == {False}
    assert "GenRead" not in drawn["thresholds-popqa"].alt  # the figure has retrievers alone


def test_costs_and_doubt_are_shown_where_they_are_known(found, tmp_path):
    _, tables, _ = section(found, tmp_path)
    prices, deciding = tables["prices-popqa"], tables["deciding-popqa"]
    assert {row[0] for row in prices.rows} == {row[0] for row in deciding.rows} == {"small", "large"}
    last = rows_of(prices, language_model="small", retriever="dense")[-1]
    assert (last["must earn"], last["retrieves"].interval.value) == (1, 0)
    assert last["cost"].value == pytest.approx(1)
    figures = found["large", "dense"].figures["uncertainty"]
    (row,) = rows_of(deciding, language_model="large")
    assert row["uncertainty"].interval.value == figures["uncertainty"]["value"]
    assert row["uncertainty less popularity"].interval.low == figures["difference"]["low"]
    assert row["cost, both"].value == figures["cost_both"]["value"]


def test_the_gate_is_shown_beside_the_rule(found, tmp_path):
    _, tables, _ = section(found, tmp_path)
    table = tables["gate-popqa"]
    assert [tuple(row[:2]) for row in table.rows] == [
        ("small", "dense"), ("small", "GenRead"), ("large", "dense"), ("elsewhere", "BM25"),
    ]  # fmt: skip
    figures = found["large", "dense"].figures["gate"]
    (row,) = rows_of(table, language_model="large")
    assert row["gate"].interval.value == figures["gate"]["value"]
    assert row["popularity rule"].interval.high == figures["popularity"]["high"]
    assert row["gate less rule"].interval.low == figures["difference"]["low"]
    assert row["splits to"] == 100 * figures["difference"]["splits_high"]
    assert row["retrieves, rule"].interval.value == figures["retrieved_popularity"]["value"]


def test_confidence_is_shown_by_model_and_carried_thresholds_by_where_they_come_from(found, tmp_path):
    alone = {key: one for key, one in found.items() if key[1] == "dense"}
    rng = np.random.default_rng(0)
    trusted = {
        lm: confidence.evaluate(
            confidence.Answers(made.ids, made.subjects, rng.random(600), made.closed), CHOSEN, 0, 30
        )
        for lm, made in (("small", made_pairs()), ("large", made_pairs(crossing=300.0)))
    }
    tuned = {("popqa", lm, "dense"): (made_pairs(crossing=at), found[lm, "dense"].tuned.fitted)
             for lm, at in (("small", 1000.0), ("large", 300.0))}  # fmt: skip
    brought = carried.between_models(tuned, CHOSEN, 0, 30)
    _, tables, drawn = section(alone, tmp_path, trusted=trusted, brought=brought)
    (row,) = rows_of(tables["confidence-popqa"], language_model="large")
    figures = trusted["large"].figures
    assert row["ECE"].interval.value == figures["ece"]["value"]
    assert row["ECE, isotonic"].interval.high == figures["ece_isotonic"]["high"]
    assert row["ECE, a split"].interval.low == figures["ece"]["splits_low"]
    assert row["area of risk"].interval.value == figures["risk_area"]["value"]
    assert row["accuracy, 20%"].interval.value == trusted["large"].coverage[3]["accuracy"]
    assert len(tables["reliability-popqa"].rows) == 2 * 2 * 10
    assert "as the model says" in drawn["reliability-popqa"].alt
    assert "calibrated: " in drawn["reliability-popqa"].alt
    assert "large" in drawn["coverage-popqa"].alt
    (row,) = rows_of(tables["carried-popqa"], fitted_to="large")
    assert (row["language model"], row["judged on"], row["by"]) == ("small", "small", "views")
    assert row["carried less own"].interval.value == brought[0]["difference"]
    assert row["carried"].interval.value == brought[0]["carried"]


def test_a_pair_of_answers_is_named_by_both(tmp_path):
    _, tables, _ = section(
        {("small", "dense"): evaluate(), ("small", "dense_below_genread"): evaluate(seed=1)}, tmp_path
    )
    assert {row[1] for row in tables["adaptive-popqa"].rows} == {"dense", "dense below GenRead"}
    assert label("other/dense_below_closed_book") == "dense of other below closed-book"


def test_models_are_compared_by_size_where_there_are_several(found, tmp_path):
    _, tables, drawn = section(found, tmp_path)
    table = tables["adaptive-by-lm-popqa"]
    assert [row[0] for row in table.rows] == ["small", "small", "large", "elsewhere"]
    (row,) = rows_of(table, language_model="large")
    cuts = [r["threshold"] for r in found["large", "dense"].relations if r["search"] == "shrunk"]
    assert row["median threshold"] == np.median(cuts)
    assert "dense" in drawn["retrieves-by-lm-popqa"].alt
    assert "GenRead" not in drawn["retrieves-by-lm-popqa"].alt  # known of one size alone
    alone = {key: one for key, one in found.items() if key[0] == "small"}
    _, tables, drawn = section(alone, tmp_path / "alone")
    assert "adaptive-by-lm-popqa" not in tables
    assert "retrieves-by-lm-popqa" not in drawn


def test_a_model_of_another_place_stands_alone_where_no_other_was_tuned(found, tmp_path):
    elsewhere = {("elsewhere", "bm25"): found["elsewhere", "bm25"]}
    made, tables, drawn = section(elsewhere, tmp_path)
    assert set(tables) == {"adaptive-popqa", "thresholds-popqa", "gate-popqa"}
    assert set(drawn) == {"policies-popqa", "thresholds-popqa"}
    assert "EntityQuestions" in made.missing


def test_doubt_is_tabled_without_a_figure_where_only_the_main_model_gave_no_probabilities(found, tmp_path):
    silent = {("small", "bm25"): found["elsewhere", "bm25"], ("large", "dense"): found["large", "dense"]}
    _, tables, drawn = section(silent, tmp_path)
    assert [row[:2] for row in tables["deciding-popqa"].rows] == [["large", "dense"]]
    assert "deciding-popqa" not in drawn


def test_without_thresholds_there_is_no_section(tmp_path):
    made, tables, drawn = section({}, tmp_path)
    assert (made.blocks, tables, drawn) == ([], {}, {})


def test_no_name_of_a_table_or_figure_is_there_twice(found, tmp_path):
    made, tables, drawn = section(found, tmp_path)
    assert len(tables) + len(drawn) == sum(not isinstance(block, str) for block in made.blocks)
    assert {f"{name}-popqa" for name in NAMES} <= set(drawn)
