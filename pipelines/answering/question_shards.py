"""Work on questions in shards, which are kept until the caller forgets them."""

from typing import Any

import pyarrow as pa

from pipelines.storage import parquet
from pipelines.work import workers


def map_shards(
    model: Any,
    name: str,
    key: str,
    *,
    n_questions: int,
    at_once: int,
    steps: workers.Steps,
    schema: pa.Schema,
    unit: str,
) -> pa.Table:
    """The rows of all questions, by work on shards of `at_once` questions.

    A shard is a slice of the questions, of which the steps write a Parquet file. A second call goes
    on from the shards that a first one finished under the same name and key, in whichever run and
    on which machine.
    """
    starts = range(0, n_questions, at_once)
    shards = [slice(start, min(start + at_once, n_questions)) for start in starts]
    sizes = [shard.stop - shard.start for shard in shards]
    files = workers.map_texts(model, name, key, shards, steps, sizes=sizes, unit=unit)
    tables = [parquet.read_parquet(file, schema=schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables])
