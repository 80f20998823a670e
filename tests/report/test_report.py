"""The report: built from tables, it states their numbers and repeats to the byte."""

import json
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from quick_project import dvc_init
from report_files import (
    findings_of,
    leads_of,
    overlong,
    page_of,
    settings_of,
    table_of,
    unclear_parts,
)
from small_results import METHODS, QUESTIONS, SETTINGS

from pipelines.pages import values
from pipelines.pages.values import label
from pipelines.report import write_report


def test_the_page_holds_the_computed_numbers(made):
    folder, right = made
    text = " ".join("".join(ElementTree.fromstring(page_of(folder)).itertext()).split())
    for said in (
        f"{100 * right['closed_book'].mean():.1f} [",
        "2,467",
        "no label",
        "dump.json, row 7",
    ):
        assert said in text
    tail = right["dense"][:480].mean() - right["closed_book"][:480].mean()
    assert findings_of(folder)["tail-popqa-dense"]["value"] == pytest.approx(tail)


def test_the_page_begins_with_the_main_result(made):
    """The method with the highest adaptive accuracy is shown, whatever else is there."""
    header = ElementTree.fromstring(page_of(made[0])).find(".//header")
    rows = of_tiny(made[0], "adaptive", search="shrunk")
    best = max(
        (row for row in rows if " below " not in row["retriever"]),
        key=lambda row: float(row["adaptive retrieval"]),
    )
    numbers = [" ".join("".join(dd.itertext()).split()) for dd in header.iter("dd")]
    ends = ("", "_low", "_high")
    expected = [
        [100 * float(best[label(policy) + end]) for end in ends]
        for policy in ("never", "always", "adaptive")
    ]
    retrieved = [100 * float(best[f"retrieves{end}"]) for end in ("", "_high", "_low")]
    expected.append([100 - share for share in retrieved])
    assert numbers == ["{:.1f} % [{:.1f}, {:.1f}]".format(*of) for of in expected]
    says = "".join(header.find("p[@class='headline']").itertext())
    assert says.startswith(
        "In a fictional world, with passages from LSR (LM-supervised retrieval), the model tiny is "
        "right on "
        f"{expected[1][0]:.1f}"
    )
    assert float(best["gain_low"]) < 0 < 100 - retrieved[1]
    advice = (
        f"no clear difference to always retrieving, with {expected[3][0]:.1f} % fewer retrievals."
    )
    assert says.endswith(f"the advice is adaptive retrieval: {advice}")
    assert (
        next(one.get("data-name") for one in header.iter("div") if one.get("data-name"))
        == "result-popqa"
    )
    links = [one.get("href") for one in header.iter("a") if one.get("href")]
    papers = ["https://arxiv.org/abs/2212.10511", "https://arxiv.org/abs/2301.12652"]
    assert links == ["../../docs/results.md", *papers]


def test_each_section_begins_with_a_plain_sentence(made):
    leads = leads_of(made[0])
    assert len(leads) > 12
    assert overlong(leads) == []
    assert unclear_parts(made[0]) == []
    assert (
        overlong(["one " * 26, "1, 2.5, 3 and 4", "1 [0, 2]", "C4 has 1,000 texts of 2.5 GB"])[-1]
        == "1 [0, 2]"
    )


def test_the_introduction_says_what_is_fictional(made):
    """The settings name models without their folders."""
    whole, settings = page_of(made[0]), settings_of(made[0])
    box = whole[whole.index('<aside class="real"') : whole.index("</aside>")]
    for says in ("The sample is fictional", "None of the papers' numbers", "what real models do"):
        assert says in box
    assert "/home/someone" not in whole
    assert settings["retrievers' encoders"] == "dense: all-MiniLM-L6-v2; LSR: dense tuned to big"
    assert settings["their weights"] == "tiny tiny-llama, big big-llama"
    assert settings["demonstrations in a question's prompt"] == "tiny 0, big 15"


def test_what_was_read_for_each_corpus_is_counted(made):
    counts = {row["count"]: [*row.values()][1:] for row in table_of(made[0], "corpora")}
    assert [*table_of(made[0], "corpora")[0]] == ["count", "Wikipedia", "Pile", "WikiText"]
    assert counts["redirects"] == ["1728", "0", "0"]
    assert counts["exact duplicates"] == ["0", "1041", "0"]
    of_wikipedia = [counts[name][0] for name in ("read", "tokens", "of other namespaces")]
    assert of_wikipedia == ["5617", "2467", "1309"]
    assert counts["read"][2] == "120"
    of_pile = [counts[name][1] for name in ("sources removed as near-duplicates", "test queries")]
    assert of_pile == ["1377", "1888"]
    assert [row["data set"] for row in table_of(made[0], "sources")] == ["c4", "pile"]


