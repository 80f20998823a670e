"""The report: built from tables, it states their numbers, says when an effect is absent, and repeats to the byte."""

import copy
import csv
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
from small_results import METHODS, QUESTIONS, SETTINGS, write, write_data

from pipelines import catalogue, params_file, shards
from pipelines.answering import latency
from pipelines.answering.latency import Batch
from pipelines.evaluation import analyse, tables
from pipelines.questions.entityquestions import LINKS
from pipelines.report import popularity_section, write_report


def table_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"tables/{name}.csv").open() as rows:
        return list(csv.DictReader(rows))


def findings_of(folder: Path) -> dict:
    return {row["id"]: row for row in json.loads((folder / "findings.json").read_text())}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tables of a world with every effect: (data folder, what was right by method)."""
    home = tmp_path_factory.mktemp("present")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return home / "data", write_data(home / "data")


@pytest.fixture(scope="module")
def made(written):
    """The report on them: (folder, what was right by method)."""
    data, right = written
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data.parent)
        write_report.write_report(data, data.parent / "report", SETTINGS)
    return data.parent / "report", right


@pytest.fixture
def data(written, tmp_path, monkeypatch):
    """A copy of these tables, to change."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(written[0], tmp_path / "data")


def test_the_page_holds_the_computed_numbers(made):
    folder, right = made
    page = (folder / "index.html").read_text()
    text = " ".join("".join(ElementTree.fromstring(page).itertext()).split())
    assert f"{100 * right['closed_book'].mean():.1f} [" in text
    assert "321" in text
    assert "no label" in text
    assert "dump.json, row 7" in text
    tail = right["dense"][:480].mean() - right["closed_book"][:480].mean()
    assert findings_of(folder)["tail"]["value"] == pytest.approx(tail)
    first = table_of(folder, "accuracy")[0]
    assert float(first["substring"]) == pytest.approx(right["closed_book"].mean())
    assert float(first["substring_low"]) < float(first["substring"]) < float(first["substring_high"])


def test_what_was_read_for_each_corpus_and_what_became_of_it_is_counted(made):
    folder, _ = made
    tables = {name: table_of(folder, name) for name in ("documents", "queries", "subsets")}
    wikipedia, pile, wikitext = tables["documents"]
    assert (wikipedia["read"], wikipedia["redirects"], wikipedia["tokens"]) == ("5617", "1728", "2467")
    assert (wikipedia["other namespaces"], wikipedia["exact duplicates"]) == ("1309", "0")
    assert (pile["redirects"], pile["exact duplicates"]) == ("0", "1041")
    assert (wikitext["corpus"], wikitext["read"]) == ("WikiText", "120")
    assert "subsets without weight" not in pile
    assert tables["queries"][1]["sources removed as near-duplicates"] == "1377"
    assert tables["queries"][1]["test"] == "1888"
    assert [(row["data set"], row["rows read"]) for row in table_of(folder, "sources")] == [
        ("c4", ""),
        ("pile", pile["read"]),
    ]
    assert [tuple(row.values()) for row in tables["subsets"]][3] == ("Pile", "Set1", "12", "24")


def test_effects_in_the_data_are_shown(made):
    found = findings_of(made[0])
    for name in ("memory", "tail", "tail-most", "namesakes", "replug", "random", "lsr", "recall", "adaptive-dense"):
        assert found[name]["verdict"] == "shown", (name, found[name])


