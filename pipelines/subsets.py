"""Named samples of PopQA that papers use: lists of its ids in subsets.yaml, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

from pipelines.errors import LongtailError

FILE = Path(__file__).parent / "subsets.yaml"


class Subset(NamedTuple):
    about: str  # what it is, in words
    source: str  # where its list comes from
    ids: frozenset[str]  # as popQA.tsv has them


def names() -> list[str]:
    return list(_entries())


def read_subset(name: str) -> Subset:
    """A sample by its name. Raises LongtailError for a name that subsets.yaml does not have."""
    entries = _entries()
    if name not in entries:
        raise LongtailError(f"no subset of PopQA is called {name!r}, expected one of {', '.join(entries)}")
    entry = entries[name]
    return Subset(entry["about"], entry["source"], frozenset(entry["ids"].split()))


def _entries() -> dict[str, dict[str, str]]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
