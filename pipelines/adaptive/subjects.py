"""What a question asks: its relation, found by a template, and the subjects it may be about (PopQA,
section 3.3).
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import name_of, read_relations
from pipelines.questions.published import ENTITY
from pipelines.storage import database

# SQL that makes names comparable, as `_plain` and re.IGNORECASE do for questions.
PLAIN = "lower(replace(replace(text, chr(8217), chr(39)), '  ', ' '))"

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


def read_question(
    question: str, data: Path, qid: str | None = None, language: Language = ENGLISH
) -> Reading | None:
    """The relation and subject of a question; None if it follows no template.

    If it follows several templates, the first counts whose subject has the relation in Wikidata,
    then the first with a subject. `qid` names the subject. Raises LongtailError if there is no such
    entity, or no table of entities.
    """
    file = data / "raw/entityquestions/relation_query_templates.json"
    readings = []
    for template, names in matches(question, templates(file, language)):
        for name in names:
            namesakes = candidates(name, template, data, qid)
            # the likeliest of the namesakes, or the one called `qid`
            called = [candidate for candidate in namesakes if qid in (None, candidate.qid)]
            subject = called[0] if called else None
            readings.append(Reading(template, name, namesakes, subject))
            if namesakes:
                break

    if qid and not any(reading.subject for reading in readings):
        fault = "the question follows no template, which would name one"
        if readings:
            fault = "no such entity in the tables"
        raise LongtailError(f"--subject {qid}: {fault}; leave it out to see what there is")
    # min takes the first of readings of equal rank
    return min(readings, key=_rank, default=None)


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

    wordings = json.loads(file.read_text(encoding="utf-8"))
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
    name: str, template: Template, data: Path, qid: str | None = None
) -> list[Candidate]:
    """The entities whose label or alias is `name`, whatever the case, and the one called `qid`; the
    likeliest first.

    Entities that have the relation come first, then labels before aliases, then the most viewed,
    last those of unknown popularity. They are searched in the entity table, if the run has one, and
    in the question set. The popularities are those of the question set, which thresholds were tuned
    to, if it has them.
    """
    files = {
        "entities": data / "knowledge/triples/entities.parquet",
        "claims": data / "knowledge/wikidata/claims.parquet",
        "questions": data / "questions" / template.dataset / f"{template.dataset}.parquet",
    }
    columns = "s_aliases, s_wiki_title" if template.dataset == "popqa" else "[], NULL"
    query = f"""WITH named AS MATERIALIZED (
        SELECT qid, label AS name, aliases, wiki_title, popularity, false AS asked FROM entities
        WHERE qid = $qid OR plain(label) = plain($name)
            OR list_contains(list_transform(aliases, lambda x: plain(x)), plain($name))
        UNION ALL
        SELECT replace(s_uri, '{ENTITY}', '') AS qid, subj, {columns}, s_pop, true FROM questions
        WHERE relation = $relation
            AND (s_uri = '{ENTITY}' || $qid OR plain(subj) = plain($name)) AND qid != ''
    ), known AS (
        SELECT qid, coalesce(min(name) FILTER (NOT asked), min(name)) AS label,
            flatten(list(aliases)) AS aliases, max(wiki_title) AS title,
            coalesce(max(popularity) FILTER (asked), max(popularity)) AS popularity,
            bool_or(asked) AS asked,
            plain(label) = plain($name) AS by_label
        FROM named GROUP BY qid
    ), stated AS (
        SELECT DISTINCT 'Q' || s AS qid FROM claims
        WHERE p = substr($relation, 2)::BIGINT
            AND s IN (SELECT TRY_CAST(substr(qid, 2) AS BIGINT) FROM named)
    )
    SELECT qid, label, title, popularity,
        CASE WHEN by_label THEN label
            ELSE coalesce(list_filter(aliases, lambda x: plain(x) = plain($name))[1], label) END,
        asked OR qid IN (FROM stated) AS states
    FROM known ORDER BY states DESC, by_label DESC, popularity DESC NULLS LAST, length(qid), qid"""
    with duckdb.connect() as db:
        db.execute("CREATE VIEW claims AS SELECT 0 AS s, 0 AS p WHERE false")
        nothing = "'' AS qid, '' AS label, [''] AS aliases, '' AS wiki_title, 0 AS popularity"
        db.execute(f"CREATE VIEW entities AS SELECT {nothing} WHERE false")
        for table, file in files.items():
            if file.is_file() or table == "questions":
                database.view(db, table, file)
        db.execute(f"CREATE TEMP MACRO plain(text) AS {PLAIN}")
        values = {"name": name, "relation": template.relation, "qid": qid}
        rows = db.execute(query, values).fetchall()
    return [Candidate(*row) for row in rows]


def _plain(text: str) -> str:
    """The text with one kind of apostrophe and single spaces, in Unicode's form NFC."""
    normal = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    return " ".join(normal.split())
