"""Rows of CSV and TSV files: where a stray quote costs its own row alone, and where it refuses the file."""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources.streams import open_text

csv.field_size_limit(bounds.RECORD)  # for the whole process: what one reader permits must not depend on another
LONGEST_CELL = 1 << 17  # characters, in `one_row`
MOST_LINES = 100  # the most lines of a row; all of them have at most `bounds.RECORD` characters


def table_rows(path: Path, delimiter: str, columns: int | None = None) -> Iterator[tuple[int, list[str] | None, str]]:
    """Yield (its line, from 1; its cells, or None as in `one_row`; the line's text) of each row.

    A row is one line. With `columns`, a quoted cell may span lines, if the row then has that many cells. A blank line
    has no cells. Raises the errors of `open_text`.
    """
    lines = enumerate(open_text(path), start=1)
    ahead = deque(islice(lines, 1))
    while ahead:
        number, text = ahead.popleft()
        cells = one_row([text], delimiter)
        if cells is None and columns:
            held = len(text) + sum(len(line) for _, line in ahead)
            while len(ahead) < MOST_LINES - 1 and held <= bounds.RECORD and (line := next(lines, None)):
                ahead.append(line)
                held += len(line[1])
            for more in range(1, len(ahead) + 1):
                together = one_row([text, *(line for _, line in islice(ahead, more))], delimiter)
                if together and len(together) == columns:
                    cells, ahead = together, deque(islice(ahead, more, None))
                    break
        yield number, cells, text
        ahead = ahead or deque(islice(lines, 1))


def strict_rows(path: Path, delimiter: str, quoted: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Yield (its last line, from 1; its cells) of each row that isn't blank. Quoted cells may span any number of lines.

    Quotes are part of the cells where the file is not `quoted`. Raises LongtailError naming the line of a quote that is
    out of place, and the errors of `open_text`.
    """
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    lines = (line + "\n" for line in open_text(path))
    reader, row = csv.reader(lines, delimiter=delimiter, strict=True, quoting=quoting), 1
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
            row = reader.line_num + 1
    except csv.Error as error:
        raise LongtailError(f"{path}: line {row}: {error}, expected a quoted table, its quotes doubled") from None


def one_row(lines: Iterable[str], delimiter: str) -> list[str] | None:
    """The cells of the lines' one row; None by a stray quote, for several rows, or a cell above LONGEST_CELL."""
    try:
        rows = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 and max(map(len, rows[0]), default=0) <= LONGEST_CELL else None
