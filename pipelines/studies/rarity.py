"""How often texts have the word that a token is part of: the axis of the rare-entity analysis (REPLUG, B).

The texts are a sample of C4, as for PopQA's term frequencies, or the corpus that is searched.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from tqdm import tqdm

from pipelines.intervals import Interval
from pipelines.sources import c4
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files
from pipelines.storage import database, parquet

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.replug.attribution import Attributing, OfTokens

WORD = r"[\pL\pN\pM]+"  # letters, digits and marks on them
TEXT = pa.schema([("text", pa.string())])
WORDS = pa.schema([("place", pa.int64()), ("word", pa.large_string())])  # of tokens
BATCH = 4096  # texts in memory at once
ENOUGH = 100  # tokens of a group that the section speaks of
UNKNOWN = -1  # frequency of a token without a word, as in replug/attribution.py
COLUMN = pa.field("frequency", pa.int64())
EDGES = 10 ** np.arange(18)  # never, then powers of ten
C4 = Path("data/raw/c4")
TABLES = {
    "rare_words": {"corpus": str, "retriever": str, "counted_in": str}
    | {"least": int, "most": int, "tokens": int, "share": float}
    | dict.fromkeys(("bits_without", "bits_saved", "share_of_saved", "memory"), Interval)
}


def of_tokens(of: Attributing) -> tuple[OfTokens, dict[str, str]]:
    """How often a token's word stands in C4, or in the corpus if the run has no C4."""
    if files := visible_files(C4):
        texts, counted_in = of_c4(files, of.params.c4.sample_mb, of.params.seed), "c4"
    else:
        texts, counted_in = of_documents(of.docs), of.corpus
    tokens = database.mapped(of.scratch / "words", WORDS, words_of_tokens(of.queries, of.block))
    rows = frequencies(of.db, texts, tokens)
    frequency = database.mapped(of.scratch / "frequency", rows.schema, rows)["n"]

    def of_block(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
        return frequency[tokens].to_numpy()

    return of_block, {"counted_in": counted_in}


def of_metrics(of: StageMetrics) -> dict[str, list[dict]]:
    """What documents save by how often C4, or the corpus, has a token's word (REPLUG, section 6, Figure 6)."""
    return {"rare_words": of.by_tokens("by_frequency", "counted_in")}


def words_of_tokens(queries: pa.Table, block: int) -> Iterator[pa.RecordBatch]:
    """Yield each token's place and word (WORDS), null if it has none, of `block` queries at a time."""
    place = 0
    for start in range(0, len(queries), block):
        part = queries.slice(start, block)
        n_bytes = part["bytes"].combine_chunks()
        texts = (part[name].to_pylist() for name in ("context", "continuation"))
        distinct, number = words(*texts, n_bytes.flatten().to_numpy(), np.diff(n_bytes.offsets.to_numpy()))
        places = np.arange(place, place + len(number))
        yield pa.record_batch([places, distinct.take(pa.array(number, mask=number < 0))], schema=WORDS)
        place += len(number)


def words(
    contexts: Sequence[str], continuations: Sequence[str], n_bytes: np.ndarray, lengths: np.ndarray
) -> tuple[pa.Array, np.ndarray]:
    """The words of all texts (context + continuation), (words,) str, and the number of each token's word, (tokens,).

    `n_bytes` (tokens,) are the bytes of the continuations' tokens, text after text; `lengths` (texts,) their numbers.
    A token's word is the first word that it has a character of; the number is -1 if there is none. The last word of a
    text does not count if the text ends inside it, because the word may go on.
    """
    context, continuation = ([len(text.encode()) for text in texts] for texts in (contexts, continuations))
    joined = "".join(part for pair in zip(contexts, continuations, strict=True) for part in (*pair, "\n"))
    points, place = np.unique(np.frombuffer(joined.encode("utf-32-le"), np.uint32), return_inverse=True)
    in_word = np.array([unicodedata.category(chr(point))[0] in "LNM" for point in points.tolist()], bool)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    # Arrays over all bytes of the texts:
    inside = np.repeat(in_word[place], sizes[place])  # whether the byte is in a word
    number = np.cumsum(inside & ~np.concatenate([[False], inside[:-1]])) - 1  # of its word, if it is in one
    following = np.append(np.where(inside, np.arange(len(inside)), len(inside)), len(inside))
    following = np.minimum.accumulate(following[::-1])[::-1]  # the first byte from here on that is in a word

    ends = np.cumsum(np.array(context, np.int64) + np.array(continuation, np.int64) + 1) - 1  # line breaks after texts
    stops = np.cumsum(n_bytes)
    before = np.concatenate([[0], stops])[np.cumsum(lengths) - lengths]  # bytes of earlier continuations
    shift = np.repeat(ends - np.array(continuation, np.int64) - before, lengths)
    first, stop = following[stops - n_bytes + shift], stops + shift
    of_token = np.where(first < stop, number[np.minimum(first, len(inside) - 1)], -1)
    last_of_text = np.where(inside[np.maximum(ends - 1, 0)], number[np.maximum(ends - 1, 0)], -1)

    offsets = np.concatenate([[0], np.cumsum(np.bincount(number[inside]))]).astype(np.int64)
    data = np.frombuffer(joined.encode(), np.uint8)[inside]
    texts = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data.tobytes()))
    return texts, np.where(of_token == np.repeat(last_of_text, lengths), -1, of_token)


