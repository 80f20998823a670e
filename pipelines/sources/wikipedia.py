"""The articles of a Wikipedia pages-articles XML dump with their wikitext, in its order, as a whole or in parts."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, fromstring

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import bz2_blocks
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_blocks

INDEX = "-multistream-index"
HEAD = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")
NUMBER = re.compile("[0-9]{1,18}")  # of 64 bits


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
    return [Part(file, *part) for part in bz2_blocks.bz2_parts(file)] if ".xml" in file.name else [Part(file)]


def read_articles(part: Part, rejects: Rejects, redirects: list[Page] | None = None) -> Iterator[Page]:
    """Yield the last revision of every page of namespace 0 that isn't a redirect; `rejects` counts the other pages.

    Redirects are added to the list `redirects`, if there is one, which the caller may empty at any time. Raises
    LongtailError naming the file and the last page read, if the file is damaged (see `open_blocks`), isn't a MediaWiki
    dump, or has a page longer than `bounds.RECORD`.
    """
    path, last = part.file, "before its first page's end"
    blocks = bz2_blocks.open_pages(path, part.begin, part.end) if part.begin or part.end else open_blocks(path)
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
        raise LongtailError(f"{path}: corrupt {last}, expected the XML of a dump ({error}); fetch it again") from None


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
