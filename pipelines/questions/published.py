"""Read and write PopQA's published format: 17 tab-separated columns, with lists as JSON (the authors' release).

Reading the published file and writing it again gives the same bytes.
"""

import csv
import re
from collections.abc import Iterable
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.relations import BY_NAME
from pipelines.sources.delimited import table_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import parse_json

NUMBERS = ("id", "subj_id", "prop_id", "obj_id", "s_pop", "o_pop")
UNKNOWN = (
    "s_pop",
    "o_pop",
)  # empty where page views are not known; the published file has -2 for 18 objects instead
LISTS = ("s_aliases", "o_aliases", "possible_answers")
COLUMNS = [
    "id",
    "subj",
    "prop",
    "obj",
    "subj_id",
    "prop_id",
    "obj_id",
    "s_aliases",
    "o_aliases",
    "s_uri",
    "o_uri",
]
COLUMNS += ["s_wiki_title", "o_wiki_title", "s_pop", "o_pop", "question", "possible_answers"]
SCHEMA = pa.schema(
    [
        (c, pa.int64() if c in NUMBERS else pa.list_(pa.string()) if c in LISTS else pa.string())
        for c in COLUMNS
    ]
)
ENTITY = "http://www.wikidata.org/entity/"  # what the URIs of subjects and objects begin with
URI = re.compile(re.escape(ENTITY) + r"Q[1-9]\d*")
MONTH = "2021-10"  # the month of the published page views
MIX = {  # relation -> questions of it in the published set
    "screenwriter": 1999, "director": 1999, "genre": 1619, "producer": 1520, "author": 1514, "composer": 978,
    "country": 838, "capital": 645, "place of birth": 584, "father": 570, "sport": 547, "occupation": 532,
    "capital of": 363, "religion": 338, "mother": 187, "color": 34,
}  # fmt: skip


def read_published(path: Path, rejects: Rejects) -> pa.Table:
    """The rows of a file in the published format, in its order, with SCHEMA; null for an empty title or number.

    The three published questions without a subject ("Who is the author of ?") stay, because published results include
    them. Bad rows go to `rejects` (unreadable_row, columns, number, list, no_answer, unknown_relation, uri,
    duplicate_id). Raises LongtailError on another header or on a file that ends within a row.
    """
    reader = table_rows(path, "\t", len(COLUMNS))
    _, header, _ = next(reader)
    if header != COLUMNS:
        raise LongtailError(
            f"{path}: its columns are {', '.join(header or ())}, expected {', '.join(COLUMNS)}"
        )
    rows: list[dict] = []
    seen: set[int] = set()
    number, reason = 1, ""
    for number, cells, text in reader:  # the header is row 1
        rejects.read += 1
        row, reason = _parse(cells) if cells is not None else ({}, "unreadable_row")
        if not reason and row["id"] in seen:
            reason = "duplicate_id"
        if reason:
            rejects.add(path, number, reason, text)
        else:
            seen.add(row["id"])
            rows.append(row)
    if reason in ("columns", "list", "unreadable_row"):
        raise LongtailError(
            f"{path}: cut within its last row ({number}), expected {len(COLUMNS)} columns; fetch it again"
        )
    rejects.check()
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write_tsv(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write rows with the columns of SCHEMA, and maybe others, in the published order and quoting."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = SimpleNamespace(write=lambda row: file.write(row.removesuffix("\r\n") + "\n"))
        writer = csv.writer(
            lines, delimiter="\t", lineterminator="\r\n"
        )  # it quotes cells with one of both
        writer.writerow(COLUMNS)
        for batch in batches:
            columns = {name: batch[name].to_pylist() for name in COLUMNS}
            for name in LISTS:
                columns[name] = [_json(name, values) for values in columns[name]]
            columns["o_wiki_title"] = [title or "" for title in columns["o_wiki_title"]]
            writer.writerows(zip(*columns.values(), strict=True))


def _parse(cells: list[str]) -> tuple[dict, str]:
    """The row as (values, ""), or why it is rejected as ({}, reason)."""
    if len(cells) != len(COLUMNS):
        return {}, "columns"
    row: dict = dict(zip(COLUMNS, cells, strict=True))
    try:
        row |= {
            name: None if name in UNKNOWN and not row[name] else _int64(row[name])
            for name in NUMBERS
        }
    except ValueError:
        return {}, "number"
    try:
        row |= {name: parse_json(row[name]) for name in LISTS}
    except ValueError:
        return {}, "list"
    if any(
        not isinstance(row[n], list) or any(not isinstance(v, str) for v in row[n]) for n in LISTS
    ):
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
    if not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError("beyond 64 bits")
    return value


def _json(name: str, values: list[str]) -> str:
    """A list as the release writes it: answers as Python does, aliases in compact ASCII with `/` escaped."""
    if name == "possible_answers":
        return f"[{', '.join(map(encode_basestring, values))}]"
    return f"[{','.join(map(encode_basestring_ascii, values))}]".replace("/", "\\/")
