"""Stage `analyse`: the papers' tables and the data of their figures, from answers and from other stages' figures.

data/analyses/<name>.parquet: a file for each of `tables.TABLES`, empty where a run has nothing for it
data/analyses.json: by question set, language model and method: accuracy by both rules, gain over closed-book answers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from pipelines import all_studies
from pipelines.answering import answer_files
from pipelines.evaluation import accuracy, paired, popularity_bins, retrieval_effects, savings, stage_metrics, tables
from pipelines.language import language
from pipelines.lm.model_files import count_parameters, family
from pipelines.storage import database, shards
from pipelines.work import stage

OUT = Path("data/analyses")
METRICS = Path("data/analyses.json")
SECTIONS = ("seed", "language", "lms", "retrievers", "replug", "thresholds", "exposure", "report", "parts")
EXAMPLE = "dense"  # the method whose answers are shown, or the first that is there
COMPARED = {  # tables of one language model's answers; of the questions that all models answered, under common_<name>
    "accuracy": accuracy.accuracy,
    "accuracy_by_relation": accuracy.by_relation,
    "accuracy_by_log_popularity": popularity_bins.by_log_popularity,
    "accuracy_by_relation_and_popularity": popularity_bins.by_relation,
}
OF_ANSWERS = {  # further ones
    "accuracy_by_group": accuracy.by_group,
    "accuracy_by_popularity": popularity_bins.by_decile,
    "accuracy_by_relative_popularity": popularity_bins.by_relative_popularity,
    "retrieval_effect": retrieval_effects.where_retrieval_helps,
}


@dataclass(frozen=True)
class AnswersOf:
    """What studies of answers have at hand: one language model's answers to one question set."""

    answers: accuracy.Answers
    data: Path
    dataset: str
    lm: str
    params: SimpleNamespace

    @property
    def draw(self) -> tuple[int, int]:
        """The seed and the number of resamples."""
        return self.params.seed, self.params.report.bootstrap

    @property
    def questions(self) -> Path:
        return self.data / f"questions/{self.dataset}/{self.dataset}.parquet"

    @property
    def exposure(self) -> dict[str, Path]:
        """Text -> the counts of its documents with each question's subject and answer."""
        return {text: self.data / f"exposure/{text}/{self.dataset}.parquet" for text in self.params.parts.exposure}


def analyse(data: Path, out: Path, metrics: Path, params: SimpleNamespace) -> stage.Metrics:
    """Write every table, and the metrics. Raises LongtailError as `accuracy.read_answered` does."""
    parts, split = params.parts, params.thresholds.imported
    of_run = params.lms, params.retrievers, data, split
    files = {dataset: answer_files.sets(dataset, *of_run) for dataset in parts.answered}
    main = next(iter([*params.lms, *(lm for by_lm in files.values() for lm in by_lm)]), "")
    found: dict[str, list[dict]] = {name: [] for name in tables.TABLES}

    def add(rows: dict[str, list[dict]], **key: str) -> None:
        for name, of_table in rows.items():
            own = {column: value for column, value in key.items() if column in tables.TABLES[name]}
            found[name] += [own | row for row in of_table]

    for dataset, by_lm in files.items():
        for sentence in answer_files.left_out(dataset, *of_run):
            print(sentence)
            add({"left_out": [{"why": sentence}]}, dataset=dataset)
        _add_answers(add, dataset, by_lm, data, params)
        answers = by_lm.get(main, {})
        shown = next((method for method in (EXAMPLE, *answers) if method in answers and method != "closed_book"), None)
        if shown and "closed_book" in answers:
            questions = data / "questions" / dataset / f"{dataset}.parquet"
            docs = data / "corpus" / (parts.datastore or "") / "docs.parquet"
            shown_files = questions, answers["closed_book"], answers[shown], docs
            rows = retrieval_effects.examples(*shown_files, params.seed, language.read_language(params.language))
            add({"examples": rows}, dataset=dataset, lm=main, method=shown)
    found["popularity"] = popularity(data, parts.question_sets)
    found["models"] = models(params.lms, files, data / "models/lm", split)
    found |= of_metrics(stage_metrics.read_metrics(data), found, params, main)
    with shards.atomic(out) as folder:
        folder.mkdir()
        for name, rows in found.items():
            tables.write_analyses(folder, name, rows)
    figures = summary(found)
    shards.write_json(metrics, figures)
    return {
        f"{dataset}.{lm}.{method}.{name}": value
        for dataset, by_lm in figures.items()
        for lm, by_method in by_lm.items()
        for method, by_name in by_method.items()
        for name, value in by_name.items()
    }


