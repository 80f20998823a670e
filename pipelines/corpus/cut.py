"""Clean, tokenise and cut a batch of source documents into documents and queries (REPLUG, section 5).

A document has `chunk.tokens` tokens; only the last one of a text may have fewer or, merged with a short rest, more. No
cut falls inside a character. A passage that its source has cut already is a document as it is.
"""

import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, PERMUTATIONS, bands, signatures
from pipelines.corpus.tokenizer import Tokens, open_encoder
from pipelines.params import params
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet

DOCS = pa.schema(
    dict.fromkeys(("id", "source", "title", "text"), pa.string())
    | {
        "tokens": pa.int32(),
        "source_document": pa.string(),
        "offset": pa.int64(),
        "key": pa.float64(),
    }
)
TEXTS = ("id", "split", "source_document", "source", "before", "context", "continuation")
QUERIES = pa.schema(dict.fromkeys(TEXTS, pa.string()) | {"draw": pa.float64()})
SOURCES = pa.schema(
    {
        "source_document": pa.string(),
        "split": pa.string(),
        "key": pa.float64(),
        "chunks": pa.int64(),
    }
    | {"signature": pa.list_(pa.uint32(), PERMUTATIONS), "bands": pa.list_(pa.uint64())}
)
_encoder = lru_cache(maxsize=1)(open_encoder)


class Settings(NamedTuple):
    """What decides how a corpus is sampled and cut; picklable, for the pool."""

    name: str
    tokenizer: Path
    seed: int
    corpus: params.Corpus
    chunk: params.Chunk
    queries: params.Queries
    windows: params.Windows
    media: str  # what links to files and categories begin with


class Batch(NamedTuple):
    path: Path
    repeated: dict[
        tuple[str, int], str | None
    ]  # (file, row) of documents whose id is another's: a new id, or None


def cut_batch(settings: Settings, batch: Batch, out: Path) -> None:
    """Write docs, queries, rejects, and the sources that gave any of the first two, as Parquet files in `out`."""
    # A batch is the work of one process; threads of the libraries would only compete with the other processes.
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    out.mkdir()
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole corpus
    rows, texts = _clean_rows(batch, rejects, settings.media)
    encoded = _encoder(settings.tokenizer)(texts)
    signed = banded = [None] * len(rows)
    if settings.corpus.has_queries:
        signed = signatures([tokens.ids for tokens in encoded])
        banded = bands(signed, NEAR_DUPLICATE)
    docs, queries, sources = [], [], []
    for row, tokens, *signature in zip(rows, encoded, signed, banded, strict=True):
        in_corpus = row["split"] == "corpus"
        made = (_documents if in_corpus else _queries)(settings, row, tokens)
        (docs if in_corpus else queries).extend(made)
        if made:
            chunks = len(made) if in_corpus else 0
            sources.append((row["source_document"], row["split"], row["key"], chunks, *signature))
        else:
            rejects.add(
                row["file"],
                row["row"],
                f"too_short_for_{row['split']}",
                f"{len(tokens.ids)} tokens",
            )
    for name, made, schema in (
        ("docs", docs, DOCS),
        ("queries", queries, QUERIES),
        ("sources", sources, SOURCES),
    ):
        write_rows(made, schema, out / f"{name}.parquet")
    rejects.write(out / "rejects.parquet")


def write_rows(rows: list[tuple], schema: pa.Schema, path: Path) -> None:
    """Write tuples of the schema's columns to a Parquet file."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    parquet.write_parquet(pa.table(arrays, schema=schema), path)


def _clean_rows(batch: Batch, rejects: Rejects, media: str) -> tuple[list[dict], list[str]]:
    """The batch's rows that are no copies and have a text, with their ids, and their clean texts."""
    rows, texts = [], []
    for row in parquet.read_parquet(batch.path).to_pylist():
        file, number, text = row["file"], row["row"], row["text"]
        row["source_document"] = batch.repeated.get((file, number), row["source_document"])
        if row["source_document"] is None:
            continue
        try:
            text = wikitext_to_text(text, media) if row["wikitext"] else text
        except BadWikitext as error:
            rejects.add(file, number, "bad_wikitext", str(error))
            continue
        if text:
            rows.append(row)
            texts.append(text)
        else:
            rejects.add(file, number, "no_text", "nothing but markup")
    return rows, texts


def _documents(settings: Settings, row: dict, tokens: Tokens) -> list[tuple]:
    """A text's documents, as rows of DOCS."""
    lengths = (settings.chunk.tokens, settings.chunk.min_tokens)
    if row["whole"]:
        lengths = (max(len(tokens.ids), 1), 1)
    name, documents = row["source_document"], []
    for begin, end in cut_tokens(tokens.bounds, *lengths):
        offset, text = int(tokens.bounds[begin]), tokens.text(begin, end)
        shown = (row["source"], row["title"] if settings.corpus.titles else "", text, end - begin)
        documents.append((f"{name}:{offset}", *shown, name, offset, row["key"]))
    return documents


