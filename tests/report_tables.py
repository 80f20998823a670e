"""Tables of a run for the sections of the report, from a few rows."""

from pathlib import Path

from pipelines.evaluation.tables import write_analyses
from pipelines.intervals import NOTHING
from pipelines.report.run_tables import Tables
from pipelines.tables.analyses import BY_NAME
from pipelines.tables.table import INTERVAL


def tables_of(folder: Path, settings, metrics: dict | None = None, **rows: list[dict]) -> Tables:
    """The tables of a run in `folder` with these rows; columns that a row lacks are empty."""
    (folder / "analyses").mkdir(parents=True, exist_ok=True)
    for name, table in BY_NAME.items():
        nothing = {}
        for column in table.columns:
            empty = NOTHING if column.type == INTERVAL else None
            nothing |= dict.fromkeys(column.names, empty)
        filled = [
            {column: (nothing | row)[column] for column in nothing} for row in rows.get(name, [])
        ]
        write_analyses(folder / "analyses", name, filled)
    tables = Tables(folder, settings)
    tables.metrics = metrics or {}
    return tables


def section_of(section, tables: Tables):
    """The section as the page shows it; None where it has no figure and no table."""
    made = section(tables).shown
    return made if made.has_figures else None