def _add_answers(add: Callable, dataset: str, by_lm: dict[str, dict], data: Path, params: SimpleNamespace) -> None:
    """Add the rows of all answers to a question set; `by_lm` are language model -> method -> file."""
    draw, questions = (params.seed, params.report.bootstrap), data / "questions" / dataset / f"{dataset}.parquet"
    answered = {}
    for lm, by_method in by_lm.items():
        answers = accuracy.read_answered(questions, by_method, params.thresholds.imported)
        answered |= {lm: answers} if len(answers.ids) else {}
    add({"comparisons": paired.comparisons(answered, *draw)}, dataset=dataset)
    if len(answered) > 1:
        for lm, answers in zip(answered, paired.in_common(list(answered.values())), strict=True):
            add({f"common_{name}": make(answers, *draw) for name, make in COMPARED.items()}, dataset=dataset, lm=lm)
    for lm, answers in answered.items():
        rows = {name: make(answers, *draw) for name, make in (COMPARED | OF_ANSWERS).items()}
        rows |= {
            "recall": retrieval_effects.recall(answers),
            "costs": savings.costs(answers),
        }
        for study in all_studies.studies_offering("of_answers"):
            rows |= study.of_answers(AnswersOf(answers, data, dataset, lm, params))
        if params.parts.rules:
            rows["savings"] = savings.savings(answers, questions, by_lm[lm], params.thresholds, *draw)
        add(rows, dataset=dataset, lm=lm)


def of_metrics(
    metrics: dict[str, dict], found: dict[str, list[dict]], params: SimpleNamespace, main: str
) -> dict[str, list[dict]]:
    """The tables of other stages' figures, of this run's parts; retrievers are compared by the main language model."""
    parts, rows = params.parts, {}
    for study in all_studies.studies_offering("of_metrics"):
        rows |= study.of_metrics(stage_metrics.StageMetrics(metrics, parts.scored, params.lms))
    bits = stage_metrics.bits_per_byte(metrics.get("language_modelling", {}), parts.scored, params.lms)
    main_corpus, passages = next(iter(parts.scored), ""), next(iter(parts.passages), "")
    recalls, accuracies = (
        {d: [row for row in found[name] if (row["dataset"], row["lm"]) == (d, main)] for d in parts.answered}
        for name in ("recall", "accuracy")
    )
    of_main = [row for row in bits if (row["lm"], row["corpus"]) == (main, main_corpus)]
    real = metrics.get(passages, {})
    return rows | {
        "bits_per_byte": bits,
        "tasks": stage_metrics.tasks(metrics.get("tasks", {}), parts.benchmarks, params.lms),
        "retrievers": stage_metrics.retrievers(of_main, recalls, accuracies, real, params.replug.top_k),
    }


def popularity(data: Path, question_sets: list[str]) -> list[dict]:
    """Histograms of the questions' popularity, in quarters of a power of ten, where it is known (Figure 3)."""
    rows = []
    for dataset in question_sets:
        path, column = tables.popularity_of(data, dataset)
        counts = database.ask(
            f"""SELECT floor(4 * log10(greatest({column}, 1)))::INT AS bin, count(*) FROM questions
                WHERE {column} IS NOT NULL GROUP BY bin ORDER BY bin""",
            questions=path,
        ).fetchall()
        rows += [
            {"dataset": dataset, "least": 10 ** (bin_ / 4), "below": 10 ** ((bin_ + 1) / 4), "questions": n}
            for bin_, n in counts
        ]
    return rows


def models(lms: list[str], files: dict[str, dict], folder: Path, split: str = "all") -> list[dict]:
    """The language models that answered, the main one first; their parameters and families, where these are known.

    `split` is params.thresholds.imported; a run's own models answer the test split.
    """
    answered = {lm: None for lm in lms} | {lm: None for of_lms in files.values() for lm in of_lms}
    return [
        {
            "lm": lm,
            "parameters": count_parameters(folder / lm),
            "family": family(folder / lm),
            "imported": lm not in lms,
            "judged": "test" if lm in lms else split,
        }
        for lm in answered
    ]


def summary(found: dict[str, list[dict]]) -> dict:
    """question set -> language model -> method -> figures."""
    figures: dict = {}
    for row in found["accuracy"]:
        of_method = figures.setdefault(row["dataset"], {}).setdefault(row["lm"], {}).setdefault(row["method"], {})
        of_method |= {rule: row[rule].value for rule in ("substring", "word") if math.isfinite(row[rule].value)}
    for row in found["comparisons"]:
        if row["against"] == "closed_book" and row["against_lm"] == row["lm"]:
            figures[row["dataset"]][row["lm"]][row["method"]]["gain"] = row["gain"].value
    return figures


def main() -> None:
    stage.run(
        "analyse", SECTIONS, lambda params: analyse(Path("data"), OUT, METRICS, params), out=f"{OUT} and {METRICS}"
    )


if __name__ == "__main__":
    main()
