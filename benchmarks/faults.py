"""Seeded damage to every file that a stage or command reads, and what it makes of it: the rows, a reject, or one line.

    .venv/bin/python -m benchmarks.faults run --folder /dev/shm/faults --inputs 10000 --workers 2
    .venv/bin/python -m benchmarks.faults table --folder /dev/shm/faults

With --brought the files are those that people bring to `longtail thresholds` (benchmarks/faults_brought.py).

A project of the profile smoke with a file of every source is made in FOLDER. Its stages and what each reads are taken
from dvc.yaml, and the sources from the catalogue: a new reader is covered without being named. Each file also comes in
other compressions. Each input is one file, damaged in one way (benchmarks/mutations.py); one stage reads it, in a
process of its own. FOLDER/inputs-*.jsonl has a line for each; a measurement that is stopped goes on there.

An input ends well as one of:
    same      the outputs are the same as with the undamaged file, byte for byte
    rejected  a bad row is kept by file, row and reason, or counted
    refused   one line names the file, and nothing is written
    other     the file is whole and says something else, and its rows are all accounted for
and badly as a traceback, an unclear refusal, a silent loss, a hang, or more memory than the bound.
"""

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

from benchmarks import damaged_kinds, faults_brought, mutations
from benchmarks.faults_project import Stage, files, make, remove
from benchmarks.project_copy import table
from pipelines import draws

GOOD, BAD = (
    ("same", "rejected", "refused", "other"),
    ("traceback", "unclear", "silent", "hang", "memory", "died"),
)
PATIENCE = 30  # seconds of a stage's run, beyond ten times the undamaged one's
BOUND = 2 << 30  # bytes of memory beyond the undamaged run's
READ = {  # the metrics that count an input's rows
    "entities": ("dump_lines",),
    "popularity": ("lines", "skipped.other_project_views"),
    "chunk": ("rows",),
}
ALIKE = 3  # files with the same ending in one folder that are tried
COUNTED = re.compile(
    "reject|skip|duplicate|without|missing|unknown"
)  # in names of metrics of rows left out
PROSE = ("chunk",)  # stages to which every line of a text is one
UNNAMED = (
    "tokenizer",
    "base_lm",
    "attribute",
)  # the stages that keep or count the same texts name bad rows
ORDINARY = re.compile(
    r"\d (rows|questions); |rows joined by|answers, [\d.]+ % right|are used$"
)  # lines that do not say what was left out
SLOWEST = (
    5.0  # seconds of a stage's run; slower ones are left out, since faster ones read the same files
)
RAW = Path("data/raw")


class Target(NamedTuple):
    """A file that a stage reads, or a raw source's content in another compression."""

    stage: Stage
    path: Path
    layout: str = ""  # the other file's name

    @property
    def key(self) -> str:
        return f"{self.stage.name} {self.path} {self.layout}".strip()


class Ended(NamedTuple):
    """How a stage's run ended: exit code, what it said, seconds, bytes of memory, hashes of its outputs."""

    code: int
    said: str
    seconds: float
    memory: int
    files: dict[str, str]


