"""Building a FAISS index over a corpus's embeddings (REPLUG §3.1): inverted lists, or a graph of neighbours (HNSW).

A search examines as little of the index as reaches `index.recall_target`. A killed build continues from its last whole
shard and ends with the same bytes. So lists are not filled by FAISS, which adds one document after another; they are
built in shards that processes make at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
from tqdm import tqdm

from pipelines import draws, params, parquet, shards
from pipelines.errors import NotShared
from pipelines.pool import processes
from pipelines.retrieval import dense, documents, kmeans
from pipelines.retrieval.embeddings import Embeddings, link
from pipelines.retrieval.index_plan import BITS, BLOCK, NEIGHBOURS, Plan, choose, encoding_processes
from pipelines.retrieval.retriever import fingerprint

SHARD = 131_072  # documents encoded between two points that a killed run can continue from
GROUP = 256 << 20  # bytes of codes put into their lists at once
GRAPH_PARTS = 16  # a growing graph is saved this often: eight times its final size is written in all
LEAST_PART = 8 * BLOCK  # documents between two such saves
_read_once = lru_cache(maxsize=1)(faiss.read_index)  # by a worker that encodes many shards
HELD_OUT = 1000  # queries: one half chooses the depth, the other half measures the recall
WORDS = 16  # of a document, used as a query: a whole one finds itself more easily than a question does
K = 10  # documents found for a query, of which recall is measured
MOST_REFINED = 64  # the largest `refine` tried: candidates scored for each document wanted
LOOK = 100  # reading the codes of this many documents takes as long as scoring one candidate by its embedding


def build_and_tune(
    folder: Path, queries: Callable[[], np.ndarray], params: SimpleNamespace, name: str
) -> tuple[dense.Index, dict]:
    """Choose, build and tune an index over folder/embeddings, in `folder`.

    `queries` returns vectors (n, dim) to tune by; it is called only if there is anything to tune. Returns the index and
    its facts for meta.json. Raises LongtailError, before any work, if the kind asked for does not fit.
    """
    settings, compute, embeddings = params.index, params.compute, Embeddings(folder / "embeddings")
    plan = choose(embeddings.count, embeddings.dim, settings)
    print(f"{name}: {plan.reason}", flush=True)
    if plan.kind == "hnsw":
        build_graph(plan, folder, params.seed, name)
    elif plan.kind != "flat":
        build_lists(plan, folder, params.seed, compute, encoding_processes(plan, settings), name)
    index = dense.Index(folder, threads=compute.threads)
    recall = tune(index, queries(), plan, settings) if plan.kind != "flat" else 1.0
    if recall < settings.recall_target:
        print(f"warning: {name}: recall@{K} is {recall:.3f}, below index.recall_target {settings.recall_target:g}")
    facts = {field: getattr(plan, field) for field in ("kind", "nlist", "sample", "codes", "sq8", "reason")}
    return index, facts | {"probe": index.probe, "refine": index.refine, f"recall_at_{K}": round(recall, 4)}


def build_lists(plan: Plan, folder: Path, seed: int, compute: params.Compute, most: int, name: str) -> None:
    """Write faiss.index with inverted lists over folder/embeddings, and with plan.sq8 sq8/ and scale.npy.

    `most` processes do the work, or a cluster whose workers see the project's folder.
    """
    key = shards.key_of(plan, seed, compute.threads, fingerprint(folder / "embeddings"))
    faiss.omp_set_num_threads(compute.threads)
    ranges = [(start, min(start + SHARD, plan.count)) for start in range(0, plan.count, SHARD)]
    with _executor(compute, min(most, max(len(ranges), plan.sample // kmeans.PART)), name) as executor:
        learnt = _learn(folder / "embeddings", plan, seed, executor, name, key)
        encode = partial(_encode, folder / "embeddings", learnt, plan)
        encoded = shards.map_shards(f"{name}.encode", key, encode, ranges, executor)
    faiss.write_index(_assemble(plan, learnt, encoded), str(folder / "faiss.index"))
    if plan.sq8:
        np.save(folder / "scale.npy", np.load(learnt / "scale.npy"))
        (folder / "sq8").mkdir()
        for number, shard in enumerate(encoded):
            link(shard / "sq8.npy", folder / f"sq8/{number:06d}.npy")
    for part in ("sample", "learn", "codes", "encode"):
        shards.forget(f"{name}.{part}", key)


@contextmanager
def _executor(compute: params.Compute, most: int, name: str) -> Iterator[Executor | None]:
    """Processes of one thread each; here, if those of a cluster don't see the embeddings."""
    compute = compute.model_copy(update={"threads": 1, "workers": max(compute.workers, compute.threads)})
    with ExitStack() as stack:
        try:
            executor = stack.enter_context(processes(compute, most))
        except NotShared as error:
            print(f"{name}: this machine alone builds the index; {error}", flush=True)
            executor = stack.enter_context(processes(compute.model_copy(update={"executor": "local"}), most))
        yield executor


