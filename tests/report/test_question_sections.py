"""The report on adaptive retrieval: what the tables say is what was measured, and what is not
known is left out.
"""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import report_tables
import small_results
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import tune_thresholds
from pipelines.pages import figures
from pipelines.pages.section import Figure, Table
from pipelines.pages.values import label
from pipelines.report import accuracy_section, adaptive_section


def evaluate(chosen=CHOSEN, **columns):
    return tune_thresholds.evaluate_thresholds(made_pairs(**columns), chosen, 0, 30)


@pytest.fixture(scope="module")
def found():
    """(lm, method) -> evaluated: the main model, a larger one, and an imported one that told no
    probabilities.
    """
    return {
        ("small", "dense"): evaluate(),
        ("small", "genread"): evaluate(seed=1),
        ("large", "dense"): evaluate(crossing=300.0),
        ("elsewhere", "bm25"): evaluate(confidence=np.full(600, np.nan)),
    }


def section(found, folder, excluded=0, also=None, chosen=CHOSEN):
    """The blocks of the section on these models' results on PopQA, its tables and figures.

    `also` are figures of other sets.
    """
    metrics, thresholds = {}, []
    for (lm, method), one in found.items():
        key = {"dataset": "popqa", "lm": lm, "method": method}
        metrics.setdefault(lm, {"questions": 600, "excluded_without_popularity": excluded})[
            method
        ] = one.figures
        thresholds += [key | row for row in one.relations]
    table = pa.Table.from_pylist(thresholds, tune_thresholds.THRESHOLDS.schema)
    small_results.write(folder / "adaptive/popularity/thresholds.parquet", table)
    settings = SimpleNamespace(
        **vars(small_results.SETTINGS) | {"lms": ["small", "large"], "thresholds": chosen}
    )
    sizes = {"small": 1_000_000, "large": 50_000_000, "elsewhere": None}
    models = []
    for lm, parameters in sizes.items():
        models.append({"lm": lm, "parameters": parameters, "imported": lm == "elsewhere"})
    all_metrics = {"adaptive": {"popqa": metrics} | (also or {})}
    of_run = report_tables.tables_of(folder, settings, all_metrics, models=models)
    made = report_tables.section_of(adaptive_section.section, of_run)
    blocks = made.blocks if made else []
    tables = {block.name: block for block in blocks if isinstance(block, Table)}
    drawn = {block.name: block for block in blocks if isinstance(block, Figure)}
    return SimpleNamespace(blocks=blocks, missing=made.missing if made else ""), tables, drawn


def rows_of(table, **wanted):
    """The table's rows as dicts, those with the wanted cells."""
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    wanted = {
        name: label(value) if name == "retriever" else value for name, value in wanted.items()
    }
    return [
        row
        for row in rows
        if all(row[name.replace("_", " ")] == value for name, value in wanted.items())
    ]


def test_every_search_of_every_model_is_shown(found, tmp_path):
    made, tables, drawn = section(found, tmp_path)
    assert len(tables) + len(drawn) == sum(not isinstance(block, str) for block in made.blocks), (
        "a name is there twice"
    )
    assert len(tables["adaptive"].rows) == 4 * 3
    (row,) = rows_of(tables["adaptive"], language_model="large", search="exact")
    exact = found["large", "dense"].figures["exact"]
    for name in ("adaptive", "always", "never", "oracle", "gain"):
        assert row[label(name)].interval.value == exact[name]["value"]
    alt = figures.alt(drawn["policies-popqa"])
    adaptive = 100 * found["small", "dense"].figures["shrunk"]["adaptive"]["value"]
    policies = f"without retrieval 51.7, always retrieving 47.5, adaptive retrieval {adaptive:.3g}"
    assert f"; dense: {policies}, oracle " in alt
    assert "; BM25, elsewhere: without retrieval " in alt
    assert alt.index("GenRead: ") < alt.index("dense: "), "the best comes first"
    assert ", large" not in alt, "the run's other models stand in the table"
    row = rows_of(tables["thresholds"], language_model="small", retriever="dense", relation="P1")[0]
    (own,) = [
        r
        for r in found["small", "dense"].relations
        if (r["search"], r["relation"]) == ("shrunk", "P1")
    ]
    for name, key in {"threshold": "", "from": "_low", "to": "_high"}.items():
        assert row[name] == own[f"threshold{key}"]
    assert row["retrieves"].interval.high == own["retrieved_high"]
    assert {row["own threshold"] for row in rows_of(tables["thresholds"], relation="rare")} == {
        False
    }
    assert section({}, tmp_path)[0].blocks == []


