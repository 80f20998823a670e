"""The report's section on what retrieving changes: where it helps, and where it hurts (PopQA, section 5)."""

from __future__ import annotations

import math

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.retrieval_effects import EXAMPLES, TAIL_LESS_HEAD
from pipelines.report import figures
from pipelines.report.by_popularity import GAINS, drawn_methods, gains_by_decile
from pipelines.report.explored import Explorable, Explored
from pipelines.report.inputs import Inputs
from pipelines.report.page import (
    RULES,
    Block,
    Figure,
    Marked,
    Percent,
    Section,
    Share,
    Table,
    by_rule,
    label,
    marked,
    named,
    percent,
    points,
    show,
)

COMPARED = (
    *("questions", "accuracy, substring", "accuracy, word", "recall"),
    *("only this right", "only that right", "McNemar's p"),
)
OF_RULES = dict(zip(COMPARED[1:3], RULES, strict=True))  # of a table with COMPARED
EFFECT = {1: "helps", -1: "hurts", 0: "makes no clear difference"}


def retrieval_effect(inputs: Inputs) -> Section:
    """By group of questions, methods against each other, recall by which answers are right, and examples."""
    blocks: list[Block] = []
    of = ["language model"] * bool(inputs.imported)
    columns = {"": "substring", "_word": "word"}  # of the changes -> rule
    changes = [
        (f"{name}{', word' * bool(end)}", f"{column}{end}", rule)
        for end, rule in columns.items()
        for column, name in (("closed_book", "closed-book"), ("augmented", "augmented"), ("gain", "change"))
    ]
    for dataset in inputs.asked:
        rows = inputs.answered("retrieval_effect", dataset=dataset)
        shown = drawn_methods([*dict.fromkeys(row["method"] for row in rows)])  # data/analyses has all
        rows = [row for row in rows if row["method"] in shown]
        blocks += gains_by_decile(dataset, inputs)
        blocks.append(
            Table(
                f"retrieval-effect-{dataset}",
                f"{label(dataset)}: accuracy in per cent, closed-book and with what the method reads, and the change "
                f"in points. The tail is the least popular {percent(TAIL)} of the questions of known popularity, the "
                f"head the most popular {percent(HEAD)}. A namesake's page is another page by the subject's name.",
                ["answered", *of, "questions where", "questions", *(name for name, *_ in changes)],
                [
                    [label(row["method"]), *(row["lm"] for _ in of), row["group"], row["questions"]]
                    + [Percent(row[column], signed=column.startswith("gain")) for _, column, _ in changes]
                    for row in rows
                    if row["questions"] and row["group"] != TAIL_LESS_HEAD
                ],
                {name: rule for name, _, rule in changes},
            )
        )
        blocks += _whose_page(dataset, rows)
        blocks.append(
            Table(
                f"comparisons-{dataset}",
                f"{label(dataset)}: one method less another, question by question, in points: accuracy, and recall "
                "(how often what was read holds an answer). Intervals are bootstraps over subjects. Only "
                "this and only that: questions on which only the first or only the second is right (substring), with "
                "McNemar's exact test, which takes questions as independent.",
                ["answered", *of, "less", *COMPARED],
                [
                    [label(row["method"]), *(row["lm"] for _ in of), label(row["against"]), *compared(row)]
                    for row in inputs.answered("comparisons", dataset=dataset)
                    if row["against_lm"] == row["lm"]
                ],
                OF_RULES,
            )
        )
        blocks.append(
            Table(
                f"recall-{dataset}",
                f"{label(dataset)}: recall in per cent, over all questions and by which of the two answers is right. "
                "Recall is the share of questions for which what the method read holds an answer as whole words: the "
                "top passage, any of REPLUG's documents, or the passage that GenRead wrote.",
                ["answered", *of, "questions", "share", "recall"],
                [
                    [
                        *(label(row["method"]), *(row["lm"] for _ in of), row["answers"]),
                        *(Share(row["share"]), Percent(row["recall"])),
                    ]
                    for row in inputs.answered("recall", dataset=dataset)
                ],
            )
        )
        blocks += _examples(dataset, inputs)
    says = {rule: words for rule in RULES if (words := _says(rule, inputs))}
    explored = _explored(inputs) if says else None
    return Section("effect", "Where retrieval helps, and where it hurts", blocks, says=says, explored=explored)


def _explored(inputs: Inputs) -> Explored | None:
    """The questions of `_says` on which only one of both answers is right."""
    dataset = next(iter(inputs.asked))
    method = _shown(inputs.rows("retrieval_effect", dataset=dataset))
    of = {"set": dataset, "lm": inputs.main, "base": "closed_book", "method": method}
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


def _shown(rows: list[dict]) -> str:
    """The method that the section leads with."""
    return "dense" if any(row["method"] == "dense" for row in rows) else rows[0]["method"]


def _says(rule: str, inputs: Inputs) -> str:
    """What the passage of the dense retriever, or else of the first method, changes in the tail and at the head."""
    dataset = next(iter(inputs.asked), "")
    rows = inputs.rows("retrieval_effect", dataset=dataset)
    if not rows:
        return ""
    method = _shown(rows)
    gains = {row["group"]: row[GAINS[rule]] for row in rows if row["method"] == method}
    start = f"On {label(dataset)}, what {label(method)} finds"
    if not math.isfinite(gains["tail"].value):
        return f"{start} {EFFECT[gains['all'].sign]} ({points(gains['all'])})."
    bins = [row for row in inputs.rows("accuracy_by_popularity", dataset=dataset, method=method)]
    zero = _crossing([row["popularity"] for row in bins], [row[GAINS[rule]].value for row in bins])
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


def compared(row: dict) -> list:
    """The cells under COMPARED of a row of the comparisons."""
    gains = [Percent(row[name], signed=True) for name in ("gain", "gain_word", "recall_gain")]
    return [row["questions"], *gains, row["only_this"], row["only_that"], row["p"]]


def _whose_page(dataset: str, rows: list[dict]) -> list[Figure]:
    """What retrieving changes by whose page the passage is from; nothing if the pages are not known."""
    kinds = ("subject's page", "namesake's page", "another page")
    cells = {(row["series"], row["group"]): row for row in rows}
    series = [
        one
        for one in dict.fromkeys(row["series"] for row in rows)
        if any(math.isfinite(cells[one, kind]["gain"].value) for kind in kinds)
    ]
    if not series:
        return []
    return [
        by_rule(
            lambda rule: figures.bars(
                f"whose-page-{dataset}",
                kinds,
                {one: [cells[one, kind][GAINS[rule]].times(100) for kind in kinds] for one in series},
                y="augmented minus closed-book, points",
                caption=f"{label(dataset)}: what retrieving changes, by whose page the top passage is from.",
            )
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
    if key == "question":
        of = {"set": row["dataset"], "lm": row["lm"], "method": row["method"], "id": row["question_id"]}
        return Explorable(row["question"], "/question", **of)
    if key == "passage" and row["passage"] and row["passage_answer"]:
        return marked(row["passage"], row["passage_answer"])
    return row[key]
