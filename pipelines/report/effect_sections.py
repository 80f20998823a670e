"""The report's sections on what retrieving changes, what answers cost, and on language models (PopQA, 5 and 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.popularity_bins import LEAST
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import entries
from pipelines.report.accuracy_sections import (
    BINS,
    BOTH,
    KEY,
    LOG_VIEWS,
    RELATIONS,
    WILSON,
    bounded,
    captioned,
    drawn_methods,
    views,
)
from pipelines.report.entries import RULED, Drawn, Entry, Row, Rows, Shown, answered, every, where
from pipelines.report.explored import Explorable, Explored
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Link, Percent, label, marked, named, percent, points, show

BOOTSTRAP = "Bands are 95 % bootstrap intervals over subjects."

# where retrieval helps, and where it hurts

KINDS = ("subject's page", "namesake's page", "another page")
EFFECT = {1: "helps", -1: "hurts", 0: "makes no clear difference"}
COMPARED = ("questions", "gain", "gain_word", "recall_gain", "only_this", "only_that", "p")
COMPARED_HEADS = {
    "gain": "accuracy, substring",
    "gain_word": "accuracy, word",
    "recall_gain": "recall",
    "only_this": "only this right",
    "only_that": "only that right",
    "p": "McNemar's p",
}
EXAMPLE_HEADS = {
    "answer": "a gold answer",
    "closed_book": "closed-book answer",
    "augmented": "answer with the passage",
    "passage": "passage",
    "doc_title": "passage from",
    "doc_has_answer": "passage has the answer",
    "popularity": "page views",
}


def effect_lead(inputs: Inputs) -> str:
    """The method that the section leads with."""
    rows = inputs.rows("retrieval_effect", dataset=next(iter(inputs.asked), ""))
    return "dense" if any(row["method"] == "dense" for row in rows) else rows[0]["method"] if rows else ""


def _helps(inputs: Inputs, rule: str) -> str:
    """What the passage of the dense retriever, or else of the first method, changes in the tail and at the head."""
    dataset, method, gain = next(iter(inputs.asked), ""), effect_lead(inputs), RULED["gain"][[*RULES].index(rule)]
    if not method:
        return ""
    gains = {row["group"]: row[gain] for row in inputs.rows("retrieval_effect", dataset=dataset, method=method)}
    start = f"On {label(dataset)}, what {label(method)} finds"
    if not math.isfinite(gains["tail"].value):
        return f"{start} {EFFECT[gains['all'].sign]} ({points(gains['all'])})."
    bins = [row for row in inputs.rows("accuracy_by_popularity", dataset=dataset, method=method)]
    zero = _crossing([row["popularity"] for row in bins], [row[gain].value for row in bins])
    return (
        f"{start} {EFFECT[gains['tail'].sign]} on the least popular {percent(TAIL)} of the questions "
        f"({points(gains['tail'])}) and {EFFECT[gains['head'].sign]} on the most popular {percent(HEAD)} "
        f"({points(gains['head'])})"
        + (f"; the curve crosses zero near {show(zero)} page views a month." if zero else ".")
    )


def _crossing(views: list[float], gains: list[float]) -> float | None:
    """Where gains fall below zero, two digits, between the logs of two bins' views; None unless they do so once."""
    falls = [i for i in range(1, len(gains)) if (gains[i - 1] > 0) != (gains[i] > 0)]
    if len(falls) != 1 or gains[0] <= 0 or not all(map(math.isfinite, gains)):
        return None
    low, high = (math.log(max(views[i], 1)) for i in (falls[0] - 1, falls[0]))
    before, after = gains[falls[0] - 1], gains[falls[0]]
    return float(f"{math.exp(low + (high - low) * before / (before - after)):.2g}")


def _examples(inputs: Inputs) -> list[Row]:
    """Questions on which only one of two answers is right, with links to the explorer."""
    rows = []
    for row in (row for dataset in inputs.asked for row in inputs.rows("examples", dataset=dataset)):
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        question, passage = Explorable(row["question"], "/question", **of), row["passage"]
        marks = passage and row["passage_answer"]
        rows.append(row | {"linked": question, "passage": marked(passage, marks) if marks else passage})
    return [{f"example_{key}" if key in EXAMPLE_HEADS else key: value for key, value in row.items()} for row in rows]


