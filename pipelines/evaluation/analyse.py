"""Stage `analyse`: the papers' tables and the data of their figures, from answers and from other stages' figures.

data/analyses/<name>.parquet, a file for each of `tables.TABLES`, and accuracy_by_popularity.json, the main language
model's on PopQA by the substring rule with a column for each method, for `dvc plots`.
data/analyses.json: accuracy by data set, language model and method, by both rules, and the gain over
closed-book answers.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import duckdb

from pipelines import shards, stage
from pipelines.answering import answer_files
from pipelines.evaluation import accuracy, costs, replug_tables, retrieval_effects, tables
from pipelines.lm.model_files import count_parameters, family

OUT = Path("data/analyses")
METRICS = Path("data/analyses.json")
SECTIONS = ("seed", "fetch", "lms", "replug", "report", "parts")
EXAMPLE = "dense"  # the method whose answers are shown


def analyse(data: Path, out: Path, metrics: Path, params: SimpleNamespace) -> stage.Metrics:
    """Write every table, and the metrics. Raises LongtailError as `popqa.read` does."""
    found: dict[str, list[dict]] = {name: [] for name in tables.TABLES}
    files = {dataset: answer_files.sets(dataset, params.lms, data) for dataset in params.parts.answered}
    rules = data / "adaptive/popularity/thresholds.json"
    cuts = json.loads(rules.read_text(encoding="utf-8"))["thresholds"] if files else {}
    for dataset, of_lms in files.items():
        for lm, of_methods in of_lms.items():
            own = accuracy.read(data / "questions" / dataset / f"{dataset}.parquet", of_methods)
            if len(own.ids):
                rows = of_answers(own, cuts.get(dataset, {}).get(lm, {}), params.seed, params.report.bootstrap)
                _append(found, rows, {"dataset": dataset, "lm": lm})
                if dataset == "popqa" and params.fetch.source == "world" and lm in params.lms:
                    halves = retrieval_effects.halves(own, params.seed, params.report.bootstrap)
                    _append(found, {"halves": halves}, {"lm": lm})
    main = next(iter([*params.lms, *(lm for lms in files.values() for lm in lms)]), "")
    for dataset, of_lms in files.items():
        of_methods = of_lms.get(main, {})
        if {"closed_book", EXAMPLE} <= set(of_methods):
            chosen = (of_methods[method] for method in ("closed_book", EXAMPLE))
            rows = retrieval_effects.examples(data / "questions" / dataset / f"{dataset}.parquet", *chosen, params.seed)
            _append(found, {"examples": rows}, {"dataset": dataset, "lm": main, "method": EXAMPLE})
    found["popularity"] = popularity(data, params.parts.question_sets)
    found["models"] = models(params.lms, files, data / "models/lm")
    found |= of_metrics(tables.metrics(data), found, params, main)
    with shards.atomic(out) as folder:
        folder.mkdir()
        for name, rows in found.items():
            tables.write(folder, name, rows)
        shards.write_json(folder / "accuracy_by_popularity.json", plotted(found["accuracy_by_popularity"], main))
    figures = summary(found)
    shards.write_json(metrics, figures)
    return {
        f"{dataset}.{lm}.{method}.{name}": value
        for dataset, of_lms in figures.items()
        for lm, of_methods in of_lms.items()
        for method, own in of_methods.items()
        for name, value in own.items()
    }


def of_answers(own: accuracy.Answers, cuts: dict, seed: int, resamples: int) -> dict[str, list[dict]]:
    """The tables of one language model's answers to one question set; `cuts` are its thresholds in use."""
    draw = seed, resamples
    return {
        "accuracy": accuracy.accuracy(own, *draw),
        "accuracy_by_relation": accuracy.by_relation(own, *draw),
        "accuracy_by_popularity": accuracy.by_popularity(own, *draw),
        "accuracy_by_relation_and_popularity": accuracy.by_relation_and_popularity(own, *draw),
        "accuracy_by_relative_popularity": accuracy.by_relative_popularity(own),
        "retrieval_effect": retrieval_effects.where_retrieval_helps(own, *draw),
        "comparisons": retrieval_effects.comparisons(own, *draw),
        "recall": retrieval_effects.recall(own),
        "costs": costs.costs(own),
        "savings": costs.savings(own, cuts, *draw),
    }


