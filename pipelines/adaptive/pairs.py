"""Questions with two answers that a threshold chooses between, closed-book and augmented or any two
(PopQA, §6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipelines.answering import answer_files
from pipelines.arrays import take_rows
from pipelines.errors import LongtailError
from pipelines.methods import Method
from pipelines.params.params import Pair

BELOW = "_below_"  # joins the names of the two methods in tables and in thresholds.json
CLOSED_BOOK = Method("closed_book")


@dataclass(frozen=True)
class Choice:
    """Two methods of a language model: `above` answers from the threshold on, `below` answers below
    it.

    The methods are named as tables name them: the main retriever's have no retriever.
    """

    lm: str
    above: Method
    below: Method

    @property
    def name(self) -> str:
        """The tables' `method`: that below, or as dense_below_bm25 where closed-book does not
        answer above.
        """
        if self.above == CLOSED_BOOK:
            return self.below.name
        return f"{self.below.name}{BELOW}{self.above.name}"

    @classmethod
    def of_name(cls, lm: str, name: str) -> Choice:
        """The choice of this language model that has this `name`."""
        below, _, above = name.partition(BELOW)
        if not above:
            above = CLOSED_BOOK.name
        return cls(lm, Method.of_name(above), Method.of_name(below))


def choices(
    files: Mapping[str, Mapping[str, Mapping[str, Path]]],
    lms: Sequence[str],
    pairs: Sequence[Pair],
) -> dict[str, list[Choice]]:
    """Question set -> what a threshold chooses between there; `files` are question set -> model ->
    method -> file.

    Each model's closed-book answer and each of its other methods come first, then `pairs` of each
    model that has both. Raises LongtailError naming an answer of `pairs` that one of `lms` has in
    no question set.
    """
    if files:
        for pair in pairs:
            for lm in lms:
                _refuse_without_answers(pair, lm, files)
    return {dataset: _choices_of_set(by_lm, lms, pairs) for dataset, by_lm in files.items()}


def _choices_of_set(
    files: Mapping[str, Mapping[str, Path]], lms: Sequence[str], pairs: Sequence[Pair]
) -> list[Choice]:
    """`choices` of one question set."""
    candidates = []
    for lm, by_method in files.items():
        for name in by_method:
            if name != CLOSED_BOOK.name:
                candidates.append(Choice(lm, above=CLOSED_BOOK, below=Method.of_name(name)))
    for pair in pairs:
        above = Method.of_name(pair.above)
        below = Method.of_name(pair.below)
        candidates += [Choice(lm, above, below) for lm in (*lms, *files)]

    distinct = dict.fromkeys(candidates)
    return [choice for choice in distinct if _has_answers(choice, files.get(choice.lm, {}))]


def _has_answers(choice: Choice, by_method: Mapping[str, Path]) -> bool:
    return choice.above.name in by_method and choice.below.name in by_method


def _refuse_without_answers(
    pair: Pair, lm: str, files: Mapping[str, Mapping[str, Mapping[str, Path]]]
) -> None:
    """Raise LongtailError where a language model has answers by both methods of a pair to no
    question set.
    """
    above_answers = False
    for by_lm in files.values():
        methods = by_lm.get(lm, {})
        if pair.above in methods and pair.below in methods:
            return
        above_answers |= pair.above in methods

    missing = f"{lm}/{pair.below if above_answers else pair.above}"
    raise LongtailError(
        f"thresholds.pairs: {missing} has no answers to {' or '.join(files)}, expected "
        f"data/predictions/<set>/{missing}.parquet, or imported ones; add it to the run, or "
        "take the pair out"
    )


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ordered by relation, then by `signal`; all arrays (n,).

    The answer above counts from the threshold on. It is the closed-book answer as a rule. The
    answer below retrieves.
    """

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    # what a threshold is a cut of, float64, not negative: monthly page views as a rule
    signal: np.ndarray
    # geometric mean of the answer above's token probabilities, float64; NaN if it is not known
    confidence: np.ndarray
    right_above: np.ndarray  # bool
    right_below: np.ndarray  # bool
    excluded: int = 0  # number of questions left out because their signal is not known

    @property
    def gains(self) -> np.ndarray:
        """What retrieving gains each question, (n,) int32: correctness below - above."""
        return self.right_below.astype(np.int32) - self.right_above

    def units(self, split_by: str) -> np.ndarray:
        """What a split keeps on one side, (n,): subjects, or question by question
        (`thresholds.split_by`).
        """
        return self.subjects if split_by == "subject" else self.ids

    def members(self) -> dict[str, slice]:
        """Relation -> its questions."""
        if not len(self.relations):
            return {}
        differs = self.relations[1:] != self.relations[:-1]
        first_rows = np.flatnonzero(differs) + 1
        bounds = [0, *first_rows.tolist(), len(self.relations)]
        return {self.relations[start]: slice(start, end) for start, end in pairwise(bounds)}

    def small_relations(self, min_questions: int) -> list[str]:
        """The relations with too few questions for a threshold of their own."""
        small = []
        for relation, rows in self.members().items():
            if rows.stop - rows.start < min_questions:
                small.append(relation)
        return small

    def usable(self, min_questions: int) -> bool:
        """Whether some relation has enough questions for a threshold of its own."""
        return len(self.small_relations(min_questions)) < len(self.members())

    def take(self, rows: np.ndarray | slice) -> Pairs:
        """The questions at these positions, or under this mask."""
        return take_rows(self, rows)


def read_pairs(questions: Path, above: Path, below: Path) -> Pairs:
    """The questions of both answer files, of known popularity.

    Raises LongtailError as `answer_files.join` does.
    """
    columns = {
        "correct": "CAST(correct AS DOUBLE)",
        "confidence": "exp(CAST(mean_log_prob AS DOUBLE))",
    }
    about, answers = answer_files.join(questions, {"above": above, "below": below}, columns)
    answers_above = answers["above"]
    answers_below = answers["below"]
    pairs = Pairs(
        ids=about["ids"],
        subjects=about["subjects"],
        relations=about["relations"],
        signal=about["popularity"],
        confidence=answers_above["confidence"],
        right_above=answers_above["correct"] == 1,
        right_below=answers_below["correct"] == 1,
    )
    return of_known(pairs)


def of_known(pairs: Pairs) -> Pairs:
    """The questions of known signal, ordered by relation, signal and id; `excluded` counts the
    others.
    """
    ids = pairs.ids.astype(str)
    relations = pairs.relations.astype(str)
    order = np.lexsort((ids, pairs.signal, relations))
    known = order[np.isfinite(pairs.signal[order])]
    return replace(pairs.take(known), excluded=len(order) - len(known))
