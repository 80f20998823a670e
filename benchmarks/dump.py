"""Reading a Wikidata dump: the stage `entities` beside plain Python, on the sample world's dump and
on real entities.

Each way reads the same file and pulls out the same: label, aliases, article and best answers of
every item with an English label or article. Real entities come from $LONGTAIL_REAL/wikidata,
repeated until the file is large enough.
"""

import gzip
import json
import shutil
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.sampler import world_of
from pipelines.knowledge import entities
from pipelines.language import language
from pipelines.language.relations import RELATIONS
from pipelines.sources import streams, wikidata
from pipelines.storage.atomic import SCRATCH
from pipelines.storage.work_store import WorkStore
from pipelines.work.executors import processes
from pipelines.world import wikimedia_dumps

PROPERTIES = tuple(RELATIONS)
PEER = "gzip, json.loads of each line"
REAL = "wikidata/wikibase-dump-filter_entities.json"


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
            label = (
                (names.get("en") or names.get("mul") or {}).get("value") if names else None
            ) or None
            title = (
                entity["sitelinks"]["enwiki"]["title"]
                if "enwiki" in entity.get("sitelinks", ())
                else None
            )
            if label is None and title is None:
                continue
            aliases = [
                one["value"]
                for key in ("en", "mul")
                for one in (others.get(key, ()) if others else ())
            ]
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
            if (
                one["rank"] == best
                and isinstance(value, dict)
                and value.get("entity-type") == "item"
            ):
                answers[int(pid[1:]), value["numeric-id"]] = None
    return list(answers)


def lines(dump: Path) -> int:
    """Decompressed and split, and nothing looked at."""
    return sum(1 for _ in streams.open_lines(dump))


def longtail(dump: Path, executor: Executor | None = None) -> list[Path]:
    """The stage's own reading, as far as its blocks' Parquet files."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    stream = ((str(dump), block) for block in streams.open_runs(dump, wikidata.BLOCK_BYTES))
    work = partial(entities.parse_block, PROPERTIES, language.ENGLISH)
    return list(WorkStore().parts_of_stream("benchmark", "dump", work, stream, executor, at_once=4))


def two_workers(dump: Path) -> list[Path]:
    """`longtail` with two workers, and their start."""
    with processes(measure.compute(2)) as executor:
        return longtail(dump, executor)


def as_plain(files: list[Path]) -> list[tuple]:
    """What `plain` gives, from the stage's files."""
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    names = ("qid", "label", "aliases", "wiki_title")
    return [
        (*(r[n] for n in names), list(zip(r["properties"], r["objects"], strict=True)))
        for r in found
    ]


def compare(name: str, dump: Path, small: Path, rounds: int) -> list[Row]:
    size, warm = sum(map(len, streams.open_blocks(dump))) / 1e6, partial(longtail, small)
    return measure.beside(
        f"{name}, {lines(dump):,} lines", PEER, "MB", size,
        partial(measure.alone, plain, dump, warm=partial(plain, small)),
        partial(measure.alone, longtail, dump, warm=warm, then=as_plain),
        two=partial(measure.alone, two_workers, dump, then=as_plain), start=partial(measure.alone, two_workers, small),
        limit="decompressing and splitting", most=partial(measure.alone, lines, dump), rounds=rounds,
    )  # fmt: skip


def rows(quick: bool = False) -> list[Row]:
    real, rounds = measure.real(REAL), 1 if quick else 3
    with measure.in_folder():
        small, made, repeated = (
            Path("small.json.gz"),
            Path("made.json.gz"),
            Path("repeated.json.gz"),
        )
        for path, entities in ((small, 50), (made, 300 if quick else 100_000)):
            with gzip.open(path, "wb", 6) as file:
                file.writelines(wikimedia_dumps.wikidata(world_of(entities)))
        found = compare("Wikidata dump, the sample world's", made, small, rounds)
        if not real:
            return [
                *found,
                Row("Wikidata dump, real entities repeated", PEER, missing=measure.NO_FILES),
            ]
        with gzip.open(repeated, "wb", 1) as file:
            block = b"".join(real.read_bytes().splitlines(keepends=True)[1:])
            for _ in range(1 if quick else 60):
                file.write(block)
        return found + compare("Wikidata dump, real entities repeated", repeated, small, rounds)
