"""A release is complete, loads everywhere, repeats its bytes, shows what was tampered with, lands whole or not."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import islice
from types import SimpleNamespace

import duckdb
import pandas
import pyarrow.parquet as pq
import pytest
import releases
import yaml
from releases import FACTS, VIEWS, files_of, questions, release, write_data

from pipelines import params
from pipelines.adaptive import rule
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.questions.popqa import build_popqa
from pipelines.release import contents, dataset
from pipelines.report import page
from pipelines.sources.rejects import Rejects

pytestmark = pytest.mark.usefixtures("workplace")

CROISSANTS = 500  # records


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first release of the small world; tests leave it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("first"))
        folder = tmp_path_factory.mktemp("releases")
        yield release(write_data(folder / "data"), folder / "out")


@pytest.fixture(scope="module")
def loaders(tmp_path_factory):
    """Hugging Face's and MLCommons' libraries, which must not ask the network and keep their caches to themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        import datasets
        import mlcroissant

        yield datasets, mlcroissant


def check_loading(folder, loaders, monkeypatch, tmp_path) -> None:
    """Every loader gives the rows that are in the Parquet files; of MLCommons', which is slow, the first are asked."""
    datasets, mlcroissant = loaders
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    described = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert (described.metadata.ctx.issues.errors, described.metadata.ctx.issues.warnings) == (set(), set())
    lists = {field.id for records in described.metadata.record_sets for field in records.fields if field.repeated}
    assert lists == {"popqa/s_aliases", "popqa/o_aliases", "popqa/possible_answers"}
    for table in contents.present(folder):
        rows = duckdb.sql(f"FROM '{folder / table.parquet}'").to_arrow_table().to_pylist()
        assert rows
        assert pandas.read_parquet(folder / table.parquet).shape == (len(rows), len(table.columns))
        assert list(pandas.read_csv(folder / table.tsv, sep="\t")[table.key[-1]]) == [r[table.key[-1]] for r in rows]
        assert datasets.load_dataset(str(folder), table.name, split=table.split).to_list() == rows
        records = [
            {
                name.partition("/")[2]: [v.decode() for v in value] if isinstance(value, list) else
                value.decode() if isinstance(value, bytes) else value
                for name, value in record.items()
            }
            for record in islice(described.records(table.name), CROISSANTS)
        ]  # fmt: skip
        assert records == rows[:CROISSANTS]


def test_a_release_has_every_file(first):
    assert first.name == "1.0.0"
    tables = [f"{table.name}.{kind}" for table in contents.TABLES for kind in ("parquet", "tsv")]
    others = [f"{name}.json" for name in ("croissant", "schema", "provenance", "changes")]
    others += ["rules/popqa/tiny/bm25.json", "rule.schema.json", "README.md", "LICENSE.md", "SHA256SUMS"]
    others += ["CHANGELOG.md", "CITATION.cff", ".zenodo.json", "lm-eval/popqa.yaml", "lm-eval/functions.py"]
    others += ["CANARY.txt"]
    assert sorted(files_of(first)) == sorted([*tables, *others])


def test_every_release_has_the_same_canary_in_its_card_and_in_a_file(first):
    string = "longtail:canary:81c27560-b743-427d-b2a7-8413bf9d8cd7"  # never changes: filters look for it
    for name in ("README.md", "CANARY.txt"):
        assert string in (first / name).read_text(encoding="utf-8")


def test_every_loader_reads_it(first, loaders, monkeypatch, tmp_path):
    check_loading(first, loaders, monkeypatch, tmp_path)


def test_another_release_of_the_same_name_is_not_taken_for_one_in_the_cache(first, loaders, monkeypatch, tmp_path):
    datasets, _ = loaders
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    other = release(write_data(tmp_path / "data", questions(views=VIEWS | {2: 98})), tmp_path / "out")
    assert other.name == first.name
    loaded = [datasets.load_dataset(str(folder), "popqa", split="test") for folder in (first, other)]
    assert loaded[0]["s_pop"] != loaded[1]["s_pop"]


def test_popqas_tsv_is_in_the_published_format(first):
    rows = published.read_published(first / "popqa.tsv", Rejects(0.0)).to_pylist()
    wanted = [{name: row[name] for name in published.COLUMNS} for row in questions()]
    assert rows == wanted


