"""The papers' numbers beside ours: those with a verdict as lines for a terminal, all of them as a
page.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jinja2

from pipelines.intervals import Interval
from pipelines.pages.values import NONE, show
from pipelines.report.comparison import DIFFERS, NOT_RUN, OK, RULE, Compared
from pipelines.report.papers import Group, Number, Papers

WIDTH = 100  # characters of a line on a terminal
PAGE_WIDTH = 120  # characters of a line of the page
VERDICTS = (OK, DIFFERS, NOT_RUN)
TEMPLATE = Path(__file__).parent / "templates/reproduction.md.j2"

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
) -> str:
    """The page, as Markdown.

    `docs` is the way to the folder docs, and `reach` what comparison.reach returns.
    """
    papers: dict[str, list[ComparedGroup]] = {}
    for group, numbers in groups:
        papers.setdefault(group.paper, []).append((group, numbers))

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cells"] = _cells
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        rule="\n".join(textwrap.wrap(f"- {RULE}", PAGE_WIDTH, subsequent_indent="  ")),
        counts=count_agreeing(groups),
        profile=profile,
        reach=reach,
        papers=papers,
        published=published,
    )
    return re.sub(r"(?<=\]\()(?=[\w/-]+\.md\b)", docs, text)


def _cells(compared: Compared) -> list[str]:
    """A number's name, as published, ours, what stands beside it, its set-up and the verdict."""
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
        verdict,
    ]
    return [(cell or NONE).replace("|", "/") for cell in cells]


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
