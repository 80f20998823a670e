"""Named samples of PopQA that papers use: lists of its ids in subsets.yaml, each with its
source.
"""

from pathlib import Path
from typing import NamedTuple

from pipelines import yaml_files

FILE = Path(__file__).parent / "subsets.yaml"


class Subset(NamedTuple):
    """A named sample of PopQA."""

    about: str  # what it is, in words
    ids: frozenset[str]  # as popQA.tsv has them


def read_subsets() -> dict[str, Subset]:
    """The samples by their names."""
    entries = yaml_files.read(FILE)
    subsets = {}
    for name, entry in entries.items():
        ids = frozenset(entry["ids"].split())
        subsets[name] = Subset(entry["about"], ids)
    return subsets
