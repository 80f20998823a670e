"""Thresholds carried over: fitted to another language model's answers, judged on ours.

A subject that is held out is held out on both sides, because splits are drawn by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import Fitted
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column
from pipelines.params.params import Thresholds

if TYPE_CHECKING:
    from pipelines.adaptive.tune_thresholds import Settings
    from pipelines.adaptive.tuning import Tuned

KEYS = ("dataset", "lm", "method", "fitted")
FIGURES = ("own", "carried", "difference", "retrieved_own", "retrieved_carried")


def _schema() -> pa.Schema:
    fields = [(name, pa.string()) for name in KEYS]
    fields.append(("questions", pa.int64()))
    for name in FIGURES:
        for end in ("", "_low", "_high"):
            fields.append((f"{name}{end}", pa.float64()))
    return pa.schema(fields)


RULE_TABLES = {"carried": _schema()}


def rows_of_rules(
    tuned: Mapping[tuple[str, str, str], tuple[Pairs, Tuned]], settings: Settings
) -> dict[str, list[dict]]:
    """The rows of carried.parquet: each language model's answers, judged by the thresholds of each
    other one.

    `tuned` is (dataset, language model, method) -> the answers and their thresholds. Relations that
    the other model has no threshold for retrieve.
    """
    rows = []
    for (dataset, lm, method), (pairs, tuned_here) in tuned.items():
        for (other_dataset, other_lm, other_method), (_, tuned_there) in tuned.items():
            if (other_dataset, other_method) != (dataset, method) or other_lm == lm:
                continue
            key = {"dataset": dataset, "lm": lm, "method": method, "fitted": other_lm}
            row = compare_carried(
                pairs,
                own=tuned_here.fitted,
                carried=tuned_there.fitted,
                settings=settings.thresholds,
                seed=settings.seed,
                resamples=settings.report.bootstrap,
            )
            rows.append(key | row)

    return {"carried": rows}


def compare_carried(
    pairs: Pairs, own: Fitted, carried: Fitted, settings: Thresholds, seed: int, resamples: int
) -> dict:
    """Held-out accuracy by thresholds fitted to these answers and by those `carried` over, on the
    same splits, and the difference."""
    parts = []
    for carried_part, own_part in zip(carried.parts, own.parts, strict=True):
        parts.append(_for_all_relations(carried_part, own_part))
    carried_here = Fitted(
        splits=_for_all_relations(carried.splits, own.splits),
        whole=_for_all_relations(carried.whole, own.whole),
        parts=tuple(parts),
    )

    train, drawn = held_out.sides(pairs, settings, seed, resamples)
    gains = pairs.gains
    columns = {"difference": Column(0.0, {"carried": gains, "own": -gains}, apart=True)}
    policies = {}
    for name, fitted in {"own": own, "carried": carried_here}.items():
        columns[name] = Column(pairs.right_above, {name: gains})
        columns[f"retrieved_{name}"] = Column(0.0, {name: 1.0}, apart=True)
        retrieved = held_out.judge(pairs, train, fitted.splits).retrieved
        policies[name] = held_out.policy(pairs, retrieved, drawn, fitted)

    row = {"questions": len(pairs.signal)}
    for name, mean in refits.refitted_means(columns, policies, drawn).items():
        row |= mean.columns(name)
    return row


def _for_all_relations(
    carried: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The thresholds `carried` over to all relations of `own`, as many for each.

    A relation that they lack always retrieves. Very many questions have fewer resamples, whose
    thresholds then repeat.
    """
    thresholds = {}
    for relation, own_thresholds in own.items():
        always = np.full(len(own_thresholds), np.inf)
        thresholds[relation] = np.resize(carried.get(relation, always), len(own_thresholds))
    return thresholds
