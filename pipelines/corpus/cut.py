"""Clean, tokenise and cut a batch of source documents into documents and queries (REPLUG, section 5).

A document has `chunk.tokens` tokens; only the last one of a text may have fewer or, merged with a short rest, more. No
cut falls inside a character. A passage that its source has cut already is a document as it is.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import draws
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.corpus.near_duplicates import NEAR_DUPLICATE, PERMUTATIONS, bands, signatures
from pipelines.corpus.token_bytes import Tokens, open_encoder
from pipelines.language.language import ENGLISH
from pipelines.params import params
from pipelines.sources.rejects import Rejects
from pipelines.storage import parquet

DOCS = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("tokens", pa.int32()), ("source_document", pa.string()), ("offset", pa.int64()), ("key", pa.float64())]
)  # fmt: skip
QUERIES = pa.schema(
    [("id", pa.string()), ("split", pa.string()), ("source_document", pa.string()), ("source", pa.string()),
     ("before", pa.string()), ("context", pa.string()), ("continuation", pa.string())]
)  # fmt: skip
SOURCES = pa.schema(
    [("source_document", pa.string()), ("split", pa.string()), ("key", pa.float64()), ("chunks", pa.int64()),
     ("signature", pa.list_(pa.uint32(), PERMUTATIONS)), ("bands", pa.list_(pa.uint64()))]
)  # fmt: skip


_encoder = lru_cache(maxsize=1)(open_encoder)


class Settings(NamedTuple):
    """What decides how a batch is cut; picklable, for the pool."""

    name: str
    tokenizer: Path
    seed: int
    corpus: params.CorpusOf
    chunk: params.Chunk
    queries: params.Queries
    windows: params.Windows
    media: str = ENGLISH.media  # what links to files and categories begin with


class Batch(NamedTuple):
    path: Path
    duplicates: tuple[str, ...]  # "file:row" of the documents that are left out


class Pieces(NamedTuple):
    """Pieces of several texts, in the texts' order; each column is (pieces,) int64."""

    text: np.ndarray  # the number of the text that the piece is from
    tokens: np.ndarray  # tokens of the piece
    begin: np.ndarray  # first byte, in `Tokens.data`
    end: np.ndarray  # byte behind the last one, in `Tokens.data`


def cut_batch(settings: Settings, batch: Batch, out: Path) -> None:
    """Write docs, queries, rejects, and the sources that gave any of the first two, as Parquet files in `out`."""
    # A batch is the work of one process; threads of the libraries would only compete with the other processes.
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    out.mkdir()
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole corpus
    rows, texts = _texts(batch, rejects, settings.media)
    splits = np.array(rows["split"].to_pylist(), "U")
    tokens = _encoder(settings.tokenizer)(texts)
    chunk, whole = settings.chunk, np.array(rows["whole"].to_pylist(), bool)
    sizes = np.where(whole, np.maximum(tokens.counts, 1), chunk.tokens)
    pieces = cut_texts(tokens, splits == "corpus", sizes, np.where(whole, 1, chunk.min_tokens))
    queries, n_queries = _queries(settings, rows, tokens, splits)
    chunks = np.bincount(pieces.text, minlength=len(texts))
    for i in np.flatnonzero(chunks + n_queries == 0):
        place = rows["file"][i].as_py(), rows["row"][i].as_py()
        rejects.add(*place, f"too_short_for_{splits[i]}", f"{tokens.counts[i]} tokens")
    columns = [rows["source_document"], splits.tolist(), rows["key"], chunks, *_signatures(settings, tokens)]
    sources = pa.table(columns, schema=SOURCES).take(pa.array(np.flatnonzero(chunks + n_queries)))
    for name, table in {"docs": _docs(rows, tokens, pieces), "queries": queries, "sources": sources}.items():
        parquet.write_parquet(table, out / f"{name}.parquet")
    rejects.write(out / "rejects.parquet")


