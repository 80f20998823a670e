"""MySQL dumps of MediaWiki's tables: which title a page has, and which page redirects where.

The table `page` is in files called *-page.sql.gz, the table `redirect` in *-redirect.sql.gz.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.errors import LongtailError, one_line
from pipelines.sources.streams import open_lines
from pipelines.tables.table import INT32, INT64, STRING

PAGE_FILE = re.compile(r"(?:^|-)page\.sql")  # in the name of a dump of the table `page`
COLUMNS = {"page_id": INT64, "namespace": INT32, "title": STRING}
TABLES = {  # the first columns of a table's rows; others follow
    "page": COLUMNS,
    # a long fragment is cut within a character of UTF-8
    "redirect": COLUMNS | {"interwiki": STRING, "fragment": pa.binary()},
}
ROW_END = b"),("
LINE_WITHOUT_ROWS = re.compile(
    rb"\s*(--|/\*|DROP |CREATE |LOCK |UNLOCK |SET |\)|`|PRIMARY |UNIQUE |KEY |$)"
)


def read_titles(path: Path, name: str) -> Iterator[pa.Table]:
    """Yield tables (page_id int64, title string, with spaces) of the dump of the table `name`, one
    of TABLES.

    Of the table `page` they have the articles and redirects; of `redirect` the titles that
    redirects to articles of this wiki lead to. Raises LongtailError naming the line if the file is
    damaged, cut, or another table's dump.
    """
    prefix = f"INSERT INTO `{name}` VALUES ".encode()
    has_rows = False
    for number, line in enumerate(open_lines(path), start=1):
        if line.startswith(prefix):
            has_rows = True
            rows = _parse_rows(path, number, line[len(prefix) :], TABLES[name])
            is_article = pc.equal(rows["namespace"], 0)
            if "interwiki" in rows.column_names:
                is_here = pc.is_in(rows["interwiki"], pa.array(["", "NULL"]))
                is_article = pc.and_(is_article, is_here)
            articles = rows.filter(is_article)
            titles = pc.replace_substring(articles["title"], "_", " ")
            yield pa.table({"page_id": articles["page_id"], "title": titles})
        elif not LINE_WITHOUT_ROWS.match(line):
            raise LongtailError(
                f"{path}: line {number}: begins with {line[:40]!r}, expected {prefix.decode()}…"
            )

    if not has_rows:
        raise LongtailError(
            f"{path}: no row of a table {name} in it, expected lines {prefix.decode()}…"
        )


def _parse_rows(
    path: Path, number: int, values: bytes, columns: dict[str, pa.DataType]
) -> pa.Table:
    """The first columns of the rows `(…),(…);` as a table, parsed as CSV with MySQL's quotes and
    escapes.

    The `),(` between rows becomes a newline. Within a title, which has no newlines, it is turned
    back.
    """
    values = values.rstrip(b"\r; ")
    try:
        if values[:1] != b"(" or values[-1:] != b")":
            raise pa.ArrowInvalid("the line doesn't end in a row")
        rows = _read_csv(values[1:-1].replace(ROW_END, b"\n") + b"\n", columns)
        if any(rows[name].null_count for name in COLUMNS):
            raise pa.ArrowInvalid("a row without page id, namespace or title")
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        reason = one_line(error)[:200]
        raise LongtailError(
            f"{path}: line {number}: {reason}, expected rows ({', '.join(columns)})"
        ) from None

    titles = pc.replace_substring(rows["title"], "\n", ROW_END.decode())
    return rows.set_column(2, "title", titles)


def _read_csv(text: bytes, columns: dict[str, pa.DataType]) -> pa.Table:
    types = {}
    for place, column_type in enumerate(columns.values()):
        types[f"f{place}"] = column_type  # Arrow's names for columns without a head
    read_options = pa.csv.ReadOptions(
        use_threads=False, block_size=len(text), autogenerate_column_names=True
    )
    parse_options = pa.csv.ParseOptions(
        quote_char="'", double_quote=False, escape_char="\\", newlines_in_values=True
    )
    convert_options = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
    rows = pa.csv.read_csv(io.BytesIO(text), read_options, parse_options, convert_options)
    return rows.rename_columns(list(columns))
