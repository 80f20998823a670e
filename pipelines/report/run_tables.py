"""The tables and figures of a finished run, asked for by SQL: what the sections of the
report show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from pipelines.evaluation import stage_metrics, tables
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.intervals import interval
from pipelines.pages.section import Row
from pipelines.pages.values import label
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.params.params import Fetch, Parts, Popularity, Report, Thresholds
from pipelines.params.params_models import LM, LSR, Answer, Replug, Retriever
from pipelines.storage import database
from pipelines.storage.atomic import read_json
from pipelines.tables.analyses import BY_NAME

ENOUGH = 3 * FEWEST  # questions of known popularity; with fewer, nothing is shown by popularity
ANSWERED = """SELECT * EXCLUDE (file_row_number) FROM {table}
    WHERE list_contains($answered_sets, dataset) AND list_contains($shown_lms, lm) AND ({where})
    ORDER BY list_position($answered_sets, dataset), list_position($shown_lms, lm), file_row_number
    """
FIRST_METHODS = """SELECT * FROM accuracy
    WHERE list_contains($answered_sets, dataset) AND lm = $lm
    QUALIFY row_number() OVER (PARTITION BY dataset ORDER BY file_row_number) = 1
    ORDER BY list_position($answered_sets, dataset)"""


class Settings(Section):
    """The sections of params.yaml that the report shows."""

    profile: str
    seed: int
    fetch: Fetch
    lm: dict[LMName, LM]
    lms: list[LMName]
    retriever: dict[RetrieverName, Retriever]
    retrievers: list[RetrieverName]
    lsr: LSR
    popularity: Popularity
    answer: Answer
    replug: Replug
    thresholds: Thresholds
    report: Report
    parts: Parts
    ways: list[str]


class Tables:
    """The tables of `data` as tables of a database, with what a section asks of most often.

    `lm`, `dataset` and `corpus` are the main language model, question set and corpus, "" where the
    run has none. Raises LongtailError naming a table that is missing.
    """

    def __init__(self, data: Path, settings: Settings) -> None:
        self.data = data
        self.settings = settings
        self.metrics = stage_metrics.read_metrics(data)
        self.db = duckdb.connect(config={"threads": 1})
        for name in BY_NAME:
            database.view(self.db, name, data / f"analyses/{name}.parquet", numbered=True)
        if settings.parts.rules:
            for path in (data / "adaptive/popularity").glob("*.parquet"):
                database.view(self.db, path.stem, path, numbered=True)

        models = self.rows("models")
        # None where they are not known
        self.parameters = {row["lm"]: row["parameters"] for row in models}
        self.vocabularies = {row["lm"]: row["vocabulary"] for row in models}
        self.lm = next(iter([*settings.lms, *self.parameters]), "")
        self.imported_lms = [
            row["lm"] for row in models if row["imported"] and row["lm"] != self.lm
        ]
        self.dataset = next(iter(settings.parts.answered), "")
        self.corpus = next(iter(settings.parts.scored), "")

    def ask(self, query: str, **values: Any) -> list[Row]:
        """The rows of a query; a column with a _low and a _high beside it has Intervals.

        The query may name `$lm`, `$dataset`, `$corpus`, `$top_k`, `$answered_sets`, `$first_set`,
        `$shown_lms`, and the other `values`.
        """
        names = set(re.findall(r"\$(\w+)", query))
        params = {name: getattr(self, name) for name in names - values.keys()} | values
        relation = self.db.sql(query, params=params or None)
        return tables.with_intervals(relation.to_arrow_table().to_pylist())

    def rows(self, table: str, where: str = "true", **values: Any) -> list[Row]:
        """The rows of a table for which `where` holds, in its order."""
        query = f"""SELECT * EXCLUDE (file_row_number) FROM {table}
            WHERE {where} ORDER BY file_row_number"""
        return self.ask(query, **values)

    def answered(self, table: str, where: str = "true", **values: Any) -> list[Row]:
        """The rows of the question sets that the main language model answered, by set.

        They are those of the main language model, then of imported ones. `series` is the method,
        with the language model's name if that is not the main one.
        """
        rows = self.ask(ANSWERED.format(table=table, where=where), **values)
        for row in rows:
            is_main = row["lm"] == self.lm
            row["series"] = row["method"] if is_main else f"{label(row['method'])}, {row['lm']}"
        return rows

    def thresholds(self, where: str = "true", **values: Any) -> list[Row]:
        """The rows of the table of thresholds; none where the run fits none."""
        return self.rows("thresholds", where, **values) if self.settings.parts.rules else []

    @property
    def top_k(self) -> int:
        """The documents of an ensemble."""
        return self.settings.replug.top_k

    @property
    def shown_lms(self) -> list[str]:
        """The main language model, and those whose answers were made elsewhere."""
        return [self.lm, *self.imported_lms]

    @cached_property
    def manifest(self) -> list[dict[str, Any]]:
        """The source files, as data/raw/manifest.json lists them."""
        return read_json(self.data / "raw/manifest.json")

    @cached_property
    def answered_sets(self) -> list[str]:
        """The question sets that the main language model answered."""
        rows = self.ask("SELECT DISTINCT dataset FROM accuracy WHERE lm = $lm")
        with_answers = {row["dataset"] for row in rows}
        return [dataset for dataset in self.settings.parts.answered if dataset in with_answers]

    @property
    def first_set(self) -> str:
        """The first of them; "" without one."""
        return next(iter(self.answered_sets), "")

    @cached_property
    def first_methods(self) -> list[Row]:
        """The accuracy of each answered set's first method."""
        return self.ask(FIRST_METHODS)

    @cached_property
    def drawn_sets(self) -> list[str]:
        """The answered sets with enough questions of known popularity."""
        rows = self.first_methods
        return [row["dataset"] for row in rows if row["popularity_known"] >= ENOUGH]

    def scored(self, corpus: str) -> dict[str, dict]:
        """Language model -> figures on a scored corpus, of models that have any; the main one
        first.
        """
        by_lm = self.metrics.get("language_modelling", {}).get(corpus, {})
        return {lm: by_lm[lm] for lm in self.settings.lms if "bpb_none" in by_lm.get(lm, {})}


def read_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a metrics file as a row, an Interval each."""
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if not isinstance(value, dict):
            row[name] = value
        elif "value" in value:
            row[name] = interval(value) if "low" in value else value["value"]
    return row