class Bench:
    """A copy of the small project. Its files are damaged and brought back."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole, self.log = whole.resolve(), folder.with_suffix(".jsonl").resolve()
        remove(folder)  # a stopped measurement may have left a damaged file in it
        shutil.copytree(whole, folder, symlinks=True)
        os.chdir(folder)
        self.undamaged: dict[
            str, tuple[Ended, tuple[Counter, int | None]]
        ] = {}  # by target: its run and counts

    def targets(self, stages: list[Stage], number: int, workers: int) -> Iterator[Target]:
        """One process's share of the sources, each with all stages that read it.

        A file without which a stage's outputs are the same is none that the stage reads.
        """
        of_stages = {
            stage: [path for path in stage.files() if RAW in path.parents] for stage in stages
        }
        for stage, paths in of_stages.items():
            whole = self.run(Target(stage, paths[0])) if paths else None
            if whole and whole.code:
                raise SystemExit(f"{stage.name} does not run undamaged: {whole.said[-2000:]}")
            counts, alike = self.counts, Counter()
            for path in paths if whole and whole.seconds <= SLOWEST else ():
                alike[path.parent, path.suffix] += 1
                mine, target = (
                    int(draws.uniform(0, "share", str(path)) * workers) == number,
                    Target(stage, path),
                )
                if (
                    not mine
                    or path.name == "manifest.json"
                    or alike[path.parent, path.suffix] > ALIKE
                ):
                    continue
                missing = self.run(target, data=None)
                if missing.code or missing.files != whole.files:
                    self.undamaged[target.key] = whole, counts
                    yield target

    def seeds(self, target: Target) -> Iterator[tuple[Target, str, bytes]]:
        """(target, file name, bytes): a file as it is, and compressed in each way that the stage reads."""
        name, stored = target.path.name, (self.whole / target.path).read_bytes()
        yield target, name, stored
        whole, counts = self.undamaged[target.key]
        end, content = damaged_kinds.suffix(name), damaged_kinds.plain(name, stored)
        packed = damaged_kinds.kind(content) != "parquet"
        for other_end in sorted({"", *damaged_kinds.COMPRESSIONS} - {end}) if packed else ():
            other = target._replace(layout=name.removesuffix(end) + other_end)
            data = damaged_kinds.stored(other_end, content)
            ended = self.run(other, other.layout, data)
            if (
                ended.code == 0
                and self.counts[1] == counts[1]
                and (counts[1] or ended.files == whole.files)
            ):
                self.undamaged[other.key] = ended, self.counts
                yield other, other.layout, data

    def run(
        self, target: Target, name: str = "", data: bytes | None = b"", limit: float = 300
    ) -> Ended:
        """The stage's run with `data` in a file `name` in place of the target's; all is brought back afterwards.

        Without a name the file stays as it is; without data it is missing.
        """
        place = target.path.with_name(name or target.path.name)
        if name or data is None:
            target.path.unlink()
        if name:
            place.write_bytes(data)
        words = tuple(
            str(place) if word == str(target.path) else word for word in target.stage.words
        )
        started = time.monotonic()
        _, status, used = os.wait4(target.stage._replace(words=words).start(limit), 0)
        seconds, code = time.monotonic() - started, os.waitstatus_to_exitcode(status)
        said = Path("said.log").read_text(encoding="utf-8", errors="replace")
        files = target.stage.hashes()
        ended = Ended(code, said, seconds, used.ru_maxrss << 10, files)
        self.counts = self._counts(target.stage) if code == 0 else (Counter(), None)
        if target.stage.module == faults_brought.MODULE:
            self.counts[0].update(
                line for line in said.partition("\n\n")[0].splitlines() if not ORDINARY.search(line)
            )
        place.unlink(missing_ok=True)
        shutil.copyfile(self.whole / target.path, target.path)
        target.stage.bring_back(self.whole)
        return ended

    def _counts(self, stage: Stage) -> tuple[Counter, int | None]:
        """(rows that are named or counted as left out, by metric; rows read) of the outputs that lie there."""
        named, read = Counter(), None
        for file in [file for out in stage.outs for file in files(out)]:
            if file.name == "rejects.parquet":
                named[str(file)] = pq.read_metadata(file).num_rows
            elif file.parent == Path("data/metrics"):
                metrics = dict(_flat(json.loads(file.read_text())))
                named.update(
                    {key: int(value) for key, value in metrics.items() if COUNTED.search(key)}
                )
                if stage.kind in READ:
                    read = sum(metrics.get(name, 0) for name in READ[stage.kind])
        return named, read

    def judged(
        self, target: Target, name: str, data: bytes, entry: mutations.Mutation, damaged: bytes
    ) -> dict:
        """Run the stage on a damaged file; how it ended, by the rules above."""
        base, (named, read) = self.undamaged[target.key]
        ended = self.run(target, name, damaged, PATIENCE + 10 * base.seconds)
        named = (self.counts[0] - named).total()  # the entries that there are more of
        read = self.counts[1] and self.counts[1] - (read or 0)
        kind, changed = damaged_kinds.kind(damaged_kinds.plain(name, data)), None
        prose = target.stage.kind in PROSE and kind == "text"
        if target.stage.kind in READ and entry.of not in ("stored", "packed") and not prose:
            before, after = (damaged_kinds.records_of(name, content) for content in (data, damaged))
            changed = None if before is None or after is None else after - before
        noticed = entry.expect != mutations.OTHER and target.stage.kind not in UNNAMED
        noticed = noticed and not (prose and entry.of == "lines")
        noticed = noticed and not (
            target.stage.kind in PROSE and entry.of == "table"
        )  # it is in another layout then
        outcome = _outcome(ended, base, target, named, "silent" if noticed else "other")
        if outcome == "other" and None not in (read, changed) and changed != read:
            outcome = "silent"
        asked = "--by-position" in target.stage.words
        if entry.expect == mutations.REFUSED and outcome in GOOD and not (ended.code or asked):
            outcome = "silent"
        lines = [line for line in ended.said.splitlines() if line.strip()]
        about = {
            "outcome": outcome,
            "said": lines[-1][:300] if lines and ended.code else "",
            "code": ended.code,
        }
        about |= {"seconds": round(ended.seconds, 2), "memory": ended.memory - base.memory}
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
        parts += [Path(word).name for word in target.stage.words[1:] if word.startswith("data")]
        return (
            "refused"
            if len(errors) == 1 and any(part in errors[0] for part in parts)
            else "unclear"
        )
    if ended.files == base.files:
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


def inputs(seeds: list[tuple[Target, str, bytes]]) -> Iterator[tuple[int, str, int]]:
    """(number of the seed, mutation, round): in each of many rounds every mutation of every seed, in hashed order."""
    for turn in range(1000):
        jobs = []
        for i, (_, name, data) in enumerate(seeds):
            for entry in mutations.fitting(name, damaged_kinds.plain(name, data)):
                if entry.name not in mutations.HEAVY or not turn:
                    jobs.append((i, entry.name, turn))
        yield from sorted(
            jobs,
            key=lambda job: draws.uniform(0, "faults", f"{seeds[job[0]][0].key} {job[1]} {turn}"),
        )


def work(bench: Bench, targets: Iterator[Target], most: int) -> None:
    """One process's share of the inputs."""
    seeds = [seed for target in targets for seed in bench.seeds(target)]
    print(f"{len(seeds)} files and layouts to damage", flush=True)
    rows = (
        [json.loads(line) for line in bench.log.read_text().splitlines()]
        if bench.log.is_file()
        else []
    )
    done = {(row["target"], row["mutation"], row["round"]) for row in rows}
    count = len(done)
    with bench.log.open("a", buffering=1) as log:
        for i, mutation, turn in inputs(seeds):
            target, name, data = seeds[i]
            if count >= most:
                return
            if (target.key, mutation, turn) in done:
                continue
            entry, drawn = mutations.MUTATIONS[mutation], f"{target.key} {mutation} {turn}"
            rng = np.random.default_rng(int(draws.uniform(0, "faults/damage", drawn) * 2**53))
            damaged = mutations.apply(entry, name, data, rng)
            if damaged is None:
                continue
            row = bench.judged(target, name, data, entry, damaged)
            row |= {
                "target": target.key,
                "reader": target.stage.kind,
                "mutation": mutation,
                "round": turn,
            }
            log.write(json.dumps(row) + "\n")
            count += 1
            if row["outcome"] in BAD:
                print(row["outcome"], target.key, "|", mutation, turn, "|", row["said"], flush=True)


