"""The section of the study `seen`: what the model could have seen, and facts that changed since."""

import math

from pipelines.pages.section import Axis, Block, Figure, Row, Section, Table
from pipelines.pages.table_rows import figures_by, table_of
from pipelines.pages.values import in_percent, label
from pipelines.report.curves import ACCURACY
from pipelines.report.run_tables import Tables


def section(tables: Tables) -> Section:
    rows = _accuracy_by_documents(tables)
    figure = Figure(
        name="accuracy-by-documents",
        kind="lines",
        rows=rows,
        series="method",
        x="place",
        y="substring",
        x_axis=Axis("1 + documents with the subject and an answer (log scale)", log=True),
        y_axis=ACCURACY,
        caption=(
            "accuracy (substring) by the documents that have subject and answer. Bands are 95 % "
            "intervals."
        ),
        min_marks=3,
    )

    text = ""
    if rows:
        text = (
            "A document counts if it has a name of the question's subject and an acceptable "
            "answer, as whole words, exactly as written. The counts say most where the text is "
            "what the model was trained on."
        )

    table = table_of(
        "accuracy-by-documents",
        "Accuracy in per cent, and what a method gains over closed-book answers in points "
        "(substring), by the documents of a text that have the subject and an answer. Page views "
        "are the bin's median.",
        rows,
        [
            "text",
            "documents with both",
            "dataset",
            "questions",
            "popularity",
            "method",
            "substring",
            "word",
            "gain",
        ],
    )

    blocks: list[Block] = [*figures_by(figure, "of"), text, table, _table_of_dates(tables)]
    return Section("exposure", "What the model could have seen", blocks, _leads(tables, rows))


def _table_of_dates(tables: Tables) -> Table:
    return table_of(
        "accuracy-by-date",
        "Accuracy in per cent, and the gain over closed-book answers in points (substring), of "
        "facts that surely changed after a model's text ended (exposure.cutoffs), by Wikidata's "
        "start time, end time or point in time, of other dated facts, and of those without a date, "
        "which may have changed too.",
        tables.rows("accuracy_by_date"),
        ["group", "dataset", "lm", "cutoff", "questions", "method", "substring", "word", "gain"],
        {"group": "facts", "cutoff": "text until"},
    )


def _accuracy_by_documents(tables: Tables) -> list[Row]:
    """Accuracy of the main language model by the documents of each text that have subject and
    answer.
    """
    rows = []
    condition = "lm = $lm AND method NOT LIKE 'replug%'"
    for row in tables.answered("accuracy_by_documents", condition):
        bounds = dict.fromkeys([f"{row['least']:,}", f"{row['most']:,}"])
        seen = dict(row)
        seen["of"] = f"{label(row['dataset'])}, {label(row['text'])}"
        seen["documents with both"] = " to ".join(bounds)
        seen["place"] = math.sqrt((1 + row["least"]) * (1 + row["most"]))
        rows.append(seen)
    return rows


def _leads(tables: Tables, rows: list[Row]) -> str:
    closed_book = [row for row in rows if row["method"] == "closed_book"]
    bins = [row for row in closed_book if row["of"] == closed_book[0]["of"]]
    if len(bins) < 2:
        return ""
    fewest = bins[0]
    most = bins[-1]
    few_do = "few do" if fewest["most"] else "none does"
    return (
        f"Where many documents of {label(most['text'])} name both subject and answer, {tables.lm} "
        f"is right on {in_percent(most['substring'])} % from memory; where {few_do}, on "
        f"{in_percent(fewest['substring'])} %."
    )
