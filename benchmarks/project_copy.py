"""Copies of the committed project, with another profile, seed or settings."""

import csv
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from pipelines.storage.atomic import atomic

ROOT = Path(__file__).resolve().parents[1]
RUN = (sys.executable, "-m", "flows.cli", "run")


def clone(folder: Path, profile: str, **changes: object) -> Path:
    """A clone of the project in `folder`, unless it is there, with a profile and these params;
    a section is merged.
    """
    if not folder.is_dir():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        subprocess.run(
            [*RUN[:-1], "init", "--profile", profile],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    set_params(folder, **changes)
    return folder


def set_params(folder: Path, **changes: object) -> None:
    values = yaml.safe_load((folder / "params.yaml").read_text(encoding="utf-8"))
    for name, change in changes.items():
        values[name] = values[name] | change if isinstance(change, dict) else change
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")


def write_csv(file: Path, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table as a CSV file, and make its folder."""
    with atomic(file) as path, path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *rows])