def report(folder: Path) -> str:
    """How the inputs ended, by reader, as a Markdown table; and the worst time and memory."""
    rows = [
        json.loads(line)
        for file in folder.glob("inputs-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    counts: dict[str, Counter] = defaultdict(Counter)
    for row in rows:
        for reader in (row["reader"], "~all"):
            counts[reader][row["outcome"]] += 1
    cells = [
        [
            reader.removeprefix("~"),
            f"{count.total():,}",
            *(f"{count[name]:,}" for name in (*GOOD, *BAD)),
        ]
        for reader, count in sorted(counts.items())
    ]
    kinds, files = (len({row[key] for row in rows}) for key in ("mutation", "target"))
    memory, seconds = (max(row[key] for row in rows) for key in ("memory", "seconds"))
    shown = table(["read by", "inputs", *GOOD, *BAD], cells)
    said = f"{len(rows):,} inputs: {kinds} kinds of damage to {files} files."
    return f"{shown}\n\n{said} At most {memory / 2**30:.2f} GiB beyond the undamaged run, and {seconds:.1f} s."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["run", "table"])
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the project, its copies and the log lie"
    )
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of a stage's name")
    parser.add_argument("--ingest", action="store_true", help="only the stages before the models")
    parser.add_argument(
        "--brought", action="store_true", help="`longtail thresholds` in place of the stages"
    )
    words = parser.parse_args()
    folder = words.folder.resolve()
    if words.part == "table":
        print(report(folder))
        return
    made = (
        faults_brought.make(folder / "whole")
        if words.brought
        else make(folder / "whole", words.ingest)
    )
    stages = [stage for stage in made if words.only in stage.name]
    children = []
    for number in range(words.workers):
        if not (child := os.fork()):
            bench = Bench(folder / "whole", folder / f"inputs-{number}")
            work(bench, bench.targets(stages, number, words.workers), words.inputs // words.workers)
            os._exit(0)
        children.append(child)
    sys.exit(any([os.waitpid(child, 0)[1] for child in children]))


if __name__ == "__main__":
    main()
