"""Read and write PopQA's published format: 17 tab-separated columns, with lists as JSON (the
authors' release).

Reading the published file and writing it again gives the same bytes.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME
from pipelines.sources.corpus_layouts import is_json
from pipelines.sources.delimited import table_rows
from pipelines.sources.question_files import first_value, read_records, shown
from pipelines.sources.rejects import NOT_UTF8, Rejects
from pipelines.sources.repeats import REPEATED, table_of
from pipelines.sources.streams import is_parquet, is_readable, parse_json, read_head, source_files
from pipelines.tables.questions import PUBLISHED
from pipelines.tables.table import schema_of

SCHEMA = schema_of(PUBLISHED)
COLUMNS = SCHEMA.names
NUMBERS = [field.name for field in SCHEMA if pa.types.is_integer(field.type)]
LISTS = [field.name for field in SCHEMA if pa.types.is_list(field.type)]
# empty where page views are not known; the published file has -2 for 18 objects instead
VIEWS = ("s_pop", "o_pop")
ENTITY = "http://www.wikidata.org/entity/"  # what the URIs of subjects and objects begin with
URI = re.compile(re.escape(ENTITY) + r"Q[1-9]\d*")
Row = tuple[int, list[str] | None, str]  # line or row, cells (None: unreadable), the line's text
MONTH = "2021-10"  # the month of the published page views
LARGEST_ID = 2**52  # ids of questions that Longtail built are larger
MIX = {  # relation -> questions of it in the published set
    "screenwriter": 1999,
    "director": 1999,
    "genre": 1619,
    "producer": 1520,
    "author": 1514,
    "composer": 978,
    "country": 838,
    "capital": 645,
    "place of birth": 584,
    "father": 570,
    "sport": 547,
    "occupation": 532,
    "capital of": 363,
    "religion": 338,
    "mother": 187,
    "color": 34,
}


def read_published(path: Path, rejects: Rejects) -> pa.Table:
    """The rows of a file in the published format, or of a folder's one file or one table's shards,
    in their order, with SCHEMA; null for an empty title or number.

    The Hub's Parquet, its API's rows and other JSON have the same columns. The three published
    questions without a subject ("Who is the author of ?") stay, because published results include
    them. A row that repeats another is only counted. Bad rows go to `rejects` (unreadable_row,
    columns, not_utf8, number, list, no_answer, unknown_relation, uri, duplicate_id for other rows
    with the id). Raises LongtailError on other columns, on several files, or on a table that ends
    within a row.
    """
    row_by_id: dict[int, dict] = {}
    for file in _files(path):
        is_table = _is_table(file)
        read_rows = _table if is_table else _records
        number = 1
        reason = ""
        for number, cells, text in read_rows(file, rejects):
            row, reason = _parse(cells)
            known_row = row_by_id.get(row.get("id"))
            if known_row == row:
                rejects.skip(REPEATED)
                continue
            if known_row:
                reason = "duplicate_id"
            if reason:
                rejects.add(file, number, reason, text)
            else:
                row_by_id[row["id"]] = row

        if is_table and reason in ("columns", "list", "unreadable_row"):
            raise LongtailError(
                f"{file}: cut within its last row ({number}), expected {len(COLUMNS)} columns; "
                "fetch it again"
            )

    repeated = rejects.skipped[REPEATED]
    if repeated:
        print(f"{path}: {repeated:,} rows repeat another, which counts once")
    rejects.check()
    return pa.Table.from_pylist(list(row_by_id.values()), schema=SCHEMA)


def _files(path: Path) -> list[Path]:
    """The file at a path, or a folder's. Raises LongtailError for several that aren't shards of one
    table.
    """
    files = source_files(path) if path.is_dir() else [path]
    if len({table_of(file) for file in files}) > 1:
        names = ", ".join(file.name for file in files)
        raise LongtailError(f"{path}: {names}, expected one file; name one under fetch.files.popqa")
    return files


def _is_table(path: Path) -> bool:
    if is_parquet(path):
        return False
    return not is_json(read_head(path))


def _table(path: Path, rejects: Rejects) -> Iterator[Row]:
    """The rows of a table under the published header."""
    rows = table_rows(path, "\t", len(COLUMNS))
    _, header, _ = next(rows)
    if header != COLUMNS:
        raise _other_columns(path, header or ())
    for row in rows:  # the header is row 1
        rejects.read += 1
        yield row


def _records(path: Path, rejects: Rejects) -> Iterator[Row]:
    """The rows of Parquet or JSON, with cells as the published table has them."""
    for number, record in read_records(path, COLUMNS, rejects):
        rows = _rows_of(record)
        rejects.read += len(rows) - 1
        for row in rows:
            if not isinstance(row, dict) or not row.keys() >= set(COLUMNS):
                raise _other_columns(path, record)
            cells = [_cell(row[name]) for name in COLUMNS]
            yield number, cells, shown(row)


def _rows_of(record: dict[str, Any]) -> list[Any]:
    """The rows in a page of the Hub's API; of any other record, itself."""
    items = record.get("rows")
    if not isinstance(items, list):
        return [record]
    return [first_value(item, ["row"]) for item in items]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _other_columns(path: Path, names: Iterable[str]) -> LongtailError:
    return LongtailError(
        f"{path}: its columns are {', '.join(names)}, expected {', '.join(COLUMNS)}; take "
        "popQA.tsv as published, which is test.tsv in the Hub's akariasai/PopQA"
    )


