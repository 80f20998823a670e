"""Popularity as views of an English Wikipedia article, from the monthly "pageview complete" dumps (PopQA, 3.2).

A line is `project title [page id] access views [views by day]`. An article has a line for each access method (desktop,
mobile-web, mobile-app) in one file for each kind of agent. Its popularity is the sum of all. The page id is that of the
requested page or, if the page redirects, sometimes that of the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_runs

PROJECT = "en.wikipedia"
LINE = (
    r"^\S+ (?P<title>\S+) (?:(?:(?P<page_id>\d{1,15})|null) )?(?:desktop|mobile-web|mobile-app) (?P<views>\d{1,15})"
    r"(?: \S+)?\n$"
)
FILE = re.compile(r"pageviews-(?P<month>\d{6})(?:\d\d)?-(?P<agents>user|spider|automated)\b")
BLOCK = 1 << 24  # bytes of lines parsed at once
SCHEMA = pa.schema({"title": pa.string(), "page_id": pa.int64(), "views": pa.int64()})


def choose_files(files: Sequence[Path], month: str, agents: str) -> list[Path]:
    """The files that count, by their names: all files for "all-agents", only those with views of people for "user".

    Raises LongtailError for a file named after another month, and, for "user", a file whose name doesn't tell its
    agents.
    """
    chosen = []
    for file in files:
        named = FILE.match(file.name)
        if named and named["month"] != month.replace("-", ""):
            raise LongtailError(f"{file}: named after another month, expected {month} (popularity.month)")
        if agents == "user" and not named:
            raise LongtailError(
                f"{file}: its name doesn't tell whose views it has, expected one like "
                f"pageviews-{month.replace('-', '')}-user.bz2; rename it or set popularity.agents: all-agents"
            )
        if agents == "all-agents" or named["agents"] == "user":
            chosen.append(file)
    return chosen


def write_views(path: Path, rejects: Rejects, out: Path) -> None:
    """Write one file's views to the Parquet file `out`. A page has several rows if its lines lie apart."""
    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
        for table in read_views(path, rejects):
            writer.write_table(table)
    rejects.check()


def read_views(path: Path, rejects: Rejects, project: str = PROJECT) -> Iterator[pa.Table]:
    """Yield tables (title as in the file, page_id or null, views) of one project's lines, BLOCK bytes at a time.

    Consecutive lines of one page are summed. Bad lines of the project go to `rejects` (bad_line, not_utf8); lines of
    other projects are only counted. Raises LongtailError if the file doesn't begin with page views.
    """
    prefix = f"{project} ".encode()
    lines_before = 0  # in earlier blocks
    for block in _blocks(path):
        if not lines_before and not any(
            re.match(LINE.encode(), line) for line in block[: 1 << 17].splitlines(True)[:1000]
        ):
            raise _not_views(path)
        start, stop = _span(block, prefix)
        skipped = block.count(b"\n", 0, start)
        lines = _lines(block[start:stop])
        of_project = pc.starts_with(lines, prefix)
        rows = np.flatnonzero(of_project) + lines_before + skipped + 1
        total = skipped + len(lines) + block.count(b"\n", stop)
        lines_before += total
        rejects.read += len(rows)
        rejects.skip("other_project_views", total - len(rows))
        if len(rows):
            yield _sum_runs(_parse(path, lines.filter(of_project), rows, rejects))


def sum_views(db: duckdb.DuckDBPyConnection, parts: Sequence[Path], redirects: bool) -> None:
    """Create table views(title, views): the views, from `parts`, of the articles in table titles(title).

    A dump spells titles as they were requested: underscores for spaces, sometimes percent-encoded. With `redirects`, a
    request under a title that is not in `titles` counts for the article that it led to. That article is
    - the target of the redirect with the line's page id, from table redirects(page_id, target), or
    - if the page id is not a redirect's, the redirects' target that most requests with this page id name.
    No view counts twice. A redirect to a redirect is not followed further, as on Wikipedia.
    """
    db.register("no_parts", SCHEMA.empty_table())
    selects = ["SELECT * FROM no_parts", *(f"SELECT * FROM '{part}'" for part in parts)]
    db.execute(
        f"""CREATE TEMP TABLE requests AS SELECT title, page_id, sum(views)::BIGINT AS views FROM (
            SELECT replace(coalesce(try(url_decode(title)), title), '_', ' ') AS title, page_id, views
            FROM ({" UNION ALL ".join(selects)})
        ) GROUP BY ALL"""
    )
    counted = "SELECT title, views FROM requests SEMI JOIN titles USING (title)"
    if redirects:
        db.execute(
            """CREATE TEMP TABLE shown AS
            SELECT page_id, target AS title FROM redirects SEMI JOIN titles ON title = target
            UNION ALL
            SELECT page_id, title FROM (SELECT page_id, title, sum(views) AS views FROM requests GROUP BY ALL)
                SEMI JOIN titles USING (title) SEMI JOIN redirects ON target = title
                ANTI JOIN redirects USING (page_id)
            WHERE page_id IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY page_id ORDER BY views DESC, title) = 1"""
        )
        counted += """ UNION ALL SELECT shown.title, views
            FROM (FROM requests ANTI JOIN titles USING (title)) AS others JOIN shown USING (page_id)"""
    db.execute(
        f"""CREATE TEMP TABLE views AS SELECT title, sum(views)::BIGINT AS views FROM ({counted})
        GROUP BY title HAVING sum(views) > 0"""
    )


