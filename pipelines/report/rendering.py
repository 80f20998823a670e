"""Sections as one page that needs no other file, and figures as files of their own."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from pipelines import neutral
from pipelines.report import colours
from pipelines.report.csv_files import inert, to_csv
from pipelines.report.explored import Explorable
from pipelines.report.page import CELL, RULES, Block, Figure, Finding, Link, Marked, Section, Table, show

TEMPLATES = Path(__file__).parent / "templates"


def environment() -> jinja2.Environment:
    """The templates, with the tests and filters that all pages use. What they show is neutral, and escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else neutral.values(value),
    )  # fmt: skip
    made.policies["json.dumps_function"] = lambda value, **options: json.dumps(neutral.values(value), **options)
    made.tests |= {
        kind.__name__.lower(): lambda x, kind=kind: isinstance(x, kind)
        for kind in (Table, Figure, Link, Marked, Explorable)
    }
    made.tests["stacked"] = lambda table: any(isinstance(cell, Marked) for row in table.rows for cell in row)
    made.filters |= {"show": show, "data_csv": _data_csv, "counted": _counted, "commands": commands}
    return made


def inline(name: str) -> str:
    """A stylesheet or a script, as text to put into the page, so that the page needs no other file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render(title: str, intro: str, findings: Sequence[Finding], sections: Sequence[Section], footer: str) -> str:
    """The whole page, self-contained; without findings it has no section of them."""
    template, verdicts = environment().get_template("report.html.j2"), Counter(finding.verdict for finding in findings)
    blocks = [block for section in sections for block in section.blocks]
    slots = colours.of_page(sections)  # a name has one colour in all figures
    return template.render(
        drawn=lambda figure: figure.drawn(slots),
        rules=RULES if any(not isinstance(block, str | Link) and block.rules for block in blocks) else {},
        title=title,
        intro=intro,
        findings=findings,
        verdicts=verdicts,
        sections=sections,
        footer=footer,
        css=inline("report.css"),
        script=inline("page.js"),
    )


def commands(text: str) -> Markup:
    """A paragraph with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(neutral.text(text)))))


def standalone(figure: Figure, slots: Mapping[str, int]) -> str:
    """The figure as a file of its own, in fixed colours on a light ground; `slots` are those of its page's series."""
    style = '<svg style="background: #fcfcfa; font-family: system-ui, sans-serif" '
    return re.sub(r"var\(--\w+,(#\w+)\)", r"\1", figure.drawn(slots)[0]).replace("<svg ", style, 1) + "\n"


def _counted(blocks: Sequence[Block]) -> str:
    """What is folded: so many tables and figures."""
    kinds = {"table": Table, "figure": Figure}
    counts = {name: sum(isinstance(block, kind) for block in blocks) for name, kind in kinds.items()}
    words = [f"{n} {name}{'s' * (n > 1)}" for name, n in counts.items() if n]
    return f": {' and '.join(words)}" if words else ""


def _data_csv(table: Table) -> str:
    """The table as CSV in an address, as spreadsheets may open it; of long texts what the page shows."""
    rows = [[str(cell)[:CELL] if isinstance(cell, str | Marked) else cell for cell in row] for row in table.rows]
    text = neutral.text(to_csv(inert(replace(table, rows=rows))))
    return f"data:text/csv;charset=utf-8,{quote(text, safe=',;!*()?@$-_.~=')}"
