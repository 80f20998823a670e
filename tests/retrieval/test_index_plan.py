"""The kind of index follows from documents, dimensions and memory; what does not fit is refused."""

import pytest
import vectors

from pipelines.errors import LongtailError
from pipelines.retrieval.index_plan import FLAT_UP_TO, GIB, choose


@pytest.mark.parametrize(
    ("count", "dim", "memory_gb", "kind", "codes", "sq8"),
    [
        (FLAT_UP_TO - 1, 768, 4, "flat", 0, False),
        (FLAT_UP_TO, 768, 4, "ivf", 384, False),
        (36_000_000, 384, 64, "ivf", 192, False),  # the embeddings fit beside the lists
        (36_000_000, 384, 24, "ivf", 192, True),  # a byte for each dimension does
        (36_000_000, 768, 24, "ivf", 384, False),  # they stay on disk
        (367_000_000, 384, 24, "ivf", 96, False),  # codes of four dimensions
        (200_001, 300, 4, "ivf", 150, False),
    ],
)
def test_auto_takes_the_finest_that_fits(count, dim, memory_gb, kind, codes, sq8):
    plan = choose(count, dim, vectors.settings(memory_gb=float(memory_gb)))
    assert (plan.kind, plan.codes, plan.sq8) == (kind, codes, sq8)
    assert plan.memory <= memory_gb * GIB
    assert f"{kind}: {count:,} documents of {dim} dimensions" in plan.reason


def test_a_named_kind_that_does_not_fit_is_refused_and_named_numbers_are_kept():
    for kind, gib in (("ivf_flat", "53.0"), ("hnsw", "61.8")):
        message = rf"index\.kind {kind} over 36,000,000 documents of 768 dimensions takes {gib} GiB, expected at most"
        with pytest.raises(LongtailError, match=message):
            choose(36_000_000, 768, vectors.settings(kind, memory_gb=24.0))
    with pytest.raises(LongtailError, match=r"index\.kind ivf_pq learns 256 codes.*found 255; use flat, or auto"):
        choose(255, 32, vectors.settings("ivf_pq"))
    plan = choose(10_000, 32, vectors.settings("ivf", nlist=7, training_sample=500))
    assert (plan.nlist, plan.sample) == (7, 500)
