"""Other ways to decide: if retrieving has a price, and by the language model's own doubt (REPLUG, limitations).

Both are judged on the same splits as the thresholds on popularity.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines import params
from pipelines.adaptive import held_out
from pipelines.adaptive.pairs import Pairs

PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)  # accuracy that the dearer answer must earn


def cost_curve(pairs: Pairs, train: np.ndarray, chosen: params.Thresholds, seed: int, resamples: int) -> list[dict]:
    """Rows of costs.parquet: held-out accuracy, share that retrieves and cost per question for each price.

    The objective is accuracy - cost_weight x cost. Each weight is one of PRICES divided by the mean difference of the
    two answers' costs. There are no rows if that difference is not known, or 0.
    """
    extra = abs(np.mean(pairs.augmented_cost - pairs.closed_cost))
    if not extra > 0:
        return []
    columns = {}
    for price in PRICES:
        priced = chosen.model_copy(update={"cost_weight": price / extra})
        judged = held_out.judge(pairs, train, held_out.fit(pairs, train, chosen.search, priced))
        scores = held_out.scores(pairs, judged.retrieved)
        columns |= {(price, name): scores[name] for name in ("adaptive", "retrieved")}
        columns[price, "cost"] = pairs.closed_cost + judged.retrieved * (pairs.augmented_cost - pairs.closed_cost)
    rows = {price: {"unit": chosen.cost, "price": price, "cost_weight": price / extra} for price in PRICES}
    for (price, name), mean in held_out.means(columns, pairs.subjects, seed, resamples).items():
        rows[price] |= {name if key == "value" else f"{name}_{key}": value for key, value in mean.as_json().items()}
    return list(rows.values())


def uncertainty(pairs: Pairs, train: np.ndarray, chosen: params.Thresholds, seed: int, resamples: int) -> dict:
    """{"uncertainty": figures}: held-out accuracy if popularity, the closed-book answer's probability or both decide.

    Thresholds are fitted by the search in use. The result is empty if too few questions have such a probability.
    `difference` is uncertainty - popularity, `both_difference` is both - the better of the two, and `cost_...` is the
    cost per question. Deciding by the answer's probability costs a closed-book answer even if it then retrieves.
    """
    known = np.isfinite(pairs.confidence)
    pairs, train = pairs.take(known), train[known]
    if not pairs.usable(chosen.min_questions):
        return {}
    columns, shares = {}, {}
    signals = {"popularity": pairs.popularity, "uncertainty": pairs.confidence, "both": both(pairs)}
    for name, signal in signals.items():
        order = np.lexsort((signal, pairs.relations))
        # If the model is asked first, its closed-book answer is paid for either way.
        spared = pairs.closed_cost if name == "popularity" else np.zeros_like(pairs.closed_cost)
        ordered = replace(pairs, signal=signal, closed_cost=spared).take(order)
        judged = held_out.judge(ordered, train[order], held_out.fit(ordered, train[order], chosen.search, chosen))
        shares[name] = np.empty(len(order))
        shares[name][order] = judged.retrieved
        columns[name] = pairs.closed + shares[name] * pairs.gains(0.0)
    columns |= {name: held_out.scores(pairs, shares["popularity"])[name] for name in ("always", "never", "oracle")}
    columns["difference"] = columns["uncertainty"] - columns["popularity"]
    better = max(("popularity", "uncertainty"), key=lambda name: np.nanmean(columns[name]))
    columns["both_difference"] = columns["both"] - columns[better]
    columns |= {f"retrieved_{name}": share for name, share in shares.items()}
    if pairs.costs_known:
        for name, share in shares.items():
            first = pairs.closed_cost * ((1 - share) if name == "popularity" else 1.0)
            columns[f"cost_{name}"] = first + share * pairs.augmented_cost
    figures = held_out.means(columns, pairs.subjects, seed, resamples)
    return {"uncertainty": {"questions": len(train)} | {name: mean.as_json() for name, mean in figures.items()}}


def both(pairs: Pairs) -> np.ndarray:
    """Popularity and confidence in one signal, (n,): the sum of their logarithms, each standardised by relation."""
    together = np.zeros(len(pairs.signal))
    for values in (pairs.popularity, pairs.confidence):
        logs = np.log(np.maximum(values, np.min(values[values > 0], initial=1.0)))
        for rows in pairs.members().values():
            centred = logs[rows] - logs[rows].mean()
            together[rows] += centred / max(centred.std(), 1e-9)
    return np.exp(together)
