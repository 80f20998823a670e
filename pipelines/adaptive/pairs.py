"""Questions with two answers that a threshold chooses between, closed-book and augmented or any two (PopQA, §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.answering import answer_files
from pipelines.errors import LongtailError
from pipelines.params import params

BELOW = "_below_"  # joins the names of the two ways to answer


class Choice(NamedTuple):
    """Two methods of a language model: `popular` answers from the threshold on, `tail` below it."""

    lm: str
    popular: str
    tail: str

    @property
    def name(self) -> str:
        """The tables' `method`: the tail's, or TAIL_below_POPULAR where `popular` is not the closed-book answer."""
        return self.tail if self.popular == "closed_book" else f"{self.tail}{BELOW}{self.popular}"

    @classmethod
    def named(cls, lm: str, name: str) -> Choice:
        """The choice that has this `lm` and this `name`."""
        tail, _, popular = name.partition(BELOW)
        return cls(lm, popular or "closed_book", tail)


def choices(
    files: Mapping[str, Mapping[str, Mapping[str, Path]]],
    lms: Sequence[str],
    pairs: Sequence[params.Pair],
) -> dict[str, list[Choice]]:
    """Question set -> what a threshold chooses between there; `files` are question set -> model -> method -> file.

    Each model's closed-book answer and each of its other methods come first, then `pairs` of each model that has both.
    Raises LongtailError naming an answer of `pairs` that one of `lms` has in no question set.
    """
    for pair in pairs if files else ():
        for lm in lms:
            has = [{pair.popular, pair.tail} & set(by_lm.get(lm, ())) for by_lm in files.values()]
            if max(map(len, has)) < 2:
                lacking = f"{lm}/{pair.tail if any(pair.popular in of_set for of_set in has) else pair.popular}"
                raise LongtailError(
                    f"thresholds.pairs: {lacking} has no answers to {' or '.join(files)}, expected "
                    f"data/predictions/<set>/{lacking}.parquet, or imported ones; add it to the run, or take "
                    "the pair out"
                )
    found = {}
    for dataset, by_lm in files.items():
        default = [
            Choice(lm, "closed_book", of)
            for lm, has in by_lm.items()
            for of in has
            if of != "closed_book"
        ]
        further = [
            Choice(lm, pair.popular, pair.tail)
            for pair in pairs
            for lm in dict.fromkeys([*lms, *by_lm])
        ]
        found[dataset] = [
            choice
            for choice in dict.fromkeys([*default, *further])
            if {choice.popular, choice.tail} <= set(by_lm.get(choice.lm, ()))
        ]
    return found


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ordered by relation, then by `signal`; all arrays (n,).

    The answer above counts from the threshold on, closed-book as a rule. The answer below it retrieves.
    """

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    signal: (
        np.ndarray
    )  # what a threshold is a cut of, float64, not negative: monthly page views as a rule
    confidence: (
        np.ndarray
    )  # geometric mean of the answer above's token probabilities, float64; NaN if not known
    right_above: np.ndarray  # bool
    right_below: np.ndarray  # bool
    excluded: int = (
        0  # number of questions left out because their subject's popularity is not known
    )

    @property
    def gains(self) -> np.ndarray:
        """What retrieving gains each question, (n,) int32: correctness below - above."""
        return self.right_below.astype(np.int32) - self.right_above

    def units(self, split_by: str) -> np.ndarray:
        """What a split keeps on one side, (n,): subjects, or question by question (`thresholds.split_by`)."""
        return self.subjects if split_by == "subject" else self.ids

    def members(self) -> dict[str, slice]:
        """Relation -> its questions."""
        new = np.flatnonzero(self.relations[1:] != self.relations[:-1]) + 1
        bounds = [0, *new, len(self.relations)] if len(self.relations) else []
        return {self.relations[start]: slice(start, end) for start, end in pairwise(bounds)}

    def usable(self, min_questions: int) -> bool:
        """Whether some relation has enough questions for a threshold of its own."""
        return any(rows.stop - rows.start >= min_questions for rows in self.members().values())

    def take(self, rows: np.ndarray | slice) -> Pairs:
        """The questions at these positions, or under this mask."""
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "excluded"}
        return replace(self, **arrays)


def read_pairs(questions: Path, above: Path, below: Path) -> Pairs:
    """The questions of both answer files, of known popularity. Raises LongtailError as `answer_files.join` does."""
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))"}
    asked, answers = answer_files.join(questions, {"above": above, "below": below}, columns)
    of_above, of_below = answers["above"], answers["below"]
    right = of_above["correct"] == 1, of_below["correct"] == 1
    of_questions = [asked[name] for name in ("ids", "subjects", "relations", "popularity")]
    return of_known(Pairs(*of_questions, of_above["confidence"], *right))


def of_known(pairs: Pairs) -> Pairs:
    """The questions of known signal, ordered by relation, signal and id; `excluded` counts the others."""
    order = np.lexsort((pairs.ids.astype(str), pairs.signal, pairs.relations.astype(str)))
    known = order[np.isfinite(pairs.signal[order])]
    return replace(pairs.take(known), excluded=len(order) - len(known))
