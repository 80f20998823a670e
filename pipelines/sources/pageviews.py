"""Popularity as views of a Wikipedia article, from the monthly "pageview complete" dumps (PopQA, 3.2).

A line is `project title [page id] access views [views by day]`: one for each access method, in a file for each kind of
agent. An article's popularity is their sum. The page id is that of the requested page or, if it redirects, sometimes
the target's. A page that is moved keeps its id, and its old title becomes a redirect. MySQL dumps of MediaWiki's tables
say which page redirects where (*-redirect.sql.gz), and which title a page has (*-page.sql.gz).

Wikimedia's REST API has the monthly views of single articles: of requests under exactly this title, without those under
redirects to it, nor those of an article's old title. Wikipedia's own API says which titles redirect to an article now.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH
from pipelines.params.params import Popularity
from pipelines.sources import bz2_blocks
from pipelines.sources.rejects import Rejects
from pipelines.sources.snapshots import last_day, months_until
from pipelines.sources.streams import open_blocks, open_lines, open_runs
from pipelines.sources.wikimedia import AT_ONCE, Client, Query, ask_query
from pipelines.storage import database
from pipelines.work.http import BROKEN, Again

LINE = (
    r"^\S+ (?P<title>\S+) (?:(?:(?P<page_id>\d{1,15})|null) )?(?:desktop|mobile-web|mobile-app) (?P<views>\d{1,15})"
    r"(?: \S+)?$"
)
FILE = re.compile(r"pageviews-(?P<month>\d{6})(?:\d\d)?-(?P<agents>user|spider|automated)\b")
BLOCK = 1 << 22  # bytes of lines parsed at once
PART = 1 << 22  # compressed bytes of a part: about 25 MB of lines
OTHERS = "other_project_views"  # lines that are only counted
SCHEMA = pa.schema({"title": pa.string(), "page_id": pa.int64(), "views": pa.int64()})

PAGES = re.compile(r"(?:^|-)page\.sql")  # in the name of a dump of the table `page`
COLUMNS = {"page_id": pa.int64(), "namespace": pa.int32(), "title": pa.string()}  # others follow
TABLES = {
    "page": COLUMNS,
    "redirect": COLUMNS | {"interwiki": pa.string(), "fragment": pa.binary()},
}  # cut UTF-8
ROW_END = b"),("
NO_ROWS = re.compile(
    rb"\s*(--|/\*|DROP |CREATE |LOCK |UNLOCK |SET |\)|`|PRIMARY |UNIQUE |KEY |$)"
)  # other lines

BATCH = 10_000  # rows of answers
SECONDS = 0.15  # for a request, usually
MONTHLY = pa.schema({"title": pa.string(), "month": pa.string(), "views": pa.int64()})
REDIRECTS = pa.schema({"target": pa.string(), "title": pa.string()})
REDIRECTING = {"prop": "redirects", "rdprop": "title", "rdnamespace": "0", "rdlimit": "max"}


def choose_files(
    files: Sequence[Path], months: Sequence[str], agents: str
) -> dict[str, list[Path]]:
    """Month -> the files that count, by their names: all for "all-agents", only those with views of people for "user".

    A file of another name is of the month, if there is one and all agents count; else it raises LongtailError, as do
    a file named after another month, and one of several months without files.
    """
    chosen: dict[str, list[Path]] = {month: [] for month in months}
    expected = months[0] if len(months) == 1 else f"{months[0]} to {months[-1]}"
    for file in files:
        named = FILE.match(file.name)
        if not named and (len(months) > 1 or agents == "user"):
            like = f"expected one like pageviews-{months[-1].replace('-', '')}-user.bz2"
            raise LongtailError(
                f"{file}: its name doesn't tell its month and whose views it has, {like}; rename it"
            )
        month = f"{named['month'][:4]}-{named['month'][4:]}" if named else months[-1]
        if month not in chosen:
            raise LongtailError(
                f"{file}: named after another month, expected {expected} (popularity.month)"
            )
        if agents == "all-agents" or named["agents"] == "user":
            chosen[month].append(file)
    if len(months) > 1 and (
        missing := [month for month, of_month in chosen.items() if not of_month]
    ):
        given = f"expected files of {expected} (popularity.months: {len(months)})"
        raise LongtailError(
            f"no page views of {', '.join(missing)}, {given}; bring them, or lower it"
        )
    return chosen


def read_views(
    path: Path,
    rejects: Rejects,
    project: str = ENGLISH.project,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[pa.Table]:
    """Yield tables (title as in the file, page_id or null, views) of one project's lines, BLOCK bytes at a time.

    The lines of one page in a block are summed. Bad lines of the project go to `rejects` (bad_line, not_utf8, and
    cut_line for a last line without its newline, whose number may lack digits); lines of other projects are only
    counted. Raises LongtailError if the file doesn't begin with page views.
    """
    if not begin and not re.search(f"(?m){LINE}".encode(), next(open_blocks(path))):
        raise LongtailError(
            f"{path}: none of its first lines is one of page views, expected `{project} Title 123 desktop 45 A1`; "
            "fetch a monthly pageview_complete file"
        )
    lines_before, begins = 0, f"{project} ".encode()
    for run in open_runs(
        path, BLOCK, bz2_blocks.open_lines(path, begin, end) if begin or end else None
    ):
        text = b"".join(run)
        whole = text.rfind(b"\n") + 1
        count = _newlines(text)
        if whole < len(text):
            rejects.read += 1
            rejects.add(
                path, lines_before + count + 1, "cut_line", text[whole:].decode("utf-8", "replace")
            )
        # Dumps are sorted by project, so between the first and the last line of this one hardly any is of another.
        first = 0 if text.startswith(begins) else text.find(b"\n" + begins, 0, whole) + 1 or whole
        rejects.skip(OTHERS, count)
        if first < whole:
            last = max(text.rfind(b"\n" + begins, first, whole), first)
            lines = pc.split_pattern(pa.array([text[first : text.find(b"\n", last + 1)]]), b"\n")[
                0
            ].values
            of_project = pc.starts_with(lines, begins)
            rows = np.flatnonzero(of_project) + lines_before + _newlines(text[:first]) + 1
            rejects.read += len(rows)
            rejects.skip(OTHERS, -len(rows))
            table = _parse(path, lines.filter(of_project), rows, rejects)
            sums = table.group_by(["title", "page_id"], use_threads=False).aggregate(
                [("views", "sum")]
            )
            yield sums.rename_columns(SCHEMA.names)
        lines_before += count


def _newlines(text: bytes) -> int:
    return int(
        np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    )  # bytes.count takes five times as long


def sum_views(db: duckdb.DuckDBPyConnection, parts: Sequence[Path]) -> None:
    """Create table views(title, views): the views, from `parts`, of the articles in table titles(title).

    Tables pages(page_id, title) and redirects(page_id, target), each id and title once, say how pages are called now. A
    request, whose title may have underscores and percent signs, counts for the first of these that is in `titles`:
    1. the article with the line's page id, even if it was moved since. A requested title that is both in `titles` and
       a redirect now keeps its views: its page id may be the target's.
    2. the article of the requested title
    3. the target of the redirect with the line's page id; if neither table has this page id, the redirects' target that
       most requests with it name
    4. the target of the requested title, if this title is a redirect now
    A redirect to a redirect is not followed further, as on Wikipedia. Articles without a view are not in the table.
    """
    db.register("no_parts", SCHEMA.empty_table())
    if parts:
        database.view(db, "parts", *parts)
    db.execute(  # unlike a GROUP BY with min() of texts, these joins and windows spill to disk
        f"""CREATE OR REPLACE TEMP TABLE requests AS SELECT title, page_id, sum(views)::BIGINT AS views FROM (
            SELECT replace(coalesce(try(url_decode(title)), title), '_', ' ') AS title, page_id, views
            FROM {"parts" if parts else "no_parts"}
        ) GROUP BY ALL;
        CREATE OR REPLACE TEMP TABLE by_page AS
        SELECT page_id, title AS article, true AS known FROM pages SEMI JOIN titles USING (title);
        INSERT INTO by_page SELECT page_id, target, false FROM redirects
            SEMI JOIN titles ON title = target ANTI JOIN by_page USING (page_id)
        UNION ALL
        SELECT page_id, title, false FROM (SELECT page_id, title, sum(views) AS views FROM requests GROUP BY ALL)
            SEMI JOIN titles USING (title) SEMI JOIN redirects ON target = title
            ANTI JOIN redirects USING (page_id) ANTI JOIN pages USING (page_id)
        WHERE page_id IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY page_id ORDER BY views DESC, title) = 1;
        CREATE OR REPLACE TEMP TABLE by_title AS SELECT title, titles.title IS NOT NULL AS known, target
        FROM titles FULL JOIN (
            SELECT title, target FROM pages JOIN redirects USING (page_id) SEMI JOIN titles ON titles.title = target
        ) AS renamed USING (title);
        CREATE OR REPLACE TEMP TABLE views AS SELECT article AS title, sum(views)::BIGINT AS views FROM (
            SELECT views, CASE WHEN by_page.known AND (target IS NULL OR NOT by_title.known) THEN article
                WHEN by_title.known THEN requests.title ELSE coalesce(article, target) END AS article
            FROM requests LEFT JOIN by_page ON by_page.page_id = requests.page_id
                LEFT JOIN by_title ON by_title.title = requests.title
        ) WHERE article IS NOT NULL GROUP BY article HAVING sum(views) > 0"""
    )


def _parse(path: Path, lines: pa.BinaryArray, rows: np.ndarray, rejects: Rejects) -> pa.Table:
    fields = pc.extract_regex(lines, LINE)
    bad = pc.invert(fields.is_valid())
    for i in pc.indices_nonzero(bad).to_pylist():
        rejects.add(path, int(rows[i]), "bad_line", lines[i].as_py().decode("utf-8", "replace"))
    good = pc.invert(bad)
    fields, lines, rows = (
        fields.filter(good),
        lines.filter(good),
        rows[good.to_numpy(zero_copy_only=False)],
    )
    titles, page_ids, views = (pc.struct_field(fields, name) for name in SCHEMA.names)
    try:
        titles = titles.cast(pa.string())
    except pa.ArrowInvalid:  # a title isn't UTF-8
        decoded = [title.decode("utf-8", "replace") for title in titles.to_pylist()]
        damaged = [
            text.encode() != title for text, title in zip(decoded, titles.to_pylist(), strict=True)
        ]
        for i in np.flatnonzero(damaged):
            rejects.add(path, int(rows[i]), "not_utf8", decoded[i])
        titles = pa.array(decoded, pa.string(), mask=np.array(damaged))
    page_ids = pc.if_else(pc.equal(page_ids, b""), None, page_ids)
    columns = [titles, page_ids.cast(pa.int64()), views.cast(pa.int64())]
    return pa.table(columns, schema=SCHEMA).filter(titles.is_valid())


def read_titles(path: Path, name: str) -> Iterator[pa.Table]:
    """Yield tables (page_id int64, title string, with spaces) of the MySQL dump of the table `name`, one of TABLES.

    They have the articles and redirects of the table `page`, and what the redirects to articles of this wiki lead to.
    Raises LongtailError naming the line if the file is damaged, cut, or another table's dump.
    """
    begin, has_rows = f"INSERT INTO `{name}` VALUES ".encode(), False
    for number, line in enumerate(open_lines(path), start=1):
        if line.startswith(begin):
            has_rows, rows = True, _parse_rows(path, number, line[len(begin) :], TABLES[name])
            chosen = pc.equal(rows["namespace"], 0)
            if "interwiki" in rows.column_names:
                chosen = pc.and_(chosen, pc.is_in(rows["interwiki"], pa.array(["", "NULL"])))
            rows = rows.filter(chosen)
            yield pa.table(
                {"page_id": rows["page_id"], "title": pc.replace_substring(rows["title"], "_", " ")}
            )
        elif not NO_ROWS.match(line):
            raise LongtailError(
                f"{path}: line {number}: begins with {line[:40]!r}, expected {begin.decode()}…"
            )
    if not has_rows:
        raise LongtailError(
            f"{path}: no row of a table {name} in it, expected lines {begin.decode()}…"
        )


def _parse_rows(
    path: Path, number: int, values: bytes, columns: dict[str, pa.DataType]
) -> pa.Table:
    """The first columns of the rows `(…),(…);` as a table, parsed as CSV with MySQL's quotes and escapes.

    The `),(` between rows becomes a newline. Within a title, which has no newlines, it is turned back.
    """
    values = values.rstrip(b"\r; ")
    types = {
        f"f{i}": kind for i, kind in enumerate(columns.values())
    }  # Arrow's names for columns without a head
    try:
        if values[:1] != b"(" or values[-1:] != b")":
            raise pa.ArrowInvalid("the line doesn't end in a row")
        rows = pa.csv.read_csv(
            io.BytesIO(values[1:-1].replace(ROW_END, b"\n") + b"\n"),
            pa.csv.ReadOptions(
                use_threads=False, block_size=len(values), autogenerate_column_names=True
            ),
            pa.csv.ParseOptions(
                quote_char="'", double_quote=False, escape_char="\\", newlines_in_values=True
            ),
            pa.csv.ConvertOptions(column_types=types, include_columns=list(types)),
        ).rename_columns(list(columns))
        if any(rows[name].null_count for name in COLUMNS):
            raise pa.ArrowInvalid("a row without page id, namespace or title")
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"{path}: line {number}: {reason}, expected rows ({', '.join(columns)})"
        ) from None
    return rows.set_column(2, "title", pc.replace_substring(rows["title"], "\n", ROW_END.decode()))


class _Item(msgspec.Struct):
    project: str
    article: str
    granularity: str
    timestamp: str
    agent: str
    views: int


class _Answer(msgspec.Struct):
    items: list[_Item]


def ask_views(
    client: Client,
    titles: pa.ChunkedArray,
    settings: Popularity,
    what: str = "articles",
    project: str = ENGLISH.project,
) -> Iterator[pa.Table]:
    """Yield tables with the columns of MONTHLY, in the titles' order; `what` the titles are is said first.

    A title has a row for each of `settings.months` months up to `settings.month` that the API has views of, or a row
    without month and views. Raises LongtailError if the month isn't over, or naming a malformed answer's address.
    """
    months = months_until(settings.month, settings.months)
    last = last_day(settings.month)
    if last >= date.today():
        raise LongtailError(
            f"params.yaml: popularity.month is {settings.month}, expected a month that is over"
        )
    hours = len(titles) * SECONDS / AT_ONCE / 3600
    print(
        f"popularity: {len(titles):,} {what} to ask for, {AT_ONCE} at once: about {hours:,.1f} hours",
        flush=True,
    )
    span = f"{months[0].replace('-', '')}0100/{last:%Y%m%d}00"

    def ask(title: str) -> list[tuple]:
        article = title.replace(" ", "_")
        url = (
            f"{settings.api}/metrics/pageviews/per-article/{project}/all-access/{settings.agents}/"
        )
        url += f"{quote(article, safe='')}/monthly/{span}"
        read = partial(
            _views, url, _Item(project, article, "monthly", "", settings.agents, 0), months
        )
        body = client.ask(url, check=read)
        if body is None:  # 404: the article had no view in these months
            client.keep(url, None, None)
            return [(title, None, None)]
        return [(title, month, views) for month, views in read(body).items()]

    yield from _tables(client.map(ask, titles.to_pylist(), "popularity"), MONTHLY)


def ask_redirects(client: Client, titles: pa.ChunkedArray, api: str) -> Iterator[pa.Table]:
    """Yield tables (target, title) of the titles that redirect to each of `titles` now, in the targets' order."""

    def ask(target: str) -> list[tuple]:
        def check(answer: Query) -> None:
            if len(answer.pages) != 1 or answer.pages[0].title != answer.passed(target)[-1]:
                raise Again(f"{len(answer.pages)} pages, expected {target} alone")

        answers = ask_query(
            client, api, REDIRECTING | {"titles": target}, "popularity.redirects_api", check
        )
        return [
            (target, redirect.title) for answer in answers for redirect in answer.pages[0].redirects
        ]

    yield from _tables(client.map(ask, titles.to_pylist(), "redirects"), REDIRECTS)


