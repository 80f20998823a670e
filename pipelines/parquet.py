"""Parquet files: each page is written with a checksum, and no page is used that differs from its checksum.

pyarrow compares checksums while it reads. DuckDB does not know them: `check` compares them before DuckDB reads a file
(see `database.view`), in some 6% of the time that DuckDB needs. Files from elsewhere may have none.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from pipelines import bounds
from pipelines.errors import LongtailError

WRITTEN = {"compression": "zstd", "write_page_checksum": True}
AGAIN = "remove it, and `longtail run` brings it back; `longtail status --verify` looks at all outputs"
BATCH = 1 << 16  # rows
USUAL = 1 << 21  # bytes of a page, which writers end at 1 MB unless a single value is longer
SHOWN = 200  # characters of what a library says
# Fields of a page's header, by their numbers: two lengths, and two kinds of data, which say how many values they have.
LENGTH = 2
SIZE = 3  # compressed
CHECKSUM = 4
DATA = 5
DATA_V2 = 8
VALUES = 1


_checked: set[tuple[str, int, int]] = set()  # (path, size, time) of files that this process has compared as a whole


def write(table: pa.Table, path: Path) -> None:
    """Write a table to a file."""
    pq.write_table(table, path, **WRITTEN)


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A file that tables are written to one after another, in a `with` block."""
    return pq.ParquetWriter(path, schema, **WRITTEN)


