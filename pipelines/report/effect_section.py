"""The report's section on what retrieving changes: where it helps, and where it hurts (PopQA, section 5)."""

from __future__ import annotations

import math

from pipelines.answering.answer_files import METHODS
from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Percent, Section, Table, label, named, percent

SHOWN = METHODS[1:5]  # methods of one passage, in tables by group of questions; data/analyses has all


def retrieval_effect(inputs: Inputs) -> Section:
    """Where retrieval helps and where it hurts, methods against each other, recall in the 2x2, and examples."""
    blocks: list = []
    for dataset in inputs.asked:
        rows = [row for row in inputs.rows("retrieval_effect", dataset=dataset) if row["method"] in SHOWN]
        blocks.append(
            Table(
                f"retrieval-effect-{dataset}",
                f"{label(dataset)}: accuracy closed-book and with what the method reads in per cent, and the change in "
                f"points, by both rules. Tail: the least popular {percent(TAIL)}; head: the most popular "
                f"{percent(HEAD)}. A namesake's page is another page by the subject's name.",
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
                "and how often what was read holds an answer.",
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
                f"{label(dataset)}: recall, the share of questions for which what the method read holds an answer "
                "(whole words), in per cent: over all questions, and by which of the two answers is right. Of one "
                "passage it is recall@1; of REPLUG, any of its documents counts; of GenRead, the passage it wrote.",
                ["answered", "questions", "share, %", "recall"],
                [
                    [label(row["method"]), row["answers"], 100 * row["share"], Percent(row["recall"])]
                    for row in inputs.rows("recall", dataset=dataset)
                ],
            )
        )
        blocks += _examples(dataset, inputs)
    missing = "" if inputs.asked else "There were no questions to answer."
    return Section("effect", "Where retrieval helps, and where it hurts", blocks, missing)


def _whose_page(dataset: str, rows: list[dict]) -> list:
    """What retrieving changes by whose page the passage is from, where the data set's pages are known."""
    kinds = ("subject's page", "namesake's page", "another page")
    change = {(row["method"], row["group"]): row["gain"].times(100) for row in rows}
    known = {
        method: [change[method, kind] for kind in kinds]
        for method in dict.fromkeys(method for method, _ in change)
        if any(math.isfinite(change[method, kind].value) for kind in kinds)
    }
    if not known:
        return []
    said = "; ".join(
        f"{label(method)} " + ", ".join(f"{kind} {one.value:+.0f}" for kind, one in zip(kinds, own, strict=True))
        for method, own in known.items()
    )
    return [
        figures.bars(
            f"whose-page-{dataset}",
            kinds,
            known,
            y="augmented minus closed-book, points",
            caption=f"{label(dataset)}: what retrieving changes, by whose page the top passage is from.",
            alt=f"Bar chart of the change in accuracy by whose page came up, in points: {said}.",
        )
    ]


def _examples(dataset: str, inputs: Inputs) -> list:
    rows = inputs.rows("examples", dataset=dataset)
    if not rows:
        return []
    said = {
        "question": "question",
        "answer": "an answer",
        "popularity": "page views",
        "doc_title": "passage from",
        "doc_has_answer": "it has the answer",
        "closed_book": "closed-book says",
        "augmented": "with the passage",
    }
    return [
        Table(
            f"examples-{dataset}",
            f"{label(dataset)}: questions on which only one of the two answers is right, by both rules "
            f"({label(rows[0]['method'])}). Chosen by rule: of each relation the question with the smallest draw by "
            f"hash of the seed and its id, of these the {EXAMPLES} with the smallest.",
            ["effect", "relation", *said.values()],
            [[row["effect"], named(row["relation"]), *(row[key] for key in said)] for row in rows],
        )
    ]
