"""Rows as files: JSON in five forms, tables with four delimiters, and Parquet; each can be read back."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]
Write = Callable[[Rows], bytes]
NESTED = ("JSON lines", "JSON list", "Parquet")  # formats of records that hold objects
DELIMITERS = {"commas": ",", "semicolons": ";", "bars": "|", "tabs": "\t"}


def _texts(rows: Rows) -> list[str]:
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def _by_id(rows: Rows) -> bytes:
    return json.dumps(
        {str(next(iter(row.values()))): dict(list(row.items())[1:]) for row in rows}
    ).encode()


def _columns(rows: Rows) -> bytes:
    return json.dumps({name: [row.get(name) for row in rows] for name in rows[0]}).encode()


def _columns_of_pandas(rows: Rows) -> bytes:
    return json.dumps(
        {name: {i: row.get(name) for i, row in enumerate(rows)} for name in rows[0]}
    ).encode()


def _table(delimiter: str, rows: Rows) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(out := io.StringIO(newline=""), delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False)
        if isinstance(value, list | dict)
        else ""
        if value is None
        else f"{value}"
    )


def _parquet(rows: Rows) -> bytes:
    plainly = {
        "compression": "none",
        "use_dictionary": False,
    }  # so that its texts can be found in its bytes
    pq.write_table(pa.Table.from_pylist(rows), out := io.BytesIO(), **plainly)
    return out.getvalue()


FORMATS: dict[str, tuple[str, Write]] = {  # name -> (suffix, how rows are written)
    "JSON lines": (".jsonl", lambda rows: "".join(f"{text}\n" for text in _texts(rows)).encode()),
    "JSON list": (".json", lambda rows: ("[\n" + ",\n".join(_texts(rows)) + "\n]\n").encode()),
    "JSON object by id": (".json", _by_id),
    "JSON object of columns": (".json", _columns),
    "pandas' JSON": (".json", _columns_of_pandas),
    "Parquet": (".parquet", _parquet),
}
FORMATS |= {
    f"table with {name}": (".tsv" if mark == "\t" else ".csv", partial(_table, mark))
    for name, mark in DELIMITERS.items()
}


def read(content: bytes) -> tuple[Rows, Write]:
    """The rows of a file that one of FORMATS wrote, and how it did. Raises ValueError for another."""
    if content.startswith(b"PAR1"):
        return pq.read_table(io.BytesIO(content)).to_pylist(), _parquet
    if content[:1] not in b"[{":
        header = content.partition(b"\n")[0].decode()
        mark = max(DELIMITERS.values(), key=header.count)
        if mark not in header:
            raise ValueError("no table")
        return list(
            csv.DictReader(io.StringIO(content.decode(), newline=""), delimiter=mark)
        ), partial(_table, mark)
    if content.startswith(b"{") and content.count(b"\n{"):
        return [json.loads(line) for line in content.splitlines()], FORMATS["JSON lines"][1]
    value = json.loads(content)
    if isinstance(value, list) and isinstance(value[0], dict):
        return value, FORMATS["JSON list"][1]
    first = next(iter(dict(value).values()))  # a ValueError for a list of texts
    if isinstance(first, list):
        return [
            dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)
        ], _columns
    if "0" in first:
        return [
            {name: values[i] for name, values in value.items()} for i in first
        ], _columns_of_pandas
    return [{"id": key} | row for key, row in value.items()], _by_id
