"""Slices of a run's questions, chosen by relation, popularity, words, and who is right.

Of a slice two ways of answering are compared.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

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
from pipelines.explorer.run import PASSAGE_IS_OF, RUN_MAKES_IT, Run
from pipelines.intervals import Interval
from pipelines.pages.table_texts import FORMULA
from pipelines.storage import database

CELLS = {  # cell of the table of who is right -> whether the first and the second answer is right
    "both": (True, True),
    "base": (True, False),
    "method": (False, True),
    "neither": (False, False),
}
CELL_OF = {right: cell for cell, right in CELLS.items()}
ORDERS = {
    "popular": "popularity DESC NULLS LAST, question_id",
    "rare": "popularity NULLS LAST, question_id",
    "id": "question_id",
}
# Bounds between bands of popularity, those of the report's figures.
BOUNDS = [math.ceil(bound) for bound in HALF_DECADES[:16]]
UNKNOWN = "unknown"  # the band of questions whose popularity is not known
POPULARITY = re.compile(rf"|{UNKNOWN}|\d{{0,15}}-\d{{0,15}}")
MISREAD = "misread"  # a passage of the second answer holds a gold answer, and the answer is wrong
ROWS_OF_CSV = 10_000  # rows of a CSV file that are sent at a time
WORDS_LENGTH = 200  # characters of a search's words, which every link of a page repeats
FORMULA_BEGINS = f"^([{re.escape(''.join(FORMULA))}])"
LIKELY_METHODS = ("dense", "bm25")  # the first that there is is compared with closed_book

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
        {PASSAGE_IS_OF.format(answer="base.")} AS base_whose,
        {PASSAGE_IS_OF.format(answer="method.")} AS method_whose,
        method.doc_has_answer AS has_answer,
        coalesce(has_answer AND NOT method.correct, false) AS misread,
        CASE WHEN s_pop IS NOT NULL THEN len(list_filter({BOUNDS}, lambda bound: bound <= s_pop))
        END AS band
    FROM questions JOIN base USING (question_id) JOIN method USING (question_id)
    WHERE base.correct IS NOT NULL AND method.correct IS NOT NULL
) """
PAGE_OF_ROWS = """SELECT question_id, relation, question, s_pop, possible_answers,
    base_answer, base_right, base_title, base_whose,
    method_answer, method_right, method_title, method_whose, s_uri
    FROM chosen ORDER BY {order} LIMIT $limit OFFSET $offset"""
ALL_ROWS = """SELECT question_id, question, relation, string_split(s_uri, '/')[-1] AS subject,
    s_pop AS popularity, to_json(possible_answers)::VARCHAR AS possible_answers, {columns}
    FROM chosen ORDER BY {order}"""
