"""The papers' numbers held against a run: a result counts only if the run has the paper's set-up.

`verdict` is the rule by which two numbers agree.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipelines.intervals import NOTHING, Interval
from pipelines.params.params import Params
from pipelines.report.papers import Number, Papers
from pipelines.report.run_figures import RunFigures

RULE = (
    "A number is `ok` if our 95 % interval meets the published number, give or take half a unit of "
    "its last printed digit, or what a *roughly* in the text allows. Where the paper states a "
    "bound, our interval must reach below it. Where an exact repetition would get another figure "
    "than the printed one, ours may lie anywhere between the two."
)
OK = "ok"
DIFFERS = "differs"
NOT_RUN = "not run here"
FINISHED = "a finished run; `longtail run` brings every stage up to date"
PART = "this part of the pipeline (`parts` in params.yaml)"
SECONDS = "seconds with and without passages, of one machine that runs the model (data/latency)"
# beginnings of settings on which imported answers may depend
ANSWERING = (
    "answer.",
    "retriever.",
    "parts.datastore",
    "files.wikipedia",
    "metrics.corpus_wikipedia.",
)
# Method of a number of PopQA's paper -> the way that answers from the passages that its authors
# retrieved and published, and the set-ups that these passages are in the place of.
PUBLISHED_PASSAGES = {
    "dense": ("given_contriever", {"Wikipedia 2018", "Contriever MS MARCO"}),
    "bm25": ("given_bm25", {"Wikipedia 2018"}),
}
MEASURED = ("questions.", "files.", "metrics.")  # settings that only a run's outputs tell
FILES_NAMED = 3  # of files that a run should have; of more it is said how many


@dataclass(frozen=True)
class Compared:
    """A published number and ours."""

    number: Number
    ours: Interval = NOTHING  # in the paper's set-up
    beside: Interval = NOTHING  # the same measure in another set-up or of another model
    lm: str = ""  # whose figure `ours` or `beside` is
    way: str = ""  # which of two accepted ways gave that figure, as "vote"; "" where there is one
    verdict: str = NOT_RUN
    needs: tuple[str, ...] = ()  # why it was not run

    @property
    def verdict_and_way(self) -> str:
        """The verdict with the way that gave our figure, as in ok (vote)."""
        return f"{self.verdict} ({self.way})" if self.way else self.verdict


def verdict(number: Number, ours: Interval) -> str:
    """RULE, as OK or DIFFERS."""
    ends = [number.value]
    if number.also is not None:
        ends.append(number.also)
    slack = number.tolerance + 1e-9 * abs(number.value)
    reaches_down = ours.low <= max(ends) + slack
    reaches_up = ours.high >= min(ends) - slack
    if reaches_down and (reaches_up or number.bound == "at most"):
        return OK
    return DIFFERS


def alike(name: str | None, other: str) -> bool:
    """Whether two names mean one model: the last part of a path, whatever the case and
    separators.
    """
    return _plain(name) == _plain(other) != ""


def _plain(name: str | None) -> str:
    return re.sub(r"[^a-z0-9]+", "-", (_last(name) or "").lower())


def _last(path: str | None) -> str | None:
    return path and path.rstrip("/").rpartition("/")[2]


class Run:
    """The outputs in a folder `data`, and the params; `finished` if these made all outputs."""

    def __init__(
        self,
        data: Path,
        params: Params | SimpleNamespace,
        setups: dict[str, dict[str, Any]],
        finished: bool = True,
    ) -> None:
        self.data = data
        self.params = params
        self.setups = setups
        self.lacks = ""
        if params.fetch.source == "world":
            self.lacks = "real data"
        elif not (finished and (data / "analyses/models.parquet").is_file()):
            self.lacks = FINISHED
        self.figures = RunFigures(data, params)

    @cached_property
    def names(self) -> dict[str, str | None]:
        """Language model of the run -> its path, or the name that imported answers have.

        It is None if the model was trained here.
        """
        names = {}
        for row in self.figures.table("models"):
            lm = row["lm"]
            names[lm] = lm if row["imported"] else self.params.lm[lm].path
        return names

    def compare(self, number: Number) -> Compared:
        """The verdict on a number. Of a bound, the language model with the largest
        figure counts.
        """
        lacks = number.missing or self.lacks
        if lacks:
            return Compared(number, needs=(lacks,))

        number = self._by_published_passages(number)
        matching = _matching(self.names, number)
        lms = matching if number.bound else matching[:1]
        if not lms:
            lms = [next(iter(self.names), "")]
        figures = {lm: self.figures.measure(number.find, lm) for lm in lms}
        lm = _with_largest(figures)

        ours = figures[lm]
        way = self.way(number.find, lm)
        lacking = self.lacking(number, matching, lm)
        if lacking:
            return Compared(number, beside=ours, lm=lm, way=way, needs=tuple(lacking))
        if not math.isfinite(ours.value):
            return Compared(number, lm=lm, needs=(SECONDS if "seconds" in number.find else PART,))
        return Compared(number, ours, lm=lm, way=way, verdict=verdict(number, ours))

    # the set-up

    def _by_published_passages(self, number: Number) -> Number:
        """The number as a run has it that answers from the passages of PUBLISHED_PASSAGES; any
        other run and number as it is.
        """
        if "one passage" not in number.setups:
            return number
        find = dict(number.find)
        for method, (way, replaced) in PUBLISHED_PASSAGES.items():
            if way not in self.params.ways or method in self.params.ways:
                continue
            if find.get("method") == method:
                find["method"] = way
            elif f".{method}." in find.get("key", ""):
                find["key"] = find["key"].replace(f".{method}.", f".{way}.")
            else:
                continue
            setups = [setup for setup in number.setups if setup not in replaced]
            return replace(number, setups=setups, find=find)
        return number

    def lacking(
        self, number: Number, matching: list[str], lm: str, outputs: bool = True
    ) -> list[str]:
        """What a number needs and the run lacks; `matching` are the run's models that it may be of.

        Without `outputs`, by params alone.
        """
        wanted: dict[str, Any] = {}
        for setup in number.setups:
            wanted |= self.setups[setup]
        if not outputs:
            wanted = {key: wanted[key] for key in wanted if not key.startswith(MEASURED)}

        lacking = []
        if number.lm and not matching:
            lacking.append(f"the language model {number.lm[0]}")
        return lacking + self.differences(wanted, lm)

    def differences(self, needs: dict[str, Any], lm: str) -> list[str]:
        """What of `needs` the run does not have. How imported answers were made is not asked."""
        is_imported = lm not in ("", *self.params.lms) and lm in self.names
        lacking = []
        for key, wanted in needs.items():
            if is_imported and key.startswith(ANSWERING):
                continue
            here = self.setting(key, lm)
            if not _meets(key, here, wanted):
                if key == "lsr.lm" or key.endswith("path"):
                    here = _last(here)
                lacking.append(f"{key} {_in_words(wanted)} (here {_in_words(here)})")
        return lacking

    def setting(self, key: str, lm: str) -> Any:
        """What the run has: a param by its dotted name, or one of these; None where it has none.

        `retriever.<param>` of the main retriever; `lsr.lm`, the name of LSR's language model;
        `questions.<set>`, how many were asked; `files.<data set>`, the names of its raw files;
        `metrics.<file>.<key>` of data/metrics.
        """
        kind, _, name = key.partition(".")
        if key == "lsr.lm":
            return self.params.lm[self.params.lsr.lm].path if self.params.lsr.lm else None
        if kind == "questions":
            return self._questions_asked(name, lm)
        if kind == "files":
            return self._raw_files(name)
        if kind == "metrics":
            file, _, figure = name.partition(".")
            return self.figures.metrics.get(file, {}).get(figure)

        value: Any = self.params
        if kind == "retriever":  # of the main one
            key = name
            value = self.params.retriever.get(next(iter(self.params.retrievers), ""))
        for part in key.split("."):
            if value is None:
                return None
            value = value.get(part) if isinstance(value, dict) else getattr(value, part)
        return value

    def _questions_asked(self, name: str, lm: str) -> int | None:
        """How many questions of a set a language model was asked."""
        for row in self.figures.table("accuracy"):
            if (row["dataset"], row["lm"]) == (name, lm):
                return row["questions"]
        return None

    def _raw_files(self, name: str) -> list[str] | None:
        """The names of a data set's raw files."""
        manifest = json.loads((self.data / "raw/manifest.json").read_text(encoding="utf-8"))
        files = []
        for row in manifest:
            if row["dataset"] == name:
                files.append(row["path"].rpartition("/")[2])
        return files or None

    def way(self, find: dict[str, Any], lm: str) -> str:
        """Which of two accepted ways gave a figure: the value of the param or column
        `find["way"]`.
        """
        way = find.get("way", "")
        if "." in way:
            return self.setting(way, lm)
        rows = self.figures.rows(find, lm) if way else []
        return (rows[0][way] or "") if rows else ""


