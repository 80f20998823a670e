"""A file of any kind as records: tables, JSON, JSON lines and Parquet, known by their content."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign import json_records
from pipelines.foreign.record_file import (
    Cells,
    RecordFile,
    field_paths,
    jq_command,
    jq_of_lines,
    listed,
    plain,
    rows_as_records,
)
from pipelines.foreign.unreadable import replace_unreadable
from pipelines.safe_text import mended
from pipelines.sources.delimited import one_row, strict_rows
from pipelines.sources.streams import (
    is_parquet,
    open_escaped,
    read_head,
)

PARQUET_BATCH = 1 << 10  # rows
TABLES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV", "|": "CSV with bars"}
JSON_LIST = re.compile(r"\[[\[\s]*(?:[{\"\]]|$)")  # begins a list, or a list of lists
FEW_ROWS = 0.05  # share of the rows that may have a column more than the first


@contextmanager
def showing_columns(shown: str) -> Iterator[None]:
    """Say in each LongtailError about a file which columns it has (`RecordFile.shown`)."""
    try:
        yield
    except LongtailError as error:
        if shown in str(error):
            raise
        raise LongtailError(f"{error}; {shown}") from None


def read_records(path: Path, known: Collection[str], expected: str) -> RecordFile:
    """Open a file of records.

    `known` are the plain names of fields that someone would read; `expected` says in words which
    they are. Raises LongtailError where the file is damaged or empty, has one of them twice, is a
    table without any, or seems to be in another encoding.
    """
    file = _open_parquet(path) if is_parquet(path) else _open_text(path, known, expected)
    first = next(file.records, None)
    columns = file.columns or list(first or ())
    with showing_columns(f"its columns are {listed(columns)}"):
        times = Counter(map(plain, columns))
        twice = [name for name in times if times[name] > 1 and name in known]
        if twice:
            raise LongtailError(
                f"{path}: two columns {twice[0]!r} (capitals make no difference), expected one; "
                "drop one"
            )
        if first is None:
            has = "nothing in it but a header" if columns else "no row in it"
            raise LongtailError(
                f"{path}: {has}, expected a row for each question; check how it was written"
            )

    paths = list(field_paths(first))
    shown = f"its columns are {listed(paths)}"
    if file.place and paths != columns:
        program = f"-c '{file.place} | {{NAME: .PATH, NAME: .PATH}}'"
        shown += f", and others are named so: {jq_command(path, program)}"
    return replace(file, columns=columns, records=chain([first], file.records), shown=shown)


def to_columns(path: Path, rows: Iterable[dict[str, Any]], notes: list[str]) -> Cells:
    """The cells of each column that the first row has.

    A column that only few of the later rows have is left aside, and a line of `notes` names it.
    Raises LongtailError for other rows with others than the first has.
    """
    columns: Cells = {}
    rows_with: dict[str, list[int]] = {}  # column that the first row lacks -> rows that have it
    n_rows = 0
    for number, row in enumerate(rows, start=1):
        n_rows = number
        if number == 1:
            columns = {name: [] for name in row}
        lacking = columns.keys() - row.keys()
        if lacking:
            raise _other_columns(path, number, lacking)
        for name, cells in columns.items():
            cells.append(row[name])
        for name in row.keys() - columns.keys():
            rows_with.setdefault(name, []).append(number)

    for name, numbers in sorted(rows_with.items()):
        if len(numbers) > FEW_ROWS * n_rows:
            raise _other_columns(path, numbers[0], [name])
        notes.append(f"`{name}` of row {numbers[0]} is left aside, as the first row has none")
    return columns


def _other_columns(path: Path, row: int, names: Iterable[str]) -> LongtailError:
    return LongtailError(
        f"{path}: row {row}: other columns than the first ({listed(sorted(names))})"
    )


def _open_parquet(path: Path) -> RecordFile:
    from pipelines.storage import parquet  # pyarrow, which a table of text does without

    names = parquet.schema_of(path, mend="fetch or copy it again").names
    rows = parquet.foreign_rows(path, lambda schema: schema.names, PARQUET_BATCH)
    return RecordFile("Parquet", rows, names)


def _open_text(path: Path, known: Collection[str], expected: str) -> RecordFile:
    head = read_head(path).lstrip().decode("utf-8", "replace")
    if not head:
        raise LongtailError(
            f"{path}: nothing but blank lines, expected data; check how it was written"
        )
    if "\r" in head and "\n" not in head:
        name = shlex.quote(path.name)
        raise LongtailError(
            f"{path}: its lines end in \\r alone, expected \\n; "
            f"tr '\\r' '\\n' < {name} > {shlex.quote('new-' + path.name)} converts it"
        )
    if JSON_LIST.match(head):
        file = json_records.open_list(path, known)
    elif head[0] == "{":
        file = json_records.open_objects(path, known)
    else:
        file = _open_table(path, known, expected)

    return replace(file, records=replace_unreadable(path, file.records, file.notes))


def _open_table(path: Path, known: Collection[str], expected: str) -> RecordFile:
    """A table, by the delimiter that makes the most known columns, or else the most columns."""
    header = next(line for line in open_escaped(path) if line.strip())
    columns_by = {delimiter: one_row([header], delimiter) or [header] for delimiter in TABLES}

    def fit(delimiter: str) -> tuple[int, int]:
        columns = columns_by[delimiter]
        return sum(plain(name) in known for name in columns), len(columns)

    delimiter = max(TABLES, key=fit)
    n_known, n_columns = fit(delimiter)
    if not n_known:
        raise LongtailError(
            f"{path}: its columns are {listed(columns_by[delimiter])}, expected {expected}; rename "
            f"one, or add a header; if each line is a prediction: {jq_of_lines(path)}"
        )

    kind = TABLES[delimiter]
    rows = strict_rows(path, open_escaped(path), delimiter)
    if delimiter == "\t" and not _quotes_close(path, n_columns):
        kind += " without quotes"
        rows = _rows_without_quotes(path)

    _, header_cells = next(rows)
    names = list(map(mended, header_cells))
    return RecordFile(kind, rows_as_records(path, names, rows), names)


def _rows_without_quotes(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(open_escaped(path), start=1):
        if line.strip():
            yield number, line.rstrip("\r").split("\t")


def _quotes_close(path: Path, n_columns: int) -> bool:
    """Whether quotes in a file with tabs enclose cells.

    They are ordinary characters if all lines have `n_columns` cells as they stand, and one of them
    has another number of cells once its quotes are read.
    """
    all_close = True
    for line in open_escaped(path):
        if not line.strip():
            continue
        if line.count("\t") != n_columns - 1:
            return True
        if '"' in line:
            cells = one_row([line], "\t") or ()
            all_close = all_close and len(cells) == n_columns
    return all_close