def _blocks(path: Path) -> Iterator[bytes]:
    """The file in blocks of whole lines, each line with its newline, about BLOCK bytes at a time."""
    for run in open_runs(path, BLOCK):
        pieces, size = [], 0
        for piece in run:
            pieces.append(piece)
            size += len(piece)
            if size > 2 * BLOCK:  # a line longer than BLOCK
                raise _not_views(path)
        block = b"".join(pieces)
        yield block if block.endswith(b"\n") else block + b"\n"


def _not_views(path: Path) -> LongtailError:
    return LongtailError(
        f"{path}: none of its first lines is one of page views, expected `{PROJECT} Title 123 desktop 45 A1`; "
        "fetch a monthly pageview_complete file"
    )


def _span(block: bytes, prefix: bytes) -> tuple[int, int]:
    """The start of the first line that begins with `prefix` and the end of the last one; only these need parsing."""
    start = 0 if block.startswith(prefix) else block.find(b"\n" + prefix) + 1
    if not start and not block.startswith(prefix):
        return 0, 0
    return start, block.index(b"\n", max(block.rfind(b"\n" + prefix) + 1, start)) + 1


def _lines(span: bytes) -> pa.BinaryArray:
    """The lines, each with its newline, as an array that doesn't copy them."""
    ends = np.flatnonzero(np.frombuffer(span, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(span)])


def _parse(path: Path, lines: pa.BinaryArray, rows: np.ndarray, rejects: Rejects) -> pa.Table:
    fields = pc.extract_regex(lines, LINE)
    bad = pc.invert(fields.is_valid())
    for i in pc.indices_nonzero(bad).to_pylist():
        rejects.add(path, int(rows[i]), "bad_line", lines[i].as_py().decode("utf-8", "replace").removesuffix("\n"))
    good = pc.invert(bad)
    fields, lines, rows = fields.filter(good), lines.filter(good), rows[good.to_numpy(zero_copy_only=False)]
    titles, page_ids, views = (pc.struct_field(fields, name) for name in SCHEMA.names)
    try:
        titles = titles.cast(pa.string())
    except pa.ArrowInvalid:  # a title isn't UTF-8
        decoded = [_utf8(path, title, row, rejects) for title, row in zip(titles, rows, strict=True)]
        titles = pa.array(decoded, pa.string())
    page_ids = pc.if_else(pc.equal(page_ids, b""), None, page_ids)
    columns = [titles, page_ids.cast(pa.int64()), views.cast(pa.int64())]
    return pa.table(columns, schema=SCHEMA).filter(titles.is_valid())


def _utf8(path: Path, title: pa.BinaryScalar, row: int, rejects: Rejects) -> str | None:
    try:
        return title.as_py().decode()
    except UnicodeDecodeError:
        rejects.add(path, int(row), "not_utf8", title.as_py().decode("utf-8", "replace"))
        return None


def _sum_runs(table: pa.Table) -> pa.Table:
    """The table with consecutive rows of the same title and page id joined to one, their views summed."""
    if not len(table):
        return table
    titles, page_ids, views = (column.combine_chunks() for column in table.columns)
    page_ids = page_ids.fill_null(-1)
    same = pc.and_(pc.equal(titles[1:], titles[:-1]), pc.equal(page_ids[1:], page_ids[:-1]))
    starts = np.flatnonzero(np.concatenate([[True], ~same.to_numpy(zero_copy_only=False)]))
    kept = table.take(pa.array(starts))
    return kept.set_column(2, SCHEMA.field("views"), pa.array(np.add.reduceat(views.to_numpy(), starts)))