class _Lines:
    """A file whose lines end in a line feed alone, as published.

    The writer of csv quotes every cell that has a character of its own line ending. It gets a
    carriage return and a line feed as its ending, so that cells with either of them are quoted.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")


def write_tsv(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write rows with the columns of SCHEMA, and maybe others, in the published order and
    quoting.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(_Lines(file), delimiter="\t", lineterminator="\r\n")
        writer.writerow(COLUMNS)
        for batch in batches:
            columns = {name: batch[name].to_pylist() for name in COLUMNS}
            for name in LISTS:
                columns[name] = [_json(name, values) for values in columns[name]]
            columns["o_wiki_title"] = [title or "" for title in columns["o_wiki_title"]]
            writer.writerows(zip(*columns.values(), strict=True))


def _parse(cells: Sequence[str] | None) -> tuple[dict, str]:
    """The row as (values, ""), or why it is rejected as ({}, reason); None are cells that can't be
    read.
    """
    damage = _damage(cells)
    if damage or not cells:
        return {}, damage
    row: dict = dict(zip(COLUMNS, cells, strict=True))
    try:
        for name in NUMBERS:
            is_unknown = name in VIEWS and not row[name]
            row[name] = None if is_unknown else _int64(row[name])
    except ValueError:
        return {}, "number"
    try:
        for name in LISTS:
            row[name] = _texts(row[name])
    except ValueError:
        return {}, "list"

    if not row["possible_answers"]:
        return {}, "no_answer"
    if row["prop"] not in BY_NAME:
        return {}, "unknown_relation"
    if not URI.fullmatch(row["s_uri"]) or not URI.fullmatch(row["o_uri"]):
        return {}, "uri"
    row["o_wiki_title"] = row["o_wiki_title"] or None
    return row, ""


def _damage(cells: Sequence[str] | None) -> str:
    """Why a row can't be read; "" if it can."""
    if cells is None:
        return "unreadable_row"
    if len(cells) != len(COLUMNS):
        return "columns"
    return "" if is_readable(cells) else NOT_UTF8


def _int64(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("beyond 64 bits")
    return value


def _texts(text: str) -> list[str]:
    values = parse_json(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("no list of texts")
    return values


def _json(name: str, values: list[str]) -> str:
    """A list as the release writes it: answers as Python does, aliases in compact ASCII with `/`
    escaped.
    """
    if name == "possible_answers":
        return f"[{', '.join(map(encode_basestring, values))}]"
    compact = f"[{','.join(map(encode_basestring_ascii, values))}]"
    return compact.replace("/", "\\/")
