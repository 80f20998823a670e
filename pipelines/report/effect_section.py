"""The section on where retrieval helps and where it hurts (PopQA, section 5)."""

from collections.abc import Iterator

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.examples import EXAMPLES
from pipelines.evaluation.retrieval_effects import TAIL_LESS_HEAD
from pipelines.pages.section import Axis, Block, Figure, Section, Table
from pipelines.pages.table_rows import grouped, is_known, one_of, table_of
from pipelines.pages.values import in_points, label, percent
from pipelines.report import adaptive_metrics
from pipelines.report.curves import VIEWS, merged_bins, rows_by_popularity
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
    "only_this": "only this right",
    "only_that": "only that right",
    "p": "McNemar's p",
    "against_lm": "less",
}


def section(tables: Tables) -> Section:
    blocks: list[Block] = [
        *_gain_by_popularity(tables),
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
    one.
    """
    rows = tables.rows("retrieval_effect", "lm = $lm AND dataset = $of", of=tables.answered_sets[0])
    methods = [row["method"] for row in rows]
    best = adaptive_metrics.best_policy(tables)
    if best and best["method"] in methods:
        return best["method"]
    return methods[0] if methods else ""


def _leads(tables: Tables) -> str:
    if not tables.answered_sets:
        return ""
    method = lead_method(tables)
    rows = tables.rows(
        "retrieval_effect",
        "lm = $lm AND dataset = $of AND method = $method",
        of=tables.answered_sets[0],
        method=method,
    )

    gains = {row["group"]: row["gain"] for row in rows}
    if not gains:
        return ""

    text = f"Text from {label(method)}"
    if not is_known(gains["tail"]):
        points = in_points(gains["all"])
        return f"{text} {VERBS[gains['all'].sign]} ({points} points)."
    tail = in_points(gains["tail"])
    head = in_points(gains["head"])
    return (
        f"{text} {VERBS[gains['tail'].sign]} with unpopular subjects ({tail} points) and "
        f"{VERBS[gains['head'].sign]} with the most popular ones ({head} points)."
    )


def _gain_by_popularity(tables: Tables) -> Iterator[Figure]:
    rows = rows_by_popularity(tables)
    figure = Figure(
        name="gain-by-popularity",
        kind="lines",
        rows=rows,
        x="views",
        y="gain",
        x_axis=VIEWS,
        y_axis=Axis("augmented minus closed-book, points", zero=True),
        caption="",
    )

    for dataset, of_set in grouped(rows, "dataset").items():
        caption = (
            "what reading a passage changes (substring), by decile of popularity. Above zero it "
            f"helps. The sentence above is about the least popular {percent(TAIL)} and the most "
            f"popular {percent(HEAD)} of the questions. Bands are 95 % bootstrap intervals over "
            f"subjects. {merged_bins(of_set)}"
        )

        yield one_of(figure, dataset, of_set, caption)


def _how_to_look(tables: Tables) -> str:
    method = lead_method(tables) if tables.answered_sets else ""
    return (
        "To look at the questions where it hurts, with their passages, run `longtail explore "
        f"'/questions?method={method}&cell=base'`; with cell=method, they are those where it helps."
    )


def _table_of_groups(tables: Tables) -> Table:
    return table_of(
        "retrieval-effect",
        "Accuracy in per cent, closed-book and with what the method reads, and the change in "
        f"points. The tail is the least popular {percent(TAIL)} of the questions of known "
        f"popularity, the head the most popular {percent(HEAD)}. A namesake's page is another page "
        "by the subject's name.",
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
            "closed_book_word",
            "augmented_word",
            "gain_word",
        ],
        {"group": "questions where"},
    )


def _table_of_comparisons(tables: Tables) -> Table:
    return table_of(
        "comparisons",
        "One method less another, question by question, in points: accuracy, and recall (how often "
        "what was read holds an answer). Intervals are bootstraps over subjects. Only this and "
        "only that: questions on which only the first or only the second is right (substring), "
        "with McNemar's exact test, which takes questions as independent.",
        tables.answered("comparisons", "against_lm = lm"),
        ["dataset", "lm", "method", "against", *COMPARED_COLUMNS],
        COMPARED_HEADS,
    )


def _table_of_recall(tables: Tables) -> Table:
    return table_of(
        "recall",
        "Recall in per cent, over all questions and by which of the two answers is right. Recall "
        "is the share of questions for which what the method read holds an answer as whole words: "
        "the top passage, any of REPLUG's documents, or the passage that GenRead wrote.",
        tables.answered("recall"),
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
        "Questions on which only one of two answers, closed-book and with a passage, is right by "
        f"both rules. They were drawn by hash, {EXAMPLES} at most of each kind and at most one of "
        "each relation, not chosen by hand. The passage is the beginning of the best document, "
        "which the explorer shows whole.",
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
            "example_closed_book": "closed-book answer",
            "example_augmented": "answer with the passage",
            "example_passage": "passage",
            "example_doc_title": "passage from",
            "example_doc_has_answer": "passage has the answer",
            "example_popularity": "page views",
        },
    )
