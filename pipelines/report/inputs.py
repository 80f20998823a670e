"""Everything the report is made from, read once: tables under data/ and the metrics that the stages left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq

from pipelines import params
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
    parts: params.Parts  # what the run is made of
    thresholds: list[dict]  # the rows of adaptive/popularity/thresholds.parquet
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
        return [dataset for dataset in self.parts.answered if self.rows("accuracy", dataset=dataset)]

    @property
    def main(self) -> str:
        """The main language model; where none runs, the first one whose answers were imported; else no name."""
        return next(iter([*self.models, *self.sizes]), "")

    @property
    def main_corpus(self) -> str:
        """The corpus that language models are mainly scored on: the first of parts.scored; else no name."""
        return next(iter(self.parts.scored), "")

    def rows(self, name: str, lm: str | None = None, **key) -> list[dict]:
        """Rows of a table of answers: those of `lm`, the main language model where none is named, and of `key`."""
        wanted = {"lm": lm or self.main} | key
        return [row for row in self.tables[name] if all(row[column] == value for column, value in wanted.items())]

    def methods(self, dataset: str, lm: str | None = None) -> list[str]:
        """By which methods a language model answered a question set, closed-book first."""
        return [row["method"] for row in self.rows("accuracy", lm, dataset=dataset)]


def read(data: Path, models: list[str], parts: params.Parts) -> Inputs:
    """Read data/ of a run with these language models and parts; raises LongtailError naming a file that is missing."""
    for name in tables.TABLES:
        _file(data / f"analyses/{name}.parquet")
    return Inputs(
        data=data,
        manifest=json.loads(_file(data / "raw/manifest.json").read_text(encoding="utf-8")),
        metrics=tables.metrics(data),
        documents={
            name: pq.read_metadata(_file(data / f"corpus/{name}/docs.parquet")).num_rows for name in parts.corpora
        },
        questions=[_questions(data / "questions" / name / f"{name}.parquet", name) for name in parts.answered],
        popularity=_popularity(data, parts),
        links=_links(data) if "entityquestions" in parts.answered else [],
        rejects=_rejects(data),
        models=models,
        parts=parts,
        thresholds=_thresholds(data) if parts.answered else [],
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


def _popularity(data: Path, parts: params.Parts) -> dict[str, np.ndarray]:
    """The known popularities of the questions' subjects; of Natural Questions, those of the least viewed entities."""
    known = {}
    for name in parts.question_sets:
        path, column = tables.popularity_of(data, name)
        query = f"SELECT {column} AS views FROM read_parquet(?) WHERE views IS NOT NULL ORDER BY views"
        known[name] = duckdb.execute(query, [str(_file(path))]).fetchnumpy()["views"]
    return {name: views for name, views in known.items() if len(views)}


def _thresholds(data: Path) -> list[dict]:
    return pq.read_table(_file(data / "adaptive/popularity/thresholds.parquet")).to_pylist()


def _links(data: Path) -> list[tuple[str, str, int]]:
    query = "SELECT relation, link, count(*) FROM read_parquet(?) GROUP BY ALL ORDER BY relation, link"
    path = data / "questions/entityquestions/entityquestions.parquet"
    return duckdb.execute(query, [str(_file(path))]).fetchall()


def _rejects(data: Path) -> list[dict]:
    """Rejected rows by the stage's folder and the reason, over every rejects.parquet below data/."""
    rows = []
    for path in sorted({*data.glob("*/rejects.parquet"), *data.glob("*/*/rejects.parquet")}):
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
