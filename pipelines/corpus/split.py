"""Which source documents become queries, in which split, and which queries resemble the corpus (REPLUG, section 5)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pipelines import draws, params

PERMUTATIONS = 128
SHINGLE = 5  # tokens
SCHEME = "affine32"
BLOCK = 1 << 14  # shingles permuted at once: memory doesn't follow the length of the document


def side(seed: int, source_document: str, query_share: float, queries: params.Queries) -> str:
    """Say "corpus", or the split ("train", "validation", "test") that the source document's queries belong to.

    It depends on the seed and the document's id only, so no source document is on two sides.
    """
    if draws.uniform(seed, "query source", source_document) >= query_share:
        return "corpus"
    u = draws.uniform(seed, "query split", source_document)
    if u < queries.test_share:
        return "test"
    return "validation" if u < queries.test_share + queries.validation_share else "train"


def signature(tokens: np.ndarray) -> np.ndarray:
    """MinHash of the set of runs of SHINGLE token ids in (tokens,), (PERMUTATIONS,) uint32."""
    from datasketch import MinHash  # a second to import, and a corpus without queries never needs it

    minhash = MinHash(PERMUTATIONS, hashfunc=int, scheme=SCHEME)
    shingles = np.unique(_shingles(tokens.astype(np.uint64)))
    for begin in range(0, len(shingles), BLOCK):
        minhash.update_batch(shingles[begin : begin + BLOCK].tolist())
    return minhash.hashvalues.astype(np.uint32)


def near_duplicates(queries: dict[str, np.ndarray], corpus: Iterable[np.ndarray], threshold: float) -> set[str]:
    """Query source documents whose estimated Jaccard similarity with some corpus document is `threshold` or more.

    `queries` maps source documents to signatures; `corpus` holds signatures, which may be streamed.
    """
    if not queries:
        return set()
    from datasketch import MinHash, MinHashLSH

    # Candidates are checked below, so a missed pair costs more than a false one.
    lsh = MinHashLSH(min(threshold, 0.95), PERMUTATIONS, weights=(0.1, 0.9))
    permutations = MinHash(PERMUTATIONS, scheme=SCHEME).permutations

    def minhash(values: np.ndarray) -> MinHash:
        return MinHash(hashvalues=values, permutations=permutations, scheme=SCHEME)

    for source_document, values in queries.items():
        lsh.insert(source_document, minhash(values))
    found: set[str] = set()
    for values in corpus:
        for candidate in lsh.query(minhash(values)):
            if candidate not in found and np.mean(queries[candidate] == values) >= threshold:
                found.add(candidate)
    return found


def _shingles(tokens: np.ndarray) -> np.ndarray:
    """A 32-bit hash of every run of SHINGLE ids in (tokens,) uint64; of the whole where there are fewer."""
    width = max(1, min(SHINGLE, len(tokens)))
    count = len(tokens) - width + 1
    mixed = np.zeros(max(count, 0), dtype=np.uint64)
    for offset in range(width):
        mixed = (mixed ^ tokens[offset : offset + count]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed >> np.uint64(32)
