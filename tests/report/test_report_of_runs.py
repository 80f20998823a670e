"""The report says when an effect is absent, and shows a run that has more, fewer or other parts than the sample."""

import copy
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_results
import yaml
from report_files import findings_of, table_of
from small_results import SETTINGS, write, write_data

from pipelines import catalogue, params_file, shards
from pipelines.evaluation import analyse, tables
from pipelines.report import write_report


def test_a_second_retriever_is_in_every_table_under_its_name(data):
    """Its name may have a hyphen, and what is measured of it stands beside the main one's."""
    chosen = copy.copy(SETTINGS)
    chosen.retrievers = ["dense", "e5-base"]
    chosen.parts = SETTINGS.parts.model_copy(update={"tuned": chosen.retrievers})
    answers = data / "predictions/popqa/tiny"
    for kind in ("dense", "lsr", "replug"):
        shutil.copy(answers / "lsr.parquet", answers / f"{kind}_e5-base.parquet")
    file = data / "metrics/language_modelling_pile.json"
    bits = json.loads(file.read_text())
    for figures in (bits["tiny"], bits["big"], *bits["tiny"]["subsets"].values(), *bits["big"]["subsets"].values()):
        for name in [name for name in figures if re.search(r"(^|_)(dense|lsr)(_|$)", name)]:
            figures[re.sub(r"(?<![a-z])(dense|lsr)(?![a-z])", r"\1_e5-base", name)] = figures[name]
    shards.write_json(file, bits)
    shutil.copy(data / "metrics/lsr_dense.json", data / "metrics/lsr_e5-base.json")
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", chosen)
    write_report.write_report(data, Path("report"), chosen)

    def column(table: str, name: str) -> set[str]:
        return {row[name] for row in table_of(Path("report"), table)}

    assert {"dense (e5-base)", "LSR (e5-base)", "dense", "LSR", "BM25"} <= column("retrievers", "retriever")
    assert {"dense (e5-base)", "LSR (e5-base)", "dense", "LSR"} <= column("bits-per-byte", "documents")
    assert {"dense (e5-base)", "LSR (e5-base)"} <= {*table_of(Path("report"), "bits-per-byte-by-k")[0]}
    saved = {row["documents"]: row["saved against dense, %"] for row in table_of(Path("report"), "bits-per-byte")}
    assert saved["LSR (e5-base)"] == saved["LSR"] != "" == saved["dense (e5-base)"]
    compared = {(row["answered"], row["less"]) for row in table_of(Path("report"), "comparisons-popqa")}
    assert {("LSR (e5-base)", "dense (e5-base)"), ("dense (e5-base)", "dense")} <= compared
    assert {"dense (e5-base)", "REPLUG (e5-base)"} <= column("recall-popqa", "answered")
    assert column("lsr-validation-e5-base", "step") == column("lsr-validation", "step")
    page = Path("report/index.html").read_text()
    assert "validation of e5-base" in page


def test_imported_models_stand_beside_the_main_one_and_what_is_left_out_is_named(data, tmp_path):
    file = data / "imported/popqa/davinci/bm25.parquet"
    write(file, pq.read_table(data / "imported/popqa/davinci/dense.parquet").slice(1))
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    rows = table_of(tmp_path / "report", "accuracy")
    assert [row["answered"] for row in rows if row["language model"] == "davinci"] == ["closed-book", "dense"]
    assert rows[0]["language model"] == "tiny"
    by_lm = {row["language model"]: row["judged on"] for row in table_of(tmp_path / "report", "models-popqa")}
    assert by_lm == {"tiny": "test", "davinci": "all"}
    groups = {row["language model"] for row in table_of(tmp_path / "report", "accuracy-by-group")}
    assert groups == {"tiny", "davinci"}
    page = " ".join((tmp_path / "report/index.html").read_text().split())
    assert "imported/popqa/davinci/bm25.parquet is left out: it answers 0 questions that closed_book.parquet" in page