def test_thresholds_that_lose_accuracy_are_named(found, tmp_path):
    kind = np.random.default_rng(0).random(600)
    chosen = CHOSEN.model_copy(update={"search": "exact"})
    lost = tune_thresholds.evaluate_thresholds(
        made_pairs(right_above=kind < 0.1, right_below=kind > 0.67), chosen, 0, 100
    )
    made, tables, _ = section(found | {("small", "dense"): lost}, tmp_path, chosen=chosen)
    (said,) = [
        block for block in made.blocks if isinstance(block, str) and "not put to use" in block
    ]
    assert f"small, dense: {lost.figures['exact']['verdict']}" in said
    assert lost.figures["exact"]["verdict"].startswith(
        "always retrieving: adaptive retrieval is clearly less accurate"
    )
    of_main = {"language_model": "small", "retriever": "dense"}
    assert [row["use"] for row in rows_of(tables["adaptive"], **of_main, search="exact")] == [
        "always"
    ]
    assert {row["in use"] for row in rows_of(tables["thresholds"], **of_main)} == {np.inf}


def test_unknown_popularity_is_told_with_its_questions(tmp_path):
    few = (
        "1,060 questions of EntityQuestions were answered and have a known popularity, "
        f"but no relation has {CHOSEN.min_questions} of them (thresholds.min_questions). If one relation has, "
        "those with fewer use the pooled threshold. Set answer.max_questions higher."
    )
    none = "no question of EntityQuestions has a known popularity."
    for excluded, known, reason in ((12, 1060, few), (0, 0, none)):
        others = {"entityquestions": {"small": {"questions": known}}}
        again = {("small", method): evaluate() for method in ("dense", "genread")}
        made, _, _ = section(again, tmp_path, excluded=excluded, also=others)
        texts = [block for block in made.blocks if isinstance(block, str)]
        unknown = [text.split(" of PopQA")[0] for text in texts if "unknown popularity" in text]
        assert unknown == ["12 questions"] * bool(excluded)
        assert made.missing == f"There are no thresholds: {reason}"


@pytest.mark.parametrize(("known", "has_advice"), [(3, True), (0, False)])
def test_more_questions_are_advised_only_where_popularity_is_known(tmp_path, known, has_advice):
    row = {"dataset": "popqa", "lm": "tiny", "method": "closed_book", "questions": 100}
    tables = report_tables.tables_of(
        tmp_path, small_results.SETTINGS, accuracy=[row | {"popularity_known": known}]
    )
    missing = accuracy_section.section(tables).missing
    assert f"popularity is known for {known} of 100 questions of PopQA." in missing
    assert ("answer.max_questions" in missing) == has_advice


def test_doubt_is_shown_where_it_is_known(found, tmp_path):
    _, tables, _ = section(found, tmp_path)
    deciding = tables["deciding"]
    assert {row[1] for row in deciding.rows} == {"small", "large"}
    measured = found["large", "dense"].figures["uncertainty"]
    (row,) = rows_of(deciding, language_model="large")
    assert row["uncertainty"].interval.value == measured["uncertainty"]["value"]
    assert row["uncertainty less popularity"].interval.low == measured["difference"]["low"]
    silent = {
        ("small", "bm25"): found["elsewhere", "bm25"],
        ("large", "dense"): found["large", "dense"],
    }
    (row,) = section(silent, tmp_path)[1]["deciding"].rows
    assert row[1] == "dense", "BM25's answers are of a model that gave no probabilities"


def test_models_are_compared_by_size(found, tmp_path):
    """Pairs are named by both."""
    _, _, drawn = section(found, tmp_path)
    assert "dense" in figures.alt(drawn["retrieves-by-lm-popqa"])
    pair = {
        ("small", "dense"): found["small", "dense"],
        ("small", "dense_below_genread"): found["small", "genread"],
    }
    _, tables, drawn = section(pair, tmp_path)
    assert "retrieves-by-lm-popqa" not in drawn
    assert {row[1] for row in tables["adaptive"].rows} == {"dense", "dense below GenRead"}
    assert label("other/dense_below_closed_book") == "dense of other below without retrieval"
