"""The papers' figures held against a run: joined with its tables by name, if it has the set-up.

`verdict` is the rule by which two figures agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.adaptive.searches import SEARCHES
from pipelines.intervals import NOTHING, Interval
from pipelines.pages.section import Row, as_interval
from pipelines.params.params import Params
from pipelines.report import adaptive_metrics
from pipelines.report.papers import Papers, Published
from pipelines.report.run_tables import Tables, read_figures

AGREES = "agrees"
DIFFERS = "differs"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Compared:
    """A published figure and ours."""

    published: Published
    ours: Interval = NOTHING
    verdict: str = NOT_RUN
    needs: str = ""  # why it was not run


def verdict(published: Published, ours: Interval) -> str:
    """Whether two figures agree: AGREES or DIFFERS.

    They agree if our 95 % interval meets the published figure, give or take its `tolerance`. Of a
    bound, our interval must reach below it. Where an exact repetition would get another figure
    than the printed one, ours may lie anywhere between the two.
    """
    ends = [published.value]
    if published.also is not None:
        ends.append(published.also)
    slack = published.tolerance + 1e-9 * abs(published.value)
    reaches_down = ours.low <= max(ends) + slack
    reaches_up = ours.high >= min(ends) - slack
    if reaches_down and (reaches_up or published.bound == "at most"):
        return AGREES
    return DIFFERS


class Run:
    """The tables of a finished run, and its params."""

    def __init__(self, tables: Tables, params: Params) -> None:
        self.tables = tables
        self.params = params
        self.lms = {}  # language model -> the name of its model, of an imported one its own name
        for row in tables.rows("models"):
            lm = row["lm"]
            self.lms[lm] = plain(lm if row["imported"] else params.lm[lm].path)

    def compare(self, published: Published, papers: Papers) -> Compared:
        """A published figure with ours and the verdict."""
        lm = self._lm_of(published)
        needs = published.missing
        if not needs and published.lm and lm is None:
            needs = f"the language model {published.lm[0]}"
        if not needs:
            is_imported = lm is not None and lm not in self.params.lms
            needs = "; ".join(differences(self.params, papers.demands(published), is_imported))
        if needs:
            return Compared(published, needs=needs)

        ours = self.figure(published.ours, lm)
        if not math.isfinite(ours.value):
            return Compared(published, needs=published.name_of_ours)
        return Compared(published, ours, verdict(published, ours))

    def _lm_of(self, published: Published) -> str | None:
        names = [plain(name) for name in published.lm]
        for lm, name in self.lms.items():
            if name in names:
                return lm
        return None

    def figure(self, name: Mapping[str, Any], lm: str | None) -> Interval:
        """The figure that a name of papers.yaml picks, NOTHING if the run has none."""
        keys = {"lm": lm} if lm else {}
        keys |= {key: name[key] for key in name.keys() - {"table", "metric", "times"}}
        for row in self._rows(name["table"]):
            if all(row.get(key) in _listed(wanted) for key, wanted in keys.items()):
                return as_interval(row.get(name["metric"])).times(name.get("times", 1))
        return NOTHING

    def _rows(self, table: str) -> list[Row]:
        if table == "adaptive":
            return adaptive_metrics.rows_of(self.tables, SEARCHES)
        if table == "metrics":
            metrics = self.tables.metrics
            return [read_figures(figures) | {"file": file} for file, figures in metrics.items()]
        return self.tables.rows(table)


def differences(
    params: Params, demands: Mapping[str, Any], is_imported: bool = False
) -> Iterator[str]:
    """What of the demanded params a run does not have.

    How imported answers were made is not asked, only the thresholds that they get here.
    """
    for name, wanted in demands.items():
        if is_imported and not name.startswith("thresholds."):
            continue
        here = setting(params, name)
        values = _listed(wanted)
        if plain(here) not in map(plain, values):
            yield f"{name} {' or '.join(map(str, values))} (here {here})"


def setting(params: Params, name: str) -> Any:
    """A param by its dotted name, None where the run has none; `retriever` is the main one, and
    `lsr.lm` the path of its model.
    """
    if name == "lsr.lm":
        lm = params.lsr.lm
        return lm and params.lm[lm].path
    if name.startswith("retriever."):
        main = next(iter(params.retrievers), "")
        name = name.replace("retriever.", f"retriever.{main}.")
    value: Any = params.model_dump()
    for part in name.split("."):
        value = (value or {}).get(part)
    return value


def plain(name: Any) -> str:
    """A name as it is compared: the last part of a path, whatever the case and separators."""
    last = str(name).rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", last.lower())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
