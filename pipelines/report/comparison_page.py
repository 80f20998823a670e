"""The papers' numbers beside ours: those with a verdict as lines for a terminal, all of them as a page."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.intervals import Interval
from pipelines.report.comparison import RULE, Compared
from pipelines.report.page import NONE, show
from pipelines.report.papers import Group, Number, Papers

WIDTH = 100
MOST = 3  # needs of what was not run that a terminal shows
NOT_RUN = "not run here"
VERDICTS = ("ok", "differs", NOT_RUN)
_BULLET = "\n".join(textwrap.wrap(f"- {RULE}", 120, subsequent_indent="  "))
HEAD = f"""# The papers' numbers, and ours

Hold a run's outputs against every result that the texts of the REPLUG and PopQA papers state as a number:

```sh
longtail run --profile paper-popqa
longtail reproduce
```

`longtail reproduce` prints which numbers the run at hand meets and which it does not. It writes this page, with all
numbers, to `data/reproduction/reproduction.md`. `docs/measured/reproduction.md` is the project's copy, of the sample:
`longtail reproduce --docs` makes it again. The numbers are in `pipelines/report/papers.yaml`.

{_BULLET}
- A result counts only if the run has what the paper's set-up demands: the language model and the
  [set-ups](#set-ups) that its line names. All else is `not run here`, with what the run lacks.
- A language model is known by the last part of its `path`, whatever the case and the separators, or by the name that
  [imported answers](adaptive.md#answers-made-elsewhere) have. How imported answers were made is not checked.
- **here** is the same measure in another set-up or of another model. It stands beside the paper's number, never in its
  place, and has no verdict.
- The sample's world is fictional, so its figures can't be compared with the papers. They are not shown here at all.
- Numbers stand as printed. Figures that no text puts into numbers are listed at the end, with the table that has ours.
"""

SETUPS = """## Set-ups

Names are parameters ([params.md](params.md)), but for these: `lsr.lm` is the model's name on the Hub or its server;
`questions.<set>` is a number of questions asked; `files.<data set>` are the names of its raw files;
`metrics.<file>.<key>` is a figure in `data/metrics`. `set` means any value.
"""


def count_agreeing(groups: Sequence[tuple[Group, list[Compared]]]) -> str:
    """How many numbers have each verdict."""
    times = Counter(compared.verdict for _, of_group in groups for compared in of_group)
    return ", ".join(f"{times[verdict]} {verdict}" for verdict in VERDICTS)


def comparison_lines(groups: Sequence[tuple[Group, list[Compared]]]) -> Iterator[str]:
    """Yield lines of at most WIDTH characters: how many numbers have each verdict, then those that are not NOT_RUN.

    What all numbers that were not run lack is said once, else what most of them lack; what each lacks is on the page.
    """
    yield count_agreeing(groups)
    for group, of_group in groups:
        judged = [compared for compared in of_group if compared.verdict != NOT_RUN]
        if judged:
            yield from ("", *textwrap.wrap(f"{group.paper}, {group.place}. {group.what}", WIDTH))
        for compared in judged:
            yield f"  {textwrap.shorten(_label(compared.number), WIDTH - 4, placeholder=' …')}"
            ours, _ = _figures(compared)
            yield from _wrapped(f"published {_published(compared.number)}; ours {ours}; {compared.verdict}", "    ")
    others = [compared for _, of_group in groups for compared in of_group if compared.verdict == NOT_RUN]
    lacking = [set(compared.needs) for compared in others if not compared.number.missing]
    if lacking and (everywhere := set.intersection(*lacking)):
        yield from ("", *_wrapped(f"All that was {NOT_RUN} needs {'; '.join(sorted(everywhere))}.", ""))
    elif lacking:
        times = Counter(need for needs in lacking for need in {need.partition(" (here ")[0] for need in needs})
        most = sorted(times, key=lambda need: (-times[need], need))[:MOST]
        said = "; ".join(f"{need} ({times[need]})" for need in most)
        yield from _wrapped(f"Needed most often, and by how many: {said}", "")


def page(groups: Sequence[tuple[Group, list[Compared]]], published: Papers, profile: str, docs: str = "") -> str:
    """The page, as Markdown; `docs` is put before its links, where it does not lie in the folder docs itself."""
    parts = [HEAD, f"Held against a run of the profile `{profile}`: {count_agreeing(groups)}.\n"]
    for paper in dict.fromkeys(group.paper for group, _ in groups):
        parts.append(f"## {paper}\n")
        parts += [_section(group, of_group) for group, of_group in groups if group.paper == paper]
    rows = [
        f"| {name} | {', '.join(f'`{key}: {_wanted(value)}`' for key, value in demands.items())} |"
        for name, demands in published.setups.items()
    ]
    parts.append("\n".join([SETUPS, "| set-up | a run must have |", "|---|---|", *rows, ""]))
    rows = [f"| {entry['figure']} | `data/analyses/{entry['table']}.parquet` |" for entry in published.drawn]
    parts.append("\n".join(["## Figures without printed numbers\n", "| figure | ours |", "|---|---|", *rows, ""]))
    return re.sub(r"(?<=\]\()(?=[\w-]+\.md\b)", docs, "\n".join(parts))


def _section(group: Group, of_group: list[Compared]) -> str:
    text = [f"### {group.place[0].upper()}{group.place[1:]}\n", f"{group.what}. Profile `{group.profile}`.\n"]
    text += [f"- {' '.join(note.split())}" for note in group.notes]
    text += ["", "| | published | ours | here | set-up | found in | verdict |", "|---|---|---|---|---|---|---|"]
    for compared in of_group:
        ours, beside = _figures(compared)
        verdict = compared.verdict + f": needs {'; '.join(compared.needs)}" * bool(compared.needs)
        number = compared.number
        cells = [_label(number), _published(number), ours or NONE, beside or NONE]
        cells += [", ".join([*number.lm[:1], *number.setups]) or NONE, _place(number), verdict]
        text.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*text, ""])


def _figures(compared: Compared) -> tuple[str, str]:
    """Ours and what stands beside it, as text; "" for none."""
    ours, beside = (_figure(figure, compared.number.digits + 1) for figure in (compared.ours, compared.beside))
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
    return " ".join(filter(None, (number.bound, f"{number.value:,.{number.digits}f}", number.unit)))


def _place(number: Number) -> str:
    """Where ours is found in the outputs."""
    find = dict(number.find)
    if not find:
        return NONE
    find.pop("times", None)
    if "metrics" in find:
        return f"`data/metrics/{find['metrics']}.json`, `{find['key']}`"
    if "least_popular" in find:
        least, dataset, method = find["least_popular"], find["dataset"], find["method"]
        return f"`data/predictions/{dataset}/{{lm}}/{method}.parquet`, the {least:,} least popular"
    table, value = find.pop("table"), find.pop("value")
    rows = ", ".join(f"{key} {_wanted(entry)}" for key, entry in find.items())
    return f"`data/analyses/{table}.parquet`, `{value}` of {rows}"


def _wanted(value: object) -> str:
    return " or ".join(value) if isinstance(value, list) else "none" if value is None else str(value)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
