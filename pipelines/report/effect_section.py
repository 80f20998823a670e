"""The report's section on what retrieving changes: where it helps, and where it hurts (PopQA, section 5)."""

from __future__ import annotations

import math

from pipelines import methods
from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label, named, percent

SHOWN = (
    "bm25",
    "dense",
    "lsr",
    "genread",
)  # kinds of methods that read one passage, in tables by group of questions; data/analyses has all


def retrieval_effect(inputs: Inputs) -> Section:
    """By group of questions, methods against each other, recall by which answers are right, and examples."""
    blocks: list = []
    for dataset in inputs.asked:
        rows = inputs.rows("retrieval_effect", dataset=dataset)
        rows = [row for row in rows if methods.split(row["method"])[0] in SHOWN]
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
                "and recall (how often what was read holds an answer).",
                ["answered", "less", "questions", "accuracy, substring", "accuracy, word", "recall"],
                [
                    [label(row["method"]), label(row["against"]), row["questions"]]
                    + [Percent(row[name], signed=True) for name in ("gain", "gain_word", "recall_gain")]
                    for row in inputs.rows("comparisons", dataset=dataset)
                ],
            )
        )
        blocks.append(
            Table(
                f"recall-{dataset}",
                f"{label(dataset)}: recall in per cent, over all questions and by which of the two answers is right. "
                "Recall is the share of questions for which what the method read holds an answer as whole words: the "
                "top passage, any of REPLUG's documents, or the passage that GenRead wrote.",
                ["answered", "questions", "share, %", "recall"],
                [
                    [label(row["method"]), row["answers"], 100 * row["share"], Percent(row["recall"])]
                    for row in inputs.rows("recall", dataset=dataset)
                ],
            )
        )
        blocks += _examples(dataset, inputs)
    return Section("effect", "Where retrieval helps, and where it hurts", blocks)


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
        "popularity": "page views",
        "doc_title": "passage from",
        "doc_has_answer": "passage has the answer",
        "closed_book": "closed-book answer",
        "augmented": "answer with the passage",
    }
    return [
        Table(
            f"examples-{dataset}",
            f"{label(dataset)}: questions on which only one of two answers, closed-book and "
            f"{label(rows[0]['method'])}, is right by both rules. They were drawn by hash, {EXAMPLES} at most of each "
            "kind and at most one of each relation, not chosen by hand.",
            ["effect", "relation", *columns.values()],
            [[row["effect"], named(row["relation"]), *(row[key] for key in columns)] for row in rows],
        )
    ]
