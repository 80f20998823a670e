"""A run's questions: slices, chosen by relation, popularity and who is right, and one question with all about it.

Of a slice two ways of answering are compared. One question comes with every answer to it: passages, what each rule
decides, and the prompts as they were sent.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipelines import intervals, methods
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import Rule
from pipelines.answering import given_passages, passages, prompts
from pipelines.answering.passages import Source
from pipelines.errors import LongtailError
from pipelines.evaluation.popularity_bins import HALF_DECADES
from pipelines.explorer.run import (
    OPENED,
    PAGE,
    RUN,
    WHOSE,
    WORDS,
    Addressed,
    Run,
    lookup,
    one_of,
    page_of,
)
from pipelines.intervals import Interval
from pipelines.lm.language_model import Prompt
from pipelines.pages import table_texts
from pipelines.replug import ensemble
from pipelines.storage import database

CELLS = {
    "both": (True, True),
    "base": (True, False),
    "method": (False, True),
    "neither": (False, False),
}
JUDGEMENTS = {"published": "correct", "words": "correct_word"}  # as report: substring, whole words
ORDERS = {
    "popular": "popularity DESC NULLS LAST, question_id",
    "rare": "popularity NULLS LAST, question_id",
}
ORDERS["id"] = "question_id"
BOUNDS = [
    math.ceil(bound) for bound in HALF_DECADES[:16]
]  # between bands of popularity, those of the report's figures
UNKNOWN = "unknown"
BATCH = 10_000  # rows of a CSV file that are sent at a time
FORMULA = f"^([{re.escape(''.join(table_texts.FORMULA))}])"
MISREAD = "misread"  # a passage of the second answer holds a gold answer, and the answer is wrong

# What the words of a search are looked for in. Of a subject's address only the id, as each address has "wikidata".
SOUGHT = """lower(nfc_normalize(concat_ws(chr(10), question, question_id, string_split(s_uri, '/')[-1],
    array_to_string(possible_answers, chr(10)), base.prediction, method.prediction)))"""
SUBJECT = "coalesce(CAST(s_uri AS VARCHAR), subj, question_id)"  # whose questions are correlated

PASSAGES = ", ".join(
    f"{WHOSE.format(of=f'{side}.')} AS {side}_whose" for side in ("base", "method")
)
ANSWERED = """WITH answered AS (
    SELECT questions.*, CAST(s_pop AS DOUBLE) AS popularity,
        base.prediction AS base_answer, base.{judged} AS base_right, base.doc_title AS base_title,
        method.prediction AS method_answer, method.{judged} AS method_right, method.doc_title AS method_title,
        {passages}, method.doc_has_answer AS has_answer,
        coalesce(has_answer AND NOT method.{judged}, false) AS misread,
        {band} AS band, {inside} AS inside
    FROM questions JOIN base USING (question_id) JOIN method USING (question_id)
    WHERE {found}
) """


@dataclass(frozen=True)
class Slice(Addressed):
    """What is looked at; each field is an option of `longtail explore`, too."""

    PATH = "/questions"
    set: str  # question set
    lm: str  # language model, or an imported one
    base: str  # whose answers are compared: closed_book, if the model has such answers
    method: str  # with the answers by this method; of another model as LM/METHOD
    relation: str = ""  # "": all
    popularity: str = ""  # LEAST-MOST, either may be left out; or unknown; "": all
    cell: str = ""  # one of CELLS: who is right; "": all
    passage: str = ""  # MISREAD; "": all
    judged: str = "published"  # one of JUDGEMENTS
    words: str = ""  # that the question, its answers and ids have, in any order and case
    order: str = "popular"  # one of ORDERS
    page: int = 1

    @classmethod
    def of(cls, run: Run, asked: Mapping[str, str]) -> Slice:
        """The slice that is asked for by some fields; the others have their defaults.

        Raises LongtailError for a value that a field does not have, and where there are no answers.
        """
        if not (sets := run.sets):
            by = (
                f"{RUN}, or `longtail imports` brings some"
                if run.params.parts.answered
                else "this run asks none"
            )
            raise LongtailError(f"{run.data}/predictions: no answers; {by}")
        name = one_of(asked, "set", sets, sets[0])
        answers, popularity = run.answers(name), asked.get("popularity", "")
        lm = one_of(asked, "lm", answers, next(iter(answers)))
        of_base, base = _way(asked, "base", answers, lm, ("closed_book",))
        of_method, method = _way(
            asked, "method", answers, lm, ("dense", "bm25", *list(answers[lm])[1:])
        )
        if not re.fullmatch(rf"|{UNKNOWN}|\d{{0,15}}-\d{{0,15}}", popularity):
            raise LongtailError(
                f"popularity: {popularity!r}, expected a range LEAST-MOST, as 1000-9999, or {UNKNOWN}"
            )
        choices = {
            "relation": ["", *relations(run, name)],
            "cell": ["", *CELLS],
            "passage": ["", MISREAD],
        }
        choices |= {"judged": JUDGEMENTS, "order": ORDERS}
        chosen = {field: one_of(asked, field, of, next(iter(of))) for field, of in choices.items()}
        second = method if of_method == of_base else f"{of_method}/{method}"
        found = asked.get("words", "")[:WORDS]
        return cls(
            name,
            of_base,
            base,
            second,
            popularity=popularity,
            words=found,
            page=page_of(asked),
            **chosen,
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
    unjudged: int  # questions of the slice of which an answer is not judged
    misread: int  # questions of the slice that MISREAD is true of, of whatever cell and passage
    bands: dict[str, Counter]  # popularity's range -> cell -> questions, of whatever popularity
    accuracies: dict[
        str, tuple[Interval, Interval]
    ]  # band -> shares right; "": the slice, whatever cell and passage
    total: int  # questions of the slice

    @property
    def pages(self) -> int:
        return max(1, math.ceil(self.total / PAGE))


def band(place: int | None) -> str:
    """The range of popularity of a band by its place, from 0; of the last one and of none too."""
    if place is None:
        return UNKNOWN
    least, most = (
        (0 if place == 0 else BOUNDS[place - 1]),
        (BOUNDS[place] - 1 if place < len(BOUNDS) else ""),
    )
    return f"{least}-{most}"


def list_questions(run: Run, chosen: Slice) -> Listed:
    """The questions of a slice: one page of them, and the counts of all."""
    rows = _rows(run, chosen, _PAGE_OF, limit=PAGE, offset=PAGE * (chosen.page - 1))
    cell_of = {right: cell for cell, right in CELLS.items()}
    cells, bands, misread = Counter(), {}, 0
    whole = replace(chosen, cell="", passage="")
    for row in _rows(run, whole, _COUNTS):
        cell, n = cell_of.get((row["base_right"], row["method_right"])), row["n"] * row["inside"]
        misread += n * row["misread"]
        if row["misread"] or not chosen.passage:
            bands.setdefault(band(row["band"]), Counter())[cell] += row["n"]
            cells[cell] += n
    return Listed(
        rows=rows,
        cells={cell: cells[cell] for cell in CELLS},
        unjudged=cells[None],
        misread=misread,
        bands=bands,
        accuracies=_accuracies(_ask(run, whole, _JUDGED).to_arrow_table()),
        total=cells[chosen.cell] if chosen.cell else cells.total(),
    )


def _accuracies(judged: pa.Table) -> dict[str, tuple[Interval, Interval]]:
    """Both shares of right answers with their intervals, by band of popularity; of "" those of the slice."""
    places, subjects, inside, *right = (judged[name].to_numpy() for name in judged.column_names)
    masks = {"": inside.astype(bool), UNKNOWN: np.isnan(places)}
    masks |= {band(int(place)): places == place for place in np.unique(places[~np.isnan(places)])}
    return {
        name: tuple(intervals.share(of[mask], subjects[mask]) for of in right)
        for name, mask in masks.items()
    }


def to_csv(run: Run, chosen: Slice) -> Iterator[bytes]:
    """All questions of a slice as CSV, in its order, BATCH at a time; a text that spreadsheets would run has a '."""
    ways = [method if lm == chosen.lm else f"{lm} {method}" for lm, method in chosen.compared]
    columns = {
        f"{way} answer": f"{side}_answer"
        for way, side in zip(ways, ("base", "method"), strict=True)
    }
    columns |= {
        f"{way} right": f"{side}_right" for way, side in zip(ways, ("base", "method"), strict=True)
    }
    passage = f"{ways[1]} passage"
    columns |= {
        passage: "method_title",
        f"{passage} is of": "method_whose",
        f"{passage} has the answer": "has_answer",
    }
    named = ", ".join(f'{column} AS "{name}"' for name, column in columns.items())
    reader = _ask(run, chosen, _ALL.replace("{columns}", named)).to_arrow_reader(
        BATCH
    )  # errors come before any row

    def parts() -> Iterator[bytes]:
        for number, batch in enumerate(reader):
            columns = [
                pc.replace_substring_regex(of, FORMULA, r"'\1")
                if pa.types.is_string(of.type)
                else of
                for of in batch.columns
            ]
            written = io.BytesIO()
            csv.write_csv(
                pa.table(columns, batch.schema.names),
                written,
                csv.WriteOptions(include_header=number == 0),
            )
            yield written.getvalue()

    return parts()


