"""A small project with all outputs, to be damaged: the tiny profile, and a file in every layout of a raw source."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks import mutations
from pipelines import catalogue, code

CODE = "data/code.json"
MADE = "made"  # a file that tells that the project is whole
LOADED = ("torch", "transformers", "faiss", "duckdb", "matplotlib.pyplot", "pandas")
MEMORY = 14 << 30  # bytes of address space: a run without bounds does not take the machine's memory
ROOT = Path(__file__).resolve().parents[1]
OVER = {
    "compute": {"workers": 1, "threads": 1, "executor": "local"},
    "ingest": {"max_reject_share": 1.0, "memory_gb": 1.0},  # so that a bad row is a reject, and never the end
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
            sys.argv = [self.module, *self.words]
            sys.modules["__main__"] = importlib.import_module(self.module)
            sys.modules["__main__"].main()
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
        return {str(file): _hash(file) for out in self.outs for file in files(out)}

    def bring_back(self, whole: Path) -> None:
        """Make its outputs those of the project `whole`, and forget unfinished work."""
        for out in self.outs:
            if {file: _hash(file) for file in files(out)} != _hashes(whole, out):
                remove(out)
                (shutil.copytree if (whole / out).is_dir() else shutil.copyfile)(whole / out, out)
        remove(Path(".longtail"))


def make(folder: Path, ingest: bool = False) -> list[Stage]:
    """The project in `folder` with the outputs of all its stages, unless it is there; returns the stages in order.

    With `ingest` only the stages before the models, without dvc.lock.
    """

    def planned() -> list[Stage]:
        listed = stages(folder)
        first = next(i for i, stage in enumerate(listed) if stage.kind == "base_lm")
        return listed[: first if ingest else None]

    if not (folder / MADE).is_file():
        remove(folder)
        prepare(folder)
        run_all(folder, planned())
        if not ingest:
            complete_sources(folder)
            write_params(folder)
            run_all(folder, planned()[1:])
            commit(folder)
        (folder / MADE).touch()
    return planned()[1:]


def run_all(folder: Path, stages: list[Stage]) -> None:
    """Run each stage in a process of its own."""
    load(stages)
    here = Path.cwd()
    os.chdir(folder)
    for stage in stages:
        if os.waitpid(stage.start(), 0)[1]:
            raise SystemExit(f"{stage.name} failed: {Path('said.log').read_text()[-2000:]}")
        print(stage.name, flush=True)
    os.chdir(here)


def load(stages: list[Stage]) -> None:
    """Load what the stages need, so that a forked process begins with its work."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is loaded
    for module in sorted({stage.module for stage in stages} | set(LOADED)):
        importlib.import_module(module)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _hash(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


@cache
def _hashes(whole: Path, out: Path) -> dict[Path, str]:
    return {file.relative_to(whole): _hash(file) for file in files(whole / out)}


def commit(folder: Path) -> None:
    """Have DVC write dvc.lock; no_fetch.lock is the same without the raw sources, as for those that came damaged."""
    for dep in {dep for stage in stages(folder) for dep in stage.deps}:
        if not (folder / dep).exists():
            (folder / dep).mkdir(parents=True)
    os.symlink(ROOT / "pipelines", folder / "pipelines")
    subprocess.run([sys.executable, "-m", "dvc", "commit", "-f", "-q"], cwd=folder, check=True)
    (folder / "pipelines").unlink()
    lock = yaml.safe_load((folder / "dvc.lock").read_text())
    del lock["stages"]["fetch"]
    (folder / "no_fetch.lock").write_text(yaml.safe_dump(lock))
    remove(folder / ".dvc/cache")
    remove(folder / ".longtail")


def files(path: Path) -> list[Path]:
    """The files of a dependency or output, sorted."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path] * path.is_file()


def stages(folder: Path) -> list[Stage]:
    """The stages of dvc.yaml in the order data flows, as DVC expands them by params.yaml."""
    from dvc.repo import Repo

    here = Path.cwd()
    os.chdir(folder)  # DVC looks up params.yaml and data there
    try:
        with Repo(".") if (folder / ".dvc").is_dir() else Repo.init(".", no_scm=True) as repo:
            of_dvc = sorted(repo.index.stages, key=lambda stage: _place(stage.addressing))
    finally:
        os.chdir(here)
    listed = []
    for stage in of_dvc:
        words = stage.cmd.split()
        if stage.addressing != "code":
            deps = tuple(Path(dep.def_path) for dep in stage.deps if dep.def_path not in ("params.yaml", CODE))
            outs = tuple(Path(out.def_path) for out in stage.outs)
            listed.append(Stage(stage.addressing, words[2], tuple(words[3:]), deps, outs))
    return listed


def _place(name: str) -> int:
    order = list(yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    return order.index(name.partition("@")[0])


def write_params(folder: Path, **changes: dict) -> None:
    from flows import profiles

    values = yaml.safe_load(profiles.compose("tiny", ROOT))
    for section, change in (OVER | changes).items():
        values[section] |= change
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def prepare(folder: Path) -> None:
    """What a project has before its first stage."""
    (folder / "data").mkdir(parents=True)
    shutil.copy(ROOT / "dvc.yaml", folder)
    write_params(folder, popqa={"source": "wikidata"})
    (folder / "data/code.json").write_text(
        json.dumps({"stage": code.of_stages(), "dataset": code.of_datasets()}), encoding="utf-8"
    )


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
            "data_source": "x",
        }
        for i, row in enumerate(asked)
    )
    (raw / "retrieval/contexts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    entities = pq.read_table(knowledge / "wikidata/entities.parquet").to_pylist()
    titles = [row["wiki_title"].replace(" ", "_").replace("'", "\\'") for row in entities if row["wiki_title"]]
    pages = ",".join(f"({i},0,'{title}',0,0,0.5,'2021',NULL,1,1,'wikitext',NULL)" for i, title in enumerate(titles, 1))
    redirects = ",".join(f"({i},0,'{title}','','')" for i, title in enumerate(titles[1:], 1))
    for name, rows in (("page", pages), ("redirect", redirects)):
        text = f"-- MySQL dump\n\nDROP TABLE IF EXISTS `{name}`;\nINSERT INTO `{name}` VALUES {rows};\n/*!40000 x */;\n"
        (raw / f"redirects/enwiki-{name}.sql.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in catalogue.DATASETS:
        assert any(file.name != ".about.md" for file in (raw / name).iterdir()), f"{name}: no file to damage"


def layouts(name: str, stored: bytes) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of the same content in other layouts; a reader may not know some of them."""
    end = mutations.suffix(name)
    content, bare = mutations.plain(name, stored), name.removesuffix(end) if end else name
    kind = mutations.kind(content)
    if kind != "parquet":
        for other in ("", *mutations.COMPRESSIONS):
            if other != end:
                yield bare + other, mutations.stored(other, content)
    rows = []
    if kind == "records":
        rows = [json.loads(line.rstrip(b",")) for line in content.split(b"\n") if line.startswith(b"{")]
        yield bare.split(".")[0] + ".json", json.dumps(rows).encode()
    if kind == "xml":
        yield from _multistream(content)
    if rows and len(rows[0]) < 10:
        try:
            pq.write_table(pa.Table.from_pylist(rows), out := io.BytesIO())
            yield bare.split(".")[0] + ".parquet", out.getvalue()
        except (pa.ArrowException, TypeError):
            pass


def _multistream(content: bytes) -> Iterator[tuple[str, bytes]]:
    """A multistream dump; its index follows under the name that ends in .txt.bz2."""
    head, *pages = content.split(b"<page>")
    last, foot = pages[-1].split(b"</mediawiki>")
    streams, index, place = [bz2.compress(head)], [], 0
    for start in range(0, len(pages), 10):
        place = sum(map(len, streams))
        some = pages[start : start + 10] if start + 10 < len(pages) else [*pages[start:-1], last]
        streams.append(bz2.compress(b"".join(b"<page>" + page for page in some)))
        index += [b"%d:%d:Title\n" % (place, start + i) for i in range(len(some))]
    streams.append(bz2.compress(b"</mediawiki>" + foot))
    yield "world-pages-articles-multistream.xml.bz2", b"".join(streams)
    yield "world-pages-articles-multistream-index.txt.bz2", bz2.compress(b"".join(index))
