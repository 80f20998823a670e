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
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from pipelines import params_file, shards
from pipelines.intervals import Interval
from pipelines.report import findings, inputs
from pipelines.report.page import label, show

ROOT = Path(__file__).resolve().parents[1]
PROFILE = Path(__file__).with_name("real_models.yaml")
RUNS = "real_models.json"  # in WORK: seconds and peak memory of each call of `run`
SPLIT = {  # benchmark -> its one file of questions, of which every fifth is for demonstrations and never asked
    "nq": "qa/flashrag_nq_test_1000.jsonl",
    "triviaqa": "qa/flashrag_triviaqa_test_1000.jsonl",
}
BITS_AT = (0, 1, 3)  # numbers of documents in the tables of bits per byte
METHODS = {
    "closed_book": "closed-book",
    "genread": "GenRead",
    "bm25": "BM25",
    "dense": "untuned encoder",
    "lsr": "encoder tuned by LSR",
    "replug": "REPLUG, untuned encoder",
    "replug_lsr": "REPLUG, tuned encoder",
}


def run(files: Path, models: Path, work: Path) -> None:
    """Run the pipeline in a copy of the project in `work`, and note seconds and peak memory beside it."""
    copy, python = work / "project", str(ROOT / ".venv/bin/python")
    if not copy.is_dir():
        _sources(files, work / "files")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        text = PROFILE.read_text(encoding="utf-8").replace("FILES", str(work / "files")).replace("MODELS", str(models))
        (copy / "conf/profile/real_models.yaml").write_text(text, encoding="utf-8")
    command = [python, "-m", "flows.cli", "run", "--profile", "real_models"]
    started, peak = time.monotonic(), 0
    environment = os.environ | {"PYTHONPATH": str(copy)}
    with subprocess.Popen(command, cwd=copy, stdout=sys.stderr, env=environment) as process:
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(1)
    calls = json.loads((work / RUNS).read_text()) if (work / RUNS).is_file() else []
    calls.append({"seconds": time.monotonic() - started, "peak_bytes": peak, "ended_well": process.returncode == 0})
    (work / RUNS).write_text(json.dumps(calls), encoding="utf-8")
    sys.exit(process.returncode)


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


def _memory(pid: int) -> int:
    """Bytes of memory that a process and its children have to themselves, shared pages counted in part."""
    total = 0
    try:
        for process in [(parent := psutil.Process(pid)), *parent.children(recursive=True)]:
            total += getattr(process.memory_full_info(), "pss", 0)
    except psutil.Error:  # a child that has ended
        pass
    return total


def page(work: Path) -> Iterator[str]:
    """The page's lines: Markdown tables of what the copy of the project in `work` measured."""
    copy = work / "project"
    chosen = params_file.load("lms", "parts", "thresholds", "replug", path=copy / "params.yaml")
    read = inputs.read(copy / "data", chosen.lms, chosen.parts)
    calls = json.loads((work / RUNS).read_text(encoding="utf-8"))
    hours = sum(call["seconds"] for call in calls) / 3600
    peak = max(call["peak_bytes"] for call in calls) / 2**30
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=copy, check=True, capture_output=True, text=True
    )
    yield (
        f"Measured at commit {commit.stdout.strip()} in {len(calls)} call{'s' * (len(calls) > 1)} of `run`, "
        f"{hours:.1f} hours in all, on {os.cpu_count()} cores ({platform.machine()}), "
        f"with at most {peak:.1f} GiB of memory."
    )
    for section in (
        _claims,
        _accuracy,
        _groups,
        _recall,
        _adaptive,
        _deciding,
        _bits,
        _controls,
        _settings,
        _copied,
        _tasks,
    ):
        yield ""
        yield from section(read, chosen)


