"""Read and write PopQA's published format: 17 tab-separated columns, with lists as JSON (the
authors' release).

Reading the published file and writing it again gives the same bytes.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import IO

import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME
from pipelines.sources.delimited import table_rows
from pipelines.sources.rejects import NOT_UTF8, Rejects
from pipelines.sources.streams import is_readable, parse_json

COLUMN_TYPES = {
    "id": pa.int64(),
    "subj": pa.string(),
    "prop": pa.string(),
    "obj": pa.string(),
    "subj_id": pa.int64(),
    "prop_id": pa.int64(),
    "obj_id": pa.int64(),
    "s_aliases": pa.list_(pa.string()),
    "o_aliases": pa.list_(pa.string()),
    "s_uri": pa.string(),
    "o_uri": pa.string(),
    "s_wiki_title": pa.string(),
    "o_wiki_title": pa.string(),
    "s_pop": pa.int64(),
    "o_pop": pa.int64(),
    "question": pa.string(),
    "possible_answers": pa.list_(pa.string()),
}
SCHEMA = pa.schema(COLUMN_TYPES)
COLUMNS = SCHEMA.names
NUMBERS = [name for name in COLUMNS if pa.types.is_integer(COLUMN_TYPES[name])]
LISTS = [name for name in COLUMNS if pa.types.is_list(COLUMN_TYPES[name])]
# empty where page views are not known; the published file has -2 for 18 objects instead
VIEWS = ("s_pop", "o_pop")
ENTITY = "http://www.wikidata.org/entity/"  # what the URIs of subjects and objects begin with
URI = re.compile(re.escape(ENTITY) + r"Q[1-9]\d*")
MONTH = "2021-10"  # the month of the published page views
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
    """The rows of a file in the published format, in its order, with SCHEMA; null for an empty
    title or number.

    The three published questions without a subject ("Who is the author of ?") stay, because
    published results include them. Bad rows go to `rejects` (unreadable_row, not_utf8, columns, number, list,
    no_answer, unknown_relation, uri, duplicate_id). Raises LongtailError on another header or on a
    file that ends within a row.
    """
    reader = table_rows(path, "\t", len(COLUMNS))
    _, header, _ = next(reader)
    if header != COLUMNS:
        raise LongtailError(
            f"{path}: its columns are {', '.join(header or ())}, expected {', '.join(COLUMNS)}"
        )

    rows: list[dict] = []
    ids: set[int] = set()
    number = 1
    reason = ""
    for number, cells, text in reader:  # the header is row 1
        rejects.read += 1
        row, reason = _parse(cells)
        if not reason and row["id"] in ids:
            reason = "duplicate_id"
        if reason:
            rejects.add(path, number, reason, text)
        else:
            ids.add(row["id"])
            rows.append(row)

    if reason in ("columns", "list", "unreadable_row"):
        raise LongtailError(
            f"{path}: cut within its last row ({number}), expected {len(COLUMNS)} columns; "
            "fetch it again"
        )
    rejects.check()
    return pa.Table.from_pylist(rows, schema=SCHEMA)


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
    if cells is None:
        return {}, "unreadable_row"
    if len(cells) != len(COLUMNS):
        return {}, "columns"
    if not is_readable(cells):
        return {}, NOT_UTF8
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
