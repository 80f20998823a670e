"""How far a vector index looks: as little as reaches `index.recall_target` on queries that are in no index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipelines import draws, params
from pipelines.retrieval import dense, documents, hnsw, ivf
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.sizing import Plan, choose, encoders

HELD_OUT = 1000  # queries; one half chooses, the other half says what was reached
WORDS = 16  # of a stretch of a document that stands in for a query
K = 10
FURTHEST = 64  # candidates for each document asked for
LOOK = 100  # documents in lists that are as dear to pass as one candidate is to weigh by its embedding


def held_out(docs: Path, seed: int) -> list[str]:
    """Texts to tune by: contexts of the corpus's own queries, of pages that no index has; else stretches of documents.

    A whole document is no stand-in for a query: it finds itself, and its neighbours, more easily than a question does.
    """
    file = docs.with_name("queries.parquet")
    if file.is_file() and pq.read_metadata(file).num_rows:
        table = pq.read_table(file, columns=["id", "context"]).to_pydict()
        return [table["context"][i] for i in draws.sample(seed, "index queries", table["id"], HELD_OUT)]
    count = documents.count(docs)
    draw = draws.generator(seed, "index queries")
    drawn = np.sort(draw.choice(count, min(count, HELD_OUT), replace=False, shuffle=False))
    stretches = []
    for text, place in zip(documents.read(docs, drawn).texts, draw.random(len(drawn)), strict=True):
        words = text.split()
        first = int(place * max(1, len(words) - WORDS + 1))
        stretches.append(" ".join(words[first : first + WORDS]))
    return stretches


def make(
    folder: Path,
    queries: Callable[[], np.ndarray],
    settings: params.Index,
    seed: int,
    compute: params.Compute,
    name: str,
) -> tuple[dense.Index, dict]:
    """Choose, build and tune an index over folder/embeddings, into `folder`; the index, and what meta.json says of it.

    `queries` gives those to tune by, (n, dim), where there is anything to tune. Raises LongtailError, before
    any work, where the kind asked for does not fit.
    """
    embeddings = Embeddings(folder / "embeddings")
    plan = choose(embeddings.count, embeddings.dim, settings)
    print(f"{name}: {plan.reason}", flush=True)
    if plan.kind == "hnsw":
        hnsw.build(plan, folder, seed, name)
    elif plan.kind != "flat":
        ivf.build(plan, folder, seed, compute, encoders(plan, settings), name)
    index = dense.Index(folder, threads=compute.threads)
    recall = tune(index, queries(), plan, settings) if plan.kind != "flat" else 1.0
    if recall < settings.recall_target:
        print(f"warning: {name}: recall@{K} is {recall:.3f}, below index.recall_target {settings.recall_target:g}")
    own = ("kind", "nlist", "sample", "codes", "sq8", "reason")
    facts = {field: getattr(plan, field) for field in own} | {"probe": index.probe, "refine": index.refine}
    return index, facts | {f"recall_at_{K}": round(recall, 4)}


def tune(index: dense.Index, queries: np.ndarray, plan: Plan, settings: params.Index) -> float:
    """Set the cheapest `probe` and `refine` that reach the target, but for those that `settings` name.

    Returns the share of Flat's top 10 found for the half of the queries that chose nothing. Where nothing reaches the
    target, the furthest look does what it can.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    flat = dense.Index(index.folder, threads=index.threads, flat=True)
    last = flat.search(queries, K)[1][:, -1:]  # what reaches the tenth score is as good as the tenth
    # every other one, as neighbours are of one page or split; a single query does both
    index.probe, index.refine = _cheapest(index, queries[::2], last[::2], plan, settings)
    judges = slice(min(1, len(queries) - 1), None, 2)
    return float((index.search(queries[judges], K)[1] >= last[judges]).mean())


def _cheapest(
    index: dense.Index, queries: np.ndarray, last: np.ndarray, plan: Plan, settings: params.Index
) -> tuple[int, int]:
    """Cost is counted in documents looked at, not measured: the same index always comes out the same."""
    k = min(K, index.count)
    probes = [settings.nprobe] if settings.nprobe else _powers(plan.nlist or FURTHEST * K)
    refines = [settings.refine] if settings.refine else _powers(FURTHEST) if plan.codes else [1]
    each = plan.count / plan.nlist if plan.nlist else 1
    options = sorted((probe * each + refine * K * LOOK, probe, refine) for probe in probes for refine in refines)
    hits: dict[int, np.ndarray] = {}
    for _, probe, refine in options:
        if probe not in hits:
            index.refine = max(refines)
            found = index.candidates(queries, K, k, probe)
            hits[probe] = np.cumsum(index.scores(queries, found) >= last, axis=1)
        shares = np.minimum(hits[probe][:, min(refine * K, hits[probe].shape[1]) - 1], k) / k
        # a target that is reached by chance is not: it should lie two standard errors below
        if shares.mean() - 2 * shares.std() / len(shares) ** 0.5 >= settings.recall_target:
            return probe, refine
    return max(probes), max(refines)


def _powers(most: int) -> list[int]:
    """1, 2, 4 … and `most`."""
    return sorted({min(2**i, most) for i in range(most.bit_length() + 1)})
