"""Everything that the report shows, read once: tables and metrics under data/."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from pipelines.errors import LongtailError
from pipelines.evaluation import stage_metrics, tables
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.params import params
from pipelines.report.page import label
from pipelines.storage import database, parquet

ADAPTIVE = {  # name -> file of adaptive/popularity
    "thresholds": "thresholds",
    "reliability": "reliability",
    "coverage": "coverage",
    "carried": "carried",
}


@dataclass(frozen=True)
class Inputs:
    data: Path
    manifest: list[dict]  # data/raw/manifest.json
    metrics: dict[str, dict]  # as stage_metrics.read returns them
    documents: dict[str, int]  # corpus -> documents
    questions: list[dict]  # a row for each answered question set: counts
    popularity: dict[str, dict]  # question set -> how many popularities are known and not, quantiles; sets with some
    links: dict[str, list[tuple[str, str, int]]]  # question set with linked subjects -> (relation, link, questions)
    rejects: list[dict]  # a row for each (stage's folder, reason): rows
    models: list[str]  # language models of this run, the main one first
    parts: params.Parts  # what the run is made of
    tables: dict[str, list[dict]]  # name -> rows of analyses/<name>.parquet, and of adaptive/popularity (ADAPTIVE)
    chosen: SimpleNamespace | None = None  # the run's params

    @property
    def sizes(self) -> dict[str, int | None]:
        """Language model -> parameters, None where not known; the imported models come last."""
        return {row["lm"]: row["parameters"] for row in self.tables["models"]}

    @property
    def families(self) -> dict[str, str | None]:
        """Language model -> architecture, such as gpt2, None where not known."""
        return {row["lm"]: row["family"] for row in self.tables["models"]}

    @property
    def imported(self) -> list[str]:
        """The language models whose answers were made elsewhere, without the main one."""
        return [row["lm"] for row in self.tables["models"] if row["imported"] and row["lm"] != self.main]

    @property
    def asked(self) -> list[str]:
        """The question sets that the main language model answered."""
        return [dataset for dataset in self.parts.answered if self.rows("accuracy", dataset=dataset)]

    @property
    def main(self) -> str:
        """The main language model, else the first imported one, else ""."""
        return next(iter([*self.models, *self.sizes]), "")

    @property
    def main_corpus(self) -> str:
        """The corpus that language models are mainly scored on: the first of parts.scored, else ""."""
        return next(iter(self.parts.scored), "")

    @property
    def main_questions(self) -> str:
        """The question set that the findings are about: the first of parts.answered, else ""."""
        return next(iter(self.parts.answered), "")

    def scored(self, corpus: str) -> dict[str, dict]:
        """Language model -> figures on a scored corpus, the main model first; only models with figures."""
        figures = self.metrics.get("language_modelling", {}).get(corpus, {})
        return {lm: figures[lm] for lm in self.models if "bpb_none" in figures.get(lm, {})}

    def rows(self, name: str, lm: str | None = None, **key) -> list[dict]:
        """Rows of a table with this language model (default: the main one) and these values."""
        wanted = {"lm": lm or self.main} | key
        return [row for row in self.tables[name] if all(row[column] == value for column, value in wanted.items())]

    @property
    def beside(self) -> list[str]:
        """The main language model, then the imported models, which stand beside it in all sections on answers."""
        return [*filter(None, [self.main]), *self.imported]

    def answered(self, name: str, **key) -> list[dict]:
        """Rows of a table of each model of `beside`; `series` is the method, and an imported model's name with it."""
        return [
            row | {"series": row["method"] if lm == self.main else f"{label(row['method'])}, {lm}"}
            for lm in self.beside
            for row in self.rows(name, lm, **key)
        ]

    def methods(self, dataset: str, lm: str | None = None) -> list[str]:
        """The methods by which a language model answered a question set, closed-book first."""
        return [row["method"] for row in self.rows("accuracy", lm, dataset=dataset)]


