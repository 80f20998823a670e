"""Which colour, dash and marker a series has in figures: a name has the same ones in all figures of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipelines.report.page import Figure, Section, label

METHODS = {  # slots of drawing.PALETTE, DASHES and MARKERS, the same on every page
    "closed_book": 0, "never": 0, "none": 0, "bm25": 1, "always": 1, "dense": 2, "lsr": 3, "adaptive": 3,
    "random": 4, "oracle": 4, "genread": 5, "replug": 6, "replug_lsr": 7,
}  # fmt: skip
FIXED = {label(name): slot for name, slot in METHODS.items()}
OTHERS = (4, 6, 5, 7, 2, 1, 3, 0)  # slots of other names, such as language models, in the order in which they are taken


def slots(charts: Iterable[Sequence[str]]) -> dict[str, int]:
    """The slot of every series of a page, from the names of the series in each of its charts.

    A name that METHODS lacks has a slot that nothing beside it in any chart has, and of these one that few names have.
    """
    charts = sorted(dict.fromkeys(map(tuple, charts)), key=len, reverse=True)
    names = dict.fromkeys(name for chart in charts for name in chart)
    chosen = {name: FIXED[name] for name in names if name in FIXED}
    for name in (name for name in names if name not in FIXED):
        beside = Counter(chosen[other] for chart in charts if name in chart for other in {*chart} & chosen.keys())
        taken = Counter(chosen.values())
        chosen[name] = min(OTHERS, key=lambda slot: (beside[slot], taken[slot], OTHERS.index(slot)))
    return chosen


def of_page(sections: Iterable[Section]) -> dict[str, int]:
    """The slot of every series in the figures of a page."""
    whole = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    return slots(chart.series for figure in whole for chart in figure.every)
