"""Stage `analyse`: the papers' tables and the data of their figures, from answers and from other
stages' figures.

data/analyses/<name>.parquet: a file for each table, empty where a run has nothing for it
data/analyses.json: by question set, language model and method: accuracy by both rules, gain over
closed-book answers
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.answering import answer_files
from pipelines.evaluation import (
    accuracy,
    examples,
    paired,
    popularity_bins,
    retrieval_effects,
    savings,
    stage_metrics,
    tables,
)
from pipelines.evaluation.answer_sets import Answers, read_answered
from pipelines.evaluation.stage_metrics import StageMetrics
from pipelines.language import language
from pipelines.lm.model_files import count_parameters, family
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.params.params import Exposure, Parts, Replug, Report, Thresholds
from pipelines.questions.guessable import read_guesses
from pipelines.storage import database
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

OUT = Path("data/analyses")
METRICS = Path("data/analyses.json")
EXAMPLE = "dense"  # the method whose answers are shown, or else the first one
POPULARITY = """SELECT 10 ** (bin / 4) AS least, 10 ** ((bin + 1) / 4) AS below,
        count(*) AS questions
    FROM (SELECT floor(4 * log10(greatest({column}, 1))) AS bin FROM questions
        WHERE {column} IS NOT NULL)
    GROUP BY bin ORDER BY bin"""
Tables = dict[str, list[dict]]  # table -> its rows


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    language: str
    lms: list[LMName]
    retrievers: list[RetrieverName]
    replug: Replug
    thresholds: Thresholds
    exposure: Exposure
    report: Report
    parts: Parts


@dataclass(frozen=True)
class AnswersOfLM:
    """One language model's answers to one question set, and what studies may join to them."""

    answers: Answers
    lm: str
    questions: Path
    exposure: dict[str, Path]  # text -> counts of its documents with subjects and answers
    data: Path
    settings: Settings


class AnswersStudy(Protocol):
    """A module of pipelines/studies with tables from a language model's answers to a question
    set."""

    def rows_of_answers(self, answered: AnswersOfLM) -> Tables:
        """Table -> its rows, without the columns dataset and lm."""


class FiguresStudy(Protocol):
    """A module of pipelines/studies with tables from figures that other stages left."""

    def rows_of_figures(self, metrics: StageMetrics) -> Tables:
        """Table -> its rows."""


@dataclass(frozen=True)
class Studies:
    """The studies that have tables here, and the columns of all tables, theirs too."""

    tables: Mapping[str, dict[str, type]]
    of_answers: Sequence[AnswersStudy] = ()
    of_figures: Sequence[FiguresStudy] = ()


NO_STUDIES = Studies(tables.TABLES)


def analyse(
    data: Path, out: Path, metrics: Path, settings: Settings, studies: Studies = NO_STUDIES
) -> stage.Metrics:
    """Write every table, and the metrics. Raises LongtailError as `read_answered` does."""
    files = {}
    for dataset in settings.parts.answered:
        files[dataset] = answer_files.sets(dataset, settings.lms, settings.retrievers, data)
    answering_lms = [*settings.lms, *_lms_of(files)]
    main = answering_lms[0] if answering_lms else ""

    analyses: Tables = {name: [] for name in studies.tables}
    for dataset, by_lm in files.items():
        for sentence in answer_files.left_out(dataset, settings.lms, settings.retrievers, data):
            print(sentence)
            analyses["left_out"].append({"dataset": dataset, "why": sentence})
        for name, rows in _tables_of_answers(dataset, by_lm, data, settings, studies).items():
            analyses[name] += [{"dataset": dataset} | row for row in rows]
        for row in _examples(dataset, by_lm.get(main, {}), data, settings):
            analyses["examples"].append({"dataset": dataset, "lm": main} | row)

    analyses["popularity"] = popularity(data, settings.parts.question_sets)
    analyses["models"] = models(settings.lms, files, data / "models/lm")
    analyses |= tables_of_figures(data, analyses, main, settings, studies.of_figures)

    with atomic(out) as folder:
        folder.mkdir()
        for name, rows in analyses.items():
            tables.write_analyses(folder, name, rows, studies.tables)

    figures = summary(analyses)
    nested: dict = {}
    for (dataset, lm, method, name), value in figures.items():
        by_method = nested.setdefault(dataset, {}).setdefault(lm, {})
        by_method.setdefault(method, {})[name] = value

    write_json(metrics, nested)
    return {".".join(key): value for key, value in figures.items()}


