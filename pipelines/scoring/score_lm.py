"""Stage `score_lm`: what a language model says of a corpus's test queries, alone and with every candidate (REPLUG §3).

data/logprobs/<corpus>/<lm>/ (see logprobs.py) is computed once: ensembles of any kind, bits per byte and attribution
are queries over it.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from types import SimpleNamespace

from pipelines import catalogue, shards, stage

OUT = Path("data/logprobs")
SECTIONS = ("seed", "compute", "lm", "retriever", "logprobs", "parts")
QUERIES = 64  # scored and written at once: what is in memory, and what a killed run loses at most


def score(params: SimpleNamespace, corpus: str, name: str) -> stage.Metrics:
    """Search with every retriever, have the language model score the union of what they found, write the tables.

    Raises LongtailError where the corpus has no test queries.
    """
    import numpy as np

    from pipelines.errors import LongtailError
    from pipelines.lm.open_lm import MODELS, open_lm
    from pipelines.scoring import candidates, logprob_files, logprob_table
    from pipelines.scoring.queries import language_modelling

    lm = open_lm(MODELS / name, params.lm[name], params.compute, scoring=True)
    folder = Path("data/corpus", corpus)
    queries, sources, _ = language_modelling(folder, "test", params.seed, params.logprobs.max_queries)
    if not len(queries):
        raise LongtailError(
            f"{folder}/queries.parquet: no queries in the split 'test'; raise corpus.{corpus}.query_share"
        )
    found = candidates.find(corpus, queries, sources, params)
    pairs = candidates.union(len(queries), found)
    parts = np.split(pairs, np.searchsorted(pairs[:, 0], np.arange(QUERIES, len(queries), QUERIES)))
    stage_name = f"score_lm@{corpus}-{name}"
    key = shards.key_of(MODELS / name, params.lm[name], folder, QUERIES, hashlib.blake2b(pairs).digest())
    files = logprob_table.score_parts(stage_name, key, lm, queries, folder / "docs.parquet", parts)
    logprob_files.write(OUT / corpus / name, name, queries.ids, found, files, QUERIES)
    shards.forget(stage_name, key)
    return {"queries": len(queries), "pairs": len(pairs)} | lm.usage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.scoring.score_lm", description=__doc__)
    parser.add_argument("corpus", choices=catalogue.names("documents"))
    parser.add_argument("lm", help="one of params.yaml's lms")
    asked = parser.parse_args()

    def work(params: SimpleNamespace) -> stage.Metrics:
        return score(params, asked.corpus, asked.lm)

    out = str(OUT / asked.corpus / asked.lm)
    stage.run(f"score_lm@{asked.corpus}-{asked.lm}", SECTIONS, work, out=out)


if __name__ == "__main__":
    main()
