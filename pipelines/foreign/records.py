"""A file of any kind as records: tables, JSON, JSON lines and Parquet, known by their content."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, permutations
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import written_value
from pipelines.foreign.unreadable import replace_unreadable
from pipelines.safe_text import mended
from pipelines.sources.delimited import one_row, strict_rows
from pipelines.sources.streams import (
    is_parquet,
    open_escaped,
    parse_escaped,
    parse_whole,
    read_head,
)

PARQUET_BATCH = 1 << 10  # rows
TABLES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV", "|": "CSV with bars"}
JSON_LIST = re.compile(r"\[[\[\s]*(?:[{\"\]]|$)")  # begins a list, or a list of lists
COLUMNS_SHOWN = 30  # in a message
FEW_ROWS = 0.05  # share of the rows that may have a column more than the first
MAX_DEPTH = 3  # objects and lists around a list of records
WORD_INSIDE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # begins, as in actualOutput

Records = Iterator[dict[str, Any]]
Cells = dict[str, list[Any]]  # column -> its cells


@dataclass(frozen=True)
class RecordFile:
    """The records of a file, of which there is one at least."""

    kind: str  # in words, such as "JSON lines"
    records: Records
    columns: Sequence[str] = ()  # of a table, or of the first record
    notes: list[str] = field(default_factory=list)  # of what may surprise; whole after all records
    place: str = ""  # where the records are in a JSON file, as jq writes it; "" for no JSON
    shown: str = ""  # for a message: the columns, with the fields of objects in them


@lru_cache(maxsize=1 << 12)
def plain(name: str) -> str:
    """A column's name without capitals, with underscores between its words."""
    return re.sub(r"[\s-]+", "_", WORD_INSIDE.sub("_", name.strip()).lower())


def listed(names: Iterable[str]) -> str:
    """The names of columns, for a message."""
    shown = [name.strip() for name in names if name.strip()]
    text = ", ".join(shown[:COLUMNS_SHOWN])
    if len(shown) > COLUMNS_SHOWN:
        text += f" and {len(shown) - COLUMNS_SHOWN} more"
    return text


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

    paths = list(_field_paths(first))
    shown = f"its columns are {listed(paths)}"
    if file.place and paths != columns:
        program = f"-c '{file.place} | {{NAME: .PATH, NAME: .PATH}}'"
        shown += f", and others are named so: {jq_command(path, program)}"
    return replace(file, columns=columns, records=chain([first], file.records), shown=shown)


