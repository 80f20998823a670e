"""One batch of raw documents to chunks and queries: clean, tokenise, cut (REPLUG, section 5)."""

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
from pipelines.corpus.query_split import PERMUTATIONS, bands, signatures
from pipelines.corpus.token_bytes import Encoder, Tokens, open_encoder
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
    [("source_document", pa.string()), ("side", pa.string()), ("key", pa.float64()), ("chunks", pa.int64()),
     ("signature", pa.list_(pa.uint32(), PERMUTATIONS)), ("bands", pa.list_(pa.uint64()))]
)  # fmt: skip


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
    duplicates: tuple[str, ...]  # "file:row" of documents that are left out


def cut_batch(settings: Settings, batch: Batch, out: Path) -> None:
    """Write a folder: docs.parquet, queries.parquet with a draw, sources.parquet, rejects.parquet."""
    # A batch is one process's work; the libraries' own threads would only stand in the others' way.
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    out.mkdir()
    rejects = Rejects(1.0)  # the share is judged over the whole corpus
    rows, texts = _texts(settings.name, batch, rejects)
    names = rows["source_document"].to_pylist()
    sides = np.array(rows["side"].to_pylist(), "U")
    keys = _keys(settings, names, rows["source"].to_pylist())
    tokens = _encoder(settings.tokenizer)(texts)
    chunk = settings.chunk
    pieces = cut.cut_texts(tokens, sides == "corpus", chunk.tokens, chunk.min_tokens, chunk.short)
    pq.write_table(_docs(rows, keys, tokens, pieces), out / "docs.parquet", compression="zstd")
    queries, windows = _queries(settings, rows, tokens, sides)
    pq.write_table(queries, out / "queries.parquet", compression="zstd")
    chunks = np.bincount(pieces.text, minlength=len(names))
    found = np.flatnonzero(chunks + windows)
    for i in np.flatnonzero(chunks + windows == 0):
        where = rows["file"][i].as_py(), rows["row"][i].as_py()
        rejects.add(*where, f"too_short_for_{sides[i]}", f"{tokens.counts[i]} tokens")
    columns = [
        [names[i] for i in found],
        sides[found].tolist(),
        keys[found],
        chunks[found],
        *_similar(settings, tokens),
    ]
    columns[4:] = [column.take(pa.array(found)) for column in columns[4:]]
    pq.write_table(pa.table(columns, schema=SOURCES), out / "sources.parquet", compression="zstd")
    rejects.write(out / "rejects.parquet")


def _texts(name: str, batch: Batch, rejects: Rejects) -> tuple[pa.Table, list[str]]:
    """The batch's rows that are no duplicates and have a text, without and with it: what offsets count in."""
    table = pq.read_table(batch.path)
    if batch.duplicates:
        where = pc.binary_join_element_wise(table["file"], table["row"].cast(pa.string()), ":")
        table = table.filter(pc.invert(pc.is_in(where, pa.array(batch.duplicates))))
    texts = table["text"].to_pylist()
    if catalogue.DATASETS[name].title_first:
        columns = [table[column].to_pylist() for column in ("file", "row", "title", "text", "wikitext")]
        texts = [_page(rejects, *row) for row in zip(*columns, strict=True)]
    kept = pa.array([bool(text) for text in texts], pa.bool_())
    return table.drop_columns("text").filter(kept).combine_chunks(), [text for text in texts if text]


def _page(rejects: Rejects, file: str, row: int, title: str, text: str, wikitext: bool) -> str:
    """A page begins with its title, so that its first chunk holds it."""
    try:
        text = wikitext_to_text(text) if wikitext else text
    except BadWikitext as error:
        rejects.add(file, row, "bad_wikitext", str(error))
        return ""
    if not text:
        rejects.add(file, row, "no_text", "nothing but markup")
    return f"{title}\n{text}" if text else ""


