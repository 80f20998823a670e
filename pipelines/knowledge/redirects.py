"""Where the redirects of a Wikipedia lead, and how its pages are called, in DuckDB's tables."""

from pathlib import Path

import duckdb

from pipelines.errors import LongtailError
from pipelines.sources import mediawiki_tables
from pipelines.storage import database


def load(db: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, int]:
    """Create tables redirects(page_id, target) and pages(page_id, title); return the numbers of
    their rows.

    Without files they are empty. Raises LongtailError if two files have the same page.
    """
    db.execute("CREATE TEMP TABLE redirects (page_id BIGINT, target VARCHAR)")
    db.execute("CREATE TEMP TABLE pages (page_id BIGINT, title VARCHAR)")
    for file in files:
        is_page_table = mediawiki_tables.PAGE_FILE.search(file.name)
        name = "page" if is_page_table else "redirect"
        database.insert(db, f"{name}s", mediawiki_tables.read_titles(file, name))

    counts = {}
    for table in ("redirects", "pages"):
        query = f"SELECT count(*), count(DISTINCT page_id) FROM {table}"
        rows, pages = database.row(db, query)
        if pages < rows:
            raise LongtailError(
                f"{files[0].parent}: two tables of {table}, expected one (fetch.files.redirects)"
            )
        counts[table] = rows

    return counts
