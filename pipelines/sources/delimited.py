"""Rows of CSV and TSV files, in which a stray quote costs its own row alone."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources.streams import open_escaped

# This holds for the whole process: what one reader permits must not depend on another that is open.
csv.field_size_limit(bounds.RECORD)
LONGEST_CELL = 1 << 17  # characters of a cell that `one_row` reads
# The most lines of a row. Together they have at most `bounds.RECORD` characters.
LINES_PER_ROW = 100


def table_rows(
    path: Path, delimiter: str, columns: int
) -> Iterator[tuple[int, list[str] | None, str]]:
    """Yield (line number from 1, cells, the line's text) of each row; cells are None as in
    `one_row`.

    A row is one line. A quoted cell may span lines, if the row then has as many cells as there are
    `columns`. A blank line has no cells. A byte that is not UTF-8 is a character of
    safe_text.UNREADABLE. Raises the errors of `open_lines`.
    """
    lines = enumerate(open_escaped(path), start=1)
    ahead = deque(islice(lines, 1))  # lines that are read, but not yet part of a row
    while ahead:
        number, text = ahead.popleft()
        cells = one_row([text], delimiter)
        if cells is None:
            _read_ahead(lines, ahead, len(text))
            row = _row_of_lines(text, ahead, delimiter, columns)
            if row:
                cells, lines_used = row
                for _ in range(lines_used):
                    ahead.popleft()
        yield number, cells, text

        if not ahead:
            ahead = deque(islice(lines, 1))


def _read_ahead(
    lines: Iterator[tuple[int, str]], ahead: deque[tuple[int, str]], characters: int
) -> None:
    """Read as many lines as a row may have, of which the first one has so many `characters`."""
    characters += sum(len(line) for _, line in ahead)
    while len(ahead) < LINES_PER_ROW - 1 and characters <= bounds.RECORD:
        line = next(lines, None)
        if line is None:
            return
        ahead.append(line)
        characters += len(line[1])


def _row_of_lines(
    text: str, ahead: Iterable[tuple[int, str]], delimiter: str, columns: int
) -> tuple[list[str], int] | None:
    """The cells of a row that begins with the line `text`, and the lines of `ahead` it takes."""
    lines = [text]
    for _, line in ahead:
        lines.append(line)
        cells = one_row(lines, delimiter)
        if cells and len(cells) == columns:
            return cells, len(lines) - 1
    return None


def strict_rows(
    path: Path, lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its last line, from 1; its cells) of each row that isn't blank.

    `lines` are those of the file, without their ends. Quoted cells may span any number of them.
    Raises LongtailError naming the line of a quote that is out of place.
    """
    ended = (line + "\n" for line in lines)
    reader = csv.reader(ended, delimiter=delimiter, strict=True)
    first_line = 1
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise LongtailError(
            f"{path}: line {first_line}: {error}, expected a quoted table, its quotes doubled"
        ) from None


def one_row(lines: Iterable[str], delimiter: str) -> list[str] | None:
    """The cells of the one row that lines are.

    None for a stray quote, for several rows, and for a cell longer than LONGEST_CELL.
    """
    ended = (line + "\n" for line in lines)
    try:
        rows = list(csv.reader(ended, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    if len(rows) != 1 or max(map(len, rows[0]), default=0) > LONGEST_CELL:
        return None
    return rows[0]