def _keys(settings: Settings, names: list[str], sources: list[str]) -> np.ndarray:
    """The documents' keys, see `sample`, where the corpus is capped and they are needed; else 0."""
    corpus = settings.corpus
    if corpus.documents is None:
        return np.zeros(len(names))
    weights = (sample.weight_of(corpus.weights, source) for source in sources)
    return np.array([sample.key(settings.seed, *one) for one in zip(names, weights, strict=True)], dtype=np.float64)


@lru_cache(maxsize=1)
def _encoder(folder: Path) -> Encoder:
    return open_encoder(folder)


def _docs(rows: pa.Table, keys: np.ndarray, tokens: Tokens, pieces: cut.Pieces) -> pa.Table:
    # Arrow strings are one buffer and its bounds. Between two pieces stands what is in neither, as a rule nothing.
    bounds = np.stack([pieces.begin, pieces.end], axis=1).ravel()
    buffers = (pa.py_buffer(bounds), pa.py_buffer(tokens.data))
    texts = pa.LargeStringArray.from_buffers(max(len(bounds) - 1, 0), *buffers).take(
        pa.array(np.arange(0, len(bounds), 2))
    )
    offsets = pieces.begin - (np.cumsum(tokens.sizes) - tokens.sizes)[pieces.text]
    own = {
        name: rows[name].take(pa.array(pieces.text)).combine_chunks() for name in ("source", "title", "source_document")
    }
    columns = own | {
        "id": pc.binary_join_element_wise(own["source_document"], pa.array(offsets).cast(pa.string()), ":"),
        "text": texts.cast(pa.string()),
        "tokens": pieces.tokens.astype(np.int32),
        "offset": offsets,
        "key": keys[pieces.text],
    }
    return pa.table([columns[name] for name in DOCS.names], schema=DOCS)


def _queries(settings: Settings, rows: pa.Table, tokens: Tokens, sides: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """The queries, each with `draw`, a uniform number that its id decides; and how many each document has."""
    queries, starts = settings.queries, np.cumsum(tokens.sizes) - tokens.sizes
    firsts = np.cumsum(tokens.counts) - tokens.counts
    found, numbers = [], np.zeros(len(sides), dtype=np.int64)
    for i in np.flatnonzero(sides != "corpus"):
        ends = tokens.ends[firsts[i] : firsts[i] + tokens.counts[i]]
        lengths = queries.context_tokens, queries.continuation_tokens
        whole = settings.corpus.query_files is not None
        own = cut.windows_throughout(ends, *lengths) if whole else cut.windows(ends, *lengths, queries.per_document)
        numbers[i] = len(own)
        name, source = rows["source_document"][i].as_py(), rows["source"][i].as_py()
        cuts = cut.token_bytes(tokens, firsts, np.full(own.size, i), own.ravel()).reshape(-1, 3)
        for begin, middle, end in cuts.tolist():
            parts = (tokens.data[begin:middle].decode(), tokens.data[middle:end].decode())
            found.append((f"{name}:{begin - starts[i]}", str(sides[i]), name, source, *parts))
    columns = list(zip(*found, strict=True)) or [()] * len(QUERIES)
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=QUERIES)
    return table.append_column("draw", pa.array(draws.uniforms(settings.seed, "queries", columns[0]))), numbers


def _similar(settings: Settings, tokens: Tokens) -> tuple[pa.Array, pa.Array]:
    """Every document's signature and its bands; null for a corpus without queries, which needs none."""
    texts = len(tokens.counts)
    if not settings.corpus.has_queries or texts == 0:
        return tuple(pa.nulls(texts, SOURCES.field(name).type) for name in ("signature", "bands"))
    own = signatures(tokens.ids, tokens.counts)
    parts = bands(own, settings.queries.near_duplicate)
    bounds = pa.array(np.arange(texts + 1) * parts.shape[1], pa.int32())
    return (
        pa.FixedSizeListArray.from_arrays(pa.array(own.ravel()), PERMUTATIONS),
        pa.ListArray.from_arrays(bounds, pa.array(parts.ravel())),
    )