def ids(run: Run, chosen: Slice, most: int) -> list[str]:
    """The ids of a slice's first questions, at most so many."""
    return [row["question_id"] for row in _rows(run, chosen, _PAGE_OF, limit=most, offset=0)]


_PAGE_OF = """SELECT question_id, relation, question, s_pop, possible_answers, base_answer, base_right, base_title,
    base_whose, method_answer, method_right, method_title, method_whose, s_uri FROM answered WHERE {where}
    ORDER BY {order} LIMIT $limit OFFSET $offset"""
_ALL = """SELECT question_id, question, relation, string_split(s_uri, '/')[-1] AS subject, s_pop AS popularity,
    to_json(possible_answers)::VARCHAR AS possible_answers, {columns} FROM answered WHERE {where} ORDER BY {order}"""
_COUNTS = """SELECT band, inside, misread, base_right, method_right, count(*) AS n
    FROM answered WHERE {of_relation} GROUP BY ALL ORDER BY ALL"""
_JUDGED = f"""SELECT CAST(band AS DOUBLE) AS band, hash({SUBJECT}) AS subject, inside, base_right, method_right
    FROM answered WHERE base_right IS NOT NULL AND method_right IS NOT NULL AND {{of_relation}}"""


def relations(run: Run, name: str) -> list[str]:
    found = database.ask(
        "SELECT DISTINCT relation FROM questions ORDER BY 1", questions=run.questions(name)
    )
    return [relation for (relation,) in found.fetchall() if relation]


