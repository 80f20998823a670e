"""Every table of a run, in the order of docs/columns.md and docs/analyses.md."""

from pipelines.tables import analyses, answers, corpora, knowledge, language_modelling, questions
from pipelines.tables.table import Table

TABLES = (
    *knowledge.TABLES,
    *questions.TABLES,
    *corpora.TABLES,
    *language_modelling.TABLES,
    *answers.TABLES,
    *analyses.TABLES,
)


def table_of(file: str) -> Table | None:
    """The declaration of a file below data/; None if it has none of its own."""
    for table in TABLES:
        if table.is_in(file):
            return table
    return None