def _lms_of(files: Mapping[str, dict]) -> list[str]:
    """The language models that answered any question set, each once, in the files' order."""
    names: dict[str, None] = {}
    for by_lm in files.values():
        names |= dict.fromkeys(by_lm)
    return list(names)


def _tables_of_answers(
    dataset: str,
    by_lm: Mapping[str, dict[str, Path]],
    data: Path,
    settings: Settings,
    studies: Studies,
) -> Tables:
    """The rows of all answers to a question set, without the column dataset.

    `by_lm` is language model -> method -> file.
    """
    questions = data / f"questions/{dataset}/{dataset}.parquet"
    exposure = {}
    for text in settings.parts.exposure:
        exposure[text] = data / f"exposure/{text}/{dataset}.parquet"
    answered: dict[str, Answers] = {}
    for lm, by_method in by_lm.items():
        answers = read_answered(questions, by_method)
        if len(answers.ids):
            answered[lm] = answers

    rows: Tables = defaultdict(list)
    resamples = settings.report.bootstrap
    rows["comparisons"] = paired.comparisons(answered, settings.seed, resamples)
    if len(answered) > 1:
        in_common = paired.in_common(list(answered.values()))
        for lm, answers in zip(answered, in_common, strict=True):
            tables_of_lm = _accuracy_tables(answers, settings)
            for name in tables.COMPARED:
                rows[f"common_{name}"] += [{"lm": lm} | row for row in tables_of_lm[name]]

    for lm, answers in answered.items():
        answered_by_lm = AnswersOfLM(
            answers=answers,
            lm=lm,
            questions=questions,
            exposure=exposure,
            data=data,
            settings=settings,
        )
        for name, rows_of_lm in _tables_of_lm(answered_by_lm, by_lm[lm], studies).items():
            rows[name] += [{"lm": lm} | row for row in rows_of_lm]

    return rows


def _tables_of_lm(answered: AnswersOfLM, files: Mapping[str, Path], studies: Studies) -> Tables:
    """The rows of one language model's answers to a question set; `files` are method -> file."""
    answers = answered.answers
    settings = answered.settings
    seed = settings.seed
    resamples = settings.report.bootstrap
    spoken = language.read_language(settings.language)
    guesses = read_guesses(answered.questions, answers.ids, spoken)

    rows = _accuracy_tables(answers, settings)
    rows |= _effect_tables(answers, settings)
    rows["accuracy_by_group"] = accuracy.by_group(answers, guesses, seed, resamples)
    rows["guessable"] = accuracy.guessable(answers, guesses)
    for study in studies.of_answers:
        rows |= study.rows_of_answers(answered)
    if settings.parts.rules:
        rows["savings"] = savings.savings(
            answers, answered.questions, files, settings.thresholds, seed, resamples
        )

    return rows


def _accuracy_tables(answers: Answers, settings: Settings) -> Tables:
    """Accuracy of one language model's answers, over all and by what questions are about."""
    seed = settings.seed
    resamples = settings.report.bootstrap
    merge = settings.report.merge_bins
    return {
        "accuracy": accuracy.accuracy(answers, seed, resamples),
        "accuracy_by_relation": accuracy.by_relation(answers, seed, resamples),
        "accuracy_by_log_popularity": popularity_bins.by_log_popularity(answers, seed, resamples),
        "accuracy_by_relation_and_popularity": popularity_bins.by_relation(
            answers, seed, resamples, merge
        ),
    }


def _effect_tables(answers: Answers, settings: Settings) -> Tables:
    """What retrieving changes and costs, for one language model's answers."""
    seed = settings.seed
    resamples = settings.report.bootstrap
    merge = settings.report.merge_bins
    return {
        "accuracy_by_popularity": popularity_bins.by_decile(answers, seed, resamples),
        "accuracy_by_relative_popularity": popularity_bins.by_relative_popularity(
            answers, seed, resamples, merge
        ),
        "retrieval_effect": retrieval_effects.where_retrieval_helps(answers, seed, resamples),
        "recall": retrieval_effects.recall(answers),
        "costs": savings.costs(answers),
    }


