"""What the report leaves in files."""

import csv
import json
from pathlib import Path


def table_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"tables/{name}.csv").open() as rows:
        return list(csv.DictReader(rows))


def findings_of(folder: Path) -> dict:
    return {row["id"]: row for row in json.loads((folder / "findings.json").read_text())}
