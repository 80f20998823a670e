"""Stage `triples`: knowledge triples with names, popularity and term frequency (PopQA, 3.2, 3.3 and appendix A).

Writes data/triples/{triples,entities,rejects}.parquet. A triple needs a subject with an English label and article, and
an object with an English label; what falls out is counted by reason. Popularity is 0 where there is no article or no
view; term frequency is counted for subjects, null for other entities. Items without an article are only counted: their
statements, most of the dump, are not parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import params, shards, stage
from pipelines.errors import LongtailError
from pipelines.popqa import database
from pipelines.popqa.relations import FILE, RELATIONS
from pipelines.sources import c4, pageviews, wikidata
from pipelines.sources.rejects import Rejects

RAW = Path("data/raw")
OUT = Path("data/triples")
METRICS = Path("data/metrics/triples.json")
BATCH = 50_000  # entities
NAMES_PER_GB = 1_000_000  # searched at once in a quarter of the memory: an automaton needs some 0.5 kB a name

ENTITIES = pa.schema(
    {
        "qid": pa.int64(),
        "row": pa.int64(),
        "revision": pa.int64(),
        "label": pa.string(),
        "aliases": pa.list_(pa.string()),
        "wiki_title": pa.string(),
    }
)
CLAIMS = pa.schema([("row", pa.int64()), ("s", pa.int64()), ("p", pa.int64()), ("o", pa.int64())])

Sample = Callable[[Rejects], Iterator[str]]  # a fresh pass over the texts


def build_triples(
    raw: Path, out: Path, *, source: str, sample_mb: int, ingest: params.Ingest, compute: params.Compute
) -> dict[str, int]:
    """Write the stage's folder `out` from the dumps under `raw`; return its counts.

    Raises LongtailError when there is no Wikidata dump though PopQA's `source` needs one, and on damaged input.
    """
    dumps, views, texts = (_files(raw / name) for name in ("wikidata", "pageviews", "c4"))
    if not dumps and source != "published":
        raise LongtailError(
            f"{raw / 'wikidata'}: no dump in it, expected *.json(.gz|.bz2|.zst) as popqa.source is {source}; "
            "fetch one or set popqa.source: published"
        )
    rejects = Rejects(max_share := ingest.max_reject_share)
    key = shards.key_of(dumps, max_share, *dumps, Path(wikidata.__file__), Path(__file__), FILE)
    with ProcessPoolExecutor(compute.workers) as pool:
        parts = shards.map_shards("triples", key, partial(parse_dump, max_share), dumps, pool)
    for part in parts:
        rejects.take(_read_rejects(part, max_share))
    counts = {"dump_lines": rejects.read}
    with shards.atomic(out) as folder, database.connect(ingest.memory_gb, compute.threads) as db:
        folder.mkdir()
        counts |= _load(db, parts)
        counts |= _select(db)
        db.execute(
            "CREATE TEMP TABLE titles AS SELECT DISTINCT wiki_title AS title FROM entities WHERE title IS NOT NULL"
        )
        pageviews.sum_views(db, views, of_views := Rejects(max_share))
        rejects.take(of_views)
        sample = partial(c4.read_sample, texts, sample_mb)
        counts |= _count_names(db, sample, of_texts := Rejects(max_share), int(ingest.memory_gb * NAMES_PER_GB))
        rejects.take(of_texts)
        counts |= _write(db, folder)
        rejects.write(folder / "rejects.parquet")
    shards.forget("triples", key)
    counts |= {f"skipped.{reason}": n for reason, n in sorted(rejects.skipped.items())}
    counts |= {f"rejected.{reason}": n for reason, n in rejects.reasons().items()}
    return counts | {"rejected": len(rejects.rows), "files.wikidata": len(dumps), "files.pageviews": len(views)}


def parse_dump(max_reject_share: float, dump: Path, folder: Path) -> None:
    """Write one dump's entities, claims, rejects and counts into `folder`, a batch at a time."""
    folder.mkdir()
    rejects = Rejects(max_reject_share)
    with (
        pq.ParquetWriter(folder / "entities.parquet", ENTITIES, compression="zstd") as entities,
        pq.ParquetWriter(folder / "claims.parquet", CLAIMS, compression="zstd") as claims,
    ):
        for batch in _batches(wikidata.read_entities(dump, rejects, tuple(RELATIONS))):
            columns = {name: [getattr(entity, name) for entity in batch] for name in ENTITIES.names}
            entities.write_table(pa.table(columns, schema=ENTITIES))
            rows = [(e.row, e.qid, p, o) for e in batch for p, o in e.answers]
            columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
            claims.write_table(pa.table([pa.array(c, pa.int64()) for c in columns], schema=CLAIMS))
    rejects.check()
    (folder / "rejects.json").write_bytes(msgspec.json.encode([rejects.read, rejects.rows, rejects.skipped]))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.name.startswith("."))


def _batches(entities: Iterator[wikidata.Entity]) -> Iterator[list[wikidata.Entity]]:
    while batch := list(islice(entities, BATCH)):
        yield batch


def _read_rejects(part: Path, max_reject_share: float) -> Rejects:
    rejects = Rejects(max_reject_share)
    rejects.read, rows, skipped = json.loads((part / "rejects.json").read_bytes())
    rejects.rows = [tuple(row) for row in rows]
    rejects.skipped.update(skipped)
    return rejects