def test_settings_are_only_those_of_what_was_run(kind):
    name, _, _, folder = kind
    settings = {row["setting"] for row in table_of(folder, "settings")}
    said = {key: any(key in setting for setting in settings) for key in ("ensemble", "encoder", "passages", "search")}
    assert (
        said
        == {
            "WIKIPEDIA_AND_POPQA": {"ensemble": False, "encoder": True, "passages": True, "search": True},
            "PILE": {"ensemble": True, "encoder": True, "passages": False, "search": False},
            "IMPORTED": {"ensemble": False, "encoder": False, "passages": False, "search": True},
        }[name]
    )


def test_methods_that_were_not_run_have_no_rows(data, tmp_path):
    for file in (data / "predictions").glob("*/*/*.parquet"):
        if file.stem in ("genread", "replug", "replug_lsr"):
            file.unlink()
    for file in (data / "imported").glob("*/*/*.parquet"):
        file.unlink()
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    assert [row["answered"] for row in table_of(tmp_path / "report", "accuracy")] == [
        "closed-book",
        "BM25",
        "dense",
        "LSR",
    ]
    assert "genread" not in findings_of(tmp_path / "report")
    page = " ".join((tmp_path / "report/index.html").read_text().split())
    assert "asked 800 questions, each answered 4 ways (closed-book, BM25, dense, LSR)" in page
    assert "Figures are of tiny, the main language model, unless they name another." in page
    assert 'id="models"' not in page  # only one language model answered questions


def test_language_models_are_shown_side_by_side_on_the_questions_that_all_answered(data, tmp_path):
    """davinci is left with every question but the 200 least popular."""
    for file in (data / "imported/popqa/davinci").glob("*.parquet"):
        write(file, pq.read_table(file).slice(200))
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    folder = tmp_path / "report"
    page = " ".join((folder / "index.html").read_text().split())
    of_common = "the 600 questions of PopQA that all 2 language models answered"
    assert f"Accuracy by language model on {of_common}, by the methods that all of them have." in page
    assert f"Closed-book accuracy by half power of ten of popularity and language model, on {of_common}." in page
    assert "Accuracy by language model on the 168 least popular of the 600 questions" in page
    assert [(row["language model"], row["questions"]) for row in table_of(folder, "models-popqa")][::7] == [
        ("tiny", "800"),
        ("davinci", "600"),
    ]
    closed, dense = table_of(folder, "models-compared-popqa")
    assert (closed["language model"], closed["less"], closed["answered"]) == ("davinci", "tiny", "closed-book")
    assert {closed["questions"], dense["questions"]} == {"600"}
    right = small_results._right(1.0)["closed_book"][200:]
    popular = np.arange(800)[200:] / 800 > 0.7
    assert float(closed["accuracy, substring"]) == pytest.approx(((right | popular) & ~right).mean())
    assert (closed["only this right"], closed["only that right"]) == (str((popular & ~right).sum()), "0")
    bins = table_of(folder, "models-by-popularity-popqa")
    of_models = {lm: [row for row in bins if row["language model"] == lm] for lm in ("tiny", "davinci")}
    sizes = {lm: [int(row["questions"]) for row in rows] for lm, rows in of_models.items()}
    assert sum(sizes["tiny"]) == sum(sizes["davinci"]) == 600
    assert min(sizes["tiny"]) >= 40
    assert float(of_models["davinci"][-1]["substring"]) == 1 > float(of_models["tiny"][-1]["substring"])
    by_relation = table_of(folder, "models-correlation-popqa")
    assert {len(row) for row in by_relation} == {2 + 2 * 3}
    assert sum(int(row["questions"]) for row in by_relation) == 600


