"""The sections of the study `seen`: what the model could have seen, and facts that
changed since.
"""

import math

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import figures_by, table_of
from pipelines.pages.values import in_percent, label
from pipelines.report.curves import ACCURACY, BANDS
from pipelines.report.result_section import how
from pipelines.report.run_tables import Tables
from pipelines.studies.seen import BEFORE, CHANGED


def exposure(tables: Tables) -> Section:
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
        caption=(f"accuracy (substring) by the documents that have subject and answer. {BANDS}"),
        min_marks=3,
    )

    text = (
        "A document counts if it has a name of the question's subject and an acceptable answer, as "
        "whole words, exactly as written. The counts say most where the text is what the model was "
        "trained on."
    )

    table = table_of(
        "accuracy-by-documents",
        "Accuracy in per cent, and the change against answers without retrieval in points, by the "
        "documents of a text that have the subject and an answer.",
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

    blocks: list[Block] = [*figures_by(figure, "of"), text, table]
    return Section("exposure", "What the model could have seen", blocks, _leads(tables, rows))


def dates(tables: Tables) -> Section:
    rows = tables.rows("accuracy_by_date")
    table = table_of(
        "accuracy-by-date",
        "Accuracy in per cent, and the change against answers without retrieval in points. Facts "
        "without a date may have changed too. exposure.cutoffs says when a model's text ended.",
        rows,
        ["group", "dataset", "lm", "cutoff", "questions", "method", "substring", "word", "gain"],
        {"group": "facts", "cutoff": "text until"},
    )
    return Section("dates", "Facts that changed since", [table], _leads_of_dates(rows))


def _leads_of_dates(rows: list[Row]) -> str:
    """The first method's accuracy on facts that changed, and on those that did not."""
    shares = {}
    for row in rows:
        if all(row[name] == rows[0][name] for name in ("dataset", "lm", "method")):
            shares[row["group"]] = in_percent(row["substring"])
    if not {CHANGED, BEFORE} <= shares.keys():
        return ""
    begins = f"{how(rows[0]['method'])}, {rows[0]['lm']} is right on {shares[CHANGED]} % of facts"
    return (
        f"{begins} that changed after its text ended, and on {shares[BEFORE]} % of those dated "
        "before."
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
        f"is right on {in_percent(most['substring'])} % without retrieval; where {few_do}, on "
        f"{in_percent(fewest['substring'])} %."
    )
