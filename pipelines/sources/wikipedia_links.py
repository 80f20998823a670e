"""The links between the pages of a Wikipedia dump, and how many articles link to an article.

Links are read from the wikitext, as [[Target]] or [[Target#section|text]]; templates are not
expanded. Titles are compared as MediaWiki does. A link to a file, a category or another wiki has a
title that no article has.
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.sources.wikipedia import Page
from pipelines.storage import database, parquet

SCHEMA = pa.schema({"title": pa.string(), "targets": pa.list_(pa.string()), "redirect": pa.bool_()})
BATCH_CHARS = 1 << 24  # characters of pages whose links are held at once
# A comment, and a tag whose content is not wikitext, reach to their end. Without an end they reach
# to the page's, so that the time is linear.
HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?i:(nowiki|pre|syntaxhighlight|source|math|chem|ce|score|timeline|hiero|graph"
    r"|templatedata))(?:\s[^<>]*)?(?<!/)>"
    r".*?(?:(?i:</\1\s*>)|\Z)",
    re.DOTALL,
)
TARGET = re.compile(r"\[\[([^][{}|<>\n]+)(?=\||\]\])")
SPACES = "[ _\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
DIRECTION_MARKS = "[\u200e\u200f\u202a-\u202e]"

COUNT_INCOMING = """
    CREATE TEMP TABLE moved AS
    SELECT title, min(targets[1]) AS target FROM linking WHERE redirect GROUP BY title;

    CREATE TEMP TABLE wanted AS
    SELECT title, coalesce(target, title) AS article
    FROM (SELECT DISTINCT title FROM titles) LEFT JOIN moved USING (title);

    CREATE TEMP TABLE names AS
    SELECT DISTINCT article AS name, article FROM wanted
    UNION SELECT title, target FROM moved SEMI JOIN wanted ON target = article;

    CREATE TEMP TABLE linked AS
    SELECT article, count(DISTINCT page) AS links FROM
        (SELECT title AS page, unnest(targets) AS name FROM linking WHERE NOT redirect)
        JOIN names USING (name)
    WHERE page != article GROUP BY article;

    CREATE TEMP TABLE incoming AS
    SELECT wanted.title, CASE WHEN there.title IS NOT NULL THEN coalesce(links, 0) END AS links
    FROM wanted LEFT JOIN linked USING (article)
        LEFT JOIN (SELECT DISTINCT title FROM linking WHERE NOT redirect) AS there
            ON there.title = article
"""


class _PageLinks(NamedTuple):
    title: str
    targets: list[str]  # as written
    is_redirect: bool


def targets(wikitext: str) -> list[str]:
    """What the page's links name, as written, each once."""
    if "<" in wikitext:
        wikitext = HIDDEN.sub(_replace_hidden, wikitext)
    return list(dict.fromkeys(TARGET.findall(wikitext)))


def _replace_hidden(match: re.Match) -> str:
    """A comment vanishes, but a link can't go on past a tag."""
    return "<" if match[1] else ""


def titles(written: Sequence[str]) -> pa.Array:
    """The titles of the pages that links name, (links,) string; "" for a section of the page
    itself.
    """
    plain = []
    for name in written:
        if "&" in name or "%" in name:
            name = unquote(html.unescape(name))
        plain.append(name)

    names = pc.replace_substring_regex(pa.array(plain, pa.string()), "#.*", "")
    names = pc.replace_substring_regex(names, DIRECTION_MARKS, "")
    names = pc.utf8_trim(pc.replace_substring_regex(names, SPACES, " "), " ")
    names = pc.utf8_ltrim(pc.replace_substring_regex(names, "^:", ""), " ")

    first_letters = pc.utf8_upper(pc.utf8_slice_codeunits(names, 0, 1))
    return pc.binary_join_element_wise(first_letters, pc.utf8_slice_codeunits(names, 1), "")


class Links:
    """Writes the links of a dump's pages to a Parquet file: a page's title, the titles it names, if
    it is a redirect.

    A redirect has one target at most. `redirects` takes the redirect pages that the reader comes
    upon.
    """

    def __init__(self, path: Path) -> None:
        self.redirects: list[Page] = []
        self._writer = parquet.writer(path, SCHEMA)
        self._pages: list[_PageLinks] = []
        self._chars = 0

    def add(self, title: str, wikitext: str) -> None:
        self._pages.append(_PageLinks(title, targets(wikitext), is_redirect=False))
        self._chars += len(wikitext)
        if self._chars > BATCH_CHARS:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        for page in self.redirects:
            self._pages.append(_PageLinks(page.title, targets(page.text)[:1], is_redirect=True))
        all_targets = []
        ends = [0]  # of the pages' targets
        for page in self._pages:
            all_targets += page.targets
            ends.append(len(all_targets))

        columns = [
            pa.array([page.title for page in self._pages], pa.string()),
            pa.ListArray.from_arrays(pa.array(ends, pa.int32()), titles(all_targets)),
            pa.array([page.is_redirect for page in self._pages], pa.bool_()),
        ]
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self._pages = []
        self._chars = 0
        self.redirects.clear()


def count_incoming(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> int:
    """Create table incoming(title, links) for the titles of table titles(title), from files that
    `Links` wrote.

    `links` is the number of articles that link to the article by its title or by a redirect to it;
    itself does not count. A title that is a redirect in the dump has the links of its target. Null
    for an article that is not in the dump. Returns the number of articles in the dump.
    """
    database.view(db, "linking", *files)
    db.execute(COUNT_INCOMING)
    (articles,) = database.row(db, "SELECT count(DISTINCT title) FROM linking WHERE NOT redirect")
    return articles
