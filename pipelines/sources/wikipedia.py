"""The articles of a Wikipedia pages-articles XML dump with their wikitext, in the dump's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import LONGEST, open_blocks

PAGE = ("mediawiki", "page")
USED = {(*PAGE, *path): path[-1] for path in (("title",), ("ns",), ("id",), ("redirect",), ("revision", "text"))}

DEEPEST = 20  # nesting; a page's elements are five deep


class Page(NamedTuple):
    id: str
    title: str
    text: str  # wikitext


def read_pages(path: str | Path, rejects: Rejects, blocks: Iterable[bytes] | None = None) -> Iterator[Page]:
    """Yield the last revision of every page of namespace 0 that isn't a redirect; `rejects` counts the other pages.

    `blocks` are the XML of some of the file's pages, to be read in place of the file. An article longer than LONGEST
    characters goes to `rejects` (too_long) and isn't held in memory. Raises LongtailError naming the file and the last
    page read, if the file is damaged (see `open_blocks`) or isn't a MediaWiki dump.
    """
    dump = _Dump()
    try:
        for block in open_blocks(path) if blocks is None else blocks:
            dump.parse(block)
            yield from _articles(path, dump.take(), rejects)
        dump.parse(b"", True)
        yield from _articles(path, dump.take(), rejects)
    except (expat.ExpatError, ValueError) as error:
        raise LongtailError(
            f"{path}: corrupt {dump.where()}, expected the XML of a pages-articles dump ({error}); fetch it again"
        ) from None


def _articles(path: str | Path, pages: list[dict[str, str]], rejects: Rejects) -> Iterator[Page]:
    for page in pages:
        rejects.read += 1
        if int(page["ns"]) != 0:
            rejects.skip("other_namespace")
        elif "redirect" in page:
            rejects.skip("redirect")
        elif (text := page.get("text", "")) is None:
            rejects.add(path, int(page["id"]), "too_long", f"{page['title']}: more than {LONGEST} characters")
        else:
            yield Page(page["id"], page["title"], text)


class _Dump:
    """An XML parser that keeps the used elements of each page until the page is taken."""

    def __init__(self) -> None:
        self._open: tuple[str, ...] = ()
        self._pages: list[dict[str, str | None]] = []
        self._page: dict[str, str | None] = {}
        self._last = ""  # the last complete page
        self._parts: list[str] = []
        self._size = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text, parser.buffer_size = True, 1 << 16
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self.parse = parser.Parse

    def take(self) -> list[dict[str, str | None]]:
        """The pages that ended since the last call: ns, id, title, and redirect and text if there are any.

        The text is None if it is longer than LONGEST.
        """
        pages, self._pages = self._pages, []
        return pages

    def where(self) -> str:
        return f"after the page {self._last}" if self._last else "before its first page's end"

    def _start(self, name: str, _: dict[str, str]) -> None:
        if not self._open and name != "mediawiki":
            raise ValueError(f"it begins with <{name}>, not with <mediawiki>")
        self._open = (*self._open, name)
        if len(self._open) > DEEPEST:
            raise ValueError(f"elements nested more than {DEEPEST} deep")
        self._parts, self._size = [], 0

    def _text(self, text: str) -> None:
        self._size += len(text)
        if self._size <= LONGEST:
            self._parts.append(text)

    def _end(self, _: str) -> None:
        if used := USED.get(self._open):
            self._page[used] = "".join(self._parts) if self._size <= LONGEST else None
        elif self._open == PAGE:
            page, self._page = self._page, {}
            for key in ("title", "ns", "id"):
                if page.get(key) is None:
                    raise ValueError(f"a page without <{key}>")
            if not (page["id"].isdecimal() and page["ns"].removeprefix("-").isdecimal()):
                raise ValueError(f"a page with id {page['id'][:40]!r}, namespace {page['ns'][:40]!r}")
            self._last = f"{page['id']} ({page['title']})"
            self._pages.append(page)
        self._open = self._open[:-1]
        self._parts, self._size = [], 0
