"""What a question asks: the relation, by its template, and the subjects that it may be about (PopQA, section 3.3)."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.errors import LongtailError
from pipelines.questions.published import ENTITY
from pipelines.relations import RELATIONS

# What makes no difference between names, as in questions (`_plain`, and case).
PLAIN = "lower(replace(replace(text, chr(8217), chr(39)), '  ', ' '))"


@dataclass(frozen=True)
class Template:
    dataset: str  # popqa or entityquestions: whose thresholds and demonstrations go with it
    relation: str  # "P57"
    name: str  # "director"; the relation's id where it has no name
    wording: str  # one {} where the subject's name goes
    asked: str  # the wording that was evaluated, of which `wording` may be a paraphrase


@dataclass(frozen=True)
class Candidate:
    qid: str
    label: str
    title: str | None  # of the Wikipedia article
    popularity: int | None  # monthly page views
    name: str  # the label or alias that the question has
    states: bool  # Wikidata states the question's relation of it


@dataclass(frozen=True)
class Reading:
    """What a question was taken to ask."""

    template: Template
    name: str  # what stands in the subject's place
    candidates: list[Candidate]  # the likeliest first
    subject: Candidate | None  # the first, or the one that was asked for


def read(question: str, data: Path, qid: str | None = None) -> Reading | None:
    """The relation and subject of a question; None where it follows no template.

    Of several templates the first counts whose subject Wikidata states the relation of, then the first with a subject.
    `qid` names the subject. Raises LongtailError where there is no such entity, or no table of them.
    """
    readings = []
    for template, names in matches(question, templates(data / "raw/entityquestions/relation_query_templates.json")):
        for name in names:
            found = candidates(name, template, data, qid)
            subject = next((one for one in found if qid in (None, one.qid)), None)
            readings.append(Reading(template, name, found, subject))
            if found:
                break
    if qid and not any(reading.subject for reading in readings):
        lacks = "no such entity in the tables" if readings else "the question follows no template, which would name one"
        raise LongtailError(f"--subject {qid}: {lacks}; leave it out to see what there is")
    known = [one for one in readings if one.subject]
    stated = [one for one in known if one.subject.states]
    return next(iter(stated or known or readings), None)


def templates(file: Path) -> list[Template]:
    """PopQA's templates, then those of EntityQuestions in `file`, if it is there."""
    found = [Template("popqa", one.pid, one.name, one.template, one.template) for one in RELATIONS.values()]
    others = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for key, wording in others.items():  # "P19", and a paraphrase of it: "P19_similar"
        if "[X]" not in wording:
            continue
        pid = key.partition("_")[0]
        texts = (text.replace("[X]", "{}") for text in (wording, others.get(pid, wording)))
        found.append(Template("entityquestions", pid, RELATIONS[pid].name if pid in RELATIONS else pid, *texts))
    return found


def matches(question: str, known: list[Template]) -> list[tuple[Template, list[str]]]:
    """The templates that a question follows, the longest first, with what may be the subject's name, likeliest first.

    Case, spaces, the kind of apostrophe and a missing question mark make no difference; a name may end in one itself.
    """
    text = _plain(question)
    endings = (text.removesuffix("?").rstrip(), text.rstrip("? "), text)
    found = []
    for template in known:
        before, after = (re.escape(part) for part in _plain(template.wording).rstrip("?").split("{}"))
        matched = (re.fullmatch(f"{before}(.+){after}", one, re.IGNORECASE) for one in endings)
        if names := dict.fromkeys(name for match in matched if match and (name := match[1].strip())):
            found.append((template, list(names)))
    return sorted(found, key=lambda one: -len(one[0].wording))


def candidates(name: str, template: Template, data: Path, qid: str | None = None) -> list[Candidate]:
    """The entities whose label or an alias is `name`, whatever the case, and the one called `qid`; the likeliest first.

    First those that the relation is stated of, then by label before alias, then the most viewed. They are looked for
    in the entity table and, as published questions may be about others, in the question set, whose popularities are
    those that thresholds were tuned to.
    """
    files = {
        "entities": data / "knowledge/triples/entities.parquet",
        "claims": data / "knowledge/wikidata/claims.parquet",
        "questions": data / "questions" / template.dataset / f"{template.dataset}.parquet",
    }
    for file in files.values():
        if not file.is_file():
            raise LongtailError(f"{file}: no such file; `longtail run` writes it")
    columns = "s_aliases, s_wiki_title" if template.dataset == "popqa" else "[], NULL"
    query = f"""WITH named AS MATERIALIZED (
        SELECT qid, label, aliases, wiki_title, popularity, false AS asked FROM read_parquet($entities)
        WHERE qid = $qid OR plain(label) = plain($name)
            OR list_contains(list_transform(aliases, lambda x: plain(x)), plain($name))
        UNION ALL
        SELECT replace(s_uri, '{ENTITY}', '') AS qid, subj, {columns}, s_pop, true FROM read_parquet($questions)
        WHERE relation = $relation AND (s_uri = '{ENTITY}' || $qid OR plain(subj) = plain($name)) AND qid != ''
    ), known AS (
        SELECT qid, arg_min(label, (asked, label)) AS label, flatten(list(aliases)) AS aliases,
            max(wiki_title) AS title, coalesce(max(popularity) FILTER (asked), max(popularity)) AS popularity,
            bool_or(asked) AS asked, plain(arg_min(label, (asked, label))) = plain($name) AS by_label
        FROM named GROUP BY qid
    ), stated AS (
        SELECT DISTINCT 'Q' || s AS qid FROM read_parquet($claims)
        WHERE p = substr($relation, 2)::BIGINT AND s IN (SELECT TRY_CAST(substr(qid, 2) AS BIGINT) FROM named)
    )
    SELECT qid, label, title, popularity,
        CASE WHEN by_label THEN label
            ELSE coalesce(list_filter(aliases, lambda x: plain(x) = plain($name))[1], label) END,
        asked OR qid IN (FROM stated) AS states
    FROM known ORDER BY states DESC, by_label DESC, popularity DESC NULLS LAST, length(qid), qid"""
    values = {name: str(file) for name, file in files.items()}
    with duckdb.connect() as db:
        db.execute(f"CREATE TEMP MACRO plain(text) AS {PLAIN}")
        rows = db.execute(query, values | {"name": name, "relation": template.relation, "qid": qid}).fetchall()
    return [Candidate(*row) for row in rows]


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).replace("\u2019", "'").split())
