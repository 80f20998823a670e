"""The report: built from tables, it states their numbers and repeats to the byte."""

import copy
import csv
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_files import findings_of, table_of
from small_results import METHODS, QUESTIONS, SETTINGS, write

from pipelines import shards
from pipelines.answering import latency
from pipelines.answering.latency import Batch
from pipelines.evaluation import tables
from pipelines.questions.entityquestions import LINKS
from pipelines.report import csv_files, page, popularity_section, write_report
from pipelines.report.page import Share, Table


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
        assert [one["match"] for one in found] == ["substring", "word"] * rows, name
        assert [one["language model"] for one in found] == ["tiny"] * rows + ["davinci"] * rows, name
        assert {"closed-book", "dense_low", "LSR_high"} <= set(found[0])
    last = table_of(folder, "accuracy-by-popularity-popqa")[19]
    assert float(last["dense"]) == pytest.approx(word[-80:].mean())
    assert {"substring", "word", "word_low"} <= {*table_of(folder, "accuracy-by-relation-and-popularity")[0]}
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


def test_language_models_stand_beside_each_other(made):
    folder, _ = made
    rows = table_of(folder, "models-popqa")
    assert [row["language model"] for row in rows] == ["tiny"] * len(METHODS) + ["davinci"] * 2
    assert [row["word"] for row in rows][-1] == ""  # a file from elsewhere need not say
    assert {row["language model"] for row in table_of(folder, "models-by-popularity-popqa")} == {"tiny", "davinci"}
    drawing = (folder / "figures/models-by-popularity-popqa.svg").read_text()
    assert all(lm in drawing for lm in ("tiny", "davinci"))


def test_each_model_has_its_accuracy_by_popularity_and_by_relation_by_all_its_methods(made):
    folder, _ = made
    own = {"tiny": {page.label(method) for method in METHODS}, "davinci": {"closed-book", "dense"}}
    for name in ("each-by-popularity-popqa", "each-by-relation-popqa"):
        rows = table_of(folder, name)
        assert {lm: {row["answered"] for row in rows if row["language model"] == lm} for lm in own} == own
        assert next(iter(rows))["language model"] == "tiny"
    shown = {(row["relation"], row["language model"], row["answered"]): row for row in rows}
    for row in table_of(folder, "accuracy-by-relation-popqa"):
        assert shown[row["relation"], row["language model"], "dense"][row["match"]] == row["dense"]
    drawing = (folder / "figures/each-by-popularity-popqa.svg").read_text()
    assert drawing.count('font-weight="600"') == 2  # a panel for each model
    assert drawing.index(">tiny<") < drawing.index(">davinci<")
    assert not (folder / "tables/each-by-relation-entityquestions.csv").exists()  # only the main model answered it


def test_tables_as_csv_have_shares_and_never_per_cent_unless_their_head_says_so(made):
    for row in table_of(made[0], "thresholds-popqa"):
        shares = [float(row[name]) for name in ("closed-book", "augmented", "adaptive", "retrieves")]
        assert all(0 <= share <= 1 for share in shares)
    assert csv_files.to_csv(Table("t", "", ["a"], [[Share(0.25)], [1]])) == "a\n0.25\n1\n"
    assert (page.show(Share(0.25)), page.show(Share(1.0))) == ("25", "100")


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


def test_what_answers_cost_and_thresholds_save(made):
    folder, _ = made
    dense = {row["answered"]: row for row in table_of(folder, "cost-of-answers-popqa")}["dense"]
    assert (dense["prompts"], dense["tokens read"], dense["cost of 1,000 questions"]) == ("1", "74", "0")
    for row in table_of(folder, "savings-popqa"):
        share = float(row["retrieves"])
        assert float(row["retrieves, over splits"]) == pytest.approx(share, abs=0.05)
        assert float(row["tokens saved"]) == pytest.approx((1 - share) * (74 - 12) / 77)


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
        rows = [row for row in table_of(folder, name) if (row["match"], row["language model"]) == ("word", "tiny")]
        assert sum(int(row["questions"]) for row in rows) == 800, name
        assert min(int(row["questions"]) for row in rows) >= 40, name
    assert min(int(row["questions"]) for row in table_of(folder, "accuracy-by-relation-and-popularity")) >= 40


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


def test_popularity_is_drawn_for_every_question_set_that_has_some(made):
    svg = (made[0] / "figures/popularity.svg").read_text()
    assert [name in svg for name in ("PopQA", "EntityQuestions", "Natural Questions")] == [True, False, True]
    nq = table_of(made[0], "popularity")[-1]
    assert (nq["questions of"], nq["popularity known"], nq["median"]) == ("Natural Questions", "3", "50000")
    assert "in 3 of 12 questions (25 %)" in " ".join((made[0] / "index.html").read_text().split())


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
        ["all", "10", "0.3", "2", "1", "1", "1", "1", "4"],
        ["place of birth (P19)", "2", "0", "0", "0", "0", "0", "0", "2"],
        ["P112", "8", "0.375", "2", "1", "1", "1", "1", "2"],
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