def _examples(
    dataset: str, by_method: Mapping[str, Path], data: Path, settings: Settings
) -> list[dict]:
    """Examples of EXAMPLE's answers, or of the first other method's, beside closed-book answers."""
    retrieving = [method for method in (EXAMPLE, *by_method) if method != "closed_book"]
    with_answers = [method for method in retrieving if method in by_method]
    if not with_answers or "closed_book" not in by_method:
        return []

    method = with_answers[0]
    datastore = settings.parts.datastore or ""
    rows = examples.draw_examples(
        questions=data / f"questions/{dataset}/{dataset}.parquet",
        closed_book=by_method["closed_book"],
        augmented=by_method[method],
        docs=data / f"corpus/{datastore}/docs.parquet",
        seed=settings.seed,
        language=language.read_language(settings.language),
    )
    return [{"method": method} | row for row in rows]


def tables_of_figures(
    data: Path,
    analyses: Tables,
    main: str,
    settings: Settings,
    studies: Sequence[FiguresStudy],
) -> Tables:
    """The tables of other stages' figures, of this run's parts.

    Retrievers are compared by the main language model.
    """
    metrics = stage_metrics.read_metrics(data)
    scored = settings.parts.scored
    rows: Tables = {}
    for study in studies:
        rows |= study.rows_of_figures(StageMetrics(metrics, scored, settings.lms))
    bits = stage_metrics.bits_per_byte(metrics.get("language_modelling", {}), scored, settings.lms)
    benchmarks = metrics.get("tasks", {})
    rows["bits_per_byte"] = bits
    rows["tasks"] = stage_metrics.tasks(benchmarks, settings.parts.benchmarks, settings.lms)

    bits_of_main = [row for row in bits if (row["lm"], row["corpus"]) == (main, scored[0])]
    recalls_of_main = [row for row in analyses["recall"] if row["lm"] == main]
    accuracies_of_main = [row for row in analyses["accuracy"] if row["lm"] == main]
    passage_set = next(iter(settings.parts.passages), "")
    rows["retrievers"] = stage_metrics.retrievers(
        bits=bits_of_main,
        recalls=recalls_of_main,
        accuracies=accuracies_of_main,
        passage_metrics=metrics.get(passage_set, {}),
        top_k=settings.replug.top_k,
    )
    return rows


def popularity(data: Path, question_sets: list[str]) -> list[dict]:
    """Histograms of the questions' popularity, in quarters of a power of ten, where it is known
    (Figure 3)."""
    rows = []
    for dataset in question_sets:
        path, column = tables.popularity_of(data, dataset)
        result = database.ask(POPULARITY.format(column=column), questions=path)
        for row in result.to_arrow_table().to_pylist():
            rows.append({"dataset": dataset} | row)
    return rows


def models(lms: list[str], files: Mapping[str, dict], folder: Path) -> list[dict]:
    """The language models that answered, the main one first; their parameters and families, where
    these are known.

    A run's own models answer the test split, imported ones whatever they were asked.
    """
    rows = []
    for lm in dict.fromkeys([*lms, *_lms_of(files)]):
        imported = lm not in lms
        row = {
            "lm": lm,
            "parameters": count_parameters(folder / lm),
            "family": family(folder / lm),
            "imported": imported,
            "judged": "all" if imported else "test",
        }
        rows.append(row)

    return rows


def summary(analyses: Tables) -> dict[tuple[str, str, str, str], float]:
    """(question set, language model, method, figure) -> its value."""
    figures = {}
    for row in analyses["accuracy"]:
        key = (row["dataset"], row["lm"], row["method"])
        for rule in ("substring", "word"):
            figures[*key, rule] = row[rule].value
    for row in analyses["comparisons"]:
        if row["against"] == "closed_book" and row["against_lm"] == row["lm"]:
            figures[row["dataset"], row["lm"], row["method"], "gain"] = row["gain"].value
    return {key: value for key, value in figures.items() if math.isfinite(value)}


def main(studies: Studies) -> None:
    """Run the stage, whose studies pipelines/with_studies lists."""
    stage.run(
        "analyse",
        Settings,
        lambda settings: analyse(Path("data"), OUT, METRICS, settings, studies),
        out=f"{OUT} and {METRICS}",
    )
