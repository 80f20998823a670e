"""Queries that nearly repeat a document of the corpus or of another split, found by MinHash
(REPLUG, section 5).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

SPLITS = ("corpus", "test", "validation", "train")  # the corpus, and the splits of the queries
NEAR_DUPLICATE = 0.8  # Jaccard similarity from which a query's document is dropped
PERMUTATIONS = 128
SHINGLE = 5  # tokens
RENSA_SEED = 0
# the largest share of pairs just as similar as the threshold that may have no band in common
SHARE_MISSED = 0.01
PAIRS_AT_ONCE = 8192  # pairs that are compared in one step
DOCUMENTS_COMPARED = 100  # documents of a band that a query is compared with, at most
NO_TOKEN = np.uint64(2**32 - 1)


def signatures(texts: Sequence[np.ndarray]) -> np.ndarray:
    """The MinHash signature of each text's set of shingles (runs of SHINGLE token ids), (texts,
    PERMUTATIONS) uint32.

    A text is its token ids, (tokens,); one shorter than SHINGLE has one shingle.
    """
    from rensa import RMinHash

    hashes, numbers = _shingles(texts)
    bounds = np.concatenate([[0], np.cumsum(numbers)]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, bounds, PERMUTATIONS, RENSA_SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(-1, PERMUTATIONS)


def _shingles(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit hash of every shingle of all texts, (shingles,) uint64, and each text's number of
    shingles.
    """
    # follows each text, so that no shingle reaches into the next one
    padding = np.full(SHINGLE, NO_TOKEN)
    parts = []
    for ids in texts:
        parts += [ids, padding]
    padded = np.concatenate([*parts, padding])
    hashes = np.zeros(len(padded) - SHINGLE + 1, dtype=np.uint64)
    for offset in range(SHINGLE):
        hashes = _mix(hashes, padded[offset : offset + len(hashes)])

    counts = np.array([len(ids) for ids in texts], np.int64)
    numbers = np.maximum(counts - SHINGLE + 1, 1)
    lengths = counts + SHINGLE  # of the texts with their padding
    place_in_text = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_shingle = place_in_text < np.repeat(numbers, lengths)
    return hashes[:-1][is_shingle], numbers


def _mix(state: np.ndarray, value: np.ndarray) -> np.ndarray:
    mixed = (state ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


def bands(signatures: np.ndarray, threshold: float) -> np.ndarray:
    """Hashes of the signatures' bands, (texts, bands) uint64; two texts are compared if they share
    a band.

    Bands are as long as possible, as long as at most SHARE_MISSED of the pairs of similarity
    `threshold` share none.
    """
    length = 1
    for longer in range(2, PERMUTATIONS + 1):
        share_missed = (1 - threshold**longer) ** (PERMUTATIONS // longer)
        if share_missed <= SHARE_MISSED:
            length = longer

    n_bands = PERMUTATIONS // length
    parts = signatures[:, : n_bands * length].reshape(-1, n_bands, length).astype(np.uint64)
    hashes = np.broadcast_to(np.arange(n_bands, dtype=np.uint64), parts.shape[:2])
    for i in range(length):
        hashes = _mix(hashes, parts[:, :, i])
    return hashes


def near_duplicates(db: DuckDBPyConnection, documents: str, threshold: float) -> set[str]:
    """Query source documents with an estimated Jaccard similarity of `threshold` or more to one of
    an earlier split.

    `documents` is the name of a relation (source_document, split, signature, bands), and SPLITS is
    the order of the splits. DuckDB joins the candidates and may spill to disk; only their
    signatures come to Python, PAIRS_AT_ONCE pairs at a time. Some texts, such as licences, are in a
    corpus ten thousand times. So a query is compared with the first DOCUMENTS_COMPARED documents of
    each band, those of the earliest splits.
    """
    db.execute(
        f"""CREATE OR REPLACE TEMP VIEW ranked AS
        SELECT *, hash(source_document) AS name, list_position({list(SPLITS)}, split) AS rank
        FROM {documents}"""
    )
    db.execute(
        "CREATE OR REPLACE TEMP VIEW band AS SELECT name, rank, unnest(bands) AS band FROM ranked"
    )
    # These are tables, not one query: DuckDB chooses a good join order only if it knows how large
    # they are.
    tables = {
        "query_band": "SELECT DISTINCT band FROM band WHERE rank > 1",
        "member": "FROM band SEMI JOIN query_band USING (band)",
        "shared": """SELECT *, row_number() OVER (PARTITION BY band ORDER BY rank, name) AS place
            FROM member SEMI JOIN (
                SELECT band FROM member GROUP BY band HAVING min(rank) < max(rank)
            ) AS mixed USING (band)""",
        "pair": f"""SELECT DISTINCT query.name AS query, other.name AS other
            FROM shared AS query
            JOIN (FROM shared WHERE place <= {DOCUMENTS_COMPARED}) AS other USING (band)
            WHERE query.rank > other.rank""",
        "signed": """SELECT name, source_document, signature FROM ranked
            SEMI JOIN (
                SELECT query AS name FROM pair UNION SELECT other FROM pair
            ) AS wanted USING (name)""",
    }
    for name, query in tables.items():
        db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    pairs = db.sql(
        """SELECT query.source_document, query.signature, other.signature
        FROM pair JOIN signed AS query ON query.name = pair.query
        JOIN signed AS other ON other.name = pair.other"""
    )
    similar: set[str] = set()
    for batch in pairs.to_arrow_reader(PAIRS_AT_ONCE):
        names, query_signatures, other_signatures = batch.columns
        equal = _matrix(query_signatures) == _matrix(other_signatures)
        alike = pa.array(np.mean(equal, axis=1) >= threshold)
        similar.update(names.filter(alike).to_pylist())
    for name in tables:
        db.execute(f"DROP TABLE {name}")
    return similar


def _matrix(signatures: pa.Array) -> np.ndarray:
    """A column of signatures, (pairs, PERMUTATIONS)."""
    return signatures.flatten().to_numpy().reshape(-1, PERMUTATIONS)
