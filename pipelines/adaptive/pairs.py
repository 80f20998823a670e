"""Questions answered both ways, which is what a threshold chooses between (PopQA, section 6)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np

from pipelines.errors import LongtailError

COSTS = {  # closed-book and augmented answer's, by the unit that `thresholds.cost` names
    "retrievals": ("0.0", "1.0"),
    "tokens": ("(c.prompt_tokens + c.new_tokens) / 1000", "(a.prompt_tokens + a.new_tokens) / 1000"),  # thousands
    "money": ("c.cost", "a.cost"),
}


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ordered by relation, then by `signal`; all arrays (n,)."""

    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    signal: np.ndarray  # what a threshold is a cut of, float64, not negative
    popularity: np.ndarray  # monthly page views, float64: the signal, unless another decides
    confidence: np.ndarray  # geometric mean of the closed-book answer's token probabilities, float64; NaN not known
    closed: np.ndarray  # closed-book answer right, bool
    augmented: np.ndarray  # retrieval-augmented answer right, bool
    closed_cost: np.ndarray  # float64; NaN where not known
    augmented_cost: np.ndarray
    excluded: int  # questions left out because their subject's popularity is not known

    def gains(self, cost_weight: float) -> np.ndarray:
        """What retrieving gains each question, (n,): augmented minus closed-book, less `cost_weight` x the extra
        cost.
        """
        gains = self.augmented.astype(np.int32) - self.closed
        return gains - cost_weight * (self.augmented_cost - self.closed_cost) if cost_weight else gains

    def members(self) -> dict[str, slice]:
        """Each relation's questions."""
        new = np.flatnonzero(self.relations[1:] != self.relations[:-1]) + 1
        bounds = [0, *new, len(self.relations)] if len(self.relations) else []
        return {self.relations[start]: slice(start, end) for start, end in pairwise(bounds)}

    def usable(self, min_questions: int) -> bool:
        """Whether some relation has questions enough for a threshold of its own."""
        return any(rows.stop - rows.start >= min_questions for rows in self.members().values())

    def take(self, rows: np.ndarray | slice) -> Pairs:
        """The questions at these positions, or under this mask."""
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "excluded"}
        return replace(self, **arrays)

    @property
    def costs_known(self) -> bool:
        return bool(np.isfinite(self.augmented_cost - self.closed_cost).all())


def read_pairs(questions: Path, closed_book: Path, augmented: Path, cost: str = "retrievals") -> Pairs:
    """Join the question set and two answer files on the question id (the text is no key: the published set repeats
    some).

    `cost` is one of COSTS. Raises LongtailError naming an id that a file has twice, or lacks where another has it.
    """
    for file in (questions, closed_book, augmented):
        doubled = f"SELECT question_id FROM '{file}' GROUP BY question_id HAVING count(*) > 1"
        _refuse(doubled, f"{file}: has the id {{}} more than once, expected every id once")
    for file, other in ((closed_book, augmented), (augmented, closed_book), (questions, closed_book)):
        missing = f"SELECT question_id FROM '{other}' ANTI JOIN '{file}' USING (question_id)"
        _refuse(missing, f"{file}: lacks the id {{}} of {other}, expected the same questions")
    for file in (closed_book, augmented):
        unjudged = f"SELECT question_id FROM '{file}' WHERE correct IS NULL"
        _refuse(unjudged, f"{file}: does not say whether the answer to the id {{}} is right, expected it of all")
    costs = [f"CAST({one} AS DOUBLE)" for one in COSTS[cost]]
    rows = duckdb.sql(
        f"""
        SELECT coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subjects, q.relation AS relations,
               CAST(s_pop AS DOUBLE) AS popularity, exp(CAST(c.mean_log_prob AS DOUBLE)) AS confidence,
               c.correct AS closed, a.correct AS augmented, {costs[0]} AS closed_cost, {costs[1]} AS augmented_cost
        FROM '{closed_book}' c JOIN '{augmented}' a USING (question_id) JOIN '{questions}' q USING (question_id)
        ORDER BY q.relation, s_pop, question_id
        """
    ).fetchnumpy()
    known = ~np.ma.getmaskarray(rows["popularity"])
    column = {name: values[known] for name, values in rows.items()}
    numbers = {name: np.ma.filled(column[name], np.nan) for name in ("confidence", "closed_cost", "augmented_cost")}
    return Pairs(
        subjects=np.ma.getdata(column["subjects"]).astype(object),
        relations=np.ma.getdata(column["relations"]).astype(object),
        signal=np.ma.getdata(column["popularity"]),
        popularity=np.ma.getdata(column["popularity"]),
        closed=np.ma.getdata(column["closed"]).astype(bool),
        augmented=np.ma.getdata(column["augmented"]).astype(bool),
        excluded=int((~known).sum()),
        **numbers,
    )


def _refuse(query: str, message: str) -> None:
    """Raises LongtailError where the query finds ids, naming the first."""
    found = [row[0] for row in duckdb.sql(f"{query} ORDER BY question_id").fetchall()]
    if found:
        more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
        raise LongtailError(f"{message.format(f'{found[0]}{more}')}; run the answer stages again or repair the file")
