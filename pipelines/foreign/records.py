"""Records of tables, JSON and Parquet files whose layout nobody announced: the content says which of them a file is."""

from __future__ import annotations

import re
import shlex
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import written_list
from pipelines.sources.delimited import one_row, strict_rows
from pipelines.sources.streams import (
    is_parquet,
    open_blocks,
    open_lines,
    open_text,
    parse_json,
    parse_whole,
    read_head,
)

PARQUET_BATCH = 1 << 10  # rows
TABLES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV", "|": "CSV with bars"}
JSON_LIST = re.compile(r"\[[\[\s]*(?:[{\"\]]|$)")  # begins one, or a list of lists
LISTED = 30  # columns in a message
TEXTS, LINES = "JSON list of predictions", "text, a prediction a line"  # layouts without columns

Known = Collection[str]  # the plain names of columns that someone would read
Records = Iterator[tuple[int, dict[str, Any]]]  # (line or row from 1, record)
Opened = tuple[
    str, list[str], Records
]  # the file's kind in words, its columns if it has a header, its records


@lru_cache(maxsize=1 << 12)
def plain(name: str) -> str:
    """A column's name without capitals, with underscores for blanks and hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def read_any_records(path: Path, known: Known, expected: str) -> Opened:
    """What a file is, in words, the names of its columns, and its records, of which there is one at least.

    A known name with full stops is a path into columns that are objects, unless a column is called so.
    `expected` says in words which columns are `known`, by their plain names. A list of texts has records with the
    single key `prediction`. Raises LongtailError where the file is damaged or empty, has no column that is known, or
    one of them twice.
    """
    kind, names, rows = _opened(path, {*known, *(name.partition(".")[0] for name in known)})
    first = next(rows, None)
    names = names or list(first[1] if first else ())
    own = set(map(plain, first[1] if first else ()))
    if first and (paths := [name for name in known if "." in name and name not in own]):
        rows = (
            (number, row | {path: _value_at(row, path) for path in paths})
            for number, row in chain([first], rows)
        )
        first = next(rows)
        names = [*names, *(path for path in paths if first[1][path] is not None)]
    spelled = Counter(name for name in map(plain, names) if name in known)
    if names and not spelled:
        found = kind if kind in (TEXTS, LINES) else f"its columns are {listed(names)}"
        raise LongtailError(f"{path}: {found}, expected {expected}; rename one, or add a header")
    if twice := next((name for name, count in spelled.items() if count > 1), None):
        raise LongtailError(
            f"{path}: two columns {twice!r} (capitals make no difference), expected one; drop one"
        )
    if first is None:
        has = "nothing in it but a header" if names else "no row in it"
        raise LongtailError(
            f"{path}: {has}, expected a row for each question; check how it was written"
        )
    return kind, names, chain([first], rows)


def columns_of(path: Path, rows: Records, wanted: Known) -> dict[str, list[Any]]:
    """Plain name -> values, of the columns that are wanted. Raises LongtailError for a row with other ones."""
    first = next(rows)
    spelled = {
        plain(name): name for name in first[1] if plain(name) in wanted
    }  # plain -> as the first row has it
    columns: dict[str, list[Any]] = {name: [] for name in spelled}
    for number, row in chain([first], rows):
        if row.keys() != first[1].keys():
            there = {name for name in row if plain(name) in wanted}
            if odd := there ^ {*spelled.values()}:
                raise LongtailError(
                    f"{path}: row {number}: other columns than the first ({listed(sorted(odd))})"
                )
        for name, values in columns.items():
            values.append(row[spelled[name]])
    return columns


def _value_at(record: Mapping[str, Any], path: str) -> Any:
    """What stands at a path of plain names; None where the record has no such path."""
    value: Any = record
    for part in path.split("."):
        value = next((inner for name, inner in _fields(value).items() if plain(name) == part), None)
    return value


def _fields(value: Any) -> Mapping[str, Any]:
    """The fields of an object, which a table may have as text; none for anything else."""
    if isinstance(value, str) and value[:1] == "{":
        value = written_list(value)
    return value if isinstance(value, dict) else {}


def listed(names: Iterable[str]) -> str:
    """The names of columns, for a message."""
    shown = [name.strip() for name in names if name.strip()]
    return ", ".join(shown[:LISTED]) + (
        f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    )


def _opened(path: Path, known: Known) -> Opened:
    if is_parquet(path):
        from pipelines.storage import parquet  # pyarrow, which a table of text does without

        names: list[str] = []  # as soon as the first row is read

        def chosen(schema: Any) -> list[str]:
            names.extend(schema.names)
            return [name for name in names if plain(name) in known]

        return (
            "Parquet",
            names,
            enumerate(parquet.foreign_rows(path, chosen, PARQUET_BATCH), start=1),
        )
    head = read_head(path).lstrip().decode("utf-8", "replace")
    if not head:
        raise LongtailError(
            f"{path}: nothing but blank lines, expected data; check how it was written"
        )
    if "\r" in head and "\n" not in head:
        does = f"tr '\\r' '\\n' < {shlex.quote(path.name)} > {shlex.quote('new-' + path.name)} converts it"
        raise LongtailError(f"{path}: its lines end in \\r alone, expected \\n; {does}")
    if JSON_LIST.match(head):
        elements = parse_whole(path)
        if not elements or isinstance(elements[0], dict):
            return "JSON list", [], _objects(path, "element", enumerate(elements, start=1))
        return TEXTS, [], _predictions(elements)
    return _json_objects(path, known) if head[0] == "{" else _table(path, known)


def _lines(path: Path) -> Opened:
    """A prediction in each line. If the file ends with the end of a line, an empty prediction follows."""
    ends = deque(open_blocks(path), maxlen=1).pop().endswith(b"\n")
    return LINES, [], _predictions(chain(open_text(path), [""] * ends))


def _table(path: Path, known: Known) -> Opened:
    header = next((line for line in open_text(path) if line.strip()), "")
    columns = {delimiter: one_row([header], delimiter) or [] for delimiter in TABLES}
    best = max(
        TABLES,
        key=lambda mark: (sum(plain(name) in known for name in columns[mark]), len(columns[mark])),
    )
    called = best == "\t" or {".csv", ".tsv"} & {
        *path.suffixes
    }  # a table; in other texts, a comma is just a comma
    if not any(plain(name) in known for name in columns[best]) and (
        len(columns[best]) < 2 or not called
    ):
        return _lines(path)
    quoted = best != "\t" or _quotes_close(path, header.count("\t"))
    rows = _strict_rows(path, best, quoted=quoted)
    names = next(rows, (0, []))[1]

    def records() -> Records:
        for number, cells in rows:
            if len(cells) != len(names):
                raise LongtailError(
                    f"{path}: line {number}: {len(cells)} columns, expected {len(names)}"
                )
            yield number, dict(zip(names, cells, strict=True))

    return TABLES[best] + " without quotes" * (not quoted), names, records()


def _quotes_close(path: Path, tabs: int) -> bool:
    """Whether quotes of a file with tabs quote cells: not if every line is a row, and some is none where they quote."""
    if any(line.count("\t") != tabs for line in open_text(path)):
        return True
    return all(
        len(one_row([line], "\t") or ()) == tabs + 1 for line in open_text(path) if '"' in line
    )


def _json_objects(path: Path, known: Known) -> Opened:
    lines = (line for line in open_lines(path) if line.strip())
    first, second, record = next(lines), next(lines, b""), None
    with suppress(
        ValueError
    ):  # an object on several lines, or a broken line, which its reader says
        record = parse_json(first)
    cells = [
        plain(name) for name, value in (record or {}).items() if not isinstance(value, list | dict)
    ]
    if second.lstrip()[:1] == b"{" or (record and (second or any(name in known for name in cells))):
        numbered = (
            (number, line) for number, line in enumerate(open_text(path), start=1) if line.strip()
        )
        return "JSON lines", [], _objects(path, "line", numbered, parse_json)
    return _whole_object(path, parse_whole(path) if record is None else record, known)


def _whole_object(path: Path, record: dict[str, Any], known: Known) -> Opened:
    """The records of an object of columns, of an object by id, or of one that has a list of records in it."""
    lists = {name: value for name, value in record.items() if isinstance(value, list) and value}
    if len(lists) == 1 and isinstance((inside := next(iter(lists.values())))[0], dict):
        return "JSON object with a list", [], _objects(path, "element", enumerate(inside, start=1))
    if record and all(isinstance(value, dict) for value in record.values()):
        if not any(plain(name) in known for name in record):
            by_id = ({"id": key} | value for key, value in record.items())
            return "JSON object by id", [], enumerate(by_id, start=1)
        lists = {
            name: list(value.values()) for name, value in record.items()
        }  # as pandas writes a table
    if not lists:
        by_id = ({"id": key, "prediction": value} for key, value in record.items())
        return "JSON object by id", [], enumerate(by_id, start=1)
    longest = max(map(len, lists.values()))
    if fault := next(
        (name for name in lists if plain(name) in known and len(lists[name]) != longest), None
    ):
        raise LongtailError(
            f"{path}: {len(lists[fault])} values in {fault!r} and {longest} in others"
        )
    columns = {name: value for name, value in lists.items() if len(value) == longest}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "JSON object of columns", [], enumerate(rows, start=1)


def _objects(
    path: Path,
    what: str,
    elements: Iterable[tuple[int, Any]],
    parse: Callable[[Any], Any] = lambda element: element,
) -> Records:
    for number, element in elements:
        try:
            record = parse(element)
        except ValueError as error:
            raise LongtailError(
                f"{path}: {what} {number}: {error}, expected a JSON object"
            ) from None
        if not isinstance(record, dict):
            raise LongtailError(
                f"{path}: {what} {number}: no JSON object, expected one as the first is"
            )
        yield number, record


def _predictions(elements: Iterable[Any]) -> Records:
    return enumerate(({"prediction": element} for element in elements), start=1)


def _strict_rows(path: Path, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """`delimited.strict_rows`; quotes are part of the cells where the file is not `quoted`."""
    if quoted:
        yield from strict_rows(path, delimiter)
        return
    for number, line in enumerate(open_text(path), start=1):
        if line:
            yield number, line.split(delimiter)
