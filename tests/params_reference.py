"""docs/params.md, the reference of params.yaml, read off params.py and its parts; running this file
writes it.

A key's text is the comment above it in the class, its type what pydantic checks, its value that of
the sample profile.
"""

import ast
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Every parameter

`params.yaml` is composed from `conf/config.yaml` and a profile (`longtail run --profile NAME`), and checked key by
key. The values here are the sample's; [conf/profile](../conf/profile) has those of the papers.
This page is made from `pipelines/params` (`python tests/params_reference.py`).

"""
PROFILE = "sample"
PLAIN = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}


def page() -> str:
    """The page's text."""
    sys.path.insert(0, str(ROOT))
    from flows import profiles
    from pipelines.params.params import Params

    files = (ROOT / "pipelines/params").glob("params*.py")
    said = {key: text for file in files for key, text in _comments(file).items()}
    schema = Params.model_json_schema()
    values = yaml.safe_load(profiles.compose(PROFILE, ROOT))
    parts, plain = [], []
    for name, field in schema["properties"].items():
        if found := _section(name, field, schema["$defs"], said, values.get(name)):
            parts.append(found)
        else:
            plain.append(_row("Params", name, field, said, values))
    return HEAD + _table(plain) + "\n\n" + "\n\n".join(parts) + "\n"


def _section(path: str, field: dict, classes: dict, said: dict, values: Any) -> str:
    """The heading and table of the section at `path`, then those of the sections within it; ""
    where it is none.

    `values` are the section's in the profile.
    """
    mapped = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")][0]
    if isinstance(mapped, dict) and "$ref" in mapped:  # a mapping: shown for its first entry
        path, field = f"{path}.<name>", mapped
        values = next(iter(values.values()), None) if isinstance(values, dict) else None
    refs = [
        one["$ref"]
        for one in (field, *field.get("anyOf", ()), field.get("items", {}))
        if "$ref" in one
    ]
    if not refs:
        return ""
    if "items" in field:
        path, values = f"{path}[]", values[0] if values else None
    kind = refs[0].rpartition("/")[2]
    rows, within = [], []
    for key, inner in classes[kind]["properties"].items():
        below = values.get(key) if isinstance(values, dict) else None
        if found := _section(f"{path}.{key}", inner, classes, said, below):
            within.append(found)
        else:
            rows.append(_row(kind, key, inner, said, values))
    text = classes[kind].get("description", "")
    return "\n\n".join(
        [f"## {path}", *([text] if text else []), *([_table(rows)] if rows else []), *within]
    )


def _row(kind: str, key: str, field: dict, said: dict, values: Any) -> list[str]:
    shown = _value(values[key]) if isinstance(values, dict) and key in values else ""
    return [f"`{key}`", _type(field), shown, said.get((kind, key), "")]


def _type(field: dict) -> str:
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    kind = field.get("type", "")
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
    bounds = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    limits = [f"{sign} {field[name]:g}" for name, sign in bounds.items() if name in field]
    return " ".join([PLAIN.get(kind, "null"), *limits])


def _value(value) -> str:
    if isinstance(value, dict | list) and len(str(value)) > 60:
        return "see `conf/`"
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else str(value).replace("\n", "\\n")
    return f"`{text}`"


def _table(rows: list[list[str]]) -> str:
    cells = [["key", "type", "value", ""], ["---"] * 4, *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells
    )


def _comments(file: Path) -> dict[tuple[str, str], str]:
    """(class, key) -> the comment lines above the key."""
    source = file.read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines()]
    comments = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        for entry in node.body:
            if not isinstance(entry, ast.AnnAssign):
                continue
            first = last = entry.lineno - 1
            while lines[first - 1].startswith("# "):
                first -= 1
            text = " ".join(line.removeprefix("# ") for line in lines[first:last])
            comments[node.name, entry.target.id] = text
    return comments


if __name__ == "__main__":
    (ROOT / "docs/params.md").write_text(page(), encoding="utf-8")
