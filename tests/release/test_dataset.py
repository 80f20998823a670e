"""A release is complete, loads everywhere, repeats its bytes, shows what was tampered with,
lands whole or not.
"""

import json
import re
import shutil
import subprocess

import duckdb
import pandas
import pytest
import releases
import yaml
from releases import MADE_BY, VIEWS, files_of, questions, release, write_data

from pipelines.errors import LongtailError
from pipelines.pages import values
from pipelines.questions import published
from pipelines.release import contents
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")

CANARY = (
    "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"  # never changes: filters look for it
)


def text(cell: object) -> object:
    """A cell of MLCommons' library, whose texts are bytes."""
    if isinstance(cell, list):
        return [text(one) for one in cell]
    return cell.decode() if isinstance(cell, bytes) else cell


def test_every_loader_reads_it(first, tmp_path, monkeypatch):
    """By Hugging Face's and MLCommons' libraries, which must not ask the network; their caches
    are the test's.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets
    import mlcroissant

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    described = mlcroissant.Dataset(str(first / "croissant.json"))
    assert (described.metadata.ctx.issues.errors, described.metadata.ctx.issues.warnings) == (
        set(),
        set(),
    )
    for table in contents.present(first):
        rows = duckdb.sql(f"FROM '{first / table.parquet}'").to_arrow_table().to_pylist()
        assert pandas.read_parquet(first / table.parquet).shape == (len(rows), len(table.names))
        assert list(pandas.read_csv(first / table.tsv, sep="\t")[table.key[-1]]) == [
            r[table.key[-1]] for r in rows
        ]
        assert datasets.load_dataset(str(first), table.name, split=table.split).to_list() == rows
        records = described.records(table.name)
        assert [
            {key.partition("/")[2]: text(cell) for key, cell in row.items()} for row in records
        ] == rows
    other = release(
        write_data(tmp_path / "data", questions(views=VIEWS | {2: 98})), tmp_path / "out"
    )
    assert other.name == first.name
    loaded = [
        datasets.load_dataset(str(folder), "popqa", split="test") for folder in (first, other)
    ]
    assert loaded[0]["s_pop"] != loaded[1]["s_pop"]


def card_of(folder) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_a_release_has_every_file(first):
    """It says what made it, and is found by its canary."""
    assert first.name == "1.0.0"
    tables = [f"{table.name}.{kind}" for table in contents.TABLES for kind in ("parquet", "tsv")]
    others = [f"{name}.json" for name in ("croissant", "provenance", "changes")]
    others += [
        "rules/popqa/tiny/bm25.json",
        "rule.schema.json",
        "README.md",
        "LICENSE.md",
        "SHA256SUMS",
    ]
    others += ["CHANGELOG.md", "lm-eval/popqa.yaml", "lm-eval/functions.py"]
    encoder = ["README.md", "SHA256SUMS", "config.json", "model.safetensors"]
    others += [f"retriever/dense/{name}" for name in encoder]
    assert sorted(files_of(first)) == sorted([*tables, *others, "CANARY.txt"])
    assert CANARY in card_of(first)
    assert "| as measured |" in card_of(first), "the advice is the verdict of the rule"
    assert CANARY in (first / "CANARY.txt").read_text(encoding="utf-8")
    assert b"Where was Ada born" not in b"".join(files_of(first).values()), (
        "EntityQuestions is there by its ids only"
    )
    assert (first / "entityquestions_links.tsv").read_text(encoding="utf-8").splitlines() == [
        "question_id\trelation\tsplit\ts_uri\ts_pop\tlink",
        "P19-1\tP19\ttest\thttp://www.wikidata.org/entity/Q1\t7\tlabel",
        "P19-2\tP19\ttest\t\t\tambiguous",
    ]
    made = json.loads((first / "provenance.json").read_text(encoding="utf-8"))
    assert {name: made[name] for name in ("commit", "landed", "date", "dvc")} == {
        name: MADE_BY[name] for name in ("commit", "landed", "date", "dvc")
    }
    assert "`, which has landed as `data/sample/2026-10`" in card_of(first)
    assert made["sources"][0]["sha256"] == "0" * 64
    assert (made["params"]["thresholds"], "contact" in made["params"]) == (
        {"search": "shrunk"},
        False,
    )


def test_a_model_card_says_what_made_a_retriever(first, tmp_path):
    """Its licence is that of the base model's card, if that is on this machine. A language model
    that was not asked is not named.
    """
    folder = first / "retriever/dense"
    text = (folder / "README.md").read_text(encoding="utf-8")
    front_matter = yaml.safe_load(text.split("---")[1])
    assert (front_matter["library_name"], "license" in front_matter) == (
        "sentence-transformers",
        False,
    )
    for line in (
        "| untuned encoder | owner/base, revision abc |\n| its licence | not named in its files |",
        "# dense: a retriever tuned to `tiny`\n",
        "| language model that taught it | (outside the project)/tiny |",
        "- It was tuned to `tiny`. Measure it anew",
        "| training queries | 214 of wikipedia; questions are those of popqa with split train,",
        "| popqa | tiny | 4 | 25.0 [12.5, 37.5] | 50.0 [37.5, 62.5] | \N{MINUS SIGN}12.5 [",
        "| pile | tiny | 0.5000 [0.3750, 0.6250] | +1.50 [+1.38, +1.62] |",
        'encode_document(["Hamlet A tragedy by William Shakespeare."])',
        "## What it is not for",
    ):
        assert line in text
    contents.check_sums(folder)

    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A base model\n")
    retriever = MADE_BY["params"]["retriever"]["dense"] | {"path": str(base), "revision": None}
    lsr = MADE_BY["params"]["lsr"] | {"queries": "qa", "likelihood": "holds_answer"}
    params = MADE_BY["params"] | {"retriever": {"dense": retriever}, "lsr": lsr}
    made_by = MADE_BY | {"params": params}
    other = release(write_data(tmp_path / "data"), tmp_path / "out", made_by=made_by)
    text = (other / "retriever/dense/README.md").read_text(encoding="utf-8")
    assert "| untuned encoder | (outside the project)/base |" in text
    assert yaml.safe_load(text.split("---")[1])["license"] == "apache-2.0"
    assert "No language model was asked." in text
    assert "| language model that taught it | none |\n| training queries |" in text
    assert "`tiny`" not in text, "it is tuned to no model"
    assert "`retriever/` has the encoders that were tuned to find answers: dense." in card_of(other)


def test_popqas_tsv_is_in_the_published_format(first):
    """The card's way of reading it tells unknown from rare."""
    rows = published.read_published(first / "popqa.tsv", Rejects(0.0)).to_pylist()
    assert rows == [{name: row[name] for name in published.COLUMNS} for row in questions()]
    code = card_of(first).split("```python\n")[1].split("```")[0]
    code = "\n".join(
        line for line in code.splitlines() if "parquet" not in line and "datasets" not in line
    )
    names: dict = {"pandas": pandas}
    exec(code.replace('"popqa.tsv"', f'"{first / "popqa.tsv"}"'), names)
    views = names["published"]["s_pop"]
    assert [None if pandas.isna(n) else n for n in views] == [row["s_pop"] for row in questions()]


