"""The section of the study `carried`: thresholds carried over."""

from pipelines.report.entries import Entry, Shown, every


def report_entries() -> list:
    """Thresholds carried over."""
    parts = [
        "Thresholds may be carried over: those fitted to another language model's answers are judged on the same "
        "splits as thresholds of their own.",
        Shown(
            "carried", every("carried"),
            ["dataset", "lm", "method", "fitted", "questions", "own", "carried", "difference", "retrieved_own",
             "retrieved_carried"],
            "Held-out accuracy in per cent by thresholds of their own and by those carried over, the difference in "
            "points, and the share that retrieves in per cent.",
            {"method": "retriever", "fitted": "fitted to", "difference": "carried less own"},
        ),
    ]  # fmt: skip
    return [Entry("carried", "Thresholds carried over", parts, after="adaptive")]
