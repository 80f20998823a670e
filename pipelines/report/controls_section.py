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
