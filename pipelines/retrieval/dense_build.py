"""Chooses, builds and tunes a dense index (REPLUG §3.1): flat, or inverted lists of 4-bit codes.

The kind of index is chosen by the memory that each takes. Lists are built in shards that processes
make at the same time. So a killed build continues from its last whole shard and ends with the same
bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval.dense import BLOCK_EMBEDDINGS, Index
from pipelines.retrieval.dense_tuning import RECALL_DEPTH, RECALL_TARGET, tune_search
from pipelines.retrieval.embeddings import Embeddings
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code
from pipelines.work.executors import processes

FLAT_UP_TO = 200_000  # documents; below this, a query is compared with every document
GIB = 2**30
PROCESS_BYTES = GIB  # of the interpreter, its libraries and an encoder
DIMENSIONS_PER_CODE = (2, 4, 8, 16)  # of the product quantizer, the finest first
CODE_BITS = 4
CODES = 2**CODE_BITS  # values of a code
MOST_LISTS = 65_536  # with more lists, finding the right ones takes longer than searching them
SAMPLE_PER_LIST = 64  # documents that lists are learnt from
LEAST_PER_LIST = 39  # documents of a list: FAISS warns of fewer
LEAST_SAMPLE = 10_000  # documents that lists are learnt from, if there are so many
SHARD_DOCUMENTS = 131_072  # encoded between two points that a killed run can continue from
GROUP_BYTES = 256 << 20  # bytes of codes put into their lists at once


@dataclass(frozen=True)
class Plan:
    """An index to build."""

    kind: str  # flat or ivf
    count: int  # documents
    dim: int
    memory: int  # bytes that building or searching takes, at most
    reason: str
    nlist: int = 0  # inverted lists; 0: none
    sample: int = 0  # documents that centroids and codes are learnt from
    codes: int = 0  # product quantizer codes of a document; 0: the embedding itself is stored


def choose_index(count: int, dim: int, memory_gb: float) -> Plan:
    """Plan an index that fits in `memory_gb` GiB. Raises LongtailError if none fits."""
    make_plan = _flat_plan if count < FLAT_UP_TO else plan_lists
    plan = make_plan(count, dim, memory_gb)
    if plan.memory > memory_gb * GIB:
        raise LongtailError(
            f"params.yaml: an index of {count:,} documents of {dim} dimensions takes "
            f"{plan.memory / GIB:.1f} GiB, expected at most ingest.memory_gb, "
            f"{memory_gb:g}; raise it, or use a smaller encoder"
        )
    return plan


def _flat_plan(count: int, dim: int, _: float) -> Plan:
    memory = PROCESS_BYTES + 4 * _block_bytes(dim)
    documents = f"{count:,} documents of {dim} dimensions"
    reason = f"flat: {documents}, fewer than {FLAT_UP_TO:,}: all are compared"
    return Plan("flat", count, dim, memory, reason)


def plan_lists(count: int, dim: int, memory_gb: float) -> Plan:
    """Inverted lists with the finest codes that fit in memory, or the coarsest if none fit."""
    lists_of_documents = max(1, count // LEAST_PER_LIST)
    nlist = min(int(4 * count**0.5), MOST_LISTS, lists_of_documents)
    centroids = 4 * nlist * dim  # bytes

    # The sample is held twice, as it is read and as it is used, before there are lists.
    sample_bytes = 8 * dim
    most_memory = memory_gb * GIB
    affordable = int((most_memory - PROCESS_BYTES - centroids) / sample_bytes)
    wanted = max(SAMPLE_PER_LIST * nlist, LEAST_SAMPLE)
    needed = max(nlist, CODES)  # by the lists and the codes, even if they do not fit in memory
    sample = max(min(wanted, affordable), needed)
    sample = min(sample, count)
    learning = sample_bytes * sample + centroids

    memory_by_codes = {}
    for codes in _numbers_of_codes(dim):
        bytes_per_document = (codes + 1) // 2 + 8  # the codes, and a position
        searching = bytes_per_document * count + centroids + 4 * _block_bytes(dim)
        memory_by_codes[codes] = PROCESS_BYTES + max(learning, searching)
    fitting = [codes for codes, memory in memory_by_codes.items() if memory <= most_memory]
    codes = max(fitting, default=min(memory_by_codes))
    memory = memory_by_codes[codes]

    share = f"{memory / GIB:.1f} GiB of ingest.memory_gb {memory_gb:g}"
    structure = f"{nlist:,} lists, {codes} codes of {CODE_BITS} bits, refined by embeddings"
    reason = f"ivf: {count:,} documents of {dim} dimensions, {share}, {structure}"
    return Plan("ivf", count, dim, memory, reason, nlist=nlist, sample=sample, codes=codes)


def _block_bytes(dim: int) -> int:
    return 4 * BLOCK_EMBEDDINGS * dim


def _numbers_of_codes(dim: int) -> list[int]:
    """The numbers of codes of a document that are tried, the most first; each divides `dim`."""
    numbers = set()
    for dimensions in DIMENSIONS_PER_CODE:
        most = max(1, dim // dimensions)
        numbers.add(next(number for number in range(most, 0, -1) if dim % number == 0))
    return sorted(numbers, reverse=True)


def build_and_tune(
    folder: Path,
    queries: Callable[[], np.ndarray],
    *,
    memory_gb: float,
    compute: params.Compute,
    seed: int,
    name: str,
) -> tuple[Index, dict[str, Any]]:
    """Choose, build and tune an index over folder/embeddings, in `folder`.

    `queries` returns vectors (n, dim) to tune by; it is called only if there is anything to tune.
    Returns the index and its facts for meta.json. Raises LongtailError, before any work, if no
    index fits.
    """
    embeddings = Embeddings(folder / "embeddings")
    plan = choose_index(embeddings.count, embeddings.dim, memory_gb)
    print(f"{name}: {plan.reason}")
    if plan.kind == "ivf":
        centroids = 4 * plan.nlist * plan.dim  # bytes
        process_bytes = PROCESS_BYTES // 2 + centroids + 4 * _block_bytes(plan.dim)
        affordable = int(memory_gb * GIB) // process_bytes
        build_lists(
            plan,
            folder,
            seed=seed,
            compute=compute,
            most_processes=max(1, affordable),
            name=name,
        )

    index = Index(folder, threads=compute.threads, device=compute.device)
    recall = 1.0
    if plan.kind == "ivf":
        recall = tune_search(index, queries())
    if recall < RECALL_TARGET:
        print(f"warning: {name}: recall@{RECALL_DEPTH} is {recall:.3f}, below {RECALL_TARGET:g}")
    names = ("kind", "nlist", "sample", "codes", "reason")
    facts: dict[str, Any] = {name: getattr(plan, name) for name in names}
    facts |= {"probe": index.probe, "refine": index.refine}
    facts[f"recall_at_{RECALL_DEPTH}"] = round(recall, 4)
    return index, facts


def build_lists(
    plan: Plan, folder: Path, seed: int, compute: params.Compute, most_processes: int, name: str
) -> None:
    """Write faiss.index with inverted lists over folder/embeddings.

    At most `most_processes` of this machine, or a cluster's, encode the documents.
    """
    embeddings = folder / "embeddings"
    store = WorkStore()
    learnt_by = (plan.nlist, plan.sample, plan.codes, seed, compute.threads)
    key = content_key(learnt_by, code.fingerprint(__name__), embeddings)
    faiss.omp_set_num_threads(compute.threads)
    learn = partial(_learn, embeddings, seed)
    (learnt,) = store.parts(f"{name}.learn", key, [plan], learn)

    starts = range(0, plan.count, SHARD_DOCUMENTS)
    ranges = [(start, min(start + SHARD_DOCUMENTS, plan.count)) for start in starts]
    workers = max(compute.workers, compute.threads)
    one_thread = compute.model_copy(update={"threads": 1, "workers": workers})
    with processes(one_thread, min(most_processes, len(ranges))) as executor:
        encode = partial(_encode, embeddings, learnt)
        encoded = store.parts(f"{name}.encode", key, ranges, encode, executor)

    faiss.write_index(_assemble(plan, learnt, encoded), str(folder / "faiss.index"))
    store.forget(f"{name}.learn")
    store.forget(f"{name}.encode")


def _learn(embeddings: Path, seed: int, plan: Plan, path: Path) -> None:
    """Learn centroids and codes from a sample; write an index without documents to `path`."""
    quantizer = faiss.IndexFlatIP(plan.dim)
    index = faiss.IndexIVFPQ(
        quantizer, plan.dim, plan.nlist, plan.codes, CODE_BITS, faiss.METRIC_INNER_PRODUCT
    )
    index.pq.cp.min_points_per_centroid = 1
    index.cp.min_points_per_centroid = 1
    # One table of partial scores serves all lists of a query; the recall is the same.
    index.by_residual = False
    index.cp.seed = int(draws.generator(seed, "index lists").integers(1 << 31))

    generator = draws.generator(seed, "index sample")
    drawn = generator.choice(plan.count, plan.sample, replace=False, shuffle=False)
    index.train(Embeddings(embeddings).take(np.sort(drawn)))
    faiss.write_index(index, str(path))


def _encode(embeddings: Path, learnt: Path, positions: tuple[int, int], path: Path) -> None:
    """Write the lists of a range of documents, whose ids are their positions, as an index."""
    faiss.omp_set_num_threads(1)
    index = faiss.read_index(str(learnt))
    stored = Embeddings(embeddings)
    start, stop = positions
    for first in range(start, stop, BLOCK_EMBEDDINGS):
        vectors = stored.rows(first, min(first + BLOCK_EMBEDDINGS, stop))
        index.add_with_ids(vectors, np.arange(first, first + len(vectors)))
    faiss.write_index(index, str(path))


def _assemble(plan: Plan, learnt: Path, encoded: list[Path]) -> faiss.Index:
    """The index with the lists of all shards, packed group by group.

    The rest of a list's last block is zeros.
    """
    shards: list[Any] = [faiss.read_index(str(file), faiss.IO_FLAG_MMAP) for file in encoded]
    group: Any = faiss.read_index(str(learnt))
    index = faiss.IndexIVFPQFastScan(group)
    size = 0  # bytes in the group
    for number in range(plan.nlist):
        for shard in shards:
            lists = shard.invlists
            count = lists.list_size(number)
            if count:
                ids = lists.get_ids(number)
                codes = lists.get_codes(number)
                group.invlists.add_entries(number, count, ids, codes)
                size += count * group.code_size
        if size >= GROUP_BYTES or number == plan.nlist - 1:
            index.merge_from(faiss.IndexIVFPQFastScan(group), 0)
            group.reset()
            size = 0
    index.ntotal = plan.count
    return index
