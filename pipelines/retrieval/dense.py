"""Dense retrieval (REPLUG §3.1): FAISS's lists or torch propose candidates, the stored embeddings give their scores.

Also choosing, building and tuning such an index of inverted lists of 4-bit codes. The kind of index is chosen by the
memory that each takes. A search examines as little of the index as reaches `index.recall_target`. Lists are built in
shards that processes make at the same time. So a killed build continues from its last whole shard and ends with the
same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import faiss
import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings
from pipelines.storage import parquet
from pipelines.storage.work_store import forget_shards, key_of, map_shards
from pipelines.work.executors import processes

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

BLOCK = 16_384  # embeddings held in fp32 at once
COMPARED = {"cpu": 256, "cuda": 4096}  # queries that a block is compared with at once, by device
BATCH = 1024  # queries that FAISS searches at once, at most
CANDIDATES = 1 << 24  # the most candidates held at once
CELLS = (
    1 << 22
)  # numbers of candidates' embeddings held at once: 16 MiB, nearly what a core's cache holds
DECIMALS = 5  # a score's decimals: finer than fp16 embeddings, but equal documents tie in any order of sums
FLAT_UP_TO = 200_000  # documents; below this, `auto` compares a query with every document
GIB = 2**30
BASE = GIB  # the interpreter, its libraries and an encoder
SUBS = (2, 4, 8, 16)  # dimensions that share a code of the product quantizer, the finest first
BITS = 4  # bits of a code
MOST_LISTS = 65_536  # with more lists, finding the right ones takes longer than searching them
PER_LIST = 64  # documents of the training sample
SHARD = 131_072  # documents encoded between two points that a killed run can continue from
GROUP = 256 << 20  # bytes of codes put into their lists at once
HELD_OUT = 1000  # queries: one half chooses the depth, the other half measures the recall
WORDS = 16  # words of a document as a query: a whole document would find itself too easily
K = 10  # documents found for a query, of which recall is measured
MOST_REFINED = 64  # the largest `refine` tried: candidates scored for each document wanted
LOOK = 100  # reading the codes of this many documents takes as long as scoring one candidate by its embedding


class Index:
    """A corpus's embeddings, and a FAISS index that proposes candidates; without one, all documents are compared.

    A candidate's score comes from its embedding, so it is the same for every kind of index. `probe` is the number of
    lists searched; `refine` candidates are scored for each document wanted. All documents are compared on `device`,
    lists are searched on the CPU.
    """

    def __init__(
        self,
        folder: Path,
        probe: int = 1,
        refine: int = 1,
        threads: int = 1,
        flat: bool = False,
        device: str = "cpu",
    ) -> None:
        """Open the index in `folder`; with `flat` only its embeddings."""
        self.folder, self.probe, self.refine, self.threads, self.device = (
            folder,
            probe,
            refine,
            threads,
            device,
        )
        file = folder / "faiss.index"
        try:
            lists = file.exists() and not flat
            self.lists = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC) if lists else None
        except RuntimeError as error:
            said = f"damaged ({' '.join(str(error).split())[-200:]}), expected FAISS's index"
            raise LongtailError(f"{file}: {said}; run the stage `index` again") from None
        self.embeddings = Embeddings(folder / "embeddings")
        self.count, self.dim = self.embeddings.count, self.embeddings.dim

    def search(
        self, queries: np.ndarray, k: int, hidden: np.ndarray | None = None
    ) -> documents.Found:
        """Positions (queries, min(k, count)) int64 and scores float32, best first, ties by position.

        `hidden` (queries, 2) are ranges of positions left out. Missing documents have position -1 and score -inf.
        """
        faiss.omp_set_num_threads(self.threads)
        k, n = min(k, self.count), len(queries)
        queries = np.ascontiguousarray(queries, np.float32)
        hidden = np.zeros((n, 2), np.int64) if hidden is None else hidden
        positions, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
        # more candidates than wanted, so that position and not FAISS's heap or torch decides ties at the k-th place
        reach = 2 * k + 16 + int((hidden[:, 1] - hidden[:, 0]).max(initial=0))
        pending = (
            [(np.arange(n), reach, self.probe)] if n else []
        )  # (queries, candidates for each, lists searched)
        while pending:
            rows, reach, probe = pending.pop()
            reach = min(self.count, reach)
            # a pass over all embeddings serves as many queries as can be
            most = (
                CANDIDATES // reach
                if self.lists is None
                else min(BATCH, CANDIDATES // (reach * self.refine))
            )
            if len(rows) > (most := max(1, most)):
                pending.append((rows[most:], reach, probe))
                rows = rows[:most]
            candidates = self.candidates(queries[rows], k, reach, probe)
            first, last = np.split(hidden[rows], 2, axis=1)
            candidates[(candidates >= first) & (candidates < last)] = -1
            found = self.scores(queries[rows], candidates)
            order = np.lexsort((candidates, -found), axis=1)
            candidates, found = (
                np.take_along_axis(values, order, 1) for values in (candidates, found)
            )
            positions[rows], scores[rows] = candidates[:, :k], found[:, :k]
            # complete: enough documents, and all ties considered
            n_found, n_visible = (candidates >= 0).sum(1), self.count - (last - first)[:, 0]
            complete = n_found >= np.minimum(k, n_visible)
            if (
                self.lists is None
            ):  # a document that ties with the last candidate may not be a candidate itself
                complete &= found[np.arange(len(rows)), n_found - 1] < found[:, k - 1]
            rows = rows[~(complete | (reach == self.count))]
            if len(rows):
                pending.append((rows, 4 * reach, self.count))
        return positions, scores

    def candidates(self, queries: np.ndarray, k: int, reach: int, probe: int) -> np.ndarray:
        """Positions (n, `reach` or more) int64 of documents that may be the best, the likeliest first; -1 for none."""
        if self.lists is None or reach == self.count:  # lists would save no time
            return self._nearest(queries, reach)
        wanted = min(self.count, max(self.refine * max(k, 10), reach))
        lists = faiss.SearchParametersIVF(nprobe=min(probe, self.lists.nlist))
        return self.lists.search(queries, wanted, params=lists)[1]

    def _nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Positions (queries, k) int64 of the k <= count best documents, best first, ties in any order.

        All are compared, in fp32 on `device`: a block of documents is read once for all queries.
        """
        import torch

        torch.set_num_threads(self.threads)
        asked = torch.from_numpy(queries).to(self.device)
        best = torch.full((len(asked), k), -torch.inf, device=self.device)
        positions = torch.full((len(asked), k), -1, device=self.device)
        for start in range(0, self.count, BLOCK):
            halves = self.embeddings.rows(start, start + BLOCK, np.float16)
            block = torch.from_numpy(halves).to(self.device).float().T
            for first in range(0, len(asked), COMPARED[self.device]):
                some = slice(first, first + COMPARED[self.device])
                scores, rows = (asked[some] @ block).topk(min(k, block.shape[1]), sorted=False)
                best[some], kept = torch.cat([best[some], scores], 1).topk(k)
                positions[some] = torch.cat([positions[some], rows + start], 1).gather(1, kept)
        return positions.cpu().numpy()

    def scores(self, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Similarities (n, candidates) float32 of the embeddings at the positions `candidates`, -inf at -1."""

        def score(rows: slice) -> np.ndarray:
            vectors = self.embeddings.take(np.maximum(candidates[rows], 0).ravel())
            vectors = vectors.reshape(*candidates[rows].shape, self.dim)
            return np.round(np.einsum("qd,qcd->qc", queries[rows], vectors), DECIMALS)

        step = max(1, CELLS // (candidates.shape[1] * self.dim))  # queries scored at once
        with ThreadPoolExecutor(self.threads) as pool:  # threads help, as reading waits
            parts = pool.map(
                score, (slice(start, start + step) for start in range(0, len(queries), step))
            )
            scores = np.concatenate(list(parts))
        scores[candidates < 0] = -np.inf
        return scores


class Dense:
    """An opened index with its encoder; implements Retriever."""

    def __init__(
        self,
        folder: Path,
        docs: Path,
        model: Path,
        encoder: Encoder,
        compute: params.Compute,
        flat: bool = False,
    ) -> None:
        """With `flat` all documents are compared, whatever the kind of index.

        Raises LongtailError if the index is missing, or its files, documents and encoder don't go together.
        """
        meta = documents.check_index(
            folder, docs=docs, encoder=model, **encoder.facts, dim=encoder.dim
        )
        self.index = Index(
            folder, meta["probe"], meta["refine"], compute.threads, flat, compute.device
        )
        self.count, self._encoder, self._docs = self.index.count, encoder, docs

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> documents.Found:
        """See Retriever.search; the score is the similarity of the embeddings."""
        hidden = None if without is None else documents.ranges_of_sources(self._docs, without)
        return self.index.search(self._encoder.embed_queries(texts), k, hidden)


class Plan(NamedTuple):
    kind: str
    count: int  # documents
    dim: int
    nlist: int  # inverted lists; 0: none
    sample: int  # documents that centroids and codes are learnt from
    codes: int  # product quantizer codes of a document; 0: the embedding itself is stored
    memory: int  # bytes that building or searching takes, at most
    reason: str


def choose_index(count: int, dim: int, settings: params.Index) -> Plan:
    """Plan an index of the kind asked for, or one that fits; LongtailError if none does, or for too few documents."""
    limit = int(settings.memory_gb * GIB)
    auto = settings.kind == "auto"
    kind = ("flat" if count < FLAT_UP_TO else "ivf") if auto else settings.kind
    nlist, sample, sizes = 0, 0, {0}
    if kind == "ivf":
        if count < 2**BITS:
            raise LongtailError(
                f"params.yaml: index.kind ivf learns {2**BITS} codes, expected as many documents, found {count:,}; "
                "use flat"
            )
        nlist = min(int(4 * count**0.5), MOST_LISTS, count // 39) or 1
        room = (settings.memory_gb * GIB - BASE - 4 * nlist * dim) / (8 * dim)
        sample = min(max(min(max(PER_LIST * nlist, 10_000), int(room)), nlist, 2**BITS), count)
        sizes = {
            max(n for n in range(1, max(1, dim // sub) + 1) if dim % n == 0) for sub in SUBS
        }  # divisors of `dim`
    centroids, block = 4 * nlist * dim, 4 * BLOCK * dim
    learning = (
        8 * sample * dim + centroids
    )  # the sample twice, as it is read and as it is used; no lists yet
    for codes in sorted(sizes, reverse=True):
        bytes_per_document = (codes + 1) // 2 + 8 if codes else 0  # the codes, and a position
        memory = BASE + max(learning, bytes_per_document * count + centroids + 4 * block)
        if memory <= limit:
            break
    else:
        raise LongtailError(
            f"params.yaml: index.kind {settings.kind} over {count:,} documents of {dim} dimensions takes "
            f"{memory / GIB:.1f} GiB, expected at most index.memory_gb, {settings.memory_gb:g}; "
            f"raise it, or use {'a smaller encoder' if auto else 'auto'}"
        )
    reason = f"{kind}: {count:,} documents of {dim} dimensions, "
    if kind == "flat":
        reason += f"{f'fewer than {FLAT_UP_TO:,}' if auto else 'as asked'}: all are compared"
    else:
        reason += (
            f"{memory / GIB:.1f} GiB of index.memory_gb {settings.memory_gb:g}, {nlist:,} lists, "
        )
        reason += f"{codes} codes of {BITS} bits, refined by embeddings"
    return Plan(kind, count, dim, nlist, sample, codes, memory, reason)


def build_and_tune(
    folder: Path, queries: Callable[[], np.ndarray], params: SimpleNamespace, name: str
) -> tuple[Index, dict]:
    """Choose, build and tune an index over folder/embeddings, in `folder`.

    `queries` returns vectors (n, dim) to tune by; it is called only if there is anything to tune. Returns the index and
    its facts for meta.json. Raises LongtailError, before any work, if the kind asked for does not fit.
    """
    settings, compute, embeddings = params.index, params.compute, Embeddings(folder / "embeddings")
    plan = choose_index(embeddings.count, embeddings.dim, settings)
    print(f"{name}: {plan.reason}", flush=True)
    if plan.kind != "flat":
        each = (
            BASE // 2 + 4 * plan.nlist * plan.dim + 16 * BLOCK * plan.dim
        )  # bytes of a process that encodes
        build_lists(
            plan, folder, params.seed, compute, max(1, int(settings.memory_gb * GIB) // each), name
        )
    index = Index(folder, threads=compute.threads, device=compute.device)
    recall = tune_search(index, queries(), plan, settings) if plan.kind != "flat" else 1.0
    if recall < settings.recall_target:
        print(
            f"warning: {name}: recall@{K} is {recall:.3f}, below index.recall_target {settings.recall_target:g}"
        )
    facts = {
        field: getattr(plan, field) for field in ("kind", "nlist", "sample", "codes", "reason")
    }
    return index, facts | {
        "probe": index.probe,
        "refine": index.refine,
        f"recall_at_{K}": round(recall, 4),
    }


def build_lists(
    plan: Plan, folder: Path, seed: int, compute: params.Compute, most: int, name: str
) -> None:
    """Write faiss.index with inverted lists over folder/embeddings; `most` processes, or a cluster's, encode them."""
    key = key_of(plan, seed, compute.threads, folder / "embeddings")
    faiss.omp_set_num_threads(compute.threads)
    ranges = [(start, min(start + SHARD, plan.count)) for start in range(0, plan.count, SHARD)]
    (learnt,) = map_shards(
        f"{name}.learn", key, partial(_learn, folder / "embeddings"), [(plan, seed)]
    )
    one_thread = compute.model_copy(
        update={"threads": 1, "workers": max(compute.workers, compute.threads)}
    )
    with processes(one_thread, min(most, len(ranges))) as executor:
        encode = partial(_encode, folder / "embeddings", learnt)
        encoded = map_shards(f"{name}.encode", key, encode, ranges, executor)
    faiss.write_index(_assemble(plan, learnt, encoded), str(folder / "faiss.index"))
    for part in ("learn", "encode"):
        forget_shards(f"{name}.{part}", key)


def _learn(embeddings: Path, of: tuple[Plan, int], path: Path) -> None:
    """Learn centroids and codes from a sample; write an index without documents to the file `path`."""
    plan, seed = of
    shape = (plan.dim, plan.nlist, plan.codes, BITS)
    index = faiss.IndexIVFPQ(faiss.IndexFlatIP(plan.dim), *shape, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.min_points_per_centroid = index.cp.min_points_per_centroid = 1
    index.by_residual = (
        False  # one table of partial scores serves all lists of a query; the recall is the same
    )
    index.cp.seed = int(draws.generator(seed, "index lists").integers(1 << 31))
    drawn = draws.generator(seed, "index sample").choice(
        plan.count, plan.sample, replace=False, shuffle=False
    )
    index.train(Embeddings(embeddings).take(np.sort(drawn)))
    faiss.write_index(index, str(path))


def _encode(embeddings: Path, learnt: Path, positions: tuple[int, int], path: Path) -> None:
    """Write the lists of a range of documents, whose ids are their positions, as an index of their own."""
    faiss.omp_set_num_threads(1)
    index, stored = faiss.read_index(str(learnt)), Embeddings(embeddings)
    start, stop = positions
    for first in range(start, stop, BLOCK):
        vectors = stored.rows(first, min(first + BLOCK, stop))
        index.add_with_ids(vectors, np.arange(first, first + len(vectors)))
    faiss.write_index(index, str(path))


def _assemble(plan: Plan, learnt: Path, encoded: list[Path]) -> faiss.Index:
    """The index with the lists of all shards; packed group by group, the rest of a list's last block is zeros."""
    parts = [faiss.read_index(str(file), faiss.IO_FLAG_MMAP) for file in encoded]
    filled = faiss.read_index(str(learnt))
    whole, size = faiss.IndexIVFPQFastScan(filled), 0
    for number in range(plan.nlist):
        for lists in (part.invlists for part in parts):
            if count := lists.list_size(number):
                filled.invlists.add_entries(
                    number, count, lists.get_ids(number), lists.get_codes(number)
                )
                size += count * filled.code_size
        if size >= GROUP or number == plan.nlist - 1:
            whole.merge_from(faiss.IndexIVFPQFastScan(filled), 0)
            filled.reset()
            size = 0
    whole.ntotal = plan.count
    return whole


def tuning_queries(docs: Path, seed: int) -> list[str]:
    """Texts to tune by: contexts of the corpus's held-out queries; if it has none, short stretches of documents."""
    file = docs.with_name("queries.parquet")
    if file.is_file() and parquet.metadata(file).num_rows:
        table = parquet.read_parquet(file, columns=["id", "context"]).to_pydict()
        return [
            table["context"][i] for i in draws.sample(seed, "index queries", table["id"], HELD_OUT)
        ]
    count = documents.count_documents(docs)
    draw = draws.generator(seed, "index queries")
    drawn = np.sort(draw.choice(count, min(count, HELD_OUT), replace=False, shuffle=False))
    stretches = []
    for text, share in zip(
        documents.read_documents(docs, drawn).texts, draw.random(len(drawn)), strict=True
    ):
        words = text.split()
        first = int(share * max(1, len(words) - WORDS + 1))
        stretches.append(" ".join(words[first : first + WORDS]))
    return stretches


def tune_search(index: Index, queries: np.ndarray, plan: Plan, settings: params.Index) -> float:
    """Set `probe` and `refine` to the cheapest that reach the target, or to the largest.

    Returns the recall: the share of a flat index's top 10 found for the half of the queries that did not choose.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    flat = Index(index.folder, threads=index.threads, flat=True, device=index.device)
    tenth = flat.search(queries, K)[1][
        :, -1:
    ]  # a document counts as found if its score reaches the tenth best
    # every second query chooses, as neighbours are of one page or split; a single query both chooses and measures
    choosing, reached, k = queries[::2], tenth[::2], min(K, index.count)
    probes, refines, per_list = _powers(plan.nlist), _powers(MOST_REFINED), plan.count / plan.nlist
    # the cost is a count of documents looked at: timing would not be reproducible
    options = sorted(
        (probe * per_list + refine * K * LOOK, probe, refine)
        for probe in probes
        for refine in refines
    )
    hits: dict[int, np.ndarray] = {}
    for _, probe, refine in options:
        if probe not in hits:
            index.refine = max(refines)
            candidates = index.candidates(choosing, K, k, probe)
            hits[probe] = np.cumsum(index.scores(choosing, candidates) >= reached, axis=1)
        recalls = np.minimum(hits[probe][:, min(refine * K, hits[probe].shape[1]) - 1], k) / k
        # the target must lie two standard errors below the mean, so that chance alone does not reach it
        if recalls.mean() - 2 * recalls.std() / len(recalls) ** 0.5 >= settings.recall_target:
            break
    else:
        probe, refine = max(probes), max(refines)
    index.probe, index.refine = probe, refine
    measuring = slice(min(1, len(queries) - 1), None, 2)
    return float((index.search(queries[measuring], K)[1] >= tenth[measuring]).mean())


def _powers(most: int) -> list[int]:
    """The powers of two below `most`, and `most`."""
    return sorted({min(2**i, most) for i in range(most.bit_length() + 1)})
