"""What real models say of the papers' claims: written from a run, read into reports, and shown beside another run."""

import json
import re
import shutil

import pytest
import yaml
from markupsafe import escape
from quick_project import git
from report_files import findings_of, page_of
from small_results import SETTINGS
from test_comparison import REACH, composed

from benchmarks import real_verdicts as benchmark
from pipelines.report import comparison, comparison_page, findings, rendering, write_report
from pipelines.report.inputs import read_inputs
from pipelines.report.page import NONE, VERDICTS
from pipelines.report.rendering import read_real
from pipelines.work import code

TAIL, BITS = (
    "Retrieval helps in the long tail.",
    "REPLUG lowers the language model's bits per byte.",
)
BENCHMARKS = "REPLUG raises accuracy on benchmarks."


@pytest.fixture(scope="module")
def written_file(written, root, tmp_path_factory):
    """The file of a run with two language models, of which both scored texts and one answered PopQA's questions."""
    project = tmp_path_factory.mktemp("project")
    shutil.copytree(written[0], project / "data")
    (project / "params.yaml").write_text(
        yaml.safe_dump(composed(root) | {"profile": "real_models"})
    )
    taken = project / "data/latency/popqa/tiny/dense.json"
    taken.parent.mkdir(parents=True, exist_ok=True)
    taken.write_text(json.dumps({"machine": "a processor, 2 cores"}))
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "all")
    benchmark.write(project, project / "real_claims.yaml")
    return project / "real_claims.yaml"


@pytest.fixture
def real(written_file):
    return read_real("sample", written_file)


def findings_in(data):
    return findings.findings(read_inputs(data, SETTINGS.lms, SETTINGS.parts, SETTINGS))


def figures(file, claim: str) -> dict:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    (found,) = [entry["figures"] for entry in content["claims"] if entry["claim"] == claim]
    return {(row["set"], row["method"], row["lm"]): row for row in found}


def test_the_file_has_the_figures_of_each_language_model_as_its_own_report_has_them(
    written_file, made
):
    folder, _ = made
    own = findings_of(folder)
    row = figures(written_file, TAIL)["PopQA", "dense", "tiny"]
    expected = own["tail-popqa-dense"]
    assert [row[end] for end in ("value", "low", "high")] == pytest.approx(
        [100 * expected[end] for end in ("value", "low", "high")]
    )
    assert (row["n"], row["verdict"]) == (480, expected["verdict"])
    bits = figures(written_file, BITS)
    assert bits["Pile", "dense", "tiny"]["value"] == pytest.approx(
        own["replug-pile-dense"]["value"]
    )
    assert bits["Pile", "dense", "tiny"]["n"] == 15
    assert {lm for _, _, lm in bits} == {"tiny", "big"}
    answered = figures(written_file, TAIL)
    assert {lm for _, _, lm in answered} == {"tiny"}
    assert not [method for _, method, _ in answered if "davinci" in method], (
        "imported answers are of no model that ran"
    )


def test_the_file_says_what_it_is_of_and_the_same_run_gives_the_same_bytes(written_file, tmp_path):
    project, again = written_file.parent, tmp_path / "again.yaml"
    content = yaml.safe_load(written_file.read_text(encoding="utf-8"))
    assert content["commit"] == git(project, "rev-parse", "--short", "HEAD")
    assert content["machine"] == "a processor, 2 cores"
    assert content["models"]["big"] == {"parameters": None, "dtype": "fp32", "folder": "opt-1.3b"}
    assert content["files"] == {"c4": {"files": 1, "bytes": 12}, "pile": {"files": 1, "bytes": 12}}
    benchmark.write(project, again)
    assert again.read_bytes() == written_file.read_bytes()


def test_holms_correction_is_for_the_figures_of_all_language_models(
    written_file, monkeypatch, tmp_path
):
    counted, whole = [], findings.holm
    monkeypatch.setattr(findings, "holm", lambda found: counted.append(len(found)) or whole(found))
    benchmark.write(written_file.parent, tmp_path / "again.yaml")
    *of_each, of_all = counted
    assert of_all == sum(of_each[-2:])


def test_the_dense_retriever_speaks_for_a_claim_on_the_first_set_and_the_others_follow(real):
    assert real.lms == ["big", "tiny"], "their parameters are not known"
    leading = real.leading(BITS)
    assert (leading.on, leading.method, [*leading.told]) == ("Pile", "dense", ["big", "tiny"])
    others = [(row.on, row.method) for row in real.claims[BITS] if row != leading]
    assert ("Pile", "BM25") in others
    assert ("WikiText", "dense") in others
    assert ("Pile", "dense") not in others
    assert real.leading(BENCHMARKS).method == "REPLUG"


