"""Records of tables, JSON and Parquet files whose layout nobody announced: the content says which of them a file is."""

from __future__ import annotations

import codecs
import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import bounds
from pipelines.errors import LongtailError
from pipelines.sources import csv_rows
from pipelines.sources.prediction_layouts import plain
from pipelines.sources.streams import SURROGATE, check_start, open_blocks, open_lines, open_text, parse_json, read_whole

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET_BATCH = 1 << 10  # rows
DELIMITERS = (",", ";", "\t", "|")
LISTED = 30  # columns in a message
TEXTS, LINES = "JSON list of predictions", "text, a prediction a line"  # layouts without columns
PIECE = 1 << 20  # characters of JSON that are read before an element is parsed

Records = Iterator[tuple[int, dict[str, Any]]]  # (line or row from 1, record)


def records(path: Path, known: Callable[[str], bool], expected: str) -> tuple[str, list[str], Records]:
    """What a file is, in words, the names of its columns, and its records, of which there is one at least.

    `known` says of a column's name whether anyone would read it, and `expected` says in words what these are. A list of
    texts has records with the single key `prediction`. Raises LongtailError where the file is damaged or empty, has no
    column that is known, or one of them twice.
    """
    kind, names, rows = _opened(path, known)
    if names:  # a table's header; its rows may be anything if nothing in it is known
        _check_names(path, names, known, expected)
    first = next(rows, None)
    if first is None:
        has = "nothing in it but a header" if names else "no row in it"
        raise LongtailError(f"{path}: {has}, expected a row for each question; check how it was written")
    names = names or list(first[1])
    _check_names(path, names, known, expected)
    return kind, names, chain([first], rows)


def listed(names: Iterable[str]) -> str:
    """The names of columns, for a message."""
    shown = [name.strip() for name in names if name.strip()]
    return ", ".join(shown[:LISTED]) + (f" and {len(shown) - LISTED} more" if len(shown) > LISTED else "")


def _check_names(path: Path, names: Sequence[str], known: Callable[[str], bool], expected: str) -> None:
    spelled = Counter(plain(name) for name in names if known(name))
    if not spelled:
        raise LongtailError(f"{path}: its columns are {listed(names)}, expected {expected}; rename one")
    if twice := next((name for name, count in spelled.items() if count > 1), None):
        raise LongtailError(f"{path}: two columns {twice!r} (capitals make no difference), expected one; drop one")


def _opened(path: Path, known: Callable[[str], bool]) -> tuple[str, list[str], Records]:
    """What a file is, its columns if its first record does not say them, and its records."""
    check_start(path)
    with path.open("rb") as raw:
        magic = raw.read(4)
    if magic == b"PAR1":
        return _parquet(path, known)
    start = next(block for block in open_blocks(path)).lstrip()[:1]
    if start == b"[":
        kind, rows = _json_list(path)
    elif start == b"{":
        kind, rows = _json_objects(path, known)
    elif ".txt" in path.suffixes:
        kind, rows = LINES, _of_list(enumerate(open_text(path), start=1))
    else:
        return _table(path, known)
    return kind, [], rows


def _table(path: Path, known: Callable[[str], bool]) -> tuple[str, list[str], Records]:
    header = next((line for line in open_text(path) if line.strip()), "")
    best = max(DELIMITERS, key=lambda delimiter: _known_names(header, delimiter, known))
    quoted = best != "\t" or _quotes_close(path)
    rows = csv_rows.strict_rows(path, best, quoted=quoted)
    names = next(rows, (0, []))[1]

    def read() -> Records:
        for number, cells in rows:
            if len(cells) != len(names):
                raise LongtailError(
                    f"{path}: line {number}: {len(cells)} columns, expected {len(names)} as in the first"
                )
            yield number, dict(zip(names, cells, strict=True))

    kinds = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV", "|": "CSV with bars"}
    return kinds[best] + (" without quotes" if not quoted else ""), names, read()


def _known_names(header: str, delimiter: str, known: Callable[[str], bool]) -> tuple[int, int]:
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        return 0, 0
    return sum(known(name) for name in names), len(names)


def _quotes_close(path: Path) -> bool:
    """Whether quotes of a file with tabs quote cells, rather than being part of them.

    They are part of them where some line is no row by itself if they quote, and every line is one if they don't.
    """
    lines = open_text(path)
    width, as_quoted, as_plain = None, True, True
    for line in lines:
        plain = line.count("\t") + 1
        width = width or plain
        as_plain &= plain == width
        if as_quoted and '"' in line:
            cells = csv_rows.row(line, "\t")
            as_quoted = cells is not None and len(cells) == width
        if not as_plain:
            return True
    return as_quoted


def _json_list(path: Path) -> tuple[str, Records]:
    elements = enumerate(_elements(path), start=1)
    head = list(islice(elements, 1))
    if not head:
        raise LongtailError(f"{path}: an empty list, expected an element for each answer")
    whole = chain(head, elements)
    if isinstance(head[0][1], dict):
        return "JSON list", _objects(path, whole)
    return TEXTS, _of_list(whole)


