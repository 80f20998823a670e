"""Stage `analyse`, with the studies that have tables in data/analyses."""

from pipelines.evaluation import analyse
from pipelines.studies import (
    controls,
    copying,
    measures,
    rarity,
    seen,
)
from pipelines.with_studies.all_tables import TABLES

STUDIES = analyse.Studies(
    tables=TABLES,
    of_answers=[
        measures,
        seen,
    ],
    of_metrics=[
        controls,
        copying,
        rarity,
    ],
)

if __name__ == "__main__":
    analyse.main(STUDIES)
