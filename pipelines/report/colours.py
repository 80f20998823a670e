"""Which colour, dash and marker a series has in figures: a name has the same ones in all figures of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipelines.report.page import Block, Figure, Section, label

METHODS = {  # slots of drawing.PALETTE, DASHES and MARKERS, the same on every page
    "closed_book": 0, "never": 0, "none": 0, "bm25": 1, "always": 1, "dense": 2, "lsr": 3, "adaptive": 3,
    "random": 4, "oracle": 4, "genread": 5, "replug": 6, "replug_lsr": 7, "replug_random": 4, "replug_bm25": 1,
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


def same_everywhere(sections: Iterable[Section]) -> list[Section]:
    """The sections of a page with their figures drawn again, so that a series has its slot in all of them."""
    sections = list(sections)
    whole = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    chosen = slots(chart.series for figure in whole for chart in figure.every)

    def again(block: Block) -> Block:
        return block.of_all(lambda figure: _redrawn(figure, chosen)) if isinstance(block, Figure) else block

    return [replace(section, blocks=[*map(again, section.blocks)]) for section in sections]


def _redrawn(figure: Figure, chosen: dict[str, int]) -> Figure:
    if figure.drawn is None or slots([figure.series]) == {name: chosen[name] for name in figure.series}:
        return figure
    svg, narrow = figure.drawn(chosen)
    return replace(figure, svg=svg, narrow=narrow)
