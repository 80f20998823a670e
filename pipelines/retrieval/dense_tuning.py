"""Tunes the search in inverted lists: as little of the index is examined as reaches a recall."""

from pathlib import Path

import numpy as np

from pipelines import draws
from pipelines.retrieval import documents
from pipelines.retrieval.dense import Index
from pipelines.storage import parquet

TUNING_QUERIES = 1000  # one half chooses the depth, the other half measures the recall
QUERY_WORDS = 16  # of a document as a query: a whole document would find itself too easily
RECALL_TARGET = 0.95  # share of a flat index's top RECALL_DEPTH that a search should find
RECALL_DEPTH = 10  # documents found for a query, of which recall is measured
MOST_REFINED = 64  # candidates scored for each document wanted, at most
CODES_PER_CANDIDATE = 100  # codes read in the time in which one candidate is scored exactly


def tuning_queries(docs: Path, seed: int) -> list[str]:
    """Texts to tune by: contexts of the corpus's held-out queries, or parts of its documents."""
    file = docs.with_name("queries.parquet")
    if file.is_file() and parquet.metadata(file).num_rows:
        table = parquet.read_parquet(file, columns=["id", "context"]).to_pydict()
        drawn = draws.sample(seed, "index queries", table["id"], TUNING_QUERIES)
        return [table["context"][row] for row in drawn]

    count = documents.count_documents(docs)
    generator = draws.generator(seed, "index queries")
    size = min(count, TUNING_QUERIES)
    drawn = np.sort(generator.choice(count, size, replace=False, shuffle=False))
    places = generator.random(size)  # where in its document a stretch begins, as a share
    texts = documents.read_documents(docs, drawn).texts
    stretches = []
    for text, place in zip(texts, places, strict=True):
        words = text.split()
        first = int(place * max(1, len(words) - QUERY_WORDS + 1))
        stretches.append(" ".join(words[first : first + QUERY_WORDS]))
    return stretches


def tune_search(index: Index, queries: np.ndarray) -> float:
    """Set `probe` and `refine` to the cheapest that reach RECALL_TARGET, or the largest.

    Returns the recall: the share of a flat index's top RECALL_DEPTH that is found for the half of
    the queries (n, dim) that did not choose.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    flat = Index(index.folder, threads=index.threads, flat=True, device=index.device)
    _, best_scores = flat.search(queries, RECALL_DEPTH)
    threshold = best_scores[:, -1:]  # a document counts as found if its score is no lower

    # Every second query chooses, as neighbours are of one page or split. A single query does both.
    index.probe, index.refine = _cheapest(index, queries[::2], threshold[::2])

    measuring = slice(min(1, len(queries) - 1), None, 2)
    _, scores = index.search(queries[measuring], RECALL_DEPTH)
    return float((scores >= threshold[measuring]).mean())


def _cheapest(index: Index, queries: np.ndarray, threshold: np.ndarray) -> tuple[int, int]:
    """The `probe` and `refine` with the least work whose recall is as high as it should be."""
    lists = index.lists.nlist
    probes = _powers(lists)
    refines = _powers(MOST_REFINED)
    options = []
    for probe in probes:
        for refine in refines:
            # The cost counts documents that are looked at: timing would not be reproducible.
            codes = probe * (index.count / lists)
            cost = codes + refine * RECALL_DEPTH * CODES_PER_CANDIDATE
            options.append((cost, probe, refine))

    k = min(RECALL_DEPTH, index.count)
    index.refine = max(refines)
    hits_of_probe: dict[int, np.ndarray] = {}  # among the first 1, 2, … candidates, (queries, n)
    for _, probe, refine in sorted(options):
        if probe not in hits_of_probe:
            candidates = index.candidates(queries, RECALL_DEPTH, k, probe)
            is_hit = index.scores(queries, candidates) >= threshold
            hits_of_probe[probe] = np.cumsum(is_hit, axis=1)
        hits = hits_of_probe[probe]

        scored = min(refine * RECALL_DEPTH, hits.shape[1])
        recalls = np.minimum(hits[:, scored - 1], k) / k
        # Chance alone should not reach the target, so the mean lies two standard errors above it.
        standard_error = recalls.std() / len(recalls) ** 0.5
        if recalls.mean() - 2 * standard_error >= RECALL_TARGET:
            return probe, refine
    return max(probes), max(refines)


def _powers(most: int) -> list[int]:
    """The powers of two below `most`, and `most`."""
    powers = {min(2**exponent, most) for exponent in range(most.bit_length() + 1)}
    return sorted(powers)
