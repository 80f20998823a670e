"""The report on deciding otherwise: where retrieving has a price, and by the LM's own doubt (PopQA, section 6)."""

from __future__ import annotations

from pipelines.answering.answer_files import METHODS
from pipelines.intervals import Interval, interval
from pipelines.report import figures
from pipelines.report.page import Figure, Percent, Table, label

SIGNALS = ("popularity", "uncertainty", "both")


def costs(dataset: str, lm: str, curve: list[dict]) -> list[Figure | Table]:
    """Accuracy against the share that retrieves, as retrieving grows dearer; nothing where costs are not known."""
    if not curve:
        return []
    unit = {"retrievals": "retrievals", "tokens": "thousands of tokens", "money": "money"}[curve[0]["unit"]]
    methods = [m for m in METHODS if any(row["lm"] == lm and row["method"] == m for row in curve)]
    own = {m: [row for row in curve if (row["lm"], row["method"]) == (lm, m)] for m in methods}
    series = {
        m: ([100 * row["retrieved"] for row in rows], [bounded(row, "adaptive").times(100) for row in rows])
        for m, rows in own.items()
    }
    ends = "; ".join(
        f"{label(m)}: {y[0].value:.1f} % at {x[0]:.0f} % retrieving, {y[-1].value:.1f} % at {x[-1]:.0f} %"
        for m, (x, y) in series.items()
    )
    drawn = [
        figures.lines(
            f"prices-{dataset}",
            series,
            x="share of the questions that retrieve, %",
            y="held-out accuracy, %",
            caption=f"{label(dataset)}, {lm}: thresholds fitted to accuracy less what retrieving costs. On the right "
            "it costs nothing, on the left doing it once must earn a whole right answer.",
            alt=f"Line chart of accuracy by share retrieving. {ends}.",
        )
    ]
    return (drawn if series else []) + [
        Table(
            f"prices-{dataset}",
            f"{label(dataset)}: held-out accuracy, share retrieving (both in per cent) and cost of a question in "
            f"{unit}, by what retrieving once must earn, in points of accuracy. The weight is that over what "
            "retrieving costs more on average (thresholds.cost_weight).",
            ["language model", "retriever", "must earn", "weight", "accuracy", "retrieves", "cost"],
            [
                [row["lm"], label(row["method"]), 100 * row["price"], row["cost_weight"]]
                + [Percent(bounded(row, name)) for name in ("adaptive", "retrieved")]
                + [bounded(row, "cost")]
                for row in curve
            ],
        )
    ]


def signals(dataset: str, lm: str, models: dict[str, dict]) -> list[str | Figure | Table]:
    """Deciding by popularity, by the model's own uncertainty or by both; nothing where probabilities are not known."""
    compared = {
        (name, method): found["uncertainty"]
        for name, methods in models.items()
        for method, found in methods.items()
        if "uncertainty" in found
    }
    if not compared:
        return []
    own = {method: found for (name, method), found in compared.items() if name == lm}
    order = ("never", "always", *SIGNALS, "oracle")
    shown = {name: [interval(found[name]).times(100) for found in own.values()] for name in order}
    figure = figures.bars(
        f"deciding-{dataset}",
        [label(method) for method in own],
        shown,
        y="held-out accuracy, %",
        caption=f"{label(dataset)}, {lm}: deciding by the subject's popularity, by the mean log-probability of the "
        "closed-book answer's tokens, and by both.",
        alt=f"Bar chart of held-out accuracy by what decides. {said(shown, own)}.",
    )
    costs = all(f"cost_{name}" in found for name in SIGNALS for found in compared.values())
    return [
        "The language model's own doubt can decide as well: retrieve where it gave its closed-book answer a low "
        "probability. Thresholds on it are fitted and judged on the very same splits. Popularity is known before the "
        "model is asked; doubt costs a closed-book answer first.",
        *([figure] if own else []),
        Table(
            f"deciding-{dataset}",
            f"{label(dataset)}: held-out accuracy in per cent by what decides, differences in points, and the share of "
            "the questions that retrieve in per cent"
            + (", and the cost of a question in the unit above." if costs else "."),
            ["language model", "retriever", "questions", *SIGNALS, "uncertainty less popularity"]
            + ["both less the better", *(f"retrieves, {name}" for name in SIGNALS)]
            + [f"cost, {name}" for name in SIGNALS if costs],
            [
                [name, label(method), found["questions"]]
                + [Percent(interval(found[signal])) for signal in SIGNALS]
                + [Percent(interval(found[key]), signed=True) for key in ("difference", "both_difference")]
                + [Percent(interval(found[f"retrieved_{signal}"])) for signal in SIGNALS]
                + [interval(found[f"cost_{signal}"]) for signal in SIGNALS if costs]
                for (name, method), found in compared.items()
            ],
        ),
    ]


def bounded(row: dict, name: str) -> Interval:
    """A column of a table with its _low and _high; NOTHING where it is null."""
    return interval({"value": row[name]} | {end: row[f"{name}_{end}"] for end in ("low", "high")})


def said(shown: dict[str, list[Interval]], methods: dict) -> str:
    """A figure's numbers in words, method by method."""
    return "; ".join(
        f"{label(method)}: " + ", ".join(f"{name} {own[i].value:.1f} %" for name, own in shown.items())
        for i, method in enumerate(methods)
    )
