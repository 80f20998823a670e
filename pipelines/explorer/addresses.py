"""The parameters of a page's address: read, checked, and put together again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from urllib.parse import urlencode

from pipelines.errors import LongtailError

PAGE = 50  # rows of a list
WORDS = 200  # characters of a text in an address, which every link of a page repeats


class Addressed:
    """A dataclass whose fields are the parameters of the pages at PATH; those that have their default are left out."""

    PATH = ""

    def to(self, path: str = "", *, id: str = "", prompt: str = "", **changes: str | int) -> str:
        """The address of a page about this choice with some changes: of its list, or of the row `id` in it."""
        if "page" in (defaults := {field.name: field.default for field in fields(self)}):
            changes = {"page": self.page if id else 1} | changes
        named = asdict(replace(self, **changes)) | {"id": id, "prompt": prompt}
        named = {name: value for name, value in named.items() if value and defaults.get(name) != value}
        return (path or self.PATH) + (f"?{urlencode(named, errors='replace')}" if named else "")


def one_of(field: str, value: str, allowed: Iterable[str]) -> str:
    """The value, if it is allowed; else LongtailError with what is."""
    if value not in (known := list(allowed)):
        names = ", ".join(name for name in known if name)
        raise LongtailError(f"{field}: there is no {value!r}, expected one of: {names or 'nothing'}")
    return value


def page_of(asked: Mapping[str, str]) -> int:
    """The number of the page asked for, from 1. Raises LongtailError for anything else."""
    page = asked.get("page", "1")
    if not re.fullmatch(r"[1-9]\d{0,8}", page):
        raise LongtailError(f"page: {page!r} is no page, expected a number from 1 on")
    return int(page)