def reach(published: Papers, profiles: Mapping[str, Params]) -> dict[str, list[Number]]:
    """The published numbers by what keeps them from being reached, if anything.

    Their language model is "gone", or LSR's "teacher"; they are "unmeasured" here; all others are
    "reached" by their profile, as far as its params tell, or "unreached".
    """
    kinds: dict[str, list[Number]] = {
        "gone": [],
        "teacher": [],
        "unmeasured": [],
        "reached": [],
        "unreached": [],
    }
    for group in published.groups:
        run = Run(Path(), profiles[group.profile], published.setups)
        for number in group.numbers:
            kinds[_reach(run, number, {*published.models["open"]})].append(number)
    return kinds


def _reach(run: Run, number: Number, open_models: set[str]) -> str:
    """One of the keys of `reach`."""
    teachers = set()
    for setup in number.setups:
        teachers.update(run.setups[setup].get("lsr.lm", ()))
    if number.lm and open_models.isdisjoint(number.lm):
        return "gone"
    if teachers and open_models.isdisjoint(teachers):
        return "teacher"
    if number.missing:
        return "unmeasured"

    paths = {lm: run.params.lm[lm].path for lm in run.params.lms}
    matching = _matching(paths, number)
    lacking = run.lacking(number, matching, next(iter(matching), ""), outputs=False)
    return "unreached" if lacking else "reached"


