"""Stage `popularity`: how often each Wikipedia article was viewed in a month (PopQA, 3.2).

Writes data/knowledge/popularity/{views,rejects}.parquet, for the articles of
data/knowledge/wikidata/entities.parquet. The views come from the page view dumps or from the REST
API (`popularity.source`).

An article may have been moved between the month and Wikidata's dump. It is found by its page id,
and by its old title, which redirects to it now. Dumps need the tables in data/raw/redirects for
this; with the API, Wikipedia is asked.

An article without a view is not in the table: its popularity is unknown, not 0.
"""

import shutil
from functools import partial
from pathlib import Path

import duckdb

from pipelines.errors import LongtailError
from pipelines.knowledge import redirects
from pipelines.language import language
from pipelines.params import params
from pipelines.params.param_types import Section
from pipelines.params.params import Compute, Ingest
from pipelines.sources import pageviews, pageviews_api
from pipelines.sources.bz2_blocks import Part, bz2_parts
from pipelines.sources.pageview_files import choose_files
from pipelines.sources.pageviews import NO_PAGE, NO_TITLE
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.sources.wikimedia_client import open_client
from pipelines.storage import database, parquet
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.tables.knowledge import VIEWS
from pipelines.work import code, executors, stage

ENTITIES = Path("data/knowledge/wikidata/entities.parquet")
RAW = Path("data/raw")
OUT = Path("data/knowledge/popularity")
METRICS = Path("data/metrics/popularity.json")
ANSWERS = SCRATCH / "wikimedia" / "popularity"

SUM_API_VIEWS = """
    CREATE TEMP TABLE views AS
    SELECT coalesce(target, api_views.title) AS title, sum(views)::BIGINT AS views
    FROM api_views LEFT JOIN old_titles USING (title) GROUP BY ALL HAVING sum(views) > 0
"""


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    compute: Compute
    contact: str | None
    ingest: Ingest
    language: str
    popularity: params.Popularity


def count_views(
    settings: Settings, entities: Path = ENTITIES, raw: Path = RAW, out: Path = OUT
) -> dict[str, int]:
    """Write the stage's folder `out`; return counts.

    Raises LongtailError on damaged input or a failed request.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    memory_gb = settings.ingest.memory_gb
    with database.connect(memory_gb, settings.compute.threads) as db, atomic(out) as folder:
        folder.mkdir()
        database.view(db, "entities", entities)
        articles = "SELECT DISTINCT wiki_title AS title FROM entities WHERE wiki_title IS NOT NULL"
        db.execute(f"CREATE TEMP TABLE titles AS {articles}")

        if settings.popularity.source == "api":
            counts = _ask_api(db, settings)
        else:
            counts = _read_dumps(db, settings, raw, rejects)

        query = "SELECT title, views FROM views ORDER BY title"
        database.write_query(db, query, folder / VIEWS.name, declared=VIEWS)
        rejects.write(folder / "rejects.parquet")

        query = "SELECT count(*), coalesce(sum(views), 0)::BIGINT FROM views"
        viewed, total = database.row(db, query)
        (titles,) = database.row(db, "SELECT count(*) FROM titles")

    counts |= {
        "titles": titles,
        "titles_with_views": viewed,
        "titles_without_views": titles - viewed,
        "views": total,
    }
    return counts | rejects.metrics()


def _read_dumps(
    db: duckdb.DuckDBPyConnection, settings: Settings, raw: Path, rejects: Rejects
) -> dict[str, int]:
    """Create table views(title, views) from the page view dumps; return counts.

    Parts of the dumps are read in parallel.
    """
    popularity = settings.popularity
    project = language.read_language(settings.language).project
    dumps = visible_files(raw / "pageviews")
    selection = choose_files(dumps, popularity.month, popularity.agents)
    for note in selection.notes:
        print(f"popularity: {note}")
    for line in selection.missing:
        print(f"warning: popularity: {line}")
    files = selection.files
    tables = visible_files(raw / "redirects")
    redirect_counts = redirects.load(db, tables)

    parts = []
    for file in files:
        parts += bz2_parts(file, pageviews.PART_BYTES)

    fingerprint = code.fingerprint("pipelines.knowledge.popularity")
    key = content_key((rejects.max_share, project), fingerprint, *files)
    read_part = partial(_read_part, rejects.max_share, project)
    with executors.processes(settings.compute, len(parts)) as executor:
        shards = WorkStore().parts("popularity", key, parts, read_part, executor)
    _collect_rejects(parts, shards, rejects)

    pageviews.sum_views(db, shards)
    WorkStore().forget("popularity", key)
    lines_of_no_page = rejects.skipped[NO_PAGE]
    if lines_of_no_page:
        what_counts = f"their title is {NO_TITLE}; they count for no article"
        print(f"popularity: {lines_of_no_page:,} lines have views of no known page, {what_counts}")

    counts = {
        "files.pageviews": len(files),
        "files.redirects": len(tables),
        "lines_of_project": rejects.read,
    }
    if selection.days_missing:
        counts["days_missing"] = selection.days_missing
    return counts | redirect_counts


def _read_part(max_reject_share: float, project: str, part: Part, path: Path) -> None:
    """Write the views of a part of a dump as Parquet, with its rejects in the metadata."""
    rejects = Rejects(max_reject_share)
    with parquet.writer(path, pageviews.SCHEMA) as writer:
        for table in pageviews.read_views(part, rejects, project):
            writer.write_table(table)
        rejects.check()
        writer.add_key_value_metadata({"rejects": rejects.encoded()})


def _collect_rejects(parts: list[Part], shards: list[Path], rejects: Rejects) -> None:
    """Add the bad rows of all parts to `rejects`, with the rows' numbers in their files."""
    lines = 0
    for part, shard in zip(parts, shards, strict=True):
        if part.begin == 0:
            lines = 0
        saved = parquet.metadata(shard).metadata[b"rejects"]
        part_rejects = Rejects.decoded(saved, rejects.max_share)
        rejects.take(part_rejects, lines)
        lines += part_rejects.read + part_rejects.skipped[pageviews.OTHER_PROJECTS]


