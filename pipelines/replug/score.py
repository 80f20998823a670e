"""Stage `score_lm`: the log-probability table of the test queries, and bits per byte by retriever (REPLUG Table 1).

data/logprobs/
  logprobs.parquet   lm, query_id, doc_id ("" = none), log_probs and bytes (a list entry per continuation token)
  retrieved.parquet  query_id, retriever (bm25, dense, lsr, random), rank (from 1), doc_id, similarity (what lambda is a
                     softmax of: see ensemble.comparable)
  bpb.parquet        lm, retriever (also "none", with k 0), k, query_id, source_document, source, nats, bytes, tokens
data/metrics/language_modelling.json, every figure with its 95 % bootstrap interval over source documents:
  bpb_none, bpb_<retriever>_k<k>         bits per byte of the corpus
  gain_<retriever>_k<k>                  % fewer bits per byte than without documents, paired by query
  lsr_gain_k<k>                          % fewer bits per byte with LSR's retriever than with the untuned one
  bpb_<retriever>_k<top>_t<temperature>  lambda sharpened
  perplexity_none, perplexity_<retriever>_k<top>  per token of the language model
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pipelines import draws, shards, stage

CORPUS = Path("data/corpus/pile")
INDEX = Path("data/index/pile")
LM = Path("data/models/lm")
ENCODERS = {"bm25": None, "dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
OUT = Path("data/logprobs")
METRICS = Path("data/metrics/language_modelling.json")
SECTIONS = ("seed", "compute", "lm", "retriever", "replug", "report")


def random_documents(seed: int, ids, count: int, k: int):
    """k distinct positions for each query, (n, k) int64, by a hash of the query's id."""
    import numpy as np

    size = min(k, count)
    drawn = [draws.generator(seed, "random documents", one).choice(count, size, replace=False) for one in ids]
    return np.array(drawn, np.int64).reshape(len(ids), size)


def score(params: SimpleNamespace) -> stage.Metrics:
    """Search with every retriever, score the union of what they found, and write tables and metrics.

    Raises LongtailError where the corpus has no test queries.
    """
    import numpy as np

    from pipelines.errors import LongtailError
    from pipelines.lm.open import open_lm
    from pipelines.replug import bits, table
    from pipelines.replug.queries import language_modelling
    from pipelines.retrieval.open import open_retriever

    lm = open_lm(LM, params.lm, params.compute, scoring=True)
    docs, k = CORPUS / "docs.parquet", params.replug.top_k
    queries, source_documents, sources = language_modelling(CORPUS, "test", params.seed, params.replug.max_queries)
    if not len(queries):
        raise LongtailError(f"{CORPUS}/queries.parquet: no queries in the split 'test'; raise corpus.pile.query_share")
    found = {}
    for name, encoder in ENCODERS.items():
        retriever = open_retriever(INDEX / name, docs, encoder, params.retriever, params.compute)
        found[name] = retriever.search(list(queries.texts), k)
    drawn = random_documents(params.seed, queries.ids, retriever.count, k)
    found["random"] = drawn, np.zeros(drawn.shape, np.float32)

    rows = np.arange(len(queries))
    nothing = np.full((len(rows), 1), table.NONE)
    pairs = table.unique_pairs(rows, np.concatenate([nothing, *(positions for positions, _ in found.values())], axis=1))
    key = shards.key_of(LM, CORPUS, params.lm, pairs.tobytes())
    scored = table.score_pairs("score_lm", key, lm, queries, docs, pairs)

    measured = bits.measure(scored, found, params.replug.temperature, params.replug.mixture)
    described = {"queries": queries, "source_documents": source_documents, "sources": sources}
    bits.write_tables(OUT, docs, scored, found, measured, lm=lm.name, **described)
    metrics = bits.figures(measured, source_documents, params)
    counts = {"queries": len(rows), "documents": retriever.count, "pairs": len(pairs)}
    shards.write_json(METRICS, metrics | counts)
    shards.forget("score_lm", key)
    return {name: figure["value"] for name, figure in metrics.items()} | counts


def main() -> None:
    stage.run("score_lm", SECTIONS, score, out=f"{OUT} and {METRICS}")


if __name__ == "__main__":
    main()
