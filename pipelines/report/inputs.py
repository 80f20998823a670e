"""Everything that the report shows, read once: tables and metrics under data/."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from pipelines.evaluation import stage_metrics, tables
from pipelines.intervals import NOTHING, Interval
from pipelines.pages.values import label
from pipelines.params import params
from pipelines.storage import database, parquet
from pipelines.studies import carried
from pipelines.with_studies.all_tables import TABLES

RULE_STUDIES = [
    carried,
]  # the studies with tables of thresholds


@dataclass(frozen=True)
class Inputs:
    data: Path
    manifest: list[dict]  # data/raw/manifest.json
    metrics: dict[str, dict]  # as stage_metrics.read returns them
    documents: dict[str, int]  # corpus -> documents
    popularity: dict[
        str, dict
    ]  # question set -> how many popularities are known and not, quantiles; sets with some
    rejects: list[dict]  # a row for each (stage's folder, reason): rows
    models: list[str]  # language models of this run, the main one first
    parts: params.Parts  # what the run is made of
    tables: dict[
        str, list[dict]
    ]  # name -> rows of analyses/<name>.parquet, and of adaptive/popularity
    chosen: SimpleNamespace | None = None  # the run's params

    @property
    def sizes(self) -> dict[str, int | None]:
        """Language model -> parameters, None where not known; the imported models come last."""
        return {row["lm"]: row["parameters"] for row in self.tables["models"]}

    @property
    def imported(self) -> list[str]:
        """The language models whose answers were made elsewhere, without the main one."""
        return [
            row["lm"] for row in self.tables["models"] if row["imported"] and row["lm"] != self.main
        ]

    @property
    def asked(self) -> list[str]:
        """The question sets that the main language model answered."""
        return [
            dataset for dataset in self.parts.answered if self.rows("accuracy", dataset=dataset)
        ]

    @property
    def main(self) -> str:
        """The main language model, else the first imported one, else "". The next two are what is mainly shown."""
        return next(iter([*self.models, *self.sizes]), "")

    @property
    def main_corpus(self) -> str:
        return next(iter(self.parts.scored), "")

    @property
    def main_questions(self) -> str:
        return next(iter(self.parts.answered), "")

    def scored(self, corpus: str) -> dict[str, dict]:
        """Language model -> figures on a scored corpus, the main model first; only models with figures."""
        figures = self.metrics.get("language_modelling", {}).get(corpus, {})
        return {lm: figures[lm] for lm in self.models if "bpb_none" in figures.get(lm, {})}

    def rows(self, name: str, lm: str | None = None, **key) -> list[dict]:
        """Rows of a table with this language model (default: the main one) and these values."""
        wanted = {"lm": lm or self.main} | key
        return [
            row
            for row in self.tables[name]
            if all(row[column] == value for column, value in wanted.items())
        ]

    def answered(self, name: str, **key) -> list[dict]:
        """Rows of the main language model and the imported ones; `series` is the method, and an imported one's name."""
        return [
            row | {"series": row["method"] if lm == self.main else f"{label(row['method'])}, {lm}"}
            for lm in filter(None, [self.main, *self.imported])
            for row in self.rows(name, lm, **key)
        ]


def read_inputs(
    data: Path, models: list[str], parts: params.Parts, chosen: SimpleNamespace | None = None
) -> Inputs:
    """Read data/ of a run with these language models and parts. Raises LongtailError naming a table that is missing."""
    popularity = [_popularity(data, name) for name in parts.question_sets]
    fitted = [name for study in RULE_STUDIES for name in study.RULE_TABLES]
    return Inputs(
        data=data,
        manifest=json.loads((data / "raw/manifest.json").read_text(encoding="utf-8")),
        metrics=stage_metrics.read_metrics(data),
        documents={
            name: parquet.metadata(data / f"corpus/{name}/docs.parquet").num_rows
            for name in parts.corpora
        },
        popularity={row["dataset"]: row for row in popularity if row["known"]},
        rejects=_rejects(data, next(iter(models), "")),
        models=models,
        parts=parts,
        tables={name: tables.read_analyses(data / "analyses", name) for name in TABLES}
        | {
            name: read_fitted(data, name) if parts.rules else [] for name in ("thresholds", *fitted)
        },
        chosen=chosen,
    )


def read_fitted(data: Path, name: str) -> list[dict]:
    """The rows of a table of the thresholds, with a figure and its bounds as one; thresholds may be infinite."""
    rows = parquet.read_parquet(data / f"adaptive/popularity/{name}.parquet").to_pylist()
    bounds = [
        name.removesuffix("_low") for name in (rows[0] if rows else ()) if name.endswith("_low")
    ]
    for row in rows:
        for column in (column for column in bounds if not column.startswith("threshold")):
            ends = [row.pop(f"{column}_{end}") for end in ("low", "high")]
            middle = row[column] if column in row else row[column.removesuffix("_splits")].value
            row[column] = NOTHING if middle is None or None in ends else Interval(middle, *ends)
    return rows


def _popularity(data: Path, name: str) -> dict:
    """How many popularities of what a question set asks about are known and not, and their quantiles."""
    path, column = tables.popularity_of(data, name)
    shares = {"10 %": 0.1, "median": 0.5, "90 %": 0.9}
    quantiles = ", ".join(
        f'quantile_cont({column}, {share}) AS "{words}"' for words, share in shares.items()
    )
    query = f"SELECT count({column}) AS known, count(*) - count({column}) AS unknown, {quantiles} FROM questions"
    return {"dataset": name} | database.ask(query, questions=path).to_arrow_table().to_pylist()[0]


def _rejects(data: Path, lm: str) -> list[dict]:
    """Rejected rows by the stage's folder and the reason, of every rejects.parquet; of tasks, those of `lm`."""
    rows, depths = (
        [],
        ("*", "*/*", f"tasks/*/{lm}"),
    )  # a benchmark's rows are the same whatever model it asks
    query = """SELECT reason, count(*) AS rows, min(file) || ', row ' || arg_min(row, (file, row)) AS first
        FROM rejects GROUP BY reason ORDER BY reason"""
    for path in sorted(
        {path for depth in depths for path in data.glob(f"{depth}/rejects.parquet")}
    ):
        found = database.ask(query, rejects=path).to_arrow_table().to_pylist()
        rows += [{"folder": path.parent.relative_to(data).as_posix()} | row for row in found]
    return rows
