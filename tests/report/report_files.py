"""What the report leaves in files."""

import csv
import json
from pathlib import Path


def table_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"tables/{name}.csv").open(encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


def findings_of(folder: Path) -> dict:
    return {row["id"]: row for row in json.loads((folder / "findings.json").read_text())}


def settings_of(folder: Path) -> dict[str, str]:
    return {row["setting"]: row["value"] for row in table_of(folder, "settings")}


def page_of(folder: Path) -> str:
    """The page in one line."""
    return " ".join((folder / "index.html").read_text(encoding="utf-8").split())
