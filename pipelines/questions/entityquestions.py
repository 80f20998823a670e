"""EntityQuestions, each question linked to its subject and its popularity (PopQA, 3.3).

Writes data/questions/entityquestions/{entityquestions,rejects}.parquet. EntityQuestions does not
annotate the subject. Its mention is the text that fills the place in the question's template. A
mention is linked if it names exactly one entity that has the question's relation in Wikidata.
"""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.questions.published import ENTITY
from pipelines.questions.settings import Settings
from pipelines.questions.subject_splits import create_split_of
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import is_readable, parse_whole, visible_files
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.questions import ENTITYQUESTIONS

RAW = Path("data/raw/entityquestions")
TEMPLATES = "relation_query_templates.json"
ENTITIES = Path("data/knowledge/triples/entities.parquet")
CLAIMS = Path("data/knowledge/wikidata/claims.parquet")
# how a mention was linked (the first two), or why it was not
LINKS = ("label", "alias", "ambiguous", "another_type", "without_article", "not_found")

READ = pa.schema(
    {
        "number": pa.int64(),  # of the question, over all files
        "question_id": pa.string(),
        "relation": pa.string(),
        "subj": pa.string(),
        "question": pa.string(),
        "possible_answers": pa.list_(pa.string()),
    }
)


def build_entityquestions(
    settings: Settings,
    out: Path,
    raw: Path = RAW,
    entities: Path = ENTITIES,
    claims: Path = CLAIMS,
) -> dict[str, float]:
    """Write the stage's folder `out` from the files in `raw`; return counts.

    Without files the table is empty.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = read_questions(raw, rejects)
    with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
        database.view(db, "labelled", entities)
        numbers = "SELECT * REPLACE (substr(qid, 2)::BIGINT AS qid) FROM labelled"
        db.execute(f"CREATE TEMP VIEW entities AS {numbers}")
        database.view(db, "claims", claims)
        create_split_of(db, settings.seed, settings.popqa.train_share)
        db.register("questions", questions)
        linked = link_subjects(db)
        db.register("linked", linked)
        counts = _count_links(db)
    with atomic(out) as folder:
        folder.mkdir()
        table = linked.combine_chunks()
        parquet.write_parquet(table, folder / ENTITYQUESTIONS.name, ENTITYQUESTIONS)
        rejects.write(folder / "rejects.parquet")
    return counts | rejects.metrics()


def read_questions(raw: Path, rejects: Rejects) -> pa.Table:
    """All questions, with the columns of READ, sorted by file and row; question_id is
    "<relation>-<row>".

    Bad entries go to `rejects` (bad_entry, no_answer, off_template). Raises LongtailError on a file
    that isn't JSON or that has no template.
    """
    files = [file for file in visible_files(raw) if file != raw / TEMPLATES]
    for file in files:
        if not re.fullmatch(r"P\d+\.test\.json", file.relative_to(raw).as_posix()):
            raise LongtailError(
                f"{file}: expected P<number>.test.json or {TEMPLATES}; leave it out of fetch.files"
            )
    files.sort(key=_by_number)
    templates = _read_json(raw / TEMPLATES, dict) if files else {}

    rows: list[dict] = []
    for file in files:
        relation = file.name.split(".")[0]
        template = templates.get(relation, "")
        if "[X]" not in template:
            raise LongtailError(
                f"{raw / TEMPLATES}: no template with [X] for {file.name}, expected one"
            )
        before, after = template.split("[X]")
        for number, entry in enumerate(_read_json(file, list), start=1):
            rejects.read += 1
            reason, mention = _mention(entry, before, after)
            if reason:
                rejects.add(file, number, reason, json.dumps(entry, ensure_ascii=False))
                continue
            row = {
                "number": len(rows),
                "question_id": f"{relation}-{number}",
                "relation": relation,
                "subj": mention,
                "question": entry["question"],
                "possible_answers": entry["answers"],
            }
            rows.append(row)
    rejects.check()
    return pa.Table.from_pylist(rows, schema=READ)


def _by_number(file: Path) -> tuple[int, str]:
    """The order of relations by number: P9 comes before P10."""
    return len(file.name), file.name


def link_subjects(db: duckdb.DuckDBPyConnection) -> pa.Table:
    """Table questions, in its order, with s_pop and s_uri (null unless linked), split, matched, and
    `link` of LINKS.

    A candidate is an entity that is named exactly like the mention and has the question's relation
    in table claims. Aliases count only if no candidate has the mention as its label. Two candidates
    are ambiguous: answers could decide between them, but then a subject would be chosen by what it
    is tested on. Without a candidate, `link` says what has the name. The claims of entities without
    an article are not read. Questions that are not linked are for testing.
    """
    return database.read_rows(
        db,
        f"""WITH mentions AS (SELECT DISTINCT relation, subj FROM questions),
        named AS (
            SELECT relation, subj, qid, wiki_title, popularity, true AS by_label
            FROM mentions JOIN entities ON label = subj
            UNION ALL
            SELECT DISTINCT relation, subj, qid, wiki_title, popularity, false
            FROM mentions JOIN (SELECT *, unnest(aliases) AS alias FROM entities) ON alias = subj
        ), typed AS (
            SELECT DISTINCT s AS qid, 'P' || p AS relation, true AS typed
            FROM claims SEMI JOIN named ON s = qid
        ), counted AS (
            SELECT relation, subj, count(*) FILTER (typed AND by_label) AS labels,
                count(*) FILTER (typed AND NOT by_label) AS aliases, count(wiki_title) AS articles,
                arg_max(qid, by_label) FILTER (typed) AS qid,
                -- arg_max would pass over a null
                arg_max_null(popularity, by_label) FILTER (typed) AS popularity
            FROM named LEFT JOIN typed USING (qid, relation) GROUP BY ALL
        ), judged AS (
            SELECT *, CASE WHEN labels = 1 THEN 'label' WHEN labels = 0 AND aliases = 1 THEN 'alias'
                WHEN labels + aliases > 0 THEN 'ambiguous' WHEN articles > 0 THEN 'another_type'
                ELSE 'without_article' END AS link
            FROM counted
        )
        SELECT question_id, relation, subj, question, possible_answers,
            CASE WHEN link IN ('label', 'alias') THEN popularity END AS s_pop,
            CASE WHEN link IN ('label', 'alias') THEN '{ENTITY}Q' || qid END AS s_uri,
            coalesce(split_of(s_uri), 'test') AS split, s_uri IS NOT NULL AS matched,
            coalesce(link, 'not_found') AS link
        FROM questions LEFT JOIN judged USING (relation, subj) ORDER BY number""",
    )


def _count_links(db: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Counts over table linked: questions by split and `link`, and the share linked, also by
    relation.
    """
    totals = """SELECT count(*) AS questions, count(DISTINCT relation) AS relations,
        count(s_uri) AS matched, count(*) FILTER (split = 'train') AS train,
        count(*) FILTER (split = 'test') AS test,
        count(*) FILTER (s_pop IS NULL) AS unknown_popularity,
        count(s_uri) / greatest(count(*), 1) AS matched_share FROM linked"""
    by_link = "SELECT 'link.' || link, count(*) FROM linked GROUP BY ALL"
    by_relation = """SELECT relation || '.matched_share', count(s_uri) / count(*)
        FROM linked GROUP BY relation"""
    counts = database.read_rows(db, totals).to_pylist()[0]
    counts |= dict.fromkeys((f"link.{link}" for link in LINKS), 0)
    counts |= dict(db.sql(by_link).fetchall())
    counts |= dict(db.sql(by_relation).fetchall())
    return counts


def _mention(entry: Any, before: str, after: str) -> tuple[str, str]:
    """The entry's mention of its subject, as ("", mention); or why it is rejected, as (reason,
    "").
    """
    if not isinstance(entry, dict) or not is_readable(entry):
        return "bad_entry", ""
    question = entry.get("question")
    answers = entry.get("answers")
    if not isinstance(question, str) or not isinstance(answers, list):
        return "bad_entry", ""
    if not all(isinstance(answer, str) for answer in answers):
        return "bad_entry", ""
    if not answers:
        return "no_answer", ""

    mention = question.removeprefix(before).removesuffix(after)
    if not mention or before + mention + after != question:
        return "off_template", ""
    return "", mention


def _read_json(file: Path, expected: type) -> Any:
    value = parse_whole(file)
    if not isinstance(value, expected):
        raise LongtailError(
            f"{file}: a JSON {type(value).__name__}, expected a {expected.__name__}; fetch it again"
        )
    return value
