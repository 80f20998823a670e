"""Stage `score_lm`: score a corpus's test queries with a language model, alone and with each candidate (REPLUG §3).

It writes data/logprobs/<corpus>/<lm>/ (see logprobs.py; studies may add files of their own). A query's candidates are
each retriever's best documents, random ones, and smaller corpora's (REPLUG §3.1, §6). The datastore curve asks how
results grow with the corpus. It takes nested shares of the documents, drawn by hash. The best documents of each share
are found exactly, by one pass over the embeddings of the whole corpus.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pipelines import catalogue, draws, methods, progress
from pipelines.errors import LongtailError
from pipelines.methods import Method
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.retriever import open_index
from pipelines.scoring import logprobs
from pipelines.scoring.logprobs import (
    NONE,
    Candidates,
    Queries,
    read_language_modelling,
    unique_pairs,
)
from pipelines.storage import parquet
from pipelines.storage.work_store import forget_shards, key_of
from pipelines.work import stage

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel
    from pipelines.lm.open_lm import LMWorkers

OUT = Path("data/logprobs")
SECTIONS = ("seed", "compute", "lm", "retriever", "retrievers", "logprobs", "replug", "parts")
QUERIES = 64  # queries in memory at once; a killed run loses at most their scores
CURVE = "dense"  # the datastore curve is the main retriever's, untuned
BLOCK = 16_384  # documents that the queries are compared with at once
STEPS = (
    10**5
)  # scores are rounded to 1 / STEPS as in retrieval/dense.py, so that equal documents tie
PLACES = 2**33  # more than a corpus has documents
EMPTY = np.iinfo(np.int64).min


class ScoreStudy(Protocol):
    """A module of pipelines/studies that scores more beside the candidates' pairs."""

    def score_more(
        self,
        stage: str,
        key: str,
        lm: "LanguageModel | LMWorkers",
        queries: Queries,
        corpus: Path,
        retrieved: Sequence[Candidates],
        params: SimpleNamespace,
        size: int,
    ) -> dict[str, tuple[list[Path], str, str]]:
        """Score `size` queries at a time: the table's name -> its files, and their stage and key."""


def score_corpus(
    params: SimpleNamespace, corpus: str, name: str, studies: Sequence[ScoreStudy] = ()
) -> stage.Metrics:
    """Score the union of all retrievers' candidates, and what studies add; write the tables.

    Raises LongtailError if there are no test queries.
    """
    from pipelines.lm.open_lm import MODELS, lm_at_work

    folder, stage_name = Path("data/corpus", corpus), f"score_lm@{corpus}-{name}"
    with lm_at_work(MODELS / name, params.lm[name], params.compute, scoring=True) as lm:
        queries, sources, _ = read_language_modelling(
            folder, "test", params.seed, params.logprobs.max_queries
        )
        if not len(queries):
            raise LongtailError(
                f"{folder}/queries.parquet: no queries in the split 'test'; raise corpus.{corpus}.query_share"
            )
        retrieved = find_all(corpus, queries, sources, params)
        pairs = union(len(queries), retrieved)
        parts = np.split(
            pairs, np.searchsorted(pairs[:, 0], np.arange(QUERIES, len(queries), QUERIES))
        )
        key = key_of(
            MODELS / name, params.lm[name], folder, QUERIES, hashlib.blake2b(pairs).digest()
        )
        files = logprobs.score_parts(stage_name, key, lm, queries, folder / "docs.parquet", parts)
        more: dict[
            str, tuple[list[Path], str, str]
        ] = {}  # table -> its files, and under which stage and key they stay
        for study in studies:
            more |= study.score_more(
                stage_name, key, lm, queries, folder, retrieved, params, QUERIES
            )
        others = {table: parts for table, (parts, *_) in more.items()}
        logprobs.write_logprobs(
            OUT / corpus / name, name, queries.ids, retrieved, files, QUERIES, others
        )
        for kept in ((stage_name, key), *(kept for _, *kept in more.values())):
            forget_shards(*kept)
        rows = {
            table: parquet.metadata(OUT / corpus / name / f"{table}.parquet").num_rows
            for table in more
        }
        return {"queries": len(queries), "pairs": len(pairs)} | rows | lm.usage


