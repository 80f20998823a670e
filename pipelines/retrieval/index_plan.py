"""Choosing the kind of vector index for a corpus and a machine (REPLUG §3.1), by the memory that each kind takes."""

from __future__ import annotations

from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.params import params

FLAT_UP_TO = 200_000  # documents; below this, `auto` compares a query with every document
GIB = 2**30
BASE = GIB  # the interpreter, its libraries and an encoder
BLOCK = 16_384  # embeddings held in fp32 at once
SUBS = (2, 4, 8, 16)  # dimensions that share a code of the product quantizer, the finest first
BITS = 4  # of such a code
MOST_LISTS = 65_536  # with more lists, finding the right ones takes longer than searching them
PER_LIST = 64  # documents of the training sample


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
    if kind == "ivf" and count < 2**BITS:
        raise LongtailError(
            f"params.yaml: index.kind ivf learns {2**BITS} codes, expected as many documents, found {count:,}; use flat"
        )
    most = [max(1, dim // sub) for sub in SUBS] if kind == "ivf" else []
    codes = {max(n for n in range(1, largest + 1) if dim % n == 0) for largest in most}  # divisors of `dim`
    plans = [_plan(kind, count, dim, number, settings) for number in sorted(codes or {0}, reverse=True)]
    plan = next((plan for plan in plans if plan.memory <= limit), plans[-1])
    if plan.memory > limit:
        raise LongtailError(
            f"params.yaml: index.kind {settings.kind} over {count:,} documents of {dim} dimensions takes "
            f"{plan.memory / GIB:.1f} GiB, expected at most index.memory_gb, {settings.memory_gb:g}; "
            f"raise it, or use {'a smaller encoder' if auto else 'auto'}"
        )
    reason = f"{kind}: {count:,} documents of {dim} dimensions, "
    if kind == "flat":
        return plan._replace(reason=f"{reason}{f'fewer than {FLAT_UP_TO:,}' if auto else 'as asked'}: all are compared")
    reason += f"{plan.memory / GIB:.1f} GiB of index.memory_gb {settings.memory_gb:g}, {plan.nlist:,} lists, "
    return plan._replace(reason=f"{reason}{plan.codes} codes of {BITS} bits, refined by embeddings")


def encoding_processes(plan: Plan, settings: params.Index) -> int:
    """How many processes can encode documents at the same time within `index.memory_gb`."""
    each = BASE // 2 + 4 * plan.nlist * plan.dim + 16 * BLOCK * plan.dim
    return max(1, int(settings.memory_gb * GIB) // each)


def _plan(kind: str, count: int, dim: int, codes: int, settings: params.Index) -> Plan:
    nlist = sample = 0
    if kind == "ivf":
        nlist = min(int(4 * count**0.5), MOST_LISTS, count // 39) or 1
        room = (settings.memory_gb * GIB - BASE - 4 * nlist * dim) / (8 * dim)
        sample = min(max(min(max(PER_LIST * nlist, 10_000), int(room)), nlist, 2**BITS), count)
    bytes_per_document = (codes + 1) // 2 + 8 if codes else 0  # the codes, and a position
    centroids, block = 4 * nlist * dim, 4 * BLOCK * dim
    learning = 8 * sample * dim + centroids  # the sample twice, as it is read and as it is used; no lists yet
    searching = bytes_per_document * count + centroids + 4 * block
    return Plan(kind, count, dim, nlist, sample, codes, BASE + max(learning, searching), "")
