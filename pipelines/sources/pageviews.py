"""Wikimedia's monthly "pageview complete" dumps: popularity as views of an English Wikipedia article (PopQA, 3.2).

A line is `project title [page id] access views [views by day]`; an article has one for each access method (desktop,
mobile-web, mobile-app), and one file for each kind of agent. Popularity is the sum over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from operator import methodcaller
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_lines

PROJECT = "en.wikipedia"
LINE = r"^\S+ (?P<title>\S+) (?:(?:\d+|null) )?(?P<access>desktop|mobile-web|mobile-app) (?P<views>\d{1,15})(?: \S+)?$"
BATCH = 200_000  # lines
EMPTY = pa.table({"title": pa.array([], pa.string()), "views": pa.array([], pa.int64())})


def sum_views(connection: duckdb.DuckDBPyConnection, paths: Iterable[Path], rejects: Rejects) -> None:
    """Create table views(title, views) with the summed views of those articles that table titles(title) names.

    Titles of a dump are spelled as requested: underscores for spaces, sometimes percent-encoded.
    """
    connection.execute("CREATE OR REPLACE TEMP TABLE requests (title VARCHAR, views BIGINT)")
    for path in paths:
        for batch in read_views(path, rejects):
            connection.register("batch", batch)
            connection.execute(
                """INSERT INTO requests
                SELECT title, sum(views) FROM (
                    SELECT replace(coalesce(try(url_decode(title)), title), '_', ' ') AS title, views FROM batch
                ) SEMI JOIN titles USING (title) GROUP BY title"""
            )
            connection.unregister("batch")
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE views AS SELECT title, sum(views)::BIGINT AS views FROM requests GROUP BY title"
    )
    connection.execute("DROP TABLE requests")


def read_views(path: Path, rejects: Rejects, project: str = PROJECT) -> Iterator[pa.Table]:
    """Yield tables (title as in the file, views int64) of one project's lines, a batch of the file's lines at a time.

    Bad lines of the project go to `rejects` (bad_line, not_utf8); other projects' lines are only counted. Raises
    LongtailError when the file begins with something else than page views.
    """
    lines = open_lines(path)
    wanted = methodcaller("startswith", f"{project} ".encode())
    row = 0
    while chunk := list(islice(lines, BATCH)):
        if row == 0 and not any(re.match(LINE, line.decode("utf-8", "replace")) for line in chunk[:1000]):
            raise LongtailError(
                f"{path}: none of its first lines is one of page views, expected `{project} Title 123 desktop 45 A1`; "
                "fetch a monthly pageview_complete file"
            )
        ours = list(map(wanted, chunk))
        rows = [row + i for i in compress(range(1, len(chunk) + 1), ours)]
        row += len(chunk)
        rejects.read += len(rows)
        rejects.skip("other_project_views", len(chunk) - len(rows))
        yield _parse(path, list(compress(chunk, ours)), rows, rejects)


def _parse(path: Path, lines: list[bytes], rows: list[int], rejects: Rejects) -> pa.Table:
    if not lines:
        return EMPTY
    try:
        texts = pa.array(lines, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # some line isn't UTF-8: find out which
        texts = pa.array([_utf8(path, line, row, rejects) for line, row in zip(lines, rows, strict=True)], pa.string())
    fields = pc.extract_regex(texts, LINE)
    good = fields.is_valid()
    for i in pc.indices_nonzero(pc.and_(pc.invert(good), texts.is_valid())).to_pylist():
        rejects.add(path, rows[i], "bad_line", texts[i].as_py())
    fields = fields.filter(good)
    views = pc.struct_field(fields, "views").cast(pa.int64())
    return pa.table({"title": pc.struct_field(fields, "title"), "views": views})


def _utf8(path: Path, line: bytes, row: int, rejects: Rejects) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        rejects.add(path, row, "not_utf8", line.decode("utf-8", "replace"))
        return None
