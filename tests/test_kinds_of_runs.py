"""Runs that bring only some of the data: each goes from raw files to a report of what there is
something for.
"""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import systems
import yaml
from finished_run import Checkout, copy_tracked

from sample.make.generator import write_world
from sample.make.sizes import WorldSizes

MADE = systems.make()
WORLD = WorldSizes(entities=60, lm_documents=600, lm_shards=2, pile_documents=4, questions=40)


class Run(Checkout):
    """A project whose params.yaml is that of a profile on other files, with every number as
    small as in `smoke`.
    """

    def longtail(self, *words: str) -> str:
        done = super().longtail(*words)
        assert done.returncode == 0, done.stderr[-1000:] + done.stdout[-1000:]
        return done.stdout

    def set_params(self, profile: str, sources: Path) -> None:
        self.longtail("init", "--profile", profile)
        path = self.folder / "params.yaml"
        smoke = yaml.safe_load((self.folder / "conf/profile/smoke.yaml").read_text())
        small = {
            name: smoke[name] for name in smoke.keys() - {"defaults", "profile", "parts", "c4"}
        }
        short = {"context_tokens": 40, "continuation_tokens": 40}
        small["queries"] |= short
        small |= {"windows": {"context_tokens": 40, "stride_tokens": 40}}
        small |= {"fetch": {"root": str(sources)}}
        path.write_text(yaml.safe_dump(over(yaml.safe_load(path.read_text()), small)))

    @property
    def report(self) -> str:
        """Both pages."""
        pages = (self.folder / "data/report").glob("*.html")
        return "".join(page.read_text(encoding="utf-8") for page in pages)


def over(values, changes):
    if not isinstance(changes, dict) or not isinstance(values, dict):
        return changes
    return values | {key: over(values.get(key), change) for key, change in changes.items()}


@pytest.fixture
def run(root, databases, tmp_path) -> Run:
    folder = shutil.copytree(databases, tmp_path / "run")
    return Run(copy_tracked(root, folder, without=("tests/", "dvc.lock")).folder)


@pytest.fixture
def sources(tmp_path) -> Path:
    """A folder with questions in PopQA's published format, as PopQA and as riddles."""
    for name in ("popqa/popQA.tsv", "riddles/riddles.tsv"):
        (tmp_path / "sources" / name).parent.mkdir(parents=True)
        systems.popqa(tmp_path / "sources" / name, MADE)
    return tmp_path / "sources"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "brought", "left_out", "section", "no_section"),
    [
        (
            "wikipedia",
            {"chunk@wikipedia", "train_lsr@dense", "tune_thresholds@popularity"},
            "score_lm",
            "adaptive",
            "replug",
        ),
        (
            "pile",
            {"chunk@pile", "train_lsr@dense", "score_lm@pile-tiny"},
            ("questions", "answer"),
            "replug",
            "adaptive",
        ),
    ],
)
def test_one_corpus_gives_what_there_is_something_for(
    run, sources, profile, brought, left_out, section, no_section
):
    write_world(sources, 0, WORLD, ["2021-10"])
    run.set_params(profile, sources)
    run.longtail("run")
    stages = set(run.hashes())
    assert brought <= stages
    assert not {name for name in stages if name.startswith(left_out)}
    assert f'id="{section}"' in run.report
    assert f'id="{no_section}"' not in run.report


@pytest.mark.slow
def test_predictions_alone_give_thresholds(run, sources):
    run.set_params("predictions", sources)
    run.longtail("run", "popqa")
    for method, right in (("closed_book", MADE.closed), ("bm25", MADE.augmented)):
        answers = run.folder / f"{method}.csv"
        answers.write_text(systems.plain(MADE, right), encoding="utf-8")
        run.longtail(
            "imports", str(answers), "--dataset", "popqa", "--lm", "elsewhere", "--method", method
        )
    run.longtail("run")
    expected = {"code", "local_files", "fetch", "questions@popqa", "tune_thresholds@popularity"}
    expected |= {"analyse", "report"}
    assert set(run.hashes()) == expected
    tuned = json.loads((run.folder / "data/adaptive/popularity/thresholds.json").read_text())[
        "rules"
    ]
    assert set(tuned["popqa"]["elsewhere"]) == {"bm25"}
    assert 'id="adaptive"' in run.report
    assert "elsewhere" in run.report


