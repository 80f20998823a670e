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
from pipelines.report.comparison import RULE, Compared, Group, Number, Papers

WIDTH = 100
NOT_RUN = "not run here"
VERDICTS = ("ok", "differs", NOT_RUN)
TEMPLATE = Path(__file__).parent / "templates/reproduction.md.j2"


def count_agreeing(groups: Sequence[tuple[Group, list[Compared]]]) -> str:
    """How many numbers have each verdict."""
    times = Counter(compared.verdict for _, of_group in groups for compared in of_group)
    return ", ".join(f"{times[verdict]} {verdict}" for verdict in VERDICTS)


def comparison_lines(groups: Sequence[tuple[Group, list[Compared]]]) -> Iterator[str]:
    """Yield lines of at most WIDTH characters: how many numbers have each verdict, then those that
    are not NOT_RUN.
    """
    yield count_agreeing(groups)
    for group, of_group in groups:
        judged = [compared for compared in of_group if compared.verdict != NOT_RUN]
        if judged:
            yield from ("", *textwrap.wrap(f"{group.paper}, {group.place}. {group.what}", WIDTH))
        for compared in judged:
            yield f"  {textwrap.shorten(_label(compared.number), WIDTH - 4, placeholder=' …')}"
            ours, _ = _figures(compared)
            text = f"published {_published(compared.number)}; ours {ours}; {_verdict(compared)}"
            yield from textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")


def page(
    groups: Sequence[tuple[Group, list[Compared]]],
    published: Papers,
    profile: str,
    reach: Mapping[str, Sequence[Number]],
    docs: str = "../",
) -> str:
    """The page, as Markdown; `docs` is the way to the folder docs, and `reach` what
    comparison.reach returns.
    """
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cells"] = _cells
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        rule="\n".join(textwrap.wrap(f"- {RULE}", 120, subsequent_indent="  ")),
        counts=count_agreeing(groups),
        profile=profile,
        reach=reach,
        papers={
            group.paper: [one for one in groups if one[0].paper == group.paper]
            for group, _ in groups
        },
        published=published,
    )

    return re.sub(r"(?<=\]\()(?=[\w/-]+\.md\b)", docs, text)


def _cells(compared: Compared) -> list[str]:
    """A number's name, as published, ours, what stands beside it, its set-up and the verdict."""
    setup = ", ".join([*compared.number.lm[:1], *compared.number.setups])
    verdict = _verdict(compared) + f": needs {'; '.join(compared.needs)}" * bool(compared.needs)
    cells = [
        _label(compared.number),
        _published(compared.number),
        *_figures(compared),
        setup,
        verdict,
    ]
    return [(cell or NONE).replace("|", "/") for cell in cells]


def _verdict(compared: Compared) -> str:
    return f"{compared.verdict} ({compared.way})" if compared.way else compared.verdict


def _figures(compared: Compared) -> tuple[str, str]:
    """Ours and what stands beside it, as text; "" for none."""
    ours, beside = (
        _figure(figure, compared.number.digits + 1) for figure in (compared.ours, compared.beside)
    )
    return ours, beside and f"{beside} ({compared.lm})" if compared.number.lm else beside


def _figure(figure: Interval, digits: int) -> str:
    if not math.isfinite(figure.value):
        return ""
    if figure.low < figure.high:
        return show(figure, digits=digits)
    return f"{figure.value:,.{0 if figure.value.is_integer() else digits}f}"


def _label(number: Number) -> str:
    return f"{number.row}: {number.column}" if number.column else number.row


def _published(number: Number) -> str:
    also = "" if number.also is None else f"(an exact repetition: {number.also:,.{number.digits}f})"
    return " ".join(
        filter(None, (number.bound, f"{number.value:,.{number.digits}f}", number.unit, also))
    )
