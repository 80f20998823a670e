"""Stage `analyse`: the papers' tables and the data of their figures, from answers and from other stages' figures.

data/analyses/<name>.parquet: a file for each of `tables.TABLES`, empty where a run has nothing for it
data/analyses.json: by question set, language model and method: accuracy by both rules, gain over closed-book answers
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, Protocol

from pipelines.answering import answer_files
from pipelines.evaluation import accuracy, popularity_bins, retrieval_effects, stage_metrics, tables
from pipelines.language import language
from pipelines.lm.model_files import count_parameters, family
from pipelines.questions.guessable import read_guesses
from pipelines.storage import database
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

OUT = Path("data/analyses")
METRICS = Path("data/analyses.json")
SECTIONS = (
    "seed",
    "language",
    "lms",
    "retrievers",
    "replug",
    "thresholds",
    "exposure",
    "report",
    "parts",
)
EXAMPLE = "dense"  # the method whose answers are shown, or the first that is there
OF_ANSWERS = {  # tables of one language model's answers
    "accuracy": accuracy.accuracy,
    "accuracy_by_relation": accuracy.by_relation,
    "accuracy_by_log_popularity": popularity_bins.by_log_popularity,
    "accuracy_by_relation_and_popularity": popularity_bins.by_relation,
    "accuracy_by_popularity": popularity_bins.by_decile,
    "accuracy_by_relative_popularity": popularity_bins.by_relative_popularity,
    "retrieval_effect": retrieval_effects.where_retrieval_helps,
}
MERGED = (
    "accuracy_by_relation_and_popularity",
    "accuracy_by_relative_popularity",
)  # or not: report.merge_bins


class AnswersOf(NamedTuple):
    """What studies have at hand: one language model's answers to one question set."""

    answers: accuracy.Answers
    lm: str
    questions: Path
    exposure: dict[
        str, Path
    ]  # text -> the counts of its documents with each question's subject and answer
    data: Path
    params: SimpleNamespace
    draw: tuple[int, int]  # the seed and the number of resamples


class AnswersStudy(Protocol):
    """A module of pipelines/studies with tables from a language model's answers to a question set."""

    def rows_of_answers(self, of: AnswersOf) -> dict[str, list[dict]]:
        """Table -> its rows, without the columns dataset and lm."""


class FiguresStudy(Protocol):
    """A module of pipelines/studies with tables from figures that other stages left."""

    def rows_of_figures(self, of: stage_metrics.StageMetrics) -> dict[str, list[dict]]:
        """Table -> its rows."""


class Studies(NamedTuple):
    """The studies that have tables here, and the columns of all tables, theirs too."""

    tables: Mapping[str, dict[str, type]] = tables.TABLES
    of_answers: Sequence[AnswersStudy] = ()
    of_figures: Sequence[FiguresStudy] = ()


NO_STUDIES = Studies()


def analyse(
    data: Path, out: Path, metrics: Path, params: SimpleNamespace, studies: Studies = NO_STUDIES
) -> stage.Metrics:
    """Write every table, and the metrics. Raises LongtailError as `accuracy.read_answered` does."""
    parts, of_run = params.parts, (params.lms, params.retrievers, data)
    files = {dataset: answer_files.sets(dataset, *of_run) for dataset in parts.answered}
    main = next(iter([*params.lms, *(lm for by_lm in files.values() for lm in by_lm)]), "")
    found: dict[str, list[dict]] = {name: [] for name in studies.tables}

    def add(rows: dict[str, list[dict]], **key: str) -> None:
        for name, of_table in rows.items():
            own = {column: value for column, value in key.items() if column in studies.tables[name]}
            found[name] += [own | row for row in of_table]

    for dataset, by_lm in files.items():
        for sentence in answer_files.left_out(dataset, *of_run):
            print(sentence)
            add({"left_out": [{"why": sentence}]}, dataset=dataset)
        _add_answers(add, dataset, by_lm, data, params, studies.of_answers)
        answers = by_lm.get(main, {})
        shown = next(
            (
                method
                for method in (EXAMPLE, *answers)
                if method in answers and method != "closed_book"
            ),
            None,
        )
        if shown and "closed_book" in answers:
            questions = data / "questions" / dataset / f"{dataset}.parquet"
            docs = data / "corpus" / (parts.datastore or "") / "docs.parquet"
            both, spoken = (
                (answers["closed_book"], answers[shown]),
                language.read_language(params.language),
            )
            rows = retrieval_effects.examples(questions, *both, docs, params.seed, spoken)
            add({"examples": rows}, dataset=dataset, lm=main, method=shown)
    found["popularity"] = popularity(data, parts.question_sets)
    found["models"] = models(params.lms, files, data / "models/lm")
    found |= of_metrics(stage_metrics.read_metrics(data), found, params, main, studies.of_figures)
    with atomic(out) as folder:
        folder.mkdir()
        for name, rows in found.items():
            tables.write_analyses(folder, name, rows, studies.tables)
    figures, nested = summary(found), {}
    for (dataset, lm, method, name), value in figures.items():
        nested.setdefault(dataset, {}).setdefault(lm, {}).setdefault(method, {})[name] = value
    write_json(metrics, nested)
    return {".".join(key): value for key, value in figures.items()}