def test_captions_say_how_few_questions_made_the_bins_and_that_only_a_part_was_asked(data):
    """60 questions of 800 make three groups in place of ten, and two bins of page views."""
    analyses = data / "analyses"
    kept = {"accuracy_by_popularity": ("decile", {1: 20, 4: 20, 7: 20}), "accuracy_by_log_popularity": ("bin", {})}
    for name, (key, sizes) in kept.items():
        rows = tables.read(analyses, name)
        sizes = sizes or dict.fromkeys(sorted({row[key] for row in rows})[:2], 30)
        tables.write(analyses, name, [row | {"questions": sizes[row[key]]} for row in rows if row[key] in sizes])
    tables.write(analyses, "accuracy", [row | {"questions": 60} for row in tables.read(analyses, "accuracy")])
    write_report.write_report(data, Path("report"), SETTINGS)
    page = " ".join(Path("report/index.html").read_text().split())
    assert "median monthly page views, in 3 groups by popularity (log scale)" in page
    assert "by decile" not in page
    assert "There are 3 groups, because some deciles would have fewer than 20 questions." in page
    assert (
        "half power of ten of popularity. Bins with fewer than 20 questions are merged with their neighbours." in page
    )
    assert "such questions of PopQA are shown; tiny was asked 60." in page
    assert "Least popular: the 28 % of the questions of known popularity that are the least popular" in page


@pytest.mark.parametrize(("device", "side_by_side"), [("cpu", 3), ("cuda", 1)])
def test_on_a_gpu_no_stage_runs_beside_another(root, tmp_path, monkeypatch, device, side_by_side):
    values = yaml.safe_load((root / "params.yaml").read_text())
    values["compute"] |= {"device": device, "workers": 3}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(tmp_path)
    handed = []
    monkeypatch.setattr(write_report, "write_report", lambda data, out, params, workers: handed.append(workers))
    monkeypatch.setattr(write_report.stage, "run", lambda name, sections, work, out: work(None))
    write_report.main()
    assert handed == [side_by_side]


def test_absent_effects_are_said_to_be_absent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data", effect=0.0)
    write_report.write_report(tmp_path / "data", tmp_path / "report", SETTINGS)
    found = findings_of(tmp_path / "report")
    for name in ("replug", "lsr", "nq"):
        assert found[name]["verdict"] == "no clear effect", (name, found[name])
    assert not any(
        row["shown"] for row in found.values() if row["id"] in ("memory", "namesakes", "adaptive-dense", "tail")
    )
    assert "no clear effect" in (tmp_path / "report/index.html").read_text()


def test_missing_parts_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data", popularity_known=False)
    write_report.write_report(tmp_path / "data", tmp_path / "report", SETTINGS)
    page = (tmp_path / "report/index.html").read_text()
    assert 'id="popularity"' not in page
    assert "threshold search in use" not in page
    assert "popularity is known for 0 of 800 questions of PopQA. To show accuracy by popularity, 30 are" in page
    assert "There were no questions of MMLU or TriviaQA." in page
    assert findings_of(tmp_path / "report")["memory"]["verdict"] == "not measured"


def test_questions_of_unknown_popularity_are_counted_and_in_no_figure_by_popularity(data, tmp_path):
    """Here it is that of the 80 least popular, which the popularity 0 would leave in the first decile."""
    file = data / "questions/popqa/popqa.parquet"
    rows = pq.read_table(file)
    views = pa.array([None] * 80 + rows["s_pop"].to_pylist()[80:], pa.int64())
    write(file, rows.set_column(rows.column_names.index("s_pop"), "s_pop", views))
    analyse.analyse(data, data / "analyses", data / "metrics/analyses.json", SETTINGS)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    popqa = table_of(tmp_path / "report", "popularity")[0]
    assert (popqa["popularity known"], popqa["not known"]) == ("720", "80")
    deciles = table_of(tmp_path / "report", "accuracy-by-popularity-popqa")
    assert (
        sum(int(row["questions"]) for row in deciles if (row["match"], row["language model"]) == ("word", "tiny"))
        == 720
    )
    assert float(deciles[0]["median page views"]) > min(view for view in views.to_pylist() if view)
    page = " ".join((tmp_path / "report/index.html").read_text().split())
    assert "The popularity of 80 of 800 answered questions of PopQA is unknown." in page


