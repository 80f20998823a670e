"""Thresholds carried over: fitted to another language model's answers, judged on ours.

A subject that is held out is held out on both sides, because splits are drawn by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import Fitted
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.adaptive.tuning import Tuned

_FIGURES = ("own", "carried", "difference", "retrieved_own", "retrieved_carried")
RULE_TABLES = {
    "carried": pa.schema(
        dict.fromkeys(("dataset", "lm", "method", "fitted"), pa.string())
        | {"questions": pa.int64()}
        | {name + end: pa.float64() for name in _FIGURES for end in ("", "_low", "_high")}
    )
}


def rows_of_rules(
    tuned: Mapping[tuple[str, str, str], tuple[Pairs, Tuned]], chosen: SimpleNamespace
) -> dict[str, list[dict]]:
    """The rows of carried.parquet: each language model's answers, judged by the thresholds of each other one.

    `tuned` are (dataset, language model, method) -> both answers and the thresholds. Relations that the other model has
    no threshold for retrieve.
    """
    rows = []
    for (dataset, lm, method), (pairs, own) in tuned.items():
        for (other_dataset, other, other_method), (_, brought) in tuned.items():
            if (other_dataset, other_method) == (dataset, method) and other != lm:
                found = (
                    own.fitted,
                    brought.fitted,
                    chosen.thresholds,
                    chosen.seed,
                    chosen.report.bootstrap,
                )
                key = {"dataset": dataset, "lm": lm, "method": method, "fitted": other}
                rows.append(key | compare_carried(pairs, *found))
    return {"carried": rows}


def compare_carried(
    pairs: Pairs, own: Fitted, brought: Fitted, chosen: params.Thresholds, seed: int, resamples: int
) -> dict:
    """Held-out accuracy by thresholds of their own and by those `brought`, on the same splits, and the difference."""
    train, drawn = held_out.sides(pairs, chosen, seed, resamples)
    everywhere = Fitted(
        _everywhere(brought.splits, own.splits),
        _everywhere(brought.whole, own.whole),
        tuple(map(_everywhere, brought.parts, own.parts)),
    )
    columns = {
        "own": Column(pairs.right_above, {"own": pairs.gains}),
        "carried": Column(pairs.right_above, {"carried": pairs.gains}),
        "difference": Column(0.0, {"carried": pairs.gains, "own": -pairs.gains}, apart=True),
    }
    columns |= {
        f"retrieved_{name}": Column(0.0, {name: 1.0}, apart=True) for name in ("own", "carried")
    }
    policies = {
        name: held_out.policy(
            pairs, held_out.judge(pairs, train, fitted.splits).retrieved, drawn, fitted
        )
        for name, fitted in (("own", own), ("carried", everywhere))
    }
    row = {"questions": len(pairs.signal)}
    for name, mean in refits.refitted_means(columns, policies, drawn).items():
        row |= mean.columns(name)
    return row


def _everywhere(
    brought: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The thresholds `brought` to all relations of `own`, as many; one that they lack always retrieves.

    Very many questions have fewer resamples, whose thresholds come again then.
    """
    return {
        of: np.resize(brought.get(of, np.full(len(cut), np.inf)), len(cut))
        for of, cut in own.items()
    }
