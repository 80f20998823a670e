"""Questions with two answers that a threshold chooses between, closed-book and augmented or any two (PopQA, §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipelines.answering import answer_files
from pipelines.errors import LongtailError
from pipelines.params import params

BELOW = "_below_"  # joins the names of the two ways to answer
COSTS = {  # an answer's cost by `thresholds.cost`, as SQL
    "retrievals": "0",  # read_pairs adds 1 for each answer that a text is brought to
    "tokens": "(prompt_tokens + new_tokens) / 1000",  # thousands
    "money": "cost",
}


@dataclass(frozen=True)
class Choice:
    """Two files of answers, each (language model, method): `popular` from the threshold on, `tail` below it."""

    popular: tuple[str, str]
    tail: tuple[str, str]

    @property
    def lm(self) -> str:
        """The language model under which the tables have this choice: that of the popular subjects."""
        return self.popular[0]

    @property
    def name(self) -> str:
        """The tables' `method`: that of the tail, if `popular` is the same model's closed-book answer.

        For others TAIL_below_POPULAR, as dense_below_genread, or small/dense_below_closed_book with the tail's model.
        """
        lm, method = self.tail
        if (lm, "closed_book") == self.popular:
            return method
        return f"{method if lm == self.lm else f'{lm}/{method}'}{BELOW}{self.popular[1]}"

    @classmethod
    def named(cls, lm: str, name: str) -> Choice:
        """The choice that has this `lm` and this `name`."""
        tail, _, popular = name.partition(BELOW)
        return cls((lm, popular or "closed_book"), _of_lm(tail, lm))


def choices(
    files: Mapping[str, Mapping[str, Mapping[str, Path]]], lms: Sequence[str], pairs: Sequence[params.Pair]
) -> dict[str, list[Choice]]:
    """Question set -> what a threshold chooses between there; `files` are question set -> model -> method -> file.

    Each model's closed-book answer and each of its other methods come first, then `pairs`. A METHOD without a model is
    that of each of `lms`, and of each imported model that has both. Raises LongtailError naming answers of `pairs` that
    no question set has.
    """
    chosen = {
        dataset: [
            Choice((lm, "closed_book"), (lm, method))
            for lm, methods in by_lm.items()
            for method in methods
            if "closed_book" in methods and method != "closed_book"
        ]
        for dataset, by_lm in files.items()
    }
    for pair in pairs:
        everywhere = dict.fromkeys([*lms, *(lm for by_lm in files.values() for lm in by_lm)])
        both_named = "/" in pair.popular and "/" in pair.tail
        for lm in [""] if both_named else everywhere:
            choice = Choice(_of_lm(pair.popular, lm), _of_lm(pair.tail, lm))
            answered = {
                dataset: [method in by_lm.get(of, {}) for of, method in (choice.popular, choice.tail)]
                for dataset, by_lm in files.items()
            }
            datasets = [dataset for dataset, has in answered.items() if all(has)]
            if files and not datasets and (both_named or lm in lms):
                lacking = choice.tail if any(has_popular for has_popular, _ in answered.values()) else choice.popular
                raise LongtailError(
                    f"thresholds.pairs: {'/'.join(lacking)} has no answers to {' or '.join(files)}, expected "
                    f"data/predictions/<set>/{'/'.join(lacking)}.parquet, or imported ones; add it to the run, or take "
                    "the pair out"
                )
            for dataset in datasets if choice.popular != choice.tail else ():
                chosen[dataset] += [choice] if choice not in chosen[dataset] else []
    return chosen


def _of_lm(answers: str, lm: str) -> tuple[str, str]:
    """(language model, method) of METHOD or LM/METHOD; `lm` if the model is not named."""
    named, _, method = answers.rpartition("/")
    return named or lm, method


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ordered by relation, then by `signal`; all arrays (n,).

    The answer above counts from the threshold on, closed-book if thresholds.pairs does not name another one. The answer
    below it retrieves.
    """

    ids: np.ndarray  # str
    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    signal: np.ndarray  # what a threshold is a cut of, float64, not negative
    popularity: np.ndarray  # monthly page views, float64: the signal, unless something else decides
    confidence: np.ndarray  # geometric mean of the answer above's token probabilities, float64; NaN if not known
    right_above: np.ndarray  # bool
    right_below: np.ndarray  # bool
    cost_above: np.ndarray  # float64; NaN if not known
    cost_below: np.ndarray  # float64; NaN if not known
    score: np.ndarray  # the answer below's retriever's score of its best passage, float64; NaN if not known
    margin: np.ndarray  # by which that score is above the second passage's, float64; NaN if not known
    excluded: int  # number of questions left out because their subject's popularity is not known

    def gains(self, cost_weight: float) -> np.ndarray:
        """What retrieving gains each question, (n,): correctness below - above - cost_weight * extra cost."""
        gains = self.right_below.astype(np.int32) - self.right_above
        return gains - cost_weight * (self.cost_below - self.cost_above) if cost_weight else gains

    def units(self, split_by: str) -> np.ndarray:
        """What a split keeps on one side, (n,): subjects, or question by question (`thresholds.split_by`)."""
        return self.subjects if split_by == "subject" else self.ids

    def numbered(self) -> Pairs:
        """The same with numbers for subjects, in their order: numbers are faster to compare than texts."""
        return replace(self, subjects=np.unique(self.subjects, return_inverse=True)[1])

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

    def known(self) -> Pairs:
        """The questions whose subject's popularity is known; `excluded` counts the others."""
        rows = np.isfinite(self.popularity)
        return replace(self.take(rows), excluded=int((~rows).sum()))

    @property
    def costs_known(self) -> bool:
        return bool(np.isfinite(self.cost_below - self.cost_above).all())


def read_pairs(
    questions: Path,
    above: Path,
    below: Path,
    cost: str = "retrievals",
    brought: tuple[bool, bool] = (False, True),
    split: str = "all",
) -> Pairs:
    """The questions of both answer files. Those of unknown popularity, NaN, come last in their relation.

    `cost` is one of COSTS; `brought` says to which of the two answers a text is brought, which counts as a retrieval.
    `split` is params.thresholds.imported. Raises LongtailError as `answer_files.join` does.
    """
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))", "cost": COSTS[cost]}
    columns |= {"score": "similarity", "margin": "margin"}
    joined = answer_files.join(questions, {"above": above, "below": below}, columns, split)
    rows = np.lexsort((joined.ids.astype(str), joined.popularity, joined.relations.astype(str)))
    of_above, of_below, once = joined.answers["above"], joined.answers["below"], cost == "retrievals"
    return Pairs(
        ids=joined.ids[rows],
        subjects=joined.subjects[rows],
        relations=joined.relations[rows],
        signal=joined.popularity[rows],
        popularity=joined.popularity[rows],
        confidence=of_above["confidence"][rows],
        right_above=of_above["correct"][rows] == 1,
        right_below=of_below["correct"][rows] == 1,
        cost_above=of_above["cost"][rows] + (once and brought[0]),
        cost_below=of_below["cost"][rows] + (once and brought[1]),
        score=of_below["score"][rows],
        margin=of_below["margin"][rows],
        excluded=0,
    )
