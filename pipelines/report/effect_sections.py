"""The report's sections on what retrieving changes, what answers cost, and on language models (PopQA, 5 and 6)."""

from __future__ import annotations

import math

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report.accuracy_sections import BINS, BOTH, KEY, LOG_VIEWS, WILSON, captioned, views
from pipelines.report.entries import RULED, Drawn, Entry, Row, Shown, answered, every, of_one_passage, where
from pipelines.report.figures import bars, lines
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Explorable, Link, Percent, label, percent, points, show

BOOTSTRAP = "Bands are 95 % bootstrap intervals over subjects."

# where retrieval helps, and where it hurts

EFFECT = {1: "helps", -1: "hurts", 0: "makes no clear difference"}
COMPARED = ("questions", "gain", "gain_word", "recall_gain", "only_this", "only_that", "p")
COMPARED_HEADS = {
    "gain": "accuracy, substring", "gain_word": "accuracy, word", "recall_gain": "recall",
    "only_this": "only this right", "only_that": "only that right", "p": "McNemar's p",
}  # fmt: skip
EXAMPLE_HEADS = {
    "answer": "a gold answer", "closed_book": "closed-book answer", "augmented": "answer with the passage",
    "passage": "passage", "doc_title": "passage from", "doc_has_answer": "passage has the answer",
    "popularity": "page views",
}  # fmt: skip


def _lead(inputs: Inputs) -> str:
    """The method of the section's claim: the dense retriever, or else the first method."""
    methods = [row["method"] for row in inputs.rows("retrieval_effect", dataset=inputs.asked[0])]
    return "dense" if "dense" in methods else next(iter(methods), "")


def _helps(inputs: Inputs, rule: str) -> str:
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


def _examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right, with links to the explorer."""
    rows = []
    for row in (row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)):
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        shown = {f"example_{name}": row[name] for name in EXAMPLE_HEADS}
        rows.append(row | shown | {"linked": Explorable(row["question"], "/question", **of)})
    return rows


def _explored(inputs: Inputs) -> list[str]:
    """How to look at the questions of the section's claim on which only one of both answers is right."""
    command = f"longtail explore --method {_lead(inputs) if inputs.asked else ''} --cell base"
    return [
        f"To look at the questions where it hurts, with their passages, run `{command}`; with `--cell method`, they "
        "are those where it helps. `longtail explore` shows this page with a link to each example below."
    ]


GROUPS = of_one_passage(answered("retrieval_effect"))
RETRIEVAL_EFFECT = Entry(
    "effect",
    "Where retrieval helps, and where it hurts",
    [
        Drawn(
            lines, "gain-by-popularity", of_one_passage(BINS), views, "gain",
            captioned(f"what reading a passage changes, by decile of popularity. Above zero it helps. {BOOTSTRAP}"),
            LOG_VIEWS | {"y": "augmented minus closed-book, points", "zero": True}, each="dataset",
        ),
        _explored,
        Shown(
            "retrieval-effect", where(GROUPS, lambda row: row["questions"] and row["group"] != TAIL_LESS_HEAD),
            [*KEY, "group", "questions", "closed_book", "augmented", "gain", "closed_book_word", "augmented_word",
             "gain_word"],
            "Accuracy in per cent, closed-book and with what the method reads, and the change in points. The tail is "
            f"the least popular {percent(TAIL)} of the questions of known popularity, the head the most popular "
            f"{percent(HEAD)}. A namesake's page is another page by the subject's name.",
            {"group": "questions where"},
        ),
        Shown(
            "comparisons", where(answered("comparisons"), lambda row: row["against_lm"] == row["lm"]),
            [*KEY, "against", *COMPARED],
            "One method less another, question by question, in points: accuracy, and recall (how often what was read "
            "holds an answer). Intervals are bootstraps over subjects. Only this and only that: questions on which "
            "only the first or only the second is right (substring), with McNemar's exact test, which takes questions "
            "as independent.",
            COMPARED_HEADS,
        ),
        Shown(
            "recall", answered("recall"), [*KEY, "answers", "share", "recall"],
            "Recall in per cent, over all questions and by which of the two answers is right. Recall is the share of "
            "questions for which what the method read holds an answer as whole words: the top passage, any of REPLUG's "
            "documents, or the passage that GenRead wrote.",
            {"answers": "questions"},
        ),
        Shown(
            "examples", _examples,
            ["effect", "dataset", "linked", *(f"example_{name}" for name in EXAMPLE_HEADS), "relation"],
            "Questions on which only one of two answers, closed-book and with a passage, is right by both rules. They "
            f"were drawn by hash, {EXAMPLES} at most of each kind and at most one of each relation, not chosen by "
            "hand. The passage is the beginning of the best document, which the explorer shows whole.",
            {f"example_{name}": head for name, head in EXAMPLE_HEADS.items()} | {"linked": "question"},
        ),
    ],
    _helps,
)  # fmt: skip

