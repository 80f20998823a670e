"""English Wikipedia's redirects, from the MySQL dump of MediaWiki's table `redirect` (*-redirect.sql.gz).

A line `INSERT INTO `redirect` VALUES (…),(…);` holds thousands of rows: the redirect's page id, and its target as
namespace, 'title', 'interwiki' and 'fragment'.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.errors import LongtailError
from pipelines.sources.streams import open_lines

INSERT = b"INSERT INTO `redirect` VALUES "
COLUMNS = {
    "page_id": pa.int64(),
    "namespace": pa.int32(),
    "title": pa.string(),
    "interwiki": pa.string(),
    "fragment": pa.binary(),  # cut at 255 bytes, so perhaps not UTF-8
}
ROW_END = b"),("


def read_redirects(path: Path) -> Iterator[pa.Table]:
    """Yield tables (page_id int64, target string: a title with spaces) of the redirects to articles of this wiki.

    Raises LongtailError naming the line if the file is damaged, cut, or another table's dump.
    """
    has_rows = False
    for number, line in enumerate(open_lines(path), start=1):
        if line.startswith(INSERT):
            has_rows = True
            rows = _parse(path, number, line[len(INSERT) :])
            to_article = pc.and_(pc.equal(rows["namespace"], 0), pc.is_in(rows["interwiki"], pa.array(["", "NULL"])))
            rows = rows.filter(to_article)
            yield pa.table({"page_id": rows["page_id"], "target": pc.replace_substring(rows["title"], "_", " ")})
    if not has_rows:
        raise LongtailError(
            f"{path}: no redirect in it, expected lines INSERT INTO `redirect` VALUES …; fetch enwiki-…-redirect.sql.gz"
        )


def _parse(path: Path, number: int, values: bytes) -> pa.Table:
    """The rows `(…),(…);` as a table, parsed as CSV with MySQL's quotes and escapes.

    The `),(` between rows becomes a newline. A title may hold `),(` too; there the newline is turned back, as no title
    has newlines.
    """
    values = values.rstrip(b"\r; ")
    try:
        if values[:1] != b"(" or values[-1:] != b")":
            raise pa.ArrowInvalid("the line doesn't end in a row")
        rows = pa.csv.read_csv(
            io.BytesIO(values[1:-1].replace(ROW_END, b"\n")),
            pa.csv.ReadOptions(use_threads=False, block_size=len(values), column_names=list(COLUMNS)),
            pa.csv.ParseOptions(quote_char="'", double_quote=False, escape_char="\\", newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=COLUMNS),
        )
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"{path}: line {number}: {reason}, expected rows (page id, namespace, 'title', 'interwiki', 'fragment'); "
            "fetch it again"
        ) from None
    return rows.set_column(2, "title", pc.replace_substring(rows["title"], "\n", ROW_END.decode()))
