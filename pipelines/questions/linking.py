"""The entities that questions name, found with a dictionary (PopQA, Figure 3 and appendix A).

The paper finds a question's entities with TagMe. Here the names of a dictionary are looked for: the
labels, aliases, page titles and titles of redirects of all entities with a Wikipedia article. Each
question is read from left to right for the longest names. A name means its most viewed entity. Most
words are also a name ("was" is a novel): a running text decides which names count, see
`drop_common_words`.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.sources import c4_sample, mentions
from pipelines.sources.rejects import Rejects
from pipelines.storage import database

MAX_WORDS = 10  # the most words of a name
MIN_CAPITAL_SHARE = 0.9  # the share of a name's occurrences in running text that have its capitals

# 's is a word ("lord 's prayer")
SPELLED_WORDS = r"regexp_extract_all(replace(text, chr(8217), ''''), '''?[\p{L}\p{N}\p{M}]+')"
# a question with a capital behind its first word, except for "I", is written with capitals
HAS_CAPITALS = r"regexp_matches(text, '[^\p{L}]\p{Lu}\p{L}') AND regexp_matches(text, '\p{Ll}')"
# quotes around a name are no part of it
TRIMMED = r"regexp_replace(name, '^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$', '', 'g')"

# The entity that each question asks about: the least viewed one that it names. An entity of unknown
# popularity counts only if there is no other.
SUBJECTS = """SELECT question_id, mention, qid, wiki_title, popularity FROM mentions
    QUALIFY row_number() OVER (PARTITION BY question_id ORDER BY popularity NULLS LAST, first) = 1
    ORDER BY question_id"""


def link(
    db: duckdb.DuckDBPyConnection, questions: pa.Table, running_text: Iterable[str] = ()
) -> None:
    """Create table mentions(question_id, first, last, mention, qid, wiki_title, popularity), the
    entities that `questions` (question_id, text) name.

    `first` and `last` are the places of a mention's words. The dictionary is the table
    entities(qid, label, aliases, wiki_title, popularity), and the tables of `redirects.load`.
    Without a running text all names count.
    """
    db.execute(f"CREATE TEMP MACRO words(text) AS {SPELLED_WORDS}")
    db.execute("CREATE TEMP MACRO plain(name) AS lower(strip_accents(name))")
    db.execute(r"CREATE TEMP MACRO is_capital(word) AS regexp_matches(word, '^\p{Lu}')")
    db.register("questions", questions)
    find_names(db)
    mark_common_words(db, running_text)
    choose_mentions(db)


def link_nothing(db: duckdb.DuckDBPyConnection) -> None:
    """Create table mentions as `link` does, without any entity."""
    db.execute(
        """CREATE TEMP TABLE mentions (question_id VARCHAR, first BIGINT, last BIGINT,
            mention VARCHAR, qid VARCHAR, wiki_title VARCHAR, popularity BIGINT)"""
    )


def read_running_text(files: Sequence[Path], megabytes: int, seed: int) -> Iterator[str]:
    """Yield the texts of a sample of files in C4's layout; bad lines, which the stage
    `term_frequency` counts for a run's C4, are left out.
    """
    sample = c4_sample.draw_c4_sample(files, megabytes, seed, Rejects(1.0))
    yield from c4_sample.read_c4_sample(files, sample)


def find_names(db: duckdb.DuckDBPyConnection) -> None:
    """Create tables spans(question_id, first, last, spelling, mention), of up to MAX_WORDS words in
    the questions, and names(mention, spelling, name, qid, wiki_title, popularity), those among the
    spans.

    Names and spans are compared word by word, by `mention`, which has no capitals and no accents.
    `spelling` has them; of a span it is null where its capitals say nothing, at the beginning of a
    question and in one that has none. Where capitals do say something, a span beside a capital is
    left out: it is a part of a longer name, as Jackson is of Percy Jackson.

    A title begins with a capital, whatever it names, so that it is a name only where no label or
    alias is the same but for capitals. Only the spans are kept in memory.
    """
    db.execute(
        f"""CREATE TEMP TABLE spans AS
        SELECT question_id, first, last, array_to_string(asked[first:last], ' ') AS words,
            CASE WHEN first > 1 AND has_capitals THEN words END AS spelling,
            plain(words) AS mention
        FROM (
                SELECT question_id, words(text) AS asked, {HAS_CAPITALS} AS has_capitals
                FROM questions
            ),
            range(1, len(asked) + 1) AS a(first),
            range(first, least(first + {MAX_WORDS}, len(asked) + 1)) AS b(last)
        WHERE NOT has_capitals OR NOT coalesce(
            (first > 2 AND is_capital(asked[first - 1])) OR is_capital(asked[last + 1]), false
        )"""
    )
    db.execute(
        f"""CREATE TEMP TABLE names AS WITH described AS (
            SELECT qid, wiki_title, popularity, list_prepend(label, aliases) AS names
            FROM entities WHERE wiki_title IS NOT NULL
        ), titles AS (
            SELECT qid, wiki_title, popularity, names, wiki_title AS name FROM described
            UNION ALL
            SELECT qid, wiki_title, popularity, names, title
            FROM described JOIN redirects ON target = wiki_title JOIN pages USING (page_id)
        ), named AS (
            SELECT qid, wiki_title, popularity, unnest(names) AS name FROM described
            UNION ALL
            SELECT qid, wiki_title, popularity, name FROM titles
            WHERE NOT list_contains(list_transform(names, lambda x: plain(x)), plain(name))
        )
        SELECT mention, spelling, name, qid, wiki_title, popularity FROM (
            SELECT array_to_string(words(name), ' ') AS spelling, plain(spelling) AS mention,
                * REPLACE ({TRIMMED} AS name)
            FROM named
        ) SEMI JOIN spans USING (mention)"""
    )


def mark_common_words(db: duckdb.DuckDBPyConnection, running_text: Iterable[str]) -> None:
    """Add to table names whether it `is_common`: usually no name when it occurs in lower case.

    A name with capitals is none if running text seldom writes it without them, or never has it:
    "India" is none; "Was" and "Come Out" are, and so are some real titles like "Friends". A name
    without capitals is none if it has two words or more: "rock music" is none; "in" (an alias of
    India) and "photosynthesis" are. Single characters are no names at all.
    """
    db.execute("DELETE FROM names WHERE length(mention) = 1")
    both_ways = """SELECT DISTINCT unnest([name, plain(name)]) AS name
        FROM names WHERE name != lower(name) ORDER BY name"""
    written = database.read_rows(db, both_ways)
    frequencies = mentions.frequencies(written["name"].to_pylist(), running_text)
    db.register("written", written.append_column("n", pa.array(frequencies)))
    db.execute(
        f"""CREATE TEMP TABLE lower_cased AS SELECT name FROM written
        JOIN (SELECT name AS small_name, n AS small_n FROM written) ON small_name = plain(name)
        WHERE n < {MIN_CAPITAL_SHARE} * (n + small_n);

        ALTER TABLE names ADD COLUMN is_common BOOLEAN;
        UPDATE names SET is_common = name IN (FROM lower_cased)
            OR (name = lower(name) AND NOT contains(mention, ' '))"""
    )


def choose_mentions(db: duckdb.DuckDBPyConnection) -> None:
    """Create table mentions from the tables spans and names.

    A common word counts where a question writes it as the name, with its capitals. Mentions don't
    overlap: the first one is the longest name at the leftmost place that has one, and the next one
    is looked for behind its end. A mention means its most viewed entity, of those whose name is
    written the same if there are any; ties go to the first title.
    """
    db.execute(
        """CREATE TEMP TABLE named AS
        SELECT question_id, first, last, mention, qid, wiki_title, popularity,
            coalesce(spans.spelling = names.spelling, false) AS is_exact
        FROM spans JOIN names USING (mention)
        WHERE NOT is_common OR (is_exact AND name != lower(name))
        QUALIFY row_number() OVER (
            PARTITION BY question_id, first, last
            ORDER BY is_exact DESC, popularity DESC NULLS LAST, wiki_title, qid
        ) = 1"""
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
        )
        SELECT * EXCLUDE (is_exact) FROM taken"""
    )
