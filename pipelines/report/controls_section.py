"""What else could explain the bits that documents save, or save more: part of the section on language modelling."""

from __future__ import annotations

from pipelines.intervals import interval
from pipelines.report.page import Table, label


def settings(corpus: str, by_lm: dict[str, dict]) -> list[str | Table]:
    """Bits per byte with settings chosen on other documents, beside the setting in use."""
    rows = [
        [lm, label(row["retriever"]), row["chosen"]]
        + [f"{row[f'{name}_1']:g}, {row[f'{name}_2']:g}" for name in ("temperature", "weight")]
        + [interval(figures.get(f"bpb_{row['retriever']}_k{row['k']}"))]
        + [interval(row[name]) for name in ("bits_per_byte", "saved", "saved_over_fixed")]
        for lm, figures in by_lm.items()
        for row in figures.get("settings", [])
    ]
    if not rows:
        return []
    return [
        "The temperature of lambda and a weight of the model without documents, as one more member of the ensemble, "
        "are chosen on one half of the test documents and used on the other half, both ways round. No text is judged "
        "by settings chosen on it.",
        Table(
            "bits-per-byte-by-chosen-settings",
            f"{label(corpus)}: bits per byte with the settings in use and with chosen ones, the values chosen for each "
            "half, and the bits saved in per cent.",
            [
                *("language model", "documents", "chosen", "temperatures", "weights of no document"),
                *("bits per byte in use", "bits per byte, chosen", "saved against none, %", "saved against in use, %"),
            ],
            rows,
        ),
    ]


CONTROLS = {"concatenated": "all in one prompt", "longer_context": "more of the text"}


def controls(corpus: str, by_lm: dict[str, dict]) -> list[str | Table]:
    """The documents in one prompt, and as many more tokens of the text, against the ensemble."""
    rows = [
        [lm, CONTROLS[row["control"]], label(row["retriever"]), row["k"]]
        + [round(row["documents"], 1) if row["control"] == "concatenated" else None, round(row["added_bytes"])]
        + [interval(row[name]) for name in ("bits_per_byte", "saved", "saved_over_same", "saved_over_ensemble")]
        for lm, figures in by_lm.items()
        for row in figures.get("controls", [])
    ]
    if not rows:
        return []
    return [
        "Two controls. All documents in one prompt, the best nearest the context; where they do not fit, the worst are "
        "left out. And, instead of documents, the text that stands before the context, up to a document's length. "
        "The same documents are those in the prompt, as an ensemble; for more of the text, the best document alone.",
        Table(
            "bits-per-byte-of-controls",
            f"{label(corpus)}: bits per byte of the controls, and the bits they save in per cent. Below zero, the "
            "ensemble needs fewer bits.",
            [
                *("language model", "control", "documents of", "k", "documents that fit", "bytes added"),
                *("bits per byte", "saved against none, %", "against the same documents, %"),
                "against the ensemble of k, %",
            ],
            rows,
        ),
    ]