def test_a_rule_decides_by_the_lines_that_the_card_shows(tmp_path, root, monkeypatch):
    """The lines are held against the function that decides in tests/flows/test_decide.py."""
    cuts = [
        row | {"deployed": 700.0, "threshold": 700.0}
        for row in releases.thresholds(("tiny", "big"))
    ]
    folder = release(write_data(tmp_path / "data", cuts=cuts), tmp_path / "out")
    assert list(contents.rules(folder)) == ["popqa/big/bm25", "popqa/tiny/bm25"]
    texts = (root / "docs/thresholds.md").read_text(encoding="utf-8"), card_of(folder)
    blocks = [re.findall(r"```python\n(.*?)```", one, re.DOTALL) for one in texts]
    documented, shown = (
        next(block for block in of_text if "def retrieve" in block) for of_text in blocks
    )
    assert shown == documented.replace("thresholds/rule.json", "rules/popqa/tiny/bm25.json")
    monkeypatch.chdir(folder)
    reader: dict = {}
    exec(shown, reader)
    assert (reader["rule"]["schema"], reader["rule"]["version"]) == ("longtail-rule", 2)
    assert [reader["retrieve"]("occupation", views) for views in (699, 700)] == [True, False]


def test_the_card_has_the_front_matter_and_what_was_measured(first):
    _, front, body = card_of(first).split("---\n", 2)
    front = yaml.safe_load(front)
    assert front["license"] == ["cc0-1.0"]
    assert [each["config_name"] for each in front["configs"]] == [
        table.name for table in contents.TABLES
    ]
    for said in (
        "| questions | 5 about 4 subjects |",
        "| split | 1 train, 4 test |",
        "| occupation | P106 | What is {}'s occupation? | 5 | 532 | 53 |",  # of the four that are known
        "| questions about subjects of unknown popularity | 1 |",
        "| popqa | tiny | bm25 | 4 | 0.250 | 0.500 | 0.750 | 1.000 |",
        "1 (50.0 %) are linked",
        "| Wikidata, JSON dump or query results | 1 | 1.50 | CC0-1.0 |",
        *(f"`{name}`" for table in contents.TABLES for name in table.names),
    ):
        assert said in body
    assert "fictional" not in body


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("wikidata", "up to 2,000 of a relation. So the shares"),
        ("published", "| questions | 5 about 4 subjects |"),
    ],
)
def test_the_card_says_dates_that_are_far_apart(tmp_path, origin, said):
    """It says unknown views, the bound of a relation and the licence too."""
    rows = [
        row | {"origin": origin} for row in questions(views=dict.fromkeys(VIEWS), month="2026-09")
    ]
    data = write_data(tmp_path / "data", rows)
    (source,) = json.loads((data / "raw/manifest.json").read_text(encoding="utf-8"))
    dated = [
        source | {"date": "2026-09-28"},
        source | {"dataset": "wikipedia", "date": "2026-07-20"},
    ]
    (data / "raw/manifest.json").write_text(json.dumps(dated), encoding="utf-8")
    folder = release(data, tmp_path / "out")
    card = card_of(folder)
    assert (
        "| Wikidata of | 2026-09-28 |\n| Wikipedia of | 2026-07-20 |\n| page views of | 2026-09 |\n"
        in card
    )
    assert "**These dates are up to 70 days apart, more than fetch.days_apart allows (31)" in card
    assert f"| popularity of the subjects: least, quartiles, highest | {values.NONE} |" in card
    assert said in " ".join(card.split())
    both = ["mit", "cc0-1.0"] if origin == "published" else ["cc0-1.0"]
    assert yaml.safe_load(card.split("---\n")[1])["license"] == both
    licence = (folder / "LICENSE.md").read_text(encoding="utf-8")
    assert ("Copyright (c) 2023 Alex Mallen" in licence) == (origin == "published")


