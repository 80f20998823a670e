"""Which kind of vector index fits a corpus and a machine (REPLUG §3.1): its memory by arithmetic, before any work."""

from __future__ import annotations

from typing import NamedTuple

from pipelines import params
from pipelines.errors import LongtailError

FLAT_UP_TO = 200_000  # documents that `auto` compares one by one
GIB = 2**30
BASE = GIB  # the interpreter, its libraries and an encoder
BLOCK = 16_384  # embeddings in fp32 at once
SUBS = (2, 4, 8, 16)  # dimensions that share a code of the product quantizer, the finest first
BITS = {"ivf": 4, "ivf_pq": 8}  # of such a code
NEIGHBOURS = 32  # of a document in the graph, twice as many on its lowest level
MOST_LISTS = 65_536  # more make finding the lists dearer than searching them
PER_LIST = 64  # documents of the training sample


class Plan(NamedTuple):
    kind: str
    count: int  # documents
    dim: int
    nlist: int  # inverted lists; 0: none
    sample: int  # documents that centroids and codes are learnt from
    codes: int  # of a document, by the product quantizer; 0: the embedding itself
    sq8: bool  # candidates are looked at again as a byte per dimension, before as embeddings
    memory: int  # bytes that building or searching takes, at most
    reason: str


def choose(count: int, dim: int, settings: params.Index) -> Plan:
    """The kind `settings` names, or for `auto` one that fits; null settings become numbers.

    Raises LongtailError where `index.memory_gb` is too small, or the documents are too few for the kind.
    """
    limit = int(settings.memory_gb * GIB)
    auto = settings.kind == "auto"
    kind = ("flat" if count < FLAT_UP_TO else "ivf") if auto else settings.kind
    least = 2 ** BITS.get(kind, 0)
    if count < least:
        raise LongtailError(
            f"params.yaml: index.kind {kind} learns {least} codes, expected as many documents, found {count:,}; "
            "use flat, or auto"
        )
    plans = [_plan(kind, count, dim, codes, settings) for codes in _codes(kind, dim)]
    plan = next((one for one in plans if one.memory <= limit), plans[-1])
    if plan.memory > limit:
        raise LongtailError(
            f"params.yaml: index.kind {settings.kind} over {count:,} documents of {dim} dimensions takes "
            f"{plan.memory / GIB:.1f} GiB, expected at most index.memory_gb, {settings.memory_gb:g}; "
            f"raise it, or use {'a smaller encoder' if auto else 'auto'}"
        )
    embeddings = 2 * count * dim
    sq8 = bool(plan.codes) and plan.memory + embeddings > limit >= plan.memory + count * dim
    plan = plan._replace(sq8=sq8, memory=plan.memory + count * dim * sq8)
    return plan._replace(reason=_reason(plan, settings))


def encoders(plan: Plan, settings: params.Index) -> int:
    """How many processes `index.memory_gb` lets encode side by side."""
    each = BASE // 2 + 4 * plan.nlist * plan.dim + 16 * BLOCK * plan.dim
    return max(1, int(settings.memory_gb * GIB) // each)


def _codes(kind: str, dim: int) -> list[int]:
    """How many codes a document may have, the most first."""
    if kind not in BITS:
        return [0]
    wanted = [max(1, dim // sub * 4 // BITS[kind]) for sub in SUBS]
    return sorted({max(n for n in range(1, most + 1) if dim % n == 0) for most in wanted}, reverse=True)


def _plan(kind: str, count: int, dim: int, codes: int, settings: params.Index) -> Plan:
    nlist = sample = 0
    if kind.startswith("ivf"):
        nlist = min(settings.nlist or min(int(4 * count**0.5), MOST_LISTS, count // 39), count) or 1
        room = (settings.memory_gb * GIB - BASE - 4 * nlist * dim) / (8 * dim)
        wanted = settings.training_sample or min(max(PER_LIST * nlist, 10_000), int(room))
        sample = min(max(wanted, nlist, 2 ** BITS.get(kind, 0)), count)
    each = {
        "flat": 0,
        "ivf": (codes + 1) // 2 + 8,  # the codes, and a position
        "ivf_pq": codes + 8,
        "ivf_flat": 2 * dim + 8,
        "hnsw": 2 * dim + 8 * NEIGHBOURS + 16,
    }[kind]
    centroids, block = 4 * nlist * dim, 4 * BLOCK * dim
    # learning has the sample twice, once as it is read; its peak is before the lists are there
    learning = 8 * sample * dim + centroids
    held = each * count + centroids + 4 * block
    return Plan(kind, count, dim, nlist, sample, codes, False, BASE + max(learning, held), "")


def _reason(plan: Plan, settings: params.Index) -> str:
    what = f"{plan.kind}: {plan.count:,} documents of {plan.dim} dimensions"
    if plan.kind == "flat":
        return f"{what}, {f'fewer than {FLAT_UP_TO:,}' if settings.kind == 'auto' else 'as asked'}: all are compared"
    what += f", {plan.memory / GIB:.1f} GiB of index.memory_gb {settings.memory_gb:g}"
    if plan.nlist:
        what += f", {plan.nlist:,} lists"
    if plan.codes:
        what += f", {plan.codes} codes of {BITS[plan.kind]} bits"
        what += f", refined by {'bytes and then by ' if plan.sq8 else ''}embeddings"
    return what
