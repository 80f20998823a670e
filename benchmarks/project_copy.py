"""Copies of the committed project, with another profile, seed or settings."""

import csv
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

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


def dvc_stages(project: Path) -> list[Any]:
    """DVC's stages in the order of dvc.yaml, which is that of the data, as params.yaml expands
    them.
    """
    from dvc.repo import Repo

    with chdir(project), Repo(".") as repo:  # DVC looks up params.yaml and data there
        return list(repo.index.stages)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = [*head]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def write_csv(file: Path, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table as a CSV file, and make its folder."""
    with atomic(file) as path, path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *rows])