def build_graph(plan: Plan, folder: Path, seed: int, name: str) -> None:
    """Write faiss.index with an HNSW graph over folder/embeddings to `folder`; unfinished graphs are kept under `name`.

    One thread builds it, because a document's neighbours depend on the order in which documents are added.
    """
    faiss.omp_set_num_threads(1)
    embeddings = Embeddings(folder / "embeddings")
    key = shards.key_of(plan, seed, fingerprint(folder / "embeddings"))
    saved = shards.SCRATCH / "shards" / f"{name}.graph-{key}" / "faiss.index"
    if saved.exists():
        index = faiss.read_index(str(saved))
    else:
        index = faiss.IndexHNSWSQ(plan.dim, faiss.ScalarQuantizer.QT_fp16, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    part = max(LEAST_PART, plan.count // GRAPH_PARTS // BLOCK * BLOCK)
    with tqdm(total=plan.count, initial=index.ntotal, desc=f"{name}.graph", unit="document", mininterval=2) as bar:
        while (start := index.ntotal) < plan.count:
            # draws each document's levels; seeded for each block, as a saved index does not hold the generator's state
            draw = draws.generator(seed, "index graph", str(start))
            index.hnsw.rng = faiss.RandomGenerator(int(draw.integers(1 << 31)))
            index.add(embeddings.rows(start, start + BLOCK))
            bar.update(index.ntotal - start)
            if index.ntotal % part == 0:
                with shards.atomic(saved) as temporary:
                    faiss.write_index(index, str(temporary))
    faiss.write_index(index, str(folder / "faiss.index"))
    shards.forget(f"{name}.graph", key)


def _learn(embeddings: Path, plan: Plan, seed: int, executor: Executor | None, name: str, key: str) -> Path:
    """Learn centroids, codes and scales from a sample into a folder: faiss.index without documents, scale.npy."""

    def draw(count: int, path: Path) -> None:
        drawn = draws.generator(seed, "index sample").choice(plan.count, count, replace=False, shuffle=False)
        with path.open("wb") as file:
            np.save(file, Embeddings(embeddings).take(np.sort(drawn)).astype(np.float16))

    def finish(centroids: Path, path: Path) -> None:
        index, vectors = _untrained(plan), np.load(sample).astype(np.float32)
        index.quantizer.add(np.load(centroids))
        index.train(vectors)  # learns the codes only: the lists have their centroids
        path.mkdir()
        faiss.write_index(index, str(path / "faiss.index"))
        least, most = vectors.min(0), vectors.max(0)
        np.save(path / "scale.npy", np.stack([least, np.maximum(most - least, 1e-12) / 255]))

    (sample,) = shards.map_shards(f"{name}.sample", key, draw, [plan.sample])
    centroids = kmeans.learn(sample, plan.nlist, seed, executor, f"{name}.learn", key)
    return shards.map_shards(f"{name}.codes", key, finish, [centroids])[0]


def _untrained(plan: Plan) -> faiss.IndexIVF:
    quantizer = faiss.IndexFlatIP(plan.dim)
    if plan.codes:
        shape = (plan.dim, plan.nlist, plan.codes, BITS[plan.kind])
        index = faiss.IndexIVFPQ(quantizer, *shape, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1
    else:
        fp16 = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(quantizer, plan.dim, plan.nlist, fp16, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = False  # one table of partial scores serves all lists of a query; the recall is the same
    return index


def _encode(embeddings: Path, learnt: Path, plan: Plan, positions: tuple[int, int], path: Path) -> None:
    """Write the codes and positions of a range of documents, sorted by list, and where each list begins in them."""
    faiss.omp_set_num_threads(1)
    index, stored = _read_once(str(learnt / "faiss.index")), Embeddings(embeddings)
    least, step = np.load(learnt / "scale.npy")
    (start, stop), width = positions, index.coarse_code_size()
    codes = np.empty((stop - start, index.sa_code_size()), np.uint8)
    path.mkdir()
    in_bytes = np.empty((stop - start, plan.dim) if plan.sq8 else (0, 0), np.uint8)
    for first in range(start, stop, BLOCK):
        vectors = stored.rows(first, min(first + BLOCK, stop))
        rows = slice(first - start, first - start + len(vectors))
        codes[rows] = index.sa_encode(vectors)
        if plan.sq8:
            in_bytes[rows] = np.clip(np.rint((vectors - least) / step), 0, 255)
    if plan.sq8:
        np.save(path / "sq8.npy", in_bytes)
    list_bytes = np.zeros((len(codes), 4), np.uint8)  # the number of a document's list, the low byte first
    list_bytes[:, :width] = codes[:, :width]
    list_numbers = list_bytes.view("<u4")[:, 0]
    order = np.argsort(list_numbers, kind="stable")
    np.save(path / "bounds.npy", np.searchsorted(list_numbers[order], np.arange(plan.nlist + 1)))
    np.save(path / "positions.npy", order + start)
    np.save(path / "codes.npy", codes[order, width:])


def _assemble(plan: Plan, learnt: Path, encoded: list[Path]) -> faiss.Index:
    """The index with the lists of all shards; a document's id is its position. Groups of lists are filled together."""
    arrays = ("bounds", "positions", "codes")
    parts = [[np.load(folder / f"{array}.npy", mmap_mode="r") for array in arrays] for folder in encoded]
    sizes = np.sum([np.diff(bounds) for bounds, _, _ in parts], axis=0)
    group = np.cumsum(sizes * parts[0][2].shape[1]) // GROUP
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    filled = faiss.read_index(str(learnt / "faiss.index"))
    whole = faiss.IndexIVFPQFastScan(filled) if plan.kind == "ivf" else filled
    for first, last in zip(starts, np.append(starts[1:], plan.nlist), strict=True):
        rows = [slice(bounds[first], bounds[last]) for bounds, _, _ in parts]
        numbers = [np.repeat(np.arange(first, last), np.diff(bounds[first : last + 1])) for bounds, _, _ in parts]
        order = np.argsort(np.concatenate(numbers), kind="stable")
        positions, codes = (
            np.concatenate([part[array][of_group] for part, of_group in zip(parts, rows, strict=True)])[order]
            for array in (1, 2)
        )
        ends = np.cumsum(sizes[first:last])
        for number, end, size in zip(range(first, last), ends.tolist(), sizes[first:last].tolist(), strict=True):
            if size:
                ids, entries = positions[end - size : end], codes[end - size : end]
                filled.invlists.add_entries(number, size, faiss.swig_ptr(ids), faiss.swig_ptr(entries))
        if whole is not filled:  # FAISS packs codes for fast scans in whole blocks; zeros fill the last of a list
            whole.merge_from(faiss.IndexIVFPQFastScan(filled), 0)
            filled.reset()
    whole.ntotal = plan.count
    return whole


def tuning_queries(docs: Path, seed: int) -> list[str]:
    """Texts to tune by: contexts of the corpus's held-out queries; if it has none, short stretches of documents."""
    file = docs.with_name("queries.parquet")
    if file.is_file() and parquet.metadata(file).num_rows:
        table = parquet.read(file, columns=["id", "context"]).to_pydict()
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


def tune(index: dense.Index, queries: np.ndarray, plan: Plan, settings: params.Index) -> float:
    """Set `probe` and `refine` to the cheapest that reach the target, or to the largest.

    Returns the recall: the share of a flat index's top 10 found for the half of the queries that did not choose.
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
    probes = _powers(plan.nlist or MOST_REFINED * K)
    refines = _powers(MOST_REFINED) if plan.codes else [1]
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
