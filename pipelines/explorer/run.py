"""The run that the explorer shows: its params, answers, rules, and rows of its tables by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.adaptive import rule
from pipelines.answering import answer_files
from pipelines.answering.given_passages import AskedSettings
from pipelines.answering.passages import PassageSettings
from pipelines.answering.session import Session
from pipelines.params import params_file
from pipelines.params.param_types import LMName
from pipelines.storage import database, parquet
from pipelines.storage.atomic import read_json

RUN_MAKES_IT = "`longtail run` makes it"
DATA = Path("data")
PARAMS = Path("params.yaml")
SESSION = Session()  # a run, what answers there are (every import is read), and an index


class RunParams(PassageSettings, AskedSettings):
    """The sections of params.yaml that the explorer reads."""

    seed: int
    lms: list[LMName]


@dataclass(frozen=True, eq=False)
class Run:
    """A run's outputs, below `data`, and its params."""

    data: Path
    params: RunParams

    @property
    def sets(self) -> list[str]:
        """The question sets that something has answered."""
        return [name for name in self.params.parts.answered if self.answers(name)]

    def questions(self, dataset: str) -> Path:
        return self.data / "questions" / dataset / f"{dataset}.parquet"

    def answers(self, dataset: str) -> dict[str, dict[str, Path]]:
        """Language model -> method -> its file of answers; this run's models first."""
        lms = self.params.lms
        retrievers = self.params.retrievers

        def look() -> dict[str, dict[str, Path]]:
            return answer_files.sets(dataset, lms, retrievers, self.data)

        imported = answer_files.imports(self.data)
        return SESSION.get(f"answers to {dataset}", look, lms, retrievers, imported, self.data)

    def rules(self, dataset: str, lm: str) -> dict[str, rule.Rule]:
        """Method, or name of two answers -> its rule for when to retrieve."""
        file = self.data / "adaptive/popularity/thresholds.json"
        if not file.is_file():
            return {}
        by_dataset = read_json(file)["rules"]
        rules = {}
        for name, entry in by_dataset.get(dataset, {}).get(lm, {}).items():
            rules[name] = rule.parse(entry, str(file))
        return rules


def open_run() -> Run:
    """The run of params.yaml as it is now.

    Raises LongtailError if there is no params.yaml, or a value in it is wrong.
    """

    def read() -> Run:
        return Run(DATA, params_file.load_settings(RunParams))

    return SESSION.get("run", read, PARAMS.read_bytes() if PARAMS.is_file() else b"")


def lookup(file: Path, column: str, values: Sequence[str], *columns: str) -> list[dict]:
    """The rows of a Parquet file whose `column` has one of these values, with some columns or all.

    DuckDB reads only the row groups that may hold them, so a file of any size will do if its rows
    are ordered by that column. Raises LongtailError if the file is missing or damaged.
    """
    query = f"""SELECT {", ".join(columns) or "*"} FROM rows
        WHERE {column} IN (SELECT unnest($values::VARCHAR[])) ORDER BY {column}"""
    with parquet.naming(file, errors=(duckdb.Error,)):
        rows = database.ask(query, {"values": list(values)}, rows=file)
        return rows.to_arrow_table().to_pylist()
