"""Answers compared question by question: methods of one language model, and one method of two language models.

Language models may have answered different questions. They are compared on those that both answered, whose number every
row has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from pipelines import intervals
from pipelines.evaluation.accuracy import Answers

COLUMNS = {"gain": "correct", "gain_word": "word", "recall_gain": "has_answer"}
ByModel = dict[str, Answers]  # language model -> its answers to one question set


def comparisons(by_lm: ByModel, seed: int, resamples: int) -> list[dict]:
    """Each method less every earlier one of its language model, then less the same method of every earlier model.

    A row has the differences in accuracy by both rules and in how often what was read holds an answer, the numbers of
    questions on which only one of the two is right (substring), and McNemar's test of these.
    """
    rows = []
    for place, (lm, answers) in enumerate(by_lm.items()):
        pairs = [(method, against) for against, method in combinations(answers.by_method, 2)]
        rows += [{"lm": lm, "against_lm": lm} | row for row in compared(answers, answers, pairs, seed, resamples)]
        for earlier in list(by_lm)[:place]:
            methods = [method for method in by_lm[earlier].by_method if method in answers.by_method]
            shared, shared_of_earlier = in_common([answers, by_lm[earlier]])
            same = [(method, method) for method in methods]
            rows += [
                {"lm": lm, "against_lm": earlier} | row
                for row in compared(shared, shared_of_earlier, same, seed, resamples)
            ]
    return rows


def in_common(of_models: Sequence[Answers]) -> list[Answers]:
    """The answers of each language model to the questions that all of them answered, in the same order."""
    ids = reduce(np.intersect1d, [answers.ids.astype(str) for answers in of_models])
    return [answers.take(np.isin(answers.ids.astype(str), ids)) for answers in of_models]


def compared(these: Answers, those: Answers, pairs: Sequence[tuple[str, str]], seed: int, resamples: int) -> list[dict]:
    """A row for each pair of a method of `these` answers and one of `those`; both are of the same questions."""
    assert (these.ids == those.ids).all()
    everyone, asked, rows = np.ones(len(these.ids), bool), {}, []
    for method, against in pairs:
        this, that = these.by_method[method], those.by_method[against]
        only_this, only_that = (int(((this.correct - that.correct) == sign).sum()) for sign in (1, -1))
        p = intervals.mcnemar(only_this, only_that)
        rows.append(
            {"method": method, "against": against, "questions": len(these.ids)}
            | {"only_this": only_this, "only_that": only_that, "p": p}
        )
        for name, column in COLUMNS.items():
            asked[method, against, name] = getattr(this, column) - getattr(that, column), everyone
    found = these.means(asked, seed, resamples)
    return [row | {name: found[row["method"], row["against"], name] for name in COLUMNS} for row in rows]
