"""A slice of the questions: chosen by relation, popularity and who is right, with two ways of answering compared."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.errors import LongtailError
from pipelines.evaluation.popularity_bins import HALF_DECADES
from pipelines.explorer.looked_at import PAGE, RUN, WORDS, Addressed, Run, one_of, page_of
from pipelines.storage import database

CELLS = {"both": (True, True), "base": (True, False), "method": (False, True), "neither": (False, False)}
JUDGEMENTS = {"published": "correct", "words": "correct_word"}  # as report: substring, whole words
ORDERS = {
    "popular": "popularity DESC NULLS LAST, question_id",
    "rare": "popularity NULLS LAST, question_id",
    "id": "question_id",
}
BOUNDS = [math.ceil(bound) for bound in HALF_DECADES[:16]]  # between bands of popularity, those of the report's figures
UNKNOWN = "unknown"

ANSWERED = """WITH answered AS (
    SELECT questions.*, CAST(s_pop AS DOUBLE) AS popularity,
        base.prediction AS base_answer, base.{judged} AS base_right,
        method.prediction AS method_answer, method.{judged} AS method_right, method.doc_title AS title,
        {band} AS band, {inside} AS inside
    FROM questions JOIN base USING (question_id) JOIN method USING (question_id)
    WHERE {split} AND contains(lower(question), lower($words))
) """


@dataclass(frozen=True)
class Slice(Addressed):
    """What is looked at; each field is an option of `longtail explore`, too."""

    PATH = "/questions"
    set: str  # question set
    lm: str  # language model, or an imported one
    base: str  # whose answers are compared: closed_book, if the model has such answers
    method: str  # with the answers by this method
    relation: str = ""  # "": all
    popularity: str = ""  # LEAST-MOST, either may be left out; or unknown; "": all
    cell: str = ""  # one of CELLS: who is right; "": all
    judged: str = "published"  # one of JUDGEMENTS
    words: str = ""  # that the question has, in any case
    order: str = "popular"  # one of ORDERS
    page: int = 1

    @classmethod
    def of(cls, run: Run, asked: Mapping[str, str]) -> Slice:
        """The slice that is asked for by some fields; the others have their defaults.

        Raises LongtailError for a value that a field does not have, and where there are no answers.
        """
        if not (sets := run.sets):
            raise LongtailError(f"{run.data}/predictions: no answers; {RUN}, or `longtail imports` brings some")
        name = one_of(asked, "set", sets, sets[0])
        answers = run.answers(name)
        lm = one_of(asked, "lm", answers, next(iter(answers)))
        methods, popularity = list(answers[lm]), asked.get("popularity", "")
        best = next((method for method in ("dense", "bm25", *methods[1:]) if method in methods), methods[0])
        if popularity not in ("", UNKNOWN) and (not re.fullmatch(r"\d{0,15}-\d{0,15}", popularity)):
            raise LongtailError(
                f"popularity: {popularity!r} is no range, expected LEAST-MOST, as 1000-9999, or {UNKNOWN}"
            )
        return cls(
            set=name,
            lm=lm,
            base=one_of(asked, "base", methods, methods[0]),
            method=one_of(asked, "method", methods, best),
            relation=asked.get("relation", "")[:WORDS],
            popularity=popularity,
            cell=one_of(asked, "cell", ["", *CELLS]),
            judged=one_of(asked, "judged", JUDGEMENTS, "published"),
            words=asked.get("words", "")[:WORDS],
            order=one_of(asked, "order", ORDERS, "popular"),
            page=page_of(asked),
        )


@dataclass(frozen=True)
class Listed:
    """A slice's questions of one page, and how many there are by cell, band and relation."""

    rows: list[dict]
    cells: dict[str, int]  # cell -> questions of the slice, of whatever cell
    unjudged: int  # questions of the slice of which an answer is not judged
    bands: dict[str, Counter]  # popularity's range -> cell -> questions, of whatever popularity
    relations: dict[str, int]  # relation -> questions of the slice, of whatever relation and cell
    total: int  # questions of the slice

    @property
    def pages(self) -> int:
        return max(1, math.ceil(self.total / PAGE))


