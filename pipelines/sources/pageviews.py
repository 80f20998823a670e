"""Wikimedia's monthly "pageview complete" dumps: popularity as views of an English Wikipedia article (PopQA, 3.2).

A line is `project title [page id] access views [views by day]`; an article has one for each access method (desktop,
mobile-web, mobile-app), and one file for each kind of agent. Popularity is the sum over all of them. The page id is the
requested page's or, where that redirects, sometimes the target's.
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
BLOCK = 1 << 24  # bytes of lines at once
SCHEMA = pa.schema({"title": pa.string(), "page_id": pa.int64(), "views": pa.int64()})


def choose_files(files: Sequence[Path], month: str, agents: str) -> list[Path]:
    """The files that count: all of them for "all-agents", those of people alone for "user", told by their names.

    Raises LongtailError on a file named after another month, and for "user" on one whose name doesn't tell.
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
    """Write one file's views, in several rows where lines of one page lie apart, to the Parquet file `out`."""
    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
        for table in read_views(path, rejects):
            writer.write_table(table)
    rejects.check()


def read_views(path: Path, rejects: Rejects, project: str = PROJECT) -> Iterator[pa.Table]:
    """Yield tables (title as in the file, page_id or null, views) of one project's lines, BLOCK bytes at a time.

    Lines of one page that follow one another are summed. Bad lines of the project go to `rejects` (bad_line, not_utf8);
    other projects' lines are only counted. Raises LongtailError when the file begins with something else than page
    views.
    """
    prefix = f"{project} ".encode()
    before = 0  # lines of the file before those in hand
    for block in _blocks(path):
        if not before and not any(re.match(LINE.encode(), line) for line in block[: 1 << 17].splitlines(True)[:1000]):
            raise _not_views(path)
        start, stop = _span(block, prefix)
        skipped = block.count(b"\n", 0, start)
        lines = _lines(block[start:stop])
        ours = pc.starts_with(lines, prefix)
        rows = np.flatnonzero(ours) + before + skipped + 1
        total = skipped + len(lines) + block.count(b"\n", stop)
        before += total
        rejects.read += len(rows)
        rejects.skip("other_project_views", total - len(rows))
        if len(rows):
            yield _sum_runs(_parse(path, lines.filter(ours), rows, rejects))


def sum_views(db: duckdb.DuckDBPyConnection, parts: Sequence[Path], redirects: bool) -> None:
    """Create table views(title, views) with the views of the articles that table titles(title) names, from `parts`.

    Titles of a dump are spelled as requested: underscores for spaces, sometimes percent-encoded. With `redirects`, from
    table redirects(page_id, target), a request under a title that isn't asked for counts for the article it led to:
    the target of the redirect whose page id the line has or, where it has the target's own, the article that most
    requests of that id name, if anything redirects there. No view counts twice; a redirect to a redirect isn't followed
    further, as Wikipedia doesn't either.
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
    """Where the first line that begins with `prefix` starts and the last one stops: all else needs no look at it."""
    start = 0 if block.startswith(prefix) else block.find(b"\n" + prefix) + 1
    if not start and not block.startswith(prefix):
        return 0, 0
    return start, block.index(b"\n", max(block.rfind(b"\n" + prefix) + 1, start)) + 1


def _lines(span: bytes) -> pa.BinaryArray:
    """The lines, each with its newline, without copying them."""
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
    except pa.ArrowInvalid:  # some title isn't UTF-8: find out which
        titles = pa.array([_utf8(path, *found, rejects) for found in zip(titles, rows, strict=True)], pa.string())
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
    """Rows with the same title and page id that follow one another as one, their views summed."""
    if not len(table):
        return table
    titles, page_ids, views = (column.combine_chunks() for column in table.columns)
    page_ids = page_ids.fill_null(-1)
    same = pc.and_(pc.equal(titles[1:], titles[:-1]), pc.equal(page_ids[1:], page_ids[:-1]))
    starts = np.flatnonzero(np.concatenate([[True], ~same.to_numpy(zero_copy_only=False)]))
    kept = table.take(pa.array(starts))
    return kept.set_column(2, SCHEMA.field("views"), pa.array(np.add.reduceat(views.to_numpy(), starts)))