def find_all(
    corpus: str, queries: Queries, sources: np.ndarray, params: SimpleNamespace
) -> list[Candidates]:
    """Each retriever's candidates; no query gets a document of its own source document, `sources` (n,).

    A query without a context, at the beginning of a text, has none.
    """
    from pipelines.retrieval.encoder import Encoder

    docs, k, rows = (
        Path("data/corpus", corpus, "docs.parquet"),
        params.logprobs.top_k,
        np.arange(len(queries)),
    )
    searched = np.flatnonzero(queries.texts != "")
    texts, sources, ids = queries.texts[searched], sources[searched], queries.ids[searched]
    excluded, candidates = documents.ranges_of_sources(docs, sources), []

    def of_all(name: str, positions: np.ndarray, similarities: np.ndarray) -> Candidates:
        """The candidates of all queries; where there is none, NONE has all the weight."""
        shape = len(queries), positions.shape[1]
        every, similarities_of_all = np.full(shape, NONE, np.int64), np.full(shape, -np.inf)
        every[searched], similarities_of_all[searched] = positions, similarities
        similarities_of_all[every[:, 0] == NONE, 0] = 0.0
        return Candidates(name, rows, every, similarities_of_all)

    for name in methods.indexes(params):
        index = Method.parse(name, params.retrievers)
        retriever = open_index(index, corpus, params)
        with progress.whole(f"{name}: search", len(texts), "query"):
            positions, scores = retriever.search(list(texts), k, without=list(sources))
        candidates.append(of_all(name, positions, comparable(scores, name)))
    positions = random_documents(params.seed, ids, excluded, retriever.count, k)
    candidates.append(of_all("random", positions, np.where(positions == NONE, -np.inf, 0.0)))

    settings, main = params.logprobs.datastore, params.retrievers[0]
    embeddings = Embeddings(
        methods.index_folder(methods.Method(CURVE, main), corpus) / "embeddings"
    )
    drawn = draws.sample(params.seed, "datastore queries", list(ids), settings.max_queries)
    encoder = Encoder.open(
        methods.encoder_folder(methods.Method(CURVE, main)), params.retriever[main], params.compute
    )
    vectors, shares = (
        encoder.embed_queries(list(queries.texts[searched[drawn]])),
        [*settings.shares, 1.0],
    )
    best = best_of_shares(docs, embeddings, vectors, excluded[drawn], shares, k, params.seed)
    return candidates + [
        Candidates(f"{CURVE}@{share:g}", searched[drawn], *of_share)
        for share, of_share in best.items()
    ]


def union(n: int, candidates: Sequence[Candidates]) -> np.ndarray:
    """All candidates' (query, position) and n queries without a document: distinct, sorted pairs, (pairs, 2)."""
    alone = np.stack([np.arange(n), np.full(n, NONE)], axis=1)
    return np.unique(
        np.concatenate([alone, *(unique_pairs(c.queries, c.positions) for c in candidates)]), axis=0
    )


def comparable(scores: np.ndarray, retriever: str) -> np.ndarray:
    """Similarities (queries, k) whose softmax weighs the documents: cosine or dot product, or BM25's share of the best.

    BM25's scale grows with the query's length and the terms' rarity, so a softmax of it would pick one document on long
    queries. Its share of the best score lies in [0, 1] like a cosine. Empty places stay -inf.
    """
    if retriever != "bm25":
        return scores
    best = scores.max(axis=1, keepdims=True, initial=0)
    return np.divide(scores, best, out=np.where(np.isneginf(scores), scores, 0), where=best > 0)


def random_documents(
    seed: int, ids: Sequence[str], excluded: np.ndarray, count: int, k: int
) -> np.ndarray:
    """min(k, count) positions for each query, drawn by its id, (n, k); none from the ranges `excluded`, (n, 2)."""
    size = min(k, count)
    drawn = np.full((len(ids), size), NONE, np.int64)
    for row, (query_id, (first, stop)) in enumerate(zip(ids, excluded.tolist(), strict=True)):
        enough = min(size + stop - first, count)
        positions = draws.generator(seed, "random documents", query_id).choice(
            count, enough, replace=False
        )
        allowed = positions[(positions < first) | (positions >= stop)][:size]
        drawn[row, : len(allowed)] = allowed
    return drawn


def best_of_shares(
    docs: Path,
    embeddings: Embeddings,
    vectors: np.ndarray,
    excluded: np.ndarray,
    shares: Sequence[float],
    k: int,
    seed: int,
) -> dict[float, tuple[np.ndarray, np.ndarray]]:
    """The exact k best documents of each share of the corpus: positions (n, k) and scores; `vectors` are (n, dim).

    A document is in a share if its id's hash is below it. One block of embeddings is in memory at a time.
    """
    best, start = {share: np.full((len(vectors), k), EMPTY) for share in shares}, 0
    with progress.bar("datastore curve", documents.count_documents(docs), "document") as compared:
        for batch in parquet.batches(docs, BLOCK, columns=["id"]):
            places = np.arange(start, start := start + len(batch))
            drawn = draws.uniforms(seed, "datastore", batch["id"].to_pylist())
            scores = np.rint(vectors @ embeddings.rows(places[0], start).T * STEPS).astype(np.int64)
            keys = scores * PLACES + PLACES - 1 - places  # ordered by score, then by position
            keys[(places >= excluded[:, :1]) & (places < excluded[:, 1:])] = EMPTY
            for share, best_so_far in best.items():
                both = np.concatenate([best_so_far, keys[:, drawn < share]], axis=1)
                best[share] = np.partition(both, -k, axis=1)[:, -k:]
            compared.update(len(batch))
    decoded = {}
    for share, keys in best.items():
        keys = np.sort(keys, axis=1)[:, ::-1]
        scores = np.where(keys == EMPTY, -np.inf, (keys // PLACES) / STEPS)
        decoded[share] = np.where(keys == EMPTY, NONE, PLACES - 1 - keys % PLACES), scores
    return decoded


def main(studies: Sequence[ScoreStudy]) -> None:
    """Run the stage that the command line names."""
    arguments = stage.arguments(
        __doc__, corpus=catalogue.names("documents"), lm="one of params.yaml's lms"
    )
    item = arguments.corpus, arguments.lm
    out = str(OUT.joinpath(*item))
    stage.run(
        f"score_lm@{'-'.join(item)}",
        SECTIONS,
        lambda params: score_corpus(params, *item, studies),
        out=out,
    )
