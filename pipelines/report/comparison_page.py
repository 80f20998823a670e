"""The papers' numbers beside ours: those with a verdict as lines for a terminal, all of them as a
page or as CSV.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from pipelines.intervals import Interval
from pipelines.pages.values import NONE, show
from pipelines.report.comparison import DIFFERS, NOT_RUN, OK, RULE, Compared
from pipelines.report.papers import Group, Number, Papers

WIDTH = 100  # characters of a line on a terminal
PAGE_WIDTH = 120  # characters of a line of the page
VERDICTS = (OK, DIFFERS, NOT_RUN)
TEMPLATE = Path(__file__).parent / "templates/reproduction.md.j2"

NO_COLUMNS = ("table", "value", "times", "way")  # keys of `find` that choose no row
NUMBER_COLUMNS = ("number", "published", "ours", "here", "set-up", "found in", "verdict")
REACH = {  # key of comparison.reach -> what the CSV file says
    "reached": "yes",
    "unreached": "not by its profile",
    "gone": "no: its language model can't be had",
    "teacher": "no: LSR's teacher can't be had",
    "unmeasured": "no: it has no measure here",
}

ComparedGroup = tuple[Group, list[Compared]]  # a table of a paper, and its numbers with ours


def count_agreeing(groups: Sequence[ComparedGroup]) -> str:
    """How many numbers have each verdict."""
    times: Counter[str] = Counter()
    for _, numbers in groups:
        times.update(compared.verdict for compared in numbers)
    return ", ".join(f"{times[verdict]} {verdict}" for verdict in VERDICTS)


def comparison_lines(groups: Sequence[ComparedGroup]) -> Iterator[str]:
    """Lines for a terminal: how many numbers have each verdict, then those that have one."""
    yield count_agreeing(groups)
    for group, numbers in groups:
        judged = [compared for compared in numbers if compared.verdict != NOT_RUN]
        if judged:
            yield ""
            yield from textwrap.wrap(f"{group.paper}, {group.place}. {group.what}", WIDTH)

        for compared in judged:
            yield f"  {textwrap.shorten(_label(compared.number), WIDTH - 4, placeholder=' …')}"
            ours = _figure(compared.ours, compared.number)
            text = (
                f"published {_published(compared.number)}; ours {ours}; {compared.verdict_and_way}"
            )
            yield from textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")


def page(
    groups: Sequence[ComparedGroup],
    published: Papers,
    profile: str,
    reach: Mapping[str, Sequence[Number]],
    docs: str = "../",
    *,
    complete: bool,
) -> str:
    """The page, as Markdown: `complete` with every number, else with how many each table has.

    `docs` is the way to the folder docs, and `reach` what comparison.reach returns.
    """
    within_reach = {id(number) for number in reach["reached"]}

    def count_reached(group: Group) -> int:
        return sum(id(number) in within_reach for number in group.numbers)

    papers: dict[str, list[ComparedGroup]] = {}
    for group, numbers in groups:
        papers.setdefault(group.paper, []).append((group, numbers))

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"cells": _cells, "wanted": _wanted, "reached": count_reached}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        rule="\n".join(textwrap.wrap(f"- {RULE}", PAGE_WIDTH, subsequent_indent="  ")),
        counts=count_agreeing(groups),
        profile=profile,
        reach=reach,
        papers=papers,
        published=published,
        complete=complete,
    )
    return re.sub(r"(?<=\]\()(?=[\w/-]+\.md\b)", docs, text)


def numbers_csv(groups: Sequence[ComparedGroup], reach: Mapping[str, Sequence[Number]]) -> str:
    """All numbers as CSV, with the table that each is from, and whether it can be reached."""
    kinds = {id(number): REACH[kind] for kind, numbers in reach.items() for number in numbers}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["paper", "place", "what", "profile", *NUMBER_COLUMNS, "can be reached"])
    for group, numbers in groups:
        table = [group.paper, group.place, group.what, group.profile]
        for compared in numbers:
            cells = [cell.replace("`", "") for cell in _cells(compared)]
            writer.writerow([*table, *cells, kinds[id(compared.number)]])
    return out.getvalue()


def _cells(compared: Compared) -> list[str]:
    """The cells of NUMBER_COLUMNS."""
    number = compared.number
    beside = _figure(compared.beside, number)
    if beside and number.lm:
        beside += f" ({compared.lm})"
    verdict = compared.verdict_and_way
    if compared.needs:
        verdict += f": needs {'; '.join(compared.needs)}"

    cells = [
        _label(number),
        _published(number),
        _figure(compared.ours, number),
        beside,
        ", ".join([*number.lm[:1], *number.setups]),
        _place(number.find),
        verdict,
    ]
    return [(cell or NONE).replace("|", "/") for cell in cells]


def _place(find: Mapping[str, Any]) -> str:
    """Where a run has our figure, as Markdown; "" for nowhere."""
    if not find:
        return ""
    if "metrics" in find:
        return f"`data/metrics/{find['metrics']}.json`, `{find['key']}`"
    if "least_popular" in find:
        file = f"data/predictions/{find['dataset']}/{{lm}}/{find['method']}.parquet"
        return f"`{file}`, the {find['least_popular']:,} least popular"
    if "seconds" in find:
        place = (
            f"`data/latency/{find['dataset']}/{{lm}}`, `median` of {find['method']} and closed_book"
        )
        if find["seconds"] == "saved":
            place += "; `data/analyses/savings.parquet`, `retrieved`"
        return place

    row = [f"{key} {_wanted(value)}" for key, value in find.items() if key not in NO_COLUMNS]
    return f"`data/analyses/{find['table']}.parquet`, `{find['value']}` of {', '.join(row)}"


def _wanted(value: Any) -> str:
    """What a row or a setting must have."""
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return "none" if value is None else str(value)


def _figure(figure: Interval, number: Number) -> str:
    """A figure of ours with one digit more than the paper prints; "" for none."""
    digits = number.digits + 1
    if not math.isfinite(figure.value):
        return ""
    if figure.low < figure.high:
        return show(figure, digits=digits)
    if figure.value.is_integer():
        digits = 0
    return f"{figure.value:,.{digits}f}"


def _label(number: Number) -> str:
    return f"{number.row}: {number.column}" if number.column else number.row


def _published(number: Number) -> str:
    """A number as the paper prints it, with its bound and unit."""
    parts = [number.bound, f"{number.value:,.{number.digits}f}", number.unit]
    if number.also is not None:
        parts.append(f"(an exact repetition: {number.also:,.{number.digits}f})")
    return " ".join(part for part in parts if part)
