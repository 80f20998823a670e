"""Scoring in shards, by one process and by two workers: seconds by the clock, without the workers' start.

    .venv/bin/python -m benchmarks.workers_speed

The same shards go to both in turns, and the bytes that come back are compared. Weights are random.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import lm, measure
from benchmarks.measure import Row
from pipelines import params, parquet, shards, workers
from pipelines.lm.open_lm import lm_at_work
from pipelines.scoring import logprobs

WORKERS = 2


def scoring(shape: lm.Shape, n_shards: int, rounds: int) -> Row:
    folder = lm.write_model(shape, Path("lm").absolute(), 1024)
    prompts, continuations = lm.make_pairs(shape, n_shards)
    tasks = [slice(i, i + lm.DOCUMENTS) for i in range(0, len(prompts), lm.DOCUMENTS)]
    settings = dict.fromkeys(("revision", "http", "training", "n_shots"))
    chosen = params.LM(source="pretrained", path=str(folder), dtype="fp32", batch_tokens=4096, chat=False, **settings)
    ids = np.full(lm.DOCUMENTS, "", object)
    steps = workers.Steps(
        read=lambda task: logprobs.Asked(prompts[task], ids, continuations[task]),
        work=logprobs.scored,
        write=lambda _, table, path: parquet.write(table, path),
        length=logprobs.Asked.length,
    )

    def run(model: workers.Workers, key: str, some: list[slice]) -> list[bytes]:
        files = workers.map_texts(model, "benchmark", key, some, steps)
        written = [file.read_bytes() for file in files]
        shards.forget("benchmark", key)
        return written

    with ExitStack() as stack:
        models = [stack.enter_context(lm_at_work(folder, chosen, measure.compute(count))) for count in (1, WORKERS)]
        for model in models:
            run(model, "start", tasks[:WORKERS])
        ways = {str(n): partial(measure.timed, partial(run, model, str(n), tasks)) for n, model in enumerate(models)}
        one, many = measure.best(ways, rounds).values()
    assert one.result == many.result, "other bytes"
    tokens, what = len(prompts) * sum(shape.tokens), f"scoring in shards, {shape.name} shape, fp32, {WORKERS} workers"
    limits = {"limit": f"{WORKERS} times one", "most": WORKERS * tokens / one.wall}
    return measure.row(what, "one process", "tokens", tokens, one, many, wall=True, memory=False, **limits)


def rows(quick: bool = False) -> list[Row]:
    workers.WORTH = {"cpu": 1.0}  # however little there is to do
    with measure.in_folder():
        if quick:
            return [scoring(lm.SHAPES[1], 2, 1)]
        return [scoring(lm.SHAPES[0], 4, 2)]


if __name__ == "__main__":
    measure.main(rows)
