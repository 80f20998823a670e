"""What a question asks: its relation, found by a template, and the subjects it may be about (PopQA,
section 3.3).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import name_of, read_relations
from pipelines.questions.published import ENTITY
from pipelines.storage import database
from pipelines.storage.atomic import read_json

KNOWLEDGE = {  # view -> its file in a run's data
    "entities": "knowledge/triples/entities.parquet",
    "claims": "knowledge/wikidata/claims.parquet",
}
WORDINGS = "raw/entityquestions/relation_query_templates.json"
MENTIONED = pa.schema(
    {
        "number": pa.int32(),
        "dataset": pa.string(),
        "relation": pa.string(),
        "name": pa.string(),
    }
)
# SQL that makes names comparable, as `_plain` and re.IGNORECASE do for questions.
COMPARABLE = "lower(replace(replace(text, chr(8217), chr(39)), '  ', ' '))"
EMPTY_VIEWS = {  # view that a run may lack -> its columns
    "entities": "'' AS qid, '' AS label, [''] AS aliases, '' AS wiki_title, 0 AS popularity",
    "claims": "0 AS s, 0 AS p",
    "popqa": "'' AS relation, '' AS s_uri, '' AS subj, [''] AS s_aliases, '' AS s_wiki_title, "
    "0 AS s_pop",
    "entityquestions": "'' AS relation, '' AS s_uri, '' AS subj, 0 AS s_pop",
}
CANDIDATES = f"""WITH names AS (
        SELECT *, comparable(name) AS comparable FROM mentioned
    ), asked_about AS (
        SELECT 'popqa' AS dataset, relation, s_uri, subj, s_aliases, s_wiki_title, s_pop FROM popqa
        UNION ALL
        SELECT 'entityquestions', relation, s_uri, subj, [], NULL, s_pop FROM entityquestions
    ), spelled AS (
        SELECT qid, unnest(list_prepend(label, aliases)) AS spelling FROM entities
    ), named AS MATERIALIZED (
        SELECT number, qid, label AS name, aliases, wiki_title, popularity, false AS asked
        FROM (
            SELECT number, qid FROM names JOIN spelled ON comparable(spelling) = comparable
            UNION
            SELECT number, $qid FROM names WHERE $qid IS NOT NULL
        ) JOIN entities USING (qid)
        UNION ALL
        SELECT number, replace(s_uri, '{ENTITY}', '') AS qid, subj, s_aliases, s_wiki_title, s_pop,
            true
        FROM names JOIN asked_about USING (dataset, relation)
        WHERE (qid = $qid OR comparable(subj) = comparable) AND qid != ''
    ), known AS (
        SELECT number, qid, coalesce(min(name) FILTER (NOT asked), min(name)) AS label,
            flatten(list(aliases)) AS aliases, max(wiki_title) AS title,
            coalesce(max(popularity) FILTER (asked), max(popularity)) AS popularity,
            bool_or(asked) AS asked
        FROM named GROUP BY number, qid
    ), stated AS (
        SELECT DISTINCT 'Q' || s AS qid, 'P' || p AS relation FROM claims
        WHERE p IN (SELECT substr(relation, 2)::BIGINT FROM names)
            AND s IN (SELECT TRY_CAST(substr(qid, 2) AS BIGINT) FROM named)
    )
    SELECT number, qid, label, title, popularity,
        CASE WHEN comparable(label) = comparable THEN label ELSE coalesce(
            list_filter(aliases, lambda x: comparable(x) = comparable)[1], label
        ) END,
        asked OR (qid, relation) IN (FROM stated) AS states
    FROM known JOIN names USING (number)
    ORDER BY number, states DESC, comparable(label) = comparable DESC,
        popularity DESC NULLS LAST, length(qid), qid"""

MARKS = "?\uff1f"  # question marks: ASCII's and the wide one


@dataclass(frozen=True)
class Template:
    """A wording that questions about a relation follow."""

    dataset: str  # popqa or entityquestions: whose thresholds and demonstrations go with it
    relation: str  # "P57"
    name: str  # "director"; the relation's id if it has no name
    wording: str  # with {} in the place of the subject's name
    asked: str  # the wording that was evaluated; `wording` may be a paraphrase of it


@dataclass(frozen=True)
class Candidate:
    """An entity that a question may be about."""

    qid: str
    label: str
    title: str | None  # of the Wikipedia article
    popularity: int | None  # monthly page views; None if they are not known
    name: str  # the label or alias that the question has
    states: bool  # Wikidata states the question's relation of it


@dataclass(frozen=True)
class Reading:
    """What a question was taken to ask."""

    template: Template
    name: str  # the text in the subject's place
    candidates: list[Candidate]  # the likeliest first
    subject: Candidate | None  # the first candidate, or the one that was asked for


@dataclass(frozen=True)
class Mention:
    """A text in the subject's place of a question's template."""

    question: int  # its place among the questions
    template: Template
    name: str


def read_question(
    question: str, data: Path, qid: str | None = None, language: Language = ENGLISH
) -> Reading | None:
    """The relation and subject of a question; None if it follows no template.

    If it follows several templates, the first counts whose subject has the relation in Wikidata,
    then the first with a subject. `qid` names the subject. Raises LongtailError if there is no such
    entity, or no table of entities.
    """
    mentions = find_mentions([question], templates(data / WORDINGS, language))
    datasets = {mention.template.dataset for mention in mentions}
    with duckdb.connect() as db:
        for table, file in KNOWLEDGE.items():
            if (data / file).is_file():
                database.view(db, table, data / file)
        for dataset in sorted(datasets):
            database.view(db, dataset, data / "questions" / dataset / f"{dataset}.parquet")
        readings = read_mentions(db, mentions, qid)

    if qid and not any(reading.subject for reading in readings):
        fault = "the question follows no template, which would name one"
        if readings:
            fault = "no such entity in the tables"
        raise LongtailError(f"--subject {qid}: {fault}; leave it out to see what there is")
    # min takes the first of readings of equal rank
    return min(readings, key=_rank, default=None)


def read_questions(
    db: duckdb.DuckDBPyConnection, questions: Sequence[str], known: list[Template]
) -> list[Reading | None]:
    """What `read_question` reads in each question, by the tables entities and, if it is there,
    claims.
    """
    mentions = find_mentions(questions, known)
    readings_of: list[list[Reading]] = [[] for _ in questions]
    for mention, reading in zip(mentions, read_mentions(db, mentions), strict=True):
        readings_of[mention.question].append(reading)
    return [min(readings, key=_rank, default=None) for readings in readings_of]


def find_mentions(questions: Sequence[str], known: list[Template]) -> list[Mention]:
    """The possible mentions of the questions' subjects, those of each question likeliest first."""
    mentions = []
    for number, question in enumerate(questions):
        for template, names in matches(question, known):
            mentions += [Mention(number, template, name) for name in names]
    return mentions