def test_the_same_data_gives_the_same_bytes(first, tmp_path):
    data = write_data(tmp_path / "data")
    assert files_of(release(data, tmp_path / "out", threads=3)) == files_of(first)
    assert release(data, tmp_path / "out", made_by=MADE_BY | {"commit": "f" * 40}) is None
    assert files_of(tmp_path / "out") == {
        f"1.0.0/{name}": body for name, body in files_of(first).items()
    }


def test_a_release_of_a_run_that_has_not_landed_says_so_everywhere(first, tmp_path):
    """It replaces nothing, and is nothing that a later one follows on."""
    out = shutil.copytree(first, tmp_path / "out/1.0.0").parent
    made_by = MADE_BY | {"landed": None}
    for views in (100, 100):  # the same bytes twice
        data = write_data(tmp_path / "data", questions(views=VIEWS | {2: views}))
        folder = release(data, out, made_by=made_by)
        assert folder == out / "1.0.1-not-gated"
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    assert (provenance["landed"], provenance["version"]) == (None, "1.0.1-not-gated")
    said = "This release is not gated: its run has not landed"
    croissant = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert croissant["version"] == "1.0.1-not-gated"
    assert said in croissant["description"]
    assert said in card_of(folder)
    assert said not in card_of(first)
    assert "landed as" not in card_of(folder)

    import mlcroissant

    issues = mlcroissant.Dataset(str(folder / "croissant.json")).metadata.ctx.issues
    assert (issues.errors, issues.warnings) == (set(), set())

    before = files_of(folder)
    data = write_data(tmp_path / "data", questions(views=VIEWS | {2: 101}))
    error = r"1\.0\.1-not-gated: is there already with other bytes, expected no such folder"
    with pytest.raises(LongtailError, match=error):
        release(data, out, made_by=made_by)
    assert files_of(folder) == before
    assert release(data, out).name == "1.0.1"


