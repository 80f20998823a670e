"""Describe a release in MLCommons' format Croissant, version 1.0."""

import json
from pathlib import Path

from pipelines.release import contents
from pipelines.release.templating import TEMPLATES, Facts

# The standard context; Croissant's readers warn without it.
CONTEXT = TEMPLATES / "croissant_context.json"
# DuckDB's types -> Croissant's, which marks lists as repeated.
TYPES = {
    "BIGINT": "sc:Integer",
    "DOUBLE": "sc:Float",
    "BOOLEAN": "sc:Boolean",
    "VARCHAR": "sc:Text",
    "VARCHAR[]": "sc:Text",
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
    context = json.loads(CONTEXT.read_text(encoding="utf-8"))
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
    for name, (type_name, meaning) in table.columns.items():
        source = {"fileObject": {"@id": table.parquet}, "extract": {"column": name}}
        field: Facts = {
            "@type": "cr:Field",
            "@id": f"{table.name}/{name}",
            "name": name,
            "description": meaning,
            "dataType": TYPES[type_name],
            "source": source,
        }
        if type_name.endswith("[]"):
            field["repeated"] = True
        fields.append(field)
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.title,
        "key": [{"@id": f"{table.name}/{name}"} for name in table.key],
        "field": fields,
    }
