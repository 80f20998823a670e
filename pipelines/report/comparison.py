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
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipelines.answering import answer_files, latency
from pipelines.evaluation import accuracy, answer_sets, stage_metrics, tables
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.pages.section import as_interval
from pipelines.params.params import Params
from pipelines.report.papers import Number, Papers

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
NOT_COLUMNS = ("table", "value", "times", "way")  # of `find`, beside the columns that pick rows
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
        self.metrics = stage_metrics.read_metrics(data)
        self._table = cache(lambda name: tables.read_analyses(data / "analyses", name))

    @cached_property
    def names(self) -> dict[str, str | None]:
        """Language model of the run -> its path, or the name that imported answers have.

        It is None if the model was trained here.
        """
        names = {}
        for row in self._table("models"):
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
        figures = {lm: self.measure(number.find, lm) for lm in lms}
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
            return self.metrics.get(file, {}).get(figure)

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
        """How many questions of a set or a benchmark a language model was asked."""
        for row in self._table("accuracy"):
            if (row["dataset"], row["lm"]) == (name, lm):
                return row["questions"]
        for row in self._table("tasks"):
            if (row["task"], row["lm"], row["category"]) == (name, lm, "all"):
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

    # our figures

    def measure(self, find: dict[str, Any], lm: str) -> Interval:
        """Our figure for a language model, NOTHING if the run has none.

        `find` has one of these, and `times`, a factor: `table` and `value`, a column of
        data/analyses or a key of DERIVED, with what picks rows, and counts as their mean; `metrics`
        and the dotted `key` of a figure; `least_popular`, so many questions of `dataset` as
        `method` answered them; `seconds`, a question's by `method` ("taken"), or what thresholds
        save ("saved").
        """
        if "metrics" in find:
            figure = self._metric(find, lm)
        elif "least_popular" in find:
            figure = self._least_popular(find, lm)
        elif "seconds" in find:
            figure = self._seconds(find, lm)
        else:
            measure = DERIVED.get(find["value"], Run.mean)
            figure = measure(self, find, lm)
        return figure.times(find.get("times", 1)) if math.isfinite(figure.value) else NOTHING

    def way(self, find: dict[str, Any], lm: str) -> str:
        """Which of two accepted ways gave a figure: the value of the param or column
        `find["way"]`.
        """
        way = find.get("way", "")
        if "." in way:
            return self.setting(way, lm)
        rows = self.rows(find, lm) if way else []
        return (rows[0][way] or "") if rows else ""

    def rows(self, find: dict[str, Any], lm: str) -> list[dict]:
        """The rows that `find` picks; none if one of them is missing."""
        wanted = {}
        for key, entry in find.items():
            if key not in NOT_COLUMNS:
                wanted[key] = entry if isinstance(entry, list) else [entry]
        if "lm" in tables.TABLES[find["table"]]:
            wanted["lm"] = [lm]

        rows = []
        for row in self._table(find["table"]):
            if all(row[key] in entries for key, entries in wanted.items()):
                rows.append(row)
        expected = math.prod(len(entries) for entries in wanted.values())
        return rows if len(rows) == expected else []

    def mean(self, find: dict[str, Any], lm: str) -> Interval:
        """The mean of a column over the rows that `find` picks, whose errors are independent."""
        figures = []
        for row in self.rows(find, lm):
            if row[find["value"]] is not None:
                figures.append(as_interval(row[find["value"]]))
        if not figures:
            return NOTHING

        value = fmean(figure.value for figure in figures)
        down = math.hypot(*(figure.value - figure.low for figure in figures)) / len(figures)
        up = math.hypot(*(figure.high - figure.value for figure in figures)) / len(figures)
        return Interval(value, value - down, value + up)

    def relative_gain(self, find: dict[str, Any], lm: str) -> Interval:
        """What a method gains on a benchmark, in % of the closed-book accuracy."""
        gain = self.mean(find | {"value": "gain"}, lm)
        closed_book = self.mean(find | {"value": "accuracy", "method": "closed_book"}, lm)
        return gain.times(100 / closed_book.value) if closed_book.value > 0 else NOTHING

    def perplexity_saved(self, find: dict[str, Any], lm: str) -> Interval:
        """The share of perplexity saved, in %: its logarithm falls by the share of bits saved."""
        without = self.mean(find | {"value": "perplexity", "retriever": "none", "k": 0}, lm).value

        def of_perplexity(bits_saved: float) -> float:
            return 100 * (1 - without ** (-bits_saved / 100))

        saved = self.mean(find | {"value": "saved"}, lm)
        return Interval(
            of_perplexity(saved.value), of_perplexity(saved.low), of_perplexity(saved.high)
        )

    def price(self, find: dict[str, Any], lm: str) -> Interval:
        """What answers cost; NOTHING for a model that runs here, which has no price."""
        cost = self.mean(find, lm)
        return cost if cost.value > 0 else NOTHING

    def _metric(self, find: dict[str, Any], lm: str) -> Interval:
        """The figure of a file of data/metrics; parts of its key may name the model or
        the search.
        """
        figure = self.metrics.get(find["metrics"], {})
        for part in find["key"].split("."):
            name = part.format(lm=lm, search=self.params.thresholds.search)  # names may have dots
            figure = figure.get(name, {}) if isinstance(figure, dict) else {}
        return interval(figure) if isinstance(figure, dict) else as_interval(figure)

    def _seconds(self, find: dict[str, Any], lm: str) -> Interval:
        """How many times as long a question takes with passages, or what thresholds save of that.

        NOTHING unless one machine, which runs the model, took the seconds with passages and those
        without.
        """
        latencies = self._latencies(find, lm)
        if latencies is None:
            return NOTHING
        without, augmented = latencies
        times = Interval(
            augmented.value / without.value,
            augmented.low / without.high,
            augmented.high / without.low,
        )
        if find["seconds"] == "taken":
            return times

        rows = {
            "table": "savings",
            "value": "retrieved",
            "dataset": find["dataset"],
            "method": find["method"],
        }
        retrieved = self.mean(rows, lm)
        bounds = []
        for share in (retrieved.low, retrieved.high):
            for longer in (times.low, times.high):
                bounds.append((1 - share) * (1 - 1 / longer))
        saved = (1 - retrieved.value) * (1 - 1 / times.value)
        return Interval(saved, min(bounds), max(bounds)).times(100)

    def _latencies(self, find: dict[str, Any], lm: str) -> tuple[Interval, Interval] | None:
        """The median seconds without passages and with them, if they can be compared."""
        taken = []
        for method in ("closed_book", find["method"]):
            answers = self._answers(find, lm).get(method)
            if answers is None:
                return None
            folder = self.data / latency.FOLDER / find["dataset"] / lm
            file = folder / f"{answers.stem}.json"
            if not file.is_file():
                return None
            taken.append(json.loads(file.read_text(encoding="utf-8")))

        without, augmented = taken
        is_one_machine = without["machine"] == augmented["machine"]
        if not is_one_machine or without["server"] or augmented["server"]:
            return None
        return interval(without["median"]), interval(augmented["median"])

    def _answers(self, find: dict[str, Any], lm: str) -> dict[str, Path]:
        """Method -> the file of a language model's answers."""
        by_lm = answer_files.sets(
            find["dataset"], self.params.lms, self.params.retrievers, self.data
        )
        return by_lm.get(lm, {})

    def _least_popular(self, find: dict[str, Any], lm: str) -> Interval:
        """The accuracy on so many of the least popular questions."""
        dataset = find["dataset"]
        method = find["method"]
        files = self._answers(find, lm)
        if method not in files:
            return NOTHING
        questions = self.data / "questions" / dataset / f"{dataset}.parquet"
        answers = answer_sets.read_answered(questions, {method: files[method]}, seed=0, resamples=0)
        order = accuracy.least_popular(answers, find["least_popular"])
        if len(order) < find["least_popular"]:
            return NOTHING
        is_least_popular = np.isin(np.arange(len(answers.ids)), order)
        return answers.share(answers.by_method[method].correct, is_least_popular)


DERIVED = {  # `value` of a `find` -> how it is measured; all else is a column
    "cost_per_1000": Run.price,
    "relative_gain": Run.relative_gain,
    "perplexity_saved": Run.perplexity_saved,
}


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
