"""Which articles each page of a Wikipedia dump links to, and how many pages link to an article.

Links are read from the wikitext, as [[Target]] or [[Target#section|text]]; templates are not expanded. Titles are
compared as MediaWiki does. A link to a file, a category or another wiki has a title that no article has.
"""

import html
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.sources.wikipedia import Page
from pipelines.storage import database, parquet

SCHEMA = pa.schema({"title": pa.string(), "targets": pa.list_(pa.string()), "redirect": pa.bool_()})
BATCH = 1 << 24  # characters of pages whose links are held at once
# A comment and a tag whose content is not wikitext reach to their end, or, without one, to the page's: time is linear.
HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?i:(nowiki|pre|syntaxhighlight|source|math|chem|ce|score|timeline|hiero|graph|templatedata))(?:\s[^<>]*)?(?<!/)>"
    r".*?(?:(?i:</\1\s*>)|\Z)",
    re.DOTALL,
)
TARGET = re.compile(r"\[\[([^][{}|<>\n]+)(?=\||\]\])")
SPACES = "[ _\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
MARKS = "[\u200e\u200f\u202a-\u202e]"  # of the direction of a text


def targets(wikitext: str) -> list[str]:
    """What the page's links name, as written, each once."""
    if "<" in wikitext:  # a comment vanishes, but a link can't go on past a tag
        wikitext = HIDDEN.sub(lambda match: "<" if match[1] else "", wikitext)
    return list(dict.fromkeys(TARGET.findall(wikitext)))


def titles(written: Sequence[str]) -> pa.Array:
    """The titles of the pages that links name, (links,) string; "" for a section of the page itself."""
    plain = [unquote(html.unescape(name)) if "&" in name or "%" in name else name for name in written]
    names = pc.replace_substring_regex(pa.array(plain, pa.string()), "#.*", "")
    names = pc.replace_substring_regex(pc.replace_substring_regex(names, MARKS, ""), SPACES, " ")
    names = pc.utf8_ltrim(pc.replace_substring_regex(pc.utf8_trim(names, " "), "^:", ""), " ")
    return pc.binary_join_element_wise(
        pc.utf8_upper(pc.utf8_slice_codeunits(names, 0, 1)), pc.utf8_slice_codeunits(names, 1), ""
    )


class Links:
    """Writes the links of a dump's pages to a Parquet file, a row a page: title, titles it names, if it is a redirect.

    A redirect has one target at most. `redirects` takes the redirect pages that the reader comes upon.
    """

    def __init__(self, path: Path) -> None:
        self.redirects: list[Page] = []
        self._writer = parquet.writer(path, SCHEMA)
        self._rows: list[tuple[str, list[str], bool]] = []
        self._size = 0

    def add(self, title: str, wikitext: str) -> None:
        self._rows.append((title, targets(wikitext), False))
        self._size += len(wikitext)
        if self._size > BATCH:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        rows = self._rows + [(page.title, targets(page.text)[:1], True) for page in self.redirects]
        of, named, redirect = zip(*rows, strict=True) if rows else ((), (), ())
        ends = pa.array(np.cumsum([0, *map(len, named)]), pa.int32())
        lists = pa.ListArray.from_arrays(ends, titles(list(chain.from_iterable(named))))
        columns = [pa.array(of, pa.string()), lists, pa.array(redirect, pa.bool_())]
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self._rows, self._size = [], 0
        self.redirects.clear()


def count_incoming(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> int:
    """Create table incoming(title, links) for the titles of table titles(title), from files that `Links` wrote.

    `links` is the number of articles that link to the article by its title or by a redirect to it; itself does not
    count. A title that is a redirect in the dump has the links of its target. Null for an article that is not in the
    dump. Returns the number of articles in the dump.
    """
    database.view(db, "linking", *files)
    db.execute(
        """CREATE TEMP TABLE moved AS
        SELECT title, min(targets[1]) AS target FROM linking WHERE redirect GROUP BY title;
        CREATE TEMP TABLE wanted AS SELECT title, coalesce(target, title) AS article
        FROM (SELECT DISTINCT title FROM titles) LEFT JOIN moved USING (title);
        CREATE TEMP TABLE names AS SELECT DISTINCT article AS name, article FROM wanted
        UNION SELECT title, target FROM moved SEMI JOIN wanted ON target = article;
        CREATE TEMP TABLE linked AS SELECT article, count(DISTINCT page) AS links FROM
            (SELECT title AS page, unnest(targets) AS name FROM linking WHERE NOT redirect) JOIN names USING (name)
        WHERE page != article GROUP BY article;
        CREATE TEMP TABLE incoming AS
        SELECT wanted.title, CASE WHEN there.title IS NOT NULL THEN coalesce(links, 0) END AS links
        FROM wanted LEFT JOIN linked USING (article)
            LEFT JOIN (SELECT DISTINCT title FROM linking WHERE NOT redirect) AS there ON there.title = article"""
    )
    (articles,) = database.row(db, "SELECT count(DISTINCT title) FROM linking WHERE NOT redirect")
    return articles
