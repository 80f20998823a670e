"""The Markdown page of what the runs of real models measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def page(work: Path) -> Iterator[str]:
    """The page's lines."""
    yield from ()
