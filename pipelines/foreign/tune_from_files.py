"""Thresholds from files of predictions and a question set from anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.adaptive import rule, tuning
from pipelines.adaptive.rule import Rule
from pipelines.errors import LongtailError
from pipelines.evaluation.tables import with_intervals
from pipelines.foreign.deciders import judge_deciders
from pipelines.foreign.judge_files import RESAMPLES, SEED, Answered, in_all
from pipelines.foreign.question_tables import Questions
from pipelines.intervals import Interval, interval
from pipelines.pages.thresholds import POLICIES


@dataclass(frozen=True)
class Result:
    """What a threshold between two files is worth."""

    file: Rule
    figures: dict  # the figures that metrics/adaptive.json has
    relations: list[dict]  # rows of thresholds.parquet, with Intervals
    deciders: Sequence[dict] = ()  # what files that decide when to retrieve are worth, beside this

    @property
    def held_out(self) -> dict[str, Interval]:
        """The figures of the policies on held-out questions."""
        names = (*POLICIES, "gain", "retrieved")
        return {name: interval(self.figures[name]) for name in names}


def tune_from_files(
    questions: Questions,
    without: Answered,
    others: Sequence[Answered],
    search: str,
    budget: float,
) -> list[Result]:
    """Thresholds between `without`, for popular subjects, and each of `others`, the best first.

    They are fitted on the questions that all files answer, and ordered by held-out accuracy. Files
    that decide when to retrieve are judged beside the thresholds of the first of `others`. Raises
    LongtailError where the questions are too few, and for two files that are right on the same
    ones.
    """
    in_common = in_all([without, *others])
    augmented = [others[0]]
    deciders = []
    for file in others[1:]:
        if file.calls is not None or not file.says:
            deciders.append(file)
        else:
            augmented.append(file)
    _check_differences(without, augmented, in_common)
    rows = in_common & np.isfinite(questions.signal)
    settings = tuning.DEFAULTS.model_copy(update={"search": search, "budget": budget})
    _check_questions(questions, rows, settings.min_questions)

    ids = np.array(questions.ids, dtype=object)[rows]
    right_without = without.correct[rows] == 1
    results = []
    for file in augmented:
        right_with = file.correct[rows] == 1
        tuned = tuning.tune_arrays(
            questions.signal[rows],
            questions.groups[rows],
            questions.subjects[rows],
            right_without,
            right_with,
            settings=settings,
            seed=SEED,
            resamples=RESAMPLES,
            searches=(search,),
            ids=ids,
        )
        decided: Sequence[dict] = ()
        if deciders and file is augmented[0]:
            place_of = {id_: place for place, id_ in enumerate(questions.ids)}
            places = np.array([place_of[id_] for id_ in tuned.pairs.ids])
            decided = judge_deciders(tuned, search, places, without, deciders)

        learned = rule.of_tuned(
            tuned,
            without.name,
            file.name,
            search,
            questions.month,
            signal=questions.signal_name,
            names={group: questions.names[group] for group in tuned.rule.thresholds},
        )
        relations = with_intervals(tuned.relations)
        results.append(Result(learned, tuned.figures[search], relations, decided))

    return sorted(results, key=lambda result: -result.figures["adaptive"]["value"])


def _check_differences(
    without: Answered, augmented: Sequence[Answered], in_common: np.ndarray
) -> None:
    """Raise LongtailError where two files are right on the same questions."""
    right = without.correct[in_common]
    for file in augmented:
        if (right != file.correct[in_common]).any():
            continue
        n_right = sum((each.correct == 1).sum() for each in (without, *augmented))
        if not n_right:
            raise LongtailError(augmented[-1].lines[-1])  # what may be the reason
        raise LongtailError(
            f"{without.name} and {file.name} are right on the same {int(right.sum()):,} of "
            f"{len(right):,} questions, expected answers without retrieval and others with it; "
            "bring both"
        )


def _check_questions(questions: Questions, rows: np.ndarray, min_questions: int) -> None:
    """Raise LongtailError for too few questions of any group, and for a negative signal."""
    _, counts = np.unique(questions.groups[rows], return_counts=True)
    if not len(counts) or counts.max() < min_questions:
        raise LongtailError(
            f"{questions.name}: {int(rows.sum()):,} questions of known {questions.signal_name} "
            f"that all files answer, expected {min_questions} at least of one group; bring more "
            "answers, or name coarser groups with --columns group=NAME"
        )

    least = questions.signal[rows].min()
    if least < 0:
        row = int(np.flatnonzero(rows & (questions.signal == least))[0])
        raise LongtailError(
            f"{questions.name}: {questions.signal_name} of row {row + 1} is {least:g}, expected 0 "
            "or more; leave the cell empty if it is not known, or add a constant to all"
        )
