"""Which English Wikipedia pages redirect to which: MediaWiki's table `redirect` as dumped by MySQL (*-redirect.sql.gz).

A line `INSERT INTO `redirect` VALUES (…),(…);` holds thousands of rows (page id, namespace, 'title', 'interwiki',
'fragment') of the redirects' targets.
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
    "fragment": pa.binary(),  # cut at 255 bytes, perhaps within a character
}
BETWEEN = b"),("


def read_redirects(path: Path) -> Iterator[pa.Table]:
    """Yield tables (page_id int64, target string: a title with spaces) of the redirects to articles of this wiki.

    Raises LongtailError naming the line when the file is damaged, cut, or another table's dump.
    """
    seen = False
    for number, line in enumerate(open_lines(path), start=1):
        if line.startswith(INSERT):
            seen = True
            rows = _parse(path, number, line[len(INSERT) :])
            ours = pc.and_(pc.equal(rows["namespace"], 0), pc.is_in(rows["interwiki"], pa.array(["", "NULL"])))
            rows = rows.filter(ours)
            yield pa.table({"page_id": rows["page_id"], "target": pc.replace_substring(rows["title"], "_", " ")})
    if not seen:
        raise LongtailError(
            f"{path}: no redirect in it, expected lines INSERT INTO `redirect` VALUES …; fetch enwiki-…-redirect.sql.gz"
        )


def _parse(path: Path, number: int, values: bytes) -> pa.Table:
    """The rows `(…),(…);` as a table, by a CSV parser that knows MySQL's quotes and escapes.

    What parts rows becomes a newline; in a quoted title it does too, and is put back there: no title has newlines.
    """
    values = values.rstrip(b"\r; ")
    try:
        if values[:1] != b"(" or values[-1:] != b")":
            raise pa.ArrowInvalid("the line doesn't end in a row")
        rows = pa.csv.read_csv(
            io.BytesIO(values[1:-1].replace(BETWEEN, b"\n")),
            pa.csv.ReadOptions(use_threads=False, block_size=len(values), column_names=list(COLUMNS)),
            pa.csv.ParseOptions(quote_char="'", double_quote=False, escape_char="\\", newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=COLUMNS),
        )
    except pa.ArrowInvalid as error:
        told = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"{path}: line {number}: {told}, expected rows (page id, namespace, 'title', 'interwiki', 'fragment'); "
            "fetch it again"
        ) from None
    return rows.set_column(2, "title", pc.replace_substring(rows["title"], "\n", BETWEEN.decode()))
