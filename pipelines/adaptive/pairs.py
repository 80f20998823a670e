"""Questions answered both ways, which is what a threshold chooses between (PopQA, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pipelines.errors import LongtailError


@dataclass(frozen=True)
class Pairs:
    """Questions with both answers, ascending by popularity; all arrays (n,)."""

    subjects: np.ndarray  # str
    relations: np.ndarray  # str
    popularity: np.ndarray  # monthly page views, int64
    closed: np.ndarray  # closed-book answer right, bool
    augmented: np.ndarray  # retrieval-augmented answer right, bool
    excluded: int  # questions left out because their subject's popularity is not known

    @property
    def gains(self) -> np.ndarray:
        return self.augmented.astype(np.int64) - self.closed


def read_pairs(questions: Path, closed_book: Path, augmented: Path) -> Pairs:
    """Join the question set and two answer files on the question id (the text is no key: the published set repeats
    some).

    Raises LongtailError where the two files do not answer the same questions.
    """
    subject = "coalesce(CAST(s_uri AS VARCHAR), subj, question_id)"
    rows = duckdb.sql(
        f"""
        SELECT {subject} AS subject, q.relation, q.s_pop, 
               c.correct IS NOT NULL AND a.correct IS NOT NULL AND q.relation IS NOT NULL AS whole,
               c.correct AS closed, a.correct AS augmented
        FROM read_parquet('{closed_book}') c
        FULL JOIN read_parquet('{augmented}') a USING (question_id)
        LEFT JOIN read_parquet('{questions}') q USING (question_id)
        ORDER BY q.s_pop, question_id
        """
    ).fetchnumpy()
    if not np.all(np.ma.getdata(rows["whole"])):
        raise LongtailError(
            f"{augmented}: answers other questions than {closed_book} or {questions}, expected the same; run the "
            "answer stages again"
        )
    known = ~np.ma.getmaskarray(rows["s_pop"])
    column = {name: np.ma.getdata(values)[known] for name, values in rows.items()}
    return Pairs(
        subjects=column["subject"].astype(object),
        relations=column["relation"].astype(object),
        popularity=column["s_pop"].astype(np.int64),
        closed=column["closed"].astype(bool),
        augmented=column["augmented"].astype(bool),
        excluded=int((~known).sum()),
    )
