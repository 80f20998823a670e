"""What the report's sections on questions say and show: popularity, accuracy, retrieving, costs (PopQA, 3 to 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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


def popularity_notes(inputs: Inputs) -> Iterator[str]:
    """What is known of popularity."""
    if inputs.popularity:
        yield (
            "A popularity is not known if the month's data have no view of the article, or if the question's subject "
            "has no article or could not be linked to one. Unknown is not low: all figures by popularity leave these "
            "questions out."
        )
    counts = inputs.metrics.get("popularity", {}) if inputs.parts.knowledge else {}
    if inputs.popularity and counts.get("files.pageviews") and not counts["files.redirects"]:
        yield (
            "Views of redirects are not counted for the articles that they lead to, and an article that was moved "
            "after the month may be unknown: this run has no tables of redirects and pages (fetch.files.redirects)."
        )
    for dataset, links in inputs.links.items():
        total = sum(links.values())
        linked = (links.get("label", 0) + links.get("alias", 0)) / total
        yield (
            f"{label(dataset)} names its subjects in words only. A candidate is an entity that has the subject's name "
            f"and a statement of the question's relation. {percent(linked, 1)} of {total:,} questions have exactly one "
            f"candidate (the PopQA paper: 82 %); {percent(links.get('not_found', 0) / total, 1)} name nothing that was "
            "read."
        )


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


def whose_answers(inputs: Inputs) -> Iterator[str]:
    """Whose answers these are, when they are right, and what is left out."""
    yield (
        f"These are the answers of {inputs.main}, the main language model"
        f"{', and those that were imported' * bool(inputs.imported)}. data/analyses/*.parquet has those of all "
        "language models, and everything that is left out here. Substring is the published rule: an answer is right if "
        "it contains a gold answer, so that short aliases are right by chance (“W” is in “New York”). Word is "
        "stricter: the gold answer must appear as whole words."
    )
    yield from (row["why"] for row in inputs.tables["left_out"])
    for row in (inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked):
        lacking = row["questions"] - row["popularity_known"]
        if lacking and row["popularity_known"] >= ENOUGH:
            yield (
                f"The popularity of {lacking:,} of {row['questions']:,} answered questions of {label(row['dataset'])} "
                "is unknown. The figures by popularity leave them out."
            )


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


def too_few_known(inputs: Inputs) -> str:
    rows = [inputs.rows("accuracy", dataset=dataset)[0] for dataset in inputs.asked]
    return " ".join(
        f"The subject's popularity is known for {row['popularity_known']:,} of {row['questions']:,} questions of "
        f"{label(row['dataset'])}. To show accuracy by popularity, {ENOUGH} are needed (answer.max_questions)."
        for row in rows
        if row["popularity_known"] < ENOUGH
    )


def _lead(inputs: Inputs) -> str:
    """The method of the claim on retrieving: the dense retriever, or else the first method."""
    methods = [row["method"] for row in inputs.rows("retrieval_effect", dataset=inputs.asked[0])]
    return "dense" if "dense" in methods else next(iter(methods), "")


def effect_claim(inputs: Inputs, rule: str) -> str:
    """What a passage changes in the tail and at the head."""
    dataset, method, gain = inputs.asked[0], _lead(inputs), RULED["gain"][[*RULES].index(rule)]
    gains = {row["group"]: row[gain] for row in inputs.rows("retrieval_effect", dataset=dataset, method=method)}
    start = f"On {label(dataset)}, what {label(method)} finds"
    if not gains or not math.isfinite(gains["tail"].value):
        return f"{start} {EFFECT[gains['all'].sign]} ({points(gains['all'])})." if gains else ""
    return (
        f"{start} {EFFECT[gains['tail'].sign]} on the least popular {percent(TAIL)} of the questions "
        f"({points(gains['tail'])}) and {EFFECT[gains['head'].sign]} on the most popular {percent(HEAD)} "
        f"({points(gains['head'])})."
    )


def how_to_explore(inputs: Inputs) -> list[str]:
    """How to look at the questions of the claim on which only one of both answers is right."""
    command = f"longtail explore --method {_lead(inputs) if inputs.asked else ''} --cell base"
    return [
        f"To look at the questions where it hurts, with their passages, run `{command}`; with `--cell method`, they "
        "are those where it helps. `longtail explore` shows this page with a link to each example below."
    ]


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