def _ask_api(db: duckdb.DuckDBPyConnection, settings: Settings) -> dict[str, int]:
    """Create table views(title, views) from the REST API; return counts.

    Answers that a killed run got are used. Raises LongtailError if the API knows no article.
    """
    popularity = settings.popularity
    project = language.read_language(settings.language).project
    query = "SELECT title FROM titles WHERE title != $1 ORDER BY title"
    titles = database.read_rows(db, query, [NO_TITLE])["title"]
    db.execute("CREATE TEMP TABLE api_views (title VARCHAR, views BIGINT)")
    db.execute("CREATE TEMP TABLE redirects (target VARCHAR, title VARCHAR)")

    with open_client(settings.contact, ANSWERS) as client:
        views = pageviews_api.ask_views(client, titles, popularity, project=project)
        database.insert(db, "api_views", views)
        query = "SELECT count(*) FILTER (views IS NULL), count(views) FROM api_views"
        unknown, viewed = database.row(db, query)
        if len(titles) and not viewed:
            shutil.rmtree(ANSWERS)
            raise LongtailError(
                f"{popularity.api}: knows none of the {len(titles):,} articles in "
                f"{popularity.month}; check popularity.api, or wait until it has that month"
            )

        titles_of_redirects = pageviews_api.ask_redirects(client, titles, popularity.redirects_api)
        database.insert(db, "redirects", titles_of_redirects)
        # a redirect that is also one of our articles keeps its own views
        db.execute(
            f"""CREATE TEMP TABLE old_titles AS SELECT title, min(target) AS target
            FROM redirects ANTI JOIN titles USING (title) WHERE title != '{NO_TITLE}'
            GROUP BY title"""
        )
        old_titles = database.read_rows(db, "SELECT title FROM old_titles ORDER BY title")["title"]
        views = pageviews_api.ask_views(client, old_titles, popularity, "redirects", project)
        database.insert(db, "api_views", views)

    db.execute(SUM_API_VIEWS)
    return {
        "articles_asked_for": len(titles),
        "articles_not_found": unknown,
        "redirects": len(old_titles),
    }


def work(settings: Settings) -> stage.Metrics:
    counts = count_views(settings)
    shutil.rmtree(ANSWERS, ignore_errors=True)
    return counts


if __name__ == "__main__":
    stage.run("popularity", Settings, work, out=str(OUT), metrics=METRICS)
