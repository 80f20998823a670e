"""Thresholds from files of predictions and a question set from anywhere: no project, no params, no model."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipelines.adaptive import decisions, rule, tuning
from pipelines.adaptive.rule import Rule
from pipelines.answering.answers_elsewhere import Answered, in_all
from pipelines.errors import LongtailError
from pipelines.questions.question_tables import Questions


class Result(NamedTuple):
    """What a threshold between two files is worth."""

    popular: str
    tail: str
    file: Rule
    figures: dict  # the figures that metrics/adaptive.json has
    relations: list[dict]  # rows of thresholds.parquet
    decided: decisions.Decided | None = None  # what files that decide when to retrieve are worth, beside this


def tune_from_files(
    questions: Questions, without: Answered, others: Sequence[Answered], search: str, seed: int, resamples: int
) -> list[Result]:
    """Thresholds between `without`, for popular subjects, and each of `others`; the best held out comes first.

    They are fitted on the questions that all files answer. Those that decide when to retrieve (`decisions`) are judged
    beside the thresholds of the first of `others`. Raises LongtailError where these are too few, and for two
    files that are right on the same questions.
    """
    everywhere = in_all([without, *others])
    deciders = [other for other in others[1:] if other.decides or not other.says]
    others = [*others[:1], *(other for other in others[1:] if other.says and not other.decides)]
    right = without.correct[everywhere]
    for other in others:
        if (right == other.correct[everywhere]).all():
            if not right.any() and not any((one.correct == 1).any() for one in (without, *others)):
                raise LongtailError(others[-1].lines[-1])  # what may be the reason
            raise LongtailError(
                f"{without.name} and {other.name} are right on the same {int(right.sum()):,} of {len(right):,} "
                "questions, expected answers without retrieval and others with it; bring both"
            )
    rows = everywhere & np.isfinite(questions.signal)
    chosen, signal = tuning.DEFAULTS.model_copy(update={"search": search}), questions.signal[rows]
    groups, counts = np.unique(questions.groups[rows], return_counts=True)
    if not len(groups) or counts.max() < chosen.min_questions:
        group = questions.columns.get("group")
        of_one = f" of one {group}" if group else ""
        coarser = ", or name a coarser group with --columns group=NAME" if group else ""
        raise LongtailError(
            f"{questions.name}: {int(rows.sum()):,} questions of known {questions.signal_name} that all files answer, "
            f"expected {chosen.min_questions} at least{of_one}; bring more answers{coarser}"
        )
    if signal.min() < 0:
        row = int(np.flatnonzero(rows & (questions.signal == signal.min()))[0])
        raise LongtailError(
            f"{questions.name}: {questions.signal_name} of row {row + 1} is {signal.min():g}, expected 0 or more; "
            "leave the cell empty if it is not known, or add a constant to all"
        )
    results, ids = [], np.array(questions.ids, dtype=object)[rows]
    for other in others:
        right_without, right = without.correct[rows] == 1, other.correct[rows] == 1
        arrays = signal, questions.groups[rows], questions.subjects[rows], right_without, right
        how = {"chosen": chosen, "seed": seed, "resamples": resamples, "searches": (search,), "ids": ids}
        tuned = tuning.tune_arrays(*arrays, **how)
        names = {group: questions.names[group] for group in tuned.rule.thresholds}
        about = {"signal": questions.signal_name, "names": names}
        file = rule.of_tuned(tuned, without.name, other.name, search, questions.month, **about)
        decided = None
        if deciders and other is others[0]:
            place = {id_: place for place, id_ in enumerate(questions.ids)}
            places = np.array([place[id_] for id_ in tuned.pairs.ids])
            decided = decisions.judge(tuned, search, places, without, deciders, seed, resamples)
        results.append(Result(without.name, other.name, file, tuned.figures[search], tuned.relations, decided))
    return sorted(results, key=lambda result: -result.figures["adaptive"]["value"])
