"""What else could explain a gain in bits per byte, or better it: settings chosen on other documents, and controls.

Rows (dicts) of data/metrics/language_modelling_<corpus>.json, for one language model and corpus. All intervals are
bootstraps over source documents, with the resamples of the stage's other figures.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from pipelines import draws, intervals
from pipelines.replug import bits, ensemble
from pipelines.scoring.controls import CONCATENATED

HALVES = "halves of the test documents"  # what the draw is for
AGAINST = ("bits_per_byte", "saved", "saved_over_same", "saved_over_ensemble")
SETTING = ("temperature", "weight")
SAVED = ("bits_per_byte", "saved", "saved_over_fixed")
CHOSEN = {  # what is chosen on the other half: which of the grid's (temperature, weight) are tried
    "temperature": lambda temperature, weight, fixed: weight == 0,
    "weight": lambda temperature, weight, fixed: temperature == fixed,
    "both": lambda temperature, weight, fixed: True,
}


def settings(measured: bits.Bits, source_documents: np.ndarray, params: SimpleNamespace) -> list[dict]:
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
        sums = intervals.cluster_sums(np.column_stack([*halves, *others]), clusters)
        statistics, head = [], []
        k = min(replug.top_k, max(k for name, k, _ in measured.nats if name == retriever))
        for chosen, tried in CHOSEN.items():
            places = np.array([i for i, setting in enumerate(grid) if tried(*setting, replug.temperature)])
            best = places[sums.sum(0)[: 2 * n].reshape(2, n)[:, places].argmin(1)]
            used = {f"{name}_{half}": grid[best[2 - half]][i] for half in (1, 2) for i, name in enumerate(SETTING)}
            head.append({"retriever": retriever, "k": k, "chosen": chosen} | used)
            statistics += _of_chosen(places, n)
        generator = draws.generator(params.seed, "language modelling")
        found = iter(intervals.bootstraps(sums, statistics, generator, params.report.bootstrap))
        rows += [row | {name: next(found).as_json() for name in SAVED} for row in head]
    return rows


def controls(measured: bits.Bits, source_documents: np.ndarray, params: SimpleNamespace) -> list[dict]:
    """Bits per byte of each control, and the % saved against no documents, the same documents and the whole ensemble.

    The same documents are, for `concatenated`, an ensemble of as many as each prompt has room for; for
    `longer_context`, which has none, the retriever's best one. `documents` is the mean over the queries that have any,
    `added_bytes` the mean over all.
    """
    clusters, rows = source_documents.astype(str), []
    retrievers = [control.retriever for control in measured.controls if control.control == CONCATENATED]
    for control in measured.controls:
        for retriever in [control.retriever] if control.control == CONCATENATED else retrievers:
            k, *ensembles = _ensembles(measured, control, retriever, params.replug)
            sums = intervals.cluster_sums(np.column_stack([control.nats, measured.bytes, *ensembles]), clusters)
            statistics = [lambda sums: ensemble.bits_per_byte(sums[:, 0], sums[:, 1])]
            statistics += [lambda sums, place=place: 100 * (1 - sums[:, 0] / sums[:, place]) for place in (2, 3, 4)]
            generator = draws.generator(params.seed, "language modelling")
            found = intervals.bootstraps(sums, statistics, generator, params.report.bootstrap)
            has = control.documents[control.documents > 0]
            row = {"control": control.control, "retriever": retriever, "k": k}
            row |= {
                "documents": float(has.mean()) if len(has) else 0.0,
                "added_bytes": float(control.added_bytes.mean()),
            }
            rows.append(row | {name: figure.as_json() for name, figure in zip(AGAINST, found, strict=True)})
    return rows


def _ensembles(
    measured: bits.Bits, control: bits.Control, retriever: str, replug: SimpleNamespace
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The whole ensemble's number of documents; nats (queries,) with no document, the control's, and all of them."""
    nats = {k: values for (name, k, t), values in measured.nats.items() if (name, t) == (retriever, replug.temperature)}
    k, none = min(replug.top_k, max(nats)), measured.nats["none", 0, replug.temperature]
    counts = control.documents if control.control == CONCATENATED else np.ones(len(none), np.int64)
    of_counts = np.stack([none, *(nats[size] for size in range(1, k + 1))])
    return k, none, of_counts[counts, np.arange(len(counts))], nats[k]


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
