"""The rows of a file of JSON lines, of a JSON list or of Parquet."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.params import bounds
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import A_LINE, bounded_lines, is_parquet, open_blocks, parse_whole
from pipelines.storage import parquet

PARQUET_ROWS = 1 << 10  # rows of a Parquet file that are read at once


def json_rows(
    path: Path, rejects: Rejects, columns: Callable[[pa.Schema], Sequence[str]]
) -> Iterator[tuple[int, bytes | dict[str, Any]]]:
    """Yield (line or row from 1, row) of a file, which `rejects` counts: JSON, or a dict of
    Parquet.

    Of a Parquet file `columns(schema)` are read.
    """
    if is_parquet(path):
        rows = parquet.foreign_rows(path, columns, PARQUET_ROWS)
    elif next(open_blocks(path)).lstrip().startswith(b"["):
        rows = (json.dumps(record).encode() for record in parse_whole(path))
    else:
        yield from open_rows(path, rejects)
        return

    for number, row in enumerate(rows, start=1):
        rejects.read += 1
        yield number, row


def open_rows(path: Path, rejects: Rejects) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of the lines that aren't blank; `rejects` counts them and gets
    the lines too long.
    """
    for number, line in enumerate(bounded_lines(path), start=1):
        if line is None:
            rejects.read += 1
            rejects.add(path, number, "too_long", bounds.too_long(A_LINE))
        elif line and not line.isspace():
            rejects.read += 1
            yield number, line
