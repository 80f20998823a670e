"""Stage `nq`: the entities that Natural Questions ask about, and their popularity (PopQA, Figure 3 and appendix A).

Writes data/questions/nq/{popularity,rejects}.parquet. The paper finds a question's entities with TagMe; here they are found by a
dictionary, the labels and aliases of all entities with an English Wikipedia article: from left to right the longest
name that counts, and of the entities so named the most viewed one. Of a question's entities the least viewed is kept.

Questions are lower case, and most words are somebody's name ("was" is a novel, "come out" a composition). What counts
as a name is asked of the C4 sample, see `names_that_count`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from pipelines import database, params, shards, stage
from pipelines.sources import c4
from pipelines.sources.open_questions import read_questions
from pipelines.sources.rejects import Rejects

RAW = Path("data/raw")
ENTITIES = Path("data/knowledge/triples/entities.parquet")
MAX_WORDS = 10  # of a name; no question is much longer
AS_NAMED = 0.9  # share of a name's occurrences in running text that have its capitals, at least

# Names and questions meet as words without case and accents; 's is a word of its own ("lord 's prayer").
WORDS = r"regexp_extract_all(lower(strip_accents(replace(text, chr(8217), ''''))), '''?[\p{L}\p{N}]+')"
TRIMMED = r"regexp_replace(name, '^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$', '', 'g')"  # an album is called "Them", with quotes


def build_nq(
    raw: Path, entities: Path, out: Path, *, sample_mb: int, ingest: params.Ingest, threads: int
) -> dict[str, float]:
    """Write the stage's folder `out` from the questions in raw/nq and the texts in raw/c4; return its counts.

    Without questions the table is empty; without texts every name counts.
    """
    rejects = Rejects(ingest.max_reject_share)
    questions = list(read_questions(raw / "nq", rejects))
    rejects.check()
    columns = [[question.id for question in questions], [question.text for question in questions]]
    with shards.atomic(out) as folder, database.connect(ingest.memory_gb, threads) as db:
        folder.mkdir()
        db.execute(f"CREATE TEMP MACRO words(text) AS {WORDS}")
        db.register("questions", pa.table(columns, pa.schema([("question_id", pa.string()), ("text", pa.string())])))
        find_names(db, entities)
        texts = c4.read_sample(sorted((raw / "c4").glob("[!.]*")), sample_mb, Rejects(1.0))  # rejects: term_frequency's
        names_that_count(db, texts)
        choose_mentions(db)
        database.write(
            db,
            """SELECT question_id, arg_min(mention, (popularity, first)) AS mention,
                arg_min(qid, (popularity, first)) AS qid, arg_min(wiki_title, (popularity, first)) AS wiki_title,
                min(popularity) AS popularity
            FROM mentions GROUP BY question_id ORDER BY question_id""",
            folder / "popularity.parquet",
        )
        rejects.write(folder / "rejects.parquet")
        counts = _describe(db, len(questions))
    counts |= {f"rejected.{reason}": n for reason, n in rejects.reasons().items()}
    return counts | {"rejected": len(rejects.rows)}


def find_names(db: duckdb.DuckDBPyConnection, entities: Path) -> None:
    """Tables spans(question_id, first, last, mention), of up to MAX_WORDS words of the questions, and
    names(mention, name, qid, wiki_title, popularity), the names among them.

    The spans are the small side of the join: the names of all Wikidata only stream past.
    """
    db.execute(
        f"""CREATE TEMP TABLE spans AS
        SELECT question_id, first, last, array_to_string(asked[first:last], ' ') AS mention
        FROM (SELECT question_id, words(text) AS asked FROM questions), range(1, len(asked) + 1) AS a(first),
            range(first, least(first + {MAX_WORDS}, len(asked) + 1)) AS b(last)"""
    )
    db.execute(
        f"""CREATE TEMP TABLE names AS SELECT mention, name, qid, wiki_title, popularity FROM (
            SELECT array_to_string(words(name), ' ') AS mention, * REPLACE ({TRIMMED} AS name) FROM (
                SELECT qid, wiki_title, popularity, unnest(list_prepend(label, aliases)) AS name
                FROM '{entities}' WHERE wiki_title IS NOT NULL
            )
        ) SEMI JOIN spans USING (mention)"""
    )


def names_that_count(db: duckdb.DuckDBPyConnection, texts: Iterator[str]) -> None:
    """Cut table names down to those that name something wherever they stand.

    A name with capitals counts if running text seldom writes these words without them, or has none of them: "India"
    does; "Was" and "Come Out" don't, nor do some titles that are meant, like "Friends". A name without capitals counts
    if it has two words or more: "rock music", but not "in" (an alias of India) nor "photosynthesis". A single
    character never counts.
    """
    db.execute("DELETE FROM names WHERE length(mention) = 1 OR (name = lower(name) AND NOT contains(mention, ' '))")
    db.execute("CREATE TEMP MACRO asked(name) AS lower(strip_accents(name))")
    written = database.read(
        db, "SELECT DISTINCT unnest([name, asked(name)]) AS name FROM names WHERE name != lower(name) ORDER BY name"
    )
    frequencies = c4.term_frequencies(written["name"].to_pylist(), texts)
    db.register("written", written.append_column("n", pa.array(frequencies)))
    db.execute(
        f"""DELETE FROM names USING written AS as_named, written AS as_asked
        WHERE as_named.name = names.name AND as_asked.name = asked(names.name)
            AND as_named.n < {AS_NAMED} * (as_named.n + as_asked.n)"""
    )


def choose_mentions(db: duckdb.DuckDBPyConnection) -> None:
    """Table mentions(question_id, first, mention, qid, wiki_title, popularity), none overlapping, from spans and names.

    From left to right the longest span that is a name, then the next one after its end; of the entities of that name
    the most viewed one (of equals the first by title).
    """
    db.execute(
        """CREATE TEMP TABLE named AS SELECT question_id, first, last, mention FROM spans
        SEMI JOIN names USING (mention)"""
    )
    db.execute(
        """CREATE TEMP TABLE mentions AS WITH RECURSIVE taken AS (
            SELECT * FROM named QUALIFY row_number() OVER (PARTITION BY question_id ORDER BY first, last DESC) = 1
            UNION ALL
            SELECT named.* FROM taken JOIN named ON named.question_id = taken.question_id AND named.first > taken.last
            QUALIFY row_number() OVER (PARTITION BY named.question_id ORDER BY named.first, named.last DESC) = 1
        ), entities AS (
            SELECT mention, qid, wiki_title, popularity FROM names
            QUALIFY row_number() OVER (PARTITION BY mention ORDER BY popularity DESC, wiki_title, qid) = 1
        )
        SELECT question_id, first, mention, qid, wiki_title, popularity FROM taken JOIN entities USING (mention)"""
    )


def _describe(db: duckdb.DuckDBPyConnection, questions: int) -> dict[str, float]:
    found, mentions, median = database.row(
        db,
        """SELECT count(*), coalesce(sum(mentions), 0)::BIGINT, median(popularity)
        FROM (SELECT count(*) AS mentions, min(popularity) AS popularity FROM mentions GROUP BY question_id)""",
    )
    counts = {"questions": questions, "with_entity": found, "with_entity_share": found / max(questions, 1)}
    return counts | {"mentions": mentions} | ({} if median is None else {"median_popularity": median})


def make(params: SimpleNamespace, out: Path) -> stage.Metrics:
    """Build this question set into the folder `out`, by the params of the stage `questions`."""
    return build_nq(
        RAW,
        ENTITIES,
        out,
        sample_mb=params.c4.sample_mb,
        ingest=params.ingest,
        threads=params.compute.threads,
    )
