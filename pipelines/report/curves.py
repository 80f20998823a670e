"""Figures by popularity, which several sections show: their rows and axes."""

from collections.abc import Sequence

from pipelines.pages.section import Axis, Row
from pipelines.report.run_tables import Tables

BANDS = "Bands are 95 % intervals."
VIEWS = Axis("median monthly page views (log scale)", log=True)
ACCURACY = Axis("accuracy, %")
IN_DRAWN_SETS = "list_contains($drawn_sets, dataset)"  # a condition on rows


def with_views(rows: Sequence[Row]) -> list[Row]:
    """The rows with `views`, their place on a log axis: popularity, and 1 instead of 0."""
    return [{**row, "views": max(row["popularity"], 1)} for row in rows]


def rows_by_popularity(tables: Tables, where: str = "true") -> list[Row]:
    """Accuracy and gain by decile of popularity of methods that read one passage at most."""
    condition = f"method NOT LIKE 'replug%' AND ({where})"
    return with_views(tables.answered("accuracy_by_popularity", condition))
