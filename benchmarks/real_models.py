"""The pipeline run whole with pretrained weights on real texts, and a Markdown page of what it measured.

    .venv/bin/python -m benchmarks.real_models run --files FILES --models MODELS --work WORK
    .venv/bin/python -m benchmarks.real_models page --work WORK > page.md

FILES is a folder of real data sets, MODELS one with a language model and an encoder as Hugging Face folders;
real_models.yaml says how the files are called. `run` works in copies of the committed project and of FILES, in WORK.
After a kill it goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.papers_effects import read_run
from benchmarks.project_copy import ROOT, clone, table
from pipelines.intervals import Interval
from pipelines.report import inputs
from pipelines.report.page import label, show
from pipelines.storage import shards

PROFILE = Path(__file__).with_name("real_models.yaml")
RUNS = "real_models.json"  # file in WORK: seconds and the largest process's memory of each call of `run`
SPLIT = {  # benchmark -> its one file of questions; every fifth question is for demonstrations and never asked
    "nq": "qa/flashrag_nq_test_1000.jsonl",
    "triviaqa": "qa/flashrag_triviaqa_test_1000.jsonl",
}
ADAPTIVE = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
GATE = ("gate", "difference", "retrieved_gate")
SECTIONS = {  # title -> the report's table, which of its rows, and its columns
    "Accuracy": ("accuracy", {"dataset": "popqa"}, "method substring word correlation"),
    "Accuracy by group of questions": ("accuracy_by_group", {"dataset": "popqa"}, "method group questions substring"),
    "Gains over the closed-book answer": (
        "comparisons", {"dataset": "popqa", "against": "closed_book"}, "method gain gain_word"
    ),
    "Where retrieval helps": ("retrieval_effect", {"dataset": "popqa"}, "method group questions gain"),
    "Where passages hold an answer": ("recall", {"dataset": "popqa"}, "method answers questions recall"),
    "Language modelling": ("bits_per_byte", {}, "corpus retriever k bits_per_byte saved word_perplexity"),
    "Controls of language modelling": (
        "lm_controls", {}, "corpus control retriever documents bits_per_byte saved saved_over_same"
    ),
    "Copying": ("copied", {}, "corpus retriever least most share bits_saved share_of_saved"),
    "Benchmarks": ("tasks", {"category": "all"}, "task method questions accuracy gain"),
}  # fmt: skip
POINTS = {"substring", "word", "gain", "gain_word", "recall", "share_of_saved", "accuracy"}


def run(files: Path, models: Path, work: Path) -> None:
    """Run the pipeline in a copy of the project in `work`, and note seconds and peak memory beside it."""
    copy, python = work / "project", str(ROOT / ".venv/bin/python")
    if not copy.is_dir():
        _sources(files, work / "files")
        clone(copy, "smoke")
        text = PROFILE.read_text(encoding="utf-8").replace("FILES", str(work / "files")).replace("MODELS", str(models))
        (copy / "conf/profile/real_models.yaml").write_text(text, encoding="utf-8")
    command = [python, "-m", "flows.cli", "run", "--profile", "real_models"]
    started = time.monotonic()
    done = subprocess.run(command, cwd=copy, stdout=sys.stderr, env=os.environ | {"PYTHONPATH": str(copy)})
    calls = json.loads((work / RUNS).read_text()) if (work / RUNS).is_file() else []
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    calls.append({"seconds": time.monotonic() - started, "peak_bytes": peak, "ended_well": done.returncode == 0})
    (work / RUNS).write_text(json.dumps(calls), encoding="utf-8")
    sys.exit(done.returncode)


def _sources(files: Path, target: Path) -> None:
    """Copy the data sets to `target`, with the questions of SPLIT in two files each."""
    with shards.atomic(target) as folder:
        shutil.copytree(files, folder, copy_function=shutil.copyfile)
        folder.chmod(0o755)
        (folder / "split").mkdir()
        for name, file in SPLIT.items():
            lines = (files / file).read_text(encoding="utf-8").splitlines(keepends=True)
            train, test = lines[::5], [line for i, line in enumerate(lines) if i % 5]
            (folder / f"split/{name}_train.jsonl").write_text("".join(train), encoding="utf-8")
            (folder / f"split/{name}_test.jsonl").write_text("".join(test), encoding="utf-8")


def page(work: Path) -> Iterator[str]:
    """The page's lines: Markdown tables of what the copy of the project in `work` measured."""
    copy = work / "project"
    read, claims, chosen = read_run(copy)
    calls = json.loads((work / RUNS).read_text(encoding="utf-8"))
    hours = sum(call["seconds"] for call in calls) / 3600
    peak = max(call["peak_bytes"] for call in calls) / 2**30
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=copy, text=True).strip()
    yield (
        f"Measured at commit {commit} in {len(calls)} call{'s' * (len(calls) > 1)} of `run`, "
        f"{hours:.1f} hours in all, on {os.cpu_count()} cores ({platform.machine()}), "
        f"with at most {peak:.1f} GiB of memory in a process."
    )
    yield "\n## The papers' claims\n"
    rows = [[one.claim, one.on, one.method, one.lacking or one.said, one.beside, one.verdict] for one in claims]
    yield table(["claim", "on", "method", "measured", "beside it", "verdict"], rows)
    for title, (name, of, columns) in SECTIONS.items():
        found = [row for row in read.tables[name] if all(row[key] == value for key, value in of.items())]
        yield f"\n## {title}\n"
        yield table(columns.split(), [[_cell(column, row[column]) for column in columns.split()] for row in found])
    yield "\n## Adaptive retrieval, in points\n"
    yield table(["method", *ADAPTIVE, *GATE], _adaptive(read, chosen.thresholds.search))


def _cell(column: str, value: object) -> str:
    """A cell as text; shares in points, and "" for a figure that the row lacks."""
    if isinstance(value, Interval):
        shown = value.times(100) if column in POINTS else value
        return show(shown, digits=1 if column in POINTS else None) if math.isfinite(value.value) else ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return label(value) if column in ("corpus", "method", "task") else "" if value is None else str(value)


def _adaptive(read: inputs.Inputs, search: str) -> Iterator[list[str]]:
    """Of each method what thresholds do, and what a gate does that reads more than popularity."""
    for method, searches in read.metrics["adaptive"]["popqa"][read.main].items():
        if isinstance(searches, dict) and search in searches:
            figures = [searches[search][name] for name in ADAPTIVE]
            figures += [searches.get("gate", {}).get(name) for name in GATE]
            intervals = (
                figure and Interval(*(100 * figure[end] for end in ("value", "low", "high"))) for figure in figures
            )
            yield [label(method), *(show(one, digits=1) if one else "" for one in intervals)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--files", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.what == "run":
        run(args.files.resolve(), args.models.resolve(), args.work.resolve())
    print("\n".join(page(args.work.resolve())))


if __name__ == "__main__":
    main()