def test_the_smallest_language_model_comes_first(written_file, tmp_path):
    content = yaml.safe_load(written_file.read_text(encoding="utf-8"))
    content["models"]["tiny"]["parameters"], content["models"]["big"]["parameters"] = (
        134_515_008,
        1_543_714_304,
    )
    (tmp_path / "real.yaml").write_text(yaml.safe_dump(content))
    real = read_real("sample", tmp_path / "real.yaml")
    assert real.lms == ["tiny", "big"]
    assert [*real.leading(BITS).told] == ["tiny", "big"]


def test_a_card_shows_what_real_models_say_of_its_claim(real, made, data):
    one = {
        "said": "+9.9 [+1.0, +18.8]",
        "beside": "(77)",
        "verdict": "shown",
        "lacking": "",
        "remains": False,
    }
    none = one | {"said": NONE, "beside": "(0)", "verdict": "not testable", "lacking": "No."}
    row = real.leading(TAIL)._replace(told={"big": one, "tiny": none})
    told = real._replace(claims=real.claims | {TAIL: [row]})
    found = findings_in(data)
    page = " ".join(rendering.render("title", "", found, [], "", told).split())
    card = page[page.index(TAIL) : page.index("Retrieval helps more in the tail")]
    assert "<h4>Real models: PopQA, dense</h4>" in card
    verdict = '<span class="verdict">shown <small>not after Holm</small></span>'
    assert f"<b>big</b> <span>+9.9 [+1.0, +18.8]</span> <small>(77)</small> {verdict}" in card
    assert '<b>tiny</b> <span class="lacking">No.</span>' in card
    assert "other methods and sets" not in card
    assert (
        f"other methods and sets ({len(real.claims[BITS]) - 1})" in page[page.index(escape(BITS)) :]
    )
    assert len(re.findall(r'id="finding-', page)) == len(found)
    assert "Real models" not in rendering.render("title", "", found, [], "")


def test_a_card_says_what_the_real_models_figures_are_where_that_differs(real, data):
    found = findings_in(data)
    same = rendering.render("title", "", found, [], "", real)
    other = real._replace(measured=real.measured | {BITS: "What 3 documents save."})
    assert "<p>What 3 documents save.</p>" not in same
    assert (
        rendering.render("title", "", found, [], "", other).count("<p>What 3 documents save.</p>")
        == 1
    )


def test_a_report_shows_the_projects_file_but_not_beside_the_run_that_it_is_of(
    made, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(SETTINGS, "profile", "real_models")
    write_report.write_report(data, tmp_path / "report", SETTINGS)
    assert "Real models: " in page_of(made[0])
    assert "Real models: " not in page_of(tmp_path / "report")


def test_the_projects_file_is_of_the_claims_and_verdicts_that_there_are(root):
    claims = {
        claim["claim"]
        for paper in yaml.safe_load(findings.FILE.read_text())
        for claim in paper["claims"]
    }
    content = yaml.safe_load(rendering.REAL_CLAIMS.read_text(encoding="utf-8"))
    assert {entry["claim"] for entry in content["claims"]} <= claims
    rows = [row for entry in content["claims"] for row in entry["figures"]]
    assert {row["lm"] for row in rows} == {*content["models"]}
    assert {row["verdict"] for row in rows} <= {*VERDICTS}
    assert read_real(content["profile"]) is None


def test_the_report_is_made_again_where_the_file_changes(root):
    assert rendering.REAL_CLAIMS in code.files("pipelines.report.write_report", root)


def test_the_page_has_real_models_and_the_run_side_by_side(real, made):
    rows = [*findings_of(made[0]).values()]
    page = comparison_page.page([], comparison.read_papers(), "mine", REACH, "../", real, rows)
    table = page[page.index(f"### {TAIL}") :]
    assert "| set, method | big | tiny | mine |" in table
    (own,) = [row for row in rows if row["id"] == "tail-popqa-bm25"]
    tiny = next(row for row in real.claims[TAIL] if row.method == "BM25").told["tiny"]
    assert (
        f"| PopQA, BM25 | {NONE} | {tiny['said']} {tiny['verdict']} | {own['said']} {own['verdict']} |"
        in table
    )
    assert "(../measured/real.md)" in page
    assert "by real models" not in comparison_page.page([], comparison.read_papers(), "mine", REACH)
