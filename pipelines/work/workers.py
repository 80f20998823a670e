"""A model at work in many processes: texts go to a worker, arrays come back, and this process writes the files.

A worker opens a model once and keeps it. A shard is computed as a whole, by one worker, with the same number of
threads, so the bytes don't depend on which worker did it. Little work is done in this process: a start imports torch.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pipelines import progress
from pipelines.params import params
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import fingerprint, in_parallel, map_shards, unfinished
from pipelines.work.executors import processes, visible_gpus

WORTH = {
    "cpu": 4e12,
    "cuda": 1e15,
}  # floating-point operations, some 20 seconds: less is not worth a worker
BYTES_PER_TOKEN = 4  # bytes of a text's token, to estimate the work
MEMORY = 0.8  # share of the free memory that models may take
AHEAD = 2  # shards begun or waiting, for each worker
SERVED = 4  # shards that ask a server at the same time: while the last answers of one come, it works for the others
ROUNDS = 4  # a server's shard has as many prompts as so many times all the requests that it gets at the same time


class Model(NamedTuple):
    """How a process opens a model: `open(folder, *settings)`. The function is a module's, the settings print alike."""

    open: Callable[..., Any]
    folder: Path
    settings: tuple
    parameters: int  # weights, which say what a token costs
    bytes: int  # bytes of memory that the open model takes


class Steps(NamedTuple):
    """What is done with each task: `write(task, work(model, read(task)), path)`. Only `work` needs the model."""

    read: Callable[[Any], Any]  # task -> what goes to a worker
    work: Callable[
        [Any, Any], Any
    ]  # a module's function of the model and what was read; runs where the model is
    write: Callable[[Any, Any, Path], None]  # writes what `work` gave for a task to a file
    length: Callable[[Any], int]  # how many characters of text there are in what was read


class Workers(ExitStack):
    """A model in the processes that `compute` asks for, which end with the block; for little work, in this one."""

    def __init__(self, model: Model, compute: params.Compute, opened: Any = None) -> None:
        super().__init__()
        self.model, self._compute, self._here, self._pool = model, compute, opened, None
        self.usage: dict[
            str, float
        ] = {}  # what the model counts, if it does, in all processes together

    def here(self) -> Any:
        """The model, open in this process."""
        if self._here is None:
            self._here = self.model.open(self.model.folder, *self.model.settings)
        return self._here

    def count(self, used: Mapping[str, float]) -> None:
        for name, value in used.items():
            self.usage[name] = self.usage.get(name, 0.0) + value

    def start(self, stage: str, first: Any, steps: Steps, times: float) -> Executor | None:
        """The workers for work like that on the `first` task, so many `times`; None: this process does it."""
        compute = self._compute
        if self._pool is not None or (compute.executor, compute.workers) == ("local", 1):
            return self._pool
        tokens = steps.length(steps.read(first)) * times / BYTES_PER_TOKEN
        most = int(
            2.0 * self.model.parameters * tokens / WORTH[compute.device]
        )  # workers that are worth their start
        reason = ""
        if compute.executor == "local":
            most, copies = min(compute.workers, most), self._copies()
            if copies < most:
                most, reason = (
                    copies,
                    f", no {'memory for more' if compute.device == 'cpu' else 'more GPUs'}",
                )
                if most < 2:
                    print(
                        f"{stage}: this process alone opens {self.model.folder}{reason}", flush=True
                    )
        least = {"local": 2, "dask": 1 if compute.device == "cpu" else 0}[compute.executor]
        if most < least:
            return None
        self._here = None  # its memory is for the workers
        self._pool = self.enter_context(processes(compute, most, gpu=compute.device == "cuda"))
        each = f"{self.model.bytes / 1e9:.1f} GB each"
        print(
            f"{stage}: {self._pool.workers} workers open {self.model.folder}, {each}{reason}",
            flush=True,
        )
        return self._pool

    def _copies(self) -> int:
        if self._compute.device == "cpu":
            return int(MEMORY * psutil.virtual_memory().available / max(self.model.bytes, 1))
        import torch

        memory = [
            torch.cuda.get_device_properties(i).total_memory
            for i in range(torch.cuda.device_count())
        ]
        fits = self.model.bytes < MEMORY * min(
            memory, default=0
        )  # else one process takes several GPUs
        return len(visible_gpus()) if fits else 1


