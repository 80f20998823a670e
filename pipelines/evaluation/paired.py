"""Methods and language models compared on the same questions, with McNemar's test."""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from pipelines import intervals
from pipelines.evaluation.answer_sets import GAINS, Answers

DIFFERENCES = GAINS | {"recall_gain": "doc_has_answer"}  # column of the table -> what differs


def comparisons(by_lm: dict[str, Answers]) -> list[dict]:
    """Each method less every earlier one of its language model, then less the same method of every
    earlier model.

    Language models are compared on the questions that both answered. A row has the differences in
    accuracy by both rules and in how often the passage holds an answer, the numbers of questions on
    which only one of the two is right (substring), and McNemar's test of these.
    """
    rows = []
    earlier: dict[str, Answers] = {}
    for lm, answers in by_lm.items():
        earlier_and_later = combinations(answers.by_method, 2)
        pairs = [(method, against) for against, method in earlier_and_later]
        for row in compared(answers, answers, pairs):
            rows.append({"lm": lm, "against_lm": lm} | row)

        for against_lm, others in earlier.items():
            both = [method for method in others.by_method if method in answers.by_method]
            same = [(method, method) for method in both]
            these, those = in_common([answers, others])
            for row in compared(these, those, same):
                rows.append({"lm": lm, "against_lm": against_lm} | row)
        earlier[lm] = answers

    return rows


def in_common(answers_of_models: Sequence[Answers]) -> list[Answers]:
    """Each language model's answers to the questions that all of them answered, in one order."""
    ids_of_models = [answers.ids.astype(str) for answers in answers_of_models]
    common_ids = reduce(np.intersect1d, ids_of_models)
    in_common = []
    for answers, ids in zip(answers_of_models, ids_of_models, strict=True):
        in_common.append(answers.take(np.isin(ids, common_ids)))
    return in_common


def compared(these: Answers, those: Answers, pairs: Sequence[tuple[str, str]]) -> list[dict]:
    """A row for each pair of a method of `these` answers and one of `those`.

    Both are answers to the same questions.
    """
    assert (these.ids == those.ids).all()
    differences = {}
    for method, against in pairs:
        for name, column in DIFFERENCES.items():
            this = getattr(these.by_method[method], column)
            that = getattr(those.by_method[against], column)
            difference = this - that
            differences[method, against, name] = (difference, these.everyone)

    means = these.means(differences)

    rows = []
    for method, against in pairs:
        this = these.by_method[method].correct
        that = those.by_method[against].correct
        change = this - that
        only_this = int((change == 1).sum())
        only_that = int((change == -1).sum())
        row = {
            "method": method,
            "against": against,
            "questions": len(these.ids),
            "only_this": only_this,
            "only_that": only_that,
            "p": intervals.mcnemar(only_this, only_that),
        }
        for name in DIFFERENCES:
            row[name] = means[method, against, name]
        rows.append(row)

    return rows
