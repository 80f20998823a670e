"""Source documents of a text corpus, whatever format its files are in: the readers that the catalogue names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipelines import catalogue
from pipelines.sources import text_documents
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import Page, Part, read_articles


class Raw(NamedTuple):
    """One document as its source has it."""

    source_document: str
    source: str
    title: str
    text: str
    file: str
    row: int  # line or row of the file, or the page's id
    wikitext: bool = False  # or plain text
    whole: bool = False  # a passage, which is a document as it is: neither cut nor left out for being short


def read_raw(name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None) -> Iterator[Raw]:
    """Yield the documents of a part of a data set's files, by the reader that its entry in the catalogue names.

    A data set whose pages link to each other (`links` in the catalogue) also adds its redirects to `redirects`.
    """
    reader = catalogue.function(name, "documents")
    yield from reader(name, part, rejects) if redirects is None else reader(name, part, rejects, redirects)


def wikipedia(name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None) -> Iterator[Raw]:
    """Articles of a pages-articles dump, DPR's passages, or rows with title and text; the file's suffix tells which."""
    if text_documents.is_psgs(part.file):
        for passage in text_documents.read_psgs(part.file, rejects):
            yield Raw(f"psgs-{passage.id}", name, passage.title, passage.text, part.file.name, passage.row, whole=True)
    elif text_documents.is_documents(part.file):
        for document in text_documents.read_documents(part.file, rejects):
            yield Raw(document.id, name, document.title, document.text, part.file.name, document.row)
    else:
        for page in read_articles(part, rejects, redirects):
            yield Raw(page.id, name, page.title, page.text, part.file.name, int(page.id), wikitext=True)


def json_lines(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Documents in the layout of The Pile or C4: JSON lines or Parquet with `text`; a subset and a title if given."""
    for document in text_documents.read_documents(part.file, rejects):
        yield Raw(document.id, document.subset or name, document.title, document.text, part.file.name, document.row)


def wikitext_articles(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Articles of WikiText's files."""
    for article in text_documents.read_wikitext(part.file, rejects):
        yield Raw(text_documents.text_id(article.text), name, article.title, article.text, part.file.name, article.row)
