"""Thresholds carried over: fitted to another language model's answers or another month's page views, judged on ours.

A subject that is held out is held out on both sides, because splits are drawn by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import Fitted
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.adaptive.tune_thresholds import AllRules

Key = tuple[str, str, str]  # dataset, language model, method
RUN = "this run"  # the month of the question set
SCALES = ("views", "rank")  # a threshold keeps its page views, or its place among the relation's questions
_NAMES = ("dataset", "lm", "method", "kind", "fitted", "judged", "scale")
_FIGURES = ("own", "carried", "difference", "retrieved_own", "retrieved_carried")
_BOUNDS = [f"{name}{end}" for name in _FIGURES for end in ("", "_low", "_high")]
_BOUNDS[9:9] = ["difference_splits_low", "difference_splits_high"]
RULE_TABLES = {
    "carried": pa.schema(
        dict.fromkeys(_NAMES, pa.string()) | {"questions": pa.int64()} | dict.fromkeys(_BOUNDS, pa.float64())
    )
}


def of_rules(of: AllRules) -> tuple[dict[str, list[dict]], dict]:
    """The rows of carried.parquet: what thresholds are worth on another model's answers or another month's views."""
    tuned = {key: (pairs, made.fitted) for key, (pairs, made) in of.tuned.items()}
    settings = of.params.thresholds, of.params.seed, of.params.report.bootstrap
    return {"carried": between_models(tuned, *settings) + between_months(tuned, of.data, *settings)}, {}


def between_models(
    tuned: Mapping[Key, tuple[Pairs, Fitted]], chosen: params.Thresholds, seed: int, resamples: int
) -> list[dict]:
    """Rows of carried.parquet: each language model's answers, judged by the thresholds of each other one.

    `tuned` are both answers and the thresholds of the search in use. Relations that the other model has no threshold
    for retrieve.
    """
    rows = []
    for (dataset, lm, method), (pairs, own) in tuned.items():
        for (other_dataset, other, other_method), (_, fitted) in tuned.items():
            if (other_dataset, other_method) == (dataset, method) and other != lm:
                key = {"dataset": dataset, "lm": lm, "method": method, "kind": "language model"}
                key |= {"fitted": other, "judged": lm, "scale": "views"}
                rows.append(key | compare_carried(pairs, own, fitted, chosen, seed, resamples))
    return rows


def between_months(
    tuned: Mapping[Key, tuple[Pairs, Fitted]], data: Path, chosen: params.Thresholds, seed: int, resamples: int
) -> list[dict]:
    """Rows of carried.parquet: thresholds of this run's month on another month's page views, and the other way round.

    Another month's are in data/imported/popularity/<dataset>/<month>.parquet: a question set's file of that month, or
    any table with its `question_id` and `s_pop`. Questions count whose popularity is known in both months.
    """
    rows = []
    for (dataset, lm, method), (pairs, _) in tuned.items():
        for file in sorted((data / "imported/popularity" / dataset).glob("*.parquet")):
            months = dict(zip((RUN, file.stem), in_both(pairs, read_views(file)), strict=True))
            if not months[RUN].usable(chosen.min_questions):
                continue
            cuts = {month: fit_brought(of_month, chosen, seed, resamples) for month, of_month in months.items()}
            for fitted, judged in ((RUN, file.stem), (file.stem, RUN)):
                for scale in SCALES:
                    key = {"dataset": dataset, "lm": lm, "method": method, "kind": "month"}
                    key |= {"fitted": fitted, "judged": judged, "scale": scale}
                    brought = cuts[fitted]
                    if scale == "rank":
                        here, there = months[fitted], months[judged]
                        brought = brought.each(partial(by_rank, here=here, there=there))
                    rows.append(key | compare_carried(months[judged], cuts[judged], brought, chosen, seed, resamples))
    return rows


def compare_carried(
    pairs: Pairs, own: Fitted, brought: Fitted, chosen: params.Thresholds, seed: int, resamples: int
) -> dict:
    """Held-out accuracy by thresholds of their own and by those `brought`, on the same splits, and the difference."""
    train, drawn = held_out.sides(pairs, chosen, seed, resamples)
    n = min([drawn.n, *(len(cut) for fitted in (own, brought) for cut in fitted.whole.values())])
    drawn, own, brought = drawn.first(n), own.first(n), brought.first(n)  # of more questions there are fewer resamples
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
    columns |= {f"retrieved_{name}": Column(0.0, {name: 1.0}, apart=True) for name in ("own", "carried")}
    policies, accuracies = {}, {}
    for name, fitted in (("own", own), ("carried", everywhere)):
        judged = held_out.judge(pairs, train, dict(fitted.splits))
        policies[name] = held_out.policy(pairs, judged.retrieved, drawn, fitted)
        accuracies[name] = judged.table["adaptive"]
    row = {"questions": len(pairs.signal)}
    for name, mean in refits.means(columns, policies, drawn).items():
        row |= mean.columns(name)
    low, high = np.nanquantile(accuracies["carried"] - accuracies["own"], [0.025, 0.975])
    return row | {"difference_splits_low": float(low), "difference_splits_high": float(high)}


def fit_brought(pairs: Pairs, chosen: params.Thresholds, seed: int, resamples: int) -> Fitted:
    """Thresholds by the search in use."""
    return held_out.fit_all(pairs, *held_out.sides(pairs, chosen, seed, resamples), chosen.search, chosen)


def read_views(file: Path) -> dict[str, float]:
    """Question id -> its subject's page views, where they are known. Raises LongtailError for a file without them."""
    try:
        rows = database.ask(
            "SELECT question_id::VARCHAR, s_pop::DOUBLE FROM questions WHERE s_pop IS NOT NULL", questions=file
        ).fetchall()
    except duckdb.Error as error:
        raise LongtailError(
            f"{file}: {str(error).splitlines()[0]}; expected the columns question_id and s_pop, as in data/questions"
        ) from None
    return dict(rows)


def in_both(pairs: Pairs, views: Mapping[str, float]) -> tuple[Pairs, Pairs]:
    """The questions whose popularity is known in both months: with their own, and with the other month's `views`."""
    others = np.array([views.get(id_, np.nan) for id_ in pairs.ids])
    known = np.isfinite(others)
    here = pairs.take(known)
    there = replace(here, signal=others[known], popularity=others[known])
    return here, there.take(np.lexsort((there.ids.astype(str), there.signal, there.relations.astype(str))))


def by_rank(cuts: Mapping[str, np.ndarray], here: Pairs, there: Pairs) -> dict[str, np.ndarray]:
    """Thresholds that leave as many questions of the relation below them in the other month; 0 and infinity stay."""
    to, moved = there.members(), {}
    for relation, rows in here.members().items():
        signal, others = here.signal[rows], np.append(there.signal[to[relation]], np.inf)
        below = others[np.searchsorted(signal, cuts[relation])]
        moved[relation] = np.where(np.isin(cuts[relation], (0.0, np.inf)), cuts[relation], below)
    return moved


def _everywhere(brought: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The thresholds `brought` to all relations of `own`; one that they lack always retrieves."""
    return {relation: brought.get(relation, np.full(len(cut), np.inf)) for relation, cut in own.items()}
