"""Seeded damage to every file that a stage reads, and what the stage makes of it: the rows, a reject, or one line.

    .venv/bin/python -m benchmarks.faults run --folder /dev/shm/faults --inputs 10000 --workers 2
    .venv/bin/python -m benchmarks.faults table --folder /dev/shm/faults

A project of the profile tiny with a file of every source is made in FOLDER. Its stages and what each reads are taken
from dvc.yaml, and the sources from the catalogue: a new reader is covered without being named. The raw sources come in
several layouts and compressions. Each input is one file, damaged in one way (benchmarks/mutations.py); one stage reads
it, in a process of its own. FOLDER/inputs-*.jsonl has a line for each; a measurement that is stopped goes on there.

An input ends well as one of:
    same      the outputs are those of the undamaged file, byte for byte
    rejected  a bad row is kept by file, row and reason, or counted
    refused   one line names the file, and nothing is written
    other     the file is whole and says something else, and its rows are all accounted for
and badly as a traceback, an unclear refusal, a silent loss, a hang, or more memory than the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from benchmarks import fault_world, mutations
from benchmarks.fault_world import Stage
from pipelines import draws

GOOD, BAD = ("same", "rejected", "refused", "other"), ("traceback", "unclear", "silent", "hang", "memory", "died")
PATIENCE = 30  # seconds of a stage's run, beyond ten times the undamaged one's
BOUND = 2 << 30  # bytes of memory beyond the undamaged run's
READ = {  # the metrics that count an input's rows
    "entities": ("dump_lines",),
    "popularity": ("lines", "skipped.other_project_views"),
    "chunk": ("rows",),
}
ALIKE = 3  # files with the same ending in one folder that are tried
COUNTED = re.compile("reject|skip|duplicate|without|missing|unknown")  # in names of metrics of rows left out
READERS = 2  # kinds of stages that a file which is no source is tried with
INPUT_NAMED = ("/meta.json", "/sums.json")  # of an index: they have the hash of its whole corpus
PROSE = ("chunk",)  # stages to which every line of a text is one
UNNAMED = ("tokenizer", "base_lm", "attribute")  # the stages that keep or count the same texts name bad rows
SLOWEST = 5.0  # seconds of a stage's run; slower ones are left out, since faster ones read the same files
SLOW = 1.0  # seconds of a stage's run; of a slower one, every eighth input of a round is tried


class Target(NamedTuple):
    """A file that a stage reads, or a raw source's content in another layout."""

    stage: Stage
    path: Path
    layout: str = ""  # the other file's name

    @property
    def key(self) -> str:
        return f"{self.stage.name} {self.path} {self.layout}".strip()

    @property
    def is_source(self) -> bool:
        return Path("data/raw") in self.path.parents and self.path.name != "manifest.json"


class Ended(NamedTuple):
    """How a stage's run ended: exit code, what it said, seconds, bytes of memory, hashes of its outputs."""

    code: int
    said: str
    seconds: float
    memory: int
    files: dict[str, str]