def band(place: int | None) -> str:
    """The range of popularity of a band by its place, from 0; of the last one and of none too."""
    if place is None:
        return UNKNOWN
    least, most = (0 if place == 0 else BOUNDS[place - 1]), (BOUNDS[place] - 1 if place < len(BOUNDS) else "")
    return f"{least}-{most}"


def list_questions(run: Run, chosen: Slice) -> Listed:
    """The questions of a slice: one page of them, and the counts of all."""
    rows = _ask(run, chosen, _PAGE_OF, limit=PAGE, offset=PAGE * (chosen.page - 1))
    cell_of = {right: cell for cell, right in CELLS.items()}
    cells, relations, bands = Counter(), Counter(), {}
    for row in sorted(_ask(run, chosen, _COUNTS), key=lambda row: (row["band"] is None, row["band"] or 0)):
        cell = cell_of.get((row["base_right"], row["method_right"]))
        relations[row["relation"]] += row["n"] * row["inside"]
        if chosen.relation in ("", row["relation"]):
            bands.setdefault(band(row["band"]), Counter())[cell] += row["n"]
            cells[cell] += row["n"] * row["inside"]
    return Listed(
        rows=rows,
        cells={cell: cells[cell] for cell in CELLS},
        unjudged=cells[None],
        bands=bands,
        relations=dict(sorted((+relations).items())),
        total=cells[chosen.cell] if chosen.cell else cells.total(),
    )


def ids(run: Run, chosen: Slice, most: int) -> list[str]:
    """The ids of a slice's first questions, at most so many."""
    return [row["question_id"] for row in _ask(run, chosen, _PAGE_OF, limit=most, offset=0)]


def neighbours(run: Run, chosen: Slice, question_id: str) -> tuple[str | None, str | None]:
    """The ids of the questions before and after one, in the slice and its order; None where there is none."""
    query = f"""SELECT before, after FROM (
        SELECT question_id, lag(question_id) OVER w AS before, lead(question_id) OVER w AS after
        FROM answered WHERE {{where}} WINDOW w AS (ORDER BY {ORDERS[chosen.order]})
    ) WHERE question_id = $id"""
    rows = _ask(run, chosen, query, id=question_id)
    return (rows[0]["before"], rows[0]["after"]) if rows else (None, None)


_PAGE_OF = """SELECT question_id, relation, question, s_pop, possible_answers, base_answer, base_right, method_answer,
    method_right, title, s_uri FROM answered WHERE {where} ORDER BY {order} LIMIT $limit OFFSET $offset"""
_COUNTS = (
    "SELECT relation, band, inside, base_right, method_right, count(*) AS n FROM answered GROUP BY ALL ORDER BY ALL"
)


def _ask(run: Run, chosen: Slice, query: str, **values: str | int) -> list[dict]:
    """The rows of a query over the slice's questions with both answers (ANSWERED)."""
    least, _, most = chosen.popularity.partition("-")
    inside, where = "true", ["inside"]
    if chosen.popularity == UNKNOWN:
        inside = "s_pop IS NULL"
    elif chosen.popularity:
        inside = f"coalesce(s_pop BETWEEN {int(least or 0)} AND {int(most or 10**15)}, false)"
    values |= {"words": chosen.words}
    if "{where}" in query:
        if chosen.relation:
            where.append("relation = $relation")
            values["relation"] = chosen.relation
        if chosen.cell:
            right = CELLS[chosen.cell]
            where.append(f"base_right = {right[0]} AND method_right = {right[1]}")
        query = query.format(where=" AND ".join(where), order=ORDERS[chosen.order])
    answered = ANSWERED.format(
        judged=JUDGEMENTS[chosen.judged],
        band=f"CASE WHEN s_pop IS NOT NULL THEN len(list_filter({BOUNDS}, lambda bound: bound <= s_pop)) END",
        inside=inside,
        split="split = 'test'" if run.params.thresholds.imported == "test" else "true",
    )
    answers = run.answers(chosen.set)[chosen.lm]
    files = {"questions": run.questions(chosen.set), "base": answers[chosen.base], "method": answers[chosen.method]}
    return database.ask(answered + query, values, **files).to_arrow_table().to_pylist()
