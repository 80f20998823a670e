"""A file of any kind as records: tables, JSON, JSON lines and Parquet, known by their content."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import written_value
from pipelines.sources.delimited import one_row, strict_rows
from pipelines.sources.streams import (
    is_parquet,
    open_lines,
    open_text,
    parse_json,
    parse_whole,
    read_head,
)

PARQUET_BATCH = 1 << 10  # rows
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape in JSON; two of them are a character
TABLES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV", "|": "CSV with bars"}
JSON_LIST = re.compile(r"\[[\[\s]*(?:[{\"\]]|$)")  # begins a list, or a list of lists
COLUMNS_SHOWN = 30  # in a message
PREDICTION_LIST = "JSON list of predictions"  # its elements are texts, not records

Records = Iterator[tuple[int, dict[str, Any]]]  # (line or row from 1, record)


@dataclass(frozen=True)
class RecordFile:
    """The records of a file, of which there is one at least."""

    path: Path
    kind: str  # in words, such as "JSON lines"
    columns: list[str]  # of a table, or of the first record
    records: Records
    # numbers of the rows, read so far, in which half of a surrogate pair became U+FFFD
    mended: list[int] = field(default_factory=list)


@lru_cache(maxsize=1 << 12)
def plain(name: str) -> str:
    """A column's name without capitals, with underscores for blanks and hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def listed(names: Iterable[str]) -> str:
    """The names of columns, for a message."""
    shown = [name.strip() for name in names if name.strip()]
    text = ", ".join(shown[:COLUMNS_SHOWN])
    if len(shown) > COLUMNS_SHOWN:
        text += f" and {len(shown) - COLUMNS_SHOWN} more"
    return text


def read_records(path: Path, known: Collection[str], expected: str) -> RecordFile:
    """Open a file of records.

    `known` are the plain names of columns that someone would read; a name with full stops is a path
    into objects. `expected` says in words which they are. Raises LongtailError where the file is
    damaged or empty, has no column that is known, or has one of them twice.
    """
    fields = {name.partition(".")[0] for name in known} | set(known)
    file = _open_parquet(path) if is_parquet(path) else _open_text(path, fields, expected)
    first = next(file.records, None)
    columns = file.columns or list(first[1] if first else ())

    times = Counter(plain(name) for name in columns)
    if columns and not fields.intersection(times):
        raise _without_columns(path, columns, expected)
    twice = [name for name in times if times[name] > 1 and name in fields]
    if twice:
        raise LongtailError(
            f"{path}: two columns {twice[0]!r} (capitals make no difference), expected one; drop "
            "one"
        )
    if first is None:
        has = "nothing in it but a header" if columns else "no row in it"
        raise LongtailError(
            f"{path}: {has}, expected a row for each question; check how it was written"
        )

    return RecordFile(path, file.kind, columns, chain([first], file.records), file.mended)


def _without_columns(path: Path, columns: Iterable[str], expected: str) -> LongtailError:
    return LongtailError(
        f"{path}: its columns are {listed(columns)}, expected {expected}; rename one, or add a "
        f"header; if each line is a prediction: {_jq(path)}"
    )


def _jq(path: Path) -> str:
    """The command that makes records of lines of text."""
    name = shlex.quote(path.name)
    return f"jq -R '{{prediction: .}}' {name} > {shlex.quote(path.name + '.jsonl')}"


def read_columns(file: RecordFile, wanted: Collection[str]) -> dict[str, list[Any]]:
    """The values of the columns that are wanted, by their plain names.

    A name with full stops is a path into columns that are objects, unless a column is called so.
    Raises LongtailError for a row with others of these columns than the first.
    """
    first_row = next(file.records)
    first = first_row[1]
    spelled = {plain(name): name for name in first if plain(name) in wanted}
    paths = [name for name in wanted if "." in name and name not in spelled]
    paths = [name for name in paths if value_at(first, name) is not None]
    columns: dict[str, list[Any]] = {name: [] for name in (*spelled, *paths)}
    names = set(spelled.values())
    for number, record in chain([first_row], file.records):
        if record.keys() != first.keys():
            odd = {name for name in record if plain(name) in wanted} ^ names
            if odd:
                raise LongtailError(
                    f"{file.path}: row {number}: other columns than the first "
                    f"({listed(sorted(odd))})"
                )
        for name, spelling in spelled.items():
            columns[name].append(record[spelling])
        for name in paths:
            columns[name].append(value_at(record, name))

    return columns


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
    return next((inside for key, inside in value.items() if plain(key) == plain(name)), None)


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
    return RecordFile(path, "Parquet", names, enumerate(rows, start=1))


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
        elements = parse_whole(path)
        if elements and not isinstance(elements[0], dict):
            records = ({"prediction": element} for element in elements)
            return RecordFile(path, PREDICTION_LIST, [], enumerate(records, start=1))
        return RecordFile(path, "JSON list", [], _objects(path, "element", elements))
    if head[0] == "{":
        return _open_objects(path, known)
    return _open_table(path, known, expected)


