"""The section of the study `carried`: thresholds that were fitted to another language model's
answers.
"""

from pipelines.pages.section import Section
from pipelines.pages.table_rows import table_of
from pipelines.report.run_tables import Tables


def section(tables: Tables) -> Section:
    text = (
        "Thresholds may be carried over: those fitted to another language model's answers are "
        "judged on the same splits as thresholds of their own."
    )

    table = table_of(
        "carried",
        "Held-out accuracy in per cent by thresholds of their own and by those carried over, the "
        "difference in points, and the share that retrieves in per cent.",
        tables.rule_rows("carried"),
        [
            "dataset",
            "lm",
            "method",
            "fitted",
            "questions",
            "own",
            "carried",
            "difference",
            "retrieved_own",
            "retrieved_carried",
        ],
        {"method": "retriever", "fitted": "fitted to", "difference": "carried less own"},
    )

    return Section("carried", "Thresholds carried over", [text, table])
