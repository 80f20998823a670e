"""Stage `analyse`: the papers' tables and the data of their plots, from answers and from other
stages' metrics.

It writes data/analyses/<name>.parquet: a file for each table, empty where a run has nothing for it.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from pipelines import catalogue
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
from pipelines.evaluation.chance import vocabulary_size
from pipelines.evaluation.stage_metrics import StageMetrics
from pipelines.language import language
from pipelines.lm.model_files import count_parameters, family
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.params.params import Parts, Replug, Report, Thresholds
from pipelines.questions.guessable import read_guesses
from pipelines.storage import database
from pipelines.storage.atomic import atomic
from pipelines.tables.analyses import BY_NAME, COMPARED
from pipelines.work import stage

DATA = Path("data")
EXAMPLE = "dense"  # the method whose answers are shown, or else the first one
POPULARITY = """SELECT 10 ** (bin / 4) AS least, 10 ** ((bin + 1) / 4) AS below,
        count(*) AS questions
    FROM (SELECT floor(4 * log10(greatest(s_pop, 1))) AS bin FROM questions
        WHERE s_pop IS NOT NULL)
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
    report: Report
    parts: Parts


def analyse(data: Path, settings: Settings) -> stage.Metrics:
    """Write every table to <data>/analyses; return the accuracies.

    Raises LongtailError as `read_answered` does.
    """
    files = {}  # question set -> language model -> method -> file
    lms = dict.fromkeys(settings.lms)
    for dataset in settings.parts.answered:
        files[dataset] = answer_files.sets(dataset, settings.lms, settings.retrievers, data)
        lms |= dict.fromkeys(files[dataset])
    main = next(iter(lms), "")

    analyses: Tables = {name: [] for name in BY_NAME}
    spoken = language.read_language(settings.language)
    for dataset, by_lm in files.items():
        questions = data / f"questions/{dataset}/{dataset}.parquet"
        sentences = answer_files.left_out(dataset, settings.lms, settings.retrievers, data)
        sentences += map(answer_files.without_answers, by_lm.values())
        for by_method in by_lm.values():
            sentences += answer_files.odd_sentences(questions, by_method, spoken)
        for sentence in filter(None, sentences):
            print(sentence)
            analyses["left_out"].append({"dataset": dataset, "why": sentence})
        _analyse_answers(analyses, questions, by_lm, spoken, settings)
        shown = _examples(dataset, by_lm.get(main, {}), data, settings)
        _add(analyses, {"examples": shown}, {"dataset": dataset, "lm": main})

    analyses["popularity"] = popularity(data, settings.parts.question_sets)
    analyses["models"] = models(list(lms), settings.lms, data / "models/lm")
    all_metrics = stage_metrics.read_metrics(data)
    metrics = StageMetrics(all_metrics, settings.parts.scored, settings.lms)
    analyses |= _tables_of_metrics(metrics, analyses, main, settings)

    with atomic(data / "analyses") as folder:
        folder.mkdir()
        for name, rows in analyses.items():
            tables.write_analyses(folder, name, rows)

    return _accuracies(analyses["accuracy"])


def _add(analyses: Tables, rows_by_table: Tables, key: Mapping[str, str]) -> None:
    """Add rows to the tables, with the columns of `key`, which are the same for all of them."""
    for name, rows in rows_by_table.items():
        analyses[name] += [{**key, **row} for row in rows]


def _analyse_answers(
    analyses: Tables,
    questions: Path,
    files: Mapping[str, dict[str, Path]],
    spoken: language.Language,
    settings: Settings,
) -> None:
    """Add the rows of all answers to a question set.

    `files` is language model -> method -> file.
    """
    dataset = questions.stem
    answered: dict[str, Answers] = {}
    for lm, by_method in files.items():
        answers = read_answered(
            questions, by_method, settings.seed, settings.report.bootstrap, spoken
        )
        if len(answers.ids):
            answered[lm] = answers

    _add(analyses, {"comparisons": paired.comparisons(answered)}, {"dataset": dataset})
    if len(answered) > 1:
        in_common = paired.in_common(list(answered.values()))
        for lm, answers in zip(answered, in_common, strict=True):
            rows = _accuracy_tables(answers)
            common_rows = {f"common_{name}": rows[name] for name in COMPARED}
            _add(analyses, common_rows, {"dataset": dataset, "lm": lm})

    for lm, answers in answered.items():
        rows = _tables_of_lm(answers, questions, files[lm], spoken, settings)
        _add(analyses, rows, {"dataset": dataset, "lm": lm})