def read_inputs(data: Path, models: list[str], parts: params.Parts, chosen: SimpleNamespace | None = None) -> Inputs:
    """Read data/ of a run with these language models and parts. Raises LongtailError naming a file that is missing."""
    for name in tables.TABLES:
        _file(data / f"analyses/{name}.parquet")
    files = {name: _file(data / "questions" / name / f"{name}.parquet") for name in parts.answered}
    popularity = [_popularity(data, name) for name in parts.question_sets]
    return Inputs(
        data=data,
        manifest=json.loads(_file(data / "raw/manifest.json").read_text(encoding="utf-8")),
        metrics=stage_metrics.read_metrics(data),
        documents={
            name: parquet.metadata(_file(data / f"corpus/{name}/docs.parquet")).num_rows for name in parts.corpora
        },
        questions=[_questions(path, name) for name, path in files.items()],
        popularity={row["dataset"]: row for row in popularity if row["known"]},
        links={name: _links(path) for name, path in files.items() if "link" in parquet.schema_of(path).names},
        rejects=_rejects(data, next(iter(models), "")),
        models=models,
        parts=parts,
        tables={name: tables.read_analyses(data / "analyses", name) for name in tables.TABLES}
        | {name: read_fitted(data, file) if parts.rules else [] for name, file in ADAPTIVE.items()},
        chosen=chosen,
    )


def read_fitted(data: Path, name: str) -> list[dict]:
    """The rows of a table of the thresholds, with a figure and its bounds as one; thresholds may be infinite."""
    rows = parquet.read_parquet(_file(data / f"adaptive/popularity/{name}.parquet")).to_pylist()
    bounds = [name.removesuffix("_low") for name in (rows[0] if rows else ()) if name.endswith("_low")]
    for row in rows:
        for column in (column for column in bounds if not column.startswith("threshold")):
            ends = [row.pop(f"{column}_{end}") for end in ("low", "high")]
            middle = row[column] if column in row else row[column.removesuffix("_splits")].value
            row[column] = NOTHING if middle is None or None in ends else Interval(middle, *ends)
    return rows


def bounded(row: dict, name: str) -> Interval:
    """A column of a table, with <name>_low and <name>_high; NOTHING where it is null."""
    return interval({"value": row[name]} | {end: row[f"{name}_{end}"] for end in ("low", "high")})


def _questions(path: Path, name: str) -> dict:
    counts = database.ask(
        """SELECT count(*), count(DISTINCT relation), count(*) FILTER (split = 'test'),
                  count(*) FILTER (split = 'train'), count(s_pop) FROM questions""",
        questions=path,
    ).fetchall()[0]
    columns = ("dataset", "questions", "relations", "test", "train", "popularity_known")
    return dict(zip(columns, (name, *counts), strict=True))


def _popularity(data: Path, name: str) -> dict:
    """How many popularities of what a question set asks about are known and not, and their quantiles."""
    path, column = tables.popularity_of(data, name)
    query = f"""SELECT count({column}), count(*) - count({column}),
        quantile_cont({column}, 0.1), quantile_cont({column}, 0.5), quantile_cont({column}, 0.9) FROM questions"""
    found = database.ask(query, questions=_file(path)).fetchall()[0]
    return {"dataset": name} | dict(zip(("known", "unknown", "10 %", "median", "90 %"), found, strict=True))


def _links(path: Path) -> list[tuple[str, str, int]]:
    query = "SELECT relation, link, count(*) FROM questions GROUP BY ALL ORDER BY relation, link"
    return database.ask(query, questions=path).fetchall()


def _rejects(data: Path, lm: str) -> list[dict]:
    """Rejected rows by the stage's folder and the reason, of every rejects.parquet; of tasks, those of `lm`."""
    rows = []
    depths = ("*", "*/*", f"tasks/*/{lm}")  # a benchmark's rows are the same whatever language model it asks
    for path in sorted({path for depth in depths for path in data.glob(f"{depth}/rejects.parquet")}):
        counts = database.ask(
            """SELECT reason, count(*), min(file), arg_min(row, (file, row)) FROM rejects
               GROUP BY reason ORDER BY reason""",
            rejects=path,
        ).fetchall()
        folder = path.parent.relative_to(data).as_posix()
        rows += [
            {"folder": folder, "reason": reason, "rows": n, "first": f"{file}, row {row}"}
            for reason, n, file, row in counts
        ]
    return rows


def _file(path: Path) -> Path:
    if not path.is_file():
        raise LongtailError(f"{path}: no such file, expected the output of an earlier stage; run `longtail run`")
    return path
