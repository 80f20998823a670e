"""The section of the study `controls`: what else could save bits."""

from pipelines.pages.figures import bars
from pipelines.report.entries import Drawn, Entry, Shown
from pipelines.studies.controls import CONCATENATED, LONGER_CONTEXT


def report_entries() -> list:
    """What else could save bits."""

    def controls(inputs):
        names = {CONCATENATED: "all in one prompt", LONGER_CONTEXT: "more of the text"}
        return [
            row
            | {"control": names[row["control"]], "added_bytes": round(row["added_bytes"])}
            | {"documents": round(row["documents"], 1) if row["control"] == CONCATENATED else None}
            for row in inputs.tables["lm_controls"]
            if row["corpus"] == inputs.main_corpus
        ]

    parts = [
        Drawn(
            bars, "bits-saved-by-controls", controls, "control", "saved_over_ensemble",
            "the bits that a control saves against the ensemble of the same retriever's documents. Below zero, the "
            "ensemble needs fewer bits.",
            {"y": "saved against the ensemble, %"}, series="lm", each="corpus",
        ),
        "One control has all documents in one prompt, the best nearest the context; where they do not fit, the worst "
        "are left out. The other has, instead of documents, the text before the context, up to a document's length. "
        "The same documents are those in the prompt, as an ensemble; for more of the text, the best document alone.",
        Shown(
            "bits-per-byte-of-controls", controls,
            ["corpus", "lm", "control", "retriever", "k", "documents", "added_bytes", "bits_per_byte", "saved",
             "saved_over_same", "saved_over_ensemble"],
            "Bits per byte of the controls, and the bits they save in per cent.",
            {"retriever": "documents of", "documents": "documents that fit", "added_bytes": "bytes added",
             "saved_over_same": "against the same documents, %", "saved_over_ensemble": "against the ensemble of k, %"},
        ),
    ]  # fmt: skip
    return [Entry("controls", "What else could save bits", parts, after="replug")]
