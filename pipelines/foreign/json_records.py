"""Records in JSON: a list, lines, or an object that has them as columns, by id or in a list inside
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.record_file import (
    Cells,
    RecordFile,
    Records,
    field_paths,
    known_fields,
    plain,
    rows_as_records,
)
from pipelines.sources.streams import open_escaped, parse_escaped, parse_whole

MAX_DEPTH = 3  # objects and lists around a list of records


def open_list(path: Path, known: Collection[str]) -> RecordFile:
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
    records = rows_as_records(path, columns, enumerate(rows, start=1), "row")
    return RecordFile("JSON table of lists", records, columns)


def open_objects(path: Path, known: Collection[str]) -> RecordFile:
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
    places_by_count: dict[int, list[str]] = {}  # number of known fields -> places, outermost first
    for place, values in lists.items():
        names = {plain(path.rpartition(".")[2]) for path in field_paths(values[0])}
        places_by_count.setdefault(len(names.intersection(known)), []).append(place)
    most = max(places_by_count, default=-1)
    if most < least:
        return None
    # Where an object inside has all known fields, it is the record.
    place = places_by_count[most][-1 if most else 0]
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
