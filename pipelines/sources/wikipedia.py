"""The articles of a Wikipedia dump (pages-articles, XML) in its order, whole or in parts, and the links between them.

Links are read from the wikitext, as [[Target]] or [[Target#section|text]]; templates are not expanded. Titles are
compared as MediaWiki does. A link to a file, a category or another wiki has a title that no article has.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError, fromstring

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import bz2_blocks
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_blocks
from pipelines.storage import database, parquet

INDEX = "-multistream-index"
HEAD = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")
NUMBER = re.compile("[0-9]{1,18}")  # of 64 bits
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


class Part(NamedTuple):
    """A source file, or the pages that begin in its bytes `begin` to `end`."""

    file: Path
    begin: int = 0
    end: int | None = None  # None: the end of the file


class Page(NamedTuple):
    id: str
    title: str
    text: str  # wikitext


def wikipedia_parts(file: Path) -> list[Part]:
    """The parts of a source file, in its order: dumps (.xml….bz2) are cut by bytes, other files are one part."""
    if INDEX in file.name:  # the index of a multistream dump is not needed
        return []
    return (
        [Part(file, *part) for part in bz2_blocks.bz2_parts(file)]
        if ".xml" in file.name
        else [Part(file)]
    )


def read_articles(
    part: Part, rejects: Rejects, redirects: list[Page] | None = None
) -> Iterator[Page]:
    """Yield the last revision of every page of namespace 0 that isn't a redirect; `rejects` counts the other pages.

    Redirects are added to the list `redirects`, if there is one, which the caller may empty at any time. Raises
    LongtailError naming the file and the last page read, if the file is damaged (see `open_blocks`), isn't a MediaWiki
    dump, or has a page longer than `bounds.RECORD`.
    """
    path, last = part.file, "before its first page's end"
    blocks = (
        bz2_blocks.open_pages(path, part.begin, part.end)
        if part.begin or part.end
        else open_blocks(path)
    )
    try:
        for namespace, page, is_redirect in _pages(blocks):
            last = f"after the page {page.id} ({page.title})"
            rejects.read += 1
            if namespace != 0:
                rejects.skip("other_namespace")
            elif not is_redirect:
                yield page
            else:
                rejects.skip("redirect")
                if redirects is not None:
                    redirects.append(page)
    except (ParseError, ValueError) as error:
        raise LongtailError(
            f"{path}: corrupt {last}, expected the XML of a dump ({error}); fetch it again"
        ) from None


def _pages(blocks: Iterable[bytes]) -> Iterator[tuple[int, Page, bool]]:
    """Yield (namespace, page, whether it is a redirect) of the XML. Raises ParseError or ValueError on other XML.

    In a page's text "<" is "&lt;", so that the marks of a page stand nowhere else.
    """
    text, begun = b"", False
    for block in blocks:
        if not (begun or text or HEAD.match(block)):
            raise ValueError(f"it begins with {block[:40]!r}, not with <mediawiki>")
        *pages, text = (text + block).split(b"</page>")
        for before, mark, inner in (page.partition(b"<page>") for page in pages):
            if begun and before.strip():
                raise ValueError(f"{before[:40]!r} where a <page> is expected")
            begun = True
            yield _page(fromstring(mark + inner + b"</page>"))
        if len(text) > bounds.RECORD:
            raise ValueError(f"an element {bounds.too_long('a page')}")
    if (rest := text.strip()) != b"</mediawiki>" and (begun or not rest.endswith(b"</mediawiki>")):
        raise ValueError(f"it ends with {rest[-40:]!r}")


def _page(page: Element) -> tuple[int, Page, bool]:
    number, namespace, title = map(page.findtext, ("id", "ns", "title"))
    if number is None or namespace is None or title is None:
        raise ValueError("a page without <title>, <ns> or <id>")
    if not (NUMBER.fullmatch(number) and NUMBER.fullmatch(namespace.removeprefix("-"))):
        raise ValueError(f"a page with id {number[:40]!r}, namespace {namespace[:40]!r}")
    texts = page.findall("revision/text")
    text = (texts[-1].text or "") if texts else ""
    return int(namespace), Page(number, title, text), page.find("redirect") is not None


def targets(wikitext: str) -> list[str]:
    """What the page's links name, as written, each once."""
    if "<" in wikitext:  # a comment vanishes, but a link can't go on past a tag
        wikitext = HIDDEN.sub(lambda match: "<" if match[1] else "", wikitext)
    return list(dict.fromkeys(TARGET.findall(wikitext)))


def titles(written: Sequence[str]) -> pa.Array:
    """The titles of the pages that links name, (links,) string; "" for a section of the page itself."""
    plain = [
        unquote(html.unescape(name)) if "&" in name or "%" in name else name for name in written
    ]
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
