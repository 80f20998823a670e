"""The report's sections on REPLUG: bits per byte, LSR's training, and the tasks (REPLUG, section 6)."""

from __future__ import annotations

import math
import re

from pipelines.evaluation.intervals import NOTHING, Interval
from pipelines.release import figures
from pipelines.release.inputs import Inputs, interval
from pipelines.release.page import Percent, Section, Table, label

ORDER = ("none", "random", "bm25", "dense", "lsr")
METHODS = ("closed_book", "replug", "replug_lsr")


def language_modelling(inputs: Inputs, top_k: int) -> Section:
    """REPLUG's table 1, bits per byte by the number of documents, and by lambda's temperature."""
    metrics, title = inputs.metrics.get("language_modelling", {}), "Language modelling with REPLUG"
    bits = _by_setting(metrics)
    if not bits:
        return Section("replug", title, missing="No query was scored.")
    rows = [
        [", ".join(inputs.models), label(name), k, bits[name, k], *_gains(metrics, name, k)]
        for name in ORDER
        for k in (0 if name == "none" else top_k,)
        if (name, k) in bits
    ]
    by_k = {
        name: (ks, [bits[name, k] for k in ks])
        for name in ORDER[1:]
        for ks in [sorted(k for found, k in bits if found == name)]
        if ks
    }
    top = max(k for _, k in bits)
    none = bits.get(("none", 0), NOTHING)
    drawn = {"none": ([1, top], [none, none])} | by_k
    said = "; ".join(f"{label(name)} {own[-1].value:.3f}" for name, (_, own) in drawn.items())
    blocks = [
        "Bits per byte of the held-out continuations: fewer are better. Documents are put in front of the context "
        "one by one and the model's predictions are averaged, weighted by similarity. Intervals are bootstraps over "
        "source documents.",
        Table(
            "bits-per-byte",
            f"Bits per byte without documents and with {top_k}, and the bits saved in per cent.",
            ["language model", "documents", "k", "bits per byte", "saved against none, %", "saved against dense, %"],
            rows,
        ),
        figures.lines(
            "bits-per-byte-by-k",
            drawn,
            x="documents in the ensemble, k",
            y="bits per byte",
            caption="Bits per byte by the number of documents. Random documents are the control for the ensemble "
            "itself.",
            alt=f"Line chart of bits per byte by number of documents. With the most documents: {said}.",
        ),
    ]
    return Section("replug", title, blocks + _sharpened(metrics))


def _gains(metrics: dict, name: str, k: int) -> list[Interval]:
    none = interval(metrics.get(f"gain_{name}_k{k}"))
    return [none, interval(metrics.get(f"lsr_gain_k{k}")) if name == "lsr" else NOTHING]


def _by_setting(metrics: dict) -> dict[tuple[str, int], Interval]:
    found = {("none", 0): interval(metrics["bpb_none"])} if "bpb_none" in metrics else {}
    for key, figure in metrics.items():
        if match := re.fullmatch(r"bpb_(\w+?)_k(\d+)", key):
            found[match[1], int(match[2])] = interval(figure)
    return found


def _sharpened(metrics: dict) -> list:
    """The sweep of lambda's temperature, where the metrics have it."""
    matches = {key: re.fullmatch(r"bpb_(\w+?)_k(\d+)_t([\d.]+)", key) for key in metrics}
    cells = {(m[1], float(m[3])): interval(metrics[key]) for key, m in matches.items() if m}
    temperatures = sorted({temperature for _, temperature in cells}, reverse=True)
    if not cells:
        return []
    return [
        Table(
            "bits-per-byte-by-temperature",
            "Bits per byte by the temperature of lambda: the paper's 1 weighs documents almost alike, a lower one "
            "favours the most similar.",
            ["documents", *(f"temperature {temperature:g}" for temperature in temperatures)],
            [
                [label(name), *(cells.get((name, temperature), NOTHING) for temperature in temperatures)]
                for name in ORDER
                if any(found == name for found, _ in cells)
            ],
        )
    ]


def tasks(inputs: Inputs) -> Section:
    """MMLU, Natural Questions and TriviaQA, and MMLU by category."""
    found = {
        name: own
        for name, own in inputs.metrics.get("tasks", {}).items()
        if isinstance(own, dict) and "closed_book" in own
    }
    lacking = [label(name) for name in ("mmlu", "nq", "triviaqa") if name not in found]
    missing = f"This profile has no questions of {' or '.join(lacking)}." if lacking else ""
    if not found:
        return Section("tasks", "Tasks", missing=missing)
    rows = [
        [
            label(task),
            label(method),
            own[method]["questions"],
            Percent(interval(own[method]["accuracy"])),
            Percent(interval(own[method].get("gain")), signed=True),
        ]
        for task, own in found.items()
        for method in METHODS
    ]
    blocks = [
        "MMLU is answered by the likeliest of four letters (chance: 25 %), the others by generation and a vote over "
        "documents, counted right on an exact match after normalisation.",
        Table(
            "tasks",
            "Accuracy in per cent (Wilson's intervals) and the change against closed-book in points (bootstrap over "
            "questions).",
            ["task", "method", "questions", "accuracy", "change"],
            rows,
        ),
    ]
    if "mmlu" in found:
        categories = list(found["mmlu"]["closed_book"]["categories"])
        blocks.append(
            Table(
                "mmlu",
                "MMLU by category, in per cent; the last column is the mean over the categories, as in the paper.",
                ["method", *categories, "mean"],
                [
                    [
                        label(method),
                        *(Percent(interval(own["categories"][category])) for category in categories),
                        100 * own["mean_of_categories"],
                    ]
                    for method in METHODS
                    for own in [found["mmlu"][method]]
                ],
            )
        )
    return Section("tasks", "Tasks", blocks, missing)


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