def explored(inputs: Inputs) -> Explored:
    """The questions of the section's claim on which only one of both answers is right."""
    method = effect_lead(inputs)
    of = {"set": inputs.asked[0], "lm": inputs.main, "base": "closed_book", "method": method}
    links = {
        rule: [
            Explorable("Questions where it hurts", "/questions", **of, cell="base", **by),
            Explorable("Questions where it helps", "/questions", **of, cell="method", order="rare", **by),
        ]
        for rule, by in zip(RULES, ({}, {"judged": "words"}), strict=True)
    }
    command = f"longtail explore --method {method} --cell base"
    without = (
        f"To look at the questions where it hurts, with their passages, run `{command}`; with `--cell method`, "
        "they are those where it helps. `longtail explore` shows this page with links to them."
    )
    return Explored(links, without)


GROUPS = drawn_methods(answered("retrieval_effect"))
RETRIEVAL_EFFECT = Entry(
    "effect",
    "Where retrieval helps, and where it hurts",
    [
        Drawn(
            entries.lines, "gain-by-popularity", drawn_methods(BINS), views, "gain",
            captioned(f"what reading a passage changes, by popularity. Above zero it helps. {BOOTSTRAP} Bins are"),
            LOG_VIEWS | {"y": "augmented minus closed-book, points", "zero": True}, each="dataset", parts=RELATIONS,
        ),
        Shown(
            "retrieval-effect", where(GROUPS, lambda row: row["questions"] and row["group"] != TAIL_LESS_HEAD),
            [*KEY, "group", "questions", "closed_book", "augmented", "gain", "closed_book_word", "augmented_word",
             "gain_word"],
            "Accuracy in per cent, closed-book and with what the method reads, and the change in points. The tail is "
            f"the least popular {percent(TAIL)} of the questions of known popularity, the head the most popular "
            f"{percent(HEAD)}. A namesake's page is another page by the subject's name.",
            {"group": "questions where"},
        ),
        Drawn(
            entries.bars, "whose-page", where(GROUPS, lambda row: row["group"] in KINDS), "group", "gain",
            "what retrieving changes, by whose page the top passage is from.",
            {"y": "augmented minus closed-book, points"}, each="dataset",
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
            "hand. The passage is the beginning of the best document, with a gold answer marked.",
            {f"example_{name}": head for name, head in EXAMPLE_HEADS.items()} | {"linked": "question"},
        ),
    ],
    _helps,
    explored=explored,
)  # fmt: skip

# what answers cost

LATENCY = "Seconds of a question by method, with the machine that they were measured on (data/latency/index.html)"
SPENT = ("calls", "prompt_tokens", "new_tokens", "cost_per_1000")
SAVED = ("calls_saved", "tokens_saved", "cost_saved")


def _cost(inputs: Inputs, rule: str) -> str:
    """The least and the most that a question makes the main language model read, and what thresholds save."""
    dataset = next(iter(inputs.asked), "")
    rows = [row for row in inputs.rows("costs", dataset=dataset) if row["prompt_tokens"] is not None]
    if len(rows) < 2:
        return ""
    rows.sort(key=lambda row: row["prompt_tokens"])
    tokens = [f"{row['prompt_tokens']:,.0f} tokens ({label(row['method'])})" for row in (rows[0], rows[-1])]
    sentence = f"A question of {label(dataset)} takes {inputs.main} from {tokens[0]} to {tokens[1]} to read"
    saved = [row for row in inputs.rows("savings", dataset=dataset) if math.isfinite(row["tokens_saved"].value)]
    if not saved:
        return f"{sentence}."
    row = next((row for row in saved if row["method"] == "dense"), saved[0])
    share = show(Percent(row["tokens_saved"].times(0.01)))
    return f"{sentence}; with {label(row['method'])}, thresholds save {share} % of the tokens of always retrieving."