def _texts(batch: Batch, rejects: Rejects, media: str) -> tuple[pa.Table, list[str]]:
    """The batch's rows that are not duplicates and have a text, without the column `text`; and their clean texts."""
    table = parquet.read_parquet(batch.path)
    if batch.duplicates:
        places = pc.binary_join_element_wise(table["file"], table["row"].cast(pa.string()), ":")
        table = table.filter(pc.invert(pc.is_in(places, pa.array(batch.duplicates))))
    columns = [table[column].to_pylist() for column in ("file", "row", "text", "wikitext")]
    texts = []
    for file, row, text, wikitext in zip(*columns, strict=True):
        try:
            texts.append(wikitext_to_text(text, media) if wikitext else text)
            if not texts[-1]:
                rejects.add(file, row, "no_text", "nothing but markup")
        except BadWikitext as error:
            rejects.add(file, row, "bad_wikitext", str(error))
            texts.append("")
    kept = pa.array([bool(text) for text in texts], pa.bool_())
    return table.drop_columns("text").filter(kept).combine_chunks(), [text for text in texts if text]


def _docs(rows: pa.Table, tokens: Tokens, pieces: Pieces) -> pa.Table:
    offsets = pieces.begin - (np.cumsum(tokens.sizes) - tokens.sizes)[pieces.text]
    copied = rows.select(["source", "title", "source_document", "key"]).take(pa.array(pieces.text)).combine_chunks()
    columns = dict(zip(copied.column_names, copied.columns, strict=True)) | {
        "id": pc.binary_join_element_wise(copied["source_document"], pa.array(offsets).cast(pa.string()), ":"),
        "text": [tokens.data[begin:end].decode() for begin, end in zip(pieces.begin, pieces.end, strict=True)],
        "tokens": pieces.tokens.astype(np.int32),
        "offset": offsets,
    }
    return pa.table([columns[name] for name in DOCS.names], schema=DOCS)


def _queries(settings: Settings, rows: pa.Table, tokens: Tokens, splits: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """The queries, each with `draw`, a hash of (seed, query id); and each source document's number of queries."""
    seed, queries, starts = settings.seed, settings.queries, np.cumsum(tokens.sizes) - tokens.sizes
    firsts = np.cumsum(tokens.counts) - tokens.counts
    written, numbers = [], np.zeros(len(splits), dtype=np.int64)
    for i in np.flatnonzero(splits != "corpus"):
        ends = tokens.ends[firsts[i] : firsts[i] + tokens.counts[i]]
        name, source = rows["source_document"][i].as_py(), rows["source"][i].as_py()
        if splits[i] == "test":
            cuts = rolling_windows(ends, *settings.windows.model_dump().values())
        else:
            shift = draws.uniform(seed, "first query", name)
            cuts = separate_windows(ends, queries.context_tokens, queries.continuation_tokens, shift)
            numbered = [f"{name}:{number}" for number in range(len(cuts))]
            cuts = (
                cuts[draws.sample(seed, "queries of a document", numbered, queries.per_document)] if numbered else cuts
            )
        numbers[i] = len(cuts)
        # Test queries know a document's length of the text in front of their context, as a control of retrieval.
        before = settings.chunk.tokens if splits[i] == "test" else 0
        starts_before = [_beginning(ends, max(begin - before, 0)) if before else begin for begin in cuts[:, 0].tolist()]
        cuts = np.column_stack([np.array(starts_before, np.int64), cuts])
        cuts = byte_cuts(tokens, firsts, np.full(cuts.size, i), cuts.ravel()).reshape(-1, 4)
        for bounds in cuts.tolist():
            parts = [tokens.data[begin:end].decode() for begin, end in pairwise(bounds)]
            middle = bounds[2]
            written.append((f"{name}:{middle - starts[i]}", str(splits[i]), name, source, *parts))
    columns = list(zip(*written, strict=True)) or [()] * len(QUERIES)
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=QUERIES)
    return table.append_column("draw", pa.array(draws.uniforms(settings.seed, "queries", columns[0]))), numbers


def _signatures(settings: Settings, tokens: Tokens) -> tuple[pa.Array, pa.Array]:
    """Every text's signature and bands (see `near_duplicates`); null for a corpus without queries."""
    texts = len(tokens.counts)
    if not settings.corpus.has_queries or texts == 0:
        return tuple(pa.nulls(texts, SOURCES.field(name).type) for name in ("signature", "bands"))
    signed = signatures(tokens.ids, tokens.counts)
    banded = bands(signed, NEAR_DUPLICATE)
    bounds = pa.array(np.arange(texts + 1) * banded.shape[1], pa.int32())
    return (
        pa.FixedSizeListArray.from_arrays(pa.array(signed.ravel()), PERMUTATIONS),
        pa.ListArray.from_arrays(bounds, pa.array(banded.ravel())),
    )


