"""Sections of the report: benchmarks, language modelling, what a model could have seen, studies, and what was run."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
from report_files import table_of

from pipelines.evaluation import stage_metrics
from pipelines.intervals import Interval
from pipelines.pages import values
from pipelines.pages.section import Table
from pipelines.report import entries, run_sections, studies, write_report
from pipelines.report.entries import Entry, Shown
from pipelines.report.inputs import read_inputs
from pipelines.report.sections import report_sections


def tables_of(section) -> dict[str, Table]:
    return {block.name: block for block in section.blocks if isinstance(block, Table)}


def test_the_best_number_of_documents_is_said_below_the_figure():
    def saves(gain: float) -> tuple[str, str]:
        metrics = small_results.language_modelling(1.0)
        metrics["gain_lsr_k1"] = {"value": gain, "low": gain - 3, "high": gain + 3}
        rows = stage_metrics.bits_per_byte({"pile": {"tiny": metrics}}, ["pile"], ["tiny"])
        of_run = {
            "main": "tiny",
            "main_corpus": "pile",
            "sizes": {},
            "chosen": small_results.SETTINGS,
        }
        entry, inputs = (
            report_sections()["replug"],
            SimpleNamespace(tables={"bits_per_byte": rows}, **of_run),
        )
        return entry.says(inputs, "substring"), entry.parts[0].blocks(inputs)[0].caption

    says, same = saves(14.0)
    assert (
        says
        == "Documents from LSR save tiny 14.0 % of the bits that it needs for Pile; random documents save 0.0 %."
    )
    saved = "10 documents of LSR save 14.0 [13.0, 15.0] %."
    assert saved in same
    assert saves(19.0) == (
        says,
        same.replace(saved, f"{saved} The best number is 1, which saves 19.0 [16.0, 22.0] %."),
    )


def test_a_section_is_an_entry_a_study_stands_after_the_section_it_names_and_nothing_is_shown_of_nothing():
    entry = Entry(
        "one",
        "One",
        ["words", Shown("rows", lambda inputs: inputs, ["method", "substring", "word"], "Rows.")],
    )
    row = {"method": "bm25"} | dict.fromkeys(("substring", "word"), Interval(0.5, 0.4, 0.6))
    section = entry.section([row])
    assert section.blocks[0] == "words"
    table = section.blocks[1]
    assert (table.head, table.rules) == (
        ["answered", *table.rules],
        {"substring": "substring", "word": "word"},
    )
    assert [str(cell) for cell in table.rows[0][:1]] == ["BM25"]
    assert entry.section([]) is None
    of_study, study = Entry("next", "", [], after="study"), Entry("study", "", [], after="one")
    ordered = entries.in_order(
        [entry, Entry("two", "", []), Entry("late", "", [], after="gone"), of_study, study]
    )
    assert [one.id for one in ordered] == ["one", "study", "next", "two", "late"]
    ids = [one.id for one in write_report.listed()]
    assert len({*ids}) == len(ids)
    assert ids.index("carried") == ids.index("adaptive") + 1, (
        "a study stands after the section that it names"
    )


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
        float(one_prompt["against the ensemble of k, %"])
        == figures["controls"][0]["saved_over_ensemble"]["value"]
    )


def test_perplexity_is_drawn_by_size_within_a_family_with_the_smaller_models_first():
    """As in REPLUG's Figure 5. One size is no curve."""
    families = {
        "xl": "gpt2",
        "opt-1b": "opt",
        "small": "gpt2",
        "opt-125m": "opt",
        "ada": None,
        "bloom": "bloom",
    }
    sizes = {"xl": 1500, "opt-1b": 1300, "small": 117, "opt-125m": 125, "ada": None, "bloom": 560}
    metrics = {"wikitext": {lm: small_results.language_modelling(1.0) for lm in families}}
    inputs = SimpleNamespace(
        parts=small_results.PARTS,
        main_corpus="pile",
        tables={"bits_per_byte": stage_metrics.bits_per_byte(metrics, ["wikitext"], [*families])}
        | {"models": [{"lm": lm, "family": family} for lm, family in families.items()]},
        sizes=sizes,
        chosen=small_results.SETTINGS,
    )
    section = report_sections()["perplexity"].section(inputs)
    drawn = {
        block.name: block for block in section.blocks if "by-size" in getattr(block, "name", "")
    }
    assert list(drawn) == [
        f"perplexity-by-size-WikiText-{family}-family" for family in ("gpt2", "opt")
    ]
    assert (
        "no document: 90 at 125 to 90 at 1,300; "
        in drawn["perplexity-by-size-WikiText-opt-family"].alt
    )


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