# what answers cost

LATENCY = "Seconds of a question by method, with the machine that they were measured on (data/latency/index.html)"
SPENT = ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")
SAVED = ("calls_saved", "tokens_saved", "cost_saved")


def _cost(inputs: Inputs, rule: str) -> str:
    """The least and the most that a question makes the main language model read."""
    rows = [row for row in inputs.rows("costs", dataset=inputs.asked[0]) if row["prompt_tokens"] is not None]
    tokens = {row["prompt_tokens"]: f"{row['prompt_tokens']:,.0f} tokens ({label(row['method'])})" for row in rows}
    if len(rows) < 2:
        return ""
    of = f"A question of {label(inputs.asked[0])} takes {inputs.main}"
    return f"{of} from {tokens[min(tokens)]} to {tokens[max(tokens)]} to read."


COSTS = Entry(
    "costs",
    "What answers cost",
    [
        Drawn(
            bars, "tokens",
            where(answered("costs"), lambda row: row["prompt_tokens"] is not None),
            "method", "prompt_tokens", "tokens that a question's prompts have.", {"y": "tokens read for a question"},
            series="lm", each="dataset",
        ),
        "How much a language model must read decides how long an answer takes and what it costs. Seconds are not on "
        "this page, because the same inputs must give the same page.",
        lambda inputs: [Link(LATENCY, "../latency/index.html")] if inputs.models and inputs.asked else [],
        Shown(
            "cost-of-answers", where(answered("costs"), lambda row: any(row[name] is not None for name in SPENT)),
            [*KEY, "questions", *SPENT],
            "Prompts of a question, tokens read and written in all of them, and the price of 1,000 questions (0 if the "
            "model runs here).",
            {"calls": "prompts", "prompt_tokens": "tokens read", "new_tokens": "tokens written",
             "cost_per_1000": "cost of 1,000 questions"},
        ),
        Shown(
            "savings", where(answered("savings"), lambda row: any(math.isfinite(row[name].value) for name in SAVED)),
            [*KEY, "questions", "retrieved", *SAVED],
            "What retrieving only below the thresholds saves against always retrieving, in per cent, on questions that "
            "they were not fitted to, with intervals over subjects.",
            {"calls_saved": "prompts saved, %", "tokens_saved": "tokens saved, %", "cost_saved": "cost saved, %"},
        ),
    ],
    _cost,
)  # fmt: skip

# language models compared

COMMON = "on the questions of a set that all language models answered"


def _by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, order = {row["lm"]: row["judged"] for row in inputs.tables["models"]}, list(inputs.sizes)
    rows = [
        row | {"parameters": inputs.sizes[row["lm"]], "judged": judged[row["lm"]]} for row in inputs.tables["accuracy"]
    ]
    several = {of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1}
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def _known_best(inputs: Inputs, rule: str) -> str:
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


MODELS = Entry(
    "models",
    "Language models compared",
    [
        Drawn(
            bars, "models", every("common_accuracy"), "lm", "substring",
            f"accuracy by language model and method, {COMMON}.", {"y": "accuracy, %"}, series="method", each="dataset",
        ),
        Shown(
            "models", _by_size, ["lm", "parameters", "dataset", "method", "judged", *BOTH, "correlation"],
            "Accuracy in per cent by language model, and its correlation (substring) with log popularity. Smaller "
            "models come first; those of unknown size come last. Each was asked its own number of questions, of the "
            "test split or of all splits (thresholds.imported).",
            {"judged": "judged on"},
        ),
        Shown(
            "models-compared", where(every("comparisons"), lambda r: r["against_lm"] != r["lm"] and r["questions"]),
            ["lm", "against_lm", "dataset", "method", *COMPARED],
            "One language model less another by the same method, in points, on the questions that both answered. "
            "Columns are those of the methods' comparisons above.",
            COMPARED_HEADS | {"against_lm": "less"},
        ),
        Drawn(
            lines, "models-by-popularity",
            where(every("common_accuracy_by_log_popularity"), lambda row: row["method"] == "closed_book"), views,
            "substring",
            f"closed-book accuracy by half power of ten of popularity and language model, {COMMON}. {WILSON}",
            LOG_VIEWS | {"y": "closed-book accuracy, %"}, series="lm", each="dataset",
        ),
        Shown(
            "models-by-relation", every("common_accuracy_by_relation"), ["relation", *KEY, *BOTH, "correlation"],
            f"Accuracy in per cent by relation, language model and method, {COMMON}, and its correlation (substring) "
            "with log popularity.",
        ),
    ],
    _known_best,
)  # fmt: skip
