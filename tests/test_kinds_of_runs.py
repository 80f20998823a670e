"""Runs that bring only some of the data: each goes from raw files to a report of what there is something for."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from flows import profiles
from pipelines import params_file
from pipelines.questions import published
from pipelines.relations import RELATIONS
from pipelines.world.facts import RELATION_IDS, make_world
from pipelines.world.generator import write_world

SMALL = {
    "tokenizer": {"vocab_size": 900},
    "chunk": {"tokens": 64, "min_tokens": 8},
    "queries": {"context_tokens": 24, "continuation_tokens": 24, "max_per_split": 40},
    "retriever": {"dense": {"training": {"hidden_size": 32, "steps": 10, "batch_size": 32}}},
    "lsr": {"lm_queries": 16, "qa_queries": 16, "top_k": 5, "batch_size": 8, "steps": 4, "refresh_steps": 2},
    "logprobs": {"top_k": 3, "max_queries": 16, "datastore": {"shares": [0.1], "max_queries": 8}},
    "replug": {"top_k": 3},
    "answer": {"max_questions": 40, "passage_tokens": 8},
    "thresholds": {"splits": 10, "min_questions": 5},
    "report": {"bootstrap": 50},
}
LM = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "positions": 128, "steps": 60}


class Run:
    """A copy of the files that git tracks or would, and commands in it."""

    def __init__(self, root: Path, databases: Path, folder: Path):
        self.folder = shutil.copytree(databases, folder)
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in names:
            if name and not name.startswith(("tests/", "dvc.lock")) and (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, folder / name)
        (folder / ".venv").symlink_to(Path(sys.prefix))
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)

    def __call__(self, *words: str) -> str:
        dirty = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(dirty)}
        command = [".venv/bin/python", "-m", "flows.cli", *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-1000:] + done.stdout[-1000:]
        return done.stdout

    def set_params(self, profile: str, sources: Path, **changes: dict) -> None:
        """params.yaml of a profile on the files in `sources`, with every number small."""
        values = yaml.safe_load(profiles.compose(profile, self.folder))
        for section, smaller in (*SMALL.items(), *changes.items()):
            values[section] = _over(values[section], smaller)
        values["lm"]["tiny"]["training"] |= LM
        values["fetch"]["root"] = str(sources)
        params_file.parse(values)
        (self.folder / "params.yaml").write_text(yaml.safe_dump(values))

    @property
    def stages(self) -> set[str]:
        return set(yaml.safe_load((self.folder / "dvc.lock").read_text())["stages"])

    @property
    def report(self) -> str:
        return (self.folder / "data/report/index.html").read_text(encoding="utf-8")


def _over(values, changes):
    if not isinstance(changes, dict) or not isinstance(values, dict):
        return changes
    return values | {key: _over(values.get(key), change) for key, change in changes.items()}


@pytest.fixture(scope="module")
def sources(root, tmp_path_factory) -> Path:
    """The sample world's Wikipedia and Pile, and questions about it in PopQA's published format."""
    folder = tmp_path_factory.mktemp("sources")
    params = params_file.parse(yaml.safe_load(profiles.compose("tiny", root)))
    write_world(folder, params.seed, params.world)
    (folder / "popqa").mkdir(exist_ok=True)
    world = make_world(params.seed, params.world)
    with (folder / "popqa/popQA.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(published.COLUMNS)
        for entity, subject in enumerate(world.labels):
            for fact in range(world.offsets[entity], world.offsets[entity + 1]):
                relation = RELATIONS[RELATION_IDS[world.relations[fact]]]
                answer = world.item_label(int(world.objects[fact]))
                row = dict.fromkeys(published.COLUMNS, "") | {
                    "id": fact, "subj": subject, "prop": relation.name, "obj": answer, "subj_id": entity, "prop_id": 1,
                    "obj_id": fact, "s_aliases": "[]", "o_aliases": "[]", "s_wiki_title": subject,
                    "s_uri": f"http://www.wikidata.org/entity/Q{entity + 1}", "s_pop": int(world.popularity[entity]),
                    "o_uri": f"http://www.wikidata.org/entity/Q{fact + 1000}", "o_pop": 1,
                    "question": relation.question(subject), "possible_answers": json.dumps([answer]),
                }  # fmt: skip
                writer.writerow(row[name] for name in published.COLUMNS)
    return folder


def test_wikipedia_and_published_questions_give_answers_and_thresholds(root, databases, sources, tmp_path):
    run = Run(root, databases, tmp_path / "run")
    run.set_params("wikipedia", sources)
    run("run")
    assert {
        "chunk@wikipedia",
        "train_lsr@dense",
        "answer_dense@popqa-tiny-dense",
        "tune_thresholds@popularity",
    } <= run.stages
    assert not {name for name in run.stages if name.startswith(("entities", "score_lm", "evaluate_tasks"))}
    assert 'id="adaptive"' in run.report
    assert 'id="replug"' not in run.report
    assert run("status").splitlines()[-1] == f"{len(run.stages)} of {len(run.stages)} stages are up to date"


def test_the_pile_alone_gives_bits_per_byte_and_attribution(root, databases, sources, tmp_path):
    run = Run(root, databases, tmp_path / "run")
    run.set_params("pile", sources)
    run("run")
    assert {"chunk@pile", "train_lsr@dense", "score_lm@pile-tiny", "attribute@pile"} <= run.stages
    assert not {name for name in run.stages if name.startswith(("questions", "answer", "tune_thresholds"))}
    assert 'id="replug"' in run.report
    assert 'id="adaptive"' not in run.report


def test_predictions_alone_give_thresholds(root, databases, sources, tmp_path):
    run = Run(root, databases, tmp_path / "run")
    run.set_params("predictions", sources)
    with (sources / "popqa/popQA.tsv").open(encoding="utf-8") as file:
        questions = list(csv.DictReader(file, delimiter="\t"))
    run("run", "popqa")
    for method, right in (("closed_book", lambda row: int(row["s_pop"]) > 1000), ("bm25", lambda row: True)):
        answers = run.folder / f"{method}.csv"
        with answers.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "prediction"])
            for row in questions:
                writer.writerow([row["id"], json.loads(row["possible_answers"])[0] if right(row) else "no idea"])
        run("import-answers", str(answers), "--dataset", "popqa", "--lm", "elsewhere", "--method", method)
    run("run")
    assert run.stages == {"code", "fetch", "questions@popqa", "tune_thresholds@popularity", "analyse", "report"}
    tuned = json.loads((run.folder / "data/adaptive/popularity/thresholds.json").read_text())["rules"]
    assert set(tuned["popqa"]["elsewhere"]) == {"bm25"}
    assert 'id="adaptive"' in run.report
    assert "elsewhere" in run.report


READER = '''"""Poems, a title and a text a line."""

from pipelines.sources.source_documents import Raw


def read(name, part, rejects):
    for row, line in enumerate(part.file.read_text(encoding="utf-8").splitlines(), start=1):
        rejects.read += 1
        title, text = line.split("\\t")
        yield Raw(title, name, title, f"{title} {text}", part.file.name, row)
'''
BUILDER = '''"""Riddles: PopQA's table of other questions."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import shards
from pipelines.questions import published
from pipelines.questions.popqa import COLUMNS, build_popqa


