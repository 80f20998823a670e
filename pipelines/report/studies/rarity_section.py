"""The section of the study `rarity`: whose knowledge, and which words gain."""

import numpy as np

from pipelines.pages.figures import bars
from pipelines.pages.values import alone, label
from pipelines.report.entries import Drawn, Entry, Shown, where

ENOUGH = 100  # tokens of a group that the section speaks of


def report_entries() -> list:
    """Whose knowledge, and which words gain."""

    def rare(inputs):
        return [
            row | {"frequency": f"{row['least']:,} to {row['most']:,}" if row["most"] else "never"}
            for row in inputs.tables["rare_words"]
        ]

    def says(inputs, rule):
        """Of the main retriever, on the main corpus."""
        rows = [
            row
            for row in rare(inputs)
            if row["corpus"] == inputs.main_corpus and row["tokens"] >= ENOUGH
        ]
        for name in ("lsr", "dense", "bm25"):
            if (
                len(saved := [alone(row["bits_saved"]) for row in rows if row["retriever"] == name])
                > 1
            ):
                return (
                    f"Documents from {label(name)} save {saved[0]} bits a token on rare words, and {saved[-1]} on the "
                    "most frequent ones."
                )
        return ""

    parts = [
        Drawn(
            bars, "gain-by-frequency", where(rare, lambda row: np.isfinite(row["bits_saved"].value)),
            "frequency", "bits_saved",
            lambda inputs, rows: "bits that documents save per token, by how often "
            f"{label(rows[0]['counted_in'])} has the token's word.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        "A token's probability with documents is shared out. Memory has the share that the model gives the token "
        "without documents; a document has what it adds to that. The paper's example is a rare name, which the "
        "documents spell out and the model does not know. `longtail explore` shows the texts token by token.",
        Shown(
            "gain-by-frequency", rare,
            ["frequency", "corpus", "retriever", "counted_in", "tokens", "bits_without", "bits_saved", "memory"],
            "Tokens by how often C4, or the corpus where a run has no C4, has their word: bits without documents, bits "
            "saved, and memory's share.",
            {"frequency": "word's frequency", "bits_without": "bits without documents", "bits_saved": "saved"},
        ),
    ]  # fmt: skip
    return [
        Entry(
            "attribution", "Whose knowledge, and which words gain", parts, says, after="perplexity"
        )
    ]
