"""Systems that answered the same questions: accuracy, paired differences, disagreements."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations, islice

import numpy as np

from pipelines import draws
from pipelines.evaluation import accuracy, answer_metrics, paired, popularity_bins
from pipelines.evaluation.answer_sets import Answers, MethodAnswers
from pipelines.foreign.judge_files import RESAMPLES, SEED, Answered, in_all
from pipelines.foreign.question_tables import Questions
from pipelines.questions import matching

EXAMPLES = 10  # disagreements of each kind that are shown, drawn by hash
PAIRS = 6  # pairs of systems whose disagreements are shown, those of the best system first


@dataclass(frozen=True)
class Compared:
    """Systems on the questions that all of them answered; rows are those of `evaluation`."""

    questions: int
    month: str | None
    counts: dict[str, int]  # system, the best first -> questions that it answers
    answers: Answers  # to the common questions
    accuracy: list[dict]
    by_relation: list[dict]
    by_popularity: list[dict]  # deciles
    pairs: list[dict]  # each system less each that is better
    examples: list[dict]


def compare_systems(questions: Questions, answered: Sequence[Answered]) -> Compared:
    """The systems held against each other, the best first.

    Raises LongtailError where no question is answered by all.
    """
    in_common = in_all(answered)

    def rank(system: Answered) -> tuple[int, str]:
        return -int(system.correct[in_common].sum()), system.name

    best_first = sorted(answered, key=rank)
    answers = join_answers(questions, best_first)
    counts = {system.name: int(system.has.sum()) for system in best_first}
    return Compared(
        questions=int(in_common.sum()),
        month=questions.month,
        counts=counts,
        answers=answers,
        accuracy=accuracy.accuracy(answers),
        by_relation=accuracy.by_relation(answers),
        by_popularity=by_popularity(answers),
        pairs=paired.comparisons({"": answers}),
        examples=_examples(questions, best_first, in_common),
    )


def by_popularity(answers: Answers) -> list[dict]:
    """Accuracy by deciles of popularity on the common questions; none for few questions."""
    n_known = np.isfinite(answers.popularity).sum()
    if n_known < 3 * popularity_bins.FEWEST:
        return []
    return popularity_bins.by_decile(answers)


def join_answers(questions: Questions, answered: Sequence[Answered]) -> Answers:
    """The common questions in the form in which the analyses have them, ordered by id.

    Raises LongtailError where no question is answered by all.
    """
    ids = np.array(questions.ids)
    places = np.flatnonzero(in_all(answered))
    order = places[np.argsort(ids[places], kind="stable")]
    unknown = np.full(len(order), np.nan)
    columns = {field.name: unknown for field in fields(MethodAnswers)}
    by_method = {}
    for system in answered:
        known = {"correct": system.correct[order].astype(float)}
        if system.texts is not None and "answers" in questions.columns:
            known |= _metrics(questions, system, order)
        by_method[system.name] = MethodAnswers(**columns | known)

    is_ambiguous = np.zeros(len(order), bool)
    return Answers(
        ids=ids[order].astype(object),
        relations=questions.groups[order],
        subjects=questions.subjects[order],
        popularity=questions.signal[order],
        ambiguous=is_ambiguous,
        by_method=by_method,
        seed=SEED,
        resamples=RESAMPLES,
    )


def _metrics(questions: Questions, system: Answered, places: np.ndarray) -> dict[str, np.ndarray]:
    """How right a system's texts are by whole words, and ANSWER_METRICS, at places of the set."""
    texts = [system.text(place) for place in places]
    golds = [questions.asked.answers[place] for place in places]
    is_right = map(matching.word, texts, golds)
    metrics = answer_metrics.measure(texts, golds, system.correct[places])
    return metrics | {"correct_word": np.fromiter(is_right, float)}


def _examples(
    questions: Questions, answered: Sequence[Answered], in_common: np.ndarray
) -> list[dict]:
    """Questions on which only one of two systems is right, drawn by hash."""
    examples = []
    for first, second in islice(combinations(answered, 2), PAIRS):
        for right, wrong in ((first, second), (second, first)):
            only_one_right = (right.correct == 1) & (wrong.correct == 0)
            places = np.flatnonzero(in_common & only_one_right)
            ids = [questions.ids[place] for place in places]
            drawn = draws.sample(SEED, f"{right.name} not {wrong.name}", ids, EXAMPLES)
            for place in places[drawn].tolist():
                examples.append(_example(questions, place, right, wrong))
    return examples


def _example(questions: Questions, place: int, right: Answered, wrong: Answered) -> dict:
    """A question, and what two systems say to it, of which the first is right."""
    golds = questions.asked.answers[place]
    answer = golds[0] if golds else ""
    popularity = float(questions.signal[place])
    relation = str(questions.groups[place])
    return {
        "right": right.name,
        "wrong": wrong.name,
        "question": questions.asked.questions[place],
        "answer": answer,
        "said": right.text(place),
        "instead": wrong.text(place),
        "popularity": popularity,
        "relation": relation,
    }
