"""data/knowledge/triples/entities.parquet, as far as the question sets read it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ENTITIES = pa.schema(
    {
        "qid": pa.string(),
        "label": pa.string(),
        "aliases": pa.list_(pa.string()),
        "wiki_title": pa.string(),
        "popularity": pa.int64(),
    }
)


def write_entities(entities: list[tuple], path: Path) -> None:
    rows = [dict(zip(ENTITIES.names, entity, strict=True)) for entity in entities]
    pq.write_table(pa.Table.from_pylist(rows, schema=ENTITIES), path)
