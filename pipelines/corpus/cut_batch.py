"""One batch of raw source documents, cleaned, tokenised and cut into documents and queries (REPLUG, section 5)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import catalogue, draws, params
from pipelines.corpus import cut, sample
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.corpus.near_duplicates import PERMUTATIONS, bands, signatures
from pipelines.corpus.token_bytes import Tokens, open_encoder
from pipelines.sources.rejects import Rejects

DOCS = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("tokens", pa.int32()), ("source_document", pa.string()), ("offset", pa.int64()), ("key", pa.float64())]
)  # fmt: skip
QUERIES = pa.schema(
    [("id", pa.string()), ("split", pa.string()), ("source_document", pa.string()), ("source", pa.string()),
     ("context", pa.string()), ("continuation", pa.string())]
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


class Batch(NamedTuple):
    path: Path
    duplicates: tuple[str, ...]  # "file:row" of the documents that are left out


def cut_batch(settings: Settings, batch: Batch, out: Path) -> None:
    """Write docs, queries, rejects, and the sources that gave any of the first two, as Parquet files in `out`."""
    # A batch is the work of one process; threads of the libraries would only compete with the other processes.
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    out.mkdir()
    rejects = Rejects(1.0)  # the share of bad rows is checked over the whole corpus
    rows, texts = _texts(settings.name, batch, rejects)
    splits = np.array(rows["split"].to_pylist(), "U")
    keys = _keys(settings, rows)
    tokens = _encoder(settings.tokenizer)(texts)
    chunk = settings.chunk
    pieces = cut.cut_texts(tokens, splits == "corpus", chunk.tokens, chunk.min_tokens, chunk.short)
    queries, windows = _queries(settings, rows, tokens, splits)
    chunks = np.bincount(pieces.text, minlength=len(texts))
    for i in np.flatnonzero(chunks + windows == 0):
        place = rows["file"][i].as_py(), rows["row"][i].as_py()
        rejects.add(*place, f"too_short_for_{splits[i]}", f"{tokens.counts[i]} tokens")
    columns = [rows["source_document"], splits.tolist(), keys, chunks, *_signatures(settings, tokens)]
    sources = pa.table(columns, schema=SOURCES).take(pa.array(np.flatnonzero(chunks + windows)))
    for name, table in {"docs": _docs(rows, keys, tokens, pieces), "queries": queries, "sources": sources}.items():
        pq.write_table(table, out / f"{name}.parquet", compression="zstd")
    rejects.write(out / "rejects.parquet")


def _texts(name: str, batch: Batch, rejects: Rejects) -> tuple[pa.Table, list[str]]:
    """The batch's rows that are not duplicates and have a text, without the column `text`; and their clean texts."""
    table = pq.read_table(batch.path)
    if batch.duplicates:
        places = pc.binary_join_element_wise(table["file"], table["row"].cast(pa.string()), ":")
        table = table.filter(pc.invert(pc.is_in(places, pa.array(batch.duplicates))))
    texts = table["text"].to_pylist()
    if catalogue.DATASETS[name].title_first:
        columns = [table[column].to_pylist() for column in ("file", "row", "title", "text", "wikitext")]
        texts = [_page(rejects, *row) for row in zip(*columns, strict=True)]
    kept = pa.array([bool(text) for text in texts], pa.bool_())
    return table.drop_columns("text").filter(kept).combine_chunks(), [text for text in texts if text]


def _page(rejects: Rejects, file: str, row: int, title: str, text: str, wikitext: bool) -> str:
    """The page's plain text behind its title, so that the first document has the title; "" for a rejected page."""
    try:
        text = wikitext_to_text(text) if wikitext else text
    except BadWikitext as error:
        rejects.add(file, row, "bad_wikitext", str(error))
        return ""
    if not text:
        rejects.add(file, row, "no_text", "nothing but markup")
    return f"{title}\n{text}" if text else ""


