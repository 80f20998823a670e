"""Read and write Parquet files. Each page has a checksum, which pyarrow compares while it reads.

DuckDB does not compare checksums.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import LongtailError, one_line
from pipelines.params import bounds
from pipelines.storage.file_kinds import check_link, head_of, refuse
from pipelines.tables.table import Table

WRITE_OPTIONS = {"compression": "zstd", "write_page_checksum": True}
MEND_OUTPUT = (
    "remove it, and `longtail run` brings it back; `longtail status --verify` looks at all outputs"
)
MEND_FOREIGN = "fetch or copy it again"
ROWS_PER_BATCH = 1 << 16  # rows
MIN_ROWS = 8  # rows that are read at once however long their texts may be
MAX_RATIO = 1000  # bytes of text for one on disk; ordinary texts have ten by Zstandard
MESSAGE_LENGTH = 200  # characters of a library's message that are shown


def write_parquet(table: pa.Table, path: Path, declared: Table | None = None) -> None:
    """Write a table to a file. If it is `declared`, it has to have these columns."""
    if declared:
        declared.check(table.schema)
    pq.write_table(table, path, **WRITE_OPTIONS)


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A file that tables are written to one after another, in a `with` block."""
    return pq.ParquetWriter(path, schema, **WRITE_OPTIONS)


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, schema: pa.Schema | None = None
) -> pa.Table:
    """A file, or some `columns` of it, in memory.

    With a `schema`, the table has its columns. They are null where the file lacks them.
    """
    options = {"schema": schema, "partitioning": None, "page_checksum_verification": True}
    with naming(path):
        return pq.read_table(path, columns=columns and list(columns), **options)


def read_note(schema: pa.Schema, key: bytes) -> dict[str, Any]:
    """The JSON object that a file's metadata have under a key; an empty one if they have none."""
    metadata = schema.metadata or {}
    return json.loads(metadata.get(key, b"{}"))


def batches(
    path: Path,
    size: int = ROWS_PER_BATCH,
    columns: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    mapped: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of some row `groups`, `size` at a time.

    A `mapped` file is mapped into memory, and this thread alone reads it.
    """
    options = {"memory_map": mapped, "page_checksum_verification": True}
    with naming(path), pq.ParquetFile(path, **options) as file:
        names = columns and list(columns)
        yield from file.iter_batches(size, groups, names, use_threads=not mapped)


def foreign_rows(
    path: Path, columns: Callable[[pa.Schema], Sequence[str]], size: int
) -> Iterator[dict[str, Any]]:
    """The rows of a file from elsewhere, read up to `size` at once.

    `columns(schema)` chooses the columns.

    Raises LongtailError if the file is damaged, or a thousand of its bytes stand for gigabytes.
    """
    errors = (pa.ArrowException, OSError, UnicodeDecodeError)
    options = {"buffer_size": 1 << 20, "page_checksum_verification": True}
    with naming(path, MEND_FOREIGN, errors), pq.ParquetFile(path, **options) as file:
        for name, count in Counter(file.schema_arrow.names).items():
            if count > 1:
                raise LongtailError(f"{path}: two columns {name!r}, expected one of each name")

        names = list(columns(file.schema_arrow))
        top_names = {name.partition(".")[0] for name in names}
        n_rows = _rows_that_fit(path, file.metadata, top_names, size)
        for batch in file.iter_batches(n_rows, columns=names, use_threads=False):
            for row in batch.to_pylist():
                yield {name: _as_text(value) for name, value in row.items()}


def _as_text(value: Any) -> Any:
    """A column's value; bytes that are UTF-8 are a text, as some programs write one."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return value


def _rows_that_fit(path: Path, meta: pq.FileMetaData, columns: Collection[str], size: int) -> int:
    """How many rows, at most `size`, have no more bytes than a few records may have.

    Raises LongtailError for texts that are far smaller on disk than texts are.
    """
    n_rows = size
    for group in range(meta.num_row_groups):
        for number in range(meta.num_columns):
            chunk = meta.row_group(group).column(number)
            if chunk.path_in_schema.partition(".")[0] not in columns:
                continue

            length = max(chunk.total_uncompressed_size, 1)
            if length > max(bounds.WHOLE, MAX_RATIO * chunk.total_compressed_size):
                where = f"{path}: {chunk.path_in_schema} in row group {group}"
                raise bounds.too_large(where, "shorter texts")

            # A text may stand once in the file for many rows. A few rows then have far more
            # bytes than their share.
            by_share = max(1, bounds.RECORD * chunk.num_values // length)
            by_length = max(MIN_ROWS, bounds.RECORD // length)
            n_rows = min(n_rows, by_share, by_length)
    return n_rows


def row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Each row group of a file; LongtailError if it is missing or damaged."""
    with naming(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns and list(columns))


def metadata(path: Path) -> pq.FileMetaData:
    """A file's metadata, as its number of rows; LongtailError if it is missing or damaged."""
    with naming(path):
        return pq.read_metadata(path)


def schema_of(path: Path, mend: str = MEND_OUTPUT) -> pa.Schema:
    """The columns of a file. Raises LongtailError, with the advice `mend`, if it is damaged."""
    with naming(path, mend):
        return pq.read_schema(path)


@contextmanager
def naming(
    path: Path,
    mend: str = MEND_OUTPUT,
    errors: tuple[type[Exception], ...] = (pa.ArrowException, OSError),
) -> Iterator[None]:
    """Turn a reader's error into one that says what is wrong, and how to `mend` the file."""
    try:
        yield
    except FileNotFoundError:
        check_link(path)
        raise LongtailError(f"{path}: no such file; `longtail run` makes it") from None
    except PermissionError:
        raise
    except errors as error:
        with suppress(OSError):
            refuse(path, head_of(path))
        reason = one_line(error)[:MESSAGE_LENGTH]
        raise LongtailError(
            f"{path}: damaged ({reason}), expected a Parquet file as it was written; {mend}"
        ) from None