def _add_answers(
    add: Callable,
    dataset: str,
    by_lm: dict[str, dict],
    data: Path,
    params: SimpleNamespace,
    studies: Sequence[AnswersStudy],
) -> None:
    """Add the rows of all answers to a question set; `by_lm` are language model -> method -> file."""
    of_answers = OF_ANSWERS | {
        name: partial(OF_ANSWERS[name], merge=params.report.merge_bins) for name in MERGED
    }
    draw, questions = (
        (params.seed, params.report.bootstrap),
        data / "questions" / dataset / f"{dataset}.parquet",
    )
    answered = {}
    for lm, by_method in by_lm.items():
        answers = accuracy.read_answered(questions, by_method)
        answered |= {lm: answers} if len(answers.ids) else {}
    add({"comparisons": accuracy.comparisons(answered, *draw)}, dataset=dataset)
    if len(answered) > 1:
        for lm, answers in zip(answered, accuracy.in_common(list(answered.values())), strict=True):
            common = {
                f"common_{name}": of_answers[name](answers, *draw) for name in tables.COMPARED
            }
            add(common, dataset=dataset, lm=lm)
    for lm, answers in answered.items():
        rows = {name: make(answers, *draw) for name, make in of_answers.items()}
        guesses = read_guesses(questions, answers.ids, language.read_language(params.language))
        rows["accuracy_by_group"] = accuracy.by_group(answers, guesses, *draw)
        rows["guessable"] = accuracy.guessable(answers, guesses)
        rows |= {
            "recall": retrieval_effects.recall(answers),
            "costs": retrieval_effects.costs(answers),
        }
        exposure = {
            text: data / f"exposure/{text}/{dataset}.parquet" for text in params.parts.exposure
        }
        for study in studies:
            rows |= study.rows_of_answers(
                AnswersOf(answers, lm, questions, exposure, data, params, draw)
            )
        if params.parts.rules:
            rows["savings"] = retrieval_effects.savings(
                answers, questions, by_lm[lm], params.thresholds, *draw
            )
        add(rows, dataset=dataset, lm=lm)


def of_metrics(
    metrics: dict[str, dict],
    found: dict[str, list[dict]],
    params: SimpleNamespace,
    main: str,
    studies: Sequence[FiguresStudy],
) -> dict[str, list[dict]]:
    """The tables of other stages' figures, of this run's parts; retrievers are compared by the main language model."""
    parts, rows = params.parts, {}
    for study in studies:
        rows |= study.rows_of_figures(stage_metrics.StageMetrics(metrics, parts.scored, params.lms))
    bits = stage_metrics.bits_per_byte(
        metrics.get("language_modelling", {}), parts.scored, params.lms
    )
    of_main = [
        [row for row in of if row["lm"] == main]
        for of in (bits, found["recall"], found["accuracy"])
    ]
    of_main[0] = [row for row in of_main[0] if row["corpus"] == parts.scored[0]]
    real = metrics.get(next(iter(parts.passages), ""), {})
    return rows | {
        "bits_per_byte": bits,
        "tasks": stage_metrics.tasks(metrics.get("tasks", {}), parts.benchmarks, params.lms),
        "retrievers": stage_metrics.retrievers(*of_main, real, params.replug.top_k),
    }


def popularity(data: Path, question_sets: list[str]) -> list[dict]:
    """Histograms of the questions' popularity, in quarters of a power of ten, where it is known (Figure 3)."""
    rows = []
    for dataset in question_sets:
        path, column = tables.popularity_of(data, dataset)
        query = f"""SELECT 10 ** (bin / 4) AS least, 10 ** ((bin + 1) / 4) AS below, count(*) AS questions
            FROM (SELECT floor(4 * log10(greatest({column}, 1))) AS bin FROM questions WHERE {column} IS NOT NULL)
            GROUP BY bin ORDER BY bin"""
        rows += [
            {"dataset": dataset} | row
            for row in database.ask(query, questions=path).to_arrow_table().to_pylist()
        ]
    return rows


def models(lms: list[str], files: dict[str, dict], folder: Path) -> list[dict]:
    """The language models that answered, the main one first; their parameters and families, where these are known.

    A run's own models answer the test split, imported ones whatever they were asked.
    """
    answered = dict.fromkeys([*lms, *(lm for of_lms in files.values() for lm in of_lms)])
    return [
        {"lm": lm, "parameters": count_parameters(folder / lm), "family": family(folder / lm)}
        | {"imported": lm not in lms, "judged": "test" if lm in lms else "all"}
        for lm in answered
    ]


def summary(found: dict[str, list[dict]]) -> dict[tuple[str, str, str, str], float]:
    """(question set, language model, method, figure) -> its value."""
    figures = {}
    for row in found["accuracy"]:
        figures |= {
            (row["dataset"], row["lm"], row["method"], rule): row[rule].value
            for rule in ("substring", "word")
        }
    for row in found["comparisons"]:
        if row["against"] == "closed_book" and row["against_lm"] == row["lm"]:
            figures[row["dataset"], row["lm"], row["method"], "gain"] = row["gain"].value
    return {key: value for key, value in figures.items() if math.isfinite(value)}


def main(studies: Studies) -> None:
    """Run the stage."""
    made = f"{OUT} and {METRICS}"
    stage.run(
        "analyse",
        SECTIONS,
        lambda params: analyse(Path("data"), OUT, METRICS, params, studies),
        out=made,
    )
