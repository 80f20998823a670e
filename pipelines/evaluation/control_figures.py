"""Bits per byte of the ensemble's controls (scoring/controls.py), and what they save against
ensembles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.scoring.bits_per_byte import bits_per_byte_of_sums, percent_saved
from pipelines.scoring.controls import CONCATENATED
from pipelines.scoring.logprobs import sums
from pipelines.storage import parquet


@dataclass(frozen=True)
class Control:
    """What was scored of a control; arrays (queries,)."""

    control: str
    retriever: str
    nats: np.ndarray
    documents: np.ndarray
    added_bytes: np.ndarray


def read_controls(tables: Path, ids: np.ndarray) -> list[Control]:
    """The controls that were scored of the queries `ids`."""
    scored = parquet.read_parquet(tables / "controls.parquet")
    scored = scored.sort_by([(name, "ascending") for name in ("control", "retriever", "query_id")])
    nats = -sums(scored)[0]
    documents_read = scored["documents"].to_numpy()
    added_bytes = scored["added_bytes"].to_numpy()

    controls = []
    for start in range(0, len(scored), len(ids)):
        rows = slice(start, start + len(ids))
        ids_of_control = scored["query_id"][rows].to_pylist()
        assert ids_of_control == list(ids), "controls.parquet is of other queries"
        control = Control(
            control=scored["control"][start].as_py(),
            retriever=scored["retriever"][start].as_py(),
            nats=nats[rows],
            documents=documents_read[rows],
            added_bytes=added_bytes[rows],
        )
        controls.append(control)

    return controls


def compare_controls(
    controls: Sequence[Control],
    ensembles: Mapping[str, np.ndarray],
    n_bytes: np.ndarray,
    intervals_of: Callable,
) -> list[dict]:
    """Bits per byte of each control, and the % saved against no documents, the same documents and
    the whole ensemble.

    `ensembles` is retriever -> nats of its ensembles of 0, 1 ... k documents, (k + 1, queries). A
    longer context, which has no documents, is compared with each retriever's ensemble. `documents`
    is the mean over the queries that have any, `added_bytes` the mean over all. `n_bytes` are the
    queries' bytes, (queries,). `intervals_of` takes (name, function of sums, columns (queries,) to
    sum).
    """
    retrievers = [control.retriever for control in controls if control.control == CONCATENATED]
    rows = []
    for control in controls:
        is_concatenated = control.control == CONCATENATED
        with_documents = control.documents[control.documents > 0]
        mean_documents = float(with_documents.mean()) if len(with_documents) else 0.0
        compared_with = [control.retriever] if is_concatenated else retrievers
        for retriever in compared_with:
            nats = ensembles[retriever]
            # an ensemble of as many documents as the prompt has room for, or of the best one
            sizes = np.ones(len(n_bytes), np.int64)
            if is_concatenated:
                sizes = control.documents
            same_documents = nats[sizes, np.arange(len(sizes))]
            row = {"control": control.control, "retriever": retriever}
            row["k"] = len(nats) - 1
            row["documents"] = mean_documents
            row["added_bytes"] = float(control.added_bytes.mean())
            statistics = [
                ("bits_per_byte", bits_per_byte_of_sums, [control.nats, n_bytes]),
                ("saved", percent_saved, [control.nats, nats[0]]),
                ("saved_over_same", percent_saved, [control.nats, same_documents]),
                ("saved_over_ensemble", percent_saved, [control.nats, nats[-1]]),
            ]
            rows.append(row | intervals_of(statistics))

    return rows
