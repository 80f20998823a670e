"""What leads from the report to the explorer: links where it serves the page, else a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode


class Explorable(str):
    """A text in a table that `longtail explore` makes a link to `at`, an address of the explorer."""

    def __new__(cls, text: str, path: str, **values: str) -> Explorable:
        made = super().__new__(cls, text)
        made.at = f"{path}?{urlencode(values, errors='replace')}"
        return made


@dataclass(frozen=True)
class Explored:
    """Questions to look at: rule -> links, for where `longtail explore` serves the page; else a sentence."""

    links: Mapping[str, Sequence[Explorable]]
    without: str


def served(html: str) -> str:
    """A page as the explorer serves it: what leads to the explorer is a link, which a file on a disk can't have."""
    return html.replace('<a data-at="/', '<a href="/')
