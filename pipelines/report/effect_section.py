"""The report's section on what retrieving changes: where it helps, and where it hurts (PopQA, section 5)."""

from __future__ import annotations

import math

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import figures
from pipelines.report.by_popularity import drawn_methods
from pipelines.report.inputs import Inputs
from pipelines.report.page import Marked, Percent, Section, Share, Table, label, marked, named, percent

COMPARED = (
    *("questions", "accuracy, substring", "accuracy, word", "recall"),
    *("only this right", "only that right", "McNemar's p"),
)


def retrieval_effect(inputs: Inputs) -> Section:
    """By group of questions, methods against each other, recall by which answers are right, and examples."""
    blocks: list = []
    for dataset in inputs.asked:
        shown = drawn_methods(inputs.methods(dataset))  # data/analyses has all
        rows = [row for row in inputs.rows("retrieval_effect", dataset=dataset) if row["method"] in shown]
        blocks.append(
            Table(
                f"retrieval-effect-{dataset}",
                f"{label(dataset)}: accuracy in per cent, closed-book and with what the method reads, and the change "
                f"in points, by both rules. The tail is the least popular {percent(TAIL)} of the questions of known "
                f"popularity, the head the most popular {percent(HEAD)}. A namesake's page is another page by the "
                "subject's name.",
                ["answered", "questions where", "questions"]
                + [f"{name}{rule}" for rule in ("", ", word") for name in ("closed-book", "augmented", "change")],
                [
                    [label(row["method"]), row["group"], row["questions"]]
                    + [
                        Percent(row[f"{name}{rule}"], signed=name == "gain")
                        for rule in ("", "_word")
                        for name in ("closed_book", "augmented", "gain")
                    ]
                    for row in rows
                    if row["questions"] and row["group"] != TAIL_LESS_HEAD
                ],
            )
        )
        blocks += _whose_page(dataset, rows)
        blocks.append(
            Table(
                f"comparisons-{dataset}",
                f"{label(dataset)}: one method less another, question by question, in points: accuracy by both rules, "
                "and recall (how often what was read holds an answer). Intervals are bootstraps over subjects. Only "
                "this and only that: questions on which only the first or only the second is right (substring), with "
                "McNemar's exact test, which takes questions as independent.",
                ["answered", "less", *COMPARED],
                [
                    [label(row["method"]), label(row["against"]), *compared(row)]
                    for row in inputs.rows("comparisons", dataset=dataset, against_lm=inputs.main)
                ],
            )
        )
        blocks.append(
            Table(
                f"recall-{dataset}",
                f"{label(dataset)}: recall in per cent, over all questions and by which of the two answers is right. "
                "Recall is the share of questions for which what the method read holds an answer as whole words: the "
                "top passage, any of REPLUG's documents, or the passage that GenRead wrote.",
                ["answered", "questions", "share", "recall"],
                [
                    [label(row["method"]), row["answers"], Share(row["share"]), Percent(row["recall"])]
                    for row in inputs.rows("recall", dataset=dataset)
                ],
            )
        )
        blocks += _examples(dataset, inputs)
    return Section("effect", "Where retrieval helps, and where it hurts", blocks)


def compared(row: dict) -> list:
    """The cells under COMPARED of a row of the comparisons."""
    gains = [Percent(row[name], signed=True) for name in ("gain", "gain_word", "recall_gain")]
    return [row["questions"], *gains, row["only_this"], row["only_that"], row["p"]]


def _whose_page(dataset: str, rows: list[dict]) -> list:
    """What retrieving changes by whose page the passage is from; nothing if the pages are not known."""
    kinds = ("subject's page", "namesake's page", "another page")
    gains = {(row["method"], row["group"]): row["gain"].times(100) for row in rows}
    changes = {
        method: [gains[method, kind] for kind in kinds]
        for method in dict.fromkeys(method for method, _ in gains)
        if any(math.isfinite(gains[method, kind].value) for kind in kinds)
    }
    if not changes:
        return []
    return [
        figures.bars(
            f"whose-page-{dataset}",
            kinds,
            changes,
            y="augmented minus closed-book, points",
            caption=f"{label(dataset)}: what retrieving changes, by whose page the top passage is from.",
        )
    ]


def _examples(dataset: str, inputs: Inputs) -> list:
    rows = inputs.rows("examples", dataset=dataset)
    if not rows:
        return []
    columns = {
        "question": "question",
        "answer": "a gold answer",
        "closed_book": "closed-book answer",
        "augmented": "answer with the passage",
        "passage": "passage",
        "doc_title": "passage from",
        "doc_has_answer": "passage has the answer",
        "popularity": "page views",
    }
    return [
        Table(
            f"examples-{dataset}",
            f"{label(dataset)}: questions on which only one of two answers, closed-book and "
            f"{label(rows[0]['method'])}, is right by both rules. They were drawn by hash, {EXAMPLES} at most of each "
            "kind and at most one of each relation, not chosen by hand. The passage is the beginning of the best "
            "document, with a gold answer marked.",
            ["effect", *columns.values(), "relation"],
            [[row["effect"], *(_cell(row, key) for key in columns), named(row["relation"])] for row in rows],
        )
    ]


def _cell(row: dict, key: str) -> str | int | bool | Marked | None:
    if key == "passage" and row["passage"] and row["passage_answer"]:
        return marked(row["passage"], row["passage_answer"])
    return row[key]