@pytest.mark.slow
def test_the_page_on_question_sets_leads_to_a_landed_run(run, sources, root):
    """Its files and lines, as it shows them, with answers that were made elsewhere."""
    page = (root / "docs/own-data-sets.md").read_text(encoding="utf-8")
    section = page.split("## A question set of your own")[1].split("\n## ")[0]
    (builder,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    entry, lines = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (run.folder / "pipelines/questions/museums.py").write_text(builder)
    with (run.folder / "pipelines/catalogue.yaml").open("a") as catalogue:
        catalogue.write(entry)
    profile = yaml.safe_load((root / "conf/profile/predictions.yaml").read_text())
    profile = over(profile, yaml.safe_load(lines)) | {"profile": "museums"}
    text = f"# @package _global_\n{yaml.safe_dump(profile)}"
    (run.folder / "conf/profile/museums.yaml").write_text(text)

    (sources / "museums").mkdir()
    with (sources / "museums/questions.jsonl").open("w") as questions:
        for row in MADE.rows:
            record = {name: row[name] for name in ("subj", "question", "s_uri")}
            record |= {"question_id": row["id"], "relation": row["prop"]}
            record |= {"possible_answers": json.loads(row["possible_answers"])}
            questions.write(json.dumps(record | {"s_pop": int(row["s_pop"])}) + "\n")

    run.environment["PYTHONPATH"] = str(run.folder)
    run.set_params("museums", sources)
    run.longtail("run")
    for method, right in (("closed_book", MADE.closed), ("bm25", MADE.augmented)):
        answers = run.folder / f"{method}.csv"
        answers.write_text(systems.plain(MADE, right), encoding="utf-8")
        of = ("--dataset", "museums", "--lm", "elsewhere", "--method", method)
        run.longtail("imports", str(answers), *of)
    run.longtail("run")

    tuned = json.loads((run.folder / "data/adaptive/popularity/thresholds.json").read_text())
    assert tuned["rules"]["museums"]["elsewhere"]["bm25"]["policy"] == "thresholds"
    (landed,) = (run.folder / ".longtail/landed/museums").glob("*/last.parquet")
    measured = set(pq.read_table(landed)["expectation"].to_pylist())
    assert {"museums-rows", "museums-values", "museums-key", "museums-views"} <= measured


READER = """# Poems, a title and a text a line
from pipelines.sources.source_documents import Raw


def read(name, part, rejects):
    for row, line in enumerate(part.file.read_text(encoding="utf-8").splitlines(), start=1):
        rejects.read += 1
        title, text = line.split("\\t")
        yield Raw(title, name, title, f"{title} {text}", part.file.name, row)
"""
BUILDER = """# Riddles: PopQA's table of other questions
from pathlib import Path
import pyarrow.parquet as pq

from pipelines.questions.popqa import build_popqa


def make(params, out):
    with atomic(out) as folder:
        build_popqa(params, folder, published_file=Path("data/raw/riddles/riddles.tsv"))
        (folder / "popqa.parquet").rename(folder / "riddles.parquet")
    return {"questions": pq.read_metadata(out / "riddles.parquet").num_rows}
"""
ENTRIES = """
poems:
  {label: Poems, title: "", licence: CC0-1.0, files: "", documents: "pipelines.sources.poems:read", learn: true}
riddles:
  {label: Riddles, title: "", licence: "", files: "", questions: "pipelines.questions.riddles:make"}
"""

PROFILE = """# @package _global_
profile: added
parts:
  knowledge: []
  question_sets: [riddles]
  answered: [riddles]
  corpora: [poems]
  datastore: poems
  scored: [poems]
  passages: []
fetch: {source: files, files: {poems: [poems/*], riddles: [riddles/*]}}
popqa: {source: published}
corpus:
  poems: {documents: null, query_share: 0.3, test_files: null, validation_files: null}
"""


@pytest.mark.slow
def test_a_corpus_is_a_reader_and_an_entry(run, sources):
    """So is a question set."""
    (run.folder / "pipelines/sources/poems.py").write_text(READER)
    (run.folder / "pipelines/questions/riddles.py").write_text(BUILDER)
    with (run.folder / "pipelines/catalogue.yaml").open("a") as entries:
        entries.write(ENTRIES)
    (run.folder / "conf/profile/added.yaml").write_text(PROFILE)
    lines = [
        f"{row['subj']} {i}\t{row['question']} {row['obj']}. " for i, row in enumerate(MADE.rows)
    ]
    (sources / "poems").mkdir()
    (sources / "poems/poems.txt").write_text(
        "\n".join(line + "Here the words go on and on. " * 12 for line in lines)
    )
    run.environment["PYTHONPATH"] = str(run.folder)
    assert "poems" in run.longtail("search", "--help")
    run.set_params("added", sources)
    run.longtail("run")
    stages = set(run.hashes())
    assert (
        run.longtail("status").splitlines()[-1]
        == f"{len(stages)} of {len(stages)} stages are up to date"
    )
    expected = {"chunk@poems", "questions@riddles", "answer@riddles-tiny", "attribute@poems"}
    assert expected <= stages
    assert pq.read_metadata(run.folder / "data/corpus/poems/docs.parquet").num_rows
    assert [part for part in ("Poems", "Riddles", 'id="replug"') if part not in run.report] == []
    assert "CC0-1.0" in (run.folder / "data/raw/manifest.json").read_text()
