"""The project of the profile smoke with a file of every source, and its stages. Each stage runs in a fork."""

import gzip
import hashlib
import importlib
import json
import os
import resource
import runpy
import shutil
import signal
import sys
import traceback
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import yaml

from benchmarks import row_files
from benchmarks.project_copy import ROOT, dvc_stages
from flows import profiles, terminal
from pipelines import catalogue
from pipelines.sources import corpus_layouts
from pipelines.work import code

CODE = "data/code.json"
LOADED = ("torch", "transformers", "faiss", "duckdb", "pandas")
MEMORY = 14 << 30  # bytes of address space: a run without bounds does not take the machine's memory
CORPORA = (
    "JSON lines",
    "JSON list",
    "Parquet",
    "table with tabs",
)  # formats of a corpus with named fields
OVER = {
    "compute": {"workers": 1, "threads": 1, "executor": "local"},
    "ingest": {
        "max_reject_share": 1.0,
        "memory_gb": 1.0,
    },  # so that a bad row is rejected and never ends the stage
    "popqa": {"source": "both"},
}


class Stage(NamedTuple):
    name: str  # of dvc.yaml, with the matrix item: chunk@pile
    module: str
    words: tuple[str, ...]
    deps: tuple[Path, ...]
    outs: tuple[Path, ...]

    @property
    def kind(self) -> str:
        return self.name.partition("@")[0]

    def files(self) -> list[Path]:
        """The files that it may read."""
        return [file for dep in self.deps for file in files(dep)]

    def start(self, limit: float = 600) -> int:
        """Run the stage in this folder as `python -m` does, in a forked process, whose id is returned.

        It heads a group of processes, says all in said.log, and gets SIGALRM after `limit` seconds.
        """
        if process := os.fork():
            return process
        code = 0
        try:
            os.setsid()
            said = os.open("said.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(limit) + 1)
            sys.argv, terminal.CALLED_FROM = [self.module, *self.words], Path.cwd()
            sys.modules.pop(
                self.module
            )  # loaded before the fork, with all that it imports; runpy runs it anew
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 70
        finally:
            sys.stderr.flush()
            os._exit(code)

    def hashes(self) -> dict[str, str]:
        """The hash of each file of its outputs, by path."""
        paths = [file for out in self.outs for file in files(out)]
        return {
            str(file): hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
            for file in paths
        }

    def bring_back(self, whole: Path) -> None:
        """Put back the outputs of the project `whole`, and forget unfinished work."""
        for out in self.outs:
            remove(out)
            (shutil.copytree if (whole / out).is_dir() else shutil.copyfile)(whole / out, out)
        remove(Path(".longtail"))


def make(folder: Path, ingest: bool = False) -> list[Stage]:
    """The project in `folder` with the outputs of all its stages, unless it is there; returns the stages in order.

    With `ingest` only the stages before the models. What they need is loaded, so that a fork begins with its work.
    """
    made = (folder / "made").is_file()  # this file tells that the project is complete
    if not made:
        from dvc.repo import Repo

        remove(folder)
        (folder / "data").mkdir(parents=True)
        Repo.init(str(folder), no_scm=True).close()
        shutil.copy(ROOT / "dvc.yaml", folder)
        write_params(folder, popqa={"source": "wikidata"})
        (folder / CODE).write_text(
            json.dumps({"stage": code.of_stages(), "dataset": code.of_datasets()})
        )
    stages = planned(folder, ingest)
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is loaded
    for module in sorted({stage.module for stage in stages} | set(LOADED)):
        importlib.import_module(module)
    if not made:
        run_all(folder, stages)
        complete_corpora(folder / "data/raw/wikipedia")
        if not ingest:
            complete_sources(folder)
            write_params(folder)
            stages = planned(folder, ingest)
        run_all(folder, stages[1:])
        (folder / "made").touch()
    return stages[1:]


def planned(folder: Path, ingest: bool) -> list[Stage]:
    """The stages of dvc.yaml in the order data flows, as DVC expands them by params.yaml; with `ingest` the first."""
    listed = []
    for stage in dvc_stages(folder):
        if ingest and stage.name.startswith("base_lm"):
            break
        words = stage.cmd.split()
        deps = tuple(
            Path(dep.def_path) for dep in stage.deps if dep.def_path not in ("params.yaml", CODE)
        )
        outs = tuple(Path(out.def_path) for out in stage.outs)
        if stage.name != "code":
            listed.append(Stage(stage.name, words[2], tuple(words[3:]), deps, outs))
    return listed


def run_all(folder: Path, stages: list[Stage]) -> None:
    with chdir(folder):
        for stage in stages:
            if os.waitpid(stage.start(), 0)[1]:
                raise SystemExit(f"{stage.name} failed: {Path('said.log').read_text()[-2000:]}")
            print(stage.name, flush=True)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def files(path: Path) -> list[Path]:
    """The files of a dependency or output, sorted."""
    return (
        sorted(file for file in path.rglob("*") if file.is_file())
        if path.is_dir()
        else [path] * path.is_file()
    )


def write_params(folder: Path, **changes: dict) -> None:
    values = yaml.safe_load(profiles.compose("smoke", ROOT))
    for section, change in (OVER | changes).items():
        values[section] |= change
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def complete_corpora(folder: Path) -> None:
    """A folder of files for each layout of a corpus."""
    for number, layout in enumerate(corpus_layouts.LAYOUTS):
        rows = []
        for i in range(10):
            row = dict.fromkeys(layout.beside, "x") | {
                layout.title: f"Ship {i}",
                layout.id: f"{number}-{i}",
            }
            row |= {
                layout.text: f"Ship {i} of fleet {number} sailed from the harbour to the mouth of the river."
            }
            rows.append({name: value for name, value in row.items() if name})
        for kind in (
            CORPORA if len(rows[0]) > 1 else CORPORA[:-1]
        ):  # a table has two columns at least
            suffix, write = row_files.FORMATS[kind]
            file = folder / f"layout-{number:02}/corpus{suffix}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(write(rows))


def complete_sources(folder: Path) -> None:
    """The raw files that the sample world lacks, from what was made of it: so every data set has one."""
    raw, knowledge = folder / "data/raw", folder / "data/knowledge"
    shutil.copy(folder / "data/questions/popqa/popqa.tsv", raw / "popqa/popQA.tsv")
    asked = pq.read_table(folder / "data/questions/popqa/popqa.parquet").to_pylist()[:30]
    passages = [{"id": "1", "title": "A title", "text": f"{row['obj']} is it."} for row in asked]
    lines = (
        {
            "question": row["question"],
            "answers": row["possible_answers"],
            "ctxs": passages[i : i + 3],
        }
        for i, row in enumerate(asked)
    )
    (raw / "retrieval/contexts.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8"
    )
    entities = pq.read_table(knowledge / "wikidata/entities.parquet").to_pylist()
    titles = [
        row["wiki_title"].replace(" ", "_").replace("'", "\\'")
        for row in entities
        if row["wiki_title"]
    ]
    pages = ",".join(
        f"({i},0,'{title}',0,0,0.5,'2021',NULL,1,1,'wikitext',NULL)"
        for i, title in enumerate(titles, 1)
    )
    redirects = ",".join(f"({i},0,'{title}','','')" for i, title in enumerate(titles[1:], 1))
    for name, rows in (("page", pages), ("redirect", redirects)):
        text = f"-- MySQL dump\n\nDROP TABLE IF EXISTS `{name}`;\nINSERT INTO `{name}` VALUES {rows};\n/*!40000 x */;\n"
        (raw / f"redirects/enwiki-{name}.sql.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in catalogue.DATASETS:
        assert any(file.name != ".about.md" for file in (raw / name).iterdir()), (
            f"{name}: no file to damage"
        )
