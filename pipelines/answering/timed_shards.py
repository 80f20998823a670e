"""Work on questions in shards that are kept, with the seconds that a question took."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.storage import parquet
from pipelines.work import workers


class Steps(NamedTuple):
    """What is done with each shard, a slice of the questions.

    Only `work` needs the model. It is a module's function where there is a model, as it runs in
    the model's process.
    """

    read: Callable[[slice], Any]  # shard -> the input of its work
    work: Callable[[Any, Any], Any]  # model, input -> result
    rows: Callable[[slice, Any], pa.Table]  # shard, result -> the shard's rows
    length: Callable[[Any], int]  # input -> the number of characters in its texts


class Timed(NamedTuple):
    """What some work gave, and how long it took."""

    result: Any
    seconds: float


def map_shards(
    model: Any,
    name: str,
    key: str,
    *,
    n_questions: int,
    at_once: int,
    steps: Steps,
    schema: pa.Schema,
    unit: str,
) -> tuple[pa.Table, float]:
    """The rows of all questions, and the mean seconds of a question.

    The work is done in shards of `at_once` questions. A second call goes on from the shards that a
    first one finished under the same name and key, in whichever run and on which machine.
    """
    starts = range(0, n_questions, at_once)
    shards = [slice(start, min(start + at_once, n_questions)) for start in starts]

    def write(shard: slice, timed: Timed, path: Path) -> None:
        table = steps.rows(shard, timed.result)
        seconds = {"seconds": str(timed.seconds)}
        parquet.write_parquet(table.replace_schema_metadata(seconds), path)

    work = partial(_time, steps.work)
    sizes = [shard.stop - shard.start for shard in shards]
    shard_steps = workers.Steps(steps.read, work, write, steps.length)
    files = workers.map_texts(model, name, key, shards, shard_steps, sizes=sizes, unit=unit)

    tables = [schema.empty_table()]
    all_seconds = 0.0
    for file in files:
        tables.append(parquet.read_parquet(file, schema=schema))
        all_seconds += float(parquet.schema_of(file).metadata[b"seconds"])
    return pa.concat_tables(tables), all_seconds / max(1, n_questions)


def _time(work: Callable[[Any, Any], Any], model: Any, task: Any) -> Timed:
    """What `work` gives for a task. On a server tasks overlap, and each counts with its share."""
    started = time.monotonic()
    result = work(model, task)
    ended = time.monotonic()
    seconds = ended - started
    if hasattr(model, "took"):
        seconds = model.took(started, ended)
    return Timed(result, seconds)