class Bench:
    """A copy of the small project, whose files are damaged and brought back."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole, self.log = whole.resolve(), folder.with_suffix(".jsonl").resolve()
        fault_world.remove(folder)  # in which a stopped measurement left a damaged file
        shutil.copytree(whole, folder, symlinks=True)
        os.chdir(folder)
        self.undamaged: dict[str, tuple[Ended, tuple[Counter, int | None]]] = {}  # by target: its run and counts

    def targets(self, stages: list[Stage], number: int, workers: int, only: str) -> Iterator[Target]:
        """One process's share of the files that stages read: sources with all, others with READERS kinds, the fastest.

        A file without which a stage's outputs are the same is none that the stage reads. Without dvc.lock, which tells
        what stages left, only sources are damaged.
        """
        locked = Path("dvc.lock").is_file()
        stages = [stage for stage in stages if only in stage.name]
        whole = {stage: (self.run(Target(stage, stage.files()[0])), self.counts) for stage in stages if stage.files()}
        if broken := [(stage.name, ended.said[-2000:]) for stage, (ended, _) in whole.items() if ended.code]:
            raise SystemExit(f"does not run undamaged: {broken[0]}")
        readers = defaultdict(set)
        for stage in sorted(whole, key=lambda stage: whole[stage][0].seconds):
            if whole[stage][0].seconds > SLOWEST:
                print(f"{stage.name} is left out: it takes {whole[stage][0].seconds:.1f} s", flush=True)
                continue
            alike = Counter()
            for path in stage.files():
                alike[path.parent, path.suffix] += 1
                mine = int(draws.uniform(0, "faults/share", str(path)) * workers) == number
                target = Target(stage, path)
                new = target.is_source or (locked and stage.kind not in readers[path] and len(readers[path]) < READERS)
                if not (mine and new and alike[path.parent, path.suffix] <= ALIKE):
                    continue
                missing = self.run(target, data=None)
                if missing.code or missing.files != whole[stage][0].files:
                    readers[path].add(stage.kind)
                    self.undamaged[target.key] = whole[stage]
                    yield target

    def seeds(self, target: Target) -> Iterator[tuple[Target, str, bytes]]:
        """(target, file name, bytes): a file as it is, and a raw source in its other layouts that the stage reads."""
        stored = (self.whole / target.path).read_bytes()
        yield target, target.path.name, stored
        whole, counts = self.undamaged[target.key]
        for name, data in fault_world.layouts(target.path.name, stored) if target.is_source else ():
            other = target._replace(layout=name)
            ended = self.run(other, name, data)
            if ended.code == 0 and self.counts[1] == counts[1] and (counts[1] or ended.files == whole.files):
                self.undamaged[other.key] = ended, self.counts
                yield other, name, data

    def run(self, target: Target, name: str = "", data: bytes | None = b"", limit: float = 300) -> Ended:
        """The stage's run with `data` in a file `name` in place of the target's; all is brought back afterwards.

        Without a name the file stays as it is; without data it is missing.
        """
        place = target.path.with_name(name or target.path.name)
        if (self.whole / "dvc.lock").is_file():
            shutil.copyfile(self.whole / ("no_fetch.lock" if target.is_source else "dvc.lock"), "dvc.lock")
        if name or data is None:
            target.path.unlink()
        if name:
            place.write_bytes(data)
        started = time.monotonic()
        _, status, used = os.wait4(target.stage.start(limit), 0)
        seconds, code = time.monotonic() - started, os.waitstatus_to_exitcode(status)
        said = Path("said.log").read_text(encoding="utf-8", errors="replace")
        files = target.stage.hashes()
        ended = Ended(code, said, seconds, used.ru_maxrss << 10, files)
        self.counts = self._counts(target.stage) if code == 0 else (Counter(), None)
        place.unlink(missing_ok=True)
        shutil.copyfile(self.whole / target.path, target.path)
        target.stage.bring_back(self.whole)
        return ended

    def _counts(self, stage: Stage) -> tuple[Counter, int | None]:
        """(rows that are named or counted as left out, by metric; rows read) of the outputs that lie there."""
        named, read = Counter(), None
        for file in [file for out in stage.outs for file in fault_world.files(out)]:
            if file.name == "rejects.parquet":
                named[str(file)] = pq.read_metadata(file).num_rows
            elif file.parent == Path("data/metrics"):
                metrics = dict(_flat(json.loads(file.read_text())))
                named.update({key: int(value) for key, value in metrics.items() if COUNTED.search(key)})
                if stage.kind in READ:
                    read = sum(metrics.get(name, 0) for name in READ[stage.kind])
        return named, read

    def judged(self, target: Target, name: str, data: bytes, entry: mutations.Mutation, damaged: bytes) -> dict:
        """Run the stage on a damaged file; how it ended, by the rules above."""
        base, base_counts = self.undamaged[target.key]
        ended = self.run(target, name, damaged, PATIENCE + 10 * base.seconds)
        named = (self.counts[0] - base_counts[0]).total()  # those that there are more of
        read = self.counts[1] and self.counts[1] - (base_counts[1] or 0)
        changed = None
        kind = mutations.kind(mutations.plain(name, data))
        prose = target.stage.kind in PROSE and kind == "text"
        if target.is_source and target.stage.kind in READ and entry.of not in ("stored", "packed") and not prose:
            before, after = (mutations.records_of(name, content) for content in (data, damaged))
            changed = None if before is None or after is None else after - before
        noticed = entry.expect != mutations.OTHER and target.stage.kind not in UNNAMED
        noticed = noticed and not (prose and entry.of == "lines")
        if not target.is_source:  # DVC knows what stages left; stages notice damaged bytes where there are checksums
            noticed = entry.of in ("stored", "bare", "binary") and kind in ("parquet", "array", "binary")
        outcome = _outcome(ended, base, target, named, "silent" if noticed else "other")
        if outcome == "other" and read is not None and changed is not None and changed != read:
            outcome = "silent"
        lines = [line for line in ended.said.splitlines() if line.strip()]
        about = {"outcome": outcome, "said": lines[-1][:300] if lines and ended.code else ""}
        about |= {"seconds": round(ended.seconds, 2), "memory": ended.memory - base.memory, "code": ended.code}
        return about | {"named": named, "read": read, "changed": changed}


def _outcome(ended: Ended, base: Ended, target: Target, named: int, otherwise: str) -> str:
    errors = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    if ended.code == -signal.SIGALRM:
        return "hang"
    if ended.memory > base.memory + BOUND or "MemoryError" in ended.said:
        return "memory"
    if "Traceback (most recent" in ended.said:
        return "traceback"
    if ended.code < 0:
        return "died"
    if ended.code:
        parts = [target.path.name.partition(".")[0], *map(str, target.path.parents[:-2])]
        return "refused" if len(errors) == 1 and any(part in errors[0] for part in parts) else "unclear"
    if all(name.endswith(INPUT_NAMED) for name, _ in ended.files.items() ^ base.files.items()):
        return "same"
    if named > 0:
        return "rejected"
    return otherwise


def _flat(value: dict, prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{key}.")
        elif isinstance(inner, int | float):
            yield prefix + key, inner


def inputs(seeds: list[tuple[Target, str, bytes]], seconds: dict[str, float]) -> Iterator[tuple[int, str, int]]:
    """(number of the seed, mutation, round): in each of many rounds every mutation of every seed, in hashed order."""
    for turn in range(1000):
        jobs = []
        for i, (target, name, data) in enumerate(seeds):
            for place, entry in enumerate(mutations.fitting(name, mutations.plain(name, data))):
                slow = seconds[target.key] > SLOW and (place + turn) % 8
                heavy = entry.name in mutations.HEAVY and (turn or not target.is_source)
                if not slow and not heavy:
                    jobs.append((i, entry.name, turn))
        yield from sorted(jobs, key=lambda job: draws.uniform(0, "faults", f"{seeds[job[0]][0].key} {job[1]} {turn}"))


def work(bench: Bench, stages: list[Stage], number: int, workers: int, most: int, only: str) -> None:
    """One process's share of the inputs."""
    seeds = [seed for target in bench.targets(stages, number, workers, only) for seed in bench.seeds(target)]
    print(f"{len(seeds)} files and layouts to damage", flush=True)
    rows = [json.loads(line) for line in bench.log.read_text().splitlines()] if bench.log.is_file() else []
    done = {(row["target"], row["mutation"], row["round"]) for row in rows}
    count = len(done)
    with bench.log.open("a", buffering=1) as log:
        for i, mutation, turn in inputs(seeds, {key: ended.seconds for key, (ended, _) in bench.undamaged.items()}):
            target, name, data = seeds[i]
            if count >= most // workers:
                return
            if (target.key, mutation, turn) in done:
                continue
            entry = mutations.MUTATIONS[mutation]
            rng = np.random.default_rng(
                int(draws.uniform(0, "faults/damage", f"{target.key} {mutation} {turn}") * 2**53)
            )
            damaged = mutations.apply(entry, name, data, rng)
            if damaged is None:
                continue
            row = bench.judged(target, name, data, entry, damaged)
            row |= {"target": target.key, "reader": target.stage.kind, "mutation": mutation, "round": turn}
            log.write(json.dumps(row | {"source": target.is_source}) + "\n")
            count += 1
            if row["outcome"] in BAD:
                print(row["outcome"], target.key, "|", mutation, turn, "|", row["said"], flush=True)