def _field_paths(record: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a record, and those of the objects in them as `vars.question`."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def _jq(path: Path) -> str:
    """The command that makes records of lines of text."""
    return jq_command(path, "-R '{prediction: .}'")


def jq_command(path: Path, program: str) -> str:
    """The command that makes JSON lines of a file by a program of jq."""
    return f"jq {program} {shlex.quote(path.name)} > {shlex.quote(path.name + '.jsonl')}"


def known_fields(record: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a record that are known, by their plain names."""
    fields = {}
    for name, value in record.items():
        if plain(name) in known:
            fields[plain(name)] = value
    return fields


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


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """What stands at a path such as `output.pred`, `output.0` or `messages.-1`; None for nothing.

    `trace.#` is the length of a list. A table may have an object as text. Fields are found by their
    plain names. Of paths with bars between them, the first counts that has something.
    """
    for alternative in path.split("|"):
        value: Any = record
        for name in alternative.split("."):
            value = _inside(value, name)
        if value is not None:
            return value
    return None


def _inside(value: Any, name: str) -> Any:
    """What stands in a field of an object, or in a place of a list."""
    if isinstance(value, str):
        value = written_value(value)
    if isinstance(value, list):
        return _element(value, name)
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    return known_fields(value, {plain(name)}).get(plain(name))


def _element(values: list[Any], name: str) -> Any:
    """What stands in a place of a list, or its length for "#"."""
    if name == "#":
        return len(values)
    if not re.fullmatch(r"-?\d+", name):
        return None
    position = int(name)
    return values[position] if -len(values) <= position < len(values) else None


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
        file = _open_list(path, known)
    elif head[0] == "{":
        file = _open_objects(path, known)
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
            f"one, or add a header; if each line is a prediction: {_jq(path)}"
        )

    kind = TABLES[delimiter]
    rows = strict_rows(path, open_escaped(path), delimiter)
    if delimiter == "\t" and not _quotes_close(path, n_columns):
        kind += " without quotes"
        rows = _rows_without_quotes(path)

    _, header_cells = next(rows)
    names = list(map(mended, header_cells))
    return RecordFile(kind, _table_records(path, names, rows), names)


def _rows_without_quotes(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(open_escaped(path), start=1):
        if line.strip():
            yield number, line.rstrip("\r").split("\t")


def _table_records(
    path: Path, names: list[str], rows: Iterable[tuple[int, list[Any]]], place: str = "line"
) -> Records:
    for number, cells in rows:
        n_cells = len(cells) if isinstance(cells, list) else 0
        if n_cells != len(names):
            raise LongtailError(
                f"{path}: {place} {number}: {n_cells} columns, expected {len(names)}; if each line "
                f"is a prediction: {_jq(path)}"
            )
        yield dict(zip(names, cells, strict=True))


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


def _open_list(path: Path, known: Collection[str]) -> RecordFile:
    """A JSON list of records, of a table's rows with its header first, or of predictions alone."""
    elements = parse_whole(path)
    header = elements[0] if elements else {}
    if isinstance(header, dict):
        return RecordFile("JSON list", _objects(path, "element", elements), place=".[]")
    if isinstance(header, list) and any(plain(str(name)) in known for name in header):
        return _table_of_lists(path, header, elements[1:])
    records = ({"prediction": element} for element in elements)
    return RecordFile("JSON list of predictions", records)


def _table_of_lists(path: Path, names: Sequence[Any], rows: Sequence[Any]) -> RecordFile:
    """A table whose rows are lists. A name may be an object's, with a type beside it."""
    header = [name.get("name") if isinstance(name, dict) else name for name in names]
    columns = list(map(str, header))
    records = _table_records(path, columns, enumerate(rows, start=1), "row")
    return RecordFile("JSON table of lists", records, columns)


def _open_objects(path: Path, known: Collection[str]) -> RecordFile:
    """JSON lines, or one object, which may stand on one line."""
    lines = (line for line in open_escaped(path) if line.strip())
    first_line = next(lines)
    second_line = next(lines, "")
    try:
        record = parse_escaped(first_line)
    except ValueError:  # an object on several lines, or a broken line
        record = None

    if second_line and (record is not None or second_line.lstrip().startswith("{")):
        return RecordFile("JSON lines", _objects(path, "line", _values_of_lines(path)), place=".")
    if record is None:
        record = parse_whole(path)
    fields = known_fields(record, known).values()
    n_values = sum(not isinstance(value, list | dict) for value in fields)
    if n_values:  # one record, or what is said of all records beside them
        inner = _list_inside(record, known, least=n_values + 1)
        return inner or RecordFile("JSON lines", iter([record]))
    return _open_one_object(path, record, known)


def _values_of_lines(path: Path) -> Iterator[Any]:
    """The value of each line that is not blank."""
    for number, line in enumerate(open_escaped(path), start=1):
        if not line.strip():
            continue
        try:
            yield parse_escaped(line)
        except ValueError as error:
            raise LongtailError(f"{path}: line {number}: {error}, expected a JSON object") from None


def _objects(path: Path, place: str, values: Iterable[Any]) -> Records:
    """The values, all of which are objects; `place` says what the number of one counts."""
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise LongtailError(
                f"{path}: {place} {number}: no JSON object, expected one as the first is"
            )
        yield value


def _open_one_object(path: Path, record: dict[str, Any], known: Collection[str]) -> RecordFile:
    """The records of an object: of columns, by id, or in one of the lists inside it."""
    lists = {name: value for name, value in record.items() if isinstance(value, list) and value}
    objects = [value for value in record.values() if isinstance(value, dict)]
    are_objects = len(objects) == len(record)
    if are_objects and known_fields(record, known):
        # as pandas writes a table: an object of rows for each column
        lists = {name: list(value.values()) for name, value in record.items()}
    known_lists = known_fields(lists, known).values()
    columns = RecordFile("JSON object of columns", _rows_of_columns(path, lists, known))
    if any(not isinstance(values[0], dict) for values in known_lists):
        return columns

    are_by_id = are_objects and any(known_fields(value, known) for value in objects[:1])
    if not are_by_id:
        inner = _table_inside(path, lists) or _list_inside(record, known)
        if inner:
            return inner
    if lists:
        return columns

    by_id = []
    for key, value in record.items():
        fields = value if isinstance(value, dict) else {"prediction": value}
        by_id.append({"id": key} | fields)
    return RecordFile("JSON object by id", iter(by_id))


def _table_inside(path: Path, lists: Cells) -> RecordFile | None:
    """The table of which one list is the header and one the rows, as MLflow, W&B and pandas write
    it; None if there is none.
    """
    for names, rows in permutations(lists.values(), 2):
        is_header = isinstance(names[0], str | dict) and isinstance(rows[0], list)
        if is_header and len(names) == len(rows[0]):
            return _table_of_lists(path, names, rows)
    return None


def _list_inside(
    record: dict[str, Any], known: Collection[str], least: int = 0
) -> RecordFile | None:
    """The list inside an object whose records have the most known fields, `least` or more; None
    without such a list.
    """
    lists = dict(_inner_lists([record], "", known))
    fields = {place: len(known_fields(values[0], known)) for place, values in lists.items()}
    place = max(lists, key=fields.__getitem__, default="")
    if not place or fields[place] < least:
        return None
    kind = f"JSON object with the list {place}"
    return RecordFile(kind, iter(lists[place]), place=place)


def _inner_lists(
    objects: Sequence[dict[str, Any]], place: str, known: Collection[str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The objects at each place inside some objects that has a list on its way: place -> objects.

    A place is written as for jq, as `.rows[].row`. None lies within a list's record that has known
    fields.
    """
    if place.count(".") == MAX_DEPTH or ("[]" in place and known_fields(objects[0], known)):
        return
    for name, first in objects[0].items():
        values: list[Any] = []
        for record in objects:
            value = record.get(name)
            values += value if isinstance(value, list) else [value]
        if not values or not all(isinstance(value, dict) for value in values):
            continue
        inner_place = f"{place}.{name}[]" if isinstance(first, list) else f"{place}.{name}"
        if "[]" in inner_place:
            yield inner_place, values
        yield from _inner_lists(values, inner_place, known)


def _rows_of_columns(path: Path, lists: Cells, known: Collection[str]) -> Records:
    """The rows of columns; shorter lists, of fields that nobody knows, are left out."""
    n_rows = max(map(len, lists.values()))
    for name, values in lists.items():
        if plain(name) in known and len(values) != n_rows:
            raise LongtailError(f"{path}: {len(values)} values in {name!r} and {n_rows} in others")

    columns = {name: values for name, values in lists.items() if len(values) == n_rows}
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