def _matching(paths: Mapping[str, str | None], number: Number) -> list[str]:
    """The language models, name -> path, that a published number may be of."""
    matching = []
    for lm, path in paths.items():
        if any(alike(path, name) for name in number.lm):
            matching.append(lm)
    return matching


def _with_largest(figures: Mapping[str, Interval]) -> str:
    """The language model with the largest figure; the first one where no figure is known."""
    known = {lm: figure.value for lm, figure in figures.items() if math.isfinite(figure.value)}
    if not known:
        return next(iter(figures))
    return max(known, key=known.__getitem__)


def _meets(key: str, value: Any, wanted: Any) -> bool:
    """Whether a setting has the value that a set-up wants."""
    if wanted == "set":
        return value is not None
    if value is None or wanted is None:
        return value is wanted
    if key.startswith("files."):
        return any(fnmatch.filter(value, pattern) for pattern in wanted)
    if isinstance(wanted, list):
        if key == "lsr.lm":
            return any(alike(value, name) for name in wanted)
        return value in wanted
    if key.endswith("path"):
        return alike(value, wanted)
    if str(wanted).startswith(">= "):
        return value >= float(wanted[3:])
    return value == wanted


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return " or ".join(value) if len(value) <= FILES_NAMED else f"{len(value)} files"
    return f"{value:,}" if type(value) is int else str(value)
