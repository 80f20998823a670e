"""One batch of raw documents to chunks and queries: clean, tokenise, cut (REPLUG, section 5)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from mwparserfromhell.parser import ParserError

from pipelines import draws, params
from pipelines.corpus import cut
from pipelines.corpus.clean import wikitext_to_text
from pipelines.corpus.read import write_rows
from pipelines.corpus.split import PERMUTATIONS, side, signature
from pipelines.lm.tokenizer import encode, open_tokenizer
from pipelines.sources.rejects import Rejects

TOGETHER = 1_000_000  # characters tokenised at once
DOCS = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("title", pa.string()), ("text", pa.string()),
     ("tokens", pa.int32()), ("source_document", pa.string()), ("offset", pa.int64())]
)  # fmt: skip
QUERIES = pa.schema(
    [("id", pa.string()), ("split", pa.string()), ("source_document", pa.string()), ("source", pa.string()),
     ("context", pa.string()), ("continuation", pa.string())]
)  # fmt: skip
SOURCES = pa.schema(
    [("source_document", pa.string()), ("side", pa.string()), ("signature", pa.list_(pa.uint32(), PERMUTATIONS))]
)


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
    """Write a folder: docs.parquet and queries.parquet, each with a draw; sources.parquet; rejects.parquet."""
    out.mkdir()
    rejects = Rejects(1.0)  # the share is judged over the whole corpus
    rows = pq.read_table(batch.path).to_pylist()
    rows = [row for row in rows if f"{row['file']}:{row['row']}" not in batch.duplicates]
    kept = []
    for row in rows:
        try:
            row["text"] = _text(settings.name, row)
        except ParserError as error:
            rejects.add(row["file"], row["row"], "bad_wikitext", str(error))
            continue
        if row["text"]:
            kept.append(row)
        else:
            rejects.add(row["file"], row["row"], "no_text", "nothing but markup")
    docs: list[pa.Table] = []
    queries: list[tuple] = []
    sources: list[tuple] = []
    for row, ids, offsets in _tokenised(settings.tokenizer, kept):
        where = side(settings.seed, row["source_document"], settings.corpus.query_share, settings.queries)
        ends = cut.token_ends(offsets)
        if where == "corpus":
            found = _chunks(settings, row, ends, docs)
        else:
            found = _queries(settings, row, ends, where, queries)
        if not found:
            rejects.add(row["file"], row["row"], f"too_short_for_{where}", f"{len(ends)} tokens")
        elif settings.corpus.query_share > 0:
            sources.append((row["source_document"], where, signature(ids)))
    table = pa.concat_tables(docs) if docs else DOCS.empty_table()
    pq.write_table(_with_draw(table, settings.seed, "corpus"), out / "docs.parquet", compression="zstd")
    write_rows(queries, QUERIES, out / "queries.parquet")
    table = _with_draw(pq.read_table(out / "queries.parquet"), settings.seed, "queries")
    pq.write_table(table, out / "queries.parquet", compression="zstd")
    write_rows(sources, SOURCES, out / "sources.parquet")
    rejects.write(out / "rejects.parquet")


def _text(name: str, row: dict) -> str:
    """The cleaned source text that offsets count in. A page begins with its title, so that its first chunk holds it."""
    if name != "wikipedia":
        return row["text"]
    text = wikitext_to_text(row["text"])
    return f"{row['title']}\n{text}" if text else ""


@lru_cache(maxsize=1)
def _tokenizer(folder: Path):
    return open_tokenizer(folder)


def _tokenised(folder: Path, rows: list[dict]):
    """Yield (row, token ids, offsets), tokenising about TOGETHER characters at a time."""
    tokenizer = _tokenizer(folder)
    begin = 0
    while begin < len(rows):
        end, size = begin, 0
        while end < len(rows) and size < TOGETHER:
            size += len(rows[end]["text"])
            end += 1
        texts = [row["text"] for row in rows[begin:end]]
        for row, (ids, offsets) in zip(rows[begin:end], encode(tokenizer, texts), strict=True):
            yield row, ids, offsets
        begin = end


def _chunks(settings: Settings, row: dict, ends: np.ndarray, tables: list[pa.Table]) -> int:
    chunk = settings.chunk
    pieces = cut.cut_tokens(ends, chunk.tokens, chunk.min_tokens, chunk.short)
    if len(pieces) == 0:
        return 0
    text = row["text"]
    bounds = cut.character_cuts(ends, np.append(pieces[:, 0], pieces[-1, 1]), len(text))
    offsets = cut.byte_positions(text)[bounds]
    # Arrow strings are one buffer and its bounds: the cut text needs no copy per piece.
    buffers = (pa.py_buffer(offsets), pa.py_buffer(text.encode("utf-8")))
    texts = pa.LargeStringArray.from_buffers(len(pieces), *buffers).cast(pa.string())
    starts = pa.array(offsets[:-1])
    names = pa.array([row["source_document"]] * len(pieces))
    columns = {
        "id": pc.binary_join_element_wise(names, starts.cast(pa.string()), ":"),
        "source": [row["source"]] * len(pieces),
        "title": [row["title"]] * len(pieces),
        "text": texts,
        "tokens": (pieces[:, 1] - pieces[:, 0]).astype(np.int32),
        "source_document": names,
        "offset": starts,
    }
    tables.append(pa.table([columns[name] for name in DOCS.names], schema=DOCS))
    return len(pieces)


def _queries(settings: Settings, row: dict, ends: np.ndarray, split: str, rows: list[tuple]) -> int:
    queries, text = settings.queries, row["text"]
    found = cut.windows(ends, queries.context_tokens, queries.continuation_tokens, queries.per_document)
    characters = cut.character_cuts(ends, found.ravel(), len(text)).reshape(-1, 3)
    offsets = cut.byte_positions(text)[characters[:, 0]]
    for (begin, middle, end), offset in zip(characters.tolist(), offsets.tolist(), strict=True):
        name = row["source_document"]
        rows.append((f"{name}:{offset}", split, name, row["source"], text[begin:middle], text[middle:end]))
    return len(found)


def _with_draw(table: pa.Table, seed: int, purpose: str) -> pa.Table:
    """Add `draw`, a uniform number that the row's id decides, for sampling a fixed number of rows later."""
    return table.append_column("draw", pa.array(draws.uniforms(seed, purpose, table["id"].to_pylist())))
