"""The report's section on LSR's training (REPLUG, section 4)."""

from __future__ import annotations

import math

from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, Table


def training(inputs: Inputs) -> Section:
    """LSR's training curves: divergence, entropies of both distributions, validation."""
    metrics, title = inputs.metrics.get("lsr", {}), "How LSR learned"
    curve, validation = metrics.get("curve", []), metrics.get("validation", [])
    if not curve:
        return Section("training", title, missing="The metrics of LSR hold no training curve.")
    judged = sorted({key for row in validation for key in row} - {"step"})
    recalls, bits = ([key for key in judged if key.startswith(start)] for start in ("recall", "bpb"))
    panels = [
        _panel("divergence", curve, {"kl": "KL"}),
        _panel("entropy, 1 = uniform", curve, {"entropy_lm": "Q, language model", "entropy_retriever": "P, retriever"}),
        *([_panel("validation: recall", validation, {key: _words(key) for key in recalls})] if recalls else []),
        *([_panel("validation: bits per byte", validation, {key: _words(key) for key in bits})] if bits else []),
    ]
    first, last = curve[0], curve[-1]
    return Section(
        "training",
        title,
        [
            "The retriever learns to give each document the probability (P) that the frozen language model's "
            "likelihood gives it (Q). Where Q is uniform there is nothing to learn; validation is on queries that "
            "training never sees.",
            figures.curves(
                "lsr-training",
                panels,
                x="step",
                caption="LSR's training, step by step, and its validation whenever the corpora were embedded anew.",
                alt=f"Line charts of LSR's training: the divergence goes from {first['kl']:.3f} to {last['kl']:.3f}, "
                f"the entropy of Q from {first['entropy_lm']:.3f} to {last['entropy_lm']:.3f}; validation is in the "
                "table below.",
            ),
            Table(
                "lsr-validation",
                "LSR's validation.",
                ["step", *map(_words, judged)],
                [[row["step"], *(row.get(key) for key in judged)] for row in validation],
            ),
        ],
    )


def _panel(title: str, rows: list[dict], names: dict[str, str]) -> tuple:
    series = {words: [math.nan if row.get(key) is None else row[key] for row in rows] for key, words in names.items()}
    return title, [row["step"] for row in rows], series


def _words(key: str) -> str:
    return key.replace("recall_at_", "recall@").replace("bpb_k", "bits per byte, k = ").replace("_", " ")
