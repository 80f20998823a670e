"""What a page's address asks for, as a dataclass: its fields are the parameters of the address."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import urlencode

from pipelines.errors import LongtailError

ROWS_OF_PAGE = 50  # rows of a list on one page


@dataclass(frozen=True)
class Addressed:
    """A choice whose fields are the parameters of the pages at PATH."""

    PATH = ""

    def to(self, path: str = "", *, id: str = "", prompt: str = "", **changes: str | int) -> str:
        """The address of a page about this choice, with some changes of it.

        It is the address of the choice's list, or of the row `id` in the list. Parameters that have
        their default are left out.
        """
        defaults = {field.name: field.default for field in fields(self)}
        if "page" in defaults and "page" not in changes:
            changes["page"] = asdict(self)["page"] if id else 1

        parameters = asdict(replace(self, **changes)) | {"id": id, "prompt": prompt}
        named = {}
        for name, value in parameters.items():
            if value and defaults.get(name) != value:
                named[name] = value
        address = path or self.PATH
        if named:
            address += f"?{urlencode(named, errors='replace')}"
        return address


def value_of(
    parameters: Mapping[str, str], field: str, allowed: Iterable[str], default: str = ""
) -> str:
    """The value of a parameter if it is allowed, or the default. Raises LongtailError otherwise."""
    value = parameters.get(field) or default
    values = list(allowed)
    if value not in values:
        names = ", ".join(name for name in values if name)
        raise LongtailError(
            f"{field}: there is no {value!r}, expected one of: {names or 'nothing'}"
        )
    return value


def number_of_pages(rows: int) -> int:
    """How many pages a list takes; an empty one has a page too."""
    return max(1, math.ceil(rows / ROWS_OF_PAGE))


def page_number(parameters: Mapping[str, str]) -> int:
    """The number of the page asked for, from 1. Raises LongtailError for anything else."""
    page = parameters.get("page") or "1"
    if not re.fullmatch(r"[1-9]\d{0,8}", page):
        raise LongtailError(f"page: {page!r} is no page, expected a number from 1 on")
    return int(page)