def _way(
    asked: Mapping[str, str],
    field: str,
    answers: Mapping[str, Mapping[str, Path]],
    lm: str,
    likely: Sequence[str],
) -> tuple[str, str]:
    """The (language model, method) that a field names as LM/METHOD, or as METHOD for `lm`; by default a likely one."""
    of, _, method = (asked.get(field) or "").rpartition("/")
    of = one_of({field: of}, field, answers, lm)
    default = next((name for name in likely if name in answers[of]), next(iter(answers[of])))
    return of, one_of({field: method}, field, answers[of], default)


def _rows(run: Run, chosen: Slice, query: str, **values: str | int) -> list[dict]:
    return _ask(run, chosen, query, **values).to_arrow_table().to_pylist()


def _ask(run: Run, chosen: Slice, query: str, **values: str | int) -> duckdb.DuckDBPyRelation:
    """A query over the slice's questions with both answers (ANSWERED)."""
    least, _, most = chosen.popularity.partition("-")
    inside, of_relation = "true", "relation = $relation" if chosen.relation else "true"
    if chosen.popularity == UNKNOWN:
        inside = "s_pop IS NULL"
    elif chosen.popularity:
        inside = f"coalesce(s_pop BETWEEN {int(least or 0)} AND {int(most or 10**15)}, false)"
    where = ["inside", of_relation, *["misread"] * bool(chosen.passage)]
    if chosen.cell:
        right = CELLS[chosen.cell]
        where.append(f"base_right = {right[0]} AND method_right = {right[1]}")
    query = query.format(
        where=" AND ".join(where), order=ORDERS[chosen.order], of_relation=of_relation
    )
    if "$relation" in query:
        values["relation"] = chosen.relation
    words = {
        f"word{i}": word
        for i, word in enumerate(unicodedata.normalize("NFC", chosen.words).lower().split())
    }
    answered = ANSWERED.format(
        judged=JUDGEMENTS[chosen.judged],
        band=f"CASE WHEN s_pop IS NOT NULL THEN len(list_filter({BOUNDS}, lambda bound: bound <= s_pop)) END",
        passages=PASSAGES,
        inside=inside,
        found=" AND ".join(f"contains({SOUGHT}, ${name})" for name in words) or "true",
    )
    base, method = (run.answers(chosen.set)[lm][name] for lm, name in chosen.compared)
    files = {"questions": run.questions(chosen.set), "base": base, "method": method}
    return database.ask(answered + query, values | words, **files)


