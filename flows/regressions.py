"""Figures that are worse than those of the last run that landed.

A run lands when all its stages are up to date. A run that fails does not change the figures to compare with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows import earlier, graph

MORE_IS_BETTER = re.compile(  # figures by their last key: quality, and how much was built
    r"accuracy|exact_match|adaptive|recall.*|.*matched_share|with_entity_share"
    r"|entities|triples|questions|documents|mentions|titles_with_views"
)
LESS_IS_BETTER = re.compile(r"(word_)?perplexity(?!_random).*|bpb(?!_random).*|loss|kl.*|rejected")


@dataclass(frozen=True)
class Regression:
    file: str  # a metrics file
    figure: str  # the keys of the figure in that file, with / between them
    before: float
    now: float

    @property
    def change(self) -> float:
        """How much the figure changed, as a share of what it was."""
        return (self.now - self.before) / abs(self.before) if self.before else float("inf")

    def __str__(self) -> str:
        return f"{self.figure} of {self.file} from {self.before:.4g} to {self.now:.4g} ({self.change:+.1%})"


def find_regressions(profile: str, stages: list[graph.Stage], tolerance: float) -> list[Regression] | None:
    """Figures of the stages that are worse than the landed run's, the worst first; None without a landed run.

    A figure is worse when it lost more than `tolerance` times what it was, and its interval, if it has one, does not
    hold the old value. The landed run is the last one of this profile that landed here.
    """
    files = [path for stage in stages for path in stage.metrics]
    if (landed := earlier.metrics(profile, files)) is None:
        return None
    worse = []
    for path in (path for path in files if path.is_file()):
        old = {name: value for name, value, *_ in _figures(landed.get(path, {}))}
        for name, value, low, high in _figures(json.loads(path.read_text(encoding="utf-8"))):
            if name in old and (direction := _better_direction(name)):
                loss = (old[name] - value) * direction
                noise = low is not None and low <= old[name] <= high
                if loss > tolerance * abs(old[name]) and not noise:
                    worse.append(Regression(path.as_posix(), name, old[name], value))
    return sorted(worse, key=lambda loss: (-abs(loss.change), loss.file, loss.figure))


def _better_direction(figure: str) -> int:
    """1 where more is better, -1 where less is better, 0 for a figure with neither."""
    last = figure.rsplit("/", 1)[-1]
    return 1 if MORE_IS_BETTER.fullmatch(last) else -1 if LESS_IS_BETTER.fullmatch(last) else 0


def _figures(values: Any, prefix: str = "") -> Iterator[tuple[str, float, float | None, float | None]]:
    """(keys, value, low, high) of each figure, low and high of its interval if it has one; curves are left out."""
    if isinstance(values, dict) and "value" in values:
        yield prefix, values["value"], values.get("low"), values.get("high")
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _figures(value, f"{prefix}/{key}" if prefix else key)
    elif isinstance(values, int | float):
        yield prefix, values, None, None