def tasks(metrics: dict, parts=small_results.PARTS, data: Path = Path("none")):
    """The section on these figures by benchmark and language model, of a run with two."""
    models = ["tiny", "second"]
    rows = stage_metrics.tasks(metrics, parts.benchmarks, models)
    of_run = {"models": models, "main": next(iter(models), ""), "parts": parts, "data": data}
    inputs = SimpleNamespace(metrics={"tasks": metrics}, tables={"tasks": rows}, **of_run)
    return report_sections()["tasks"].section(inputs)


def test_a_run_with_benchmarks_alone_begins_with_the_first_of_them_and_one_with_nothing_has_no_main_result():
    def begins(rows: list) -> tuple[str, list]:
        inputs = SimpleNamespace(
            parts=small_results.PILE.parts, asked=[], metrics={}, tables={"tasks": rows}
        )
        inputs.main, inputs.models, inputs.main_corpus, inputs.sizes = "tiny", ["tiny"], "pile", {}
        inputs.chosen, inputs.tables["bits_per_byte"] = small_results.PILE, []
        entry = report_sections()["result"]
        return entry.says(inputs, "word"), entry.parts[0].blocks(inputs)

    lower = solved(0.5) | {"accuracy": share(0.2, 9)}
    rows = stage_metrics.tasks(
        {"nq": {"tiny": {"closed_book": lower, "replug": solved(0.5)}}}, ["nq"], ["tiny"]
    )
    says, (table,) = begins(rows)
    assert (
        says
        == "With text from REPLUG, tiny is right on 50.0 % of Natural Questions instead of 20.0 %."
    )
    assert [row[0] for row in table.rows] == ["closed-book", "REPLUG"]
    assert begins([]) == ("", [])


