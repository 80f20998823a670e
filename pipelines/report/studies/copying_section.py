"""The section of the study `copying`: how much is copied."""

from pipelines.pages.figures import bars
from pipelines.report.entries import Drawn, Entry, Shown


def report_entries() -> list:
    """How much is copied."""

    def copied(inputs):
        return [
            row
            | {
                "longest": f"{row['least']} or more"
                if row["most"] is None
                else f"{row['least']} to {row['most']}"
            }
            for row in inputs.tables["copied"]
            if row["corpus"] == inputs.main_corpus
        ]

    parts = [
        Drawn(
            bars, "gain-by-shared-ngram", copied, "longest", "bits_saved",
            "bits that documents save per token, by the longest n-gram that one of them shares.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        Shown(
            "gain-by-shared-ngram", copied,
            ["retriever", "longest", "tokens", "bits_without", "bits_saved", "share_of_saved"],
            "Tokens by the longest n-gram that they are part of and that one of the documents has too: bits per token "
            "without documents, bits saved, and the row's share of all bits saved.",
            {"longest": "longest n-gram", "bits_without": "bits without documents", "bits_saved": "bits saved",
             "share_of_saved": "share of saved"},
        ),
    ]  # fmt: skip
    return [Entry("copying", "How much is copied", parts, after="attribution")]
