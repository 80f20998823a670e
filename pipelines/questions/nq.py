"""The entities that Natural Questions ask about, and their popularity (PopQA, Figure 3 and appendix
A).

Writes data/questions/nq/{popularity,rejects}.parquet. The paper finds a question's entities with
TagMe. Here they are found with a dictionary: the labels and aliases of all entities with an English
Wikipedia article. Each question is read from left to right for the longest names. A name means its
most viewed entity, and the least viewed entity of a question counts; one of unknown popularity only
if there is no other. Most words are also a name ("was" is a novel): the C4 sample decides which
names count, see `drop_common_words`.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.questions.settings import Settings
from pipelines.sources import c4_sample, mentions
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects
from pipelines.storage import database
from pipelines.storage.atomic import atomic

RAW = Path("data/raw")
ENTITIES = Path("data/knowledge/triples/entities.parquet")
MAX_WORDS = 10  # the most words of a name
MIN_CAPITAL_SHARE = 0.9  # the share of a name's occurrences in running text that have its capitals

# Names and questions are compared word by word, without case and accents; 's is a word ("lord 's
# prayer").
WORDS = (
    r"regexp_extract_all(lower(strip_accents(replace(text, chr(8217), ''''))), '''?[\p{L}\p{N}]+')"
)
# quotes around a name are no part of it
TRIMMED = r"regexp_replace(name, '^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$', '', 'g')"


def build_nq(
    settings: Settings, out: Path, raw: Path = RAW, entities: Path = ENTITIES
) -> dict[str, float]:
    """Write `out` by the questions in raw/nq and the texts in raw/c4, without which all names
    count; return counts.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = list(read_questions(raw / "nq", rejects))
    rejects.check()
    ids = pa.array([question.id for question in questions], pa.string())
    texts = pa.array([question.text for question in questions], pa.string())

    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(out) as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        db.execute(f"CREATE TEMP MACRO words(text) AS {WORDS}")
        db.register("questions", pa.table({"question_id": ids, "text": texts}))
        find_names(db, entities)

        # The stage `term_frequency` checks and writes the rejects of the C4 sample.
        rejects_of_c4 = Rejects(1.0)
        files = c4_sample.files_of_c4(raw / "c4")
        sample = c4_sample.draw_c4_sample(
            files, settings.c4.sample_mb, settings.seed, rejects_of_c4
        )
        drop_common_words(db, c4_sample.read_c4_sample(files, sample))

        choose_mentions(db)
        rarest = """SELECT question_id, mention, qid, wiki_title, popularity FROM mentions
            QUALIFY row_number() OVER
                (PARTITION BY question_id ORDER BY popularity NULLS LAST, first) = 1
            ORDER BY question_id"""
        database.write_query(db, rarest, folder / "popularity.parquet")
        rejects.write(folder / "rejects.parquet")
        counts = _count_mentions(db, len(questions))
    return counts | rejects.metrics()


def find_names(db: duckdb.DuckDBPyConnection, entities: Path) -> None:
    """Create tables spans(question_id, first, last, mention), of up to MAX_WORDS words in the
    questions, and names.

    The latter are the (mention, name, qid, wiki_title, popularity) among the spans. Only the spans
    are kept in memory.
    """
    db.execute(
        f"""CREATE TEMP TABLE spans AS
        SELECT question_id, first, last, array_to_string(asked[first:last], ' ') AS mention
        FROM (SELECT question_id, words(text) AS asked FROM questions),
            range(1, len(asked) + 1) AS a(first),
            range(first, least(first + {MAX_WORDS}, len(asked) + 1)) AS b(last)"""
    )
    database.view(db, "entities", entities)
    db.execute(
        f"""CREATE TEMP TABLE names AS SELECT mention, name, qid, wiki_title, popularity FROM (
            SELECT array_to_string(words(name), ' ') AS mention, * REPLACE ({TRIMMED} AS name)
            FROM (
                SELECT qid, wiki_title, popularity, unnest(list_prepend(label, aliases)) AS name
                FROM entities WHERE wiki_title IS NOT NULL
            )
        ) SEMI JOIN spans USING (mention)"""
    )


def drop_common_words(db: duckdb.DuckDBPyConnection, texts: Iterator[str]) -> None:
    """Delete from table names what is usually not a name when it occurs in lower case.

    A name with capitals stays if running text seldom writes it without them, or never has it:
    "India" stays; "Was" and "Come Out" go, and so do some real titles like "Friends". A name
    without capitals stays if it has two words or more: "rock music" stays; "in" (an alias of India)
    and "photosynthesis" go. Single characters go.
    """
    db.execute(
        """DELETE FROM names
        WHERE length(mention) = 1 OR (name = lower(name) AND NOT contains(mention, ' '))"""
    )
    db.execute("CREATE TEMP MACRO plain(name) AS lower(strip_accents(name))")
    both_ways = """SELECT DISTINCT unnest([name, plain(name)]) AS name
        FROM names WHERE name != lower(name) ORDER BY name"""
    written = database.read_rows(db, both_ways)
    frequencies = mentions.frequencies(written["name"].to_pylist(), texts)
    db.register("written", written.append_column("n", pa.array(frequencies)))
    db.execute(
        f"""DELETE FROM names USING written AS capital, written AS small
        WHERE capital.name = names.name AND small.name = plain(names.name)
            AND capital.n < {MIN_CAPITAL_SHARE} * (capital.n + small.n)"""
    )


def choose_mentions(db: duckdb.DuckDBPyConnection) -> None:
    """Create table mentions(question_id, first, mention, qid, wiki_title, popularity) from the
    tables spans and names.

    Mentions don't overlap: the first one is the longest name at the leftmost place that has one,
    and the next one is looked for behind its end. A mention means its most viewed entity; ties go
    to the first title.
    """
    db.execute(
        """CREATE TEMP TABLE named AS SELECT question_id, first, last, mention FROM spans
        SEMI JOIN names USING (mention)"""
    )
    db.execute(
        """CREATE TEMP TABLE mentions AS WITH RECURSIVE taken AS (
            SELECT * FROM named
            QUALIFY row_number() OVER (PARTITION BY question_id ORDER BY first, last DESC) = 1
            UNION ALL
            SELECT named.* FROM taken
            JOIN named ON named.question_id = taken.question_id AND named.first > taken.last
            QUALIFY row_number() OVER
                (PARTITION BY named.question_id ORDER BY named.first, named.last DESC) = 1
        ), entities AS (
            SELECT mention, qid, wiki_title, popularity FROM names
            QUALIFY row_number() OVER
                (PARTITION BY mention ORDER BY popularity DESC NULLS LAST, wiki_title, qid) = 1
        )
        SELECT question_id, first, mention, qid, wiki_title, popularity
        FROM taken JOIN entities USING (mention)"""
    )


def _count_mentions(db: duckdb.DuckDBPyConnection, questions: int) -> dict[str, float]:
    """Counts of questions and of their mentions; there is no median of nothing."""
    query = f"""SELECT {questions} AS questions, count(*) AS with_entity,
            count(*) / {max(questions, 1)} AS with_entity_share,
            coalesce(sum(mentions), 0)::BIGINT AS mentions,
            count(*) - count(popularity) AS unknown_popularity,
            median(popularity) AS median_popularity
        FROM (SELECT count(*) AS mentions, min(popularity) AS popularity
            FROM mentions GROUP BY question_id)"""
    counts = database.read_rows(db, query).to_pylist()[0]
    return {name: count for name, count in counts.items() if count is not None}
