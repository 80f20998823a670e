"""Stage `popularity`: how often each Wikipedia article was viewed in a month (PopQA, 3.2: popularity), and in several.

Writes data/knowledge/popularity/{views,rejects}.parquet, for the articles of data/knowledge/wikidata/entities.parquet,
from the page view dumps or from the REST API (`popularity.source`). An article that was moved between the month and
Wikidata's dump is found by its page id and by its old title, which redirects to it now: dumps need the tables in
data/raw/redirects for this, the API asks Wikipedia. An article without a view is not in the table: its popularity is
unknown, not 0. With `popularity.months` above 1 the table also has the mean of the months, and the spread.
"""

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.sources import bz2_blocks, pageviews, snapshots, wikimedia
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database, parquet
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work import code, executors, stage

ENTITIES = Path("data/knowledge/wikidata/entities.parquet")
RAW = Path("data/raw")
OUT = Path("data/knowledge/popularity")
METRICS = Path("data/metrics/popularity.json")
ANSWERS = SCRATCH / "wikimedia" / "popularity"


def count_views(
    params: SimpleNamespace, entities: Path = ENTITIES, raw: Path = RAW, out: Path = OUT
) -> dict[str, int]:
    """Write the stage's folder `out`; return counts. Raises LongtailError on damaged input or a failed request.

    A month without a view counts as 0. The spread is of log10(1 + views), the scale that popularity is binned on.
    """
    settings, rejects = params.popularity, Rejects(params.ingest.max_reject_share)
    with (
        database.connect(params.ingest.memory_gb, params.compute.threads) as db,
        atomic(out) as folder,
    ):
        folder.mkdir()
        database.view(db, "entities", entities, columns=["wiki_title"])
        articles = "SELECT DISTINCT wiki_title AS title FROM entities WHERE wiki_title IS NOT NULL"
        db.execute(f"CREATE TEMP TABLE titles AS {articles}")
        counts = (
            _ask_api(db, params)
            if settings.source == "api"
            else _read_dumps(db, params, raw, rejects)
        )
        query = """SELECT title, max(views) FILTER (month = $month) AS views,
                CASE WHEN $months > 1 THEN sum(views)::DOUBLE / $months END AS mean,
                CASE WHEN $months > 1 THEN list_aggregate(
                    list_transform(list_resize(list_sort(list(views)), $months, 0), lambda x: log10(1 + x)),
                    'stddev_pop'
                ) END AS sd_log10
            FROM monthly GROUP BY title ORDER BY title"""
        of_run = {"month": settings.month, "months": settings.months}
        database.write_query(db, query, folder / "views.parquet", of_run)
        rejects.write(folder / "rejects.parquet")
        query = "SELECT count(*), coalesce(sum(views), 0)::BIGINT FROM monthly WHERE month = $1"
        viewed, total = database.row(db, query, [settings.month])
        (titles,) = database.row(db, "SELECT count(*) FROM titles")
    counts |= {
        "titles": titles,
        "titles_with_views": viewed,
        "titles_without_views": titles - viewed,
        "views": total,
    }
    return counts | rejects.metrics()


def _read_dumps(
    db: duckdb.DuckDBPyConnection, params: SimpleNamespace, raw: Path, rejects: Rejects
) -> dict[str, int]:
    """Create table monthly(title, month, views) from the page view dumps, read in parallel; return counts."""
    project = language.read_language(params.language).project
    months = snapshots.months_until(params.popularity.month, params.popularity.months)
    by_month = pageviews.choose_files(
        visible_files(raw / "pageviews"), months, params.popularity.agents
    )
    files, tables = (
        [file for of_month in by_month.values() for file in of_month],
        visible_files(raw / "redirects"),
    )
    loaded = _load_redirects(db, tables)
    key = key_of(
        code.fingerprint("pipelines.knowledge.popularity"), rejects.max_share, project, *files
    )
    cut = [(file, *part) for file in files for part in bz2_blocks.bz2_parts(file, pageviews.PART)]
    with executors.processes(params.compute, len(cut)) as executor:
        parts = map_shards(
            "popularity", key, partial(_read_part, rejects.max_share, project), cut, executor
        )
    lines = 0
    for (_, begin, _), part in zip(cut, parts, strict=True):
        read = Rejects.decoded(parquet.metadata(part).metadata[b"rejects"], rejects.max_share)
        rejects.take(read, lines := lines if begin else 0)
        lines += read.read + read.skipped[pageviews.OTHERS]
    db.execute("CREATE TEMP TABLE monthly (title VARCHAR, month VARCHAR, views BIGINT)")
    for month, of_month in by_month.items():
        pageviews.sum_views(
            db, [part for (file, *_), part in zip(cut, parts, strict=True) if file in of_month]
        )
        db.execute("INSERT INTO monthly SELECT title, $1, views FROM views", [month])
    forget_shards("popularity", key)
    return {
        "files.pageviews": len(files),
        "files.redirects": len(tables),
        "lines": rejects.read,
    } | loaded


