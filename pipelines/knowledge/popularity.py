"""Stage `popularity`: how often each Wikipedia article was viewed in a month (PopQA, 3.2: popularity), and in several.

Writes data/knowledge/popularity/{views,rejects}.parquet, for the articles of data/knowledge/wikidata/entities.parquet,
from the page view dumps. Articles are called as they are when Wikidata is read, views as they were in the month. An
article that was moved in between is found by its page id and by its old title, which redirects to it now, with the
tables in data/raw/redirects. An article without a view is not in the table: its popularity is unknown, not 0. With
`popularity.months` above 1 the table also has the mean of the months, and the spread.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.sources import bz2_blocks, pageviews, snapshots
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database, parquet, shards
from pipelines.work import code, pool, stage

ENTITIES = Path("data/knowledge/wikidata/entities.parquet")
RAW = Path("data/raw")
OUT = Path("data/knowledge/popularity")
METRICS = Path("data/metrics/popularity.json")


def count_views(params: SimpleNamespace, entities: Path = ENTITIES, raw: Path = RAW, out: Path = OUT) -> dict[str, int]:
    """Write the stage's folder `out`; return counts. Raises LongtailError on damaged input.

    A month without a view counts as 0. The spread is of log10(1 + views), the scale that popularity is binned on: it
    does not grow with popularity, and tells lasting fame from a peak.
    """
    settings, rejects = params.popularity, Rejects(params.ingest.max_reject_share)
    with database.connect(params.ingest.memory_gb, params.compute.threads) as db, shards.atomic(out) as folder:
        folder.mkdir()
        database.view(db, "entities", entities, columns=["wiki_title"])
        db.execute(
            """CREATE TEMP TABLE titles AS SELECT DISTINCT wiki_title AS title FROM entities
            WHERE wiki_title IS NOT NULL"""
        )
        counts = _read_dumps(db, params, raw, rejects)
        database.write_query(
            db,
            """SELECT title, max(views) FILTER (month = $month) AS views,
                CASE WHEN $months > 1 THEN sum(views)::DOUBLE / $months END AS mean,
                CASE WHEN $months > 1 THEN list_aggregate(
                    list_transform(list_resize(list_sort(list(views)), $months, 0), lambda x: log10(1 + x)),
                    'stddev_pop'
                ) END AS sd_log10
            FROM monthly GROUP BY title ORDER BY title""",
            folder / "views.parquet",
            {"month": settings.month, "months": settings.months},
        )
        rejects.write(folder / "rejects.parquet")
        titles, viewed, total = database.row(
            db,
            """SELECT (SELECT count(*) FROM titles), count(*), coalesce(sum(views), 0)::BIGINT
            FROM monthly WHERE month = $1""",
            [settings.month],
        )
    counts |= {"titles": titles, "titles_with_views": viewed, "titles_without_views": titles - viewed, "views": total}
    return counts | rejects.metrics()


def _read_dumps(db: duckdb.DuckDBPyConnection, params: SimpleNamespace, raw: Path, rejects: Rejects) -> dict[str, int]:
    """Create table monthly(title, month, views) from the page view dumps; return counts.

    Files and their parts are read in parallel. A run that was killed doesn't read finished ones again.
    """
    project = language.read_language(params.language).project
    months = snapshots.months_until(params.popularity.month, params.popularity.months)
    by_month = pageviews.choose_files(visible_files(raw / "pageviews"), months, params.popularity.agents)
    files = [file for of_month in by_month.values() for file in of_month]
    tables = visible_files(raw / "redirects")
    loaded = _load_redirects(db, tables)
    key = shards.key_of(code.fingerprint("pipelines.knowledge.popularity"), rejects.max_share, project, *files)
    cut = [(file, *part) for file in files for part in bz2_blocks.bz2_parts(file, pageviews.PART)]
    with pool.processes(params.compute, len(cut)) as executor:
        parts = shards.map_shards("popularity", key, partial(_read_part, rejects.max_share, project), cut, executor)
    lines = 0
    for (_, begin, _), part in zip(cut, parts, strict=True):
        read = Rejects.decoded(parquet.metadata(part).metadata[b"rejects"], rejects.max_share)
        rejects.take(read, lines := lines if begin else 0)
        lines += read.read + read.skipped[pageviews.OTHERS]
    db.execute("CREATE TEMP TABLE monthly (title VARCHAR, month VARCHAR, views BIGINT)")
    for month, of_month in by_month.items():
        pageviews.sum_views(db, [part for (file, *_), part in zip(cut, parts, strict=True) if file in of_month])
        db.execute("INSERT INTO monthly SELECT title, $1, views FROM views", [month])
    shards.forget_shards("popularity", key)
    return {"files.pageviews": len(files), "files.redirects": len(tables), "lines": rejects.read} | loaded


def _load_redirects(db: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, int]:
    """Create tables redirects(page_id, target) and pages(page_id, title); return the numbers of their rows."""
    tables = {"redirects": (pageviews.read_redirects, "target"), "pages": (pageviews.read_page_table, "title")}
    for name, (_, column) in tables.items():
        db.execute(f"CREATE TEMP TABLE {name} (page_id BIGINT, {column} VARCHAR)")
    for file in files:
        name = "pages" if pageviews.PAGES.search(file.name) else "redirects"
        for batch in tables[name][0](file):
            db.register("batch", batch)
            db.execute(f"INSERT INTO {name} FROM batch")
    counts = {}
    for name in tables:
        counts[name], distinct = database.row(db, f"SELECT count(*), count(DISTINCT page_id) FROM {name}")
        if distinct < counts[name]:
            raise LongtailError(
                f"{files[0].parent}: two tables of {name} are in it, expected one (fetch.files.redirects)"
            )
    return counts


def _read_part(max_reject_share: float, project: str, part: tuple[Path, int, int | None], path: Path) -> None:
    """Write the views of a part of a file (`bz2_blocks.bz2_parts`) as Parquet, with its rejects in the metadata.

    A page has several rows if its lines lie far apart.
    """
    rejects, (file, begin, end) = Rejects(max_reject_share), part
    with parquet.writer(path, pageviews.SCHEMA) as writer:
        for table in pageviews.read_views(file, rejects, project, begin, end):
            writer.write_table(table)
        rejects.check()
        writer.add_key_value_metadata({"rejects": rejects.encoded()})


def main() -> None:
    stage.run("popularity", ("compute", "ingest", "language", "popularity"), count_views, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