def _load(db: duckdb.DuckDBPyConnection, parts: list[Path]) -> dict[str, int]:
    """Tables entities and claims; where an item occurs twice, its newest revision counts, then the first file's."""
    db.register("no_entities", ENTITIES.empty_table())
    db.register("no_claims", CLAIMS.empty_table())
    for table in ("entities", "claims"):
        selects = [f"SELECT *, -1 AS part FROM no_{table}"]
        selects += [f"SELECT *, {i} AS part FROM '{part}/{table}.parquet'" for i, part in enumerate(parts)]
        db.execute(f"CREATE TEMP VIEW all_{table} AS {' UNION ALL '.join(selects)}")
    db.execute(
        """CREATE TEMP TABLE entities AS SELECT * FROM all_entities
        QUALIFY row_number() OVER (PARTITION BY qid ORDER BY revision DESC, part, row) = 1"""
    )
    db.execute(
        """CREATE TEMP TABLE claims AS SELECT DISTINCT s, p, o FROM all_claims
        JOIN (SELECT part, row FROM entities) USING (part, row)"""
    )
    seen, entities, articles = database.row(
        db, "SELECT (SELECT count(*) FROM all_entities), count(*), count(wiki_title) FROM entities"
    )
    return {
        "entities": entities,
        "entities_without_article": entities - articles,
        "duplicate_entities": seen - entities,
    }


def _select(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Table chosen(s, p, o), and how many claims fall out by reason."""
    db.execute(
        """CREATE TEMP TABLE judged AS SELECT s, p, o, CASE
            WHEN subject.label IS NULL THEN 'subject_without_label'
            WHEN object.qid IS NULL THEN 'object_not_in_dump'
            WHEN object.label IS NULL THEN 'object_without_label' END AS reason
        FROM claims JOIN entities AS subject ON subject.qid = s LEFT JOIN entities AS object ON object.qid = o"""
    )
    db.execute("CREATE TEMP TABLE chosen AS SELECT s, p, o FROM judged WHERE reason IS NULL")
    dropped = db.sql("SELECT reason, count(*) FROM judged WHERE reason IS NOT NULL GROUP BY ALL").fetchall()
    claims, subjects, triples = database.row(
        db, "SELECT (SELECT count(*) FROM claims), count(DISTINCT s), count(*) FROM chosen"
    )
    return {"claims": claims, "triples": triples, "subjects": subjects} | {f"dropped.{r}": n for r, n in dropped}


def _count_names(db: duckdb.DuckDBPyConnection, sample: Sample, rejects: Rejects, names_at_once: int) -> dict[str, int]:
    """Table frequencies(qid, term_frequency): occurrences of a subject's label and aliases in the C4 sample, summed.

    More names than fit into memory at once are looked for in several passes over the sample.
    """
    db.execute(
        """CREATE TEMP TABLE names AS SELECT DISTINCT qid, unnest(list_append(aliases, label)) AS name
        FROM entities SEMI JOIN chosen ON s = qid"""
    )
    db.execute(
        """CREATE TEMP TABLE vocabulary AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS number
        FROM (SELECT DISTINCT name FROM names)"""
    )
    db.execute("CREATE TEMP TABLE counted (name VARCHAR, n BIGINT)")
    (count,) = database.row(db, "SELECT count(*) FROM vocabulary")
    for start in range(0, count, names_at_once):
        names = database.read(
            db,
            f"""SELECT name FROM vocabulary WHERE number >= {start} AND number < {start + names_at_once}
            ORDER BY number""",
        )
        texts = sample(rejects if start == 0 else Rejects(1.0))  # each bad row is counted in the first pass only
        frequencies = c4.term_frequencies(names["name"].to_pylist(), texts)
        db.register("batch", names.append_column("n", pa.array(frequencies)))
        db.execute("INSERT INTO counted SELECT * FROM batch")
        db.unregister("batch")
    db.execute(
        """CREATE TEMP TABLE frequencies AS
        SELECT qid, sum(n)::BIGINT AS term_frequency FROM names JOIN counted USING (name) GROUP BY qid"""
    )
    return {"names": count}


def _write(db: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, int]:
    db.execute(
        """CREATE TEMP TABLE described AS
        SELECT qid, label, aliases, wiki_title, coalesce(views, 0) AS popularity, term_frequency
        FROM entities LEFT JOIN views ON wiki_title = title LEFT JOIN frequencies USING (qid) WHERE label IS NOT NULL"""
    )
    database.write(
        db,
        """SELECT 'Q' || s AS s_qid, 'P' || p AS p_pid, 'Q' || o AS o_qid,
            subject.label AS s_label, object.label AS o_label,
            subject.aliases AS s_aliases, object.aliases AS o_aliases, subject.wiki_title AS s_wiki_title,
            object.wiki_title AS o_wiki_title, subject.popularity AS s_pop, object.popularity AS o_pop,
            subject.term_frequency
        FROM chosen JOIN described AS subject ON subject.qid = s JOIN described AS object ON object.qid = o
        ORDER BY s, p, o""",
        folder / "triples.parquet",
    )
    database.write(
        db, "SELECT * REPLACE ('Q' || qid AS qid) FROM described ORDER BY described.qid", folder / "entities.parquet"
    )
    labelled, viewed, found = database.row(
        db, "SELECT count(*), count(*) FILTER (popularity > 0), count(*) FILTER (term_frequency > 0) FROM described"
    )
    return {"labelled_entities": labelled, "entities_with_views": viewed, "subjects_in_c4": found}


def work(chosen: SimpleNamespace) -> stage.Metrics:
    counts = build_triples(
        RAW,
        OUT,
        source=chosen.popqa.source,
        sample_mb=chosen.c4.sample_mb,
        ingest=chosen.ingest,
        compute=chosen.compute,
    )
    shards.write_json(METRICS, counts)
    return {name: float(n) for name, n in counts.items()}


def main() -> None:
    stage.run("triples", ("compute", "ingest", "popqa", "c4"), work, out=str(OUT))


if __name__ == "__main__":
    main()
