"""Slices of a run's questions, chosen by relation, popularity, words, who is right, what was read.

Of a slice two ways of answering are compared.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import intervals
from pipelines.errors import LongtailError
from pipelines.evaluation.popularity_bins import HALF_DECADES
from pipelines.explorer.addresses import (
    ROWS_OF_PAGE,
    Addressed,
    number_of_pages,
    page_number,
    value_of,
)
from pipelines.explorer.reasons import COUNTED, PASSAGES, READ, READ_OF
from pipelines.explorer.run import RUN_MAKES_IT, Run
from pipelines.intervals import Interval
from pipelines.storage import database

# Who is right -> cells of the table of who is right. `wrong` is one of its columns.
CELLS = {
    "both": ["both"],
    "base": ["base"],
    "method": ["method"],
    "neither": ["neither"],
    "wrong": ["base", "neither"],
}
ORDERS = {
    "popular": "popularity DESC NULLS LAST, question_id",
    "rare": "popularity NULLS LAST, question_id",
    "id": "question_id",
}
# Bounds between bands of popularity, those of the report's figures.
BOUNDS = [math.ceil(bound) for bound in HALF_DECADES[:16]]
UNKNOWN = "unknown"  # the band of questions whose popularity is not known
POPULARITY = re.compile(rf"|{UNKNOWN}|\d{{0,15}}-\d{{0,15}}")
WORDS_LENGTH = 200  # characters of a search's words, which every link of a page repeats
LIKELY_METHODS = ("bm25", "dense")  # the first that there is is compared with closed_book

# The queries below read the tables `searched`, which are the questions of a slice's relation and
# words, and `chosen`, those of all its choices (`_ask`).
# What the words of a search are looked for in. Of a subject's address it is the id alone, as each
# address has "wikidata" in it.
SEARCHED = """lower(nfc_normalize(concat_ws(chr(10), question, question_id,
    string_split(s_uri, '/')[-1], array_to_string(possible_answers, chr(10)),
    base_answer, method_answer)))"""
SUBJECT = "coalesce(CAST(s_uri AS VARCHAR), subj, question_id)"  # whose questions are correlated
# Questions with both answers.
ANSWERED = f"""WITH answered AS (
    SELECT questions.*, CAST(s_pop AS DOUBLE) AS popularity,
        base.prediction AS base_answer, base.correct AS base_right, base.doc_title AS base_title,
        method.prediction AS method_answer, method.correct AS method_right,
        method.doc_title AS method_title,
        {READ_OF.format(answer="base.")} AS base_read,
        {READ_OF.format(answer="method.")} AS method_read,
        method.doc_has_answer AS has_answer,
        CASE WHEN base_right AND method_right THEN 'both' WHEN base_right THEN 'base'
            WHEN method_right THEN 'method' ELSE 'neither' END AS cell,
        CASE WHEN s_pop IS NOT NULL THEN len(list_filter({BOUNDS}, lambda bound: bound <= s_pop))
        END AS band
    FROM questions JOIN base USING (question_id) JOIN method USING (question_id)
    WHERE base.correct IS NOT NULL AND method.correct IS NOT NULL
) """
PAGE_OF_ROWS = """SELECT question_id, relation, question, s_pop, possible_answers,
    base_answer, base_right, base_title, base_read,
    method_answer, method_right, method_title, method_read, s_uri
    FROM chosen ORDER BY {order} LIMIT $limit OFFSET $offset"""
COUNTS = """SELECT band, in_range, is_chosen, cell, method_read AS read, count(*) AS n,
    count(*) FILTER (has_answer) AS holds, count(*) FILTER (NOT has_answer) AS lacks
    FROM searched GROUP BY ALL ORDER BY ALL"""
# The place of a question in its slice, and the questions beside it.
NEIGHBOURS = """SELECT * FROM (
    SELECT question_id, row_number() OVER slice AS number, count(*) OVER () AS total,
        lag(question_id) OVER slice AS previous, lead(question_id) OVER slice AS next
    FROM chosen WINDOW slice AS (ORDER BY {order})) WHERE question_id = $id"""
# The band is a fraction, so that an unknown one is NaN in NumPy.
JUDGED = f"""SELECT CAST(band AS DOUBLE) AS band, hash({SUBJECT}) AS subject, in_range,
    base_right, method_right FROM searched"""


@dataclass(frozen=True)
class Slice(Addressed):
    """Which questions are looked at, and which two ways of answering."""

    PATH = "/questions"
    set: str  # question set
    lm: str  # language model, or an imported one
    base: str  # whose answers are compared: closed_book, if the model has such answers
    method: str  # with the answers by this method; of another model as LM/METHOD
    relation: str = ""  # "": all
    popularity: str = ""  # LEAST-MOST, either may be left out; or unknown; "": all
    cell: str = ""  # one of CELLS: who is right; "": all
    read: str = ""  # one of READ: whose page the second answer's best passage is of; "": all
    passage: str = ""  # one of PASSAGES, those of the second answer; "": all
    words: str = ""  # that the question, its answers and ids have, in any order and case
    order: str = "popular"  # one of ORDERS
    page: int = 1

    @classmethod
    def parse(cls, run: Run, parameters: Mapping[str, str]) -> Slice:
        """The slice that an address asks for; fields without a parameter have their defaults.

        Raises LongtailError for a value that a field does not have, and where there are no answers.
        """
        if not run.sets:
            reason = "this run asks none"
            if run.params.parts.answered:
                reason = f"{RUN_MAKES_IT}, or `longtail imports` brings some"
            raise LongtailError(f"{run.data}/predictions: no answers; {reason}")
        name = value_of(parameters, "set", run.sets, run.sets[0])
        answers = run.answers(name)
        lm = value_of(parameters, "lm", answers, next(iter(answers)))
        base_lm, base = _way(parameters, "base", answers, lm, ["closed_book"])
        likely = [*LIKELY_METHODS, *list(answers[lm])[1:]]
        method_lm, method = _way(parameters, "method", answers, lm, likely)
        if method_lm != base_lm:
            method = f"{method_lm}/{method}"

        relation = value_of(parameters, "relation", ["", *relations(run, name)])
        popularity = parameters.get("popularity", "")
        if not POPULARITY.fullmatch(popularity):
            raise LongtailError(
                f"popularity: {popularity!r}, expected a range LEAST-MOST, as 1000-9999, or "
                f"{UNKNOWN}"
            )
        cell = value_of(parameters, "cell", ["", *CELLS])
        read = value_of(parameters, "read", ["", *READ])
        passage = value_of(parameters, "passage", ["", *PASSAGES])
        return cls(
            set=name,
            lm=base_lm,
            base=base,
            method=method,
            relation=relation,
            popularity=popularity,
            cell=cell,
            read=read,
            passage=passage,
            words=parameters.get("words", "")[:WORDS_LENGTH],
            order=value_of(parameters, "order", ORDERS, "popular"),
            page=page_number(parameters),
        )

    def to_wrong(self, read: str, counted: str) -> str:
        """The address of the wrong answers that one of COUNTED counts; `read` "" is of whatever."""
        changes: dict[str, Any] = {"read": read, "passage": "", "cell": "wrong"}
        changes |= COUNTED[counted]
        return self.to(**changes)

    @property
    def compared(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(language model, method) of both answers."""
        lm, _, method = self.method.rpartition("/")
        return (self.lm, self.base), (lm or self.lm, method)