SECTIONS = {  # that each kind of run shows
    "WIKIPEDIA_AND_POPQA": ["popularity", "accuracy", "effect", "recall", "adaptive", "costs", "provenance"],
    "PILE": ["recall", "replug", "provenance"],
    "IMPORTED": ["popularity", "accuracy", "effect", "adaptive", "provenance"],
}


@pytest.fixture(scope="module", params=SECTIONS)
def kind(request, tmp_path_factory):
    """A run that has only some parts: (name, its settings, folder of its tables, folder of its report)."""
    home, chosen = tmp_path_factory.mktemp(request.param), getattr(small_results, request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        write_data(home / "data", chosen=chosen)
        write_report.write_report(home / "data", home / "report", chosen)
    return request.param, chosen, home / "data", home / "report"


def test_params_allow_each_kind_of_run(kind, root):
    _, chosen, *_ = kind
    values = yaml.safe_load((root / "params.yaml").read_text())
    values |= {"lms": chosen.lms, "retrievers": chosen.retrievers, "parts": chosen.parts.model_dump()}
    values["popqa"]["source"] = "published"
    assert params_file.parse(values).parts == chosen.parts


def test_a_run_without_some_parts_has_every_table_of_the_analyses(kind):
    name, _, data, _ = kind
    rows = {table: pq.read_metadata(data / f"analyses/{table}.parquet").num_rows for table in tables.TABLES}
    assert bool(rows["accuracy"]) == (name != "PILE")
    assert bool(rows["bits_per_byte"]) == (name == "PILE")
    assert rows["tasks"] == rows["rare_words"] == 0
    plotted = json.loads((data / "analyses/accuracy_by_popularity.json").read_text())
    assert len(plotted) == (0 if name == "PILE" else 10)


def test_the_report_shows_what_a_run_has_and_names_nothing_else(kind):
    name, chosen, _, folder = kind
    page = (folder / "index.html").read_text()
    tree = ElementTree.fromstring(page)
    assert [section.get("id") for section in tree.iterfind(".//section")] == ["findings", *SECTIONS[name]]
    assert all(table.findall("tbody/tr") for table in tree.iterfind(".//table"))
    text = " ".join("".join(tree.itertext()).split())
    parts = chosen.parts.model_dump()
    present = {dataset for names in parts.values() if isinstance(names, list) for dataset in names}
    sets = {dataset for use in ("questions", "benchmark") for dataset in catalogue.names(use)} | {"pile", "wikitext"}
    assert not [dataset for dataset in sets - present if catalogue.label(dataset) in text]
    assert all(word not in text for word in ("nan", "None", " 0 questions"))
    assert {row["verdict"] for row in findings_of(folder).values()} <= {"shown", "no clear effect", "the opposite"}


def test_findings_and_introduction_are_of_what_a_run_has(kind):
    name, _, _, folder = kind
    found, page = set(findings_of(folder)), " ".join((folder / "index.html").read_text().split())
    about_questions = {"memory", "tail", "tail-most", "adaptive-dense"}
    expected, did = {
        "WIKIPEDIA_AND_POPQA": (
            about_questions | {"genread", "namesakes"},
            "This run searched 321 Wikipedia documents, asked 800 questions, each answered 5 ways",
        ),
        "PILE": (
            {"replug", "random"},
            "This run searched 123 Pile documents, scored 60 texts of Pile and rejected 0 input rows.",
        ),
        "IMPORTED": (
            about_questions,
            "This run asked 800 questions, each answered 2 ways (closed-book, dense) and rejected 0 input rows.",
        ),
    }[name]
    assert found == expected
    assert did in page
    assert "fictional" not in page, "these runs are of files, not of the sample's world"
