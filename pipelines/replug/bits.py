"""Nats per query from the log-probability table: ensembles of every k, temperature and share of the corpus."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.scoring.logprobs import read_scored_texts

TEMPERATURES = (1.0, 0.3, 0.1)
Setting = tuple[str, int, float]  # retriever, k, temperature; without documents "none" and k = 0


@dataclass(frozen=True)
class Bits:
    """Nats of each query's continuation by setting, NaN if a query was not scored in it; arrays (queries,)."""

    ids: np.ndarray
    nats: dict[Setting, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray


def measure(tables: Path, replug: params.Replug) -> Bits:
    """The queries' nats without documents and under each retriever's ensembles of its first 1, 2 ... k documents.

    `tables` is a folder with the tables of scoring.logprobs. Every temperature of TEMPERATURES is measured at
    `replug.top_k` only. One row group is in memory at a time.
    """
    parts = []
    for by_retriever in read_scored_texts(tables, 1):
        alone = by_retriever.pop("none")
        nats = {("none", 0, replug.temperature): -alone.closed.sum(1)}
        for name, texts in by_retriever.items():
            most = texts.similarities.shape[1]
            top_k = min(most, replug.top_k)
            settings = {(top_k, replug.temperature)}
            if "@" not in name:
                settings |= {(k, replug.temperature) for k in range(1, most + 1)} | {(top_k, t) for t in TEMPERATURES}
            for k, temperature in sorted(settings):
                weights = ensemble.log_weights(texts.similarities[:, :k], temperature)
                of_queries = nats[name, k, temperature] = np.full(len(alone.ids), np.nan)
                mixed = ensemble.MIXTURES[replug.mixture](texts.log_probs[:, :k], weights)
                of_queries[np.searchsorted(alone.ids, texts.ids)] = -mixed.sum(1)
        parts.append((alone.ids, nats, alone.bytes.sum(1), alone.lengths))
    ids, nats, n_bytes, tokens = zip(*parts, strict=True)
    unknown = [np.full(len(part), np.nan) for part in ids]
    whole = {
        setting: np.concatenate([part.get(setting, nan) for part, nan in zip(nats, unknown, strict=True)])
        for setting in dict.fromkeys(chain(*nats))
    }
    return Bits(np.concatenate(ids), whole, np.concatenate(n_bytes), np.concatenate(tokens))
