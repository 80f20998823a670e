"""The section on where retrieval helps and where it hurts (PopQA, section 5)."""

from pipelines.evaluation.examples import EXAMPLES
from pipelines.evaluation.retrieval_effects import TAIL_LESS_HEAD
from pipelines.intervals import Interval
from pipelines.pages.section import Axis, Block, Figure, Section, Table
from pipelines.pages.table_rows import is_known, table_of
from pipelines.pages.values import in_points, label
from pipelines.report import adaptive_metrics
from pipelines.report.curves import BANDS, VIEWS, rows_by_popularity
from pipelines.report.run_tables import Tables

VERBS = {1: "helps", -1: "hurts", 0: "makes no clear difference"}  # sign of an interval
COMPARED_COLUMNS = [
    "questions",
    "gain",
    "gain_word",
    "recall_gain",
    "only_this",
    "only_that",
    "p",
]
COMPARED_HEADS = {
    "gain": "accuracy, substring",
    "gain_word": "accuracy, word",
}

ANSWERS = {  # a value of the table `recall` -> its words
    "only closed-book right": "right only without retrieval",
    "only augmented right": "right only with retrieval",
}


def section(tables: Tables) -> Section:
    blocks: list[Block] = [
        _gain_by_popularity(tables),
        _how_to_look(tables),
        _table_of_groups(tables),
        _table_of_comparisons(tables),
        _table_of_recall(tables),
        _table_of_examples(tables),
    ]
    title = "Where retrieval helps, and where it hurts"
    return Section("effect", title, blocks, _leads(tables))


def lead_method(tables: Tables) -> str:
    """The method of the section's first sentence: with the highest adaptive accuracy, or the first
    one; "" if none retrieves.
    """
    rows = tables.rows("retrieval_effect", "lm = $lm AND dataset = $first_set")
    methods = [row["method"] for row in rows]
    best = adaptive_metrics.best_policy(tables)
    if best and best["method"] in methods:
        return best["method"]
    return methods[0] if methods else ""


def lead_gains(tables: Tables) -> dict[str, Interval]:
    """Group of questions -> what text from that method changes, as a share of them."""
    rows = tables.rows(
        "retrieval_effect",
        "lm = $lm AND dataset = $first_set AND method = $method",
        method=lead_method(tables),
    )
    return {row["group"]: row["gain"] for row in rows}


def _leads(tables: Tables) -> str:
    gains = lead_gains(tables)
    if not gains:
        return ""

    text = f"Text from {label(lead_method(tables))}"
    if not is_known(gains["tail"]):
        points = in_points(gains["all"])
        return f"{text} {VERBS[gains['all'].sign]} ({points} points)."
    tail = gains["tail"]
    head = gains["head"]
    in_tail = f"{VERBS[tail.sign]} with unpopular subjects ({in_points(tail)} points)"
    at_head = f"{VERBS[head.sign]} with the most popular ones ({in_points(head)} points)"
    return f"{text} {in_tail} and {at_head}."


def _gain_by_popularity(tables: Tables) -> Figure:
    return Figure(
        name="gain-by-popularity",
        kind="lines",
        rows=rows_by_popularity(tables),
        x="views",
        y="gain",
        x_axis=VIEWS,
        y_axis=Axis("accuracy with retrieval minus without, points", zero=True),
        caption=f"what a passage changes, by decile of popularity; above zero it helps. {BANDS}",
        by="dataset",
    )


def _how_to_look(tables: Tables) -> str:
    return (
        "To look at the questions where it hurts, with their passages, run `longtail explore "
        f"'/questions?method={lead_method(tables)}&cell=base'`; with cell=method, they are those "
        "where it helps. A namesake's page is another page by the subject's name."
    )


def _table_of_groups(tables: Tables) -> Table:
    return table_of(
        "retrieval-effect",
        "Accuracy in per cent without and with retrieval, and the change in points, on parts of "
        "the questions.",
        tables.answered(
            "retrieval_effect",
            """questions > 0 AND "group" <> $difference AND method NOT LIKE 'replug%' """,
            difference=TAIL_LESS_HEAD,
        ),
        [
            "dataset",
            "lm",
            "method",
            "group",
            "questions",
            "closed_book",
            "augmented",
            "gain",
            "gain_word",
        ],
        {"group": "questions where"},
    )


def _table_of_comparisons(tables: Tables) -> Table:
    return table_of(
        "comparisons",
        "One method less another in points. Only this: questions that only the first gets right "
        "(substring). p: McNemar's exact test, which takes questions as independent.",
        tables.answered("comparisons", "against_lm = lm"),
        ["dataset", "lm", "method", "against", *COMPARED_COLUMNS],
        COMPARED_HEADS,
    )


def _table_of_recall(tables: Tables) -> Table:
    rows = tables.answered("recall")
    return table_of(
        "recall",
        "Recall in per cent: how often what the method read holds an answer as whole words, by "
        "which of the two answers is right.",
        [row | {"answers": ANSWERS.get(row["answers"], row["answers"])} for row in rows],
        ["dataset", "lm", "method", "answers", "share", "recall"],
        {"answers": "questions"},
    )


def _table_of_examples(tables: Tables) -> Table:
    rows = []
    for row in tables.answered("examples", "lm = $lm"):
        example = {f"example_{name}": value for name, value in row.items()}
        rows.append({**row, **example})
    return table_of(
        "examples",
        "Questions that only one of two answers, without and with a passage, gets right by both "
        f"rules. A hash draws them, {EXAMPLES} at most of each kind.",
        rows,
        [
            "effect",
            "dataset",
            "example_question",
            "example_answer",
            "example_closed_book",
            "example_augmented",
            "example_passage",
            "example_doc_title",
            "example_doc_has_answer",
            "example_popularity",
            "relation",
        ],
        {
            "example_question": "question",
            "example_answer": "a gold answer",
            "example_closed_book": "answer without retrieval",
            "example_augmented": "answer with the passage",
            "example_passage": "passage",
            "example_doc_title": "passage from",
            "example_doc_has_answer": "passage has the answer",
            "example_popularity": "page views",
        },
    )