def test_accuracy_stands_side_by_side_by_both_rules(made):
    folder, right = made
    word = right["dense"] & (np.arange(QUESTIONS) % 50 > 0)
    row = table_of(folder, "accuracy")[2]
    assert (row["answered"], float(row["substring"])) == ("dense", pytest.approx(right["dense"].mean()))
    assert float(row["word"]) == pytest.approx(word.mean())
    for name, rows in (("accuracy-by-popularity-popqa", 20), ("accuracy-by-relation-popqa", 8)):
        found = table_of(folder, name)
        assert [one["match"] for one in found] == ["substring", "word"] * (rows // 2), name
        assert {"closed-book", "dense_low", "LSR_high"} <= set(found[0])
    last = table_of(folder, "accuracy-by-popularity-popqa")[-1]
    assert float(last["dense"]) == pytest.approx(word[-80:].mean())
    assert {row["match"] for row in table_of(folder, "accuracy-by-relation-and-popularity")} == {"substring", "word"}
    effect = table_of(folder, "retrieval-effect-popqa")
    tail = next(row for row in effect if (row["answered"], row["questions where"]) == ("dense", "tail"))
    assert float(tail["augmented, word"]) == pytest.approx(word[:480].mean())


def test_every_relation_has_its_own_charts_by_popularity(made):
    folder, _ = made
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    for relation in ("P19", "P22", "P36", "P57"):
        assert {f"accuracy-by-popularity-popqa-{relation}", f"gain-by-popularity-popqa-{relation}"} <= drawn
    assert "accuracy-by-relation-and-popularity" in drawn
    assert 'data-choice="place of birth (P19)"' in (folder / "index.html").read_text()


def test_retrievers_are_compared_by_every_measure(made):
    folder, right = made
    rows = {row["retriever"]: row for row in table_of(folder, "retrievers")}
    assert list(rows) == ["random documents", "BM25", "dense", "LSR"]
    assert (rows["dense"]["bits per byte"], rows["LSR"]["saved, %"]) == ("0.9", "14")
    assert float(rows["LSR"]["PopQA, recall@1"]) == pytest.approx(right["lsr"].mean())
    assert not any("real questions" in name for name in rows["dense"])  # this run has none
    recall = {(row["answered"], row["questions"]): row for row in table_of(folder, "recall-popqa")}
    assert recall["dense", "only augmented right"]["recall"] == "1"


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


def test_language_models_stand_beside_each_other(made):
    folder, _ = made
    rows = table_of(folder, "models-popqa")
    assert [row["language model"] for row in rows] == ["tiny"] * len(METHODS) + ["davinci"] * 2
    assert [row["word"] for row in rows][-1] == ""  # a file from elsewhere need not say
    assert {row["language model"] for row in table_of(folder, "models-by-popularity-popqa")} == {"tiny", "davinci"}
    drawing = (folder / "figures/models-by-popularity-popqa.svg").read_text()
    assert all(lm in drawing for lm in ("tiny", "davinci"))


def test_demonstrations_are_named_for_each_language_model_that_has_its_own_number(made):
    settings = {row["setting"]: row["value"] for row in table_of(made[0], "settings")}
    assert settings["demonstrations in a question's prompt"] == "tiny 0, big 15"


def test_the_encoders_and_language_models_are_named_without_their_folders(made, data):
    settings = {row["setting"]: row["value"] for row in table_of(made[0], "settings")}
    page = " ".join((made[0] / "index.html").read_text().split())
    assert settings["retrievers' encoders"] == "dense: all-MiniLM-L6-v2; LSR: dense tuned to big"
    assert settings["their weights"] == "a small model trained in this run"
    assert settings["passages in a question's prompt (answer.passages)"] == "1"
    assert settings["questions asked of each set, at most (answer.max_questions)"] == "9"
    assert "Here, dense is all-MiniLM-L6-v2 and LSR is dense tuned to big." in page
    assert "/home/someone" not in page
    chosen = copy.copy(SETTINGS)
    chosen.retrievers = ["dense", "e5-base"]
    on_a_server = {"source": "http", "path": "davinci-002"}
    chosen.lm = SETTINGS.lm | {"tiny": SETTINGS.lm["tiny"].model_copy(update=on_a_server)}
    write_report.write_report(data, Path("report"), chosen)
    settings = {row["setting"]: row["value"] for row in table_of(Path("report"), "settings")}
    assert settings["retrievers' encoders"].startswith("dense: all-MiniLM-L6-v2; dense (e5-base): intfloat/e5-base; ")
    assert settings["pooling of the encoder"] == "dense mean, e5-base cls"
    assert settings["their weights"] == "tiny davinci-002, on a server, big a small model trained in this run"


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


def test_what_answers_cost_and_thresholds_save(made):
    folder, _ = made
    dense = {row["answered"]: row for row in table_of(folder, "cost-of-answers-popqa")}["dense"]
    assert (dense["prompts"], dense["tokens read"], dense["cost of 1,000 questions"]) == ("1", "74", "0")
    for row in table_of(folder, "savings-popqa"):
        share = float(row["retrieves"])
        assert float(row["retrieves, over splits"]) == pytest.approx(share, abs=0.05)
        assert float(row["tokens saved"]) == pytest.approx(100 * (1 - share) * (74 - 12) / 77)


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


def test_methods_are_compared_with_the_questions_on_which_only_one_is_right(made):
    folder, right = made
    rows = {(row["answered"], row["less"]): row for row in table_of(folder, "comparisons-popqa")}
    assert len(rows) == 21, "each method less every earlier one, of the main language model alone"
    row = rows["dense", "BM25"]
    assert int(row["only this right"]) == (right["dense"] & ~right["bm25"]).sum()
    assert int(row["only that right"]) == (right["bm25"] & ~right["dense"]).sum()
    assert 0 < float(row["McNemar's p"]) <= 1


def test_no_point_of_a_figure_by_popularity_has_fewer_than_forty_questions(made):
    folder, _ = made
    for name in ("accuracy-by-popularity-popqa", "accuracy-by-log-popularity-popqa", "accuracy-by-relative-popularity"):
        rows = [row for row in table_of(folder, name) if row["match"] == "word"]
        assert sum(int(row["questions"]) for row in rows) == 800, name
        assert min(int(row["questions"]) for row in rows) >= 40, name
    assert min(int(row["questions"]) for row in table_of(folder, "accuracy-by-relation-and-popularity")) >= 40


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


def test_the_least_popular_questions_are_shown_beside_all(made):
    folder, right = made
    page = " ".join((folder / "index.html").read_text().split())
    n = round(800 * 4000 / 14267)
    assert f"PopQA: accuracy on the {n} least popular questions, and on all 800." in page
    rows = {(row["answered"], row["which"]): row for row in table_of(folder, "accuracy-by-group")}
    least = rows["dense", "least popular"]
    assert (int(least["questions"]), float(least["substring"])) == (n, pytest.approx(right["dense"][:n].mean()))
    drawn = (folder / "figures/least-popular-popqa.svg").read_text()
    assert f"{100 * right['dense'][:n].mean():.1f} [" in drawn


def test_times_are_on_a_page_of_their_own_with_the_machine(made, data, tmp_path):
    batches = [Batch(64, 64.0 * seconds, "Some processor, 2 cores") for seconds in range(1, 11)]
    for method, seconds in (("dense", 120.0), ("closed_book", 0.0)):
        searches = [Batch(60, seconds, "Some processor, 2 cores")] * bool(seconds)
        latency.write(data, "popqa", "tiny", method, latency.Taken(batches, searches), 1, method == "dense")
    latency.write(data, "popqa", "tiny", "elsewhere", latency.Taken(batches), 1, False)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    report, page = ((folder / "index.html").read_text() for folder in (tmp_path / "report", data / "latency"))
    assert report == (made[0] / "index.html").read_text(), "the report has no times"
    assert 'href="../latency/index.html"' in report
    with (data / "latency/latency.csv").open() as rows:
        closed, dense = csv.DictReader(rows)
    assert [closed["answered"], closed["median"], closed["90 % within"]] == ["closed-book", "5.5", "9.1"]
    assert [dense["answered"], dense["median"], dense["of it search"]] == ["dense", "7.5", "2"]
    assert (dense["machine"], dense["language model runs"]) == ("Some processor, 2 cores", "on a server")
    assert closed["language model runs"] == "here"
    tree = ElementTree.fromstring(page)
    assert len(list(tree.iterfind(".//figure"))) == 1
    assert "Some processor, 2 cores" in page
    assert "side by side" not in page
    write_report.write_report(data, tmp_path / "report", SETTINGS, workers=2)
    page = (data / "latency/index.html").read_text()
    assert "Stages ran side by side (compute.workers: 2), so these seconds are those of a shared machine" in page
    assert (tmp_path / "report/index.html").read_text() == report


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


def test_examples_show_what_was_retrieved_with_the_answer_marked(data, tmp_path):
    rows = tables.read(data / "analyses", "examples")
    rows[0] |= {"passage": "It is <i>Answer 7</i>, not answer 70.", "passage_answer": "answer 7"}
    tables.write(data / "analyses", "examples", rows)
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    page = (tmp_path / "report/index.html").read_text()
    assert "It is &lt;i&gt;<mark>Answer 7</mark>&lt;/i&gt;, not answer 70." in page
    assert "<mark>answer 70" not in page
    shown = table_of(tmp_path / "report", "examples-popqa")
    assert shown[0]["passage"] == "It is <i>Answer 7</i>, not answer 70."
    assert shown[0]["passage from"] == "A (film)"


def test_language_models_corpora_subsets_and_sizes_each_have_their_rows(made):
    names = ("bits-per-byte", "wikitext-perplexity", "bits-per-byte-by-subset", "bits-per-byte-by-datastore")
    tables = {name: table_of(made[0], name) for name in (*names, "bits-per-byte-by-k")}
    lms = [row["language model"] for row in tables["bits-per-byte"]]
    assert lms == ["tiny"] * 5 + ["big"] * 5
    assert [row["bits per byte"] for row in tables["bits-per-byte"]][::5] == ["1", "0.5"]
    assert [row["by word"] for row in tables["wikitext-perplexity"]][:5] == ["90", "90", "85.5", "81", "77.4"]
    subsets, shares, by_k = (tables[f"bits-per-byte-by-{name}"] for name in ("subset", "datastore", "k"))
    of_both = [(lm, subset) for lm in ("tiny", "big") for subset in ("Hub", "CC")]
    assert [(row["language model"], row["subset"]) for row in subsets] == of_both
    assert [row["source documents"] for row in subsets[:2]] == ["10", "5"]
    assert [row["share of the documents, %"] for row in shares] == ["0", "1", "10", "100"] * 2
    assert [(row["k"], row["dense"]) for row in by_k] == [("1", "0.9"), ("10", "0.9"), ("1", "0.45"), ("10", "0.45")]
    assert tables["bits-per-byte-by-k"][1]["dense against random, %"] == "10"
    drawn = {path.stem for path in (made[0] / "figures").iterdir()}
    assert {"saved-by-lm", "bits-per-byte-by-k", "saved-by-subset"} <= drawn
    assert {"bits-per-byte-by-datastore", "wikitext-perplexity"} <= drawn


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


def test_popularity_is_drawn_for_every_question_set_that_has_some(made):
    svg = (made[0] / "figures/popularity.svg").read_text()
    assert [name in svg for name in ("PopQA", "EntityQuestions", "Natural Questions")] == [True, False, True]
    nq = table_of(made[0], "popularity")[-1]
    assert (nq["questions of"], nq["popularity known"], nq["median"]) == ("Natural Questions", "3", "50000")
    assert "in 3 of 12 questions (25 %)" in " ".join((made[0] / "index.html").read_text().split())


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
    assert sum(int(row["questions"]) for row in deciles if row["match"] == "word") == 720
    assert float(deciles[0]["median page views"]) > min(view for view in views.to_pylist() if view)
    page = " ".join((tmp_path / "report/index.html").read_text().split())
    assert "The popularity of 80 of 800 answered questions of PopQA is unknown." in page


def test_what_became_of_entityquestions_subjects_is_counted_by_relation(data, tmp_path):
    assert set(popularity_section.HEADS) == set(LINKS)
    file = data / "questions/entityquestions/entityquestions.parquet"
    links = {"P112": [*LINKS, "not_found", "label"], "P19": ["not_found"] * 2}
    rows = [
        {"question_id": f"{relation}-{i}", "relation": relation, "link": link, "split": "test"}
        | {"s_pop": 7 if link in ("label", "alias") else None, "possible_answers": ["London"]}
        for relation, own in links.items()
        for i, link in enumerate(own)
    ]
    write(file, pa.Table.from_pylist(rows, schema=pq.read_schema(file)))
    shards.write_json(data / "metrics/entityquestions.json", {"label.answer_agrees": 0.96})
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    found = [list(row.values()) for row in table_of(tmp_path / "report", "linking-entityquestions")]
    assert found == [
        ["all", "10", "30", "2", "1", "1", "1", "1", "4"],
        ["place of birth (P19)", "2", "0", "0", "0", "0", "0", "0", "2"],
        ["P112", "8", "37.5", "2", "1", "1", "1", "1", "2"],
    ]
    page = " ".join((tmp_path / "report/index.html").read_text().split())
    assert (
        "30.0 % of 10 questions have exactly one candidate (the PopQA paper: 82 %); 40.0 % name nothing that was read."
        in page
    )
    assert "an object of that statement for 96 % of those linked by label." in page


def test_the_same_tables_give_the_same_bytes(made, data, tmp_path):
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    files = sorted(path.relative_to(made[0]) for path in made[0].rglob("*") if path.is_file())
    assert len(files) > 10
    for file in files:
        assert (tmp_path / "report" / file).read_bytes() == (made[0] / file).read_bytes(), file


def test_the_page_stands_alone_and_is_accessible(made):
    page = (made[0] / "index.html").read_text()
    tree = ElementTree.fromstring(page)  # well-formed, too
    assert not {"link", "img", "iframe"} & {element.tag for element in tree.iter()}
    assert tree.get("lang") == "en"
    drawings = list(tree.iterfind(".//figure//{http://www.w3.org/2000/svg}svg"))
    assert len(drawings) > 5
    assert all(len(svg.get("aria-label")) > 30 for svg in drawings)
    for table in tree.iterfind(".//table"):
        assert "".join(table.find("caption").itertext()).strip()
        heads = table.findall("thead/tr/th[@scope='col']")
        assert {len(row) for row in table.iterfind("tbody/tr")} == {len(heads)}
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert "<b>x</b>" not in page  # a model's output is text, never markup
    assert {link.get("href")[1:] for link in tree.iterfind(".//nav//a")} <= set(ids)


SECTIONS = {  # that each kind of run shows
    "WIKIPEDIA_AND_POPQA": ["run", "popularity", "accuracy", "effect", "recall", "adaptive", "costs", "provenance"],
    "PILE": ["run", "recall", "replug", "provenance"],
    "IMPORTED": ["run", "popularity", "accuracy", "effect", "adaptive", "provenance"],
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
