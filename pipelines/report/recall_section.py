"""The section that compares the retrievers: bits per byte, recall and accuracy (REPLUG,
section 4).
"""

from collections.abc import Iterator

from pipelines import catalogue
from pipelines.evaluation.recall import AT
from pipelines.evaluation.stage_metrics import retrievers_of
from pipelines.intervals import interval
from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import is_known, spread, table_of
from pipelines.pages.values import alone, in_percent, label
from pipelines.report.run_tables import Tables

RECALL = "recall@1"
MEASURES = {"recall_at_1": RECALL, "word": "accuracy"}  # of columns of a question set


def section(tables: Tables) -> Section:
    figure = Figure(
        name="retrievers",
        kind="bars",
        rows=_measured(tables),
        series="retriever",
        x="series",
        y="accuracy",
        y_axis=Axis("share of the questions, %"),
        caption=(
            f"Recall on {label(tables.dataset)}, and accuracy with the top passage, by retriever; "
            f"{tables.lm} answers. Both are by whole words (word)."
        ),
    )

    heads = _heads()
    retrievers = table_of(
        "retrievers",
        f"Each retriever with {tables.lm}: bits per byte, what documents save, and recall and "
        "accuracy with the top passage (whole words) in per cent.",
        tables.rows("retrievers"),
        list(heads),
        heads,
    )

    passages = table_of(
        "recall-of-passages",
        "Recall@k in per cent: how often one of the question's own passages that hold an answer is "
        "among the first k. With none, a question is not answerable.",
        list(_recall_of_passages(tables)),
        [
            "set",
            "retriever",
            "questions",
            "answerable",
            "recall_at_1",
            "recall_at_5",
            "recall_at_10",
        ],
        {"set": "questions of", "retriever": "retriever"},
    )

    blocks: list[Block] = [figure, retrievers, passages]
    return Section("recall", "The retrievers compared", blocks, _leads(tables))


def _heads() -> dict[str, str]:
    """The columns of the table `retrievers` and their heads."""
    heads = {"retriever": "retriever", "bits_per_byte": "bits per byte", "saved": "saved, %"}
    for dataset in catalogue.names("questions"):
        for name, words in MEASURES.items():
            heads[f"{dataset}_{name}"] = f"{label(dataset)}, {words}"
    for k in (1, 10):
        heads[f"real_recall_at_{k}"] = f"real questions, recall@{k}"
    return heads


def _measured(tables: Tables) -> list[Row]:
    """Recall and accuracy of each retriever on the main question set."""
    if not tables.dataset:
        return []
    columns = {f"{tables.dataset}_{name}": words for name, words in MEASURES.items()}
    return spread(tables.rows("retrievers"), columns)


def _leads(tables: Tables) -> str:
    rows = []
    for row in _measured(tables):
        if row["series"] == RECALL and is_known(row["accuracy"]):
            rows.append(row)
    if not rows:
        return _leads_of_bits(tables)

    best, *others = sorted(rows, key=lambda row: -row["accuracy"].value)
    leads = (
        f"The top passage of {label(best['retriever'])} holds an answer to "
        f"{in_percent(best['accuracy'])} % of the questions of {label(tables.dataset)}"
    )

    if others:
        leads += (
            f", that of {label(others[0]['retriever'])}, the next best, to "
            f"{in_percent(others[0]['accuracy'])} %"
        )

    return f"{leads}."


def _leads_of_bits(tables: Tables) -> str:
    """The best retriever of a run without questions."""
    rows = [row for row in tables.rows("retrievers") if is_known(row["bits_per_byte"])]
    if not rows:
        return ""
    best = min(rows, key=lambda row: row["bits_per_byte"].value)
    return (
        f"With documents from {label(best['retriever'])}, {tables.lm} needs the fewest bits per "
        f"byte of {label(tables.corpus)} ({alone(best['bits_per_byte'])})."
    )


def _recall_of_passages(tables: Tables) -> Iterator[Row]:
    """Recall@k on questions that come with passages, by data set and retriever."""
    for name in tables.settings.parts.passages:
        by_set = tables.metrics.get(name, {}).get("sets", {})
        for set_name, figures in by_set.items():
            for retriever in retrievers_of(by_set["all"]):
                row = {
                    "set": "all" if set_name == "all" else label(set_name),
                    "retriever": retriever,
                    "questions": figures["questions"],
                    "answerable": figures["answerable"],
                }

                for k in AT:
                    row[f"recall_at_{k}"] = interval(figures[retriever][f"recall_at_{k}"])
                yield row
