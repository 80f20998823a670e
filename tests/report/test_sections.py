"""Sections of the report: language modelling, and what was run."""

import json

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
from pipelines.pages.values import Percent, Share
from pipelines.report import (
    perplexity_section,
    popularity_section,
    provenance_section,
    replug_section,
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
        return Section("one", "One", ["words", "", figure, table]).shown

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


def test_columns_of_shares_are_not_headed_as_per_cent(data):
    """CSV files have the shares as they are."""
    tables = Tables(data, small_results.SETTINGS)
    heads_of_shares = set()
    for section in write_report.shown_sections(tables):
        for block in section.blocks:
            if isinstance(block, Table):
                for head, cells in zip(block.head, block.columns, strict=True):
                    if any(isinstance(one, Percent | Share) for one in cells):
                        heads_of_shares.add(head)
    assert {"accuracy", "share of always"} <= heads_of_shares
    assert not [head for head in heads_of_shares if "%" in head]


def test_the_curve_of_the_datastore_says_of_how_many_texts_it_is(data):
    """They are fewer than those of the tables beside it, so its figures are others."""
    file = data / "metrics/language_modelling_pile.json"
    metrics = json.loads(file.read_text())
    metrics["tiny"] |= {"queries": 2000}
    metrics["tiny"]["datastore"] |= {"queries": 100}
    file.write_text(json.dumps(metrics))
    figures = replug_section.section(Tables(data, small_results.SETTINGS)).blocks
    (caption,) = [
        block.caption
        for block in figures
        if isinstance(block, Figure) and block.name == "bits-per-byte-by-datastore"
    ]
    assert "Counted: 100 of the 2,000 texts, all with a context" in caption


def test_controls_stand_beside_the_ensemble(made):
    figures = small_results.language_modelling(1.0)
    one_prompt, longer = (
        r for r in table_of(made[0], "bits-per-byte-of-controls") if r["language model"] == "tiny"
    )
    names = ("control", "documents of", "k", "documents that fit", "bytes added")
    expected = ["all in one prompt", "dense", "10", "1.5", "200"]
    assert [one_prompt[name] for name in names] == expected
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
