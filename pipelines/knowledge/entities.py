"""Stage `entities`: Wikidata's items with names in one language, and the claims that questions ask
for (PopQA, 3.3).

Writes data/knowledge/wikidata/{entities,claims,rejects}.parquet from all dumps in
data/raw/wikidata. The tables have the items with an article in the language's Wikipedia, their
best-ranked claims, and the items that are objects of these claims.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.language import language
from pipelines.language.relations import property_ids
from pipelines.params.param_types import Section
from pipelines.params.params import Compute, Ingest
from pipelines.sources import raw_files, wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_runs, visible_files
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.tables.knowledge import CLAIMS, ENTITIES
from pipelines.work import code, stage
from pipelines.work.executors import processes

RAW = Path("data/raw")
OUT = Path("data/knowledge/wikidata")
METRICS = Path("data/metrics/entities.json")

FIRST_COUNTS = "the item's first line counts, in this order of files"
# A hundred million items occur once. Only the few that occur twice are sorted.
SELECT_ITEMS = """
    CREATE TEMP TABLE outdated AS
    SELECT filename, row FROM lines
    SEMI JOIN (SELECT qid FROM lines GROUP BY qid HAVING count(*) > 1) USING (qid)
    QUALIFY row_number() OVER (PARTITION BY qid ORDER BY filename, row) > 1;

    CREATE TEMP VIEW newest AS
    SELECT * FROM lines ANTI JOIN outdated USING (filename, row);

    CREATE TEMP TABLE claims AS
    SELECT DISTINCT qid AS s, unnest(properties) AS p, unnest(objects) AS o FROM newest;

    CREATE TEMP TABLE objects AS
    SELECT DISTINCT o AS qid FROM claims;

    CREATE TEMP TABLE entities AS
    SELECT qid, label, aliases, wiki_title FROM newest
    WHERE wiki_title IS NOT NULL OR qid IN (SELECT qid FROM objects)
"""
COUNTS = """
    SELECT
        (SELECT count(*) FROM lines) AS entities_read,
        (SELECT count(*) FROM outdated) AS duplicate_entities,
        (SELECT count(*) FROM objects ANTI JOIN entities USING (qid)) AS objects_missing,
        (SELECT count(*) FROM claims) AS claims,
        count(*) AS entities,
        count(*) - count(label) AS entities_without_label,
        count(*) - count(wiki_title) AS entities_without_article
    FROM entities
"""


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    compute: Compute
    ingest: Ingest
    language: str


def build_entities(settings: Settings, raw: Path = RAW, out: Path = OUT) -> dict[str, int]:
    """Write the stage's folder `out` from the files under `raw`; return counts.

    Of an item that occurs twice, the first line counts: that of the newest dump by the dates in the
    files' names, else by their order. Without dumps the tables are empty. Raises LongtailError on
    damaged input or too many bad rows.
    """
    dumps = visible_files(raw / "wikidata")
    dumps.sort(key=_day, reverse=True)
    properties = tuple(property_ids(raw / "entityquestions/relation_query_templates.json"))
    fingerprint = code.fingerprint("pipelines.knowledge.entities")
    key = content_key((settings.language, properties), fingerprint, *dumps)
    dump_keys = [f"{key}.{number:04d}" for number in range(len(dumps))]

    parse = partial(parse_block, properties, language.read_language(settings.language))
    rejects = Rejects(settings.ingest.max_reject_share)
    blocks: list[Path] = []
    with processes(settings.compute) as executor:
        for dump, dump_key in zip(dumps, dump_keys, strict=True):
            blocks += _parse_dump(dump, dump_key, parse, executor, rejects)

    counts = {"files": len(dumps), "dump_lines": rejects.read}
    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(out) as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        counts |= _write(db, blocks, folder)
        rejects.write(folder / "rejects.parquet")

    repeated = counts["duplicate_entities"]
    if repeated:
        print(f"entities: {repeated:,} lines repeat an item; {FIRST_COUNTS}:")
        for dump in dumps:
            print(f"  {dump.name}")

    for dump_key in dump_keys:
        WorkStore().forget("entities", dump_key)
    return counts | rejects.metrics()


def _day(dump: Path) -> str:
    return raw_files.day_of(dump.as_posix()) or ""


def _parse_dump(
    dump: Path,
    dump_key: str,
    parse: Callable[[str, Iterable[bytes], Path], None],
    executor: Executor | None,
    rejects: Rejects,
) -> list[Path]:
    """Parse the blocks of a dump, add its bad rows to `rejects`, and return the blocks' files in
    their order.
    """
    stream = ((str(dump), block) for block in open_runs(dump, wikidata.BLOCK_BYTES))
    at_once = 2 * executor.workers if executor else 1

    blocks = []
    dump_rejects = Rejects(rejects.max_share)
    lines = 0
    fault = ""
    parsed = WorkStore().parts_of_stream("entities", dump_key, parse, stream, executor, at_once)
    for path in parsed:
        metadata = parquet.schema_of(path).metadata
        dump_rejects.take(Rejects.decoded(metadata[b"rejects"], 1.0), lines)
        lines += int(metadata[b"lines"])
        fault = metadata[b"fault"].decode()
        blocks.append(path)

    wikidata.check_read(dump, dump_rejects, fault)
    rejects.take(dump_rejects)
    return blocks


def parse_block(
    properties: tuple[str, ...],
    spoken: language.Language,
    file: str,
    block: Iterable[bytes],
    path: Path,
) -> None:
    """Write the entities of a block of a dump (wikidata.ENTITIES) to the Parquet file `path`.

    The file's metadata has the number of lines read, the bad ones, and the fault of the last line.
    """
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole dump
    table, lines, fault = wikidata.parse_block(file, block, properties, rejects, spoken)
    metadata = {"lines": str(lines), "fault": fault, "rejects": rejects.encoded()}
    parquet.write_parquet(table.replace_schema_metadata(metadata), path)


def _write(db: duckdb.DuckDBPyConnection, blocks: list[Path], folder: Path) -> dict[str, int]:
    """Write the tables from the blocks' tables; return counts.

    If an item occurs twice in dumps, the first one counts, in the order of the blocks.
    """
    if blocks:
        database.view(db, "lines", *blocks, named=True)
    else:
        schema = wikidata.ENTITIES.append(pa.field("filename", pa.string()))
        db.register("lines", schema.empty_table())

    db.execute(SELECT_ITEMS)

    queries = {
        ENTITIES: "SELECT * FROM entities ORDER BY entities.qid",
        CLAIMS: "SELECT * FROM claims ORDER BY s, p, o",
    }
    for table, query in queries.items():
        database.write_query(db, query, folder / table.name, declared=table)

    counts = db.sql(COUNTS).to_arrow_table()
    return counts.to_pylist()[0]


if __name__ == "__main__":
    stage.run("entities", Settings, build_entities, out=str(OUT), metrics=METRICS)
