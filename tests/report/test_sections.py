"""Sections of the report: benchmarks, language modelling, what a model could have seen, and how the page was made."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
from report_files import table_of

from pipelines.intervals import interval
from pipelines.report import (
    controls_section,
    deciding_tables,
    exposure_section,
    lm_section,
    perplexity_section,
    popularity_section,
    tasks_section,
)
from pipelines.report.inputs import read
from pipelines.report.page import NONE, Figure, Table
from pipelines.report.provenance_section import provenance


def tables_of(section) -> dict[str, Table]:
    return {block.name: block for block in section.blocks if isinstance(block, Table)}


def test_what_is_best_is_said_in_a_sentence():
    """Which number of documents, and which method if it is always used."""
    metrics = small_results.language_modelling(1.0)
    same = lm_section._says("pile", {"tiny": metrics}, 10)
    metrics["gain_lsr_k1"] = {"value": 19.0, "low": 16.0, "high": 21.0}
    said = lm_section._says("pile", {"tiny": metrics}, 10)
    assert said == f"{same} The best number is 1, which saves 19.0 [16.0, 21.0] %. More documents save less."

    def figures(always: float, gain: float) -> dict:
        gained = {"value": gain, "low": gain - 0.01, "high": gain + 0.01}
        return {"splits": {"always": {"value": always}, "gain": gained}}

    by_method = {"bm25": figures(0.7, 0.003), "lsr": figures(0.6, 0.03), "bm25_below_dense": figures(0.9, 0.1)}
    said = deciding_tables.of_best("lsr", by_method, "splits")
    assert said.startswith(" With BM25, the most often right if always used (70.0 %), choosing adds +0.3 [")
    assert deciding_tables.of_best("bm25", by_method, "splits") == ""
    assert deciding_tables.of_best("lsr", by_method | {"bm25": figures(0.6, 0.003)}, "splits") == "", "it is no better"


def test_controls_and_chosen_settings_stand_beside_the_setting_in_use():
    figures = small_results.language_modelling(1.0)
    _, table = controls_section.settings("pile", {"tiny": figures})
    rows = {(row[1], row[2]): row for row in table.rows}
    assert len(rows) == len(table.rows) == 4 * 3
    row = rows["LSR", "both"]
    assert (row[0], row[3], row[4], row[5]) == ("tiny", "0.1, 0.3", "0, 0.2", interval(figures["bpb_lsr_k10"]))
    written = next(w for w in figures["settings"] if (w["retriever"], w["chosen"]) == ("lsr", "both"))
    assert row[6:] == [interval(written[name]) for name in ("bits_per_byte", "saved", "saved_over_fixed")]
    one_prompt, longer = controls_section.controls("pile", {"tiny": figures})[1].rows
    assert one_prompt[:6] == ["tiny", "all in one prompt", "dense", 10, 1.5, 200]
    assert longer[:6] == ["tiny", "more of the text", "dense", 10, None, 200]
    against = ("bits_per_byte", "saved", "saved_over_same", "saved_over_ensemble")
    assert one_prompt[6:] == [interval(figures["controls"][0][name]) for name in against]


def test_perplexity_is_drawn_by_size_within_a_family_with_the_smaller_models_first():
    """As in REPLUG's Figure 5. One family is not named, and one size is no curve."""

    def drawn(families, sizes):
        by_lm = {lm: small_results.language_modelling(1.0) for lm in families}
        blocks = perplexity_section.perplexity("wikitext", by_lm, sizes, families, 10)
        return {one.name: one for one in blocks if isinstance(one, Figure) and "by-size" in one.name}

    families = {"xl": "gpt2", "opt-1b": "opt", "small": "gpt2", "opt-125m": "opt", "ada": None, "bloom": "bloom"}
    found = drawn(families, {"xl": 1500, "opt-1b": 1300, "small": 117, "opt-125m": 125, "ada": None, "bloom": 560})
    assert list(found) == [f"wikitext-perplexity-by-size-{family}" for family in ("gpt2", "opt")]
    figure = found["wikitext-perplexity-by-size-opt"]
    assert "opt family" in figure.caption
    assert "no document: 90 at 125 to 90 at 1,300; " in figure.alt
    (figure,) = drawn({"a": "llama", "b": "llama"}, {"a": 10, "b": 20}).values()
    assert "family" not in figure.caption


def share(value: float, questions: int) -> dict:
    accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return accuracy | {"questions": questions, "gain": accuracy | {"value": 0.05}}


def solved(value: float, by: str | None = None) -> dict:
    whole, categories = share(value, 9), {"STEM": share(value - 0.2, 4), "Humanities": share(value + 0.2, 5)}
    of_all = {"accuracy": whole, "questions": 9, "gain": whole["gain"], "answered_by": by}
    return of_all | {"categories": categories, "mean_of_categories": value}


