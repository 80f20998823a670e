"""Sections of the report: benchmarks, language modelling, and what was run."""

import math
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
from report_files import table_of
from report_tables import section_of, tables_of

from pipelines.evaluation.stage_metrics import StageMetrics
from pipelines.intervals import Interval
from pipelines.pages import figures, table_rows, values
from pipelines.pages.section import Axis, Figure, Section, Table
from pipelines.pages.table_texts import to_csv
from pipelines.report import (
    perplexity_section,
    popularity_section,
    provenance_section,
    replug_section,
    result_section,
    tasks_section,
    training_section,
    write_report,
)
from pipelines.report.run_tables import Tables


def tables_in(section) -> dict[str, Table]:
    return {block.name: block for block in section.blocks if isinstance(block, Table)}


def test_what_documents_and_tuning_save_is_said(tmp_path):
    metrics = {"language_modelling": {"pile": {"tiny": small_results.language_modelling(1.0)}}}
    rows = StageMetrics(metrics, ["pile"], ["tiny"]).bits_per_byte()
    tables = tables_of(tmp_path, small_results.SETTINGS, bits_per_byte=rows)
    assert section_of(replug_section.section, tables).leads == (
        "Documents from LSR save 14.0 % of the bits that tiny needs for Pile; random documents "
        "save no clear part."
    )
    assert training_section.section(tables).leads == (
        "After tuning, documents from LSR save 4.0 % of the bits that tiny needs with the untuned "
        "retriever's."
    )


def test_a_section_shows_nothing_of_nothing():
    row = {"method": "bm25"} | dict.fromkeys(("substring", "word"), Interval(0.5, 0.4, 0.6))

    def section(rows: list) -> Section:
        table = table_rows.table_of("rows", "Rows.", rows, ["method", "substring", "word"])
        axis = Axis("accuracy, %")
        figure = Figure("bars", "bars", rows, "method", "substring", axis, "Bars.", series="method")
        return Section("one", "One", ["words", "", figure, table]).without_empty_blocks

    words, figure, table = section([row]).blocks
    assert (words, figure.points) == ("words", {"bm25": [("BM25", Interval(50.0, 40.0, 60.0))]})
    assert table.head == ["answered", "substring", "word"]
    assert [str(cell) for cell in table.rows[0][:1]] == ["BM25"]
    assert section([]).blocks == ["words"]
    assert not section([]).has_figures


def test_a_column_with_one_name_is_in_the_csv_file_alone():
    """So is one that only the file is to have."""
    rows = [{"dataset": "popqa", "lm": "tiny", "method": name, "k": 1} for name in ("bm25", "lsr")]
    table = table_rows.table_of("rows", "", rows, ["dataset", "lm", "method", "k"], csv_only=["k"])
    assert to_csv(table) == "questions of,answered,k\nPopQA,BM25,1\nPopQA,LSR,1\n"
    assert (table.on_page.head, table.on_page.rows) == (["answered"], [["BM25"], ["LSR"]])
    one = table_rows.table_of("rows", "", rows[:1], ["dataset", "method"])
    assert one.on_page.head == one.head == ["questions of", "answered"]


def test_every_section_has_an_id_of_its_own(data):
    tables = Tables(data, small_results.SETTINGS)
    ids = [section(tables).id for section in write_report.SECTIONS]
    assert len({*ids}) == len(ids)


def test_controls_stand_beside_the_ensemble(made):
    figures = small_results.language_modelling(1.0)
    one_prompt, longer = (
        r for r in table_of(made[0], "bits-per-byte-of-controls") if r["language model"] == "tiny"
    )
    names = ("control", "documents of", "k", "documents that fit", "bytes added")
    assert [one_prompt[name] for name in names] == [
        "all in one prompt",
        "dense",
        "10",
        "1.5",
        "200",
    ]
    assert [longer[name] for name in names] == ["more of the text", "dense", "10", "", "200"]
    assert (
        float(one_prompt["against the ensemble, %"])
        == figures["controls"][0]["saved_over_ensemble"]["value"]
    )


