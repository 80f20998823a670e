"""Building a graph of neighbours (HNSW; REPLUG §3.1): document by document, kept now and then for a killed run."""

from __future__ import annotations

from pathlib import Path

import faiss
from tqdm import tqdm

from pipelines import draws, shards
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.meta import fingerprint
from pipelines.retrieval.sizing import BLOCK, NEIGHBOURS, Plan

PARTS = 16  # of the documents, after each of which the graph is kept: all of it is written, eight times its size in all
LEAST = 8 * BLOCK  # documents of such a part


def build(plan: Plan, folder: Path, seed: int, name: str) -> None:
    """Write faiss.index over folder/embeddings to `folder`; half-grown graphs are kept under `name` until then.

    One thread: a document's neighbours are those that came before it, and several threads bring documents in as it
    happens.
    """
    faiss.omp_set_num_threads(1)
    embeddings = Embeddings(folder / "embeddings")
    key = shards.key_of(plan, seed, fingerprint(folder / "embeddings"))
    kept = shards.SCRATCH / "shards" / f"{name}.graph-{key}" / "faiss.index"
    if kept.exists():
        index = faiss.read_index(str(kept))
    else:
        index = faiss.IndexHNSWSQ(plan.dim, faiss.ScalarQuantizer.QT_fp16, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    part = max(LEAST, plan.count // PARTS // BLOCK * BLOCK)
    with tqdm(total=plan.count, initial=index.ntotal, desc=f"{name}.graph", unit="document", mininterval=2) as bar:
        while (start := index.ntotal) < plan.count:
            # of each document's levels; seeded for each block, as a file does not hold the generator's state
            draw = draws.generator(seed, "index graph", str(start))
            index.hnsw.rng = faiss.RandomGenerator(int(draw.integers(1 << 31)))
            index.add(embeddings.rows(start, start + BLOCK))
            bar.update(index.ntotal - start)
            if index.ntotal % part == 0:
                with shards.atomic(kept) as temporary:
                    faiss.write_index(index, str(temporary))
    faiss.write_index(index, str(folder / "faiss.index"))
    shards.forget(f"{name}.graph", key)