def read(path: Path, columns: Sequence[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
    """A file, or some of its columns, in memory; LongtailError if it is missing or damaged.

    With `schema` the table has its columns, which are null where the file lacks them.
    """
    with naming(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        if schema is None:
            return file.read(columns and list(columns))
        table = file.read([name for name in schema.names if name in file.schema_arrow.names])
        arrays = [
            table[name].cast(kind) if name in table.column_names else pa.nulls(len(table), kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        return pa.table(arrays, schema=schema)


def batches(
    path: Path,
    size: int = BATCH,
    columns: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    mapped: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of some of its row groups, `size` at a time; LongtailError if it is missing or damaged.

    With `mapped` the file is mapped into memory and read by this thread alone.
    """
    with naming(path), pq.ParquetFile(path, memory_map=mapped, page_checksum_verification=True) as file:
        yield from file.iter_batches(size, groups, columns and list(columns), use_threads=not mapped)


def foreign(path: Path, columns: Callable[[pa.Schema], Sequence[str]], size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file from elsewhere, in batches of up to `size` rows and of few records' bytes.

    `columns` chooses from the file's columns. Raises LongtailError if the file is damaged, or a page of it is longer
    than `bounds.whole`: a thousand bytes can stand for gigabytes.
    """
    try:
        with pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True) as file:
            if twice := [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]:
                raise LongtailError(f"{path}: two columns {twice[0]!r}, expected one of each name")
            names = list(columns(file.schema_arrow))
            rows = _rows_that_fit(path, file.metadata, {name.partition(".")[0] for name in names}, size)
            yield from file.iter_batches(rows, columns=names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _corrupt(path, error) from None


def foreign_rows(path: Path, columns: Callable[[pa.Schema], Sequence[str]], size: int) -> Iterator[dict[str, Any]]:
    """The rows of `foreign` as dictionaries."""
    for batch in foreign(path, columns, size):
        try:
            yield from batch.to_pylist()
        except UnicodeDecodeError as error:
            raise _corrupt(path, error) from None


def _corrupt(path: Path, error: Exception) -> LongtailError:
    said = " ".join(str(error).split())[:SHOWN]
    return LongtailError(f"{path}: corrupt, expected a Parquet file ({said}); fetch or copy it again")


def _rows_that_fit(path: Path, about: pq.FileMetaData, columns: Collection[str], size: int) -> int:
    """How many rows have at most the bytes of a few records together, by the lengths and values of all pages."""
    most = bounds.whole()
    for position, header, _ in _pages(path, about, columns, None):
        length = max(header.get(LENGTH, 1), 1)
        if length > most:
            raise bounds.too_large(f"{path}: the page at byte {position}", "shorter texts")
        data = header.get(DATA) or header.get(DATA_V2)
        values = data.get(VALUES, 1) if isinstance(data, dict) else 1  # each row can name a dictionary's longest value
        fit = most if length <= USUAL else bounds.record()  # it is there three times while it becomes Python's
        size = min(size, max(1, values * fit // length))
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
def naming(path: Path, again: str = AGAIN) -> Iterator[None]:
    """Turn pyarrow's error about a file into a LongtailError that names the file and ends with what to do."""
    try:
        yield
    except FileNotFoundError:
        raise LongtailError(f"{path}: no such file; `longtail run` makes it") from None
    except PermissionError:
        raise
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:SHOWN]
        raise LongtailError(f"{path}: damaged ({said}), expected a Parquet file as it was written; {again}") from None


def check(path: Path, columns: Collection[str] | None = None, groups: Collection[int] | None = None) -> None:
    """Compare a file's pages, or those of some columns or row groups, with their checksums; a whole file only once.

    Raises LongtailError for a page that is not as it was written.
    """
    with naming(path):
        state = path.stat()
        key = (str(path), state.st_size, state.st_mtime_ns)
        if key in _checked:
            return
        about = pq.read_metadata(path)
        for position, header, page in _pages(path, about, columns, groups):
            if CHECKSUM in header and isal_zlib.crc32(page) != header[CHECKSUM] % 2**32:
                raise OSError(f"the page at byte {position} is not as it was written")
        if columns is None and groups is None:
            _checked.add(key)


def _pages(
    path: Path, about: pq.FileMetaData, columns: Collection[str] | None, groups: Iterable[int] | None
) -> Iterator[tuple[int, dict[int, Any], memoryview]]:
    """Yield (place, header, bytes) of each page, of some columns and row groups; OSError where there is no page."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        groups = range(about.num_row_groups) if groups is None else groups
        for group, number in product(groups, range(about.num_columns)):
            chunk = about.row_group(group).column(number)
            if columns is not None and chunk.path_in_schema.partition(".")[0] not in columns:
                continue
            first = chunk.dictionary_page_offset if chunk.has_dictionary_page else 0  # some writers give 0
            position = first or chunk.data_page_offset
            end = position + chunk.total_compressed_size
            while position < end:  # pages lie one behind the other, each behind its header
                try:
                    header, start = _fields(data, position)
                    stop = start + header[SIZE]
                except (IndexError, KeyError):
                    start = stop = 0
                if not 0 <= position < start <= stop <= len(data):  # some writers leave a header out of the sizes
                    raise OSError(f"no page of column {chunk.path_in_schema} begins at byte {position}")
                with memoryview(data) as view, view[start:stop] as page:
                    yield position, header, page
                position = stop


# A page's header is a struct in Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs


def _fields(data: mmap.mmap, position: int) -> tuple[dict[int, Any], int]:
    """The 32-bit fields and structs of the struct at `position`, by their numbers, and the position behind it."""
    fields, number = {}, 0
    while head := data[position]:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _signed(data, position)
        if head & 15 == 5:
            fields[number], position = _signed(data, position)
        elif head & 15 == 12:
            fields[number], position = _fields(data, position)
        else:
            position = _behind(data, position, head & 15)
    return fields, position + 1


def _behind(data: mmap.mmap, position: int, kind: int) -> int:
    """The position behind a value of this kind."""
    match kind:
        case 1 | 2:  # true and false have no bytes
            return position
        case 3:
            return position + 1
        case 4 | 6:
            return _varint(data, position)[1]
        case 7:
            return position + 8
        case 8:
            length, position = _varint(data, position)
            return position + length
    raise IndexError(f"no header has a field of kind {kind}")


def _signed(data: mmap.mmap, position: int) -> tuple[int, int]:
    value, position = _varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[position]) > 127 and shift < 70:
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
    return value | byte << shift, position + 1
