"""Documents of docs.parquet by position, the protocol of what retrieves them (REPLUG §3.1), and what an index is of.

Read are ids, titles and texts of documents, and the positions of a source document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import database, parquet
from pipelines.storage.work_store import fingerprint

Found = tuple[
    np.ndarray, np.ndarray
]  # positions of documents (queries, k) int64, and their scores float32


class Retriever(Protocol):
    """Takes texts and returns the positions of the best documents."""

    count: int  # documents in the index

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> Found:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position.

        The documents of the source document that `without` names for a text are left out; "" or None: none are. Where
        fewer than k documents remain, the last positions are -1 and their scores -inf.
        """


class Documents(NamedTuple):
    """Arrays of str, in the shape of the positions asked for; "" where the position is -1, which is no document."""

    ids: np.ndarray
    titles: np.ndarray
    texts: np.ndarray

    def filled(self, template: str) -> np.ndarray:
        """Titles and texts in a template, as `fill` puts them; an array of str in the same shape."""
        result = np.empty(self.texts.shape, object)
        result.ravel()[:] = fill(template, self.titles.ravel(), self.texts.ravel())
        return result


def fill(template: str, titles: Iterable[str | None], texts: Iterable[str]) -> list[str]:
    """Each document's title and text in a template such as "{title} {text}"; "" where there is no text.

    Without a title, what stands from {title} to {text} falls away.
    """
    untitled = re.sub(r"\{title\}[^{]*", "", template)
    return [
        text and (template if title else untitled).format(title=title, text=text)
        for title, text in zip(titles, texts, strict=True)
    ]


def count_documents(docs: Path) -> int:
    """The number of documents in a docs.parquet. Raises LongtailError if it is missing, broken or empty."""
    if not Path(docs).is_file():
        raise LongtailError(f"{docs}: no such file; run the stage `chunk` first")
    rows = parquet.metadata(docs).num_rows
    if not rows:
        raise LongtailError(
            f"{docs}: no documents, expected at least one; see the rejects beside it"
        )
    return rows


def filled(
    docs: Path, start: int, stop: int, template: str, batch: int = 4096
) -> Iterator[list[str]]:
    """The documents at start <= position < stop, in the template (see `fill`) and in batches; reads no other groups."""
    about = parquet.metadata(docs)
    sizes = np.array([about.row_group(i).num_rows for i in range(about.num_row_groups)], np.int64)
    ends = np.cumsum(sizes)
    groups = np.flatnonzero((ends > start) & (ends - sizes < stop)).tolist()
    position = (
        int(ends[groups[0]] - sizes[groups[0]]) if groups else 0
    )  # of the next batch's first row
    for rows in parquet.batches(docs, batch, ["title", "text"], groups, mapped=True):
        wanted = rows[max(start - position, 0) : max(stop - position, 0)]
        position += rows.num_rows
        if len(wanted):
            yield fill(template, wanted["title"].to_pylist(), wanted["text"].to_pylist())
        if position >= stop:
            return


def read_documents(docs: Path, positions: np.ndarray) -> Documents:
    """The documents at `positions` (any shape) of docs.parquet; each distinct one is read once.

    10 of 36 million documents take 0.2 seconds. Raises LongtailError for a position that the file does not have.
    """
    positions = np.asarray(positions, np.int64)
    distinct, places = np.unique(positions, return_inverse=True)
    real = distinct[distinct >= 0]
    # neither pa.array nor to_numpy: they would import pandas, which takes longer than to read some documents
    asked = pa.table(
        {"position": pa.Array.from_buffers(pa.int64(), len(real), [None, pa.py_buffer(real)])}
    )
    with parquet.naming(docs, errors=(duckdb.Error,)), duckdb.connect() as connection:
        connection.register("asked", asked)
        database.view(connection, "docs", docs, columns=["id", "title", "text"], numbered=True)
        rows = connection.sql(
            """SELECT id, coalesce(title, '') AS title, text FROM docs
               JOIN asked ON docs.file_row_number = asked.position ORDER BY asked.position"""
        ).to_arrow_table()
    if rows.num_rows != asked.num_rows:
        raise LongtailError(
            f"{docs}: has {count_documents(docs)} documents, but position {distinct.max()} was asked for; "
            "run `index` again"
        )
    columns = []
    for name in ("id", "title", "text"):
        column = np.full(len(distinct), "", object)
        column[distinct >= 0] = np.fromiter(rows[name].to_pylist(), object, len(real))
        columns.append(column[places].reshape(positions.shape))
    return Documents(*columns)


def ranges_of_sources(docs: Path, source_documents: Sequence[str | None]) -> np.ndarray:
    """The range of positions of each source document's documents, (n, 2) int64: first, one past the last.

    (0, 0) stands for none. docs.parquet is sorted by source document.
    """
    names, rows = np.unique(
        np.array([name or "" for name in source_documents], object), return_inverse=True
    )
    ranges = np.zeros((len(names), 2), np.int64)
    if not any(names):
        return ranges[rows]
    asked = pa.table({"source_document": pa.array(filter(None, names), pa.string())})
    with parquet.naming(docs, errors=(duckdb.Error,)), duckdb.connect() as connection:
        connection.register("asked", asked)
        database.view(connection, "docs", docs, columns=["source_document"], numbered=True)
        found = connection.sql(
            """SELECT source_document, min(file_row_number), max(file_row_number) + 1
               FROM docs JOIN asked USING (source_document) GROUP BY ALL"""
        ).fetchall()
    for name, first, stop in found:
        ranges[np.searchsorted(names, name)] = first, stop
    return ranges[rows]


def describe(docs: Path, encoder: Path | None, **facts) -> dict:
    """The content of meta.json: fingerprints of documents and encoder, the number of documents, and `facts`."""
    inputs = {"docs": fingerprint(docs), "count": count_documents(docs)}
    return inputs | ({"encoder": fingerprint(encoder)} if encoder else {}) | facts


def check_index(folder: Path, *, docs: Path, encoder: Path | None = None, **expected) -> dict:
    """The content of the folder's meta.json. Raises LongtailError if it does not agree with the files at hand."""
    try:
        meta = json.loads((Path(folder) / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LongtailError(
            f"{folder}: no meta.json to read, expected an index; run the stage `index`"
        ) from None
    for name, value in describe(docs, encoder, **expected).items():
        if (found := meta.get(name)) != value:
            said = f"{found}; {dict(docs=docs, encoder=encoder).get(name, name)} is {value}"
            raise LongtailError(
                f"{folder}: was made with another {name} ({said}); run the stage `index` again"
            )
    return meta