def test_perplexity_is_drawn_by_size_within_a_family(tmp_path):
    """As in REPLUG's Figure 5. One size is no curve, and a model below chance has no mark."""
    families = {
        "xl": "gpt2",
        "opt-1b": "opt",
        "small": "gpt2",
        "opt-125m": "opt",
        "ada": None,
        "bloom": "bloom",
        "luck": "gpt2",
    }
    sizes = {
        "xl": 1500,
        "opt-1b": 1300,
        "small": 117,
        "opt-125m": 125,
        "ada": None,
        "bloom": 560,
        "luck": 9,
    }
    metrics = {"wikitext": {lm: small_results.language_modelling(1.0) for lm in families}}
    vocabularies = dict.fromkeys(families, 21) | {"ada": None, "luck": 19}
    models = []
    for lm, family in families.items():
        model = {"lm": lm, "family": family, "parameters": sizes[lm]}
        models.append(model | {"vocabulary": vocabularies[lm]})
    language_modelling = {"language_modelling": metrics}
    rows = StageMetrics(language_modelling, ["wikitext"], [*families]).bits_per_byte()
    settings = small_results.SETTINGS
    section = section_of(
        perplexity_section.section, tables_of(tmp_path, settings, models=models, bits_per_byte=rows)
    )
    drawn = {
        block.name: block for block in section.blocks if "by-size" in getattr(block, "name", "")
    }
    assert list(drawn) == [
        f"perplexity-by-size-WikiText-{family}-family" for family in ("gpt2", "opt")
    ]
    assert "no document: 90 at 125 to 90 at 1,300; " in figures.alt(
        drawn["perplexity-by-size-WikiText-opt-family"]
    )
    worse, unknown = [block for block in section.blocks if " reads WikiText." in str(block)]
    assert "vocabulary is not known" in unknown, "the tokenizer of ada's server is not here"
    assert "worse than a uniform guess over its 19 tokens" in worse
    assert "117 to 90 at 1,500" in figures.alt(drawn["perplexity-by-size-WikiText-gpt2-family"])


def share(value: float, questions: int) -> dict:
    accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return accuracy | {"questions": questions, "gain": accuracy | {"value": 0.05}}


def solved(value: float, by: str | None = None) -> dict:
    whole, categories = (
        share(value, 9),
        {"STEM": share(value - 0.2, 4), "Humanities": share(value + 0.2, 5)},
    )
    of_all = {"accuracy": whole, "questions": 9, "gain": whole["gain"], "answered_by": by}
    return of_all | {"categories": categories}


@pytest.fixture
def section_on_tasks(tmp_path):
    """The section on figures by benchmark and language model, of a run with two."""

    def section(metrics: dict, parts=small_results.PARTS):
        models = ["tiny", "second"]
        settings = SimpleNamespace(**vars(small_results.SETTINGS) | {"lms": models, "parts": parts})
        rows = StageMetrics({"tasks": metrics}, [], models).tasks(parts.benchmarks)
        return section_of(
            tasks_section.section, tables_of(tmp_path, settings, {"tasks": metrics}, tasks=rows)
        )

    return section


def test_a_run_of_benchmarks_begins_with_the_first(tmp_path):
    def begins(rows: list) -> Section | None:
        tables = tables_of(tmp_path, small_results.PILE, tasks=rows)
        return section_of(result_section.section, tables)

    lower = solved(0.5) | {"accuracy": share(0.2, 9)}
    nq = {"nq": {"tiny": {"closed_book": lower, "replug": solved(0.5)}}}
    rows = StageMetrics({"tasks": nq}, [], ["tiny"]).tasks(["nq"])
    section = begins(rows)
    assert section.leads == (
        "With REPLUG, the model tiny is right on 50.0 % of Natural Questions instead of 20.0 %."
    )
    assert [row[0] for row in section.blocks[0].rows] == ["without retrieval", "REPLUG"]
    assert begins([]) is None