COSTS = Entry(
    "costs",
    "What answers cost",
    [
        Drawn(
            entries.bars, "tokens",
            lambda inputs: [
                row | {"of": row["series"], "series": "tokens read"}
                for row in answered("costs")(inputs)
                if row["prompt_tokens"] is not None
            ],
            "of", "prompt_tokens", "tokens that a question's prompts have.", {"y": "tokens read for a question"},
            each="dataset",
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

COMMON = "on the questions that all language models answered"


def _by_size(inputs: Inputs) -> list[Row]:
    """Accuracy of every model on its own questions, smaller models first, those of unknown size last."""
    judged, order = {row["lm"]: row["judged"] for row in inputs.tables["models"]}, list(inputs.sizes)
    rows = [
        row | {"parameters": inputs.sizes[row["lm"]], "judged": judged[row["lm"]]} for row in inputs.tables["accuracy"]
    ]
    several = {of for of in inputs.asked if len({row["lm"] for row in rows if row["dataset"] == of}) > 1}
    rows = [row for row in rows if row["dataset"] in several]
    return sorted(rows, key=lambda row: (row["parameters"] or math.inf, order.index(row["lm"])))


def _closed_book(table: str) -> Rows:
    return where(every(f"common_{table}"), lambda row: row["method"] == "closed_book")


def _correlated(inputs: Inputs) -> list[Row]:
    """The relations with enough questions."""
    rows = _closed_book("accuracy_by_relation")(inputs)
    rows = [row for row in rows if row["questions"] >= LEAST and math.isfinite(row["correlation"].value)]
    return [row | {"name": named(row["relation"])} for row in rows]


def _in_common(words: str) -> Callable[[Inputs, Sequence[Row]], str]:
    """A caption that says on how many questions models are compared."""

    def caption(inputs: Inputs, rows: Sequence[Row]) -> str:
        of_all = [row for row in inputs.tables["common_accuracy"] if row["dataset"] == rows[0]["dataset"]]
        lms, n = len({row["lm"] for row in of_all}), max((row["questions"] for row in of_all), default=0)
        of = label(rows[0]["dataset"])
        return f"{words}, on the {n:,} questions of {of} that all {lms} language models answered."

    return caption  # fmt: skip


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
            entries.bars, "models", every("common_accuracy"), "lm", "substring",
            _in_common("accuracy by language model and method"), {"y": "accuracy, %"}, series="method", each="dataset",
        ),
        Shown(
            "models", _by_size, ["lm", "parameters", "dataset", "method", "judged", *BOTH, "correlation"],
            "Accuracy in per cent by language model, and its correlation (substring) with log popularity. Smaller "
            "models come first; those of unknown size come last. Each was asked its own number of questions, of the "
            "test split or of all splits (thresholds.imported).",
            {"judged": "judged on"},
        ),
        Shown(
            "models-in-common", every("common_accuracy"), [*KEY, *BOTH, "correlation"],
            _in_common("Accuracy in per cent by language model"),
        ),
        Shown(
            "models-compared", where(every("comparisons"), lambda r: r["against_lm"] != r["lm"] and r["questions"]),
            ["lm", "against_lm", "dataset", "method", *COMPARED],
            "One language model less another by the same method, in points, on the questions that both answered. "
            "Columns are those of the methods' comparisons above.",
            COMPARED_HEADS | {"against_lm": "less"},
        ),
        Drawn(
            entries.lines, "models-by-popularity", _closed_book("accuracy_by_log_popularity"), views, "substring",
            _in_common(f"closed-book accuracy by half power of ten of popularity and language model. {WILSON} It is"),
            LOG_VIEWS | {"y": "closed-book accuracy, %"}, series="lm", each="dataset",
            parts=_closed_book("accuracy_by_relation_and_popularity"),
        ),
        Shown(
            "models-by-popularity", bounded(every("common_accuracy_by_log_popularity")), ["from", "below", *KEY, *BOTH],
            "Accuracy in per cent by half power of ten of monthly page views, language model and method, "
            f"{COMMON}. Bins with few questions are merged.",
            {"from": "page views from"},
        ),
        Drawn(
            entries.bars, "models-correlation", _correlated, "name", "correlation",
            f"correlation of being right (substring, closed-book) with log popularity, {COMMON}; relations with "
            f"{LEAST} questions or more.",
            {"y": "correlation with log popularity"}, series="lm", each="dataset",
        ),
        Shown(
            "models-by-relation", every("common_accuracy_by_relation"), ["relation", *KEY, *BOTH, "correlation"],
            f"Accuracy in per cent by relation, language model and method, {COMMON}, and its correlation (substring) "
            "with log popularity.",
        ),
    ],
    _known_best,
)  # fmt: skip
