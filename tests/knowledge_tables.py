"""The tables that stages of pipelines/knowledge/ and pipelines/questions/ read, and their params,
for tests of both.
"""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.params import params

NAMES = pa.schema(
    {
        "qid": pa.int64(),
        "label": pa.string(),
        "aliases": pa.list_(pa.string()),
        "wiki_title": pa.string(),
    }
)
CLAIMS = pa.schema(dict.fromkeys("spo", pa.int64()))
# data/knowledge/triples/entities.parquet, as far as the question sets read it
ENTITIES = NAMES.set(0, pa.field("qid", pa.string())).append(pa.field("popularity", pa.int64()))


def chosen(
    *,
    threads: int = 1,
    workers: int = 1,
    max_share: float = 0.05,
    memory_gb: float = 1.0,
    **sections,
):
    """A stage's params: few threads, in this process unless there are workers, and what the test
    names.
    """
    of_all = {
        "seed": 0,
        "language": "en",
        "contact": None,
        "ingest": params.Ingest(max_reject_share=max_share, memory_gb=memory_gb),
        "compute": params.Compute(threads=threads, workers=workers, dask=None, device="cpu"),
    }
    return SimpleNamespace(**of_all | sections)


def popqa(**given) -> params.PopQA:
    """The params of `popqa`: all triples, unless a test says otherwise."""
    values = {"source": "wikidata", "sampling": "all", "per_relation": 2000}
    return params.PopQA(**values | {"refresh": False, "train_share": 0.25} | given)


def write_rows(rows: Iterable[tuple], schema: pa.Schema, path: Path) -> Path:
    """Write rows, tuples of the columns' values, as a Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [dict(zip(schema.names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(records, schema=schema), path)
    return path
