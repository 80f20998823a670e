"""The papers' numbers held against a run: a result counts only if the run has what the paper's
set-up demands.

`verdict` is the rule by which two numbers agree. The papers' are in papers.yaml, which has a group
for each table or passage. What a group says holds for all its numbers; its `columns` and `rows` add
to that. A row's `values` has a number for each column, null where the paper has none, and two
numbers where an exact repetition would not get what is printed: as printed, and what it would get.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

from pipelines.answering import answer_files, latency
from pipelines.evaluation import accuracy, answer_sets, stage_metrics, tables
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.params import params

FILE = Path(__file__).with_name("papers.yaml")
RULE = (
    "A number is `ok` if our 95 % interval meets the published number, give or take half a unit of "
    "its last printed digit, or what a *roughly* in the text allows. Where the paper states a "
    "bound, our interval must reach below it. Where an exact repetition would get another figure "
    "than the printed one, ours may lie anywhere between the two."
)
FINISHED = "a finished run; `longtail run` brings every stage up to date"
PART = "this part of the pipeline (`parts` in params.yaml)"
SECONDS = "seconds with and without passages, of one machine that runs the model (data/latency)"
ANSWERING = (
    "answer.",
    "retriever.",
    "parts.datastore",
    "files.wikipedia",
    "metrics.corpus_wikipedia.",
)
MEASURED = (
    "questions.",
    "files.",
    "metrics.",
)  # beginnings of settings that only a run's outputs tell
WORDS = ("table", "value", "times", "way")  # of `find`, beside the columns that pick rows


@dataclass(frozen=True)
class Number:
    """One published result, and what gives it here."""

    row: str
    column: str
    value: float  # as printed
    unit: str
    tolerance: float  # half a unit of the last printed digit (half of `rounding`), or what a "roughly" allows
    bound: str = ""  # "at most": the paper states a bound
    also: float | None = (
        None  # what an exact repetition would get instead, as far as other printed numbers tell
    )
    lm: list[str] = field(
        default_factory=list
    )  # names of the language model, of which one is enough; empty: any
    setups: list[str] = field(
        default_factory=list
    )  # names in `Papers.setups` of what a run must have
    find: dict[str, Any] = field(default_factory=dict)  # where ours is, as Run.measure takes it
    missing: str = ""  # what Longtail does not measure, where that is why there is no `find`

    @property
    def digits(self) -> int:
        """Decimal places that the paper prints."""
        return max(0, math.ceil(-math.log10(2 * self.tolerance) - 0.5))


@dataclass(frozen=True)
class Group:
    """A table, or a passage on a figure."""

    paper: str
    place: str
    what: str
    profile: str  # of conf/profile, on which a run is built that has what the numbers need
    notes: list[str]  # where the papers disagree, and what was decided
    numbers: list[Number]


@dataclass(frozen=True)
class Papers:
    """All published numbers."""

    models: dict[
        str, list[str]
    ]  # "open", or why they can't be had -> language models that numbers name
    setups: dict[str, dict[str, Any]]  # name -> key of Run.setting -> what it must be
    groups: list[Group]
    drawn: list[
        dict[str, str]
    ]  # a figure whose numbers no text states -> the `table` of data/analyses that has ours


def read_papers(path: Path = FILE) -> Papers:
    content, groups = yaml.safe_load(path.read_text(encoding="utf-8")), []
    for entry in content["groups"]:
        columns, rows = entry.pop("columns"), entry.pop("rows")
        described = {
            key: entry.pop(key, []) for key in ("paper", "place", "what", "profile", "notes")
        }
        numbers = [
            _number(
                {"column": column["name"], "row": row["name"], "value": value}, entry, column, row
            )
            for row in rows
            for column, value in zip(columns, row["values"], strict=True)
            if value is not None
        ]

        groups.append(Group(**described, numbers=numbers))

    return Papers(content["models"], content["setups"], groups, content["drawn"])


def _number(number: dict, *levels: dict) -> Number:
    """A record of what the group, the column and the row say, of which a later one counts more."""
    if isinstance(number["value"], list):
        number["value"], number["also"] = number["value"]
    for level in levels:
        number |= {
            key: level[key]
            for key in level.keys() - {"name", "values", "rounding", "needs", "find"}
        }

        number["setups"] = [*number.get("setups", []), *level.get("needs", [])]
        number["find"] = number.get("find", {}) | level.get("find", {})
        if "rounding" in level:
            number["tolerance"] = level["rounding"] / 2

    if number.get("missing"):
        number |= {"find": {}, "setups": []}
    return Number(**number)


@dataclass(frozen=True)
class Compared:
    """A published number and ours: `verdict` is "ok", "differs" or "not run here", `needs` says why
    it was not.
    """

    number: Number
    ours: Interval = NOTHING  # in the paper's set-up
    beside: Interval = NOTHING  # the same measure in another set-up or of another model, never in the place of ours
    lm: str = ""  # whose figure `ours` or `beside` is
    way: str = ""  # which of two accepted ways gave that figure, as "vote"; "" where there is one
    verdict: str = "not run here"
    needs: tuple[str, ...] = ()


def verdict(number: Number, ours: Interval) -> str:
    """RULE, as "ok" or "differs"."""
    ends = number.value, number.value if number.also is None else number.also
    slack = number.tolerance + 1e-9 * abs(number.value)
    below, above = ours.low <= max(ends) + slack, ours.high >= min(ends) - slack
    return "ok" if below and (above or number.bound == "at most") else "differs"


def alike(name: str | None, other: str) -> bool:
    """Whether two names mean one model: the last part of a path or Hub name, whatever the case and
    separators.
    """
    one, two = (re.sub(r"[^a-z0-9]+", "-", (_last(text) or "").lower()) for text in (name, other))
    return one == two != ""


class Run:
    """The outputs in a folder `data` and the params that made them; `finished` if all outputs are
    of these.
    """

    def __init__(
        self,
        data: Path,
        chosen: params.Params | SimpleNamespace,
        setups: dict,
        finished: bool = True,
    ):
        self.data, self.params, self.setups = data, chosen, setups
        self.lacks = "" if finished and (data / "analyses/models.parquet").is_file() else FINISHED
        self.lacks = "real data" if chosen.fetch.source == "world" else self.lacks
        self.metrics = stage_metrics.read_metrics(data)
        self._table = cache(lambda name: tables.read_analyses(data / "analyses", name))

    @cached_property
    def names(self) -> dict[str, str | None]:
        """Language model of the run -> its path, or the name that imported answers have; None if
        trained here.
        """
        imported = {row["lm"]: row["imported"] for row in self._table("models")}
        return {
            lm: lm if elsewhere else self.params.lm[lm].path for lm, elsewhere in imported.items()
        }

    def compare(self, number: Number) -> Compared:
        """The verdict on a number."""
        if lacks := number.missing or self.lacks:
            return Compared(number, needs=(lacks,))
        right = [
            lm for lm, path in self.names.items() if any(alike(path, name) for name in number.lm)
        ]
        asked = (right if number.bound else right[:1]) or [*self.names, ""][
            :1
        ]  # of a bound, the largest figure counts
        of = {lm: self.measure(number.find, lm) for lm in asked}
        lm = max(of, key=lambda lm: (math.isfinite(of[lm].value), of[lm].value))
        of_model = {"lm": lm, "way": self.way(number.find, lm)}
        if needs := self.needs(number, right, lm):
            return Compared(number, beside=of[lm], needs=tuple(needs), **of_model)
        if not math.isfinite(of[lm].value):
            return Compared(number, lm=lm, needs=(SECONDS if "seconds" in number.find else PART,))
        return Compared(number, of[lm], verdict=verdict(number, of[lm]), **of_model)

    def needs(self, number: Number, right: list[str], lm: str, outputs: bool = True) -> list[str]:
        """What a number needs and the run lacks, whose right models are `right`; without `outputs`,
        by params alone.
        """
        wanted = {
            key: value for setup in number.setups for key, value in self.setups[setup].items()
        }
        wanted = {
            key: value for key, value in wanted.items() if outputs or not key.startswith(MEASURED)
        }
        lacks = [f"the language model {number.lm[0]}"] if number.lm and not right else []
        return lacks + self.differences(wanted, lm)

    def differences(self, needs: dict[str, Any], lm: str) -> list[str]:
        """What of `needs` the run does not have. How imported answers were made is not known, and
        not asked.
        """
        imported = lm not in ("", *self.params.lms) and lm in self.names
        lacking = []
        for key in (key for key in needs if not (imported and key.startswith(ANSWERING))):
            if not _meets(key, found := self.setting(key, lm), needs[key]):
                here = _last(found) if key == "lsr.lm" or key.endswith("path") else found
                lacking.append(f"{key} {_shown(needs[key])} (here {_shown(here)})")
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
            rows = [
                row for row in self._table("accuracy") if (row["dataset"], row["lm"]) == (name, lm)
            ]
            rows += [
                r
                for r in self._table("tasks")
                if (r["task"], r["lm"], r["category"]) == (name, lm, "all")
            ]

            return rows[0]["questions"] if rows else None

        if kind == "files":
            manifest = json.loads((self.data / "raw/manifest.json").read_text(encoding="utf-8"))
            return [
                row["path"].rpartition("/")[2] for row in manifest if row["dataset"] == name
            ] or None

        if kind == "metrics":
            file, _, figure = name.partition(".")
            return self.metrics.get(file, {}).get(figure)
        value: Any = self.params
        if kind == "retriever":  # of the main one
            key, value = name, self.params.retriever.get(next(iter(self.params.retrievers), ""))
        for part in key.split("."):
            value = value and (value.get(part) if isinstance(value, dict) else getattr(value, part))
        return value

    def measure(self, find: dict[str, Any], lm: str) -> Interval:
        """Our figure for a language model, NOTHING if the run has none. `find` has one of these,
        and `times`, a factor:

        `table` and `value`, a column of data/analyses or a function of DERIVED, with what picks
        rows, and counts as their mean; `metrics` and the dotted `key` of a figure; `least_popular`,
        so many questions of `dataset` as `method` answered them; `seconds`, a question's by
        `method` ("taken"), or what thresholds save ("saved").
        """
        if "metrics" in find:
            figure = self.metrics.get(find["metrics"], {})
            search = self.params.thresholds.search
            for part in (
                part.format(lm=lm, search=search) for part in find["key"].split(".")
            ):  # names may have dots
                figure = figure.get(part, {}) if isinstance(figure, dict) else {}

            measured = (
                interval(figure) if isinstance(figure, dict) else Interval(*[float(figure)] * 3)
            )
        elif "least_popular" in find:
            measured = self._least_popular(find, lm)
        elif "seconds" in find:
            measured = self._seconds(find, lm)
        else:
            measured = DERIVED.get(find["value"], Run.mean)(self, find, lm)

        return measured.times(find.get("times", 1)) if math.isfinite(measured.value) else NOTHING

    def way(self, find: dict[str, Any], lm: str) -> str:
        """Which of two accepted ways gave a figure: what the param or column that `find` names
        says; "" without one.
        """
        way = find.get("way", "")
        rows = self.rows(find, lm) if way and "." not in way else []
        return self.setting(way, lm) if "." in way else next((row[way] or "" for row in rows), "")

    def rows(self, find: dict[str, Any], lm: str) -> list[dict]:
        """The rows that `find` picks; none if one of them is missing."""
        wanted = {key: entry for key, entry in find.items() if key not in WORDS}
        wanted |= {"lm": lm} if "lm" in tables.TABLES[find["table"]] else {}
        wanted = {
            key: entry if isinstance(entry, list) else [entry] for key, entry in wanted.items()
        }
        rows = self._table(find["table"])
        rows = [row for row in rows if all(row[key] in entries for key, entries in wanted.items())]
        return rows if len(rows) == math.prod(map(len, wanted.values())) else []

    def mean(self, find: dict[str, Any], lm: str) -> Interval:
        """The mean of a column over the rows that `find` picks; their errors are independent of
        each other.
        """
        cells = [row[find["value"]] for row in self.rows(find, lm)]
        cells = [
            cell if isinstance(cell, Interval) else Interval(*[float(cell)] * 3)
            for cell in cells
            if cell is not None
        ]

        if not cells:
            return NOTHING
        value = fmean(cell.value for cell in cells)
        down = math.hypot(*(cell.value - cell.low for cell in cells)) / len(cells)
        up = math.hypot(*(cell.high - cell.value for cell in cells)) / len(cells)
        return Interval(value, value - down, value + up)

    def relative_gain(self, find: dict[str, Any], lm: str) -> Interval:
        """What a method gains on a benchmark, in % of the closed-book accuracy."""
        gain = self.mean(find | {"value": "gain"}, lm)
        closed_book = self.mean(find | {"value": "accuracy", "method": "closed_book"}, lm)
        return gain.times(100 / closed_book.value) if closed_book.value > 0 else NOTHING

    def perplexity_saved(self, find: dict[str, Any], lm: str) -> Interval:
        """The share of perplexity saved, in %: ln of the perplexity falls by the share of bits
        saved.
        """
        saved = self.mean(find | {"value": "saved"}, lm)
        without = self.mean(find | {"value": "perplexity", "retriever": "none", "k": 0}, lm).value
        return Interval(
            *(100 * (1 - without ** (-end / 100)) for end in (saved.value, saved.low, saved.high))
        )

    def price(self, find: dict[str, Any], lm: str) -> Interval:
        """What answers cost; NOTHING for a model that runs here, which has no price."""
        cost = self.mean(find, lm)
        return cost if cost.value > 0 else NOTHING

    def _seconds(self, find: dict[str, Any], lm: str) -> Interval:
        """NOTHING unless one machine, which runs the model, took the seconds with passages and
        those without.
        """
        files = [
            file
            for method, file in self._answers(find, lm).items()
            if method in ("closed_book", find["method"])
        ]

        files = [
            self.data / latency.FOLDER / find["dataset"] / lm / f"{file.stem}.json"
            for file in files
        ]

        both = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
        if (
            len(both) < 2
            or both[0]["machine"] != both[1]["machine"]
            or any(one["server"] for one in both)
        ):
            return NOTHING

        without, augmented = (
            interval(one["median"]) for one in both
        )  # methods stand in the order of METHODS
        times = (
            augmented.value / without.value,
            augmented.low / without.high,
            augmented.high / without.low,
        )

        if find["seconds"] == "taken":
            return Interval(*times)
        rows = {
            "table": "savings",
            "value": "retrieved",
            "dataset": find["dataset"],
            "method": find["method"],
        }

        retrieved = self.mean(rows, lm)
        saved = [
            (1 - share) * (1 - 1 / many)
            for share in (retrieved.low, retrieved.high)
            for many in times[1:]
        ]

        return Interval((1 - retrieved.value) * (1 - 1 / times[0]), min(saved), max(saved)).times(
            100
        )

    def _answers(self, find: dict[str, Any], lm: str) -> dict[str, Path]:
        return answer_files.sets(
            find["dataset"], self.params.lms, self.params.retrievers, self.data
        ).get(lm, {})

    def _least_popular(self, find: dict[str, Any], lm: str) -> Interval:
        dataset, method, files = find["dataset"], find["method"], self._answers(find, lm)
        if method not in files:
            return NOTHING
        questions = self.data / "questions" / dataset / f"{dataset}.parquet"
        answers = answer_sets.read_answered(questions, {method: files[method]})
        order = accuracy.least_popular(answers, find["least_popular"])
        if len(order) < find["least_popular"]:
            return NOTHING
        return answers.share(
            answers.by_method[method].correct, np.isin(np.arange(len(answers.ids)), order)
        )


DERIVED = {  # `value` of a `find` -> how it is measured; all else is a column
    "cost_per_1000": Run.price,
    "relative_gain": Run.relative_gain,
    "perplexity_saved": Run.perplexity_saved,
}


def reach(published: Papers, profiles: Mapping[str, params.Params]) -> dict[str, list[Number]]:
    """The published numbers by kind: their language model is "gone", or LSR's "teacher"; they are
    "unmeasured" here;

    all others are "reached" by their profile, as far as its params tell, or "unreached".
    """
    kinds: dict[str, list[Number]] = {
        kind: [] for kind in ("gone", "teacher", "unmeasured", "reached", "unreached")
    }
    had = {*published.models["open"]}
    for group in published.groups:
        run = Run(Path(), chosen := profiles[group.profile], published.setups)
        for number in group.numbers:
            right = [
                lm
                for lm in chosen.lms
                if any(alike(chosen.lm[lm].path, name) for name in number.lm)
            ]

            teachers = {
                name for setup in number.setups for name in run.setups[setup].get("lsr.lm", ())
            }
            if number.lm and not had & {*number.lm}:
                kind = "gone"
            elif teachers and not had & teachers:
                kind = "teacher"
            else:
                lacks = run.needs(number, right, next(iter(right), ""), outputs=False)
                kind = "unmeasured" if number.missing else "unreached" if lacks else "reached"

            kinds[kind].append(number)

    return kinds


def _meets(key: str, value: Any, wanted: Any) -> bool:
    if wanted == "set":
        return value is not None
    if value is None or wanted is None:
        return value is wanted
    if key.startswith("files."):
        return any(fnmatch(name, pattern) for name in value for pattern in wanted)
    if isinstance(wanted, list):
        return any(alike(value, name) for name in wanted) if key == "lsr.lm" else value in wanted
    if key.endswith("path"):
        return alike(value, wanted)
    return value >= float(wanted[3:]) if str(wanted).startswith(">= ") else value == wanted


def _last(path: str | None) -> str | None:
    return path and path.rstrip("/").rpartition("/")[2]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(value) if len(value) <= 3 else f"{len(value)} files"
    return "none" if value is None else f"{value:,}" if type(value) is int else str(value)
