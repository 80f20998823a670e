"""Pages of a Wikipedia pages-articles XML dump: articles with their wikitext, in the dump's order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import ParseError

import mwxml
from mwxml.element_iterator import ElementIterator
from mwxml.errors import MalformedXML

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_bytes


class Page(NamedTuple):
    id: str
    title: str
    text: str  # wikitext


def read_pages(path: str | Path, rejects: Rejects) -> Iterator[Page]:
    """Yield the articles: namespace 0, no redirects, their latest revision; `rejects` counts the others.

    Dumps with and without a <siteinfo> header are read. Raises LongtailError naming the file when it is damaged
    (see `open_bytes`) or isn't a MediaWiki dump.
    """
    try:
        root = ElementIterator.from_file(open_bytes(path))
        if root.tag != "mediawiki":
            raise LongtailError(f"{path}: the XML begins with <{root.tag}>, expected <mediawiki>; fetch it again")
        for element in root:
            if element.tag != "page":
                continue
            rejects.read += 1
            page = mwxml.Page.from_element(element)
            text = ""
            for revision in page:
                text = revision.text or ""
            # mwxml keeps every finished page's empty element below the root: a full dump would need gigabytes
            root.element.clear()
            if page.namespace != 0:
                rejects.skip("other_namespace")
            elif page.redirect is not None:
                rejects.skip("redirect")
            else:
                yield Page(str(page.id), page.title, text)
    except (ParseError, MalformedXML, ValueError) as error:
        raise LongtailError(
            f"{path}: corrupt, expected the XML of a pages-articles dump ({error}); fetch it again"
        ) from None