def _tables_of_lm(
    answers: Answers,
    questions: Path,
    files: Mapping[str, Path],
    spoken: language.Language,
    settings: Settings,
) -> Tables:
    """The rows of one language model's answers to a question set; `files` are method -> file."""
    rows = _accuracy_tables(answers)
    guesses = None
    if catalogue.DATASETS[questions.stem].protocol.answer != "letter":
        guesses = read_guesses(questions, answers.ids, spoken)
        rows["guessable"] = accuracy.guessable(answers, guesses)
    categories = accuracy.read_categories(questions, answers.ids)
    rows["accuracy_by_group"] = accuracy.by_group(answers, guesses, categories)
    rows["accuracy_by_popularity"] = popularity_bins.by_decile(answers)
    rows["accuracy_by_relative_popularity"] = popularity_bins.by_relative_popularity(answers)
    rows["retrieval_effect"] = retrieval_effects.where_retrieval_helps(answers)
    rows["recall"] = retrieval_effects.recall(answers)
    rows["costs"] = savings.costs(answers)
    if settings.parts.rules:
        rows["savings"] = savings.savings(answers, questions, files, settings.thresholds)

    return rows


def _accuracy_tables(answers: Answers) -> Tables:
    """Accuracy of one language model's answers, over all and by what questions are about."""
    return {
        "accuracy": accuracy.accuracy(answers),
        "accuracy_by_relation": accuracy.by_relation(answers),
        "accuracy_by_log_popularity": popularity_bins.by_log_popularity(answers),
        "accuracy_by_relation_and_popularity": popularity_bins.by_relation(answers),
    }


def _examples(
    dataset: str, files: Mapping[str, Path], data: Path, settings: Settings
) -> list[dict]:
    """Examples of EXAMPLE's answers, or of the first other method's, beside closed-book answers.

    `files` are method -> file of the language model's answers.
    """
    retrieving = [method for method in files if method != "closed_book"]
    if not retrieving or "closed_book" not in files:
        return []

    method = EXAMPLE if EXAMPLE in retrieving else retrieving[0]
    datastore = settings.parts.datastore or ""
    rows = examples.draw_examples(
        questions=data / f"questions/{dataset}/{dataset}.parquet",
        closed_book=files["closed_book"],
        augmented=files[method],
        docs=data / f"corpus/{datastore}/docs.parquet",
        seed=settings.seed,
    )
    return [{"method": method} | row for row in rows]


def _tables_of_metrics(
    metrics: StageMetrics, analyses: Tables, main: str, settings: Settings
) -> Tables:
    """The tables that are made from other stages' metrics.

    Retrievers are compared by the `main` language model, whose rows are in `analyses`.
    """
    bits = metrics.bits_per_byte()
    main_corpus = settings.parts.scored[:1]
    bits_of_main = [row for row in bits if row["lm"] == main and row["corpus"] in main_corpus]
    recalls = [row for row in analyses["recall"] if row["answers"] == "all"]
    recalls_of_main = [row for row in recalls if row["lm"] == main]
    accuracies_of_main = [row for row in analyses["accuracy"] if row["lm"] == main]
    passage_set = next(iter(settings.parts.passages), "")
    retrievers = stage_metrics.retrievers(
        bits=bits_of_main,
        recalls=recalls_of_main,
        accuracies=accuracies_of_main,
        passage_metrics=metrics.metrics.get(passage_set, {}),
        top_k=settings.replug.top_k,
    )
    return {
        "bits_per_byte": bits,
        "lm_controls": metrics.controls(),
        "rare_words": metrics.rare_words(),
        "retrievers": retrievers,
    }


def popularity(data: Path, question_sets: list[str]) -> list[dict]:
    """Histograms of the questions' popularity, in quarters of a power of ten, where it is known
    (Figure 3)."""
    rows = []
    for dataset in question_sets:
        path = data / f"questions/{dataset}/{dataset}.parquet"
        result = database.ask(POPULARITY, questions=path)
        for row in result.to_arrow_table().to_pylist():
            rows.append({"dataset": dataset} | row)
    return rows


def models(lms: list[str], own: list[str], folder: Path) -> list[dict]:
    """The language models that answered, the main one first; their parameters, vocabularies and
    families, where these are known.

    A run's `own` models answer the test split, imported ones whatever they were asked.
    """
    rows = []
    for lm in lms:
        imported = lm not in own
        row = {
            "lm": lm,
            "parameters": count_parameters(folder / lm),
            "vocabulary": vocabulary_size(folder / lm),
            "family": family(folder / lm),
            "imported": imported,
            "judged": "all" if imported else "test",
        }
        rows.append(row)

    return rows


def _accuracies(rows: list[dict]) -> dict[str, float]:
    """The accuracies of the table `accuracy`, as MLflow shows them."""
    figures = {}
    for row in rows:
        answered = f"{row['dataset']}.{row['lm']}.{row['method']}"
        for rule in ("substring", "word"):
            if math.isfinite(row[rule].value):
                figures[f"{answered}.{rule}"] = row[rule].value
    return figures


def main() -> None:
    stage.run(
        "analyse", Settings, lambda settings: analyse(DATA, settings), out=str(DATA / "analyses")
    )


if __name__ == "__main__":
    main()