@dataclass(frozen=True)
class Question:
    row: dict[str, Any]  # of the question set
    answers: dict[str, dict[str, dict]]  # language model -> method -> its row of predictions
    decisions: dict[
        str, list[dict]
    ]  # language model -> what each of its rules decides (`decisions_by_rules`)
    documents: dict[
        str, dict
    ]  # id -> row of docs.parquet, of every best passage of the questions read together

    @property
    def listed(self) -> list[tuple[str, str, dict]]:
        """(model, method, answer) of each answer."""
        return [
            (lm, method, answer) for lm, by in self.answers.items() for method, answer in by.items()
        ]

    @property
    def read(self) -> list[tuple[dict, list[tuple[str, str, dict]]]]:
        """Each passage with those of `listed` that it was the best one of; the most used one comes first."""
        readers: dict[str, list[tuple[str, str, dict]]] = {}
        for one in self.listed:
            readers.setdefault(one[2]["doc_id"], []).append(one)
        used = sorted(readers.items(), key=lambda pair: -len(pair[1]))
        return [(self.documents[id_], by) for id_, by in used if id_ in self.documents]

    @property
    def written(self) -> list[tuple[str, str, str]]:
        """(model, method, passage) of each passage that a language model wrote itself."""
        return [
            (lm, method, answer["passage"])
            for lm, method, answer in self.listed
            if answer["passage"]
        ]


@dataclass(frozen=True)
class Sent:
    """The prompts of an answer, made again: one, or one for each document of an ensemble."""

    prompts: list[Prompt]
    documents: list[dict]  # id, title, similarity, and weight in an ensemble; none for closed-book
    same: bool  # whether they are those that were sent, by their hash


def read_answers_to(run: Run, dataset: str, question_ids: Sequence[str]) -> list[Question]:
    """Questions with all there is about them, in this order. Raises LongtailError for an id that the set lacks."""
    asked = {
        row["question_id"]: row
        for row in lookup(run.questions(dataset), "question_id", question_ids)
    }
    if missing := [id_ for id_ in question_ids if id_ not in asked]:
        raise LongtailError(f"id: {dataset} has no question {missing[0]!r}")
    answers = _answers(run, dataset, question_ids)
    known = {
        answer["doc_id"] for of in answers.values() for by in of.values() for answer in by.values()
    } - {None}
    docs = run.data / f"corpus/{run.params.parts.datastore}/docs.parquet"
    found = lookup(docs, "id", sorted(known), "title", "text") if known and docs.is_file() else []
    documents = {document["id"]: document for document in found}
    of_models = {lm: run.rules(dataset, lm) for lm in run.answers(dataset)}
    read = []
    for id_ in question_ids:
        of, by_lm = asked[id_], answers[id_]
        decisions = {
            lm: decisions_by_rules(by_name, of, by_lm)
            for lm, by_name in of_models.items()
            if by_name
        }
        read.append(Question(of, by_lm, decisions, documents))
    return read