def cut_texts(tokens: Tokens, wanted: np.ndarray, size: int | np.ndarray, min_tokens: int | np.ndarray) -> Pieces:
    """`cut_tokens` of the texts where `wanted` (texts,) is true; the lengths are numbers, or arrays (texts,)."""
    firsts = np.cumsum(tokens.counts) - tokens.counts
    texts = np.flatnonzero(wanted)
    of_texts = (
        np.broadcast_to(value, len(wanted))[texts].tolist() for value in (firsts, tokens.counts, size, min_tokens)
    )
    ranges = [
        cut_tokens(tokens.ends[first : first + count], *lengths)
        for first, count, *lengths in zip(*of_texts, strict=True)
    ]
    begin, end = np.concatenate([np.empty((0, 2), np.int64), *ranges]).T
    text = np.repeat(texts, list(map(len, ranges)))
    return Pieces(text, end - begin, *(byte_cuts(tokens, firsts, text, cut) for cut in (begin, end)))


def byte_cuts(tokens: Tokens, firsts: np.ndarray, text: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Bytes (cuts,) of the token boundaries `cuts` of texts `text`; `firsts` (texts,): each text's first token."""
    starts = np.cumsum(tokens.sizes) - tokens.sizes
    return np.where(cuts == 0, starts[text], tokens.ends[firsts[text] + np.maximum(cuts, 1) - 1])


def cut_tokens(ends: np.ndarray, size: int, min_tokens: int) -> np.ndarray:
    """Token ranges of `size` tokens each, (pieces, 2) int64, from one text's `Tokens.ends`.

    A cut that would fall inside a character moves back to the character's beginning, or forward to its end if the
    character alone is longer than a piece. A last piece shorter than `min_tokens` joins the piece before it. A
    text shorter than `min_tokens` has no piece.
    """
    total, cuts = len(ends), [0]
    if total < min_tokens:
        return np.empty((0, 2), dtype=np.int64)
    while total - cuts[-1] > size:
        cuts.append(_allowed(ends, cuts[-1], cuts[-1] + size))
    if total - cuts[-1] < min_tokens:
        cuts.pop()
    return np.array(list(pairwise([*cuts, total])), dtype=np.int64).reshape(-1, 2)


def separate_windows(ends: np.ndarray, context: int, continuation: int, shift: float) -> np.ndarray:
    """All windows of a context and its continuation that fit a text, (windows, 3) int64: begin, middle and end token.

    Windows don't overlap. `shift`, from 0 to 1, says which part of the tokens that no window has room for lies before
    the first one. Both parts have their full length, except where a cut moved out of a character.
    """
    rows: list[tuple[int, int, int]] = []
    spare = len(ends) % (context + continuation)
    begin = int(shift * (spare + 1))
    begin = _allowed(ends, 0, begin) if begin and len(ends) >= context + continuation else 0
    while begin + context + continuation <= len(ends):
        middle = _allowed(ends, begin, begin + context)
        if middle == len(ends):
            break
        end = _allowed(ends, middle, min(middle + continuation, len(ends)))
        rows.append((begin, middle, end))
        begin = end
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def rolling_windows(ends: np.ndarray, context: int, stride: int, first: bool) -> np.ndarray:
    """Windows over all of a text, (windows, 3) int64: begin of the context, begin and end of what is predicted.

    Every token behind the first `context` is predicted in exactly one window. With `first`, the tokens before it are
    predicted by one more window, whose context is empty. The last window may be shorter.
    """
    rows: list[tuple[int, int, int]] = []
    middle = _allowed(ends, 0, context) if len(ends) > context else len(ends)
    if first and middle:
        rows.append((0, 0, middle))
    while middle < len(ends):
        begin = _beginning(ends, max(middle - context, 0))
        end = _allowed(ends, middle, min(middle + stride, len(ends)))
        rows.append((begin, middle, end))
        middle = end
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _beginning(ends: np.ndarray, begin: int) -> int:
    """The last token boundary up to `begin` that isn't inside a character."""
    while begin > 0 and ends[begin - 1] < 0:
        begin -= 1
    return begin


def _allowed(ends: np.ndarray, begin: int, cut: int) -> int:
    """The last token boundary in (begin, cut] that isn't inside a character; if there is none, the next after `cut`."""
    moved = cut
    while moved > begin and ends[moved - 1] < 0:
        moved -= 1
    if moved > begin:
        return moved
    while ends[cut - 1] < 0:
        cut += 1
    return cut
