"""Source documents of a text corpus, whatever format its files are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipelines.sources import psgs, wikitext
from pipelines.sources.multistream import Part, read_articles
from pipelines.sources.pile import read_documents, text_id
from pipelines.sources.rejects import Rejects


class Raw(NamedTuple):
    """One document as its source has it."""

    source_document: str
    source: str
    title: str
    text: str
    file: str
    row: int  # line or row of the file, or the page's id
    wikitext: bool = False  # or plain text


def read_raw(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield the documents of a part of the data set `name`: "wikipedia", "wikitext", or one as The Pile is laid out.

    Wikipedia's files are pages-articles dumps or DPR's passages, told apart by their suffix.
    """
    file = part.file
    if name == "wikitext":
        for article in wikitext.read_articles(file, rejects):
            yield Raw(text_id(article.text), name, article.title, article.text, file.name, article.row)
    elif name != "wikipedia":
        for document in read_documents(file, rejects):
            yield Raw(document.id, document.subset or name, "", document.text, file.name, document.row)
    elif psgs.is_psgs(file):
        for article in psgs.read_articles(file, rejects):
            yield Raw(f"psgs-{article.id}", name, article.title, article.text, file.name, article.row)
    else:
        for page in read_articles(part, rejects):
            yield Raw(page.id, name, page.title, page.text, file.name, int(page.id), wikitext=True)
