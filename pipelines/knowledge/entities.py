"""Stage `entities`: Wikidata's items with names in one language, and the claims that questions ask for (PopQA, 3.3).

Writes data/knowledge/wikidata/{entities,claims,dates,rejects}.parquet: the items that have an article in its
Wikipedia, their best-ranked claims, when these hold, and the items that are objects of these claims. They come from all
dumps in data/raw/wikidata.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from pipelines.language import language
from pipelines.language.relations import property_ids
from pipelines.sources import wikidata
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_runs, visible_files
from pipelines.sources.wikidata import QUALIFIERS
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import forget_shards, key_of, map_stream
from pipelines.work import code, stage
from pipelines.work.executors import processes

RAW = Path("data/raw")
OUT = Path("data/knowledge/wikidata")
METRICS = Path("data/metrics/entities.json")


def build_entities(params: SimpleNamespace, raw: Path = RAW, out: Path = OUT) -> dict[str, int]:
    """Write the stage's folder `out` from the files under `raw`; return counts. Without files the tables are empty.

    Raises LongtailError on damaged input or too many bad rows.
    """
    compute, ingest, spoken = params.compute, params.ingest, language.read_language(params.language)
    dumps, rejects, blocks = visible_files(raw / "wikidata"), Rejects(ingest.max_reject_share), []
    properties = tuple(property_ids(raw / "entityquestions/relation_query_templates.json"))
    key = key_of(
        code.fingerprint("pipelines.knowledge.entities"), params.language, properties, *dumps
    )
    keys = {
        dump: f"{key}.{number:04d}" for number, dump in enumerate(dumps)
    }  # of a dump's blocks, in the dumps' order
    work = partial(parse_block, properties, spoken)
    with processes(compute) as executor:
        for dump in dumps:
            stream = ((str(dump), block) for block in open_runs(dump, wikidata.BLOCK))
            at_once = 2 * executor.workers if executor else 1
            of_dump, lines, fault = Rejects(rejects.max_share), 0, ""
            for path in map_stream("entities", keys[dump], work, stream, executor, at_once):
                blocks.append(path)
                said = parquet.schema_of(path).metadata
                of_dump.take(Rejects.decoded(said[b"rejects"], 1.0), lines)
                lines, fault = lines + int(said[b"lines"]), said[b"fault"].decode()
            wikidata.check_read(dump, of_dump, fault)
            rejects.take(of_dump)
    counts = {"files": len(dumps), "dump_lines": rejects.read}
    with atomic(out) as folder, database.connect(ingest.memory_gb, compute.threads) as db:
        folder.mkdir()
        counts |= _write(db, blocks, folder)
        rejects.write(folder / "rejects.parquet")
    for key in keys.values():
        forget_shards("entities", key)
    return counts | rejects.metrics()


def parse_block(
    properties: tuple[str, ...],
    spoken: language.Language,
    file: str,
    block: Iterable[bytes],
    path: Path,
) -> None:
    """Write a block's entities (wikidata.ENTITIES) to the Parquet file `path`, with what was read in its metadata."""
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole dump
    table, lines, fault = wikidata.parse_block(file, block, properties, rejects, spoken)
    said = {"lines": str(lines), "fault": fault, "rejects": rejects.encoded()}
    parquet.write_parquet(table.replace_schema_metadata(said), path)


def _write(db: duckdb.DuckDBPyConnection, blocks: list[Path], folder: Path) -> dict[str, int]:
    """Write the tables from the blocks' tables; return counts.

    If an item occurs twice in dumps, the first one counts, by the files' names and then by line.
    """
    if blocks:
        database.view(db, "lines", *blocks, named=True)
    else:
        db.register(
            "lines", wikidata.ENTITIES.append(pa.field("filename", pa.string())).empty_table()
        )
    # A hundred million items occur once. Only the few that occur twice are sorted.
    db.execute(
        """CREATE TEMP TABLE outdated AS SELECT filename, row FROM lines
        SEMI JOIN (SELECT qid FROM lines GROUP BY qid HAVING count(*) > 1) USING (qid)
        QUALIFY row_number() OVER (PARTITION BY qid ORDER BY filename, row) > 1;
        CREATE TEMP VIEW newest AS SELECT * FROM lines ANTI JOIN outdated USING (filename, row);
        CREATE TEMP TABLE claims AS
        SELECT DISTINCT qid AS s, unnest(properties) AS p, unnest(objects) AS o FROM newest;
        CREATE TEMP TABLE dates AS SELECT s, p, o, split(dates, '/') AS dates FROM (
            SELECT qid AS s, unnest(properties) AS p, unnest(objects) AS o, unnest(dates) AS dates
            FROM newest WHERE list_aggregate(dates, 'max') != ''
        ) WHERE dates != '';
        CREATE TEMP TABLE objects AS SELECT DISTINCT o AS qid FROM claims;
        CREATE TEMP TABLE entities AS SELECT qid, label, aliases, wiki_title FROM newest
        WHERE wiki_title IS NOT NULL OR qid IN (SELECT qid FROM objects)"""
    )
    database.write_query(
        db, "SELECT * FROM entities ORDER BY entities.qid", folder / "entities.parquet"
    )
    database.write_query(db, "SELECT * FROM claims ORDER BY s, p, o", folder / "claims.parquet")
    of_dates = ", ".join(
        f"nullif(dates[{place}], '') AS \"{name}\""
        for place, name in enumerate(QUALIFIERS, start=1)
    )
    database.write_query(
        db, f"SELECT s, p, o, {of_dates} FROM dates ORDER BY s, p, o", folder / "dates.parquet"
    )
    counts = db.sql(
        """SELECT (SELECT count(*) FROM lines) AS entities_read, (SELECT count(*) FROM outdated) AS duplicate_entities,
            (SELECT count(*) FROM objects ANTI JOIN entities USING (qid)) AS objects_missing,
            (SELECT count(*) FROM claims) AS claims, count(*) AS entities,
            count(*) - count(label) AS entities_without_label,
            count(*) - count(wiki_title) AS entities_without_article FROM entities"""
    )
    return counts.to_arrow_table().to_pylist()[0]


if __name__ == "__main__":
    stage.run(
        "entities", ("compute", "ingest", "language"), build_entities, out=str(OUT), metrics=METRICS
    )