def _claims(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## The papers' claims\n"
    claims = findings.findings(read, chosen.thresholds, chosen.replug.top_k)
    yield from _table(["claim", "measured", "verdict"], [[one.claim, one.measured, one.verdict] for one in claims])


def _accuracy(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Accuracy\n"
    effects = {(row["method"], row["group"]): row for row in read.rows("retrieval_effect", dataset="popqa")}
    gains = {row["method"]: row for row in read.rows("comparisons", dataset="popqa", against="closed_book")}
    rows = []
    for row in read.rows("accuracy", dataset="popqa"):
        method = row["method"]
        cells = [_method(method), _share(row, "substring"), _share(row, "word")]
        cells += [_share(gains[method], "gain") if method in gains else ""]
        cells += [
            _share(effects[method, name], "gain") if (method, name) in effects else "" for name in ("tail", "head")
        ]
        rows.append([*cells, show(row["correlation"])])
    head = ["method", "substring", "whole words", "gain", "gain in the tail", "gain at the head", "correlation"]
    yield from _table(head, rows)


def _groups(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Accuracy by group of questions\n"
    rows = read.rows("accuracy_by_group", dataset="popqa")
    groups = list(dict.fromkeys(row["group"] for row in rows))
    cells = {(row["method"], row["group"]): f"{_share(row, 'substring')} of {row['questions']}" for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    yield from _table(
        ["method", *groups], [[_method(name), *(cells.get((name, group), "") for group in groups)] for name in methods]
    )


def _recall(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Where passages hold an answer\n"
    rows = read.rows("recall", dataset="popqa")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    answers = list(dict.fromkeys(row["answers"] for row in rows))
    cells = {(row["method"], row["answers"]): f"{_share(row, 'recall')} of {row['questions']}" for row in rows}
    table = [[_method(method), *(cells.get((method, kind), "") for kind in answers)] for method in methods]
    yield from _table(["method", *answers], table)


def _adaptive(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Adaptive retrieval\n"
    names = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
    rows = []
    for method, searches in read.metrics["adaptive"]["popqa"][read.main].items():
        if isinstance(searches, dict) and (figures := searches.get(chosen.thresholds.search)):
            rows.append([_method(method), *(_points(figures[name]) for name in names)])
    yield from _table(["method", *names], rows)


def _deciding(read: inputs.Inputs, chosen) -> Iterator[str]:
    figures = read.metrics["adaptive"]["popqa"][read.main]
    yield "## Deciding by more than popularity\n"
    rows = [
        [_method(name), *(_points(of[key]) for key in ("popularity", "gate", "difference", "retrieved_gate"))]
        for name, searches in figures.items()
        if isinstance(searches, dict) and (of := searches.get("gate"))
    ]
    yield from _table(["method", "by popularity", "by the learned gate", "difference", "gate retrieves"], rows)
    if trusted := figures.get("confidence"):
        errors = " and ".join(_points(trusted[name]) for name in ("ece", "ece_isotonic"))
        yield ""
        yield f"The calibration error of closed-book confidence before and after an isotonic regression: {errors}."


def _bits(read: inputs.Inputs, chosen) -> Iterator[str]:
    for corpus in chosen.parts.scored:
        yield f"## Language modelling: {label(corpus)}\n"
        rows = [
            [
                row["retriever"],
                str(row["k"]),
                *(show(row[column]) for column in ("bits_per_byte", "saved", "word_perplexity")),
            ]
            for row in read.rows("bits_per_byte", corpus=corpus)
            if row["k"] in BITS_AT
        ]
        yield from _table(["retriever", "documents", "bits per byte", "saved, %", "perplexity of a word"], rows)
        yield ""


def _controls(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Controls of language modelling\n"
    figures = ("bits_per_byte", "saved", "saved_over_same")
    rows = [
        [label(row["corpus"]), row["control"], row["retriever"], show(row["documents"], digits=1)]
        + [show(row[name]) for name in figures]
        for row in read.rows("lm_controls")
    ]
    head = ["corpus", "control", "documents of", "documents that fit", "bits per byte", "saved, %"]
    yield from _table([*head, "saved over the same documents' ensemble, %"], rows)


def _settings(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Settings chosen on other texts\n"
    rows = [
        [label(row["corpus"]), row["retriever"]]
        + [f"{row[f'{name}_1']:g} and {row[f'{name}_2']:g}" for name in ("temperature", "weight")]
        + [show(row[name]) for name in ("saved", "saved_over_fixed")]
        for row in read.rows("lm_settings", chosen="both")
    ]
    head = ["corpus", "documents of", "temperature", "weight of the model alone", "saved, %"]
    yield from _table([*head, "saved over temperature 1, %"], rows)


def _copied(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Copying\n"
    rows = [
        [
            *(label(row["corpus"]), row["retriever"]),
            f"{row['least']} to {row['most']}" if row["most"] else f"{row['least']} or more",
            *(f"{100 * row['share']:.1f}", show(row["bits_saved"]), _share(row, "share_of_saved")),
        ]
        for row in read.tables["copied"]
    ]
    head = [
        "corpus",
        "documents of",
        "longest shared n-gram",
        "tokens, %",
        "bits saved a token",
        "of all bits saved, %",
    ]
    yield from _table(head, rows)


def _tasks(read: inputs.Inputs, chosen) -> Iterator[str]:
    yield "## Benchmarks\n"
    rows = [
        [
            label(row["task"]),
            _method(row["method"]),
            f"{row['questions']:,}",
            _share(row, "accuracy"),
            _share(row, "gain"),
        ]
        for row in read.tables["tasks"]
        if row["category"] == "all"
    ]
    yield from _table(["benchmark", "method", "questions", "accuracy", "gain"], rows)


def _method(name: str) -> str:
    return METHODS.get(name) or label(name)


def _share(row: dict, column: str) -> str:
    """A share with its interval, in points; "" where the table has none."""
    return show(row[column].times(100), digits=1) if math.isfinite(row[column].value) else ""


def _points(figure: dict) -> str:
    return show(Interval(*(100 * figure[end] for end in ("value", "low", "high"))), digits=1)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in [head, ["---"] * len(head), *rows]:
        yield f"| {' | '.join(row)} |"


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
