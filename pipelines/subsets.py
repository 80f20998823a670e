"""Named samples of PopQA that papers use: lists of its ids in subsets.yaml, each with its
source.
"""

from pathlib import Path
from typing import NamedTuple

import yaml

FILE = Path(__file__).parent / "subsets.yaml"


class Subset(NamedTuple):
    """A named sample of PopQA."""

    about: str  # what it is, in words
    ids: frozenset[str]  # as popQA.tsv has them


def read_subsets() -> dict[str, Subset]:
    """The samples by their names."""
    entries = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    subsets = {}
    for name, entry in entries.items():
        ids = frozenset(entry["ids"].split())
        subsets[name] = Subset(entry["about"], ids)
    return subsets
