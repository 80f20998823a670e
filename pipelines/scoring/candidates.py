"""The candidate documents of test queries (REPLUG §3.1, §6).

They are each retriever's best documents, random ones, and those of smaller corpora. The datastore
curve asks how results grow with the corpus. It takes nested shares of the documents, drawn by hash.
The best documents of each share are found exactly, by one pass over the embeddings of the whole
corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import draws, methods, progress
from pipelines.methods import Method
from pipelines.params import params
from pipelines.params.param_types import RetrieverName
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.retriever import RetrievalSettings, open_index
from pipelines.scoring.logprobs import NONE, Candidates, Queries, unique_pairs
from pipelines.storage import parquet

BLOCK_DOCUMENTS = 16_384  # that the queries are compared with at once
# Scores are rounded to 1 / STEPS as in retrieval/dense.py, so that equal documents tie.
STEPS = 10**5
PLACES = 2**33  # more than a corpus has documents
EMPTY = np.iinfo(np.int64).min  # the key of no document


class CandidateSettings(RetrievalSettings):
    """The sections of params.yaml that finding candidates needs."""

    seed: int
    retrievers: list[RetrieverName]
    parts: params.Parts
    logprobs: params.Logprobs


@dataclass(frozen=True)
class Searches:
    """The queries of a corpus that are searched with: those with a context."""

    docs: Path
    n_queries: int  # with and without a context
    rows: np.ndarray  # (n,) of the queries that have one
    queries: Queries  # those n
    source_documents: np.ndarray  # (n,)
    excluded: np.ndarray  # (n, 2) ranges of positions of their source documents' documents

    def candidates(self, name: str, found: documents.Found) -> Candidates:
        """The candidates of all queries; a query without any has NONE with all the weight."""
        positions, similarities = found
        shape = (self.n_queries, positions.shape[1])
        all_positions = np.full(shape, NONE, np.int64)
        all_similarities = np.full(shape, -np.inf)
        all_positions[self.rows] = positions
        all_similarities[self.rows] = similarities
        all_similarities[all_positions[:, 0] == NONE, 0] = 0.0
        return Candidates(
            retriever=name,
            queries=np.arange(self.n_queries),
            positions=all_positions,
            similarities=all_similarities,
        )


def find_all(
    corpus: str, queries: Queries, source_documents: np.ndarray, settings: CandidateSettings
) -> list[Candidates]:
    """Each retriever's candidates, random ones, and those of the datastore curve.

    No query gets a document of its own source document; `source_documents` are (n,). A query
    without a context, at the beginning of a text, gets none.
    """
    docs = Path("data/corpus", corpus, "docs.parquet")
    rows = np.flatnonzero(queries.texts != "")
    own_sources = source_documents[rows]
    searches = Searches(
        docs=docs,
        n_queries=len(queries),
        rows=rows,
        queries=queries.take(rows),
        source_documents=own_sources,
        excluded=documents.ranges_of_sources(docs, own_sources.tolist()),
    )
    retrieved = _retrieved(corpus, searches, settings)
    random = _random(searches, settings)
    return [*retrieved, random, *_datastore_curve(corpus, searches, settings)]


def _retrieved(corpus: str, searches: Searches, settings: CandidateSettings) -> list[Candidates]:
    """The best documents by each index of the run."""
    texts = list(searches.queries.texts)
    source_documents = list(searches.source_documents)
    candidates = []
    for index in methods.run_indexes(settings.retrievers, settings.parts.tuned):
        name = index.short_name(settings.retrievers)
        retriever = open_index(index, corpus, settings, of_texts=True)
        with progress.whole(f"{name}: search", len(texts), "query"):
            positions, scores = retriever.search(
                texts, settings.logprobs.top_k, without=source_documents
            )
        similarities = comparable(scores, name)
        candidates.append(searches.candidates(name, (positions, similarities)))
    return candidates


def comparable(scores: np.ndarray, retriever: str) -> np.ndarray:
    """Similarities (queries, k) whose softmax weighs the documents; -inf in empty places.

    Encoders' scores are similarities as they are: a cosine or a dot product. BM25's scores grow
    with the length of the query and with the rarity of its terms, so a softmax of them would pick
    one document on long queries. Therefore each is divided by the query's best score, which gives
    a number in [0, 1], like a cosine.
    """
    if retriever != "bm25":
        return scores
    best = scores.max(axis=1, keepdims=True, initial=0)
    where_none_is_better = np.where(np.isneginf(scores), scores, 0)
    return np.divide(scores, best, out=where_none_is_better, where=best > 0)


def _random(searches: Searches, settings: CandidateSettings) -> Candidates:
    positions = random_documents(
        settings.seed,
        searches.queries.ids.tolist(),
        searches.excluded,
        count=documents.count_documents(searches.docs),
        k=settings.logprobs.top_k,
    )
    similarities = np.where(positions == NONE, -np.inf, 0.0)
    return searches.candidates("random", (positions, similarities))


def random_documents(
    seed: int, ids: Sequence[str], excluded: np.ndarray, count: int, k: int
) -> np.ndarray:
    """Positions of k random documents of `count` for each query, or of all; (n, min(k, count)).

    They are drawn by the query's id, and lie outside of the query's range in `excluded`, (n, 2).
    Where too few documents are left, the last places hold NONE.
    """
    size = min(k, count)
    drawn = np.full((len(ids), size), NONE, np.int64)
    for row, query_id in enumerate(ids):
        first, stop = excluded[row]
        generator = draws.generator(seed, "random documents", query_id)
        enough = min(size + stop - first, count)
        positions = generator.choice(count, enough, replace=False)
        is_allowed = (positions < first) | (positions >= stop)
        allowed = positions[is_allowed][:size]
        drawn[row, : len(allowed)] = allowed
    return drawn


def _datastore_curve(
    corpus: str, searches: Searches, settings: CandidateSettings
) -> list[Candidates]:
    """The candidates of a sample of the queries in shares of the corpus.

    They are found by the main retriever, untuned.
    """
    from pipelines.retrieval.encoder import Encoder

    curve = settings.logprobs.datastore
    main = settings.retrievers[0]
    index = Method("dense", main)
    embeddings = Embeddings(methods.index_folder(index, corpus) / "embeddings")
    model = methods.encoder_folder(index)
    retriever = settings.retriever[main]
    encoder = Encoder.open(model, retriever, settings.compute)

    ids = list(searches.queries.ids)
    sample = draws.sample(settings.seed, "datastore queries", ids, curve.max_queries)
    texts = list(searches.queries.texts[sample])
    vectors = encoder.embed_queries(texts, of_texts=True)
    best = best_of_shares(
        searches.docs,
        embeddings,
        vectors=vectors,
        excluded=searches.excluded[sample],
        shares=[*curve.shares, 1.0],
        k=settings.logprobs.top_k,
        seed=settings.seed,
    )
    rows = searches.rows[sample]
    candidates = []
    for share, (positions, similarities) in best.items():
        name = f"{index.kind}@{share:g}"
        candidates.append(Candidates(name, rows, positions, similarities))
    return candidates


def best_of_shares(
    docs: Path,
    embeddings: Embeddings,
    vectors: np.ndarray,
    excluded: np.ndarray,
    shares: Sequence[float],
    k: int,
    seed: int,
) -> dict[float, documents.Found]:
    """The exact k best documents of each share of the corpus, for query `vectors` (n, dim).

    A document is in a share if its id's hash is below it. Returns positions (n, k) and scores. One
    block of embeddings is in memory at a time.
    """
    best = {share: np.full((len(vectors), k), EMPTY) for share in shares}
    start = 0
    with progress.bar("datastore curve", documents.count_documents(docs), "document") as bar:
        for batch in parquet.batches(docs, BLOCK_DOCUMENTS, columns=["id"]):
            stop = start + len(batch)
            places = np.arange(start, stop)
            drawn = draws.uniforms(seed, "datastore", batch["id"].to_pylist())
            similarities = vectors @ embeddings.rows(start, stop).T
            keys = _keys(similarities, places)
            after_first = places >= excluded[:, :1]
            before_stop = places < excluded[:, 1:]
            keys[after_first & before_stop] = EMPTY
            for share, best_so_far in best.items():
                keys_of_share = keys[:, drawn < share]
                candidates = np.concatenate([best_so_far, keys_of_share], axis=1)
                best[share] = np.partition(candidates, -k, axis=1)[:, -k:]
            bar.update(len(batch))
            start = stop
    return {share: _decoded(keys) for share, keys in best.items()}


def _keys(similarities: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Documents' scores and positions in one number each, (n, documents) int64.

    The larger number has the better score and, of equal scores, the smaller position. `_decoded`
    takes the number apart.
    """
    scores = np.rint(similarities * STEPS).astype(np.int64)
    return scores * PLACES + (PLACES - 1 - places)


def _decoded(keys: np.ndarray) -> documents.Found:
    """The positions and scores that `_keys` (n, k) stand for, the best first."""
    keys = np.sort(keys, axis=1)[:, ::-1]
    is_empty = keys == EMPTY
    scores = (keys // PLACES) / STEPS
    scores[is_empty] = -np.inf
    positions = PLACES - 1 - keys % PLACES
    positions[is_empty] = NONE
    return positions, scores


def union(n: int, candidates: Sequence[Candidates]) -> np.ndarray:
    """All candidates' (query, position), and n queries without a document.

    The pairs are distinct and sorted, (pairs, 2).
    """
    no_document = np.full((n, 1), NONE)
    pairs = [unique_pairs(np.arange(n), no_document)]
    for retrieved in candidates:
        pairs.append(unique_pairs(retrieved.queries, retrieved.positions))
    return np.unique(np.concatenate(pairs), axis=0)