def _queries(settings: Settings, row: dict, tokens: Tokens) -> list[tuple]:
    """A text's queries, as rows of QUERIES; `draw` is a hash of (seed, query id)."""
    seed, queries, bounds, name = (
        settings.seed,
        settings.queries,
        tokens.bounds,
        row["source_document"],
    )
    before = 0
    if row["split"] == "test":
        windows = rolling_windows(bounds, *settings.windows.model_dump().values())
        before = (
            settings.chunk.tokens
        )  # a document's length of the text before the context, as a control of retrieval
    else:
        shift = draws.uniform(seed, "first query", name)
        windows = separate_windows(
            bounds, queries.context_tokens, queries.continuation_tokens, shift
        )
        numbered = [f"{name}:{number}" for number in range(len(windows))]
        drawn = (
            draws.sample(seed, "queries of a document", numbered, queries.per_document)
            if numbered
            else []
        )
        windows = [windows[i] for i in drawn]
    written = []
    for begin, middle, end in windows:
        query, cuts = (
            f"{name}:{bounds[middle]}",
            (_beginning(bounds, max(begin - before, 0)), begin, middle, end),
        )
        parts = [tokens.text(*span) for span in pairwise(cuts)]
        written.append(
            (
                query,
                row["split"],
                name,
                row["source"],
                *parts,
                draws.uniform(seed, "queries", query),
            )
        )
    return written


def cut_tokens(bounds: np.ndarray, size: int, min_tokens: int) -> list[tuple[int, int]]:
    """Token ranges of `size` tokens each, from one text's `Tokens.bounds`.

    A cut inside a character moves back to the character's beginning, or forward to its end if the character alone is
    longer than a piece. A last piece shorter than `min_tokens` joins the piece before it; a shorter text has no piece.
    """
    total, cuts = len(bounds) - 1, [0]
    if total < min_tokens:
        return []
    while total - cuts[-1] > size:
        cuts.append(_allowed(bounds, cuts[-1], cuts[-1] + size))
    if total - cuts[-1] < min_tokens:
        cuts.pop()
    return list(pairwise([*cuts, total]))


def separate_windows(
    bounds: np.ndarray, context: int, continuation: int, shift: float
) -> list[tuple[int, int, int]]:
    """All windows of a context and its continuation that fit a text, without overlap: begin, middle and end of each.

    `shift`, from 0 to 1, says which part of the tokens that no window has room for lies before the first one. Both
    parts have their full length, except where a cut moved out of a character.
    """
    windows, total, length = [], len(bounds) - 1, context + continuation
    begin = int(shift * (total % length + 1))
    begin = _allowed(bounds, 0, begin) if begin and total >= length else 0
    while begin + length <= total:
        middle = _allowed(bounds, begin, begin + context)
        if middle == total:
            break
        end = _allowed(bounds, middle, min(middle + continuation, total))
        windows.append((begin, middle, end))
        begin = end
    return windows


def rolling_windows(
    bounds: np.ndarray, context: int, stride: int, first: bool | str
) -> list[tuple[int, int, int]]:
    """Windows over all of a text: begin of the context, begin and end of what is predicted, in tokens.

    Every token behind the first `context` is predicted in exactly one window. With `first`, the tokens before it are
    predicted by one more window, whose context is empty. The last window may be shorter. With `first` "window", all
    windows have the same length: the first predicts all its context + stride - 1 tokens (the token that begins a text
    takes the place of one), and the last has the more context, the less it predicts.
    """
    windows, total, whole = [], len(bounds) - 1, first == "window"
    alone = context + stride - 1 if whole else context
    middle = _allowed(bounds, 0, alone) if total > alone else total
    if first and middle:
        windows.append((0, 0, middle))
    while middle < total:
        end = _allowed(bounds, middle, min(middle + stride, total))
        begin = _beginning(bounds, max(end - context - stride if whole else middle - context, 0))
        windows.append((begin, middle, end))
        middle = end
    return windows


def _beginning(bounds: np.ndarray, begin: int) -> int:
    """The last token boundary up to `begin` that isn't inside a character."""
    while bounds[begin] < 0:
        begin -= 1
    return begin


def _allowed(bounds: np.ndarray, begin: int, cut: int) -> int:
    """The last token boundary in (begin, cut] that isn't inside a character; if there is none, the next after `cut`."""
    if (moved := _beginning(bounds, cut)) > begin:
        return moved
    while bounds[cut] < 0:
        cut += 1
    return cut