def tasks(metrics: dict, parts=small_results.PARTS, data: Path = Path("none")):
    """The section on these figures by benchmark and language model, of a run with two."""
    inputs = SimpleNamespace(metrics={"tasks": metrics}, models=["tiny", "second"], parts=parts, data=data)
    return tasks_section.tasks(inputs)


def test_a_benchmark_with_categories_has_a_table_of_its_own_without_lsr_where_none_was_tuned():
    section = tasks({"mmlu": {"tiny": {"closed_book": solved(0.4), "replug": solved(0.5, "mixture"), "rejects": {}}}})
    everything, by_category = tables_of(section).values()
    closed, replug = everything.rows
    assert closed[:5] == ["MMLU", "tiny", "closed-book", NONE, 9]
    assert (replug[2:5], replug[5].interval.value) == (["REPLUG", "mixture", 9], 0.5)
    assert (by_category.name, by_category.head) == ("mmlu", ["language model", "method", "STEM", "Humanities", "mean"])
    known = [(row[1], round(row[2].interval.value, 3), row[-1]) for row in by_category.rows]
    assert known == [("closed-book", 0.2, 0.4), ("REPLUG", 0.3, 0.5)]
    assert section.missing == "There were no questions of Natural Questions or TriviaQA."


def test_each_language_model_has_its_rows_and_what_is_odd_of_one_is_said(tmp_path):
    closed = {"accuracy": share(0.3, 9), "answered_by": None} | share(0.3, 9)
    of_tiny = {"closed_book": closed, "replug_random": closed | {"answered_by": "vote"}}
    blocks = tasks({"nq": {"second": {"closed_book": closed, "too_long": {"": 2}}, "tiny": of_tiny}}).blocks
    rows = [["tiny", "closed-book", NONE], ["tiny", "REPLUG, random documents", "vote"]]
    assert [row[1:4] for row in blocks[2].rows] == [*rows, ["second", "closed-book", NONE]]
    assert blocks[3:] == [
        "second shows no log-probabilities of its answers to Natural Questions, so REPLUG was left out.",
        "Natural Questions, second: prompts too long for the language model are left out: questions (2).",
    ]
    of_tiny = {name: solved(0.4, "mixture") for name in ("closed_book", "replug", "replug_lsr")}
    assert not tasks({"mmlu": {"tiny": of_tiny}}, small_results.PILE.parts).blocks
    assert not tasks({"mmlu": {"gone": of_tiny}}).blocks
    answers = {"method": ["closed_book", "replug"], "prediction": ["A", "A"]}
    small_results.write(tmp_path / "tasks/mmlu/tiny/predictions.parquet", pa.table(answers))
    assert "tiny answers A to every question of MMLU" in tasks({"mmlu": {"tiny": of_tiny}}, data=tmp_path).says


def test_accuracy_and_gain_by_documents_stand_beside_page_views(made):
    folder, right = made
    rows = [row for row in table_of(folder, "accuracy-by-documents-popqa") if row["text"] == "C4"]
    closed = [row for row in rows if row["answered"] == "closed-book"]
    assert sum(int(row["questions"]) for row in closed) == small_results.QUESTIONS
    assert (closed[0]["documents"], len(closed) > 3) == ("0", True)
    none = int(closed[0]["questions"])  # the least popular come first
    right = {method: of_method[:none].mean() for method, of_method in right.items()}
    assert float(closed[0]["substring"]) == pytest.approx(right["closed_book"])
    dense = next(row for row in rows if row["answered"] == "dense")
    assert float(dense["gain"]) == pytest.approx(right["dense"] - right["closed_book"])
    seen = table_of(folder, "seen-correlations-popqa")
    seen = {(row["text"], row["of"], row["answered"]): row["both"] for row in seen}
    assert float(seen["C4", "being right", "closed-book"]) > 0.2
    assert seen["Pile", "being right", "closed-book"] == ""
    dated = [row for row in table_of(folder, "accuracy-by-date-popqa") if row["answered"] == "closed-book"]
    counts = {row["facts"]: row["questions"] for row in dated}
    assert counts == {"changed since": "40", "dated before": "40", "undated": "720"}


def test_each_measure_stands_beside_page_views_and_a_run_without_counts_has_no_such_section(made, data):
    table = table_of(made[0], "popularity-measures-popqa")
    rows = {row["measure"]: row for row in table if row["language model"] == "tiny"}
    views, both = rows["page views of the month"], rows["documents with both (C4)"]
    assert float(views["AUC"]) > 0.6 < float(both["AUC"]) < 1
    assert float(both["AUC over page views"]) == pytest.approx(float(both["AUC"]) - float(views["AUC"]))
    assert rows["documents with both (Pile)"]["AUC"] == "", "all have one"
    inputs = read(data, ["tiny", "big"], small_results.PARTS)
    without = "Without incoming links: parts.exposure has no dump of Wikipedia."
    assert without in tables_of(exposure_section.exposure(inputs))["popularity-measures-popqa"].caption
    for name in ("accuracy_by_documents", "seen_correlations", "accuracy_by_date", "popularity_measures"):
        inputs.tables[name].clear()
    assert not any(getattr(block, "rows", ["text"]) for block in exposure_section.exposure(inputs).blocks)
    for redirects in (0, 2):
        inputs.metrics["popularity"] = {"files.pageviews": 1, "files.redirects": redirects}
        blocks = [block for block in popularity_section.popularity(inputs).blocks if isinstance(block, str)]
        assert any("Views of redirects are not counted" in block for block in blocks) == (not redirects)


