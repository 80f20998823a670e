"""Which source documents become queries, in which split, and which queries resemble the corpus (REPLUG, section 5)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import draws, params

if TYPE_CHECKING:
    import duckdb

SIDES = ("corpus", "test", "validation", "train")  # of two similar source documents, the one on the later side goes
PERMUTATIONS = 128
SHINGLE = 5  # tokens
RENSA_SEED = 0
MISSED = 0.01  # of the pairs just as similar as the threshold, at most, that no band brings together
TOGETHER = 8192  # pairs compared at once
FIRST = 32  # documents of a band that are compared first, and how many times more each time after
NO_TOKEN = np.uint64(2**32 - 1)


def side(seed: int, source_document: str, file: str, corpus: params.CorpusOf, queries: params.Queries) -> str:
    """Say "corpus", or the split ("train", "validation", "test") that the source document's queries belong to.

    It depends on the seed and the document's id only, so no source document is on two sides; or, where a published
    split is to be kept, on its file's name (`corpus.query_files`), and of copies in files of both one is left out.
    """
    if corpus.query_files is not None:
        return "test" if fnmatchcase(file, corpus.query_files) else "corpus"
    if draws.uniform(seed, "query source", source_document) >= corpus.query_share:
        return "corpus"
    u = draws.uniform(seed, "query split", source_document)
    if u < queries.test_share:
        return "test"
    return "validation" if u < queries.test_share + queries.validation_share else "train"


def signatures(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """MinHash of each text's set of runs of SHINGLE token ids, (texts, PERMUTATIONS) uint32.

    `ids` (tokens,) are those of all texts, `counts` (texts,) how many each has. A text of fewer ids is one run.
    """
    from rensa import RMinHash

    hashes, numbers = _shingles(ids, counts)
    bounds = np.concatenate([[0], np.cumsum(numbers)]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, bounds, PERMUTATIONS, RENSA_SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(-1, PERMUTATIONS)


def _shingles(ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit hash of every run of SHINGLE ids of each text, and how many each text has."""
    numbers = np.maximum(counts - SHINGLE + 1, 1)
    # Texts apart by as many places as a run can reach beyond its text: all runs are then slices of one array.
    shifts = np.arange(len(counts)) * SHINGLE
    apart = np.full(len(ids) + len(counts) * SHINGLE, NO_TOKEN)
    apart[np.arange(len(ids)) + np.repeat(shifts, counts)] = ids
    mixed = np.zeros(max(len(apart) - SHINGLE + 1, 0), dtype=np.uint64)
    for offset in range(SHINGLE):
        mixed = _mix(mixed, apart[offset : offset + len(mixed)])
    starts = np.cumsum(counts) - counts + shifts
    return mixed[np.arange(numbers.sum()) + np.repeat(starts - np.cumsum(numbers) + numbers, numbers)], numbers


def _mix(state: np.ndarray, value: np.ndarray | np.uint64) -> np.ndarray:
    mixed = (state ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


def bands(signatures: np.ndarray, threshold: float) -> np.ndarray:
    """(texts, bands) uint64: hashes of the signatures' bands; texts that share one are compared.

    A band is as long as it can be with no more than MISSED of the pairs of similarity `threshold` sharing none.
    """
    rows = max(r for r in range(1, PERMUTATIONS + 1) if r == 1 or _missed(threshold, r) <= MISSED)
    number = PERMUTATIONS // rows
    parts = signatures[:, : number * rows].reshape(-1, number, rows).astype(np.uint64)
    mixed = np.broadcast_to(np.arange(number, dtype=np.uint64), parts.shape[:2])
    for row in range(rows):
        mixed = _mix(mixed, parts[:, :, row])
    return mixed


def _missed(similarity: float, rows: int) -> float:
    return (1 - similarity**rows) ** (PERMUTATIONS // rows)


def near_duplicates(con: duckdb.DuckDBPyConnection, sources: str, threshold: float) -> set[str]:
    """Query source documents whose estimated Jaccard similarity with one of an earlier side is `threshold` or more.

    `sources` is a relation (source_document, side, signature, bands). The candidates are joined by DuckDB, which spills
    and uses its threads; only their signatures come to Python, TOGETHER pairs at a time. Of the documents that share a
    band a few are compared first, and more with those only that are like none of them: there are texts, as licences,
    that a corpus has by the ten thousand, and all their pairs would be too many.
    """
    sides = "['" + "', '".join(SIDES) + "']"
    known = f"SELECT *, hash(source_document) AS name, list_position({sides}, side) AS rank FROM {sources}"
    con.execute(f"CREATE OR REPLACE TEMP VIEW known AS {known}")
    con.execute("CREATE OR REPLACE TEMP VIEW band AS SELECT name, rank, unnest(bands) AS band FROM known")
    # Tables, not one query: DuckDB joins in a good order where it knows how large they are.
    con.execute("CREATE OR REPLACE TEMP TABLE asked AS SELECT DISTINCT band FROM band WHERE rank > 1")
    con.execute("CREATE OR REPLACE TEMP TABLE member AS FROM band SEMI JOIN asked USING (band)")
    con.execute(
        """CREATE OR REPLACE TEMP TABLE shared AS
           SELECT *, row_number() OVER (PARTITION BY band ORDER BY rank, name) AS place FROM member
           SEMI JOIN (SELECT band FROM member GROUP BY band HAVING min(rank) < max(rank)) AS mixed USING (band)"""
    )
    (most,) = con.execute("SELECT coalesce(max(place), 0) FROM shared").fetchone()
    found: set[str] = set()
    low, high = 0, FIRST
    while low < most:
        done = sorted(found)
        con.execute("CREATE OR REPLACE TEMP TABLE done AS SELECT hash(unnest(?::VARCHAR[])) AS name", [done])
        con.execute(
            f"""CREATE OR REPLACE TEMP TABLE pair AS SELECT DISTINCT query.name AS query, other.name AS other
                FROM (FROM shared ANTI JOIN done USING (name)) AS query
                JOIN (FROM shared WHERE place > {low} AND place <= {high}) AS other USING (band)
                WHERE query.rank > other.rank"""
        )
        con.execute(
            """CREATE OR REPLACE TEMP TABLE signed AS SELECT name, rank, source_document, signature FROM known
               SEMI JOIN (SELECT query AS name FROM pair UNION SELECT other FROM pair) AS wanted USING (name)"""
        )
        candidates = con.sql(
            """SELECT query.source_document, query.rank, other.rank, query.signature, other.signature
               FROM pair JOIN signed AS query ON query.name = pair.query
               JOIN signed AS other ON other.name = pair.other"""
        )
        for batch in candidates.to_arrow_reader(TOGETHER):
            names, *ranks, one, other = batch.columns
            one, other = (column.flatten().to_numpy().reshape(-1, PERMUTATIONS) for column in (one, other))
            similar = pa.array(np.mean(one == other, axis=1) >= threshold)
            found.update(names.filter(pc.and_(similar, pc.greater(*ranks))).to_pylist())
        low, high = high, high * FIRST
    for table in ("asked", "member", "shared", "pair", "signed"):
        con.execute(f"DROP TABLE IF EXISTS {table}")
    return found
