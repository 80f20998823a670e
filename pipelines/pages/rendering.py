"""Sections as one page that needs no other file, and figures as files of their own."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from pipelines import safe_text
from pipelines.pages.drawing import GREYS, STYLES, Style
from pipelines.pages.figures import FIXED, fixed
from pipelines.pages.section import RULES, VERDICTS, Figure, Finding, Link, Section, Table
from pipelines.pages.table_texts import to_csv
from pipelines.pages.values import CELL_CHARACTERS, show

TEMPLATES = Path(__file__).parent / "templates"
RESULT = "result"  # the section that the page begins with
LEFT = [
    STYLES[i] for i in (2, 1, 3, 0, 5, 6, 7, 8, 4, 9)
]  # in the order in which names that are no method take them


def environment() -> jinja2.Environment:
    """The templates, with the tests and filters that all pages use. What they show is neutral, and escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else safe_text.values(value),
    )  # fmt: skip
    made.policies["json.dumps_function"] = lambda value, **options: json.dumps(
        safe_text.values(value), **options
    )
    made.tests |= {
        kind.__name__.lower(): lambda x, kind=kind: isinstance(x, kind)
        for kind in (Table, Figure, Link)
    }
    made.tests["stacked"] = lambda table: "passage" in table.head
    made.filters |= {"show": show, "data_csv": _data_csv, "commands": commands}
    return made


def inline(name: str) -> str:
    """A stylesheet or a script, as text to put into the page, so that the page needs no other file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render(
    title: str,
    intro: str,
    findings: Sequence[Finding],
    sections: Sequence[Section],
    footer: str,
    main: str = "",
) -> str:
    """The whole page, self-contained. A section `result` is what it begins with.

    `main` is the language model whose figures these are.
    """
    template, claims = environment().get_template("report.html.j2"), {}
    for one in findings:
        claims.setdefault(one.paper, {}).setdefault(one.claim, {}).setdefault(one.on, []).append(
            one
        )
    blocks = [block for section in sections for block in section.blocks]
    of_page = styles_of_page(sections)
    return template.render(
        drawn=lambda figure: figure.drawn(of_page),
        rules=RULES if any(not isinstance(block, str | Link) and block.rules for block in blocks) else {}, title=title,
        intro=intro, findings=findings, claims=claims, main=main, verdicts=VERDICTS,
        result=next((section for section in sections if section.id == RESULT), None),
        sections=[section for section in sections if section.id != RESULT], footer=footer, css=inline("report.css"),
        script=inline("page.js"),
    )  # fmt: skip


def page_files(title: str, intro: str, sections: Sequence[Section], footer: str) -> dict[str, str]:
    """A page without findings, as index.html, and its tables as CSV files."""
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    html = render(title, intro, [], sections, footer)
    return {"index.html": html} | {f"{table.name}.csv": to_csv(table) for table in tables}


def commands(text: str) -> Markup:
    """A paragraph with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(safe_text.text(text)))))


def styles(charts: Iterable[Sequence[str]]) -> dict[str, Style]:
    """The style of every series of a page, from the names of the series in each of its charts.

    A method has its own colour; that of another retriever or language model has another mark and dashes. Other names
    are grey, or have the colours that methods leave on a page that has few of them, such as one of compared files.
    """
    charts = sorted(dict.fromkeys(map(tuple, charts)), key=len, reverse=True)
    names = dict.fromkeys(name for chart in charts for name in chart)
    chosen: dict[str, Style] = {}
    for name, own in ((name, fixed(name)) for name in names):
        if own in STYLES and name not in FIXED:
            turn = 1 + sum(
                style.colour == own.colour for name, style in chosen.items() if name not in FIXED
            )
            own = STYLES[(STYLES.index(own) + turn) % len(STYLES)]._replace(colour=own.colour)
        if own:
            chosen[name] = own
    free = [style for style in LEFT if style.colour not in {one.colour for one in chosen.values()}]
    others = [*free, *GREYS] if 2 * len(free) > len(STYLES) else GREYS
    for name in (name for name in names if name not in chosen):
        beside = Counter(
            chosen[other] for chart in charts if name in chart for other in {*chart} & chosen.keys()
        )
        chosen[name] = min(others, key=lambda style: (beside[style], others.index(style)))
    return chosen


def styles_of_page(sections: Iterable[Section]) -> dict[str, Style]:
    """The style of every series in the figures of a page."""
    whole = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    return styles(chart.series for figure in whole for chart in figure.by_rule.values())


def standalone(figure: Figure, of_page: Mapping[str, Style]) -> str:
    """The figure as a file of its own, in fixed colours on a light ground; `of_page` are its page's styles."""
    style = '<svg style="background: #fcfcfa; font-family: system-ui, sans-serif" '
    return (
        re.sub(r"var\(--\w+,(#\w+)\)", r"\1", figure.drawn(of_page)[0]).replace("<svg ", style, 1)
        + "\n"
    )


def _data_csv(table: Table) -> str:
    """The table as CSV in an address, as spreadsheets may open it; of long texts what the page shows."""
    rows = [
        [cell[:CELL_CHARACTERS] if isinstance(cell, str) else cell for cell in row]
        for row in table.rows
    ]
    text = safe_text.text(to_csv(replace(table, rows=rows)))
    return f"data:text/csv;charset=utf-8,{quote(text, safe=',;!*()?@$-_.~=')}"