@dataclass(frozen=True)
class Counts:
    """How many questions a slice has.

    `cells` and `wrong` count questions of whatever cell, page and passage; `bands` also of whatever
    popularity.
    """

    total: int  # questions of the slice
    cells: Counter  # cell -> questions
    wrong: dict[str, Counter]  # each of READ -> what is COUNTED of the wrong answers
    bands: dict[str, Counter]  # popularity's range -> cell -> questions

    @property
    def pages(self) -> int:
        return number_of_pages(self.total)

    @property
    def all_wrong(self) -> Counter:
        """What is COUNTED of all wrong answers."""
        return sum(self.wrong.values(), Counter())


@dataclass(frozen=True)
class Listed(Counts):
    """A slice's questions of one page, and the counts of all."""

    rows: list[dict]
    # band -> shares that both ways get right; "": those of the slice, as `cells` counts it
    accuracies: dict[str, tuple[Interval, Interval]]


@dataclass(frozen=True)
class Place:
    """The place of a question in a slice, from 1, and the ids of the questions beside it."""

    number: int
    total: int
    previous: str | None
    next: str | None

    @property
    def page(self) -> int:
        """The page of the list that has the question."""
        return number_of_pages(self.number)


def list_questions(run: Run, slice_: Slice) -> Listed:
    """The questions of a slice: one page of them, and the counts of all."""
    counts = count_questions(run, slice_)
    offset = ROWS_OF_PAGE * (slice_.page - 1)
    page = PAGE_OF_ROWS.format(order=ORDERS[slice_.order])
    rows = _rows(run, slice_, page, limit=ROWS_OF_PAGE, offset=offset)
    judged = _ask(run, slice_, JUDGED).to_arrow_table()
    return Listed(**vars(counts), rows=rows, accuracies=_accuracies(judged))


def count_questions(run: Run, slice_: Slice) -> Counts:
    """How many questions a slice has, and why answers of its second way are wrong."""
    total = 0
    cells: Counter = Counter()
    wrong: dict[str, Counter] = {read: Counter() for read in READ}
    bands: dict[str, Counter] = {}
    for row in _rows(run, slice_, COUNTS):
        cell = row["cell"]
        bands.setdefault(band(row["band"]), Counter())[cell] += row["n"]
        if row["is_chosen"]:
            total += row["n"]
        if not row["in_range"]:
            continue

        cells[cell] += row["n"]
        if cell in CELLS["wrong"]:
            counts = wrong[row["read"]]
            counts[cell] += row["n"]
            counts["wrong"] += row["n"]
            counts["holds"] += row["holds"]
            counts["lacks"] += row["lacks"]

    return Counts(total=total, cells=cells, wrong=wrong, bands=bands)