def of_tiny(folder, name, **wanted):
    """A table's rows of the main language model on PopQA, with these cells."""
    wanted |= {"questions of": "PopQA", "language model": "tiny"}
    return [
        row
        for row in table_of(folder, name)
        if all(row.get(key, value) == value for key, value in wanted.items())
    ]


def test_accuracy_stands_side_by_side_by_both_rules(made):
    folder, right = made
    word = right["dense"] & (np.arange(QUESTIONS) % 50 > 0)
    closed, _, dense, *_ = table_of(folder, "accuracy")
    assert float(closed["substring"]) == pytest.approx(right["closed_book"].mean())
    assert (
        float(closed["substring_low"])
        < float(closed["substring"])
        < float(closed["substring_high"])
    )
    assert [float(dense[rule]) for rule in ("substring", "word")] == pytest.approx(
        [right["dense"].mean(), word.mean()]
    )
    last = of_tiny(folder, "accuracy-by-popularity", answered="dense")[-1]
    assert float(last["word"]) == pytest.approx(word[-80:].mean())
    assert float(last["substring"]) == pytest.approx(right["dense"][-80:].mean())
    (tail,) = of_tiny(
        folder, "retrieval-effect", **{"answered": "dense", "questions where": "tail"}
    )
    assert float(tail["with retrieval"]) == pytest.approx(right["dense"][:480].mean())


def test_every_figure_is_there(made):
    folder = made[0]
    drawn = {path.stem: path for path in (folder / "figures").iterdir()}
    assert {"accuracy-by-popularity-popqa", "gain-by-popularity-popqa"} <= {*drawn}
    assert {"saved-by-lm", "bits-per-byte-by-k", "lsr-training-dense"} <= {*drawn}
    assert {"bits-per-byte-by-datastore", "perplexity-wikitext"} <= {*drawn}
    of_sets = drawn["popularity"].read_text()
    assert [name in of_sets for name in ("PopQA", "EntityQuestions", "Natural Questions")] == [
        True,
        False,
        True,
    ]
    nq = table_of(folder, "popularity")[-1]
    expected = ("Natural Questions", "3", "50000")
    assert (nq["questions of"], nq["popularity known"], nq["median"]) == expected


def test_retrievers_and_methods_have_the_measured_numbers(made):
    folder, right = made
    rows = {row["retriever"]: row for row in table_of(folder, "retrievers")}
    assert list(rows) == ["random documents", "BM25", "dense", "LSR"]
    assert (rows["dense"]["bits per byte"], rows["LSR"]["saved, %"]) == ("0.9", "14")
    assert float(rows["LSR"]["PopQA, recall@1"]) == pytest.approx(right["lsr"].mean())
    rows = {(row["answered"], row["less"]): row for row in of_tiny(folder, "comparisons")}
    assert int(rows["dense", "BM25"]["only this"]) == (right["dense"] & ~right["bm25"]).sum()
    (dense,) = of_tiny(folder, "cost-of-answers", answered="dense")
    expected = ("1", "74", "0")
    assert (dense["prompts"], dense["tokens read"], dense["cost of 1,000 questions"]) == expected
    saved = of_tiny(folder, "savings")[0]
    assert float(saved["tokens saved"]) == pytest.approx(
        100 * (1 - float(saved["retrieves"])) * (74 - 12) / 77
    )


def test_each_model_has_its_accuracy_by_all_its_methods(made):
    rows = [row for row in table_of(made[0], "models") if row["questions of"] == "PopQA"]
    assert [row["language model"] for row in rows] == ["tiny"] * len(METHODS) + ["davinci"] * 2
    assert rows[-1]["word"] == ""  # a file from elsewhere need not say
    own = {
        "tiny": {values.label(method) for method in METHODS},
        "davinci": {"without retrieval", "dense"},
    }
    for name in ("models", "accuracy-by-relation", "accuracy-by-popularity"):
        rows = [row for row in table_of(made[0], name) if row["questions of"] == "PopQA"]
        assert {
            lm: {row["answered"] for row in rows if row["language model"] == lm} for lm in own
        } == own, name


