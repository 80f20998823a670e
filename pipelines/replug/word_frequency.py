"""How often texts have the word that a token is part of: the axis of the rare-entity analysis
(REPLUG, B).

The texts are a sample of C4, as for PopQA's term frequencies, or the corpus that is searched.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from pipelines.params.params import C4
from pipelines.sources import c4_sample
from pipelines.sources.rejects import Rejects
from pipelines.storage import database

WORD = r"[\pL\pN\pM]+"  # letters, digits and marks on them
CATEGORIES_OF_WORDS = "LNM"  # of Unicode: letters, numbers, marks
TEXT = pa.schema([("text", pa.string())])
WORDS = pa.schema([("place", pa.int64()), ("word", pa.large_string())])  # of tokens
BATCH = 4096  # texts of C4, or queries, in memory at once
UNKNOWN = -1  # the frequency of a token that is no part of a word
RAW_C4 = Path("data/raw/c4")
FREQUENCIES = """WITH words AS (SELECT DISTINCT lower(word) AS word FROM tokens),
    corpus AS (SELECT unnest(regexp_extract_all(lower(text), $word)) AS word FROM texts),
    counted AS (SELECT word, count(*) AS n FROM corpus SEMI JOIN words USING (word) GROUP BY word)
    SELECT CASE WHEN tokens.word IS NULL THEN $unknown ELSE coalesce(n, 0) END AS n
    FROM tokens LEFT JOIN counted ON lower(tokens.word) = counted.word ORDER BY place"""


def count_words(
    db: duckdb.DuckDBPyConnection, queries: pa.Table, docs: Path, c4: C4, seed: int, scratch: Path
) -> tuple[pa.Array, bool]:
    """How often the word of each of the queries' tokens stands in C4, and whether that was counted.

    A run without C4 counts in `docs`, its corpus. `queries` have context, continuation and bytes of
    each token. The counts (tokens,) are mapped from a file in `scratch`, UNKNOWN where a token has
    no word.
    """
    files = c4_sample.files_of_c4(RAW_C4)
    if files:
        db.register("texts", texts_of_c4(files, c4.sample_mb, seed))
    else:
        database.view(db, "texts", docs)

    words = words_of_tokens(queries)
    tokens = database.mapped(scratch / "words", WORDS, words)
    rows = frequencies(db, tokens)
    frequency = database.mapped(scratch / "frequency", rows.schema, rows)["n"]
    return frequency, bool(files)


def texts_of_c4(files: Sequence[Path], sample_mb: int, seed: int) -> pa.RecordBatchReader:
    """The texts of the sample of C4 in which term frequencies are counted, in the column `text`."""
    rejects = Rejects(1.0)  # bad rows stop the stage `term_frequency`
    sample = c4_sample.draw_c4_sample(files, sample_mb, seed, rejects)
    shown_files = tqdm(files, desc="words of C4", unit="file", mininterval=2)
    texts = c4_sample.read_c4_sample(shown_files, sample)

    def batches() -> Iterator[pa.RecordBatch]:
        while batch := list(islice(texts, BATCH)):
            yield pa.record_batch([pa.array(batch)], schema=TEXT)

    return pa.RecordBatchReader.from_batches(TEXT, batches())


def words_of_tokens(queries: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield each token's place and word (WORDS), of BATCH queries at a time."""
    place = 0
    for start in range(0, len(queries), BATCH):
        words: list[str | None] = []
        for row in queries.slice(start, BATCH).to_pylist():
            words += words_of(row["context"], row["continuation"], row["bytes"])
        places = np.arange(place, place + len(words))
        yield pa.record_batch([places, pa.array(words, pa.large_string())], schema=WORDS)
        place += len(words)


def words_of(context: str, continuation: str, n_bytes: Sequence[int]) -> Iterator[str | None]:
    """Yield the word of each of the continuation's tokens, which have so many bytes: the first that
    it has a byte of.

    A token without a word has None. So has one of the text's last word if the text ends inside it,
    as it may go on.
    """
    runs = ["".join(run) for _, run in groupby(context + continuation, _in_word)]
    word_of_byte: list[str | None] = []
    for number, run in enumerate(runs, start=1):
        ended = number < len(runs)
        word = run if _in_word(run[0]) and ended else None
        word_of_byte += [word] * len(run.encode())

    start = len(context.encode())
    for size in n_bytes:
        yield next(filter(None, word_of_byte[start : start + size]), None)
        start += size


@cache
def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in CATEGORIES_OF_WORDS


def frequencies(db: duckdb.DuckDBPyConnection, tokens: pa.Table) -> pa.RecordBatchReader:
    """How often the view `texts`, which is read once, has the word of each of the tokens (WORDS),
    whatever the case.

    The column `n` is in the order of places, UNKNOWN where a token has no word.
    """
    db.register("tokens", tokens)
    return db.sql(FREQUENCIES, params={"word": WORD, "unknown": UNKNOWN}).to_arrow_reader()