def table(folder: Path) -> str:
    """How the inputs ended, by reader, as a Markdown table; and the worst time and memory."""
    rows = [
        json.loads(line) for file in sorted(folder.glob("inputs-*.jsonl")) for line in file.read_text().splitlines()
    ]
    counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for row in rows:
        what = "a source" if row["source"] else "another stage's output"
        for reader in (row["reader"], "~all"):
            counts[what, reader][row["outcome"]] += 1
    heads = [*GOOD, *BAD]
    lines = [f"| damaged | stage | inputs | {' | '.join(heads)} |", "|" + "---|" * (len(heads) + 3)]
    for (what, reader), count in sorted(counts.items()):
        cells = " | ".join(f"{count[name]:,}" for name in heads)
        lines.append(f"| {what} | {reader.removeprefix('~')} | {count.total():,} | {cells} |")
    kinds, files = (len({row[key] for row in rows}) for key in ("mutation", "target"))
    memory, seconds = (max(row[key] for row in rows) for key in ("memory", "seconds"))
    lines += ["", f"{len(rows):,} inputs: {kinds} kinds of damage to {files} files and layouts. At most"]
    return "\n".join(lines) + f" {memory / 2**30:.2f} GiB beyond the undamaged run's memory, and {seconds:.1f} s."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "table"])
    parser.add_argument("--folder", type=Path, required=True, help="where the project, its copies and the log lie")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of a stage's name")
    parser.add_argument("--ingest", action="store_true", help="only the stages before the models")
    words = parser.parse_args()
    folder = words.folder.resolve()
    if words.part == "table":
        print(table(folder))
        return
    stages = fault_world.make(folder / "whole", words.ingest)
    fault_world.load(stages)
    children = []
    for number in range(words.workers):
        if not (child := os.fork()):
            bench = Bench(folder / "whole", folder / f"inputs-{number}")
            work(bench, stages, number, words.workers, words.inputs, words.only)
            os._exit(0)
        children.append(child)
    sys.exit(any([os.waitpid(child, 0)[1] for child in children]))


if __name__ == "__main__":
    main()
