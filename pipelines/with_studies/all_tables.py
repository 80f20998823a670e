"""The columns of all tables: the papers' (evaluation/tables.py) and the studies'."""

from pipelines.evaluation import tables
from pipelines.studies import (
    controls,
    copying,
    measures,
    rarity,
    seen,
)

STUDIES = [
    controls,
    copying,
    measures,
    rarity,
    seen,
]
TABLES = dict(tables.TABLES)  # in data/analyses: name -> its columns and their types
for _study in STUDIES:
    for _name, _columns in _study.TABLES.items():
        TABLES[_name] = tables.read_columns(_columns)