def find_place(run: Run, slice_: Slice, question_id: str) -> Place | None:
    """The place of a question in a slice, or None if the slice does not have it."""
    query = NEIGHBOURS.format(order=ORDERS[slice_.order])
    for row in _rows(run, slice_, query, id=question_id):
        del row["question_id"]
        return Place(**row)
    return None


def band(place: int | None) -> str:
    """The range of popularity of a band by its place, from 0; None is the band of the unknown."""
    if place is None:
        return UNKNOWN
    least = 0 if place == 0 else BOUNDS[place - 1]
    if place == len(BOUNDS):
        return f"{least}-"
    return f"{least}-{BOUNDS[place] - 1}"


def _accuracies(judged: pa.Table) -> dict[str, tuple[Interval, Interval]]:
    """Both shares of right answers with their intervals by band of popularity; "": of the slice."""
    places = judged["band"].to_numpy()
    subjects = judged["subject"].to_numpy()
    base_right = judged["base_right"].to_numpy()
    method_right = judged["method_right"].to_numpy()

    in_range = judged["in_range"].to_numpy()
    masks = {"": in_range.astype(bool), UNKNOWN: np.isnan(places)}
    for place in np.unique(places[~np.isnan(places)]):
        masks[band(int(place))] = places == place
    accuracies = {}
    for name, mask in masks.items():
        base = intervals.share(base_right[mask], subjects[mask])
        method = intervals.share(method_right[mask], subjects[mask])
        accuracies[name] = (base, method)
    return accuracies


def relations(run: Run, name: str) -> list[str]:
    """The relations of a question set, sorted."""
    query = "SELECT DISTINCT relation FROM questions WHERE relation != '' ORDER BY 1"
    rows = database.ask(query, questions=run.questions(name)).fetchall()
    return [relation for (relation,) in rows]


def _way(
    parameters: Mapping[str, str],
    field: str,
    answers: Mapping[str, Mapping[str, Path]],
    lm: str,
    likely: Sequence[str],
) -> tuple[str, str]:
    """The (language model, method) that a parameter names as LM/METHOD, or as METHOD for `lm`.

    Without the parameter it is the first of the likely methods that there is, or any.
    """
    named_lm, _, named_method = (parameters.get(field) or "").rpartition("/")
    lm = value_of({field: named_lm}, field, answers, lm)
    methods = list(answers[lm])
    likely_methods = [name for name in likely if name in methods]
    default = [*likely_methods, *methods][0]
    return lm, value_of({field: named_method}, field, methods, default)


def _rows(run: Run, slice_: Slice, query: str, **values: str | int) -> list[dict]:
    return _ask(run, slice_, query, **values).to_arrow_table().to_pylist()


def _ask(run: Run, slice_: Slice, query: str, **values: Any) -> duckdb.DuckDBPyRelation:
    """A query over `searched` and `chosen`."""
    searched = []
    if slice_.relation:
        searched.append("relation = $relation")
        values["relation"] = slice_.relation
    words = unicodedata.normalize("NFC", slice_.words).lower().split()
    for i, word in enumerate(words):
        searched.append(f"contains({SEARCHED}, $word{i})")
        values[f"word{i}"] = word

    chosen = ["in_range"]
    if slice_.cell:
        chosen.append("list_contains($cells, cell)")
        values["cells"] = CELLS[slice_.cell]
    if slice_.passage:
        chosen.append("coalesce(has_answer = $holds, false)")
        values["holds"] = slice_.passage == "holds"
    if slice_.read:
        chosen.append("method_read = $read")
        values["read"] = slice_.read

    tables = f"""{ANSWERED},
        searched AS (SELECT *, {_popularity_condition(slice_.popularity)} AS in_range,
                {" AND ".join(chosen)} AS is_chosen
            FROM answered WHERE {" AND ".join(searched) or "true"}),
        chosen AS (SELECT * FROM searched WHERE is_chosen) """
    (base_lm, base), (method_lm, method) = slice_.compared
    answers = run.answers(slice_.set)
    files = {
        "questions": run.questions(slice_.set),
        "base": answers[base_lm][base],
        "method": answers[method_lm][method],
    }
    return database.ask(tables + query, values, **files)


def _popularity_condition(popularity: str) -> str:
    """SQL for whether a question's popularity is in a slice's range."""
    if not popularity:
        return "true"
    if popularity == UNKNOWN:
        return "s_pop IS NULL"
    least, _, most = popularity.partition("-")
    return f"coalesce(s_pop BETWEEN {int(least or 0)} AND {int(most or 10**15)}, false)"
