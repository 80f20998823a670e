"""Describe a release's files and columns for croissant.json, in MLCommons' Croissant format, version 1.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.release import contents

FILE = "croissant.json"
TYPES = {
    contents.INTEGER: "sc:Integer",
    contents.FLOAT: "sc:Float",
    contents.BOOLEAN: "sc:Boolean",
    contents.TEXT: "sc:Text",
    contents.TEXTS: "sc:Text",  # in a field marked as repeated
}
FORMATS = {".parquet": "application/x-parquet", ".tsv": "text/tab-separated-values"}
CONTEXT = {  # the format's standard context; its readers warn without it
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def describe(
    folder: Path, version: str, *, title: str, description: str, citation: str, licences: Sequence[str], date: str
) -> dict[str, Any]:
    """The metadata of the release whose tables lie in `folder`; `licences` are addresses, `date` is YYYY-MM-DD."""
    tables = contents.present(folder)
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title,
        "description": description,
        "citeAs": citation,
        "license": list(licences),
        "version": version,
        "datePublished": date,
        "inLanguage": "en",
        "isLiveDataset": False,
        "distribution": [_file(folder, name) for table in tables for name in (table.parquet, table.tsv)],
        "recordSet": [_records(table) for table in tables],
    }


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
                **({"repeated": True} if kind == contents.TEXTS else {}),
                "source": {"fileObject": {"@id": table.parquet}, "extract": {"column": name}},
            }
            for name, (kind, meaning) in table.columns.items()
        ],
    }
