"""The section of the study `carried`: thresholds that were fitted to another language model's
answers.
"""

from pipelines.pages.section import Row, Section
from pipelines.pages.table_rows import table_of
from pipelines.report.run_tables import Tables


def section(tables: Tables) -> Section:
    rows = tables.rule_rows("carried")
    table = table_of(
        "carried",
        "Held-out accuracy in per cent by a model's own thresholds and by those fitted to another "
        "model's answers, the difference in points, and the shares that retrieve.",
        rows,
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

    return Section("carried", "Thresholds carried over", [table], _leads(rows))


def _leads(rows: list[Row]) -> str:
    if not rows:
        return ""
    signs = [row["difference"].sign for row in rows]
    return (
        "With thresholds fitted to another language model, adaptive retrieval is clearly less "
        f"accurate in {signs.count(-1)} of {len(signs)} cases, and clearly more in "
        f"{signs.count(1)}."
    )