def _ask_api(db: duckdb.DuckDBPyConnection, params: SimpleNamespace) -> dict[str, int]:
    """Create table monthly(title, month, views) from the REST API; return counts. A killed run's answers are used."""
    settings, project = params.popularity, language.read_language(params.language).project
    titles = database.read_rows(db, "SELECT title FROM titles ORDER BY title")["title"]
    db.execute("CREATE TEMP TABLE asked (title VARCHAR, month VARCHAR, views BIGINT)")
    db.execute("CREATE TEMP TABLE redirects (target VARCHAR, title VARCHAR)")
    with wikimedia.open_client(params.contact, ANSWERS) as client:
        _insert(db, "asked", pageviews.ask_views(client, titles, settings, project=project))
        query = "SELECT count(*) FILTER (views IS NULL), count(*) FILTER (month = $1) FROM asked"
        unknown, viewed = database.row(db, query, [settings.month])
        if len(titles) and not viewed:
            shutil.rmtree(ANSWERS)
            raise LongtailError(
                f"{settings.api}: knows none of the {len(titles):,} articles in {settings.month}; check "
                "popularity.api, or wait until it has that month"
            )
        _insert(db, "redirects", pageviews.ask_redirects(client, titles, settings.redirects_api))
        unlike = "redirects ANTI JOIN titles USING (title)"  # a redirect that is an article of ours too keeps its views
        db.execute(
            f"CREATE TEMP TABLE others AS SELECT title, min(target) AS target FROM {unlike} GROUP BY title"
        )
        others = database.read_rows(db, "SELECT title FROM others ORDER BY title")["title"]
        _insert(db, "asked", pageviews.ask_views(client, others, settings, "redirects", project))
    db.execute(
        """CREATE TEMP TABLE monthly AS
        SELECT coalesce(target, asked.title) AS title, month, sum(views)::BIGINT AS views
        FROM asked LEFT JOIN others USING (title) GROUP BY ALL HAVING sum(views) > 0"""
    )
    return {
        "articles_asked_for": len(titles),
        "articles_not_found": unknown,
        "redirects": len(others),
    }


def _load_redirects(db: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, int]:
    """Create tables redirects(page_id, target) and pages(page_id, title); return the numbers of their rows."""
    db.execute("CREATE TEMP TABLE redirects (page_id BIGINT, target VARCHAR)")
    db.execute("CREATE TEMP TABLE pages (page_id BIGINT, title VARCHAR)")
    for file in files:
        name = "page" if pageviews.PAGES.search(file.name) else "redirect"
        _insert(db, f"{name}s", pageviews.read_titles(file, name))
    counts = {}
    for name in ("redirects", "pages"):
        counts[name], distinct = database.row(
            db, f"SELECT count(*), count(DISTINCT page_id) FROM {name}"
        )
        if distinct < counts[name]:
            raise LongtailError(
                f"{files[0].parent}: two tables of {name}, expected one (fetch.files.redirects)"
            )
    return counts


def _insert(db: duckdb.DuckDBPyConnection, table: str, batches: Iterable[pa.Table]) -> None:
    for batch in batches:
        db.register("batch", batch)
        db.execute(f"INSERT INTO {table} FROM batch")


def _read_part(
    max_reject_share: float, project: str, part: tuple[Path, int, int | None], path: Path
) -> None:
    """Write the views of a part of a file (`bz2_blocks.bz2_parts`) as Parquet, with its rejects in the metadata."""
    rejects, (file, begin, end) = Rejects(max_reject_share), part
    with parquet.writer(path, pageviews.SCHEMA) as writer:
        for table in pageviews.read_views(file, rejects, project, begin, end):
            writer.write_table(table)
        rejects.check()
        writer.add_key_value_metadata({"rejects": rejects.encoded()})


def work(params: SimpleNamespace) -> stage.Metrics:
    counts = count_views(params)
    shutil.rmtree(ANSWERS, ignore_errors=True)
    return counts


if __name__ == "__main__":
    sections = ("compute", "contact", "ingest", "language", "popularity")
    stage.run("popularity", sections, work, out=str(OUT), metrics=METRICS)
