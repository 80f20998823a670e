"""How often texts have the word that a token is part of: the axis of the rare-entity analysis (REPLUG, B).

The texts are a sample of C4, as for PopQA's term frequencies, or the corpus that is searched.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from pipelines.sources import c4_sample
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.replug.attribution import Attributing, OfTokens

WORD = r"[\pL\pN\pM]+"  # letters, digits and marks on them
TEXT = pa.schema([("text", pa.string())])
WORDS = pa.schema([("place", pa.int64()), ("word", pa.large_string())])  # of tokens
BATCH = 4096  # texts in memory at once
UNKNOWN = -1  # frequency of a token without a word, as in replug/attribution.py
COLUMN = pa.field("frequency", pa.int64())
EDGES = 10 ** np.arange(18)  # never, then powers of ten
C4 = Path("data/raw/c4")
TABLES = {
    "rare_words": (
        "corpus retriever counted_in least:int most:int tokens:int share:float "
        "bits_without:interval bits_saved:interval share_of_saved:interval memory:interval"
    )
}


def number_tokens(of: Attributing) -> tuple[OfTokens, dict[str, str]]:
    """How often a token's word stands in C4, or in the corpus if the run has no C4."""
    if files := visible_files(C4):
        of.db.register("texts", of_c4(files, of.params.c4.sample_mb, of.params.seed))
    else:
        database.view(of.db, "texts", of.docs, columns=["text"])
    tokens = database.mapped(of.scratch / "words", WORDS, words_of_tokens(of.queries, of.block))
    rows = frequencies(of.db, tokens)
    frequency = database.mapped(of.scratch / "frequency", rows.schema, rows)["n"]

    def of_block(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
        return frequency[tokens].to_numpy()

    return of_block, {"counted_in": "c4" if files else of.corpus}


def rows_of_figures(of: StageMetrics) -> dict[str, list[dict]]:
    """What documents save by how often C4, or the corpus, has a token's word (REPLUG, section 6, Figure 6)."""
    return {"rare_words": of.by_tokens("by_frequency", "counted_in")}


def words_of_tokens(queries: pa.Table, block: int) -> Iterator[pa.RecordBatch]:
    """Yield each token's place and word (WORDS) of `block` queries at a time."""
    place = 0
    for start in range(0, len(queries), block):
        rows = queries.slice(start, block).to_pylist()
        words = [
            word
            for row in rows
            for word in words_of(row["context"], row["continuation"], row["bytes"])
        ]
        yield pa.record_batch(
            [np.arange(place, place + len(words)), pa.array(words, pa.large_string())], schema=WORDS
        )
        place += len(words)


def words_of(context: str, continuation: str, n_bytes: Sequence[int]) -> Iterator[str | None]:
    """Yield the word of each of the continuation's tokens, which have so many bytes: the first that it has a byte of.

    A token without a word has None. So has one of the text's last word if the text ends inside it, as it may go on.
    """
    of_bytes, runs = (
        [],
        [(inside, "".join(run)) for inside, run in groupby(context + continuation, key=_in_word)],
    )
    for number, (inside, run) in enumerate(runs, start=1):
        of_bytes += [run if inside and number < len(runs) else None] * len(run.encode())
    start = len(context.encode())
    for size in n_bytes:
        yield next(filter(None, of_bytes[start : start + size]), None)
        start += size


@cache
def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"


def of_c4(files: Sequence[Path], sample_mb: int, seed: int) -> pa.RecordBatchReader:
    """The texts of the sample of C4 in which term frequencies are counted, in the column `text`."""
    sample = c4_sample.draw_c4_sample(
        files, sample_mb, seed, Rejects(1.0)
    )  # bad rows stop the stage `term_frequency`
    texts = c4_sample.read_c4_sample(
        tqdm(files, desc="words of C4", unit="file", mininterval=2), sample
    )
    parts = iter(lambda: list(islice(texts, BATCH)), [])
    return pa.RecordBatchReader.from_batches(
        TEXT, (pa.record_batch([pa.array(part)], schema=TEXT) for part in parts)
    )


def frequencies(db: duckdb.DuckDBPyConnection, tokens: pa.Table) -> pa.RecordBatchReader:
    """How often the view `texts`, which is read once, has the word of each of the tokens (WORDS), whatever the case.

    The column `n` is in the order of places, UNKNOWN where a token has no word.
    """
    db.register("tokens", tokens)
    return db.sql(
        """WITH asked AS (SELECT DISTINCT lower(word) AS word FROM tokens),
        corpus AS (SELECT unnest(regexp_extract_all(lower(text), $word)) AS word FROM texts),
        counted AS (SELECT word, count(*) AS n FROM corpus SEMI JOIN asked USING (word) GROUP BY word)
        SELECT CASE WHEN tokens.word IS NULL THEN $unknown ELSE coalesce(n, 0) END AS n
        FROM tokens LEFT JOIN counted ON lower(tokens.word) = counted.word ORDER BY place""",
        params={"word": WORD, "unknown": UNKNOWN},
    ).to_arrow_reader()