def _keys(settings: Settings, rows: pa.Table) -> np.ndarray:
    """The source documents' keys (see `sample`), (source documents,) float64; 0 if the corpus has no cap."""
    if settings.corpus.documents is None:
        return np.zeros(len(rows))
    draw = sample.Draw(settings.seed, settings.corpus, settings.queries)
    pairs = zip(rows["source_document"].to_pylist(), rows["source"].to_pylist(), strict=True)
    return np.array([draw.key(*pair, "corpus") for pair in pairs], dtype=np.float64)


def _docs(rows: pa.Table, keys: np.ndarray, tokens: Tokens, pieces: cut.Pieces) -> pa.Table:
    # An Arrow array of strings is one buffer and its bounds. Every other string is a piece; those between hold the
    # bytes between two pieces, of which there are as a rule none.
    bounds = np.stack([pieces.begin, pieces.end], axis=1).ravel()
    buffers = (pa.py_buffer(bounds), pa.py_buffer(tokens.data))
    strings = pa.LargeStringArray.from_buffers(max(len(bounds) - 1, 0), *buffers)
    offsets = pieces.begin - (np.cumsum(tokens.sizes) - tokens.sizes)[pieces.text]
    copied = rows.select(["source", "title", "source_document"]).take(pa.array(pieces.text)).combine_chunks()
    columns = dict(zip(copied.column_names, copied.columns, strict=True)) | {
        "id": pc.binary_join_element_wise(copied["source_document"], pa.array(offsets).cast(pa.string()), ":"),
        "text": strings.take(pa.array(np.arange(0, len(bounds), 2))).cast(pa.string()),
        "tokens": pieces.tokens.astype(np.int32),
        "offset": offsets,
        "key": keys[pieces.text],
    }
    return pa.table([columns[name] for name in DOCS.names], schema=DOCS)


def _queries(settings: Settings, rows: pa.Table, tokens: Tokens, splits: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """The queries, each with `draw`, a hash of (seed, query id); and each source document's number of queries."""
    queries, starts = settings.queries, np.cumsum(tokens.sizes) - tokens.sizes
    lengths = queries.context_tokens, queries.continuation_tokens
    firsts = np.cumsum(tokens.counts) - tokens.counts
    written, numbers = [], np.zeros(len(splits), dtype=np.int64)
    for i in np.flatnonzero(splits != "corpus"):
        ends = tokens.ends[firsts[i] : firsts[i] + tokens.counts[i]]
        if settings.corpus.query_files is None:
            windows = cut.windows(ends, *lengths, queries.per_document)
        else:
            windows = cut.windows_throughout(ends, *lengths)
        numbers[i] = len(windows)
        name, source = rows["source_document"][i].as_py(), rows["source"][i].as_py()
        cuts = cut.byte_cuts(tokens, firsts, np.full(windows.size, i), windows.ravel()).reshape(-1, 3)
        for begin, middle, end in cuts.tolist():
            parts = (tokens.data[begin:middle].decode(), tokens.data[middle:end].decode())
            written.append((f"{name}:{begin - starts[i]}", str(splits[i]), name, source, *parts))
    columns = list(zip(*written, strict=True)) or [()] * len(QUERIES)
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=QUERIES)
    return table.append_column("draw", pa.array(draws.uniforms(settings.seed, "queries", columns[0]))), numbers


def _signatures(settings: Settings, tokens: Tokens) -> tuple[pa.Array, pa.Array]:
    """Every text's signature and bands (see `near_duplicates`); null for a corpus without queries."""
    texts = len(tokens.counts)
    if not settings.corpus.has_queries or texts == 0:
        return tuple(pa.nulls(texts, SOURCES.field(name).type) for name in ("signature", "bands"))
    signed = signatures(tokens.ids, tokens.counts)
    banded = bands(signed, settings.queries.near_duplicate)
    bounds = pa.array(np.arange(texts + 1) * banded.shape[1], pa.int32())
    return (
        pa.FixedSizeListArray.from_arrays(pa.array(signed.ravel()), PERMUTATIONS),
        pa.ListArray.from_arrays(bounds, pa.array(banded.ravel())),
    )
