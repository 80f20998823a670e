"""Other ways to decide: if retrieving has a price, and by the language model's own doubt (REPLUG, limitations).

Both are judged on the same splits as the thresholds on popularity.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines.adaptive import held_out
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column, Policy, Resamples, means
from pipelines.params import params

PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)  # accuracy that the dearer answer must earn


def cost_curve(pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds) -> list[dict]:
    """Rows of costs.parquet: held-out accuracy, share that retrieves and cost per question for each price.

    The objective is accuracy - cost_weight x cost. Each weight is one of PRICES divided by the mean difference of the
    two answers' costs. There are no rows if that difference is not known, or 0. `drawn` are resamples of `pairs`.
    """
    extra = pairs.cost_below - pairs.cost_above
    mean_extra = abs(np.mean(extra))
    if not mean_extra > 0:
        return []
    columns = {
        "adaptive": Column(pairs.right_above, {"": pairs.gains(0.0)}),
        "retrieved": Column(0.0, {"": 1.0}, apart=True),
        "cost": Column(pairs.cost_above, {"": extra}, apart=True),
    }
    rows = []
    for price in PRICES:
        priced = chosen.model_copy(update={"cost_weight": price / mean_extra})
        row = {"unit": chosen.cost, "price": price, "cost_weight": price / mean_extra}
        for name, mean in means(columns, {"": _policy(pairs, train, drawn, priced)}, drawn).items():
            row |= mean.columns(name)
        rows.append(row)
    return rows


def uncertainty(
    pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds, seed: int, resamples: int
) -> dict:
    """{"uncertainty": figures}: held-out accuracy if popularity, the closed-book answer's probability or both decide.

    Thresholds are fitted by the search in use. The result is empty if too few questions have such a probability.
    `difference` is uncertainty - popularity, `both_difference` is both - the better of the two, and `cost_...` is the
    cost per question. Deciding by the answer's probability costs a closed-book answer even if it then retrieves.
    `drawn` are resamples of `pairs`.
    """
    known = np.isfinite(pairs.confidence)
    pairs, train, drawn = pairs.take(known), train[known], drawn.take(known)
    if not pairs.usable(chosen.min_questions):
        return {}
    policies = {}
    signals = {"popularity": pairs.popularity, "uncertainty": pairs.confidence, "both": both(pairs)}
    for name, signal in signals.items():
        order = np.lexsort((signal, pairs.relations))
        # If the model is asked first, its closed-book answer is paid for either way.
        spared = pairs.cost_above if name == "popularity" else np.zeros_like(pairs.cost_above)
        ordered = replace(pairs, signal=signal, cost_above=spared).take(order)
        policies[name] = _policy(ordered, train[order], drawn.take(order), chosen).take(np.argsort(order))
    gains = pairs.gains(0.0)
    columns = {name: Column(pairs.right_above, {name: gains}) for name in signals}
    columns["difference"] = Column(0.0, {"uncertainty": gains, "popularity": -gains}, apart=True)
    accuracies = {name: np.nanmean(gains * policies[name].retrieved) for name in ("popularity", "uncertainty")}
    better = max(accuracies, key=lambda name: accuracies[name])
    columns["both_difference"] = Column(0.0, {"both": gains, better: -gains}, apart=True)
    columns |= {f"retrieved_{name}": Column(0.0, {name: 1.0}, apart=True) for name in signals}
    if pairs.costs_known:
        extra = {name: pairs.cost_below - (pairs.cost_above if name == "popularity" else 0.0) for name in signals}
        columns |= {f"cost_{name}": Column(pairs.cost_above, {name: extra[name]}, apart=True) for name in signals}
    fixed = held_out.scores(pairs, policies["popularity"].retrieved)
    fixed = {name: fixed[name] for name in ("always", "never", "oracle")}
    figures = means(columns, policies, drawn) | held_out.means(fixed, pairs.subjects, seed, resamples)
    return {"uncertainty": {"questions": len(train)} | {name: mean.as_json() for name, mean in figures.items()}}


def _policy(pairs: Pairs, train: np.ndarray, drawn: Resamples, chosen: params.Thresholds) -> Policy:
    """The search in use, judged on the splits and fitted again to resamples."""
    fitted = held_out.fit_all(pairs, train, drawn, chosen.search, chosen)
    return held_out.policy(pairs, held_out.judge(pairs, train, fitted.splits).retrieved, drawn, fitted)


def both(pairs: Pairs) -> np.ndarray:
    """Popularity and confidence in one signal, (n,): the sum of their logarithms, each standardised by relation."""
    together = np.zeros(len(pairs.signal))
    for values in (pairs.popularity, pairs.confidence):
        logs = np.log(np.maximum(values, np.min(values[values > 0], initial=1.0)))
        for rows in pairs.members().values():
            centred = logs[rows] - logs[rows].mean()
            together[rows] += centred / max(centred.std(), 1e-9)
    return np.exp(together)