def _tables(answers: Iterable[list[tuple]], schema: pa.Schema) -> Iterator[pa.Table]:
    rows = (row for answer in answers for row in answer)
    while batch := list(islice(rows, BATCH)):
        columns = zip(*batch, strict=True)
        yield pa.table(
            [pa.array(*column) for column in zip(columns, schema.types, strict=True)], schema=schema
        )


def _views(url: str, expected: _Item, months: Sequence[str], body: bytes) -> dict[str, int]:
    """Month -> views in an answer. Raises Again where it is cut, LongtailError where it answers another question."""
    try:
        items = msgspec.json.decode(body, type=_Answer).items
    except BROKEN as error:
        raise Again(f"{error}, expected JSON with items") from None
    stamps = {f"{month.replace('-', '')}0100": month for month in months}
    found = {stamps[item.timestamp]: item.views for item in items if item.timestamp in stamps}
    others = [
        item for item in items if msgspec.structs.replace(item, timestamp="", views=0) != expected
    ]
    if others or not found or len(found) < len(items) or min(found.values()) < 0:
        span = f"{months[0]} alone" if len(months) == 1 else f"{months[0]} to {months[-1]} alone"
        said = f"the answer is {body[:200].decode('utf-8', 'replace')}, expected the views of {expected.article}"
        raise LongtailError(f"{url}: {said} in {span}")
    return found
