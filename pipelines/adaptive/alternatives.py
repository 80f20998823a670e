"""Another way to decide: by the language model's own doubt, on the same splits as thresholds on popularity (REPLUG)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines.adaptive import held_out
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column, Resamples, means
from pipelines.params import params


def uncertainty(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds, seed: int, resamples: int
) -> dict:
    """{"uncertainty": figures}: held-out accuracy if popularity or the closed-book answer's probability decides.

    Thresholds are fitted by the search in use. The result is empty if too few questions have such a probability.
    `difference` is uncertainty - popularity. `drawn` are resamples of `pairs`.
    """
    known = np.isfinite(pairs.confidence)
    pairs, train, drawn = pairs.take(known), train[known], drawn.take(known)
    if not pairs.usable(chosen.min_questions):
        return {}
    policies, columns = {}, {}
    for name, signal in {"popularity": pairs.popularity, "uncertainty": pairs.confidence}.items():
        order = np.lexsort((signal, pairs.relations))
        ordered, sides, again = replace(pairs, signal=signal).take(order), train[order], drawn.take(order)
        fitted = held_out.fit_all(ordered, sides, again, chosen.search, chosen)
        judged = held_out.judge(ordered, sides, fitted.splits)
        policies[name] = held_out.policy(ordered, judged.retrieved, again, fitted).take(np.argsort(order))
        columns[name] = Column(pairs.right_above, {name: pairs.gains})
        columns[f"retrieved_{name}"] = Column(0.0, {name: 1.0}, apart=True)
    columns["difference"] = Column(0.0, {"uncertainty": pairs.gains, "popularity": -pairs.gains}, apart=True)
    fixed = held_out.scores(pairs, policies["popularity"].retrieved)
    fixed = {name: fixed[name] for name in ("always", "never", "oracle")}
    figures = means(columns, policies, drawn) | held_out.means(fixed, pairs.subjects, seed, resamples)
    return {"uncertainty": {"questions": len(train)} | {name: mean.as_json() for name, mean in figures.items()}}