MANIFEST = [{"path": "pile/0.zst", "bytes": 7, "sha256": "f" * 64, "source": "https://example.org/0.zst"}]
STAGES = """
stages:
  fetch: {desc: The sources, deps: [code.py], outs: [data/raw]}
  chunk:
    {matrix: {corpus: [wikipedia, pile]}, deps: ["data/raw/${item.corpus}"], outs: ["data/corpus/${item.corpus}"]}
  base_lm: {matrix: {lm: "${lms}"}, deps: [data/corpus/pile], outs: ["data/lm/${item.lm}"]}
  tune: {deps: ["data/lm/${lms[0]}"], outs: [data/tuned], metrics: [data/metrics/tune.json]}
  spare: {deps: [data/raw], outs: [data/spare]}
  report: {deps: [code.py, data/corpus, data/metrics], outs: [data/report]}
"""
LOCK = """
stages:
  chunk@pile: {outs: [{path: data/corpus/pile, md5: 0123456789abcdef.dir, size: 12, nfiles: 3}]}
  base_lm@tiny: {outs: [{path: data/lm/tiny, md5: ee, size: 1}]}
  base_lm: {outs: [{path: data/metrics/base_lm.json, md5: ff, size: 1}]}
  tune: {outs: [{path: data/metrics/tune.json, md5: aaaaaaaaaaaaaaaa, size: 5}, {path: data/tuned, md5: bb, size: 1}]}
  spare: {outs: [{path: data/spare, md5: cc, size: 1}]}
  report: {outs: [{path: data/report, md5: dd, size: 1}]}
"""


def test_stages_and_runs_are_those_of_dvc_yaml_and_hashes_those_of_what_was_read(tmp_path):
    (tmp_path / "dvc.yaml").write_text(STAGES)
    (tmp_path / "dvc.lock").write_text(LOCK)
    section = provenance(tmp_path / "data", MANIFEST, {"lms": ["tiny", "large"]})
    stages = tables_of(section)["stages"]
    runs = {"fetch": 1, "chunk": 2, "base_lm": 2, "tune": 1, "spare": 1, "report": 1}
    after = ("", "fetch", "chunk", "base_lm", "fetch", "chunk, tune")
    found = [(name, n, before) for name, _, n, before, _ in stages.rows]
    assert found == [*zip(runs, runs.values(), after, strict=True)]
    assert stages.rows[1][-1] == "data/corpus/<corpus>"
    assert "the 4 stages before it (6 runs)" in section.blocks[0], "spare is not before the report"
    state = [["data/corpus/pile", 3, 12, "0123456789ab"], ["data/metrics/tune.json", 1, 5, "aaaaaaaaaaaa"]]
    assert tables_of(section)["state"].rows == state
    alone = provenance(tmp_path / "elsewhere/data", MANIFEST, {"lms": ["tiny"]})
    assert alone.missing
    files = tables_of(alone)["source-files"].rows
    assert files == [["pile/0.zst", 7, "f" * 12, "https://example.org/0.zst"]]


def test_the_dates_of_the_sources_are_named_and_warned_about_when_they_are_far_apart(tmp_path):
    (tmp_path / "data/questions/popqa").mkdir(parents=True)
    pq.write_table(pa.table({"month": ["2026-09", "2026-09"]}), tmp_path / "data/questions/popqa/popqa.parquet")
    dates = {"wikidata": {"date": "2026-09-28"}, "pile": {}, "wikipedia": {"date": "2018-12-20"}}
    dated = [{"dataset": name} | date | MANIFEST[0] for name, date in dates.items()]
    section = provenance(tmp_path / "data", dated, {"lms": ["tiny"]}, 31)
    known = [["Wikidata", "2026-09-28"], ["Wikipedia", "2018-12-20"], ["page views", "2026-09"]]
    assert tables_of(section)["dates"].rows == known
    warning = "These dates are up to 2,839 days apart, more than fetch.days_apart allows (31)"
    assert section.blocks[1].startswith(warning)
    near = provenance(tmp_path / "data", dated[:1], {"lms": ["tiny"]}, 31)
    assert [type(block) for block in near.blocks] == [Table, Table]