def test_the_cards_way_of_reading_the_tsv_tells_unknown_from_rare(first):
    code = (first / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    code = "\n".join(line for line in code.splitlines() if "parquet" not in line and "datasets" not in line)
    names: dict = {"pandas": pandas}
    exec(code.replace('"popqa.tsv"', f'"{first / "popqa.tsv"}"'), names)
    views = names["published"]["s_pop"]
    assert [None if pandas.isna(n) else n for n in views] == [row["s_pop"] for row in questions()]
    assert views.min() == 5


def test_a_rule_decides_by_the_ten_lines_of_the_documents_which_the_card_shows(tmp_path, root, monkeypatch):
    cuts = [row | {"deployed": 700.0, "threshold": 700.0} for row in releases.thresholds(("tiny", "big"))]
    cuts += [row | {"method": "dense", "policy": "never", "deployed": 0.0} for row in releases.thresholds()]
    folder = release(write_data(tmp_path / "data", cuts=cuts), tmp_path / "out")
    names = ["popqa/big/bm25", "popqa/tiny/bm25", "popqa/tiny/dense"]
    assert list(contents.rules(folder)) == names
    texts = [(root / "docs/adaptive.md"), folder / "README.md"]
    blocks = [re.findall(r"```python\n(.*?)```", text.read_text(encoding="utf-8"), re.DOTALL) for text in texts]
    documented, shown = (next(block for block in of_text if "def retrieve" in block) for of_text in blocks)
    assert shown == documented.replace("thresholds/rule.json", "rules/popqa/tiny/bm25.json")
    monkeypatch.chdir(folder)
    for name in names:
        reader: dict = {}
        exec(shown.replace("rules/popqa/tiny/bm25.json", f"rules/{name}.json"), reader)
        file = rule.read(folder / f"rules/{name}.json")
        assert (reader["rule"]["schema"], reader["rule"]["version"]) == ("longtail-rule", 1)
        for relation in ("P106", "occupation", "P999"):
            for views in (None, 0, 49, 50, 699, 700):
                assert reader["retrieve"](relation, views) == rule.decide(file, relation, views).retrieve
        assert reader["retrieve"]("occupation", 699) is (name != "popqa/tiny/dense")
        assert reader["retrieve"]("occupation", 700) is False


@pytest.mark.parametrize("fault", ["another threshold", "gone", "none"])
def test_rules_that_are_not_those_of_the_thresholds_stop_a_release(tmp_path, fault):
    data = write_data(tmp_path / "data", cuts=releases.thresholds(("tiny", "big")))
    file = data / "adaptive/popularity/thresholds.json"
    made = json.loads(file.read_text(encoding="utf-8"))
    if fault == "another threshold":
        made["rules"]["popqa"]["big"]["bm25"]["thresholds"]["P106"] = 3.0
    else:
        del made["rules"]["popqa"]["big"]
    file.write_text(json.dumps(made), encoding="utf-8")
    if fault == "none":
        file.unlink()
    said = {
        "another threshold": r"rules/popqa/big/bm25\.json: its thresholds are not `deployed` in thresholds\.parquet",
        "gone": r"rules/popqa/big/bm25\.json: no such file, expected the rule of these thresholds",
        "none": r"adaptive/popularity/thresholds\.json: no such file, expected the rules of thresholds\.parquet",
    }
    with pytest.raises(LongtailError, match=said[fault]):
        release(data, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_a_release_whose_page_views_are_all_unknown_has_a_card(tmp_path):
    data = write_data(tmp_path / "data", questions(views=dict.fromkeys(VIEWS)))
    text = (release(data, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert f"| popularity of the subjects: least, quartiles, highest | {page.NONE} |" in text
    assert f"occupation? | 5 | 532 | {page.NONE} |" in text


def test_entityquestions_is_there_by_its_ids_only(first):
    assert b"Where was Ada born" not in b"".join(files_of(first).values())
    assert (first / "entityquestions_links.tsv").read_text(encoding="utf-8").splitlines() == [
        "question_id\trelation\tsplit\ts_uri\ts_pop\tlink",
        "P19-1\tP19\ttest\thttp://www.wikidata.org/entity/Q1\t7\tlabel",
        "P19-2\tP19\ttest\t\t\tambiguous",
    ]


def test_the_card_has_the_front_matter_and_what_was_measured(first):
    _, front, text = (first / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    front = yaml.safe_load(front)
    assert front["license"] == ["cc0-1.0"]
    assert front["size_categories"] == ["n<1K"]
    assert [each["config_name"] for each in front["configs"]] == [table.name for table in contents.TABLES]
    assert "| questions | 5 about 4 subjects |" in text
    assert "| split | 1 train, 4 test |" in text
    assert "| occupation | P106 | What is {}'s occupation? | 5 | 532 | 53 |" in text  # of the four that are known
    assert "| questions about subjects of unknown popularity | 1 |" in text
    assert "| popqa | tiny | bm25 | 4 | 0.250 | 0.500 | 0.750 | 1.000 |" in text
    assert "1 (50.0 %) are linked" in text
    assert "| Wikidata, JSON dump or query results | 1 | 1.50 | CC0-1.0 |" in text
    assert "fictional" not in text
    for table in contents.TABLES:
        assert all(f"| `{column}` |" in text for column in table.columns)


def test_the_card_has_the_dates_of_all_sources_and_warns_where_they_are_far_apart(tmp_path):
    data = write_data(tmp_path / "data", questions(month="2026-09"))
    pages = {"path": "wikipedia/x.bz2", "dataset": "wikipedia", "licence": "-", "bytes": 1, "sha256": "1" * 64}
    manifest = json.loads((data / "raw/manifest.json").read_text(encoding="utf-8"))
    dated = [manifest[0] | {"date": "2026-09-28"}, pages | {"source": "x", "date": "2026-07-20"}]
    (data / "raw/manifest.json").write_text(json.dumps(dated), encoding="utf-8")
    card = (release(data, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert "| Wikidata of | 2026-09-28 |\n| Wikipedia of | 2026-07-20 |\n| page views of | 2026-09 |\n" in card
    assert "**These dates are up to 70 days apart, more than fetch.days_apart allows (31)" in card


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "are taken as drawn, up to 2,000 of a relation. So the shares of relations are not those"),
        ({"total": 800}, "up to 2,000 of a relation and 800 in all. So the shares"),
        ({"mix": "published"}, "in the published set's proportions of relations. A relation with fewer"),
        ({"mix": "published", "total": 800}, "proportions of relations, 800 at most. A relation"),
    ],
)
def test_the_card_says_the_mix_of_relations(tmp_path, change, said):
    settings = releases.MADE_BY["params"]
    made_by = releases.MADE_BY | {"params": settings | {"popqa": settings["popqa"] | change}}
    folder = release(write_data(tmp_path / "data"), tmp_path / "out", made_by=made_by)
    assert said in " ".join((folder / "README.md").read_text(encoding="utf-8").split())


def test_provenance_says_what_made_it_but_nothing_of_the_machine(first):
    made = json.loads((first / "provenance.json").read_text(encoding="utf-8"))
    assert made["commit"] == releases.MADE_BY["commit"]
    assert made["dvc"] == releases.MADE_BY["dvc"]
    assert made["sources"][0]["sha256"] == "0" * 64
    assert made["params"] == {
        "profile": "sample",
        "seed": 0,
        "answer": releases.MADE_BY["params"]["answer"],
        "fetch": {"root": "(outside the project)/dumps", "source": "files", "days_apart": 31},
        "popqa": releases.MADE_BY["params"]["popqa"],
        "lm": {"tiny": {"path": "(outside the project)/tiny"}},
        "thresholds": {"search": "shrunk"},
    }


def test_the_same_data_gives_the_same_bytes_whatever_the_threads(first, tmp_path):
    again = release(write_data(tmp_path / "data"), tmp_path / "out", threads=3)
    assert files_of(again) == files_of(first)


def test_where_nothing_changed_there_is_no_new_release(tmp_path):
    data = write_data(tmp_path / "data")
    before = files_of(release(data, tmp_path / "out"))
    assert release(data, tmp_path / "out", made_by=releases.MADE_BY | {"commit": "f" * 40}) is None
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["1.0.0"]
    assert files_of(tmp_path / "out/1.0.0") == before


def test_the_next_release_says_what_changed(tmp_path):
    release(write_data(tmp_path / "data"), tmp_path / "out")
    moved = write_data(tmp_path / "data", questions(FACTS[1:], VIEWS | {2: 100}, "2021-11"))
    second = release(moved, tmp_path / "out")
    assert second.name == "1.1.0"
    changes = json.loads((second / "changes.json").read_text(encoding="utf-8"))
    assert (changes["previous"], changes["level"]) == ("1.0.0", "minor")
    assert changes["tables"]["popqa"] == {
        "rows": 4, "rows_added": 0, "rows_gone": 1, "rows_changed": 4, "columns_added": [], "columns_gone": [],
        "values_changed": {"s_pop": 2, "month": 4},
    }  # fmt: skip
    card = (second / "README.md").read_text(encoding="utf-8")
    assert "Since 1.0.0, a minor change:" in card
    moved = "- `popqa`: 0 rows added, 1 gone, 4 with other values (s_pop 2, month 4)\n"
    assert moved in card
    assert moved in (second / "CHANGELOG.md").read_text(encoding="utf-8")
    difference = duckdb.execute(f"SELECT change, count(*) FROM '{second}/difference/difference.parquet' GROUP BY 1")
    assert dict(difference.fetchall()) == {"gone": 1, "kept": 2}
    assert "5 questions of 2021-10 (1.0.0/popqa.parquet)" in (second / "difference/index.html").read_text()
    contents.check_sums(second)


def test_a_table_without_rows_is_left_out(tmp_path):
    data = write_data(tmp_path / "data")
    (data / "adaptive/popularity/thresholds.parquet").unlink()
    folder = release(data, tmp_path / "out")
    assert [table.name for table in contents.present(folder)] == ["popqa", "entityquestions_links"]
    assert "threshold" not in (folder / "croissant.json").read_text(encoding="utf-8")
    (data / "questions/popqa/popqa.parquet").unlink()
    with pytest.raises(LongtailError, match=r"data/questions/popqa/popqa\.parquet: no question in it"):
        release(data, tmp_path / "other")


def test_a_tampered_file_is_caught(tmp_path):
    folder = release(write_data(tmp_path / "data"), tmp_path / "out")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, capture_output=True).returncode == 0
    assert dataset.check_release(folder, ingest=releases.INGEST, threads=1) == 20
    text = (folder / "popqa.tsv").read_text(encoding="utf-8")
    (folder / "popqa.tsv").write_text(text.replace("poet", "pope"), encoding="utf-8")
    (folder / "LICENSE.md").unlink()
    (folder / "notes.txt").touch()
    done = subprocess.run(check, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "popqa.tsv: FAILED" in done.stdout
    what = r"1\.0\.0: not as it was released: LICENSE\.md is missing, popqa\.tsv is changed, notes\.txt is not listed"
    with pytest.raises(LongtailError, match=what):
        dataset.check_release(folder, ingest=releases.INGEST, threads=1)
    with pytest.raises(LongtailError, match=what):  # nor is it what the next release is compared with
        release(tmp_path / "data", tmp_path / "out")


def test_a_row_tampered_with_and_summed_again_is_caught(tmp_path):
    folder = release(write_data(tmp_path / "data"), tmp_path / "out")
    changed = "SELECT * REPLACE (if(obj_id = 21, 'Who?', question) AS question)"
    table = duckdb.sql(f"{changed} FROM '{folder}/popqa.parquet'").to_arrow_table()
    pq.write_table(table, folder / "popqa.parquet")
    contents.write_sums(folder)
    with pytest.raises(LongtailError, match=r"popqa\.parquet row 3 \(Q2-P106-Q21\): its question is Who\?"):
        dataset.check_release(folder, ingest=releases.INGEST, threads=1)


@pytest.mark.parametrize("stop", ["private.check", "shutil.copytree"])
def test_a_release_that_fails_leaves_the_last_one_as_it_was(tmp_path, monkeypatch, stop):
    out = tmp_path / "out"
    release(write_data(tmp_path / "data"), out)
    before = files_of(out)
    write_data(tmp_path / "data", questions(views=VIEWS | {2: 100}))

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"pipelines.release.dataset.{stop}", fail)
    with pytest.raises(OSError, match="no space left"):
        release(tmp_path / "data", out)
    assert files_of(out) == before
    assert not list((tmp_path / ".longtail/tmp").iterdir())


def test_a_copy_cut_short_by_a_killed_process_is_no_release(tmp_path):
    (tmp_path / "out/.1.0.0").mkdir(parents=True)
    (tmp_path / "out/.1.0.0/half").touch()
    folder = release(write_data(tmp_path / "data"), tmp_path / "out")
    assert folder.name == "1.0.0"
    assert "half" not in files_of(folder)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["1.0.0"]


def test_the_published_popqa_is_released_and_loads(tmp_path, real, loaders, monkeypatch):
    data = write_data(tmp_path / "data")
    (data / "adaptive/popularity/thresholds.parquet").unlink()
    settings = SimpleNamespace(
        seed=0,
        language="en",
        popqa=params.PopQA(
            source="published",
            sampling="all",
            per_relation=100,
            mix="drawn",
            total=None,
            refresh=False,
            train_share=0.0,
        ),
        popularity=SimpleNamespace(month="2021-10"),
        ingest=releases.INGEST,
        compute=SimpleNamespace(threads=1),
    )
    build_popqa(settings, data / "questions/popqa", tmp_path / "none.parquet", real / "popqa/popQA.tsv")
    folder = release(data, tmp_path / "out")
    assert (folder / "popqa.tsv").read_bytes() == (real / "popqa/popQA.tsv").read_bytes()
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| questions | 14,267 about" in card
    assert yaml.safe_load(card.split("---\n")[1])["license"] == ["mit", "cc0-1.0"]
    assert "Copyright (c) 2023 Alex Mallen" in (folder / "LICENSE.md").read_text(encoding="utf-8")
    check_loading(folder, loaders, monkeypatch, tmp_path)
