"""Clean, tokenise and cut a batch of source documents into documents and queries (REPLUG, section
5).

A document has `chunk.tokens` tokens; only the last one of a text may have fewer or, merged with a
short rest, more. A passage that its source has cut already is a document as it is.
"""

import os
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, PERMUTATIONS, bands, signatures
from pipelines.corpus.source_batches import Batch, CorpusSettings, write_rows
from pipelines.corpus.token_bytes import Tokens, open_encoder
from pipelines.corpus.windows import (
    Window,
    cut_tokens,
    last_boundary,
    rolling_windows,
    separate_windows,
)
from pipelines.language.language import MediaWiki
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet
from pipelines.storage.atomic import write_json
from pipelines.tables.corpora import DOCS, QUERIES
from pipelines.tables.table import FLOAT64, INT64, STRING

CUT_DOCS = DOCS.schema.append(pa.field("key", FLOAT64))
# `draw` is a hash of (seed, query id)
CUT_QUERIES = QUERIES.schema.append(pa.field("draw", FLOAT64))
SOURCES = pa.schema(  # source documents that gave documents or queries
    {
        "source_document": STRING,
        "split": STRING,
        "key": FLOAT64,
        "chunks": INT64,  # documents that it gave
        "signature": pa.list_(pa.uint32(), PERMUTATIONS),
        "bands": pa.list_(pa.uint64()),
    }
)
SHORTEST_PART = 8  # this part of chunk.tokens is the least of a document
TOO_SHORT = "too_short_for_"  # documents rejected for this reason are not bad rows
_encoder = lru_cache(maxsize=1)(open_encoder)


def cut_batch(settings: CorpusSettings, batch: Batch, out: Path) -> None:
    """Write docs, queries, rejects, and the sources that gave any of the first two, as Parquet
    files in `out`.
    """
    # A batch is the work of one process; threads of the libraries would only compete with the other
    # processes.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    out.mkdir()
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole corpus
    dropped: Counter[str] = Counter()
    rows, texts = _clean_rows(batch, rejects, settings.media, dropped)
    encoded = _encoder(settings.tokenizer)(texts)
    if settings.corpus.has_queries:
        matrix = signatures([tokens.ids for tokens in encoded])
        matrix_of_bands = bands(matrix, NEAR_DUPLICATE)
        for i, row in enumerate(rows):
            row["signature"] = matrix[i]
            row["bands"] = matrix_of_bands[i]

    documents: list[dict] = []
    queries: list[dict] = []
    sources: list[dict] = []
    for row, tokens in zip(rows, encoded, strict=True):
        row_documents = []
        row_queries = []
        if row["split"] == "corpus":
            row_documents = _documents(settings, row, tokens)
        else:
            row_queries = _queries(settings, row, tokens)
        if not row_documents and not row_queries:
            reason = f"{TOO_SHORT}{row['split']}"
            rejects.add(row["file"], row["row"], reason, f"{len(tokens.ids)} tokens")
            continue

        documents += row_documents
        queries += row_queries
        sources.append(row | {"chunks": len(row_documents)})
    write_rows(documents, CUT_DOCS, out / "docs.parquet")
    write_rows(queries, CUT_QUERIES, out / "queries.parquet")
    write_rows(sources, SOURCES, out / "sources.parquet")
    rejects.write(out / "rejects.parquet")
    write_json(out / "dropped.json", dropped)


def _clean_rows(
    batch: Batch, rejects: Rejects, media: MediaWiki, dropped: Counter[str]
) -> tuple[list[dict], list[str]]:
    """The batch's rows that are no copies and have a text, with their ids, and their clean
    texts.

    `dropped` takes the names of templates that are dropped within sentences.
    """
    rows = []
    texts = []
    for row in parquet.read_parquet(batch.path).to_pylist():
        place = (row["file"], row["row"])
        row["source_document"] = batch.repeated.get(place, row["source_document"])
        if row["source_document"] is None:  # a copy of another document
            continue
        text = row["text"]
        if row["wikitext"]:
            try:
                text = wikitext_to_text(text, media, dropped)
            except BadWikitext as error:
                rejects.add(row["file"], row["row"], "bad_wikitext", str(error))
                continue
        if text:
            rows.append(row)
            texts.append(text)
        else:
            rejects.add(row["file"], row["row"], "no_text", "nothing but markup")
    return rows, texts


def _documents(settings: CorpusSettings, row: dict, tokens: Tokens) -> list[dict]:
    """A text's documents, rows of CUT_DOCS."""
    size = settings.chunk.tokens
    min_tokens = max(1, size // SHORTEST_PART)
    if row["whole"]:
        size = max(len(tokens.ids), 1)
        min_tokens = 1
    if not settings.corpus.titles:
        row = row | {"title": ""}

    documents = []
    for begin, end in cut_tokens(tokens.bounds, size, min_tokens):
        offset = int(tokens.bounds[begin])
        document = row | {
            "id": f"{row['source_document']}:{offset}",
            "text": tokens.text(begin, end),
            "tokens": end - begin,
            "offset": offset,
        }
        documents.append(document)
    return documents


def _queries(settings: CorpusSettings, row: dict, tokens: Tokens) -> list[dict]:
    """A text's queries, rows of CUT_QUERIES."""
    bounds = tokens.bounds
    windows = settings.windows
    before_tokens = 0
    if row["split"] == "test":
        before_tokens = settings.chunk.tokens
        cuts = rolling_windows(bounds, windows.context_tokens, windows.stride_tokens, windows.first)
    else:
        cuts = _drawn_windows(settings, row["source_document"], bounds)

    queries = []
    for begin, middle, end in cuts:
        first = last_boundary(bounds, max(begin - before_tokens, 0))
        query_id = f"{row['source_document']}:{bounds[middle]}"
        query = row | {
            "id": query_id,
            "before": tokens.text(first, begin),
            "context": tokens.text(begin, middle),
            "continuation": tokens.text(middle, end),
            "draw": draws.uniform(settings.seed, "queries", query_id),
        }
        if row["split"] == "test" and settings.corpus.test_lines:
            # intervals resample source documents, and one text of joined lines is too few
            query["source_document"] = query_id
        queries.append(query)
    return queries


def _drawn_windows(
    settings: CorpusSettings, source_document: str, bounds: np.ndarray
) -> list[Window]:
    """Some of a text's windows without overlap: begin, middle and end of each."""
    queries = settings.queries
    shift = draws.uniform(settings.seed, "first query", source_document)
    windows = separate_windows(bounds, queries.context_tokens, queries.continuation_tokens, shift)
    if not windows:
        return []
    names = [f"{source_document}:{number}" for number in range(len(windows))]
    drawn = draws.sample(settings.seed, "queries of a document", names, queries.per_document)
    return [windows[i] for i in drawn]