def _json_objects(path: Path, known: Callable[[str], bool]) -> tuple[str, Records]:
    lines = (line for line in open_lines(path) if line.strip())
    first, second = next(lines), next(lines, None)
    try:
        record = parse_json(first)
    except ValueError:
        if second is None:
            raise LongtailError(f"{path}: line 1: no JSON, expected a JSON object") from None
        record = None
    has_cells = isinstance(record, dict) and any(
        known(n) and not isinstance(v, (list, dict)) for n, v in record.items()
    )
    if has_cells or (record is not None and second is not None):
        return "JSON lines", _lines(path)
    if isinstance(record, dict):
        return _whole_object(path, record, known)
    if second is not None and first.strip() not in (b"{",) and second.lstrip()[:1] == b"{":
        return "JSON lines", _lines(path)  # the first line is broken, which its reader says
    try:
        record = parse_json(read_whole(path, "a record a line"))
    except ValueError as error:
        raise LongtailError(f"{path}: not JSON ({error}), expected a JSON object") from None
    return _whole_object(path, record, known)


def _whole_object(path: Path, record: dict[str, Any], known: Callable[[str], bool]) -> tuple[str, Records]:
    """The records of an object of columns, of an object by id, or of one that has a list of records in it."""
    lists = {name: value for name, value in record.items() if isinstance(value, list) and value}
    if len(lists) == 1 and isinstance((inside := next(iter(lists.values())))[0], dict):
        return "JSON object with a list", _objects(path, enumerate(inside, start=1))
    if lists:
        longest = max(map(len, lists.values()))
        for name, value in lists.items():
            if known(name) and len(value) != longest:
                raise LongtailError(
                    f"{path}: {len(value)} values in {name!r} and {longest} in others, expected as many"
                )
        columns = {name: value for name, value in lists.items() if len(value) == longest}
        return "JSON object of columns", _rows(list(columns), columns.values())
    tables = [value for value in record.values() if isinstance(value, dict)]
    if tables and len(tables) == len(record):
        keys = tables[0].keys()
        if all(key.isdecimal() for key in keys) and all(table.keys() == keys for table in tables):
            return "JSON object of columns", _rows(list(record), [table.values() for table in tables])  # as of pandas
        return "JSON object by id", enumerate(({"id": key} | value for key, value in record.items()), start=1)
    return "JSON object by id", _rows(["id", "prediction"], [record.keys(), record.values()])


def _rows(names: list[str], columns: Iterable[Iterable[Any]]) -> Records:
    return enumerate((dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), start=1)


def _objects(path: Path, elements: Iterator[tuple[int, Any]]) -> Records:
    for number, element in elements:
        if not isinstance(element, dict):
            raise LongtailError(f"{path}: element {number}: no JSON object, expected one as the first is")
        yield number, element


def _of_list(elements: Iterator[tuple[int, Any]]) -> Records:
    for number, element in elements:
        yield number, {"prediction": element}


def _lines(path: Path) -> Records:
    for number, line in enumerate(open_text(path), start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            raise LongtailError(f"{path}: line {number}: {error}, expected a JSON object") from None
        if not isinstance(record, dict):
            raise LongtailError(f"{path}: line {number}: expected a JSON object")
        yield number, record


def _elements(path: Path) -> Iterator[Any]:
    """The elements of a JSON list, one after another: the list may be larger than what is held in memory."""
    decode, utf8 = json.JSONDecoder().raw_decode, codecs.getincrementaldecoder("utf-8")()
    blocks, longest = open_blocks(path), bounds.record()
    text, place, done, wanted = "", 0, False, PIECE
    expects = "["  # what comes next: the bracket, then an element or the end, then a comma or the end

    def fail(why: object) -> LongtailError:
        return LongtailError(f"{path}: not JSON ({why}), expected a list of objects or of texts")

    while True:
        parts, size = [text[place:]], len(text) - place
        while size < wanted and not done:
            block = next(blocks, None)
            done = block is None
            try:
                parts.append(utf8.decode(block or b"", final=done))
            except UnicodeDecodeError as error:
                raise fail(error) from None
            size += len(parts[-1])
        text, place = "".join(parts), 0
        while True:
            while place < len(text) and text[place] in " \t\r\n":
                place += 1
            if place == len(text):
                break
            if expects != "element":
                if text[place] == "]" and expects == ",":
                    return
                if text[place] != expects:
                    raise fail(f"expected {expects} and not {text[place]!r}")
                place, expects = place + 1, "element"
                continue
            if text[place] == "]":
                return
            try:
                value, end = decode(text, place)
                if end == len(text) and not done:
                    break  # a number may go on in the next piece
            except RecursionError:
                raise fail("nested too deeply") from None
            except ValueError as error:
                if done:
                    raise fail(error) from None
                break
            if end - place > longest:
                raise LongtailError(f"{path}: an element {bounds.too_long('shorter ones')}")
            if SURROGATE.search(text, place, end):
                try:
                    parse_json(text[place:end])
                except ValueError as error:
                    raise fail(error) from None
            yield value
            place, expects, wanted = end, ",", PIECE
        if done:
            raise fail("it ends before the list does")
        if len(text) - place > longest:
            raise LongtailError(f"{path}: an element {bounds.too_long('shorter ones')}")
        wanted = max(PIECE, 2 * (len(text) - place))


def _parquet(path: Path, known: Callable[[str], bool]) -> tuple[str, list[str], Records]:
    from pipelines import parquet  # pyarrow, which a table of text does without

    names: list[str] = []  # as soon as the first row is read

    def chosen(schema: pa.Schema) -> list[str]:
        names.extend(schema.names)
        return list(filter(known, names))

    return "Parquet", names, enumerate(parquet.foreign_rows(path, chosen, PARQUET_BATCH), start=1)