def map_texts(
    model: Workers | Any,
    stage: str,
    key: str,
    tasks: Sequence[Any],
    steps: Steps,
    *,
    sizes: Sequence[int] = (),
    unit: str = "shard",
) -> list[Path]:
    """`map_shards` for work with a model; the tasks with most of `unit` begin first, few at a time."""
    sizes = sizes or [1] * len(tasks)
    if hasattr(model, "side_by_side"):
        return _map_served(model, stage, key, tasks, steps, sizes, unit)
    several = isinstance(model, Workers)
    pool = (
        model.start(stage, tasks[0], steps, sum(sizes) / max(sizes[0], 1))
        if several and tasks
        else None
    )
    if pool is None:

        def do(task: Any, path: Path) -> None:
            result, used = counted(steps.work, model.here() if several else model, steps.read(task))
            if several:
                model.count(used)
            steps.write(task, result, path)

        return map_shards(stage, key, do, tasks, sizes=sizes, unit=unit)
    state = fingerprint(
        model.model.folder
    )  # a worker that lives on opens the model anew when it changes

    def submit(i: int) -> Future:
        return pool.submit(do_in_worker, model.model, state, steps.work, steps.read(tasks[i]))

    with unfinished(stage, key, sizes, unit) as (paths, todo, bar):
        for i, future in in_parallel(
            sorted(todo, key=lambda i: -sizes[i]), submit, AHEAD * pool.workers
        ):
            result, used = future.result()
            model.count(used)
            with atomic(paths[i], keep=True) as temporary:
                steps.write(tasks[i], result, temporary)
            bar.update(sizes[i])
    return paths


def _map_served(
    model: Any,
    stage: str,
    key: str,
    tasks: Sequence[Any],
    steps: Steps,
    sizes: Sequence[int],
    unit: str,
) -> list[Path]:
    """`map_texts` for a model on a server, which gets the requests of SERVED shards together."""

    def ask(task: Any, size: int) -> Any:
        with progress.piece(bar, size):
            return steps.work(model, task)

    with (
        unfinished(stage, key, sizes, unit) as (paths, todo, bar),
        model.side_by_side(SERVED) as pool,
    ):
        submitted = in_parallel(
            todo, lambda i: pool.submit(ask, steps.read(tasks[i]), sizes[i]), AHEAD * SERVED
        )
        for i, future in submitted:
            result = future.result()
            with atomic(paths[i], keep=True) as temporary:
                steps.write(tasks[i], result, temporary)
    return paths


def shard_size(prompts: int, of_question: int, server: params.LMServer | None) -> int:
    """How many questions a shard has: those of so many prompts, on a server of no fewer than ROUNDS of its requests."""
    if server is None:
        return max(1, prompts // of_question)
    return -(-max(prompts, ROUNDS * server.batch_size * server.concurrency) // of_question)


def counted(work: Callable[[Any, Any], Any], model: Any, task: Any) -> tuple[Any, dict[str, float]]:
    """`work(model, task)`, and how far it raised the counts that the model has in its `usage`, if it has any."""
    usage = getattr(model, "usage", {})
    before = dict(usage)
    return work(model, task), {name: value - before[name] for name, value in usage.items()}


_one_at_a_time = (
    threading.Lock()
)  # a worker of a cluster may have several threads, a model's passes want one
_opened: dict[tuple, Any] = {}  # a worker's last model, by everything that it was opened with


def do_in_worker(
    model: Model, state: str, work: Callable[[Any, Any], Any], task: Any
) -> tuple[Any, dict[str, float]]:
    """`counted` with the model that this process opened for an earlier task, or opens now."""
    with _one_at_a_time:
        folder = str(Path(model.folder).absolute())
        identity = (
            model.open.__module__,
            model.open.__qualname__,
            folder,
            repr(model.settings),
            state,
        )
        if identity not in _opened:
            _opened.clear()  # first, as both may not fit into memory
            _opened[identity] = model.open(model.folder, *model.settings)
        return counted(work, _opened[identity], task)
