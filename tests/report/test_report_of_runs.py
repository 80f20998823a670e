"""The report says when an effect is absent, and shows a run that has more, fewer or other parts
than the sample.
"""

import copy
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import completions_server
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
from analysis_rows import read_analyses
from report_files import (
    details_of,
    findings_of,
    leads_of,
    overlong,
    page_of,
    settings_of,
    table_of,
    unclear_parts,
)
from small_results import SETTINGS, write, write_data

from pipelines import catalogue
from pipelines.evaluation import analyse, tables
from pipelines.report import write_report
from pipelines.storage.atomic import write_json


@pytest.fixture(scope="module")
def richer(written, tmp_path_factory):
    """The report on a run that has more, its folder.

    It has a second retriever, e5-base, whose answers and bits are those of LSR or copies; tiny is
    on a server; an imported model lacks the 200 least popular questions and has a file that answers
    others; the popularity of the 80 least popular is not known; the subjects of EntityQuestions are
    linked; and an example has a passage.
    """
    home = tmp_path_factory.mktemp("richer")
    data, chosen = shutil.copytree(written[0], home / "data"), copy.copy(SETTINGS)
    chosen.retrievers = ["dense", "e5-base"]
    chosen.parts = SETTINGS.parts.model_copy(update={"tuned": chosen.retrievers})
    server = completions_server.settings("http://127.0.0.1:1/v1").http
    on_a_server = {"http": server, "path": "davinci-002"}
    chosen.lm = SETTINGS.lm | {"tiny": SETTINGS.lm["tiny"].model_copy(update=on_a_server)}
    _add_retriever(data)
    for file in (data / "imported/popqa/davinci").glob("*.parquet"):
        write(file, pq.read_table(file).slice(200))
    write(data / "imported/popqa/davinci/bm25.parquet", pq.read_table(file).slice(1))
    file = data / "questions/popqa/popqa.parquet"
    rows = pq.read_table(file)
    views = pa.array([None] * 80 + rows["s_pop"].to_pylist()[80:], pa.int64())
    write(file, rows.set_column(rows.column_names.index("s_pop"), "s_pop", views))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        analyse.analyse(data, chosen)
        examples = read_analyses(data / "analyses", "examples")
        examples[0]["passage"] = "It is <i>Answer 7</i>, not answer 70."
        tables.write_analyses(data / "analyses", "examples", examples)
        write_report.write_report(data, home / "report", chosen)
    return home / "report"


def _add_retriever(data: Path) -> None:
    answers = data / "predictions/popqa/tiny"
    for kind in ("dense", "lsr", "replug"):
        shutil.copy(answers / "lsr.parquet", answers / f"{kind}_e5-base.parquet")
    file = data / "metrics/language_modelling_pile.json"
    bits = json.loads(file.read_text())
    for figures in (
        bits["tiny"],
        bits["big"],
        *bits["tiny"]["subsets"].values(),
        *bits["big"]["subsets"].values(),
    ):
        for name in [name for name in figures if re.search(r"(^|_)(dense|lsr)(_|$)", name)]:
            figures[re.sub(r"(?<![a-z])(dense|lsr)(?![a-z])", r"\1_e5-base", name)] = figures[name]
    write_json(file, bits)
    shutil.copy(data / "metrics/lsr_dense.json", data / "metrics/lsr_e5-base.json")


def test_a_second_retriever_is_in_every_table_under_its_name(richer):
    """Its name may have a hyphen, and what is measured of it stands beside the main one's."""
    both = {"dense (e5-base)", "LSR (e5-base)", "dense", "LSR"}
    compared = table_of(richer, "comparisons")
    for table, name in (("retrievers", "retriever"), ("bits-per-byte", "documents")):
        assert both <= {row[name] for row in table_of(richer, table)}
    bits = [row for row in table_of(richer, "bits-per-byte") if row["k"] == "10"]
    saved = {row["documents"]: row["saved against dense, %"] for row in bits}
    assert saved["LSR (e5-base)"] == saved["LSR"] != "" == saved["dense (e5-base)"]
    assert ("LSR (e5-base)", "dense (e5-base)") in {
        (row["answered"], row["less"]) for row in compared
    }
    assert {"dense (e5-base)", "REPLUG (e5-base)"} <= {
        row["answered"] for row in table_of(richer, "recall")
    }
    assert "e5-base: entropy of both distributions by step." in details_of(richer)
    settings = settings_of(richer)
    assert settings["retrievers' encoders"].startswith(
        "dense: all-MiniLM-L6-v2; dense (e5-base): intfloat/e5-base; "
    )
    assert settings["pooling of the encoder"] == "dense mean, e5-base cls"
    assert settings["their weights"] == "tiny davinci-002, on a server, big big-llama"


def test_imported_models_stand_beside_the_main_one(richer):
    rows, page = table_of(richer, "accuracy"), page_of(richer)
    assert unclear_parts(richer) == []
    assert [row["answered"] for row in rows if row["language model"] == "davinci"] == [
        "without retrieval",
        "dense",
    ]
    by_lm = {row["language model"]: row["judged on"] for row in table_of(richer, "models")}
    assert by_lm == {"tiny": "test", "davinci": "all"}
    assert (
        "davinci/bm25.parquet is left out: it answers other questions than closed_book.parquet"
        in page
    )
    assert (
        "accuracy without retrieval (substring) by popularity, on the questions that"
        in details_of(richer)
    )
    by_relation = [
        row
        for row in table_of(richer, "models-by-relation")
        if row["answered"] == "without retrieval"
    ]
    assert sum(int(row["questions"]) for row in by_relation) == 2 * 600