def test_no_point_has_fewer_than_forty_questions(made):
    """The least popular stand beside all."""
    folder, right = made
    rows = of_tiny(folder, "accuracy-by-popularity", answered="dense")
    assert sum(int(row["questions"]) for row in rows) == 800
    assert min(int(row["questions"]) for row in rows) >= 40
    n = round(800 * 4000 / 14267)
    rows = {(row["answered"], row["which"]): row for row in table_of(folder, "accuracy-by-group")}
    least = rows["dense", "least popular"]
    assert (int(least["questions"]), float(least["substring"])) == (
        n,
        pytest.approx(right["dense"][:n].mean()),
    )


def test_the_same_tables_give_the_same_bytes(made, data, tmp_path):
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    files = sorted(path.relative_to(made[0]) for path in made[0].rglob("*") if path.is_file())
    assert len(files) > 10
    for file in files:
        assert (tmp_path / "report" / file).read_bytes() == (made[0] / file).read_bytes(), file


def test_models_corpora_and_sizes_each_have_their_rows(made):
    bits, subsets = (table_of(made[0], f"bits-per-byte{of}") for of in ("", "-by-subset"))
    none = [(row["language model"], row["bits per byte"]) for row in bits if row["k"] == "0"]
    assert none == [("tiny", "1"), ("big", "0.5")]
    by_word = {
        row["documents"]: row["by word"]
        for row in table_of(made[0], "perplexity")
        if row["corpus"] == "WikiText"
    }
    words = {
        "no document": "90",
        "random documents": "90",
        "BM25": "85.5",
        "dense": "81",
        "LSR": "77.4",
    }
    assert by_word == words
    of_both = [(lm, subset) for lm in ("tiny", "big") for subset in ("Hub", "CC")]
    dense = [row for row in subsets if row["documents"] == "dense"]
    assert [(row["language model"], row["subset"]) for row in dense] == of_both
    assert [row["source documents"] for row in dense[:2]] == ["10", "5"]
    shares = (made[0] / "figures/bits-per-byte-by-datastore.svg").read_text()
    assert re.search(
        r"no document: 1 at 1 to [^;]*1 at 100; dense: 1 at 1 to [^;]*1 at 100\.\"", shares
    )
    dense = [(row["k"], row["bits per byte"]) for row in bits if row["documents"] == "dense"]
    assert dense == [("1", "0.9"), ("10", "0.9"), ("1", "0.45"), ("10", "0.45")]


@pytest.mark.parametrize("name", ["index", "details"])
def test_the_page_stands_alone_and_is_accessible(made, root, name):
    """Its links lead to what is there: on the other page, beside it, or in the documentation."""
    tree = ElementTree.fromstring(page_of(made[0], name))  # well-formed, too
    assert not {"link", "img", "iframe"} & {element.tag for element in tree.iter()}
    assert tree.get("lang") == "en"
    drawings = list(tree.iterfind(".//figure//{http://www.w3.org/2000/svg}svg"))
    assert min(len(svg.get("aria-label")) for svg in drawings) > 30
    for table in tree.iterfind(".//table"):
        assert "".join(table.find("caption").itertext()).strip()
        heads = table.findall("thead/tr/th[@scope='col']")
        assert {len(row) for row in table.iterfind("tbody/tr")} == {len(heads)}
    ids = {}
    for page in ("index", "details"):
        elements = ElementTree.fromstring(page_of(made[0], page)).iter()
        ids[f"{page}.html"] = {element.get("id") for element in elements}
    files = set()
    for link in tree.iter("a"):
        file, _, id_ = link.get("href", "").partition("#")
        target = file or f"{name}.html"
        if target in ids:
            assert not id_ or id_ in ids[target], link.get("href")
            files.add(target)
        elif target.startswith("../../docs/"):
            assert (root / target.removeprefix("../../")).is_file(), target
    assert files == {*ids}


def test_dvc_finds_what_it_plots(made, root, tmp_path, monkeypatch):
    """Of all methods and question sets, whatever they are called."""
    from dvc.cli import main

    dvc_init(tmp_path)
    shutil.copytree(root / ".dvc/plots", tmp_path / ".dvc/plots")
    plots = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["plots"]
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"plots": plots}))
    shutil.copytree(made[0], tmp_path / "data/report")
    monkeypatch.chdir(tmp_path)
    assert main(["plots", "show"]) == 0
    page = (tmp_path / "dvc_plots/index.html").read_text(encoding="utf-8")
    specs = [json.loads(spec) for spec in re.findall(r"var spec = (.*);", page)]
    assert len(specs) == len(plots)
    for spec in specs:
        assert spec["data"]["values"]
        assert all(spec["encoding"][axis]["title"] for axis in "xy")