def _open_table(path: Path, known: Collection[str], expected: str) -> RecordFile:
    """A table, by the delimiter that makes the most known columns, or else the most columns."""
    header = next(line for line in open_text(path) if line.strip())
    columns_by = {delimiter: one_row([header], delimiter) or [header] for delimiter in TABLES}
    counts = {}
    for delimiter, columns in columns_by.items():
        counts[delimiter] = (sum(plain(name) in known for name in columns), len(columns))

    delimiter = max(counts, key=counts.__getitem__)
    if not counts[delimiter][0]:
        raise _without_columns(path, columns_by[delimiter], expected)

    kind = TABLES[delimiter]
    is_quoted = delimiter != "\t" or _quotes_close(path, header.count("\t"))
    if is_quoted:
        rows = strict_rows(path, delimiter)
    else:
        kind += " without quotes"
        lines = enumerate(open_text(path), start=1)
        rows = ((number, line.rstrip("\r").split("\t")) for number, line in lines if line.strip())

    _, names = next(rows)
    return RecordFile(path, kind, names, _table_records(path, names, rows))


def _table_records(path: Path, names: list[str], rows: Iterable[tuple[int, list[str]]]) -> Records:
    for number, cells in rows:
        if len(cells) != len(names):
            raise LongtailError(
                f"{path}: line {number}: {len(cells)} columns, expected {len(names)}; if each line "
                f"is a prediction: {_jq(path)}"
            )
        yield number, dict(zip(names, cells, strict=True))


def _quotes_close(path: Path, n_tabs: int) -> bool:
    """Whether the quotes of a file with tabs quote cells.

    They do not if every line is a row as it stands, and some line is none with its quotes read.
    """
    if any(line.count("\t") != n_tabs for line in open_text(path)):
        return True
    lines = (line for line in open_text(path) if '"' in line)
    return all(len(one_row([line], "\t") or ()) == n_tabs + 1 for line in lines)


def _open_objects(path: Path, known: Collection[str]) -> RecordFile:
    """JSON lines, or one object, which may stand on one line."""
    lines = (line for line in open_lines(path) if line.strip())
    first = next(lines)
    has_more_lines = next(lines, None)
    try:
        record = parse_json(first)
    except ValueError:  # an object on several lines, or a broken line
        record = None

    if has_more_lines and (record is not None or has_more_lines.lstrip()[:1] == b"{"):
        mended: list[int] = []
        return RecordFile(path, "JSON lines", [], _line_records(path, mended), mended)
    if record is None:
        record = parse_whole(path)
    columns = {plain(name) for name, value in record.items() if not isinstance(value, list | dict)}
    if columns.intersection(known):
        return RecordFile(path, "JSON lines", [], iter([(1, record)]))
    return _open_one_object(path, record, known)


def _line_records(path: Path, mended: list[int]) -> Records:
    for number, line in enumerate(open_text(path), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line) if SURROGATE.search(line) else parse_json(line)
        except (ValueError, RecursionError) as error:
            raise LongtailError(f"{path}: line {number}: {error}, expected a JSON object") from None
        if SURROGATE.search(line):
            text = json.dumps(value, ensure_ascii=False)
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if whole != text:
                mended.append(number)
                value = json.loads(whole)
        yield number, _checked(path, "line", number, value)


def _objects(path: Path, what: str, elements: Iterable[Any]) -> Records:
    for number, element in enumerate(elements, start=1):
        yield number, _checked(path, what, number, element)


def _checked(path: Path, what: str, number: int, record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise LongtailError(
            f"{path}: {what} {number}: no JSON object, expected one as the first is"
        )
    return record


def _open_one_object(path: Path, record: dict[str, Any], known: Collection[str]) -> RecordFile:
    """The records of an object of columns, of an object by id, or of one with a list of records."""
    lists = {name: value for name, value in record.items() if isinstance(value, list) and value}
    if len(lists) == 1:
        (elements,) = lists.values()
        if isinstance(elements[0], dict):
            return RecordFile(
                path, "JSON object with a list", [], _objects(path, "element", elements)
            )

    are_objects = all(isinstance(value, dict) for value in record.values())
    if record and are_objects and any(plain(name) in known for name in record):
        # as pandas writes a table: an object of rows for each column
        lists = {name: list(value.values()) for name, value in record.items()}
    if lists:
        return _open_columns(path, lists, known)

    by_id = []
    for key, value in record.items():
        fields = value if are_objects else {"prediction": value}
        by_id.append({"id": key} | fields)

    return RecordFile(path, "JSON object by id", [], enumerate(by_id, start=1))


def _open_columns(path: Path, lists: dict[str, list[Any]], known: Collection[str]) -> RecordFile:
    n_rows = max(map(len, lists.values()))
    for name, values in lists.items():
        if plain(name) in known and len(values) != n_rows:
            raise LongtailError(f"{path}: {len(values)} values in {name!r} and {n_rows} in others")
    columns = {name: values for name, values in lists.items() if len(values) == n_rows}
    rows = zip(*columns.values(), strict=True)
    records = (dict(zip(columns, row, strict=True)) for row in rows)
    return RecordFile(path, "JSON object of columns", [], enumerate(records, start=1))