def make(params, out):
    with shards.atomic(out) as folder:
        build_popqa(params, folder, published_file=Path("data/raw/riddles/riddles.tsv"))
        (folder / "popqa.parquet").rename(folder / "riddles.parquet")
    return {"questions": pq.read_metadata(out / "riddles.parquet").num_rows}
'''
ENTRIES = """
    "poems": Dataset(
        "Collected poems", "Poems", "CC0-1.0", "`.txt`", documents="pipelines.sources.poems:read", learn=True
    ),
    "riddles": Dataset(
        "Riddles of old", "Riddles", "CC0-1.0", "`.tsv`", questions="pipelines.questions.riddles:make", answered=True
    ),
}
"""


def test_a_corpus_and_a_question_set_are_a_reader_and_an_entry_each(root, databases, sources, tmp_path):
    run = Run(root, databases, tmp_path / "run")
    (run.folder / "pipelines/sources/poems.py").write_text(READER)
    (run.folder / "pipelines/questions/riddles.py").write_text(BUILDER)
    catalogue = run.folder / "pipelines/catalogue.py"
    before, after = catalogue.read_text().split("\n}\n", 1)
    catalogue.write_text(before + ENTRIES + after)
    given = tmp_path / "given"
    (given / "poems").mkdir(parents=True)
    with (sources / "popqa/popQA.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    lines = [
        f"{row['subj']} {i}\t{row['question']} {json.loads(row['possible_answers'])[0]}. " for i, row in enumerate(rows)
    ]
    (given / "poems/poems.txt").write_text("\n".join(line + "Here the words go on and on. " * 12 for line in lines))
    (given / "riddles").mkdir()
    shutil.copy(sources / "popqa/popQA.tsv", given / "riddles/riddles.tsv")
    run.folder.joinpath("conf/profile/added.yaml").write_text(
        "# @package _global_\n"
        + yaml.safe_dump(
            {
                "profile": "added",
                "parts": {"knowledge": [], "question_sets": ["riddles"], "answered": ["riddles"], "corpora": ["poems"]}
                | {"datastore": "poems", "scored": ["poems"], "benchmarks": [], "passages": []},
                "fetch": {"source": "files", "files": {"poems": ["poems/*"], "riddles": ["riddles/*"]}},
                "popqa": {"source": "published"},
                "tokenizer": {"text": ["poems"]},
                "corpus": {
                    "poems": {
                        "documents": None,
                        "weights": None,
                        "query_share": 0.3,
                        "test_files": None,
                        "validation_files": None,
                    }
                },
                "lm": {"tiny": {"training": {"phases": [{"until": 1.0, "weights": {}}]}}},
                "lm_text": "corpus",
            }
        )
    )
    listed = subprocess.run(
        [sys.executable, "-m", "flows.cli", "search", "--help"], cwd=run.folder, capture_output=True
    )
    assert b"poems" in listed.stdout
    sys_path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = str(run.folder)
    try:
        values = subprocess.run(
            [sys.executable, "-m", "flows.cli", "profile", "added"], cwd=run.folder, capture_output=True, text=True
        )
        assert values.returncode == 0, values.stderr
    finally:
        os.environ["PYTHONPATH"] = sys_path
    params = yaml.safe_load((run.folder / "params.yaml").read_text())
    for section, smaller in SMALL.items():
        params[section] = _over(params[section], smaller)
    params["lm"]["tiny"]["training"] |= LM
    params["fetch"]["root"] = str(given)
    (run.folder / "params.yaml").write_text(yaml.safe_dump(params))
    run("run")
    assert {"chunk@poems", "questions@riddles", "answer_dense@riddles-tiny-dense", "attribute@poems"} <= run.stages
    assert pq.read_metadata(run.folder / "data/corpus/poems/docs.parquet").num_rows
    assert "Collected poems" in run.report
    assert "Riddles of old" in run.report
    assert "CC0-1.0" in (run.folder / "data/raw/manifest.json").read_text()
