"""The section on how LSR learned: divergence, entropy, and what the language model could teach
(REPLUG, section 4).
"""

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from pipelines.intervals import interval
from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import figures_by, grouped, one_of, table_of
from pipelines.pages.values import Percent, show
from pipelines.report.run_tables import Tables

MARKS_DRAWN = 60  # of a curve at most
LOOK_HEADS = {  # columns of data/metrics/lsr_<name>.json's `look` -> heads
    "retriever": "retriever",
    "corpus": "queries of",
    "queries": "queries",
    "auc_lm": "AUC, language model",
    "auc_retriever": "AUC, retriever",
    "auc_gain": "difference",
    "best_lm": "first holds an answer, language model",
    "best_retriever": "first holds an answer, retriever",
    "gain_first": "nats saved by the retriever's first",
    "gain_mean": "by the mean",
    "gain_best": "by the best",
    "documents": "documents of each",
    "uniform": "share with all equal",
    "entropy": "entropy of Q",
    "beta": "beta",
}


def section(tables: Tables) -> Section:
    figures = _trained(tables)
    entropies = [
        *_curves(figures, "entropy_lm", "Q, language model"),
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
    )

    look = table_of(
        "lsr-look",
        "What the language model could teach, seen on training queries before training. AUC is how "
        "often a document with an answer is ranked above one without: 0.5 by chance, 1 always. "
        "First holds an answer: on how many questions, in per cent. On text: the nats a token that "
        "documents save.",
        list(_look(figures)),
        list(LOOK_HEADS),
        LOOK_HEADS,
    )

    blocks: list[Block] = [
        *_divergences(figures),
        "The retriever learns to give each document the probability (P) that follows from the "
        "frozen language model's likelihood (Q). If Q is uniform, there is nothing to learn. "
        "Validation is on queries that training never sees, each time the corpora were embedded "
        "again.",
        *figures_by(entropy, "retriever"),
        "A language model that judges documents no better than the retriever cannot teach it.",
        look,
    ]

    return Section("training", "How LSR learned", blocks, _leads(figures))


def _trained(tables: Tables) -> dict[str, Mapping[str, Any]]:
    """Retriever -> the figures of its training, of those that have a curve."""
    by_retriever = tables.metrics.get("lsr", {})
    trained = {}
    for name in tables.settings.parts.tuned:
        if by_retriever.get(name, {}).get("curve"):
            trained[name] = by_retriever[name]
    return trained


def _leads(figures: Mapping[str, Mapping[str, Any]]) -> str:
    for retriever, of_retriever in figures.items():
        first, last = _mean_divergences(of_retriever)
        falls = "falls" if last < first else "does not fall:"
        return (
            f"While {retriever} is tuned, its divergence from the language model's preferences "
            f"{falls} from {show(first)} to {show(last)}."
        )
    return ""


def _mean_divergences(figures: Mapping[str, Any]) -> tuple[float, float]:
    """The mean divergence over the first and over the last tenth of the steps."""
    curve = [row["kl"] for row in figures["curve"]]
    tenth = max(1, len(curve) // 10)
    return fmean(curve[:tenth]), fmean(curve[-tenth:])


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


def _divergences(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    rows = list(_curves(figures, "kl", "KL"))
    figure = Figure(
        name="lsr-training",
        kind="lines",
        rows=rows,
        x="step",
        y="value",
        x_axis=Axis("step"),
        y_axis=Axis("divergence"),
        caption="",
    )

    for retriever, of_retriever in grouped(rows, "retriever").items():
        first, last = _mean_divergences(figures[retriever])
        caption = (
            f"the divergence of P and Q by step. Its mean is {show(first)} over the first tenth of "
            f"the steps and {show(last)} over the last."
        )

        yield one_of(figure, retriever, of_retriever, caption)


def _look(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Whether the language model could teach each retriever, as measured before training."""
    for retriever, of_retriever in figures.items():
        for row in of_retriever.get("look", []):
            if row["queries"]:
                values = {key: _as_cell(key, value) for key, value in row.items()}
                yield {"retriever": retriever} | values


def _as_cell(key: str, value: Any) -> Any:
    figure = interval(value) if isinstance(value, dict) else value
    return Percent(figure) if key.startswith("best_") else figure
