"""Stage `score_lm`: score a corpus's test queries with a language model, alone and with each candidate (REPLUG §3).

It writes data/logprobs/<corpus>/<lm>/ (see logprobs.py; studies may add files of their own). Ensembles,
bits per byte and attribution are computed from it.
"""

import hashlib
from pathlib import Path
from types import SimpleNamespace

from pipelines import all_studies, catalogue
from pipelines.errors import LongtailError
from pipelines.storage import parquet, shards
from pipelines.work import stage

OUT = Path("data/logprobs")
SECTIONS = ("seed", "compute", "lm", "retriever", "retrievers", "logprobs", "replug", "parts")
QUERIES = 64  # queries in memory at once; a killed run loses at most their scores


def score_corpus(params: SimpleNamespace, corpus: str, name: str) -> stage.Metrics:
    """Score the union of all retrievers' candidates; write the tables. LongtailError if there are no test queries."""
    import numpy as np

    from pipelines.lm.open_lm import MODELS, lm_at_work
    from pipelines.scoring import candidates, logprobs
    from pipelines.scoring.queries import read_language_modelling

    folder, stage_name = Path("data/corpus", corpus), f"score_lm@{corpus}-{name}"
    with lm_at_work(MODELS / name, params.lm[name], params.compute, scoring=True) as lm:
        queries, sources, _ = read_language_modelling(folder, "test", params.seed, params.logprobs.max_queries)
        if not len(queries):
            raise LongtailError(
                f"{folder}/queries.parquet: no queries in the split 'test'; raise corpus.{corpus}.query_share"
            )
        retrieved = candidates.find_all(corpus, queries, sources, params)
        pairs = candidates.union(len(queries), retrieved)
        parts = np.split(pairs, np.searchsorted(pairs[:, 0], np.arange(QUERIES, len(queries), QUERIES)))
        key = shards.key_of(MODELS / name, params.lm[name], folder, QUERIES, hashlib.blake2b(pairs).digest())
        files = logprobs.score_parts(stage_name, key, lm, queries, folder / "docs.parquet", parts)
        more: dict[str, tuple[list[Path], str, str]] = {}  # table -> its files, and under which stage and key they stay
        for study in all_studies.studies_offering("score_more"):
            more |= study.score_more(stage_name, key, lm, queries, folder, retrieved, params, QUERIES)
        others = {table: parts for table, (parts, *_) in more.items()}
        logprobs.write_logprobs(OUT / corpus / name, name, queries.ids, retrieved, files, QUERIES, others)
        for kept in ((stage_name, key), *(kept for _, *kept in more.values())):
            shards.forget_shards(*kept)
        rows = {table: parquet.metadata(OUT / corpus / name / f"{table}.parquet").num_rows for table in more}
        return {"queries": len(queries), "pairs": len(pairs)} | rows | lm.usage


if __name__ == "__main__":
    arguments = stage.arguments(__doc__, corpus=catalogue.names("documents"), lm="one of params.yaml's lms")
    item = arguments.corpus, arguments.lm
    out = str(OUT.joinpath(*item))
    stage.run(f"score_lm@{'-'.join(item)}", SECTIONS, lambda params: score_corpus(params, *item), out=out)
