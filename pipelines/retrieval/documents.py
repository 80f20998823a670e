"""Documents of docs.parquet by position, and what retrieves them (REPLUG §3.1).

meta.json of an index says of which documents and encoder it was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import database, parquet
from pipelines.storage.atomic import read_json
from pipelines.storage.work_store import content_hash

# positions of documents (queries, k) int64, and their scores (queries, k) float32
Found = tuple[np.ndarray, np.ndarray]
Passage = dict[str, Any]  # score, id, title and text
# the source document of each text, "" or None for no such document
Sources = Sequence[str | None] | None


class Retriever(Protocol):
    """Takes texts and returns the positions of the best documents."""

    count: int  # documents in the index

    def search(self, texts: Sequence[str], k: int, without: Sources = None) -> Found:
        """Find the best documents: positions (texts, min(k, count)) int64 and scores float32.

        The best comes first, and ties are ordered by position. The documents of each text's source
        document in `without` are left out. Where fewer than k documents remain, the last
        positions are -1 and their scores -inf.
        """


def nothing_found(n: int, k: int) -> Found:
    """Positions of -1 and scores of -inf, (n, k), which stand for no document."""
    positions = np.full((n, k), -1, np.int64)
    scores = np.full((n, k), -np.inf, np.float32)
    return positions, scores


class Documents(NamedTuple):
    """Arrays of str, in the shape of the positions; "" where the position is -1."""

    ids: np.ndarray
    titles: np.ndarray
    texts: np.ndarray

    def filled(self, template: str) -> np.ndarray:
        """Titles and texts in a template (see `fill`), an array of str in the same shape."""
        result = np.empty(self.texts.shape, object)
        filled_texts = fill(template, self.titles.ravel(), self.texts.ravel())
        result.ravel()[:] = filled_texts
        return result


def fill(template: str, titles: Iterable[str | None], texts: Iterable[str]) -> list[str]:
    """Each document's title and text in a template such as "{title} {text}".

    A document without a text is "". One without a title loses what stands from {title} to {text}.
    """
    untitled = re.sub(r"\{title\}[^{]*", "", template)
    filled_texts: list[str] = []
    for title, text in zip(titles, texts, strict=True):
        if not text:
            filled_texts.append(text)
        elif title:
            filled_texts.append(template.format(title=title, text=text))
        else:
            filled_texts.append(untitled.format(text=text))
    return filled_texts


def count_documents(docs: Path) -> int:
    """The number of documents in a docs.parquet.

    Raises LongtailError if the file is missing, broken or empty.
    """
    if not Path(docs).is_file():
        raise LongtailError(f"{docs}: no such file; `longtail run` makes it")

    rows = parquet.metadata(docs).num_rows
    if not rows:
        raise LongtailError(
            f"{docs}: no documents, expected at least one; see the rejects beside it"
        )
    return rows


def filled(
    docs: Path, start: int, stop: int, template: str, batch: int = 4096
) -> Iterator[list[str]]:
    """Yield batches of the documents at start <= position < stop, in the template (see `fill`).

    Only the row groups that hold these documents are read.
    """
    metadata = parquet.metadata(docs)
    groups = range(metadata.num_row_groups)
    sizes = np.array([metadata.row_group(group).num_rows for group in groups], np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    wanted_groups = np.flatnonzero((ends > start) & (starts < stop)).tolist()
    if not wanted_groups:
        return

    position = int(starts[wanted_groups[0]])  # of the next batch's first row
    columns = ["title", "text"]
    for rows in parquet.batches(docs, batch, columns, wanted_groups, mapped=True):
        first = max(start - position, 0)
        wanted = rows[first : stop - position]
        position += rows.num_rows
        if len(wanted):
            titles = wanted["title"].to_pylist()
            texts = wanted["text"].to_pylist()
            yield fill(template, titles, texts)
        if position >= stop:
            return


def read_documents(docs: Path, positions: np.ndarray) -> Documents:
    """The documents at `positions` (any shape) of docs.parquet; each distinct one is read once.

    10 of 36 million documents take 0.2 seconds. Raises LongtailError for a position that the file
    does not have.
    """
    positions = np.asarray(positions, np.int64)
    distinct, places = np.unique(positions, return_inverse=True)
    is_real = distinct >= 0
    real = distinct[is_real]

    # Neither pa.array nor to_numpy: they import pandas, which takes longer than this read.
    position_column = pa.Array.from_buffers(pa.int64(), len(real), [None, pa.py_buffer(real)])
    wanted = pa.table({"position": position_column})
    with parquet.naming(docs, errors=(duckdb.Error,)), duckdb.connect() as connection:
        connection.register("wanted", wanted)
        database.view(connection, "docs", docs, numbered=True)
        rows = connection.sql(
            """SELECT id, coalesce(title, '') AS title, text FROM docs
               JOIN wanted ON docs.file_row_number = wanted.position ORDER BY wanted.position"""
        ).to_arrow_table()
    if rows.num_rows != wanted.num_rows:
        count = count_documents(docs)
        raise LongtailError(
            f"{docs}: has {count} documents, but position {distinct.max()} was asked for; "
            "run `index` again"
        )

    def column(name: str) -> np.ndarray:
        values = np.full(len(distinct), "", object)
        values[is_real] = np.fromiter(rows[name].to_pylist(), object, len(real))
        return values[places].reshape(positions.shape)

    return Documents(ids=column("id"), titles=column("title"), texts=column("text"))


def read_passages(docs: Path, found: Found) -> list[list[Passage]]:
    """What was found for each query, the best first, without empty places."""
    positions, scores = found
    read = read_documents(docs, positions)
    passages_of_queries = []
    for row, is_there in enumerate(positions >= 0):
        columns = (scores[row], read.ids[row], read.titles[row], read.texts[row])
        passages = []
        for score, doc_id, title, text in zip(*columns, strict=True):
            passages.append({"score": float(score), "id": doc_id, "title": title, "text": text})
        passages_of_queries.append(list(compress(passages, is_there)))
    return passages_of_queries


def ranges_of_sources(docs: Path, source_documents: Sequence[str | None]) -> np.ndarray:
    """The range of positions of each source document's documents, (n, 2) int64.

    A range is the first position and one past the last; (0, 0) stands for none. docs.parquet is
    sorted by source document.
    """
    texts = np.array([name or "" for name in source_documents], object)
    names, rows = np.unique(texts, return_inverse=True)
    ranges = np.zeros((len(names), 2), np.int64)
    if not any(names):
        return ranges[rows]

    wanted = pa.table({"source_document": pa.array(filter(None, names), pa.string())})
    with parquet.naming(docs, errors=(duckdb.Error,)), duckdb.connect() as connection:
        connection.register("wanted", wanted)
        database.view(connection, "docs", docs, numbered=True)
        bounds = connection.sql(
            """SELECT source_document, min(file_row_number), max(file_row_number) + 1
               FROM docs JOIN wanted USING (source_document) GROUP BY ALL"""
        ).fetchall()

    for name, first, stop in bounds:
        row = np.searchsorted(names, name)
        ranges[row] = first, stop
    return ranges[rows]


def describe(docs: Path, encoder: Path | None, **facts: Any) -> dict[str, Any]:
    """The content of meta.json: hashes of documents and encoder, their number, and `facts`."""
    content = {"docs": content_hash(docs), "count": count_documents(docs)}
    if encoder:
        content["encoder"] = content_hash(encoder)
    return content | facts


def check_index(
    folder: Path, *, docs: Path, encoder: Path | None = None, **expected: Any
) -> dict[str, Any]:
    """The content of an index's meta.json.

    Raises LongtailError if it does not agree with the files at hand and the `expected` facts.
    """
    try:
        meta = read_json(Path(folder) / "meta.json")
    except (OSError, ValueError):
        raise LongtailError(
            f"{folder}: no meta.json to read, expected an index; `longtail run` makes one"
        ) from None

    files = {"docs": docs, "encoder": encoder}
    for name, value in describe(docs, encoder, **expected).items():
        recorded = meta.get(name)
        if recorded != value:
            raise LongtailError(
                f"{folder}: was made with another {name} ({recorded}; {files.get(name, name)} is "
                f"{value}); `longtail run` makes it anew"
            )
    return meta
