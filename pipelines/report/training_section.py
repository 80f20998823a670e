"""The section on how LSR learned: divergence, entropy, and what the language model could teach
(REPLUG, section 4).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.values import label, saves, show
from pipelines.report.run_tables import Tables, read_figures

MARKS_DRAWN = 60  # of a curve at most
LOOK_HEADS = {  # columns of data/metrics/lsr_<name>.json's `look` -> heads
    "retriever": "retriever",
    "corpus": "queries of",
    "queries": "queries",
    "auc_lm": "AUC, language model",
    "auc_retriever": "AUC, retriever",
    "auc_gain": "difference",
    "gain_first": "nats saved by the first",
    "gain_mean": "by the mean",
    "gain_best": "by the best",
    "uniform": "share with all equal",
    "entropy": "entropy of Q",
}


def section(tables: Tables) -> Section:
    figures = _trained(tables)
    entropies = [
        *_curves(figures, "entropy_lm", "Q, by rewards"),
        *_curves(figures, "entropy_retriever", "P, retriever"),
    ]

    entropy = Figure(
        name="lsr-entropy",
        kind="lines",
        rows=entropies,
        x="step",
        y="value",
        x_axis=Axis("step"),
        y_axis=Axis("entropy, 1 = uniform"),
        caption="entropy of both distributions by step.",
        by="retriever",
    )

    look = table_of(
        "lsr-look",
        "What the language model could teach, before training. AUC: how often a document with an "
        "answer ranks above one without. Nats: what documents save a token.",
        list(_look(figures)),
        list(LOOK_HEADS),
        LOOK_HEADS,
    )

    divergence = Figure(
        name="lsr-training",
        kind="lines",
        rows=list(_curves(figures, "kl", "KL")),
        x="step",
        y="value",
        x_axis=Axis("step"),
        y_axis=Axis("divergence"),
        caption="the divergence of P and Q by step, each on a batch of its own.",
        by="retriever",
    )

    blocks: list[Block] = [
        divergence,
        "The retriever learns to give each document the probability (P) that follows from its "
        "reward (Q): the frozen language model's likelihood, or what `lsr.likelihood` names. If Q "
        "is uniform, there is nothing to learn.",
        entropy,
        "A language model that judges documents no better than the retriever cannot teach it.",
        look,
    ]

    return Section("training", "How LSR learned", blocks, _leads(tables, figures))


def _trained(tables: Tables) -> dict[str, Mapping[str, Any]]:
    """Retriever -> the figures of its training, of those that have a curve."""
    by_retriever = tables.metrics.get("lsr", {})
    trained = {}
    for name in tables.settings.parts.tuned:
        if by_retriever.get(name, {}).get("curve"):
            trained[name] = by_retriever[name]
    return trained


def _leads(tables: Tables, trained: Mapping[str, Mapping[str, Any]]) -> str:
    """What tuning saves on the texts that the main language model is judged on."""
    where = "corpus = $corpus AND lm = $lm AND k = $top_k AND retriever LIKE 'lsr%'"
    for row in tables.rows("bits_per_byte", where):
        saved = row["saved_over_dense"]
        if is_known(saved):
            documents = f"After tuning, documents from {label(row['retriever'])}"
            needs = f"the bits that {tables.lm} needs with the untuned retriever's"
            return f"{documents} {saves(saved)} of {needs}."
    for retriever, of_retriever in trained.items():
        return f"{retriever} was tuned in {show(len(of_retriever['curve']))} steps."
    return ""


def _curves(figures: Mapping[str, Mapping[str, Any]], key: str, series: str) -> Iterator[Row]:
    """A value by step, at most MARKS_DRAWN of each retriever."""
    for retriever, of_retriever in figures.items():
        curve = of_retriever["curve"]
        for row in curve[:: math.ceil(len(curve) / MARKS_DRAWN)]:
            yield {
                "retriever": retriever,
                "step": row["step"],
                "series": series,
                "value": row[key],
            }


def _look(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Whether the language model could teach each retriever, as measured before training."""
    for retriever, of_retriever in figures.items():
        for row in of_retriever.get("look", []):
            if row["queries"]:
                yield {"retriever": retriever} | read_figures(row)
