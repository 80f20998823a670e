"""Systems that answered the same questions, whoever made them: accuracy, paired differences, disagreements."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipelines import draws
from pipelines.evaluation import accuracy, paired, popularity_bins
from pipelines.evaluation.answer_sets import Answers, MethodAnswers
from pipelines.foreign.judge_files import Answered, in_all
from pipelines.foreign.question_tables import Questions

EXAMPLES = 10  # disagreements of each kind that are shown, drawn by hash
PAIRS = 6  # pairs of systems whose disagreements are shown, those of the best system first


@dataclass(frozen=True)
class Compared:
    """Systems on the questions that all of them answered; the rows are those of `accuracy` and the bins."""

    questions: int
    month: str | None
    counts: dict[str, int]  # system, the best first -> questions that it answers
    accuracy: list[dict]
    by_relation: list[dict]
    by_popularity: list[dict]  # deciles
    pairs: list[dict]  # each system less each that is better
    examples: list[dict]


def compare_systems(
    questions: Questions, answered: Sequence[Answered], seed: int, resamples: int
) -> Compared:
    """The systems held against each other. Raises LongtailError where no question is answered by all."""
    rows = in_all(answered)
    best_first = sorted(
        answered, key=lambda system: (-int(system.correct[rows].sum()), system.name)
    )
    answers = _answers(questions, best_first, rows)
    return Compared(
        questions=int(rows.sum()),
        month=questions.month,
        counts={system.name: int(system.has.sum()) for system in best_first},
        accuracy=accuracy.accuracy(answers, seed, resamples),
        by_relation=accuracy.by_relation(answers, seed, resamples),
        by_popularity=by_popularity(questions, best_first),
        pairs=paired.comparisons({"": answers}, seed, resamples),
        examples=_examples(questions, best_first, rows, seed),
    )


def by_popularity(questions: Questions, answered: Sequence[Answered]) -> list[dict]:
    """Accuracy by deciles of popularity on the questions that all systems answered; none for few questions."""
    answers = _answers(questions, answered, in_all(answered))
    enough = np.isfinite(answers.popularity).sum() >= 3 * popularity_bins.FEWEST
    return popularity_bins.by_decile(answers, 0, 1) if enough else []


def _answers(questions: Questions, answered: Sequence[Answered], rows: np.ndarray) -> Answers:
    """The common questions in the form in which the analyses have them, ordered by id."""
    order = np.flatnonzero(rows)[np.argsort(np.array(questions.ids)[rows], kind="stable")]
    nothing = np.full(len(order), np.nan)
    methods = {
        system.name: MethodAnswers(system.correct[order].astype(float), *[nothing] * 8)
        for system in answered
    }
    columns = (
        np.array(questions.ids, dtype=object)[order],
        questions.groups[order],
        questions.subjects[order],
    )
    return Answers(*columns, questions.signal[order], np.zeros(len(order), bool), by_method=methods)


def _examples(
    questions: Questions, answered: Sequence[Answered], rows: np.ndarray, seed: int
) -> list[dict]:
    """Questions on which only one of two systems is right, drawn by hash."""
    examples = []
    for first, second in list(combinations(answered, 2))[:PAIRS]:
        for right, wrong in ((first, second), (second, first)):
            places = np.flatnonzero(rows & (right.correct == 1) & (wrong.correct == 0))
            ids = [questions.ids[place] for place in places]
            for i in places[
                draws.sample(seed, f"{right.name} not {wrong.name}", ids, EXAMPLES)
            ].tolist():
                said, instead = (
                    system.texts[i] if system.texts else "" for system in (right, wrong)
                )
                asked, answer = (
                    questions.asked.questions[i],
                    next(iter(questions.asked.answers[i]), ""),
                )
                row = {
                    "right": right.name,
                    "wrong": wrong.name,
                    "question": asked,
                    "answer": answer,
                    "said": said,
                }
                row |= {"instead": instead, "popularity": float(questions.signal[i])}
                examples.append(row | {"relation": str(questions.groups[i])})
    return examples
