"""How often the datastore has the word that a token is part of: the axis of the rare-entity analysis (REPLUG, B)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

WORD = r"[\pL\pN\pM]+"  # letters, digits and what is put on them


def words(
    contexts: Sequence[str], continuations: Sequence[str], n_bytes: np.ndarray, lengths: np.ndarray
) -> tuple[pa.Array, np.ndarray]:
    """The words of all context + continuation, (words,) str, and the one that each token is part of, (tokens,) int64.

    `n_bytes` (tokens,) are the tokens' bytes, text after text, `lengths` (texts,) their numbers. A token's word is the
    first that it has a character of, -1 if none. A word that a text ends in may go on behind it, so it does not count.
    """
    context, continuation = ([len(text.encode()) for text in texts] for texts in (contexts, continuations))
    joined = "".join(part for pair in zip(contexts, continuations, strict=True) for part in (*pair, "\n"))
    points, place = np.unique(np.frombuffer(joined.encode("utf-32-le"), np.uint32), return_inverse=True)
    in_word = np.array([unicodedata.category(chr(point))[0] in "LNM" for point in points.tolist()], bool)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    inside = np.repeat(in_word[place], sizes[place])  # of each byte, as all below
    number = np.cumsum(inside & ~np.concatenate([[False], inside[:-1]])) - 1  # of the word, inside one
    following = np.append(np.where(inside, np.arange(len(inside)), len(inside)), len(inside))
    following = np.minimum.accumulate(following[::-1])[::-1]  # the next one inside a word

    ends = np.cumsum(np.array(context, np.int64) + np.array(continuation, np.int64) + 1) - 1  # of texts: line breaks
    stops = np.cumsum(n_bytes)
    before = np.concatenate([[0], stops])[np.cumsum(lengths) - lengths]  # bytes of earlier continuations
    shift = np.repeat(ends - np.array(continuation, np.int64) - before, lengths)
    first, stop = following[stops - n_bytes + shift], stops + shift
    own = np.where(first < stop, number[np.minimum(first, len(inside) - 1)], -1)
    last = np.where(inside[np.maximum(ends - 1, 0)], number[np.maximum(ends - 1, 0)], -1)  # what a text ends in

    offsets = np.concatenate([[0], np.cumsum(np.bincount(number[inside]))]).astype(np.int64)
    data = np.frombuffer(joined.encode(), np.uint8)[inside]
    found = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data.tobytes()))
    return found, np.where(own == np.repeat(last, lengths), -1, own)


def frequencies(db: duckdb.DuckDBPyConnection, docs: Path, asked: pa.Array) -> np.ndarray:
    """How often each of the words `asked` stands in the corpus `docs`, whatever the case, (words,) int64."""
    db.register("given", pa.table({"place": np.arange(len(asked)), "given": asked}))
    found = db.sql(
        """WITH asked AS (SELECT place, lower(given) AS word FROM given),
        corpus AS (SELECT unnest(regexp_extract_all(lower(text), $word)) AS word FROM read_parquet($docs)),
        counted AS (SELECT word, count(*) AS n FROM corpus SEMI JOIN asked USING (word) GROUP BY word)
        SELECT coalesce(n, 0) AS n FROM asked LEFT JOIN counted USING (word) ORDER BY place""",
        params={"word": WORD, "docs": str(docs)},
    ).fetchnumpy()
    return found["n"].astype(np.int64)