def of_metrics(
    metrics: dict[str, dict], found: dict[str, list[dict]], params: SimpleNamespace, main: str
) -> dict[str, list[dict]]:
    """REPLUG's tables from other stages' figures; the retrievers are compared by the main language model."""
    scored, top_k = params.parts.scored, params.replug.top_k
    figures = metrics.get("language_modelling", {})
    bits = replug_tables.bits_per_byte({corpus: figures[corpus] for corpus in scored if corpus in figures}, params.lms)
    corpus = next(iter(scored), "")
    by_dataset = {
        name: {d: [r for r in found[name] if (r["dataset"], r["lm"]) == (d, main)] for d in params.parts.answered}
        for name in ("recall", "accuracy")
    }
    of_main = [row for row in bits if (row["lm"], row["corpus"]) == (main, corpus)]
    compared = replug_tables.retrievers(of_main, *by_dataset.values(), metrics.get("retrieval", {}), top_k)
    return {
        "bits_per_byte": bits,
        "rare_words": replug_tables.rare_words(metrics.get("attribution", {}).get(corpus, {})),
        "tasks": replug_tables.tasks(metrics.get("tasks", {})),
        "retrievers": compared,
    }


def popularity(data: Path, question_sets: list[str]) -> list[dict]:
    """Histograms of the questions' popularity, in quarters of a power of ten, 0 counted as 1 (Figure 3)."""
    rows = []
    for dataset in question_sets:
        path, column = tables.popularity_of(data, dataset)
        counts = duckdb.execute(
            f"""SELECT floor(4 * log10(greatest({column}, 1)))::INT AS bin, count(*) FROM read_parquet(?)
                WHERE {column} IS NOT NULL GROUP BY bin ORDER BY bin""",
            [str(path)],
        ).fetchall()
        rows += [
            {"dataset": dataset, "least": 10 ** (bin_ / 4), "below": 10 ** ((bin_ + 1) / 4), "questions": n}
            for bin_, n in counts
        ]
    return rows


def models(lms: list[str], files: dict[str, dict], folder: Path) -> list[dict]:
    """The language models that answered, the main one first; their parameters and families, where these are known."""
    answered = {lm: None for lm in lms} | {lm: None for of_lms in files.values() for lm in of_lms}
    return [
        {
            "lm": lm,
            "parameters": count_parameters(folder / lm),
            "family": family(folder / lm),
            "imported": lm not in lms,
        }
        for lm in answered
    ]


def plotted(rows: list[dict], lm: str) -> list[dict]:
    """PopQA's accuracy by decile of popularity, a row a decile and a column a method."""
    deciles: dict[int, dict] = {}
    for row in rows:
        if (row["dataset"], row["lm"]) == ("popqa", lm):
            own = deciles.setdefault(row["decile"], {"popularity": row["popularity"]})
            own[row["method"]] = row["substring"].value
    return list(deciles.values())


def summary(found: dict[str, list[dict]]) -> dict:
    """data set -> language model -> method -> figures."""
    figures: dict = {}
    for row in found["accuracy"]:
        own = figures.setdefault(row["dataset"], {}).setdefault(row["lm"], {}).setdefault(row["method"], {})
        own |= {rule: row[rule].value for rule in ("substring", "word") if math.isfinite(row[rule].value)}
    for row in found["comparisons"]:
        if row["against"] == "closed_book":
            figures[row["dataset"]][row["lm"]][row["method"]]["gain"] = row["gain"].value
    return figures


def _append(found: dict[str, list[dict]], rows: dict[str, list[dict]], key: dict[str, str]) -> None:
    for name, own in rows.items():
        found[name] += [key | row for row in own]


def main() -> None:
    stage.run(
        "analyse", SECTIONS, lambda params: analyse(Path("data"), OUT, METRICS, params), out=f"{OUT} and {METRICS}"
    )


if __name__ == "__main__":
    main()
