"""The section of the ensemble's controls: what else could save bits."""

from pipelines.pages.section import Axis, Block, Figure, Row, Section
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import label, saves
from pipelines.report.run_tables import Tables
from pipelines.scoring.controls import CONCATENATED, LONGER_CONTEXT

NAMES = {CONCATENATED: "all in one prompt", LONGER_CONTEXT: "more of the text"}


def section(tables: Tables) -> Section:
    rows = _controls(tables)
    # of the retriever that comes first, which the figure and the first sentence are of
    of_first = [row for row in rows if row["retriever"] == rows[0]["retriever"]]
    figure = Figure(
        name="bits-saved-by-controls",
        kind="bars",
        rows=of_first,
        series="lm",
        x="control",
        y="saved_over_ensemble",
        y_axis=Axis("saved against the ensemble, %"),
        caption=(
            "the bits that a control saves against the ensemble of the same retriever's documents. "
            "Below zero, the ensemble needs fewer bits."
        ),
        by="corpus",
    )

    text = (
        "One control has all documents in one prompt, the best nearest the context; where they do "
        "not fit, the worst are left out. The other has, instead of documents, the text before the "
        "context, up to a document's length. The same documents are those in the prompt, as an "
        "ensemble; for more of the text, the best document alone."
    )

    table = table_of(
        "bits-per-byte-of-controls",
        "Bits per byte of the controls, and the bits they save in per cent.",
        rows,
        [
            "corpus",
            "lm",
            "control",
            "retriever",
            "k",
            "documents",
            "added_bytes",
            "bits_per_byte",
            "saved",
            "saved_over_same",
            "saved_over_ensemble",
        ],
        {
            "retriever": "documents of",
            "documents": "documents that fit",
            "added_bytes": "bytes added",
            "saved_over_same": "against the same, %",
            "saved_over_ensemble": "against the ensemble, %",
        },
    )

    blocks: list[Block] = [figure, text, table]
    return Section("controls", "What else could save bits", blocks, _leads(tables, of_first))


def _leads(tables: Tables, rows: list[Row]) -> str:
    """What each control saves the main language model, beside the ensemble of `rows`' retriever."""
    of_main = [row for row in rows if row["lm"] == tables.lm]
    if not of_main:
        return ""
    saved = []
    for row in of_main:
        saved.append(f"{row['control']} {saves(row['saved_over_ensemble'], 'saves')}")
    ensemble = f"the ensemble from {label(of_main[0]['retriever'])}"
    return f"Of the bits with {ensemble}, {' and '.join(saved)}."


def _controls(tables: Tables) -> list[Row]:
    rows = []
    for row in tables.rows("lm_controls", "corpus = $corpus"):
        documents = round(row["documents"], 1) if row["control"] == CONCATENATED else None
        shown = {
            "control": NAMES[row["control"]],
            "added_bytes": round(row["added_bytes"]),
            "documents": documents,
        }
        rows.append({**row, **shown})
    return rows