def of_documents(docs: Path) -> pa.RecordBatchReader:
    """The texts of a corpus's documents, in the column `text`."""
    batches = parquet.batches(docs, BATCH, columns=["text"])
    return pa.RecordBatchReader.from_batches(TEXT, (batch.cast(TEXT) for batch in batches))


def of_c4(files: Sequence[Path], sample_mb: int, seed: int) -> pa.RecordBatchReader:
    """The texts of the sample of C4 in which term frequencies are counted, in the column `text`."""
    sample = c4.draw_c4_sample(files, sample_mb, seed, Rejects(1.0))  # bad rows stop the stage `term_frequency`
    texts = c4.read_c4_sample(tqdm(files, desc="words of C4", unit="file", mininterval=2), sample)
    parts = iter(lambda: list(islice(texts, BATCH)), [])
    return pa.RecordBatchReader.from_batches(TEXT, (pa.record_batch([pa.array(part)], schema=TEXT) for part in parts))


def frequencies(db: duckdb.DuckDBPyConnection, texts: pa.RecordBatchReader, tokens: pa.Table) -> pa.RecordBatchReader:
    """How often `texts`, which are read once, have the word of each of the tokens (WORDS), whatever the case.

    The column `n` is in the order of places, UNKNOWN where a token has no word.
    """
    db.register("texts", texts)
    db.register("tokens", tokens)
    return db.sql(
        """WITH asked AS (SELECT DISTINCT lower(word) AS word FROM tokens),
        corpus AS (SELECT unnest(regexp_extract_all(lower(text), $word)) AS word FROM texts),
        counted AS (SELECT word, count(*) AS n FROM corpus SEMI JOIN asked USING (word) GROUP BY word)
        SELECT CASE WHEN tokens.word IS NULL THEN $unknown ELSE coalesce(n, 0) END AS n
        FROM tokens LEFT JOIN counted ON lower(tokens.word) = counted.word ORDER BY place""",
        params={"word": WORD, "unknown": UNKNOWN},
    ).to_arrow_reader()


def report_entries() -> list:
    """Whose knowledge, and which words gain."""
    from pipelines.report import attribution_page
    from pipelines.report.entries import Drawn, Entry, Shown, where
    from pipelines.report.figures import bars
    from pipelines.report.page import alone, label

    def rare(inputs):
        return [
            row | {"frequency": f"{row['least']:,} to {row['most']:,}" if row["most"] else "never"}
            for row in inputs.tables["rare_words"]
        ]

    def of_shown(inputs):
        """Those of the retriever that the page of texts has, on the main corpus."""
        rows = [row for row in rare(inputs) if row["corpus"] == inputs.main_corpus]
        shown = next((name for name in attribution_page.SHOWN if any(row["retriever"] == name for row in rows)), "")
        return [row for row in rows if row["retriever"] == shown]

    def says(inputs, rule):
        if len(rows := [row for row in of_shown(inputs) if row["tokens"] >= ENOUGH]) < 2:
            return ""
        rarest, most = (alone(row["bits_saved"]) for row in (rows[0], rows[-1]))
        return (
            f"Documents from {label(rows[0]['retriever'])} save {rarest} bits a token on rare words, and {most} "
            "on the most frequent ones."
        )

    parts = [
        Drawn(
            bars, "gain-by-frequency", where(rare, lambda row: np.isfinite(row["bits_saved"].value)),
            "frequency", "bits_saved",
            lambda inputs, rows: "bits that documents save per token, by how often "
            f"{label(rows[0]['counted_in'])} has the token's word.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        "A token's probability with documents is shared out. Memory has the share that the model gives the token "
        "without documents; a document has what it adds to that. The paper's example is a rare name, which the "
        "documents spell out and the model does not know. `longtail explore` shows the texts token by token.",
        Shown(
            "gain-by-frequency", rare,
            ["frequency", "corpus", "retriever", "counted_in", "tokens", "bits_without", "bits_saved", "memory"],
            "Tokens by how often C4, or the corpus where a run has no C4, has their word: bits without documents, bits "
            "saved, and memory's share.",
            {"frequency": "word's frequency", "bits_without": "bits without documents", "bits_saved": "saved"},
        ),
    ]  # fmt: skip
    return [Entry("attribution", "Whose knowledge, and which words gain", parts, says, after="perplexity")]
