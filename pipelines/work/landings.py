"""Runs that landed, in MLflow: the parent run has the figures of all stages, also of those that did not run anew.

A figure is a metric of the parent run. One with an interval has two more, which end in LOW and HIGH.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.intervals import Interval

TAG = "longtail.landed"  # of a parent run: when it landed, in UTC
COMMIT = "mlflow.source.git.commit"  # a tag, as the next
DIRTY = "git.dirty"
LOW = " low"
HIGH = " high"
MONTH = "popularity.month"  # a param, as the next
PART = "part"
WHOLE = "refresh"  # the part that is everything
MOST = 1e308  # databases store infinity as the largest number that they have
RUNS = 100  # asked for at a time


@dataclass(frozen=True)
class Landing:
    """A run that landed: when, by which commit, its params, and its figures, in names with / between their parts."""

    landed: str
    commit: str
    params: dict[str, str]
    figures: dict[str, Interval]  # bounds are NaN where a figure has none

    @property
    def profile(self) -> str:
        return self.params["profile"]

    @property
    def month(self) -> str:
        return self.params[MONTH]


def flat(figures: Mapping[str, Interval]) -> dict[str, float]:
    """The figures as metrics; what is not known is left out."""
    ends = {"": "value", LOW: "low", HIGH: "high"}
    metrics = {f"{name}{end}": getattr(f, part) for name, f in figures.items() for end, part in ends.items()}
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def read_landings(client, experiment: str) -> list[Landing]:
    """The runs of an experiment that landed, the last one last."""
    ask = partial(client.search_runs, [experiment], f"tags.`{TAG}` LIKE '%'", max_results=RUNS)
    found = [*(page := ask())]
    while page.token:
        found += (page := ask(page_token=page.token))
    known = (run.data for run in found if {"profile", MONTH, PART} <= run.data.params.keys())
    return sorted(map(_landing, known), key=lambda run: run.landed)


def _landing(data) -> Landing:
    from pipelines.intervals import Interval

    def number(name: str) -> float:
        value = data.metrics.get(name, math.nan)
        return math.copysign(math.inf, value) if abs(value) >= MOST else value

    commit = data.tags.get(COMMIT, "")[:10] + " with changes" * (data.tags.get(DIRTY) == "true")
    names = sorted(name for name in data.metrics if not name.endswith((LOW, HIGH)))
    figures = {name: Interval(number(name), number(name + LOW), number(name + HIGH)) for name in names}
    return Landing(data.tags[TAG], commit, data.params, figures)
