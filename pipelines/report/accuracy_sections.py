"""What the report's sections on questions say and show: popularity, accuracy, retrieving, costs (PopQA, 3 to 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from pipelines.evaluation import popularity_bins
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.intervals import Interval
from pipelines.report import adaptive_section
from pipelines.report.entries import RULED, Row
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Explorable, label, named

WILSON = "Bands are 95 % intervals (Wilson's, clustered by subject)."
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity


def enough_known(inputs: Inputs, row: Row) -> bool:
    """Whether a question set has enough questions of known popularity."""
    return inputs.rows("accuracy", dataset=row["dataset"])[0]["popularity_known"] >= ENOUGH


def popularity_curves(inputs: Inputs) -> list[Row]:
    """By question set, the share of questions with fewer views than the bounds of the bins (Figure 3, added up).

    All curves go on to the last bound of all question sets.
    """
    bins, curves = inputs.tables["popularity"], []
    for dataset, known in inputs.popularity.items():
        counts: dict[float, int] = {}  # bound -> questions of the bin below it
        for row in (row for row in bins if row["dataset"] == dataset):
            counts.setdefault(round(row["least"], 3), 0)
            counts[round(row["below"], 3)] = row["questions"]
        counts.setdefault(round(max(row["below"] for row in bins), 3), 0)
        for bound, fewer in zip(counts, accumulate(counts.values()), strict=True):
            curves.append({"dataset": dataset, "below": bound, "share": fewer / known["known"]})
    return curves


def merged_bins(inputs: Inputs, rows: Sequence[Row]) -> str:
    """What the bins of a figure by popularity are, and which methods it leaves out, for its caption."""
    least = popularity_bins.least_of(sum(row["questions"] for row in rows if row["series"] == rows[0]["series"]))
    names = [label(of) for of in inputs.methods(rows[0]["dataset"], rows[0]["lm"]) if of.startswith("replug")]
    others = f" Not drawn, as they read several documents: {', '.join(names)}; the table has them." if names else ""
    return f"Deciles with fewer than {least} questions are merged with their neighbours.{others}"


def first_methods(inputs: Inputs) -> list[Row]:
    """The row of accuracy of each question set's first method."""
    return [inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked]


def beside_guesses(inputs: Inputs) -> list[Row]:
    """The main language model's accuracy by relation from memory, and that of the relation's usual answer."""
    rows = [row for row in inputs.tables["guessable"] if row["lm"] == inputs.main and row["relation"]]
    return [
        row | {"of": named(row["relation"]), "series": series, "substring": row[one], "word": row[f"{one}_word"]}
        for row in rows
        for one, series in (("closed_book", "closed_book"), ("majority", "usual answer"))
    ]


def how(method: str) -> str:
    """How a method answers, as a sentence begins with it."""
    return "From memory" if method == "closed_book" else f"With text from {label(method)}"


def lead_method(inputs: Inputs) -> str:
    """The method of the claim on retrieving: that with the highest adaptive accuracy, or else the first method."""
    methods = [row["method"] for row in inputs.rows("retrieval_effect", dataset=inputs.asked[0])]
    best = adaptive_section.best_policy(inputs)
    return best["method"] if best and best["method"] in methods else next(iter(methods), "")


def effect_gains(inputs: Inputs, rule: str) -> dict[str, Interval]:
    """What a passage of this method changes on each group of the first question set."""
    rows = inputs.rows("retrieval_effect", dataset=inputs.asked[0], method=lead_method(inputs))
    return {row["group"]: row[RULED["gain"][[*RULES].index(rule)]] for row in rows}


def examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right, with links to the explorer."""
    rows = []
    for row in (row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)):
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        shown = {f"example_{name}": value for name, value in row.items()}
        rows.append(row | shown | {"linked": Explorable(row["question"], "/question", **of)})
    return rows


def models_by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, order = {row["lm"]: row["judged"] for row in inputs.tables["models"]}, list(inputs.sizes)
    rows = [
        row | {"parameters": inputs.sizes[row["lm"]], "judged": judged[row["lm"]]} for row in inputs.tables["accuracy"]
    ]
    several = {of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1}
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def common_closed_book(inputs: Inputs, rule: str) -> list[Row]:
    """Closed-book accuracy of each model on the questions that all of them answered, the best one first."""
    rows = [row for row in inputs.tables["common_accuracy"] if row["method"] == "closed_book"]
    rows = [row for row in rows if row["dataset"] == rows[0]["dataset"] and math.isfinite(row[rule].value)]
    return sorted(rows, key=lambda row: -row[rule].value)