def _answers(
    run: Run, dataset: str, question_ids: Sequence[str]
) -> dict[str, dict[str, dict[str, dict]]]:
    """Question -> language model -> method -> the row of the answer, with the `measure` that its similarity is."""
    answers: dict[str, dict] = {id_: {} for id_ in question_ids}
    for lm, by_method in run.answers(dataset).items():
        for method, file in by_method.items():
            measure = methods.measure(method, run.params) if lm in run.params.lms else "similarity"
            for row in lookup(
                file, "question_id", question_ids, "*", f"{WHOSE.format(of='')} AS whose"
            ):
                answers[row["question_id"]].setdefault(lm, {})[method] = row | {"measure": measure}
    return answers


def decisions_by_rules(
    by_name: dict[str, Rule], asked: dict, answers: dict[str, dict[str, dict]]
) -> list[dict]:
    """The fields of each rule's `Decision`, with its `name` and the row of the `answer` that it takes, if there is one.

    `takes` is that answer's method if a rule chooses between two answers with passages. A threshold of None is always.
    """
    decisions = []
    for name, file in by_name.items():
        decided = file.decide(asked["relation"], asked["s_pop"])
        lm, _, method = (file.tail if decided.retrieve else file.popular).partition("/")
        cut = {"threshold": decided.threshold if math.isfinite(decided.threshold) else None}
        taken = {
            "answer": answers.get(lm, {}).get(method),
            "takes": method if BELOW in name else "",
        }
        decisions.append(decided._asdict() | cut | {"name": name} | taken)
    return decisions


def sent(run: Run, dataset: str, lm: str, method: str, question: Question) -> Sent:
    """The prompts of one answer, made again by the code that made them. LongtailError where that can't be done."""
    chosen, answer = run.params, question.answers.get(lm, {}).get(method)
    if answer is None:
        raise LongtailError(f"prompt: no answer by {lm}, {method}")
    if lm not in chosen.lms:
        raise LongtailError(f"prompt: {lm} answered elsewhere, so its prompts are not known here")
    kind = methods.split(method)[0]
    if kind != "genread":
        source = OPENED.source(method, run.params, run.data)
    elif chosen.answer.of(chosen.lm[lm]).n_shots and chosen.answer.shot_passages:
        raise LongtailError(
            "prompt: the language model wrote the demonstrations' passages, which are not kept"
        )
    else:
        source = Source(lambda _: pa.table({"texts": [[answer["passage"]]]}), 1, written=True)
    pool = prompts.read_questions(given_passages.read_asked(dataset, chosen, run.data)[0])
    place = pool.ids.index(answer["question_id"])
    made, _, found = passages.prompts_of_question(chosen, dataset, pool, place, lm, source)
    documents = (
        []
        if source is None or source.written
        else _documents(run, kind, found.slice(0, 1).to_pylist()[0])
    )
    return Sent(made, documents, prompts.prompt_hash(*made) == answer["prompt_hash"])


def _documents(run: Run, kind: str, found: dict) -> list[dict]:
    """The documents of a row of passages.SCHEMA, with their weights in an ensemble."""
    weights: list[float | None] = [None] * len(found["doc_ids"])
    if kind in methods.ENSEMBLES:
        similarities = np.array([found["similarities"]], float)
        weights = np.exp(ensemble.log_weights(similarities, run.params.replug.temperature))[
            0
        ].tolist()
    rows = zip(found["doc_ids"], found["titles"], found["similarities"], weights, strict=True)
    return [
        {"id": id_, "title": title, "similarity": of, "weight": weight}
        for id_, title, of, weight in rows
        if id_
    ]
