"""Describe a release in MLCommons' format Croissant, version 1.0."""

from pathlib import Path

import pyarrow as pa

from pipelines.release import contents
from pipelines.release.templating import TEMPLATES, Facts
from pipelines.storage.atomic import read_json
from pipelines.tables.table import Column, type_name

# The standard context; Croissant's readers warn without it.
CONTEXT = TEMPLATES / "croissant_context.json"
# The types of columns -> Croissant's, which marks lists as repeated.
TYPES = {
    "int64": "sc:Integer",
    "double": "sc:Float",
    "bool": "sc:Boolean",
    "string": "sc:Text",
    "list of string": "sc:Text",
}
MEDIA_TYPES = {
    ".json": "application/json",
    ".parquet": "application/x-parquet",
    ".tsv": "text/tab-separated-values",
}


def dataset(folder: Path, facts: Facts) -> Facts:
    """The release in MLCommons' format Croissant, version 1.0."""
    names = []
    for table in facts["tables"]:
        names += [table.parquet, table.tsv]
    names += facts["rules"].values()
    context = read_json(CONTEXT)
    return {
        "@context": context,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": facts["title"],
        "description": facts["description"],
        "citeAs": facts["citation"],
        "license": [licence["url"] for licence in facts["licences"]],
        "version": facts["version"],
        "datePublished": facts["date"],
        "inLanguage": facts["code"],
        "isLiveDataset": False,
        "distribution": [_file_object(folder, name) for name in names],
        "recordSet": [_record_set(table) for table in facts["tables"]],
    }


def _file_object(folder: Path, name: str) -> dict[str, str]:
    file = folder / name
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{file.stat().st_size} B",
        "encodingFormat": MEDIA_TYPES[file.suffix],
        "sha256": contents.sha256(file),
    }


def _record_set(table: contents.ReleaseTable) -> Facts:
    fields = []
    for column in table.described:
        for name in column.names:
            fields.append(_field(table, name, column))
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.title,
        "key": [{"@id": f"{table.name}/{name}"} for name in table.key],
        "field": fields,
    }


def _field(table: contents.ReleaseTable, name: str, column: Column) -> Facts:
    source = {"fileObject": {"@id": table.parquet}, "extract": {"column": name}}
    field: Facts = {
        "@type": "cr:Field",
        "@id": f"{table.name}/{name}",
        "name": name,
        "description": column.meaning,
        "dataType": TYPES[type_name(column.type)],
        "source": source,
    }
    if pa.types.is_list(column.type):
        field["repeated"] = True
    return field