def test_a_benchmark_with_categories_has_a_row_for_each_and_none_of_lsr_where_none_was_tuned():
    section = tasks(
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
    (table,) = tables_of(section).values()
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    whole = [row for row in rows if row["category"] == "all"]
    assert [(row["answered"], row["answered by"], row["questions"]) for row in whole] == [
        ("closed-book", None, 9),
        ("REPLUG", "mixture", 9),
    ]
    assert whole[1]["accuracy"].interval.value == 0.5
    stem = [row["accuracy"].interval.value for row in rows if row["category"] == "STEM"]
    assert stem == pytest.approx([0.2, 0.3])
    assert (
        section.missing == "No language model answered questions of Natural Questions or TriviaQA."
    )


def test_the_effect_on_benchmarks_is_of_another_language_model_where_only_that_has_ensembles():
    closed = {"closed_book": {name: one for name, one in solved(0.4).items() if name != "gain"}}
    of_second = closed | {
        "replug": solved(0.4, "mixture") | {"gain": {"value": -0.01, "low": -0.05, "high": 0.02}}
    }
    (said,) = tasks({"mmlu": {"tiny": closed, "second": of_second}}).says.values()
    assert said.startswith(
        "On MMLU, REPLUG changes the accuracy of second by \N{MINUS SIGN}1.0 points"
    )
    (said,) = tasks({"mmlu": {"tiny": closed}}).says.values()
    assert said == "No ensemble answered a benchmark; the figure has the closed-book answers."


def test_a_table_tells_what_a_language_model_could_teach_on_questions_and_on_text():
    seen = {"queries": 64, "documents": 10, "beta": 0.1, "entropy": 0.5}
    half = {"value": 0.5, "low": 0.25, "high": 0.75}
    look = [
        {"corpus": "popqa", "auc_lm": half, "best_lm": half} | seen,
        {"corpus": "pile", "gain_best": half} | seen,
    ]
    found = {"curve": [{"step": 0}], "look": look}
    inputs = SimpleNamespace(
        metrics={"lsr": {"dense": found}}, parts=SimpleNamespace(tuned=["dense"])
    )
    (table,) = [
        part.blocks(inputs)
        for part in report_sections()["training"].parts
        if getattr(part, "name", "") == "lsr-look"
    ]
    heads = ["AUC, language model", "first holds an answer, language model", "by the best"]
    assert table[0].head[:6] == ["retriever", "queries of", "queries", *heads]
    assert [values.show(one) for one in table[0].rows[0][3:6]] == [
        "0.500 [0.250, 0.750]",
        "50.0 [25.0, 75.0]",
        values.NONE,
    ]


def test_each_language_model_has_its_rows():
    closed = {"accuracy": share(0.3, 9), "answered_by": None} | share(0.3, 9)
    of_tiny = {"closed_book": closed, "replug": closed | {"answered_by": "vote"}}
    blocks = tasks({"nq": {"second": {"closed_book": closed}, "tiny": of_tiny}}).blocks
    (table,) = (block for block in blocks if isinstance(block, Table))
    rows = [
        ["tiny", "closed-book", None],
        ["tiny", "REPLUG", "vote"],
        ["second", "closed-book", None],
    ]
    assert [row[1:4] for row in table.rows] == rows
    of_tiny = {name: solved(0.4, "mixture") for name in ("closed_book", "replug", "replug_lsr")}
    assert tasks({"mmlu": {"tiny": of_tiny}}, small_results.PILE.parts) is None
    assert tasks({"mmlu": {"gone": of_tiny}}) is None


def test_accuracy_and_gain_by_documents_stand_beside_page_views(made):
    folder, right = made
    of_popqa = {"text": "C4", "questions of": "PopQA"}
    rows = [
        row for row in table_of(folder, "accuracy-by-documents") if of_popqa.items() <= row.items()
    ]
    closed = [row for row in rows if row["answered"] == "closed-book"]
    assert sum(int(row["questions"]) for row in closed) == small_results.QUESTIONS
    assert (closed[0]["documents with both"], len(closed) > 3) == ("0", True)
    none = int(closed[0]["questions"])  # the least popular come first
    right = {method: of_method[:none].mean() for method, of_method in right.items()}
    assert float(closed[0]["substring"]) == pytest.approx(right["closed_book"])
    dense = next(row for row in rows if row["answered"] == "dense")
    assert float(dense["change"]) == pytest.approx(right["dense"] - right["closed_book"])
    dated = [row for row in table_of(folder, "accuracy-by-date") if row["questions of"] == "PopQA"]
    counts = {row["facts"]: row["questions"] for row in dated if row["answered"] == "closed-book"}
    assert counts == {"changed since": "40", "dated before": "40", "undated": "720"}


def test_each_measure_stands_beside_page_views_and_a_run_without_counts_has_no_such_section(
    made, data
):
    table = [
        row for row in table_of(made[0], "popularity-measures") if row["questions of"] == "PopQA"
    ]
    rows = {row["measure"]: row for row in table if row["language model"] == "tiny"}
    views, both = rows["page views of the month"], rows["documents with both (C4)"]
    assert float(views["correlation"]) > 0.1 < float(both["correlation"]) < 1
    less = float(both["correlation"]) - float(views["correlation"])
    assert float(both["less page views"]) == pytest.approx(less)
    assert rows["documents with both (Pile)"]["correlation"] == "", "all have one"
    inputs = read_inputs(data, ["tiny", "big"], small_results.PARTS, small_results.SETTINGS)
    (of_measures,), of_seen = studies.measures.report_entries(), studies.seen.report_entries()
    for name in ("accuracy_by_documents", "accuracy_by_date", "popularity_measures"):
        inputs.tables[name].clear()
    for study in (of_measures, *of_seen):
        assert study.section(inputs) is None
    for redirects in (0, 2):
        inputs.metrics["popularity"] = {"files.pageviews": 1, "files.redirects": redirects}
        blocks = [
            block
            for block in report_sections()["popularity"].section(inputs).blocks
            if isinstance(block, str)
        ]
        assert any("Views of redirects are not counted" in block for block in blocks) == (
            not redirects
        )


def test_without_c4_every_word_of_natural_questions_that_is_also_a_name_is_said_to_count(data):
    inputs = read_inputs(data, ["tiny", "big"], small_results.PARTS, small_results.SETTINGS)
    for c4 in (True, False):
        inputs.manifest[:] = [{"dataset": name} for name in ("pile", *["c4"] * c4)]
        blocks = [
            block
            for block in report_sections()["popularity"].section(inputs).blocks
            if isinstance(block, str)
        ]
        assert any(
            "So every word that is also a name counts as one" in block for block in blocks
        ) == (not c4)


def test_the_dates_of_the_sources_are_named_and_warned_about_when_they_are_far_apart(tmp_path):
    (tmp_path / "data/questions/popqa").mkdir(parents=True)
    pq.write_table(
        pa.table({"month": ["2026-09", "2026-09"]}), tmp_path / "data/questions/popqa/popqa.parquet"
    )
    dates = {"wikidata": {"date": "2026-09-28"}, "pile": {}, "wikipedia": {"date": "2018-12-20"}}
    file = {
        "path": "pile/0.zst",
        "bytes": 7,
        "sha256": "f" * 64,
        "source": "https://example.org/0.zst",
    }
    manifest = [{"dataset": name} | date | file for name, date in dates.items()]
    chosen = SimpleNamespace(fetch=SimpleNamespace(days_apart=31))
    table, warning = run_sections.dates(
        SimpleNamespace(data=tmp_path / "data", manifest=manifest, chosen=chosen)
    )
    known = [["Wikidata", "2026-09-28"], ["Wikipedia", "2018-12-20"], ["page views", "2026-09"]]
    assert table.rows == known
    assert warning.startswith(
        "These dates are up to 2,839 days apart, more than fetch.days_apart allows (31)"
    )
    near = SimpleNamespace(data=tmp_path / "data", manifest=manifest[:1], chosen=chosen)
    assert [type(block) for block in run_sections.dates(near)] == [Table]
