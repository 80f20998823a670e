"""Write croissant.json: a release's files and columns in MLCommons' Croissant format, version 1.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb

from pipelines.release import card, contents
from pipelines.release.contents import BOOLEAN, FLOAT, INTEGER, TEXT, TEXTS
from pipelines.storage import shards

# A list of texts is a field of texts that is marked as repeated.
TYPES = {INTEGER: "sc:Integer", FLOAT: "sc:Float", BOOLEAN: "sc:Boolean", TEXT: "sc:Text", TEXTS: "sc:Text"}
FORMATS = {".json": "application/json", ".parquet": "application/x-parquet", ".tsv": "text/tab-separated-values"}
CONTEXT = Path(__file__).with_name("templates") / "croissant_context.json"  # the standard one; readers warn without


def write_croissant(db: duckdb.DuckDBPyConnection, folder: Path, date: str, language: str = "en") -> None:
    """Write croissant.json into a release's folder; `db` holds its checked tables, `date` is YYYY-MM-DD."""
    tables = contents.present(folder)
    files = [name for table in tables for name in (table.parquet, table.tsv)]
    files += [path.relative_to(folder).as_posix() for path in contents.rules(folder).values()]
    described = {
        "@context": json.loads(CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": card.TITLE,
        "description": card.description(folder),
        "citeAs": card.CITATION,
        "license": [licence.url for licence in card.licences(db)],
        "version": folder.name,
        "datePublished": date,
        "inLanguage": language,
        "isLiveDataset": False,
        "distribution": [_file(folder, name) for name in files],
        "recordSet": [_records(table) for table in tables],
    }
    shards.write_json(folder / "croissant.json", described)


def _file(folder: Path, name: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{(folder / name).stat().st_size} B",
        "encodingFormat": FORMATS[Path(name).suffix],
        "sha256": contents.sha256(folder / name),
    }


def _records(table: contents.Table) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.title,
        "key": [{"@id": f"{table.name}/{name}"} for name in table.key],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table.name}/{name}",
                "name": name,
                "description": meaning,
                "dataType": TYPES[kind],
                **({"repeated": True} if kind == TEXTS else {}),
                "source": {"fileObject": {"@id": table.parquet}, "extract": {"column": name}},
            }
            for name, (kind, meaning) in table.columns.items()
        ],
    }