COUNTS = """SELECT band, in_range, misread, base_right, method_right, count(*) AS n
    FROM searched GROUP BY ALL ORDER BY ALL"""
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
    passage: str = ""  # MISREAD; "": all
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
            expected = f"expected a range LEAST-MOST, as 1000-9999, or {UNKNOWN}"
            raise LongtailError(f"popularity: {popularity!r}, {expected}")
        return cls(
            set=name,
            lm=base_lm,
            base=base,
            method=method,
            relation=relation,
            popularity=popularity,
            cell=value_of(parameters, "cell", ["", *CELLS]),
            passage=value_of(parameters, "passage", ["", MISREAD]),
            words=parameters.get("words", "")[:WORDS_LENGTH],
            order=value_of(parameters, "order", ORDERS, "popular"),
            page=page_number(parameters),
        )

    @property
    def compared(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(language model, method) of both answers."""
        lm, _, method = self.method.rpartition("/")
        return (self.lm, self.base), (lm or self.lm, method)


@dataclass(frozen=True)
class Listed:
    """A slice's questions of one page, and how many there are by cell, band and relation."""

    rows: list[dict]
    cells: dict[str, int]  # cell -> questions of the slice, of whatever cell
    misread: int  # questions of the slice that MISREAD is true of, of whatever cell and passage
    bands: dict[str, Counter]  # popularity's range -> cell -> questions, of whatever popularity
    # band -> shares that both ways get right; "": those of the slice, of whatever cell and passage
    accuracies: dict[str, tuple[Interval, Interval]]
    total: int  # questions of the slice

    @property
    def pages(self) -> int:
        return number_of_pages(self.total)


def list_questions(run: Run, slice_: Slice) -> Listed:
    """The questions of a slice: one page of them, and the counts of all."""
    offset = ROWS_OF_PAGE * (slice_.page - 1)
    page = PAGE_OF_ROWS.format(order=ORDERS[slice_.order])
    rows = _rows(run, slice_, page, limit=ROWS_OF_PAGE, offset=offset)

    cells: Counter = Counter()
    bands: dict[str, Counter] = {}
    misread = 0
    for row in _rows(run, slice_, COUNTS):
        cell = CELL_OF[row["base_right"], row["method_right"]]
        n_in_range = row["n"] if row["in_range"] else 0
        if row["misread"]:
            misread += n_in_range
        if row["misread"] or not slice_.passage:
            counts_of_band = bands.setdefault(band(row["band"]), Counter())
            counts_of_band[cell] += row["n"]
            cells[cell] += n_in_range

    judged = _ask(run, slice_, JUDGED).to_arrow_table()
    total = cells[slice_.cell] if slice_.cell else cells.total()
    return Listed(
        rows=rows,
        cells={cell: cells[cell] for cell in CELLS},
        misread=misread,
        bands=bands,
        accuracies=_accuracies(judged),
        total=total,
    )


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


def to_csv(run: Run, slice_: Slice) -> Iterator[bytes]:
    """All questions of a slice as CSV, in the slice's order, ROWS_OF_CSV at a time.

    A text that a spreadsheet would run as a formula begins with an apostrophe. Errors are raised
    before the first row.
    """
    query = ALL_ROWS.format(columns=_csv_columns(slice_), order=ORDERS[slice_.order])
    reader = _ask(run, slice_, query).to_arrow_reader(ROWS_OF_CSV)
    return _csv_parts(reader)


def _csv_columns(slice_: Slice) -> str:
    """The columns of both answers, named by their methods."""
    (_, base), (method_lm, method) = slice_.compared
    if method_lm != slice_.lm:
        method = f"{method_lm} {method}"
    columns = {
        f"{base} answer": "base_answer",
        f"{method} answer": "method_answer",
        f"{base} right": "base_right",
        f"{method} right": "method_right",
        f"{method} passage": "method_title",
        f"{method} passage is of": "method_whose",
        f"{method} passage has the answer": "has_answer",
    }
    named_columns = [f'{column} AS "{name}"' for name, column in columns.items()]
    return ", ".join(named_columns)


def _csv_parts(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    for number, batch in enumerate(reader):
        columns = []
        for column in batch.columns:
            if pa.types.is_string(column.type):
                column = pc.replace_substring_regex(column, FORMULA_BEGINS, r"'\1")
            columns.append(column)
        part = io.BytesIO()
        options = csv.WriteOptions(include_header=number == 0)
        csv.write_csv(pa.table(columns, batch.schema.names), part, options)
        yield part.getvalue()


def ids(run: Run, slice_: Slice, at_most: int) -> list[str]:
    """The ids of a slice's first questions, at most so many."""
    page = PAGE_OF_ROWS.format(order=ORDERS[slice_.order])
    rows = _rows(run, slice_, page, limit=at_most, offset=0)
    return [row["question_id"] for row in rows]


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


def _ask(run: Run, slice_: Slice, query: str, **values: str | int) -> duckdb.DuckDBPyRelation:
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
    if slice_.passage:
        chosen.append("misread")
    if slice_.cell:
        base_right, method_right = CELLS[slice_.cell]
        chosen.append(f"base_right = {base_right} AND method_right = {method_right}")

    tables = f"""{ANSWERED},
        searched AS (SELECT *, {_popularity_condition(slice_.popularity)} AS in_range
            FROM answered WHERE {" AND ".join(searched) or "true"}),
        chosen AS (SELECT * FROM searched WHERE {" AND ".join(chosen)}) """
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
