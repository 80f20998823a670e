"""Building a vector index, and setting how much of it a search examines: as little as reaches `index.recall_target`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq

from pipelines import draws, params
from pipelines.retrieval import dense, documents, faiss_build
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.index_plan import Plan, choose, encoding_processes

HELD_OUT = 1000  # queries: one half chooses the depth, the other half measures the recall
WORDS = 16  # of a stretch of a document that is used as a query
K = 10  # documents found for a query, of which recall is measured
MOST_REFINED = 64  # the largest `refine` tried: candidates scored for each document wanted
LOOK = 100  # reading the codes of this many documents takes as long as scoring one candidate by its embedding


def tuning_queries(docs: Path, seed: int) -> list[str]:
    """Texts to tune by: contexts of the corpus's held-out queries; if it has none, short stretches of documents.

    A whole document would not do: it finds itself and its neighbours more easily than a question does.
    """
    file = docs.with_name("queries.parquet")
    if file.is_file() and pq.read_metadata(file).num_rows:
        table = pq.read_table(file, columns=["id", "context"]).to_pydict()
        return [table["context"][i] for i in draws.sample(seed, "index queries", table["id"], HELD_OUT)]
    count = documents.count(docs)
    draw = draws.generator(seed, "index queries")
    drawn = np.sort(draw.choice(count, min(count, HELD_OUT), replace=False, shuffle=False))
    stretches = []
    for text, share in zip(documents.read(docs, drawn).texts, draw.random(len(drawn)), strict=True):
        words = text.split()
        first = int(share * max(1, len(words) - WORDS + 1))
        stretches.append(" ".join(words[first : first + WORDS]))
    return stretches


def build_and_tune(
    folder: Path, queries: Callable[[], np.ndarray], params: SimpleNamespace, name: str
) -> tuple[dense.Index, dict]:
    """Choose, build and tune an index over folder/embeddings, in `folder`.

    `queries` returns vectors (n, dim) to tune by; it is called only if there is anything to tune. `params` has index,
    seed and compute. Returns the index and its facts for meta.json. Raises LongtailError, before any work, if the kind
    asked for does not fit.
    """
    settings, compute, embeddings = params.index, params.compute, Embeddings(folder / "embeddings")
    plan = choose(embeddings.count, embeddings.dim, settings)
    print(f"{name}: {plan.reason}", flush=True)
    if plan.kind == "hnsw":
        faiss_build.build_graph(plan, folder, params.seed, name)
    elif plan.kind != "flat":
        faiss_build.build_lists(plan, folder, params.seed, compute, encoding_processes(plan, settings), name)
    index = dense.Index(folder, threads=compute.threads)
    recall = tune(index, queries(), plan, settings) if plan.kind != "flat" else 1.0
    if recall < settings.recall_target:
        print(f"warning: {name}: recall@{K} is {recall:.3f}, below index.recall_target {settings.recall_target:g}")
    facts = {field: getattr(plan, field) for field in ("kind", "nlist", "sample", "codes", "sq8", "reason")}
    return index, facts | {"probe": index.probe, "refine": index.refine, f"recall_at_{K}": round(recall, 4)}


def tune(index: dense.Index, queries: np.ndarray, plan: Plan, settings: params.Index) -> float:
    """Set the index's `probe` and `refine` to the cheapest that reach the target; those that `settings` name are kept.

    If nothing reaches the target, the largest values are set. Returns the recall: the share of a flat index's top 10
    found for the other half of the queries, which did not choose.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    flat = dense.Index(index.folder, threads=index.threads, flat=True)
    tenth = flat.search(queries, K)[1][:, -1:]  # a document counts as found if its score reaches the tenth best
    # every second query chooses, as neighbours are of one page or split; a single query both chooses and measures
    index.probe, index.refine = _cheapest(index, queries[::2], tenth[::2], plan, settings)
    measuring = slice(min(1, len(queries) - 1), None, 2)
    return float((index.search(queries[measuring], K)[1] >= tenth[measuring]).mean())


def _cheapest(
    index: dense.Index, queries: np.ndarray, tenth: np.ndarray, plan: Plan, settings: params.Index
) -> tuple[int, int]:
    """The cheapest probe and refine. Cost is a count of documents looked at: timing would not be reproducible."""
    k = min(K, index.count)
    probes = [settings.nprobe] if settings.nprobe else _powers(plan.nlist or MOST_REFINED * K)
    refines = [settings.refine] if settings.refine else _powers(MOST_REFINED) if plan.codes else [1]
    per_list = plan.count / plan.nlist if plan.nlist else 1
    options = sorted((probe * per_list + refine * K * LOOK, probe, refine) for probe in probes for refine in refines)
    hits: dict[int, np.ndarray] = {}
    for _, probe, refine in options:
        if probe not in hits:
            index.refine = max(refines)
            candidates = index.candidates(queries, K, k, probe)
            hits[probe] = np.cumsum(index.scores(queries, candidates) >= tenth, axis=1)
        recalls = np.minimum(hits[probe][:, min(refine * K, hits[probe].shape[1]) - 1], k) / k
        # the target must lie two standard errors below the mean, so that chance alone does not reach it
        if recalls.mean() - 2 * recalls.std() / len(recalls) ** 0.5 >= settings.recall_target:
            return probe, refine
    return max(probes), max(refines)


def _powers(most: int) -> list[int]:
    """The powers of two below `most`, and `most`."""
    return sorted({min(2**i, most) for i in range(most.bit_length() + 1)})
