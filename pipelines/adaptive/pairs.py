"""Questions with a closed-book and a retrieval-augmented answer: a threshold chooses between the two (PopQA, §6)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipelines.answering import answer_files

COSTS = {  # an answer's cost by `thresholds.cost`, as SQL
    "retrievals": "0",  # read_pairs adds 1 for the augmented answer
    "tokens": "(prompt_tokens + new_tokens) / 1000",  # thousands
    "money": "cost",
}


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ordered by relation, then by `signal`; all arrays (n,)."""

    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    signal: np.ndarray  # what a threshold is a cut of, float64, not negative
    popularity: np.ndarray  # monthly page views, float64: the signal, unless something else decides
    confidence: np.ndarray  # geometric mean of the closed-book answer's token probabilities, float64; NaN if not known
    closed: np.ndarray  # closed-book answer right, bool
    augmented: np.ndarray  # retrieval-augmented answer right, bool
    closed_cost: np.ndarray  # float64; NaN if not known
    augmented_cost: np.ndarray  # float64; NaN if not known
    excluded: int  # number of questions left out because their subject's popularity is not known

    def gains(self, cost_weight: float) -> np.ndarray:
        """What retrieving gains each question, (n,): augmented - closed-book correctness - cost_weight * extra cost."""
        gains = self.augmented.astype(np.int32) - self.closed
        return gains - cost_weight * (self.augmented_cost - self.closed_cost) if cost_weight else gains

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

    @property
    def costs_known(self) -> bool:
        return bool(np.isfinite(self.augmented_cost - self.closed_cost).all())


def read_pairs(questions: Path, closed_book: Path, augmented: Path, cost: str = "retrievals") -> Pairs:
    """The questions of both answer files whose subject's popularity is known.

    `cost` is one of COSTS. Raises LongtailError as `answer_files.join` does.
    """
    columns = {"correct": "correct", "confidence": "exp(CAST(mean_log_prob AS DOUBLE))", "cost": COSTS[cost]}
    joined = answer_files.join(questions, {"closed_book": closed_book, "augmented": augmented}, columns)
    rows = np.lexsort((joined.ids.astype(str), joined.popularity, joined.relations.astype(str)))
    rows = rows[np.isfinite(joined.popularity[rows])]
    closed, retrieved = joined.answers["closed_book"], joined.answers["augmented"]
    return Pairs(
        subjects=joined.subjects[rows],
        relations=joined.relations[rows],
        signal=joined.popularity[rows],
        popularity=joined.popularity[rows],
        confidence=closed["confidence"][rows],
        closed=closed["correct"][rows] == 1,
        augmented=retrieved["correct"][rows] == 1,
        closed_cost=closed["cost"][rows],
        augmented_cost=retrieved["cost"][rows] + (cost == "retrievals"),
        excluded=len(joined.ids) - len(rows),
    )
