"""Popularity as views of a Wikipedia article, from the monthly "pageview complete" dumps (PopQA,
3.2).

A line is `project title [page id] access views [views by day]`. There is one for each access
method, in a file for each type of agent (people, spiders, automated). An article's popularity is
their sum. The page id is that of the requested page or, if it redirects, sometimes the target's. A
page that is moved keeps its id, and its old title becomes a redirect. mediawiki_tables.py reads
which page redirects where, and which title a page has.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH
from pipelines.sources.bz2_blocks import Part, open_lines
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_blocks, runs_of
from pipelines.storage import database
from pipelines.tables.table import INT64, STRING

LINE = (
    r"^\S+ (?P<title>\S+) (?:(?:(?P<page_id>\d{1,15})|null) )?"
    r"(?:desktop|mobile-web|mobile-app) (?P<views>\d{1,15})(?: \S+)?$"
)
FILE = re.compile(
    r"pageviews-(?P<month>\d{6})(?P<day>\d\d)?-(?P<agents>user|spider|automated)(?![a-z])"
)
NO_TITLE = "-"  # stands for the title of a request whose title is not known
BLOCK_BYTES = 1 << 22  # bytes of lines parsed at once
PART_BYTES = 1 << 22  # compressed bytes of a part of a file: about 25 MB of lines
OTHER_PROJECTS = "lines_of_other_projects"  # that are only counted
NO_PAGE = "lines_of_no_page"  # without title and page id
SCHEMA = pa.schema({"title": STRING, "page_id": INT64, "views": INT64})

# Unlike a GROUP BY with min() of texts, these joins and windows spill to disk.
SUM_VIEWS = f"""
    CREATE TEMP TABLE requests AS
    SELECT title, page_id, sum(views)::BIGINT AS views FROM (
        SELECT replace(coalesce(try(url_decode(title)), title), '_', ' ') AS title, page_id, views
        FROM (SELECT * REPLACE (nullif(title, '{NO_TITLE}') AS title) FROM parts)
    ) GROUP BY ALL;

    CREATE TEMP TABLE by_page AS
    SELECT page_id, title AS article, true AS known FROM pages SEMI JOIN titles USING (title);

    INSERT INTO by_page
    SELECT page_id, target, false FROM redirects
        SEMI JOIN titles ON title = target ANTI JOIN by_page USING (page_id)
    UNION ALL
    SELECT page_id, title, false
    FROM (SELECT page_id, title, sum(views) AS views FROM requests GROUP BY ALL)
        SEMI JOIN titles USING (title) SEMI JOIN redirects ON target = title
        ANTI JOIN redirects USING (page_id) ANTI JOIN pages USING (page_id)
    WHERE page_id IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY page_id ORDER BY views DESC, title) = 1;

    CREATE TEMP TABLE by_title AS
    SELECT title, titles.title IS NOT NULL AS known, target
    FROM titles FULL JOIN (
        SELECT title, target FROM pages JOIN redirects USING (page_id)
            SEMI JOIN titles ON titles.title = target
    ) AS renamed USING (title);

    CREATE TEMP TABLE views AS
    SELECT article AS title, sum(views)::BIGINT AS views FROM (
        SELECT views, CASE
            WHEN by_page.known AND (target IS NULL OR NOT by_title.known) THEN article
            WHEN by_title.known THEN requests.title
            ELSE coalesce(article, target) END AS article
        FROM requests LEFT JOIN by_page ON by_page.page_id = requests.page_id
            LEFT JOIN by_title ON by_title.title = requests.title
    ) WHERE article IS NOT NULL GROUP BY article HAVING sum(views) > 0
