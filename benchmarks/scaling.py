"""Hours of a cluster as `longtail plan --measure` says, beside what 1, 2 and 4 processes here take for the same texts.

    .venv/bin/python -m benchmarks.scaling

It works in a project whose outputs are there: its language model reads its documents, in shards, each with another
document before it, as when it scores. Processes start, and open the model, before the clock does. More processes than
cores are planned as that many cores. The last column is to be within 25 % of 1.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

from pipelines import params_file, pool
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import open_lm
from pipelines.lsr import plan, speed
from pipelines.lsr.cluster_plan import Part

PROCESSES = (1, 2, 4)
SHARDS, PASSES = 16, 8  # a shard reads the same 64 texts so many times


@cache
def opened():
    params = plan.read(params_file.read())
    lm = open_lm(speed.MODELS / "lm" / params.lms[0], params.lm[params.lms[0]], params.compute)
    texts = speed._texts(params)
    prompts = [Prompt(context, document + "\n") for context, document in zip(texts, texts[::-1], strict=True)]
    return lm, prompts, [text[: len(text) // 2] for text in texts]


def read(meeting: Path, processes: int, passes: int) -> None:
    """Read the texts so many times; without any, only open the model, and wait for the other processes."""
    lm, prompts, continuations = opened()
    (meeting / str(os.getpid())).touch()
    while not passes and len(list(meeting.iterdir())) < processes:
        time.sleep(0.05)
    for _ in range(passes):
        lm.score(prompts, continuations)


def took(params: SimpleNamespace, processes: int) -> float:
    compute = params.compute.model_copy(update={"workers": processes, "executor": "local"})
    with tempfile.TemporaryDirectory() as meeting, pool.processes(compute) as executor:
        work = partial(read, Path(meeting), processes)
        if executor is None:
            work(0)
            started = time.monotonic()
            for _ in range(SHARDS):
                work(PASSES)
            return time.monotonic() - started
        for future in [executor.submit(work, 0) for _ in range(processes)]:
            future.result()
        started = time.monotonic()
        for future in [executor.submit(work, PASSES) for _ in range(SHARDS)]:
            future.result()
        return time.monotonic() - started


def main() -> None:
    params = plan.read(params_file.read())
    lm, prompts, continuations = opened()
    texts = [p.document + p.context + c for p, c in zip(prompts, continuations, strict=True)]
    encodings = lm.tokenizer.backend_tokenizer.encode_batch(texts)
    tokens = SHARDS * PASSES * sum(min(len(encoding.ids), lm.max_tokens) for encoding in encodings)
    shape, taken_for = speed.shape_of(
        speed.MODELS / "lm" / params.lms[0], params.lm[params.lms[0]], speed.GPT2_XL, params.made
    )
    part = Part("scores", tokens / speed.of_language_model(params, shape, taken_for).tokens)
    print("| processes | planned, s | measured, s | planned / measured |\n|---|---|---|---|")
    for processes in PROCESSES:
        planned = part.seconds(min(processes, len(os.sched_getaffinity(0))))
        measured = took(params, processes)
        print(f"| {processes} | {planned:.1f} | {measured:.1f} | {planned / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()