def read_mentions(
    db: duckdb.DuckDBPyConnection, mentions: list[Mention], qid: str | None = None
) -> list[Reading]:
    """The reading of each mention, in the same order; its subject is the one called `qid`, or else
    the likeliest of the namesakes.
    """
    readings = []
    for mention, namesakes in zip(mentions, candidates(db, mentions, qid), strict=True):
        called = [candidate for candidate in namesakes if qid in (None, candidate.qid)]
        subject = called[0] if called else None
        readings.append(Reading(mention.template, mention.name, namesakes, subject))
    return readings


def _rank(reading: Reading) -> int:
    """How likely a reading is, 0 the likeliest: 0 if Wikidata states the relation of its subject, 1
    if it has a subject, else 2.
    """
    if reading.subject is None:
        return 2
    return 0 if reading.subject.states else 1


def templates(file: Path, language: Language = ENGLISH) -> list[Template]:
    """PopQA's templates in the language, then those of EntityQuestions in `file`, if it is
    there.
    """
    known = []
    for relation in read_relations(language=language).values():
        wording = relation.template
        known.append(Template("popqa", relation.pid, relation.name, wording, asked=wording))
    if not file.is_file():
        return known

    wordings = read_json(file)
    for key, wording in wordings.items():  # "P19", and a paraphrase of it: "P19_similar"
        if "[X]" not in wording:
            continue
        pid = key.partition("_")[0]
        asked = wordings.get(pid, wording).replace("[X]", "{}")
        wording = wording.replace("[X]", "{}")
        known.append(Template("entityquestions", pid, name_of(pid), wording, asked))
    return known


def matches(question: str, known: list[Template]) -> list[tuple[Template, list[str]]]:
    """The templates that a question follows, longest first, each with possible names of the
    subject, likeliest first.

    Case, spaces, the kind of apostrophe and a missing question mark make no difference. A name may
    end in a question mark itself.
    """
    text = _plain(question)
    without_mark = text[:-1].rstrip() if text[-1:] in MARKS else text
    endings = (without_mark, text.rstrip(f"{MARKS} "), text)
    matching = []
    for template in known:
        wording = _plain(template.wording).rstrip(f"{MARKS} ")
        before, after = wording.split("{}")
        pattern = re.compile(f"{re.escape(before)}(.+){re.escape(after)}", re.IGNORECASE)
        names = []
        for ending in endings:
            match = pattern.fullmatch(ending)
            name = match[1].strip() if match else ""
            if name:
                names.append(name)
        if names:
            distinct_names = list(dict.fromkeys(names))
            matching.append((template, distinct_names))

    def wording_length(match: tuple[Template, list[str]]) -> int:
        return len(match[0].wording)

    return sorted(matching, key=wording_length, reverse=True)


def candidates(
    db: duckdb.DuckDBPyConnection, mentions: list[Mention], qid: str | None = None
) -> list[list[Candidate]]:
    """For each mention, the entities whose label or alias is its name, whatever the case, and the
    one called `qid`; the likeliest first.

    Entities that have the relation come first, then labels before aliases, then the most viewed,
    last those of unknown popularity. They are searched in the views entities, claims, popqa and
    entityquestions, as far as `db` has them. The popularities are those of the question sets, which
    thresholds were tuned to, if they have them.
    """
    for view, columns in EMPTY_VIEWS.items():
        db.execute(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT {columns} WHERE false")
    db.execute(f"CREATE OR REPLACE TEMP MACRO comparable(text) AS {COMPARABLE}")
    rows = []
    for number, mention in enumerate(mentions):
        row = {
            "number": number,
            "dataset": mention.template.dataset,
            "relation": mention.template.relation,
            "name": mention.name,
        }
        rows.append(row)
    db.register("mentioned", pa.Table.from_pylist(rows, schema=MENTIONED))

    candidates_of: list[list[Candidate]] = [[] for _ in mentions]
    for number, *candidate in db.execute(CANDIDATES, {"qid": qid}).fetchall():
        candidates_of[number].append(Candidate(*candidate))
    return candidates_of


def _plain(text: str) -> str:
    """The text with one kind of apostrophe and single spaces, in Unicode's form NFC."""
    normal = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    return " ".join(normal.split())