def test_questions_of_unknown_popularity_are_counted(richer):
    """The popularity 0 would leave the 80 least popular in the first decile."""
    popqa = table_of(richer, "popularity")[0]
    assert (popqa["popularity known"], popqa["not known"]) == ("720", "80")
    deciles = table_of(richer, "accuracy-by-popularity")
    asked = [
        row for row in deciles if row["questions of"] == "PopQA" and row["language model"] == "tiny"
    ]
    assert sum(int(row["questions"]) for row in asked if row["answered"] == "dense") == 720
    assert "The popularity of 80 of 800 answered questions of PopQA is unknown." in page_of(richer)


def test_examples_show_what_was_retrieved(richer):
    assert "It is &lt;i&gt;Answer 7&lt;/i&gt;, not answer 70." in page_of(richer)


def test_missing_parts_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = small_results.settings(
        ["tiny"], question_sets=["popqa"], answered=["popqa"], rules=["popularity"]
    )
    write_data(tmp_path / "data", popularity_known=False, chosen=chosen)
    write_report.write_report(tmp_path / "data", tmp_path / "report", chosen)
    page = page_of(tmp_path / "report")
    assert "threshold search in use" not in page
    assert "popularity is known for 0 of 800 questions of PopQA." in page
    assert "To show accuracy by popularity" not in page, "more questions would not help"
    found = findings_of(tmp_path / "report")
    assert found["memory-popqa-closed_book"]["lacking"] == "There are no such questions."
    assert found["adaptive-popqa"]["lacking"].startswith("No two kinds of answers")


BY_POPULARITY = ("tail", "tail-most", "head", "namesakes", "adaptive")  # claims
KINDS = {  # a kind of run: the sections of its pages, its findings, its settings
    "WIKIPEDIA_AND_POPQA": (
        ["accuracy", "effect", "adaptive", "provenance"],
        ["popularity", "recall", "costs"],
        {
            "memory-popqa-closed_book",
            "genread-popqa-genread",
            "ensemble-popqa-replug",
            "without-popqa-replug",
        }
        | {
            f"{claim}-popqa-{method}"
            for claim in BY_POPULARITY
            for method in ("bm25", "dense", "replug")
        }
        - {"adaptive-popqa-replug"},  # it has no thresholds
        {"encoder", "passages", "search"},
    ),
    "PILE": (
        ["replug", "provenance"],
        ["recall", "controls"],
        {f"{claim}-pile-{retriever}" for claim in ("replug", "one", "random") for retriever in ("bm25", "dense")},
        {"ensemble", "encoder"},
    ),
    "IMPORTED": (
        ["accuracy", "effect", "adaptive", "provenance"],
        ["popularity"],
        {"memory-popqa-closed_book"} | {f"{claim}-popqa-dense" for claim in BY_POPULARITY},
        {"search"},
    ),
}  # fmt: skip
RESULTS = {  # what the page of each begins with
    "WIKIPEDIA_AND_POPQA": "With passages from BM25, the model tiny is right on 40.4 % of PopQA instead of 42.1 %. "
    "For this model, the advice is without retrieval: adaptive retrieval costs more and is not clearly more accurate.",
    "PILE": "tiny needs 1.000 bits per byte of Pile with documents from BM25, instead of 1.000 without documents.",
    "IMPORTED": "With passages from dense, the model davinci is right on 57.3 % of PopQA instead of 60.9 %. "
    "For this model, the advice is without retrieval: adaptive retrieval costs more and is not clearly more accurate.",
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """A run that has only some parts, and no effect: (name, its settings, folder of its report)."""
    home, chosen = tmp_path_factory.mktemp(request.param), getattr(small_results, request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(chosen, "profile", "real_models")  # whose report shows its own rows alone
        write_data(home / "data", effect=0.0, chosen=chosen)
        write_report.write_report(home / "data", home / "report", chosen)
    return request.param, chosen, home / "report"


def test_the_report_shows_what_a_run_has_and_names_nothing_else(kind):
    name, chosen, folder = kind
    sections, details, findings, settings = KINDS[name]
    said, found = settings_of(folder), findings_of(folder)
    text = ""
    pages = {"index": ["findings", *sections, "next", "terms"], "details": [*details, "terms"]}
    for page, ids in pages.items():
        tree = ElementTree.fromstring(page_of(folder, page))
        assert [section.get("id") for section in tree.iterfind(".//section")] == ids
        assert all(table.findall("tbody/tr") for table in tree.iterfind(".//table"))
        text += " ".join(" ".join(tree.itertext()).split())
    parts = chosen.parts.model_dump()
    present = {dataset for names in parts.values() if isinstance(names, list) for dataset in names}
    sets = {*catalogue.names("questions"), "pile", "wikitext"}
    assert not [dataset for dataset in sets - present if catalogue.label(dataset) in text]
    assert all(word not in text for word in ("nan", "None", " 0 questions", "fictional"))
    assert leads_of(folder)[0] == RESULTS[name]
    assert overlong(leads_of(folder)) == []
    assert unclear_parts(folder) == []
    assert {
        key
        for key in ("ensemble", "encoder", "passages", "search")
        if any(key in one for one in said)
    } == settings
    assert {*found} == findings
    effects = {id_ for id_, row in found.items() if row["remains_after_holm"]}
    # all of the most popular are right
    assert effects == ({"memory-popqa-closed_book"} if name == "IMPORTED" else set())
