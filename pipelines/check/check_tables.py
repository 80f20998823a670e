"""Stage `check`: measure the tables that conf/expectations.yaml names.

Writes data/check/measures.parquet, a row for each value with its bounds, and whether it holds as
far as one month shows. A value that does not hold stops no stage: the flow's gate stops the release
of the month (flows/gate.py), which also compares it with earlier runs.
"""

from pathlib import Path

import pyarrow.compute as pc

from pipelines.check.expectations import FILE, read_expectations
from pipelines.check.table_measures import measure_tables
from pipelines.params.param_types import Section
from pipelines.params.params import Ingest
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.work import stage

DATA = Path("data")
OUT = DATA / "check"
MEASURES = OUT / "measures.parquet"


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    ingest: Ingest


def check_tables(settings: Settings) -> stage.Metrics:
    """Write the stage's folder; returns how many values were measured, and how many do not hold.

    Raises LongtailError where conf/expectations.yaml is wrong, or a table is damaged.
    """
    measures = measure_tables(read_expectations(FILE), DATA, settings.ingest.memory_gb)
    with atomic(OUT) as folder:
        folder.mkdir()
        parquet.write_parquet(measures, folder / MEASURES.name)

    holding = pc.sum(measures["holds"]).as_py() or 0
    return {"measured": measures.num_rows, "unmet": measures.num_rows - holding}


if __name__ == "__main__":
    stage.run("check", Settings, check_tables, out=str(OUT))
