"""Reading a Wikidata dump: the stage `entities` beside plain Python.

Each way reads the same file and pulls out the same: label, aliases, article and best answers of
every item with an English label or article. The slowest lines to read are short items with an
article, such as the sample's; real entities come from $LONGTAIL_REAL/wikidata. Of the items of a
real dump, some 6 % have an English article. Both files are repeated until they are large enough.
"""

import gc
import gzip
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.project_copy import ROOT
from pipelines import OBJECTS_PER_LOOK
from pipelines.knowledge import entities
from pipelines.language import language
from pipelines.language.relations import RELATIONS
from pipelines.sources import streams, wikidata
from pipelines.storage.atomic import SCRATCH
from pipelines.storage.work_store import WorkStore
from pipelines.work.executors import processes

PROPERTIES = tuple(RELATIONS)
PEER = "gzip, json.loads of each line"
REAL = "wikidata/wikibase-dump-filter_entities.json"
SAMPLE = ROOT / "sample/data/wikidata/wikidata-20211025-all.json.gz"
OF_SAMPLE = "Wikidata dump, the sample's items repeated"
OF_REAL = "Wikidata dump, real entities repeated"
LANGUAGES = ("en", "mul")
Item = tuple[int, str | None, list[str], str | None, list[tuple[int, int]]]


def rows(quick: bool = False) -> list[Row]:
    with gzip.open(SAMPLE) as file:
        table = compare(OF_SAMPLE, file.readlines(), 1 if quick else 200, quick)
    real = measure.real(REAL)
    if not real:
        return [*table, Row(OF_REAL, PEER, missing=measure.NO_FILES)]
    with real.open("rb") as file:
        return [*table, *compare(OF_REAL, file.readlines(), 2 if quick else 60, quick)]


def write(dump: Path, lines: list[bytes], times: int) -> None:
    """Write these entities so many times."""
    with gzip.open(dump, "wb", 1) as file:
        for _ in range(times):
            file.writelines(lines)


def compare(work: str, lines: list[bytes], times: int, quick: bool) -> list[Row]:
    """The rows of a dump with these lines so many times; each process reads them once before the
    clock starts.
    """
    items = [line for line in lines if line.startswith(b"{")]
    with measure.in_folder():
        small = Path("small.json.gz")
        write(small, items, 1)
        dump = Path("repeated.json.gz")
        write(dump, items, times)
        megabytes = sum(map(len, streams.open_blocks(dump))) / 1e6
        return measure.beside(
            f"{work}, {count_lines(dump):,} lines",
            PEER,
            "MB",
            megabytes,
            partial(measure.alone, plain, dump, warm=partial(plain, small)),
            partial(measure.alone, longtail, dump, warm=partial(longtail, small), then=as_plain),
            two=partial(measure.alone, two_workers, dump, then=as_plain),
            start=partial(measure.alone, two_workers, small),
            limit="decompressing and splitting",
            most=partial(measure.alone, count_lines, dump),
            rounds=1 if quick else 3,
        )


def count_lines(dump: Path) -> int:
    """Decompressed and split, and nothing looked at."""
    return sum(1 for _ in streams.open_lines(dump))


def plain(dump: Path) -> list[Item]:
    """What a script would do: the gzip module, and json.loads on every line."""
    items = []
    with gzip.open(dump) as file:
        for raw in file:
            line = raw.strip().rstrip(b",")
            if line in (b"[", b"]", b""):
                continue
            entity = json.loads(line)
            if entity["type"] != "item":
                continue
            item = plain_item(entity)
            if item:
                items.append(item)
    return items


def plain_item(entity: dict) -> Item | None:
    """An item with a label or an article; None of others."""
    names = entity["labels"] or {}
    name = names.get("en") or names.get("mul") or {}
    label = name.get("value") or None
    title = None
    if "enwiki" in entity.get("sitelinks", ()):
        title = entity["sitelinks"]["enwiki"]["title"]
    if label is None and title is None:
        return None

    aliases: dict[str, None] = {}
    of_languages = entity.get("aliases") or {}
    for code in LANGUAGES:
        for alias in of_languages.get(code, ()):
            if alias["value"] not in ("", label):
                aliases[alias["value"]] = None
    answers = []
    if title and entity.get("claims"):
        answers = plain_answers(entity["claims"])
    return int(entity["id"][1:]), label, list(aliases), title, answers


def plain_answers(claims: dict) -> list[tuple[int, int]]:
    """Property and value of the best statements that name an item, each once."""
    answers: dict[tuple[int, int], None] = {}
    for pid in PROPERTIES:
        statements = claims.get(pid, [])
        ranks = [statement["rank"] for statement in statements]
        best = "preferred" if "preferred" in ranks else "normal"
        for statement in statements:
            if statement["rank"] != best:
                continue
            value = statement["mainsnak"].get("datavalue", {}).get("value")
            if isinstance(value, dict) and value.get("entity-type") == "item":
                answers[int(pid[1:]), value["numeric-id"]] = None
    return list(answers)


def longtail(dump: Path, executor: Executor | None = None) -> list[Path]:
    """The stage's own reading, as far as its blocks' Parquet files."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    gc.set_threshold(OBJECTS_PER_LOOK)  # as in a stage
    work = partial(entities.parse_block, PROPERTIES, language.ENGLISH)
    parts = WorkStore().parts_of_stream(
        "benchmark", "dump", work, blocks(dump), executor, at_once=4
    )
    return list(parts)


def blocks(dump: Path) -> Iterator[tuple]:
    for block in streams.open_runs(dump, wikidata.BLOCK_BYTES):
        yield str(dump), block


def two_workers(dump: Path) -> list[Path]:
    """`longtail` with two workers, and their start."""
    with processes(measure.compute(2)) as executor:
        return longtail(dump, executor)


def as_plain(files: list[Path]) -> list[Item]:
    """What `plain` gives, from the stage's files."""
    items = []
    for file in files:
        for row in pq.read_table(file).to_pylist():
            answers = list(zip(row["properties"], row["objects"], strict=True))
            items.append((row["qid"], row["label"], row["aliases"], row["wiki_title"], answers))
    return items
