"""Tables of a run for the sections of the report, from a few rows."""

from pathlib import Path

from pipelines.evaluation.tables import TABLES, write_analyses
from pipelines.intervals import NOTHING, Interval
from pipelines.report.run_tables import Tables


def tables_of(folder: Path, settings, metrics: dict | None = None, **rows: list[dict]) -> Tables:
    """The tables of a run in `folder` with these rows; columns that a row lacks are empty."""
    (folder / "analyses").mkdir(parents=True, exist_ok=True)
    for name, kinds in TABLES.items():
        nothing = {column: NOTHING if kind is Interval else None for column, kind in kinds.items()}
        filled = [
            {column: (nothing | row)[column] for column in kinds} for row in rows.get(name, [])
        ]
        write_analyses(folder / "analyses", name, filled)
    tables = Tables(folder, settings)
    tables.metrics = metrics or {}
    return tables


def section_of(section, tables: Tables):
    """The section as the page shows it; None where it has no figure and no table."""
    made = section(tables).without_empty_blocks
    return made if made.has_figures else None
