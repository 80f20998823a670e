"""Sections as one page that needs no other file, and figures as files of their own."""

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from pipelines import safe_text
from pipelines.pages import figures
from pipelines.pages.drawing import GREYS, STYLES, Style
from pipelines.pages.figures import FIXED, fixed
from pipelines.pages.section import Figure, Link, Section, Table
from pipelines.pages.table_texts import to_csv
from pipelines.pages.values import CELL_CHARACTERS, show

TEMPLATES = Path(__file__).parent / "templates"
FREE_STYLES = STYLES[1:]  # of names that are no method; the first is that of no retrieval


def render(title: str, intro: str, sections: Sequence[Section], footer: str) -> str:
    """The whole page, self-contained."""
    parts = page_parts(styles_of_page(sections))
    template = environment().get_template("page.html.j2")
    return template.render(parts, title=title, intro=intro, sections=sections, footer=footer)


def page_parts(styles: Mapping[str, Style], terms: Mapping[str, str] | None = None) -> dict:
    """What every page's template needs, by name.

    `styles` are those of the page's figures. Each of the `terms` (term -> what it is short for) is
    spelt out where it first stands on the page.
    """
    return {
        "drawn": lambda figure: figures.draw(figure, styles),
        "spelt": Spelling(terms or {}),
        "folded": False,
        "css": inline("report.css"),
        "script": inline("page.js"),
    }


class Spelling:
    """Spells out each term where it first stands on a page, whose texts come in their order."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.unspelt = dict(terms)  # term -> what it is short for

    def __call__(self, text: str) -> str:
        for term in list(self.unspelt):
            pattern = rf"(?<!\()\b{re.escape(term)}\b(?! \()"
            if re.search(pattern, text):
                long = self.unspelt.pop(term)
                text = re.sub(pattern, f"{term} ({long})", text, count=1)
        return text


def page_files(title: str, intro: str, sections: Sequence[Section], footer: str) -> dict[str, str]:
    """A page without findings, as index.html, and its tables as CSV files."""
    files = {"index.html": render(title, intro, sections, footer)}
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table):
                files[f"{block.name}.csv"] = to_csv(block)
    return files


def environment(*folders: Path) -> jinja2.Environment:
    """The templates here and in further folders, with the tests and filters that all pages use.

    What they show is escaped.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, *folders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_safe,
    )

    jinja.policies["json.dumps_function"] = _dump_json
    jinja.tests["table"] = lambda block: isinstance(block, Table)
    jinja.tests["figure"] = lambda block: isinstance(block, Figure)
    jinja.tests["link"] = lambda block: isinstance(block, Link)
    jinja.tests["stacked"] = lambda table: "passage" in table.head
    jinja.filters["show"] = show
    jinja.filters["data_csv"] = _data_csv
    jinja.filters["commands"] = commands
    jinja.filters["unbroken"] = _unbroken
    jinja.filters["figure_caption"] = figures.caption
    return jinja


def _safe(value: Any) -> Any:
    """A value without characters that change how the text around them is shown."""
    return value if isinstance(value, Markup) else safe_text.values(value)


def _dump_json(value: Any, **options: Any) -> str:
    return json.dumps(safe_text.values(value), **options)


def inline(name: str) -> str:
    """A stylesheet or a script, as text to put into the page, so that it needs no other file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def commands(text: str) -> Markup:
    """A paragraph with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(safe_text.text(text)))))


def _unbroken(text: str) -> str:
    """A sentence in which no line ends between a number and its per cent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def styles_of_page(sections: Iterable[Section]) -> dict[str, Style]:
    """The style of every series in the figures of a page, by its label."""
    charts = []
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Figure):
                charts.append(figures.styled_labels(block))
    return styles_of_charts(charts)


def styles_of_charts(charts: Iterable[Sequence[str]]) -> dict[str, Style]:
    """The style of every series of a page, from the names of the series in each of its charts.

    A method has its own colour; that of another retriever or language model has another mark and
    dashes. Other names are grey, or have the colours that methods leave on a page that has few of
    them, such as one of compared files: a name has the same one on most pages, as its hash chooses.
    """
    names_of_charts = [set(chart) for chart in charts]
    names = sorted(set().union(*names_of_charts))
    styles = _styles_of_methods(names)

    used = {style.colour for style in styles.values()}
    free = [style for style in FREE_STYLES if style.colour not in used]
    if 2 * len(free) < len(STYLES):
        free = []
    for name in names:
        if name not in styles:
            free.sort(key=lambda style: zlib.crc32(f"{name} {style.colour}".encode()))
            its_charts = [chart for chart in names_of_charts if name in chart]
            styles[name] = _least_used([*free, *GREYS], styles, its_charts)
    return styles


def _styles_of_methods(names: Iterable[str]) -> dict[str, Style]:
    """The styles of methods and policies; variants of a method share its colour, not its mark."""
    styles: dict[str, Style] = {}
    variants: Counter[str] = Counter()  # colour -> names that are a variant of its method
    for name in names:
        style = fixed(name)
        if style is None:
            continue
        if name not in FIXED:
            variants[style.colour] += 1
            if style in STYLES:
                shape = STYLES[(STYLES.index(style) + variants[style.colour]) % len(STYLES)]
                style = replace(shape, colour=style.colour)

        styles[name] = style

    return styles


def _least_used(
    candidates: Sequence[Style], styles: Mapping[str, Style], charts: Iterable[Set[str]]
) -> Style:
    """The first of the styles that fewest other names have in these charts."""
    times: Counter[Style] = Counter()
    for chart in charts:
        times.update(styles[name] for name in chart & styles.keys())
    return min(candidates, key=times.__getitem__)


def standalone(figure: Figure, styles: Mapping[str, Style]) -> str:
    """The figure as a file of its own, in fixed colours on a light ground.

    `styles` are those of its page.
    """
    style = '<svg style="background: #fcfcfa; font-family: system-ui, sans-serif" '
    wide, _ = figures.draw(figure, styles)
    fixed_colours = re.sub(r"var\(--\w+,(#\w+)\)", r"\1", wide)
    return fixed_colours.replace("<svg ", style, 1) + "\n"


def _data_csv(table: Table) -> str:
    """The table as CSV in an address, as spreadsheets may open it; of long texts what the page
    shows.
    """
    rows = []
    for row in table.rows:
        rows.append([cell[:CELL_CHARACTERS] if isinstance(cell, str) else cell for cell in row])
    text = safe_text.text(to_csv(replace(table, rows=rows)))
    return f"data:text/csv;charset=utf-8,{quote(text, safe=',;!*()?@$-_.~=')}"