def test_a_release_holds_the_outputs_of_one_run(tmp_path):
    """What another run left in data/ is in no release."""
    data = write_data(tmp_path / "data")
    outs = {"build_popqa": {"data/questions/popqa": ""}, "fetch": {"data/raw": ""}}
    folder = release(data, tmp_path / "out", made_by=MADE_BY | {"dvc": outs})
    assert [table.name for table in contents.present(folder)] == ["popqa"]
    assert contents.rules(folder) == contents.retrievers(folder) == {}
    del outs["build_popqa"]
    with pytest.raises(LongtailError, match=r"^data/questions/popqa/popqa\.parquet: no question"):
        release(data, tmp_path / "other", made_by=MADE_BY | {"dvc": outs})
    with pytest.raises(LongtailError, match=r"^data/raw/manifest\.json: no output of this run"):
        release(data, tmp_path / "other", made_by=MADE_BY | {"dvc": {}})


def test_the_next_release_says_what_changed(made):
    second = made / "1.1.0"
    changes = json.loads((second / "changes.json").read_text(encoding="utf-8"))
    assert (changes["previous"], changes["level"]) == ("1.0.0", "minor")
    counts = {
        "rows": 4,
        "rows_added": 0,
        "rows_gone": 1,
        "rows_changed": 4,
        "columns_added": [],
        "columns_gone": [],
    }
    assert changes["tables"]["popqa"] == counts | {"values_changed": {"s_pop": 2, "month": 4}}
    moved = "- `popqa`: 0 rows added, 1 gone, 4 with other values (s_pop 2, month 4)\n"
    assert "Since 1.0.0, a minor change:" in card_of(second)
    assert moved in card_of(second)
    log = (second / "CHANGELOG.md").read_text(encoding="utf-8")
    assert moved in log
    assert "occupation (P106)    5    4      0     1 " in log
    assert log.endswith("\n## 1.0.0 (2026-10-31)\n\nThe first release.\n")
    contents.check_sums(second)


def test_a_table_without_rows_is_left_out(tmp_path):
    data = write_data(tmp_path / "data")
    (data / "adaptive/popularity/thresholds.parquet").unlink()
    folder = release(data, tmp_path / "out")
    assert [table.name for table in contents.present(folder)] == ["popqa", "entityquestions_links"]
    assert "threshold" not in (folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    (data / "questions/popqa/popqa.parquet").unlink()
    with pytest.raises(
        LongtailError, match=r"data/questions/popqa/popqa\.parquet: no question in it"
    ):
        release(data, tmp_path / "other")


def test_a_tampered_file_is_caught(first, tmp_path):
    folder = shutil.copytree(first, tmp_path / "out/1.0.0")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, capture_output=True).returncode == 0
    contents.check_sums(folder)
    tampered = (folder / "popqa.tsv").read_text(encoding="utf-8").replace("poet", "pope")
    (folder / "popqa.tsv").write_text(tampered, encoding="utf-8")
    (folder / "LICENSE.md").unlink()
    (folder / "notes.txt").touch()
    assert subprocess.run(check, cwd=folder, capture_output=True).returncode == 1
    what = r"1\.0\.0: not as it was released: LICENSE\.md is missing, popqa\.tsv is changed, notes\.txt is not listed"
    with pytest.raises(LongtailError, match=what):
        contents.check_sums(folder)
    with pytest.raises(
        LongtailError, match=what
    ):  # nor is it what the next release is compared with
        release(write_data(tmp_path / "data"), tmp_path / "out")


@pytest.mark.parametrize("stop", ["contents.check_no_secrets", "shutil.copytree"])
def test_a_release_that_fails_leaves_the_last_one_as_it_was(first, tmp_path, monkeypatch, stop):
    out = tmp_path / "out"
    shutil.copytree(first, out / first.name)
    write_data(tmp_path / "data", questions(views=VIEWS | {2: 100}))
    stages = {"build_popqa": {"data/questions/popqa": ""}, "fetch": {"data/raw": ""}}
    made_by = MADE_BY | {"dvc": stages}  # else it fails where a retriever is copied

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"pipelines.release.versions.{stop}", fail)
    with pytest.raises(OSError, match="no space left"):
        release(tmp_path / "data", out, made_by=made_by)
    assert files_of(out) == {f"1.0.0/{name}": body for name, body in files_of(first).items()}
    assert not list((tmp_path / ".longtail/tmp").iterdir())
