"""Reading a Wikidata dump: the stage `entities` beside plain Python, on a generated dump or on a real one.

    .venv/bin/python -m benchmarks.dump
    .venv/bin/python -m benchmarks.dump --dump latest-all.json.gz   # an excerpt of it

Each way reads the same file in a process of its own and pulls out the same: label, aliases, article and best answers of
every item with an English label or article. That both give the same is checked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from benchmarks.dump_generator import write_dump
from pipelines import language, shards
from pipelines.knowledge import entities
from pipelines.params import Compute
from pipelines.pool import processes
from pipelines.relations import RELATIONS
from pipelines.sources import streams, wikidata

# The full dump in November 2026, about: entities, and bytes of JSON (150 GB as .json.gz).
FULL_ENTITIES, FULL_JSON = 115e6, 1.7e12
PROPERTIES = tuple(RELATIONS)


class Run(NamedTuple):
    cpu: float  # seconds of the process itself: what a quiet machine takes, and a busy one can't distort much
    memory: float  # MB, at most
    result: Any


def plain(dump: Path) -> list[tuple]:
    """What a script would do: the gzip module, and json.loads on every line."""
    found = []
    with gzip.open(dump) as file:
        for raw in file:
            line = raw.strip().rstrip(b",")
            if line in (b"[", b"]", b""):
                continue
            entity = json.loads(line)
            if entity["type"] != "item":
                continue
            names, others = entity["labels"], entity.get("aliases")
            label = ((names.get("en") or names.get("mul") or {}).get("value") if names else None) or None
            title = entity["sitelinks"]["enwiki"]["title"] if "enwiki" in entity.get("sitelinks", ()) else None
            if label is None and title is None:
                continue
            aliases = [one["value"] for key in ("en", "mul") for one in (others.get(key, ()) if others else ())]
            aliases = [alias for alias in dict.fromkeys(aliases) if alias and alias != label]
            answers = _answers(entity["claims"]) if title and entity.get("claims") else []
            found.append((int(entity["id"][1:]), label, aliases, title, answers))
    return found


def _answers(claims: dict) -> list[tuple[int, int]]:
    answers: dict[tuple[int, int], None] = {}
    for pid in PROPERTIES:
        statements = claims.get(pid, [])
        best = "preferred" if any(one["rank"] == "preferred" for one in statements) else "normal"
        for one in statements:
            value = one["mainsnak"].get("datavalue", {}).get("value")
            if one["rank"] == best and isinstance(value, dict) and value.get("entity-type") == "item":
                answers[int(pid[1:]), value["numeric-id"]] = None
    return list(answers)


def decompressed(dump: Path) -> int:
    """Bytes of JSON, decompressed and thrown away."""
    return sum(map(len, streams.open_blocks(dump)))


def lines(dump: Path) -> int:
    """The most that a reader of lines can reach: decompressed and split, and nothing looked at."""
    return sum(1 for _ in streams.open_lines(dump))


def longtail(dump: Path, workers: int = 1) -> list[Path]:
    """The stage's own reading, as far as its blocks' Parquet files."""
    compute = Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu")
    with processes(compute) as executor:
        stream = ((str(dump), block) for block in wikidata.read_blocks(dump))
        work = partial(entities.parse_block, PROPERTIES, language.ENGLISH)
        return list(shards.map_stream(f"benchmark{workers}", "dump", work, stream, executor, at_once=2 * workers))


def measure(way: Callable[[Path], Any], dump: Path, small: Path) -> Run:
    """One way in a fresh process, after a small dump: what a process does but once is no part of a rate."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(_measured, way, dump, small).result()


def _measured(way: Callable[[Path], Any], dump: Path, small: Path) -> Run:
    way(small)
    shutil.rmtree(shards.SCRATCH, ignore_errors=True)
    started = time.process_time()
    result = way(dump)
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, result)


def rows(files: list[Path]) -> list[tuple]:
    """What `plain` gives, from the stage's files."""
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    names = ("qid", "label", "aliases", "wiki_title")
    return [(*(r[n] for n in names), list(zip(r["properties"], r["objects"], strict=True))) for r in found]


WAYS: dict[str, Callable[[Path], Any]] = {
    "decompressed only": decompressed,
    "decompressed and split into lines": lines,
    "plain: gzip, json.loads on every line": plain,
    "longtail, one process": longtail,
    "longtail, the parent of 2 workers": partial(longtail, workers=2),
}


def compare(dump: Path, small: Path, rounds: int) -> dict[str, Run]:
    """Every way's best round; raises where longtail and plain differ."""
    best: dict[str, Run] = {}
    for _ in range(rounds):
        for name, way in WAYS.items():
            run = measure(way, dump, small)
            if way is not plain and isinstance(run.result, list):
                run = run._replace(result=rows(run.result))
            best[name] = min(best.get(name, run), run, key=lambda one: one.cpu)
    _, _, simple, one, parent = best.values()
    assert simple.result == one.result == parent.result, "longtail and plain differ"
    return best


def table(dump: Path, best: dict[str, Run]) -> str:
    """Markdown: rates of JSON, the ratio to plain, the share of the rate at which lines can be had, peak memory."""
    size, count = best["decompressed only"].result, best["decompressed and split into lines"].result
    only, split, simple, one, parent = (run.cpu for run in best.values())
    packed = dump.stat().st_size / 1e6
    out = [
        f"{dump.name}: {count:,} lines, {size / 1e6:,.0f} MB of JSON in {packed:,.1f} MB, {size / count:,.0f} B a line"
    ]
    out += ["", "| way | lines/s | MB/s | times plain | share of splitting | peak MB |", "|---|---|---|---|---|---|"]
    for name, run in best.items():
        out.append(
            f"| {name} | {count / run.cpu:,.0f} | {size / 1e6 / run.cpu:,.0f} | {simple / run.cpu:.1f} "
            f"| {split / run.cpu:.0%} | {run.memory:,.0f} |"
        )
    scale = FULL_JSON / size / 3600  # hours of the full dump per second here
    out += [
        "",
        f"The full dump ({FULL_ENTITIES / 1e6:.0f} million entities, {FULL_JSON / 1e12} TB of JSON), in hours:",
        "",
    ]
    out += [
        "| plain, 1 core | longtail, 1 core | 2 workers | 4 workers | 8 workers | the parent alone |",
        "|---|---|---|---|---|---|",
    ]
    parsing = one - only  # a worker's part
    hours = [simple, one, *(max(parent, parsing / workers) for workers in (2, 4, 8)), parent]
    return "\n".join([*out, "| " + " | ".join(f"{scale * seconds:.1f}" for seconds in hours) + " |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, help=".json.gz; without it one is generated")
    parser.add_argument("--entities", type=int, default=20_000, help="of the generated dump")
    parser.add_argument("--rounds", type=int, default=5, help="the best counts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, dump = Path(folder) / "small.json.gz", Path(folder) / "generated.json.gz"
        write_dump(small, 50)
        if given.dump:
            dump = given.dump.resolve()
        else:
            write_dump(dump, given.entities)
        with chdir(folder):
            print(table(dump, compare(dump, small, given.rounds)))


if __name__ == "__main__":
    main()
