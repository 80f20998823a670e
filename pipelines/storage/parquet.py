"""Parquet files: each page is written with a checksum, which pyarrow compares while it reads. DuckDB does not."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.storage.file_kinds import check_link, head_of, refuse

WRITTEN = {"compression": "zstd", "write_page_checksum": True}
AGAIN = (
    "remove it, and `longtail run` brings it back; `longtail status --verify` looks at all outputs"
)
BATCH = 1 << 16  # rows
FEW = 8  # rows that are read at once however long their texts may be
DENSEST = 1000  # bytes of text for one on disk; Zstandard makes ten of ordinary texts
SHOWN = 200  # characters of what a library says
OF_FOREIGN = (
    "fetch or copy it again",
    (pa.ArrowException, OSError, UnicodeDecodeError),
)  # for `naming`


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, **WRITTEN)


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A file that tables are written to one after another, in a `with` block."""
    return pq.ParquetWriter(path, schema, **WRITTEN)


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, schema: pa.Schema | None = None
) -> pa.Table:
    """A file, or some columns, in memory; with `schema` its columns, null where the file lacks them."""
    options = {"schema": schema, "partitioning": None, "page_checksum_verification": True}
    with naming(path):
        return pq.read_table(path, columns=columns and list(columns), **options)


def batches(
    path: Path,
    size: int = BATCH,
    columns: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    mapped: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of some row groups, `size` at a time; `mapped` into memory, by this thread alone."""
    with (
        naming(path),
        pq.ParquetFile(path, memory_map=mapped, page_checksum_verification=True) as file,
    ):
        yield from file.iter_batches(
            size, groups, columns and list(columns), use_threads=not mapped
        )


def foreign_rows(
    path: Path, columns: Callable[[pa.Schema], Sequence[str]], size: int
) -> Iterator[dict[str, Any]]:
    """The rows of a file from elsewhere, of the columns that `columns` chooses, up to `size` at once.

    Raises LongtailError if it is damaged, or a thousand bytes stand for gigabytes.
    """
    options = {"buffer_size": 1 << 20, "page_checksum_verification": True}
    with naming(path, *OF_FOREIGN), pq.ParquetFile(path, **options) as file:
        if twice := [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]:
            raise LongtailError(f"{path}: two columns {twice[0]!r}, expected one of each name")
        names = list(columns(file.schema_arrow))
        rows = _rows_that_fit(path, file.metadata, {name.partition(".")[0] for name in names}, size)
        for batch in file.iter_batches(rows, columns=names, use_threads=False):
            yield from batch.to_pylist()


def _rows_that_fit(path: Path, about: pq.FileMetaData, columns: Collection[str], size: int) -> int:
    """How many rows have few records' bytes; LongtailError for texts that are far smaller on disk than texts are."""
    for group, number in product(range(about.num_row_groups), range(about.num_columns)):
        chunk = about.row_group(group).column(number)
        if chunk.path_in_schema.partition(".")[0] in columns:
            length = max(chunk.total_uncompressed_size, 1)
            if length > max(bounds.WHOLE, DENSEST * chunk.total_compressed_size):
                raise bounds.too_large(
                    f"{path}: {chunk.path_in_schema} in row group {group}", "shorter texts"
                )
            # a text may stand once in the file for many rows, so that few rows have far more than their share
            size = min(
                size,
                max(1, bounds.RECORD * chunk.num_values // length),
                max(FEW, bounds.RECORD // length),
            )
    return size


def row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Each row group of a file; LongtailError if it is missing or damaged."""
    with naming(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns and list(columns))


def metadata(path: Path) -> pq.FileMetaData:
    """What stands at a file's end, as its number of rows; LongtailError if it is missing or damaged."""
    with naming(path):
        return pq.read_metadata(path)


def schema_of(path: Path, again: str = AGAIN) -> pa.Schema:
    """The columns of a file; LongtailError, which ends in what to do, if it is missing or damaged."""
    with naming(path, again):
        return pq.read_schema(path)


@contextmanager
def naming(
    path: Path,
    again: str = AGAIN,
    errors: tuple[type[Exception], ...] = (pa.ArrowException, OSError),
) -> Iterator[None]:
    """Turn a reader's error into one that says what stands in the file's place, if that is known, and what to do."""
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
        said = " ".join(str(error).split())[:SHOWN]
        raise LongtailError(
            f"{path}: damaged ({said}), expected a Parquet file as it was written; {again}"
        ) from None
