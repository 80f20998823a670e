"""Everything the report is made from, read once: tables under data/ and the metrics that the stages left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq

from pipelines.answering.answer_files import DATASETS
from pipelines.corpus import CORPORA
from pipelines.errors import LongtailError
from pipelines.evaluation import tables


@dataclass(frozen=True)
class Inputs:
    data: Path
    manifest: list[dict]  # data/raw/manifest.json
    metrics: dict[str, dict]  # name of the file under data/metrics -> its content
    documents: dict[str, int]  # corpus -> documents
    questions: list[dict]  # a row per data set: counts
    popularity: dict[str, np.ndarray]  # question set -> known popularities, (n,) int64; only sets with some
    links: list[tuple[str, str, int]]  # EntityQuestions: relation, link, questions
    rejects: list[dict]  # a row per (stage's folder, reason): rows
    models: list[str]  # language models of this run, the main one first
    thresholds: list[dict]  # the rows of adaptive/thresholds.parquet
    tables: dict[str, list[dict]]  # name -> rows of analyses/<name>.parquet

    @property
    def sizes(self) -> dict[str, int | None]:
        """Of every language model that answered, those imported last: its parameters, None where not known."""
        return {row["lm"]: row["parameters"] for row in self.tables["models"]}

    @property
    def families(self) -> dict[str, str | None]:
        """Likewise its architecture, as gpt2."""
        return {row["lm"]: row["family"] for row in self.tables["models"]}

    @property
    def asked(self) -> list[str]:
        """The question sets that the main language model answered."""
        return [dataset for dataset in DATASETS if self.rows("accuracy", dataset=dataset)]

    def rows(self, name: str, lm: str | None = None, **key) -> list[dict]:
        """Rows of a table of answers: those of `lm`, the main language model where none is named, and of `key`."""
        wanted = {"lm": lm or self.models[0]} | key
        return [row for row in self.tables[name] if all(row[column] == value for column, value in wanted.items())]

    def methods(self, dataset: str, lm: str | None = None) -> list[str]:
        """By which methods a language model answered a question set, closed-book first."""
        return [row["method"] for row in self.rows("accuracy", lm, dataset=dataset)]


def read(data: Path, models: list[str]) -> Inputs:
    """Read data/ of a run with these language models; raises LongtailError naming a file that is missing."""
    for name in tables.TABLES:
        _file(data / f"analyses/{name}.parquet")
    return Inputs(
        data=data,
        manifest=json.loads(_file(data / "raw/manifest.json").read_text(encoding="utf-8")),
        metrics={
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((data / "metrics").glob("*.json"))
        },
        documents={name: pq.read_metadata(_file(data / f"corpus/{name}/docs.parquet")).num_rows for name in CORPORA},
        questions=[_questions(data / name / f"{name}.parquet", name) for name in DATASETS],
        popularity=_popularity(data),
        links=_links(data / "entityquestions/entityquestions.parquet"),
        rejects=_rejects(data),
        models=models,
        thresholds=pq.read_table(_file(data / "adaptive/thresholds.parquet")).to_pylist(),
        tables={name: tables.read(data / "analyses", name) for name in tables.TABLES},
    )


def _questions(path: Path, name: str) -> dict:
    counts = duckdb.execute(
        """SELECT count(*), count(DISTINCT relation), count(*) FILTER (split = 'test'), count(*) FILTER (split =
        'train'),
                  count(s_pop) FROM read_parquet(?)""",
        [str(path)],
    ).fetchone()
    return dict(zip(("dataset", "questions", "relations", "test", "train", "popularity"), (name, *counts), strict=True))


def _popularity(data: Path) -> dict[str, np.ndarray]:
    """The known popularities of the questions' subjects; of Natural Questions, those of the least viewed entities."""
    tables = [(name, data / name / f"{name}.parquet", "s_pop") for name in DATASETS]
    found = {}
    for name, path, column in [*tables, ("nq", data / "nq/popularity.parquet", "popularity")]:
        query = f"SELECT {column} AS views FROM read_parquet(?) WHERE views IS NOT NULL ORDER BY views"
        found[name] = duckdb.execute(query, [str(_file(path))]).fetchnumpy()["views"]
    return {name: views for name, views in found.items() if len(views)}


def _links(path: Path) -> list[tuple[str, str, int]]:
    query = "SELECT relation, link, count(*) FROM read_parquet(?) GROUP BY ALL ORDER BY relation, link"
    return duckdb.execute(query, [str(path)]).fetchall()


def _rejects(data: Path) -> list[dict]:
    """Rejected rows by the stage's folder and the reason, over every rejects.parquet below data/."""
    rows = []
    for path in sorted(data.glob("*/rejects.parquet")) + sorted(data.glob("*/*/rejects.parquet")):
        found = duckdb.execute(
            """SELECT reason, count(*), min(file), arg_min(row, (file, row)) FROM read_parquet(?)
               GROUP BY reason ORDER BY reason""",
            [str(path)],
        ).fetchall()
        folder = path.parent.relative_to(data).as_posix()
        rows += [
            {"folder": folder, "reason": reason, "rows": n, "first": f"{file}, row {row}"}
            for reason, n, file, row in found
        ]
    return rows


def _file(path: Path) -> Path:
    if not path.is_file():
        raise LongtailError(f"{path}: no such file, expected the output of an earlier stage; run `dvc repro`")
    return path
