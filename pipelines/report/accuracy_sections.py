"""What the report's sections on questions say and show: popularity, accuracy, retrieving, costs (PopQA, 3 to 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipelines.evaluation import popularity_bins
from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.popularity_bins import FEWEST
from pipelines.report.entries import RULED, Row
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Explorable, Link, Percent, label, percent, points, show

WILSON = "Bands are Wilson's 95 % intervals."
COMMON = "on the questions of a set that all language models answered"
LATENCY = "Seconds of a question by method, with the machine that they were measured on (data/latency/index.html)"
ENOUGH = 3 * FEWEST  # questions with a known popularity; with fewer, nothing is shown by popularity
EFFECT = {1: "helps", -1: "hurts", 0: "makes no clear difference"}


def views(row: Row) -> float:
    """Where a bin is drawn: at its median page views, none below 1 on their log scale."""
    return max(row["popularity"], 1)


def middle_of_bin(row: Row) -> float:
    """Where a bin of the histogram of popularity is drawn."""
    return math.sqrt(row["least"] * row["below"])


def one_passage(row: Row) -> bool:
    """Whether a method reads one passage at most: those are in figures by popularity, and all are in tables."""
    return not row["method"].startswith("replug")


def enough_known(inputs: Inputs, row: Row) -> bool:
    """Whether a question set has enough questions of known popularity."""
    return inputs.rows("accuracy", dataset=row["dataset"])[0]["popularity_known"] >= ENOUGH


def popularity_histogram(inputs: Inputs) -> list[Row]:
    """Popularity by question set, in quarters of a power of ten (Figure 3)."""
    rows = [row for row in inputs.tables["popularity"] if row["dataset"] in inputs.popularity]
    return [row | {"share": row["questions"] / inputs.popularity[row["dataset"]]["known"]} for row in rows]


def popularity_quantiles(inputs: Inputs) -> list[Row]:
    return [*inputs.popularity.values()]


def popularity_claim(inputs: Inputs, rule: str) -> str:
    quantiles = {
        row["dataset"]: [show(float(f"{row[end]:.2g}")) for end in ("median", "90 %")]
        for row in inputs.popularity.values()
        if row["dataset"] in inputs.parts.answered
    }
    return " ".join(
        f"Half of the subjects of {label(name)} have fewer than {median} page views a month, and a tenth have more "
        f"than {most}."
        for name, (median, most) in quantiles.items()
    )


def merged_bins(inputs: Inputs, rows: Sequence[Row]) -> str:
    """What the bins of a figure by popularity are, and which methods it leaves out, for its caption."""
    least = popularity_bins.least_of(sum(row["questions"] for row in rows if row["series"] == rows[0]["series"]))
    methods = inputs.methods(rows[0]["dataset"], rows[0]["lm"])
    names = [label(method) for method in methods if method.startswith("replug")]
    others = f" Not drawn, as they read several documents: {', '.join(names)}; the table has them." if names else ""
    return f"Deciles with fewer than {least} questions are merged with their neighbours.{others}"


def first_methods(inputs: Inputs) -> list[Row]:
    """The row of accuracy of each question set's first method."""
    return [inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked]


def accuracy_claim(inputs: Inputs, rule: str) -> str:
    """How often the main language model is right on its first question set, and how that goes with popularity."""
    memory, *others = inputs.rows("accuracy", dataset=inputs.asked[0])
    sentence = (
        f"On {label(inputs.asked[0])}, {inputs.main} is right on {show(Percent(memory[rule]))} % of the questions "
        f"({label(memory['method'])})"
    )
    if others:
        best = max(others, key=lambda row: row[rule].value)
        sentence += f", and at best on {show(Percent(best[rule]))} % ({label(best['method'])})"
    if not memory["correlation"].sign:
        return f"{sentence}."
    way = "better" if memory["correlation"].sign > 0 else "less"
    of = f"(correlation {show(memory['correlation'])}, by substring)"
    return f"{sentence}; more popular subjects are known {way} {of}."


def lead_method(inputs: Inputs) -> str:
    """The method of the claim on retrieving: the dense retriever, or else the first method."""
    methods = [row["method"] for row in inputs.rows("retrieval_effect", dataset=inputs.asked[0])]
    return "dense" if "dense" in methods else next(iter(methods), "")


def effect_claim(inputs: Inputs, rule: str) -> str:
    """What a passage changes in the tail and at the head."""
    dataset, method, gain = inputs.asked[0], lead_method(inputs), RULED["gain"][[*RULES].index(rule)]
    gains = {row["group"]: row[gain] for row in inputs.rows("retrieval_effect", dataset=dataset, method=method)}
    start = f"On {label(dataset)}, what {label(method)} finds"
    if not gains or not math.isfinite(gains["tail"].value):
        return f"{start} {EFFECT[gains['all'].sign]} ({points(gains['all'])})." if gains else ""
    return (
        f"{start} {EFFECT[gains['tail'].sign]} on the least popular {percent(TAIL)} of the questions "
        f"({points(gains['tail'])}) and {EFFECT[gains['head'].sign]} on the most popular {percent(HEAD)} "
        f"({points(gains['head'])})."
    )


def examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right, with links to the explorer."""
    rows = []
    for row in (row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)):
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        shown = {f"example_{name}": value for name, value in row.items()}
        rows.append(row | shown | {"linked": Explorable(row["question"], "/question", **of)})
    return rows


def cost_claim(inputs: Inputs, rule: str) -> str:
    """The least and the most that a question makes the main language model read."""
    rows = [row for row in inputs.rows("costs", dataset=inputs.asked[0]) if row["prompt_tokens"] is not None]
    tokens = {row["prompt_tokens"]: f"{row['prompt_tokens']:,.0f} tokens ({label(row['method'])})" for row in rows}
    if len(rows) < 2:
        return ""
    of = f"A question of {label(inputs.asked[0])} takes {inputs.main}"
    return f"{of} from {tokens[min(tokens)]} to {tokens[max(tokens)]} to read."


def link_to_seconds(inputs: Inputs) -> list[Link]:
    return [Link(LATENCY, "../latency/index.html")] if inputs.models and inputs.asked else []


def models_by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, order = {row["lm"]: row["judged"] for row in inputs.tables["models"]}, list(inputs.sizes)
    rows = [
        row | {"parameters": inputs.sizes[row["lm"]], "judged": judged[row["lm"]]} for row in inputs.tables["accuracy"]
    ]
    several = {of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1}
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def model_claim(inputs: Inputs, rule: str) -> str:
    """How often each model is right closed-book on the questions that all of them answered."""
    rows = [row for row in inputs.tables["common_accuracy"] if row["method"] == "closed_book"]
    rows = [row for row in rows if row["dataset"] == rows[0]["dataset"] and math.isfinite(row[rule].value)]
    if len(rows) < 2:
        return f"No two language models have closed-book answers to the same questions that are judged by {rule}."
    rows.sort(key=lambda row: -row[rule].value)
    shares = [f"{row['lm']} is right on {show(Percent(row[rule]))} %" for row in (rows[0], rows[-1])]
    between = f" Between them are {', '.join(row['lm'] for row in rows[1:-1])}." if rows[2:] else ""
    n, name = rows[0]["questions"], label(rows[0]["dataset"])
    return f"Closed-book, on the {n:,} questions of {name} that all answered, {' and '.join(shares)}.{between}"
