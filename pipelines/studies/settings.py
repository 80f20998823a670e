"""What settings chosen on other documents save: the temperature of lambda, and the weight of the model alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from pipelines import draws, intervals
from pipelines.intervals import Interval
from pipelines.replug import bits, ensemble

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics

HALVES = "halves of the test documents"  # what the draw is for
SETTING = ("temperature", "weight")
SAVED = ("bits_per_byte", "saved", "saved_over_fixed")
CHOSEN = {  # what is chosen on the other half: which of the grid's (temperature, weight) are tried
    "temperature": lambda temperature, weight, fixed: weight == 0,
    "weight": lambda temperature, weight, fixed: temperature == fixed,
    "both": lambda temperature, weight, fixed: True,
}
TABLES = {
    "lm_settings": {"corpus": str, "lm": str, "retriever": str, "k": int, "chosen": str}
    | {f"{name}_{half}": float for name in SETTING for half in (1, 2)}
    | dict.fromkeys(SAVED, Interval),
}


def of_bits(
    measured: bits.Bits, tables: Path, params: SimpleNamespace, intervals_of: Callable, source_documents: np.ndarray
) -> dict[str, list[dict]]:
    """The rows "settings" of a language model's metrics on a corpus."""
    return {"settings": choose_settings(measured, params, intervals_of, source_documents)}


def of_metrics(of: StageMetrics) -> dict[str, list[dict]]:
    """The table lm_settings."""
    return {"lm_settings": of.by_lm("settings", TABLES["lm_settings"])}


def choose_settings(
    measured: bits.Bits, params: SimpleNamespace, intervals_of: Callable, source_documents: np.ndarray
) -> list[dict]:
    """Bits per byte with the temperature of lambda and the weight of the model without documents chosen on other texts.

    A hash of its id puts each source document into one of two halves. The settings that need the fewest bits on one
    half are used on the other, so no text is judged by settings chosen on it. Every resample of the intervals chooses
    again. temperature_1, weight_1 are those used on the first half, so chosen on the second.
    """
    replug, grid = params.replug, bits.grid_settings(params.replug)
    second = draws.uniforms(params.seed, HALVES, source_documents) >= 0.5
    clusters, n, rows = source_documents.astype(str), len(grid), []
    others = [measured.nats["none", 0, replug.temperature], measured.bytes]
    for retriever, nats in measured.grid.items():
        halves = [np.where((second == half)[:, None], nats, 0.0) for half in (False, True)]
        columns = np.column_stack([*halves, *others])
        sums = intervals.cluster_sums(columns, clusters).sum(0)
        statistics, head = [], []
        k = min(replug.top_k, max(k for name, k, _ in measured.nats if name == retriever))
        for chosen, tried in CHOSEN.items():
            places = np.array([i for i, setting in enumerate(grid) if tried(*setting, replug.temperature)])
            best = places[sums[: 2 * n].reshape(2, n)[:, places].argmin(1)]
            used = {f"{name}_{half}": grid[best[2 - half]][i] for half in (1, 2) for i, name in enumerate(SETTING)}
            head.append({"retriever": retriever, "k": k, "chosen": chosen} | used)
            statistics += _of_chosen(places, n)
        found = iter(intervals_of(columns, statistics))
        rows += [row | {name: next(found) for name in SAVED} for row in head]
    return rows


def _of_chosen(places: np.ndarray, n: int) -> list[Callable]:
    """Bits per byte, % saved against no documents and against the setting in use, the first of the `n` settings.

    The columns are each half's nats by setting, then nats without documents, and bytes.
    """

    def nats(sums: np.ndarray) -> np.ndarray:
        return ensemble.cross_fitted(sums[:, : 2 * n].reshape(-1, 2, n)[:, :, places])

    return [
        lambda sums: ensemble.bits_per_byte(nats(sums), sums[:, 2 * n + 1]),
        lambda sums: 100 * (1 - nats(sums) / sums[:, 2 * n]),
        lambda sums: 100 * (1 - nats(sums) / (sums[:, 0] + sums[:, n])),
    ]


def report_entries() -> list:
    """Settings chosen on other texts."""
    from pipelines.report.entries import Entry, Shown

    def settings(inputs):
        keys = ("corpus", "lm", "retriever", "k")
        in_use = {tuple(row[key] for key in keys): row["bits_per_byte"] for row in inputs.tables["bits_per_byte"]}
        return [
            row
            | {f"{name}s": f"{row[f'{name}_1']:g}, {row[f'{name}_2']:g}" for name in SETTING}
            | {"in_use": in_use[tuple(row[key] for key in keys)]}
            for row in inputs.tables["lm_settings"]
            if row["corpus"] == inputs.main_corpus
        ]

    parts = [
        "The temperature of lambda and a weight of the model without documents, as one more member of the ensemble, "
        "are chosen on one half of the test documents and used on the other half, both ways round. No text is judged "
        "by settings chosen on it.",
        Shown(
            "bits-per-byte-by-chosen-settings", settings,
            ["corpus", "lm", "retriever", "chosen", "temperatures", "weights", "in_use", "bits_per_byte", "saved",
             "saved_over_fixed"],
            "Bits per byte with the settings in use and with chosen ones, the values chosen for each half, and the "
            "bits saved in per cent.",
            {"weights": "weights of no document", "in_use": "bits per byte in use",
             "bits_per_byte": "bits per byte, chosen", "saved_over_fixed": "saved against in use, %"},
        ),
    ]  # fmt: skip
    return [Entry("chosen-settings", "Settings chosen on other texts", parts, after="replug")]