"""


def read_views(part: Part, rejects: Rejects, project: str = ENGLISH.project) -> Iterator[pa.Table]:
    """Yield tables (title as in the file, page_id or null, views) of one project's lines,
    BLOCK_BYTES at a time.

    The lines of one page in a block are summed. Lines of other projects are only counted, as are
    those with NO_TITLE and no page id. Bad lines of the project go to `rejects`: bad_line,
    not_utf8, and cut_line for a last line without its newline, whose number may lack digits. Raises
    LongtailError if the file doesn't begin with page views.
    """
    path = part.file
    if part.begin == 0:
        _check_first_lines(path, project)

    prefix = f"{project} ".encode()
    lines_before = 0
    for run in runs_of(path, open_lines(part), BLOCK_BYTES):
        text = b"".join(run)
        line_count = _count_newlines(text)
        text_end = text.rfind(b"\n") + 1
        if text_end < len(text):
            rejects.read += 1
            cut_line = text[text_end:].decode("utf-8", "replace")
            rejects.add(path, lines_before + line_count + 1, "cut_line", cut_line)

        rejects.skip(OTHER_PROJECTS, line_count)
        first, last = _find_project(text[:text_end], prefix)
        if first < last:
            lines = pc.split_pattern(pa.array([text[first : last - 1]]), b"\n")[0].values
            of_project = pc.starts_with(lines, prefix)
            first_row = lines_before + _count_newlines(text[:first]) + 1
            rows = np.flatnonzero(of_project) + first_row
            rejects.read += len(rows)
            rejects.skip(OTHER_PROJECTS, -len(rows))
            yield _sum_pages(_parse(path, lines.filter(of_project), rows, rejects))
        lines_before += line_count


def _check_first_lines(path: Path, project: str) -> None:
    first_block = next(open_blocks(path))
    if not re.search(f"(?m){LINE}".encode(), first_block):
        raise LongtailError(
            f"{path}: none of its first lines is one of page views, expected "
            f"`{project} Title 123 desktop 45 A1`; fetch a monthly pageview_complete file (hourly "
            "files, with lines as `en Title 45 0`, are not read)"
        )


def _count_newlines(text: bytes) -> int:
    # bytes.count takes five times as long
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _find_project(text: bytes, prefix: bytes) -> tuple[int, int]:
    """Where a project's first line begins in a text of whole lines, and where its last line ends;
    (0, 0) without one.

    Dumps are sorted by project, so hardly any line of another project stands between the two.
    """
    if text.startswith(prefix):
        first = 0
    else:
        first = text.find(b"\n" + prefix) + 1
        if first == 0:
            return 0, 0
    newline_before_last = max(text.rfind(b"\n" + prefix, first), first)
    return first, text.find(b"\n", newline_before_last + 1) + 1


def _sum_pages(views: pa.Table) -> pa.Table:
    groups = views.group_by(["title", "page_id"], use_threads=False)
    return groups.aggregate([("views", "sum")]).rename_columns(SCHEMA.names)


def _parse(path: Path, lines: pa.BinaryArray, rows: np.ndarray, rejects: Rejects) -> pa.Table:
    """The columns of SCHEMA of the lines; `rows` are the lines' numbers in the file."""
    fields = pc.extract_regex(lines, LINE)
    is_bad = pc.invert(fields.is_valid())
    for i in pc.indices_nonzero(is_bad).to_pylist():
        rejects.add(path, int(rows[i]), "bad_line", lines[i].as_py().decode("utf-8", "replace"))

    is_good = pc.invert(is_bad)
    fields = fields.filter(is_good)
    rows = rows[is_good.to_numpy(zero_copy_only=False)]
    titles = _decode(path, pc.struct_field(fields, "title"), rows, rejects)
    page_ids = pc.struct_field(fields, "page_id")
    page_ids = pc.if_else(pc.equal(page_ids, b""), None, page_ids)
    views = pc.struct_field(fields, "views")
    columns = [titles, page_ids.cast(INT64), views.cast(INT64)]
    table = pa.table(columns, schema=SCHEMA).filter(titles.is_valid())

    has_page = pc.or_(pc.not_equal(table["title"], NO_TITLE), table["page_id"].is_valid())
    of_pages = table.filter(has_page)
    rejects.skip(NO_PAGE, len(table) - len(of_pages))
    return of_pages


def _decode(path: Path, titles: pa.BinaryArray, rows: np.ndarray, rejects: Rejects) -> pa.Array:
    """The titles as texts; one that isn't UTF-8 is null, and goes to `rejects`."""
    try:
        return titles.cast(STRING)
    except pa.ArrowInvalid:
        pass

    texts = []
    is_damaged = np.zeros(len(titles), bool)
    for i, title in enumerate(titles.to_pylist()):
        text = title.decode("utf-8", "replace")
        texts.append(text)
        if text.encode() != title:
            rejects.add(path, int(rows[i]), "not_utf8", text)
            is_damaged[i] = True

    return pa.array(texts, STRING, mask=is_damaged)


def sum_views(db: duckdb.DuckDBPyConnection, parts: Sequence[Path]) -> None:
    """Create table views(title, views): the views, from `parts`, of the articles in table
    titles(title).

    `parts` are Parquet files of the tables that `read_views` yields. Tables pages(page_id, title)
    and redirects(page_id, target), each id and title once, say how pages are called now. A request,
    whose title may have underscores and percent signs, counts for the first of these that is in
    `titles`:
    1. the article with the line's page id, even if it was moved since. A requested title that is
       both in `titles` and a redirect now keeps its views: its page id may be the target's.
    2. the article of the requested title, which NO_TITLE is not
    3. the target of the redirect with the line's page id; if neither table has this page id, the
       redirects' target that most requests with it name
    4. the target of the requested title, if this title is a redirect now A redirect to a redirect
       is not followed further, as on Wikipedia. Articles without a view are not in the table.
    """
    if parts:
        database.view(db, "parts", *parts)
    else:
        db.register("parts", SCHEMA.empty_table())
    db.execute(SUM_VIEWS)
