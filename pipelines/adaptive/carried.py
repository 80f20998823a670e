"""Thresholds carried over: fitted to another language model's answers or another month's page views, judged on ours.

A subject that is held out is held out on both sides, because splits are drawn by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np

from pipelines import database, params
from pipelines.adaptive import held_out
from pipelines.adaptive.held_out import HeldOut
from pipelines.adaptive.pairs import Pairs
from pipelines.errors import LongtailError

Key = tuple[str, str, str]  # dataset, language model, method
RUN = "this run"  # the month of the question set
SCALES = ("views", "rank")  # a threshold keeps its page views, or its place among the relation's questions


def between_models(
    tuned: Mapping[Key, tuple[Pairs, HeldOut]], chosen: params.Thresholds, seed: int, resamples: int
) -> list[dict]:
    """Rows of carried.parquet: each language model's answers, judged by the thresholds of each other one.

    `tuned` are both answers and the splits' thresholds of the search in use. Relations that the other model has no
    threshold for retrieve, as in `ask`.
    """
    rows = []
    for (dataset, lm, method), (pairs, own) in tuned.items():
        for (other_dataset, other, other_method), (_, fitted) in tuned.items():
            if (other_dataset, other_method) == (dataset, method) and other != lm:
                key = {"dataset": dataset, "lm": lm, "method": method, "kind": "language model"}
                key |= {"fitted": other, "judged": lm, "scale": "views"}
                rows.append(key | compare(pairs, own.cuts, fitted.cuts, chosen, seed, resamples))
    return rows


def between_months(
    tuned: Mapping[Key, tuple[Pairs, HeldOut]], data: Path, chosen: params.Thresholds, seed: int, resamples: int
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
            cuts = {month: fit(of_month, chosen, seed) for month, of_month in months.items()}
            for fitted, judged in ((RUN, file.stem), (file.stem, RUN)):
                for scale in SCALES:
                    key = {"dataset": dataset, "lm": lm, "method": method, "kind": "month"}
                    key |= {"fitted": fitted, "judged": judged, "scale": scale}
                    brought = cuts[fitted]
                    if scale == "rank":
                        brought = by_rank(brought, months[fitted], months[judged])
                    rows.append(key | compare(months[judged], cuts[judged], brought, chosen, seed, resamples))
    return rows


def compare(
    pairs: Pairs,
    own: Mapping[str, np.ndarray],
    brought: Mapping[str, np.ndarray],
    chosen: params.Thresholds,
    seed: int,
    resamples: int,
) -> dict:
    """Held-out accuracy by thresholds of their own and by those `brought`, on the same splits, and the difference.

    Both are relation -> (splits,) thresholds, each split's fitted to its training side.
    """
    train = _train(pairs, chosen, seed)
    everywhere = {relation: brought.get(relation, np.full(train.shape[1], np.inf)) for relation in own}
    by_own, by_brought = (held_out.judge(pairs, train, dict(cuts)) for cuts in (own, everywhere))
    columns = {"own": held_out.scores(pairs, by_own.retrieved)["adaptive"]}
    columns["carried"] = held_out.scores(pairs, by_brought.retrieved)["adaptive"]
    columns["difference"] = columns["carried"] - columns["own"]
    columns |= {"retrieved_own": by_own.retrieved, "retrieved_carried": by_brought.retrieved}
    row = {"questions": len(pairs.signal)}
    for name, mean in held_out.means(columns, pairs.subjects, seed, resamples).items():
        row |= {name if key == "value" else f"{name}_{key}": value for key, value in mean.as_json().items()}
    over_splits = by_brought.table["adaptive"] - by_own.table["adaptive"]
    low, high = np.nanquantile(over_splits, [0.025, 0.975])
    return row | {"difference_splits_low": float(low), "difference_splits_high": float(high)}


def fit(pairs: Pairs, chosen: params.Thresholds, seed: int) -> dict[str, np.ndarray]:
    """Each relation's threshold on each split by the search in use: relation -> (splits,)."""
    return held_out.fit(pairs, _train(pairs, chosen, seed), chosen.search, chosen)


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


def _train(pairs: Pairs, chosen: params.Thresholds, seed: int) -> np.ndarray:
    return held_out.split_train(seed, pairs.units(chosen.split_by), chosen.splits, chosen.train_share)
