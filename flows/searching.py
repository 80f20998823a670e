"""Search a run's corpora, and show what a text owes to the language model's memory and to each document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.params import params_file

LINES = 4  # lines of a document's text that the terminal shows


def search_corpus(text: str, corpus: str, retriever: str, k: int) -> list[dict[str, Any]]:
    """The `k` best documents for a text by a retriever, best first, with "score", "id", "title" and "text".

    Raises LongtailError for an empty text, where nothing is found, and where there is no such index.
    """
    from pipelines.retrieval import documents
    from pipelines.retrieval.retriever import open_index

    params = params_file.load_params("retriever", "retrievers", "reranker", "compute")
    text = text.encode(errors="replace").decode()  # no tokenizer takes an argument that is no UTF-8
    searched = [methods.index(*index, corpus) for index in methods.indexes_of(*index_of(retriever, params))]
    docs = Path(f"data/corpus/{corpus}/docs.parquet")
    if not text.strip():
        raise LongtailError("the text is empty, expected some words to look for")
    if missing := [str(index) for index in searched if not index.is_dir()]:
        raise LongtailError(f"{missing[0]}: no such index; `longtail run` makes it")
    positions, scores = (row[0] for row in open_index(retriever, corpus, params).search([text], k))
    if retriever == "bm25":
        positions, scores = positions[scores > 0], scores[scores > 0]
    if not len(positions):
        beginning = text if len(text) <= 60 else f"{text[:60]}…"
        raise LongtailError(f"no document of {corpus} has a word of {beginning!r}; try others, or --retriever dense")
    found = zip(map(float, scores), *documents.read_documents(docs, positions), strict=True)
    return [dict(zip(("score", "id", "title", "text"), hit, strict=True)) for hit in found]


def index_of(retriever: str, params: SimpleNamespace) -> tuple[str, str]:
    """(kind, retriever's name) of an index by its name. Raises LongtailError where there can be no such index."""
    kind, name = methods.resolve(retriever, params.retrievers)
    if methods.INDEXES.get(kind) != kind:
        raise LongtailError(f"--retriever {retriever}: expected bm25, dense, lsr, hybrid or reranked, or as dense_NAME")
    return kind, name


def hit_lines(hits: list[dict[str, Any]], width: int) -> Iterator[str]:
    """Yield lines of at most `width` characters: rank, score, title and id of each hit, then how its text begins."""
    for rank, hit in enumerate(hits, 1):
        head, title = f"{rank:3}  {hit['score']:8.4f}  ", f"{hit['title'] or '(no title)'}  [{hit['id']}]"
        yield from textwrap.wrap(title, width, max_lines=LINES, initial_indent=head, subsequent_indent=" " * len(head))
        text = textwrap.wrap(hit["text"], width - 5, max_lines=LINES, placeholder=" …")
        yield from (f"{'':5}{line}" for line in text)


def attribute_text(query_id: str, retriever: str, page: Path) -> Iterator[str]:
    """Yield lines on what a scored text owes to memory and to each document, and write its page."""
    from pipelines.report import attribution_page
    from pipelines.storage import shards

    data, corpora = Path("data"), params_file.load_params("parts").parts.scored
    scored_in = [corpus for corpus in corpora if attribution_page.holds(data, corpus, query_id)] or corpora
    if not scored_in:
        raise LongtailError("params.yaml: parts.scored is empty, expected a corpus whose test queries are scored")
    text = attribution_page.one_text(data, scored_in[0], retriever, query_id)
    yield text["summary"]
    yield f"{'without':>10} {'with':>10} {'bits':>6} {'memory':>8}  token"
    for token in text["tokens"]:
        memory = token["shares"][0][1]
        yield f"{token['none']:>10} {token['mixed']:>10} {token['gain']:>6} {memory:>8}  {token['text']!r}"
    yield f"memory: {text['memory']}"
    for document in text["documents"]:
        yield f"{document['share']:>8}  document {document['rank']}, {document['id']}: {document['beginning']}"
    with shards.atomic(page) as file:
        file.write_text(attribution_page.render_attribution_page([text], text["summary"]), encoding="utf-8")
    yield f"the page: {page}"