def test_the_share_of_questions_in_training_is_told(section_on_tasks):
    closed_book = solved(0.4)
    in_training = {"value": 0.325, "low": 0.3, "high": 0.35}
    by_lm = {"tiny": {"closed_book": closed_book, "in_training": in_training}}
    text = " ".join(map(str, section_on_tasks({"nq": by_lm}).blocks))
    assert "32.5 [30.0, 35.0] % of the questions of Natural Questions occur in its" in text
    without = section_on_tasks({"nq": {"tiny": {"closed_book": closed_book}}})
    assert "training files" not in " ".join(map(str, without.blocks))


def test_a_benchmark_with_categories_has_a_row_for_each(section_on_tasks):
    section = section_on_tasks(
        {
            "mmlu": {
                "tiny": {
                    "closed_book": solved(0.4),
                    "replug": solved(0.5, "mixture"),
                    "rejects": {},
                }
            }
        }
    )
    (table,) = tables_in(section).values()
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    whole = [row for row in rows if row["category"] == "all"]
    assert [(row["answered"], row["answered by"], row["questions"]) for row in whole] == [
        ("without retrieval", None, 9),
        ("REPLUG", "mixture", 9),
    ]
    assert whole[1]["accuracy"].interval.value == 0.5
    stem = [row["accuracy"].interval.value for row in rows if row["category"] == "STEM"]
    assert stem == pytest.approx([0.2, 0.3])
    assert (
        section.missing == "No language model answered questions of Natural Questions or TriviaQA."
    )


def test_the_effect_on_benchmarks_may_be_of_another_model(section_on_tasks):
    closed = {"closed_book": {name: one for name, one in solved(0.4).items() if name != "gain"}}
    of_second = closed | {
        "replug": solved(0.4, "mixture") | {"gain": {"value": -0.01, "low": -0.05, "high": 0.02}}
    }
    said = section_on_tasks({"mmlu": {"tiny": closed, "second": of_second}}).leads
    assert said.startswith(
        "On MMLU, REPLUG changes the accuracy of second by \N{MINUS SIGN}1.0 points"
    )
    said = section_on_tasks({"mmlu": {"tiny": closed}}).leads
    assert said == "No ensemble answered a benchmark; the figure has the answers without retrieval."


def test_a_table_tells_what_a_language_model_could_teach(tmp_path):
    seen = {"queries": 64, "documents": 10, "beta": 0.1, "entropy": 0.5}
    half = {"value": 0.5, "low": 0.25, "high": 0.75}
    look = [
        {"corpus": "popqa", "auc_lm": half} | seen,
        {"corpus": "pile", "gain_best": half} | seen,
    ]
    step = {"step": 0, "kl": 1.0, "entropy_lm": 0.5, "entropy_retriever": 0.5}
    metrics = {"lsr": {"dense": {"curve": [step], "look": look}}}
    tables = tables_of(tmp_path, small_results.SETTINGS, metrics)
    table = tables_in(section_of(training_section.section, tables))["lsr-look"]
    heads = ["AUC, language model", "by the best", "entropy of Q"]
    assert table.head == ["retriever", "queries of", "queries", *heads]
    shown = [values.show(one) for one in table.rows[0][3:]]
    assert shown == ["0.500 [0.250, 0.750]", values.NONE, "0.5"]


def test_each_language_model_has_its_rows(section_on_tasks):
    closed = {"accuracy": share(0.3, 9), "answered_by": None} | share(0.3, 9)
    of_tiny = {"closed_book": closed, "replug": closed | {"answered_by": "vote"}}
    blocks = section_on_tasks({"nq": {"second": {"closed_book": closed}, "tiny": of_tiny}}).blocks
    (table,) = (block for block in blocks if isinstance(block, Table))
    rows = [
        ["tiny", "without retrieval", None],
        ["tiny", "REPLUG", "vote"],
        ["second", "without retrieval", None],
    ]
    assert [row[1:4] for row in table.rows] == rows
    of_tiny = {name: solved(0.4, "mixture") for name in ("closed_book", "replug", "replug_lsr")}
    assert section_on_tasks({"mmlu": {"tiny": of_tiny}}, small_results.PILE.parts) is None
    assert section_on_tasks({"mmlu": {"gone": of_tiny}}) is None


