"""The articles of a Wikipedia dump (pages-articles, XML) in its order, whole or in parts."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, fromstring

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources.bz2_blocks import Part, bz2_parts, open_pages
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import is_parquet, read_head

INDEX = "-multistream-index"  # in the name of a file that a multistream dump has beside it
DUMP_HEAD = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")
DUMP_END = b"</mediawiki>"
DUMP_LANGUAGE = re.compile(rb'<mediawiki\s[^>]*xml:lang="([\w-]+)"')
# The wiki in the name of a dump, or of a folder of wikimedia/wikipedia on the Hub.
WIKI = re.compile(r"(?P<wiki>[a-z_]+wiki)-(?=\d|latest)")
WIKI_FOLDER = re.compile(r"\d{8}\.(?P<language>[a-z_-]+)")
NUMBER = re.compile("[0-9]{1,18}")  # of 64 bits


class Page(NamedTuple):
    id: str
    title: str
    text: str  # wikitext


class _DumpPage(NamedTuple):
    """A page as the dump has it."""

    page: Page
    namespace: int
    is_redirect: bool


def wiki_of(file: Path) -> str:
    """The wiki that a file's name or its folder's names, such as enwiki; "" if neither does."""
    name = WIKI.match(file.name)
    if name:
        return name["wiki"]
    folder = WIKI_FOLDER.fullmatch(file.parent.name)
    return f"{folder['language']}wiki" if folder else ""


def language_of(file: Path) -> str:
    """The code of the language that a file of Wikipedia is in; "" if nothing says it."""
    match = None if is_parquet(file) else DUMP_LANGUAGE.search(read_head(file))
    if match:
        return match[1].decode()
    return wiki_of(file).removesuffix("wiki").replace("_", "-").replace("simple", "en")


def source_parts(*files: Path) -> list[Part]:
    """The parts of source files, in their order: dumps (.xml….bz2) are cut by bytes, other files
    are one part.
    """
    parts = []
    for file in files:
        if ".xml" in file.name and INDEX not in file.name:
            parts += bz2_parts(file)
        elif INDEX not in file.name:
            parts.append(Part(file))
    return parts


def read_articles(part: Part, rejects: Rejects) -> Iterator[Page]:
    """Yield the last revision of every page of namespace 0 that isn't a redirect; `rejects` counts
    the other pages.

    Raises LongtailError naming the file and the last page read, if the file is damaged (see
    `open_blocks`), isn't a MediaWiki dump, or has a page longer than `bounds.RECORD`.
    """
    path = part.file
    place = "before its first page's end"
    try:
        for page, namespace, is_redirect in _pages(open_pages(part)):
            place = f"after the page {page.id} ({page.title})"
            rejects.read += 1
            if namespace != 0:
                rejects.skip("other_namespace")
            elif is_redirect:
                rejects.skip("redirect")
            else:
                yield page
    except (ParseError, ValueError) as error:
        raise LongtailError(
            f"{path}: corrupt {place}, expected the XML of a dump ({error}); fetch it again"
        ) from None


def _pages(blocks: Iterable[bytes]) -> Iterator[_DumpPage]:
    """Yield the pages of the XML. Raises ParseError or ValueError on other XML.

    In a page's text "<" is "&lt;", so that the marks of a page stand nowhere else.
    """
    text = b""
    begun = False  # a page was read
    for block in blocks:
        if not begun and not text and not DUMP_HEAD.match(block):
            raise ValueError(f"it begins with {block[:40]!r}, not with <mediawiki>")
        *pages, text = (text + block).split(b"</page>")
        for page in pages:
            before, mark, inner = page.partition(b"<page>")
            if begun and before.strip():
                raise ValueError(f"{before[:40]!r} where a <page> is expected")
            begun = True
            yield _dump_page(fromstring(mark + inner + b"</page>"))
        if len(text) > bounds.RECORD:
            raise ValueError(f"an element {bounds.too_long('a page')}")

    end = text.strip()
    is_whole = end == DUMP_END if begun else end.endswith(DUMP_END)
    if not is_whole:
        raise ValueError(f"it ends with {end[-40:]!r}")


def _dump_page(element: Element) -> _DumpPage:
    number = element.findtext("id")
    namespace = element.findtext("ns")
    title = element.findtext("title")
    if number is None or namespace is None or title is None:
        raise ValueError("a page without <title>, <ns> or <id>")
    if not NUMBER.fullmatch(number) or not NUMBER.fullmatch(namespace.removeprefix("-")):
        raise ValueError(f"a page with id {number[:40]!r}, namespace {namespace[:40]!r}")

    text = ""
    revisions = element.findall("revision/text")
    if revisions:
        text = revisions[-1].text or ""
    is_redirect = element.find("redirect") is not None
    return _DumpPage(Page(number, title, text), int(namespace), is_redirect)
