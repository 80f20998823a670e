"""The figures of a run, which the papers' numbers are held against.

They are means of its analyses, and metrics. A published number (papers.yaml) picks its figure by
`find`.
"""

from __future__ import annotations

import json
import math
from functools import cache
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
from pipelines.tables.analyses import BY_NAME

NOT_COLUMNS = ("table", "value", "times", "way")  # of `find`, beside the columns that pick rows


class RunFigures:
    """The figures in a folder `data`, which a run by these params wrote."""

    def __init__(self, data: Path, params: Params | SimpleNamespace) -> None:
        self.data = data
        self.params = params
        self.metrics = stage_metrics.read_metrics(data)
        self.table = cache(lambda name: tables.read_analyses(data / "analyses", name))

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
            measure = DERIVED.get(find["value"], RunFigures.mean)
            figure = measure(self, find, lm)
        return figure.times(find.get("times", 1)) if math.isfinite(figure.value) else NOTHING

    def rows(self, find: dict[str, Any], lm: str) -> list[dict]:
        """The rows that `find` picks; none if one of them is missing."""
        wanted = {}
        for key, entry in find.items():
            if key not in NOT_COLUMNS:
                wanted[key] = entry if isinstance(entry, list) else [entry]
        if "lm" in BY_NAME[find["table"]].column_names:
            wanted["lm"] = [lm]

        rows = []
        for row in self.table(find["table"]):
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
        """What a method gains on a question set, in % of the closed-book accuracy."""
        against = {"against_lm": lm, "against": "closed_book", "value": "gain"}
        gain = self.mean(find | against, lm)
        accuracy = {"table": "accuracy", "value": "substring", "method": "closed_book"}
        closed_book = self.mean(find | accuracy, lm)
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
    "cost_per_1000": RunFigures.price,
    "relative_gain": RunFigures.relative_gain,
    "perplexity_saved": RunFigures.perplexity_saved,
}