def test_a_benchmark_by_popularity_is_the_first_models(tmp_path):
    gain = {"tail": Interval(0.2, 0.1, 0.3), "head": Interval(-0.01, -0.1, 0.1)}
    key = {"task": "nq", "lm": "second", "method": "replug"}
    ensemble = key | gain | {"questions": 40, "not_known": 5, "threshold": 90.0}
    ensemble |= {"threshold_low": 0.0, "threshold_high": math.inf, "policy": "thresholds"}
    closed_book = key | {"method": "closed_book", "questions": 40, "not_known": 5}
    deciles = []
    for views in (0.0, 700.0):
        accuracy = Interval(0.5, 0.4, 0.6)
        deciles.append(key | {"decile": 1, "popularity": views, "accuracy": accuracy})
    rows = [closed_book, ensemble]
    others = [row | {"lm": "third"} for row in rows]
    tables = tables_of(
        tmp_path,
        small_results.SETTINGS,
        tasks_thresholds=rows + others,
        tasks_by_popularity=deciles + [row | {"lm": "third"} for row in deciles],
    )
    figure, text, table = section_of(tasks_section.section, tables).blocks[1:]
    assert [views for views, _ in figure.points["replug"]] == [1, 700]
    assert text == (
        "5 questions of Natural Questions name no entity of known popularity. They are left out of "
        "the figure by popularity and of the thresholds, which have the other 40. On Natural "
        "Questions, REPLUG of second helps with unpopular entities (+20.0 points) and makes no "
        "clear difference with the most popular ones (\N{MINUS SIGN}1.0 points)."
    )
    assert [row[1] for row in table.rows] == ["second"] * 2 + ["third"] * 2
    shown = dict(zip(table.head, table.rows[1], strict=True))
    assert (shown["threshold"], shown["from"], shown["to"]) == (90.0, 0.0, math.inf)


@pytest.mark.parametrize("redirects", [0, 2])
def test_views_of_redirects_that_are_not_counted_are_told(data, redirects):
    tables = Tables(data, small_results.SETTINGS)
    tables.metrics["popularity"] = {"files.pageviews": 1, "files.redirects": redirects}
    texts = [block for block in popularity_section.section(tables).blocks if isinstance(block, str)]
    said = any("Views of redirects are not counted" in text for text in texts)
    assert said == (not redirects)


@pytest.mark.parametrize("c4", [True, False])
def test_without_c4_names_that_are_words_count(data, c4):
    tables = Tables(data, small_results.SETTINGS)
    tables.manifest[:] = [{"dataset": name} for name in ("pile", *["c4"] * c4)]
    texts = [block for block in popularity_section.section(tables).blocks if isinstance(block, str)]
    said = any("So every word that is also a name counts as one" in text for text in texts)
    assert said == (not c4)


def test_the_dates_of_the_sources_are_named(tmp_path):
    """There is a warning when they are far apart."""
    (tmp_path / "questions/popqa").mkdir(parents=True)
    months = pa.table({"month": ["2026-09", "2026-09"]})
    pq.write_table(months, tmp_path / "questions/popqa/popqa.parquet")
    tables = tables_of(tmp_path, small_results.SETTINGS)
    dates = {"wikidata": {"date": "2026-09-28"}, "pile": {}, "wikipedia": {"date": "2018-12-20"}}
    file = {
        "path": "pile/0.zst",
        "bytes": 7,
        "sha256": "f" * 64,
        "source": "https://example.org/0.zst",
    }
    tables.manifest = [{"dataset": name} | date | file for name, date in dates.items()]
    table, warning = provenance_section.dates(tables)
    known = [["Wikidata", "2026-09-28"], ["Wikipedia", "2018-12-20"], ["page views", "2026-09"]]
    assert table.rows == known
    assert warning.startswith(
        "These dates are up to 2,839 days apart, more than fetch.days_apart allows (31)"
    )
    tables.manifest = tables.manifest[:1]
    _, warning = provenance_section.dates(tables)
    assert not warning
