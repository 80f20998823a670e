"""A model at work in many processes: texts go to a worker, arrays come back, and this process writes the files.

A worker opens a model once and keeps it for the shards that follow. A shard is always computed as a whole, by one
worker, with the same number of threads, so the bytes don't depend on which worker did it. Little work is done in this
process: a worker that starts has to import torch first.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pipelines import progress
from pipelines.params import params
from pipelines.storage import shards
from pipelines.work.pool import processes, visible_gpus

WORTH = {"cpu": 4e12, "cuda": 1e15}  # floating-point operations, some 20 seconds: less is not worth a worker
BYTES_PER_TOKEN = 4  # of a text, to estimate the work
MEMORY = 0.8  # share of the free memory that models may take
AHEAD = 2  # shards begun or waiting, for each worker


class Model(NamedTuple):
    """How a process opens a model: `open(folder, *settings)`. The function is a module's, the settings print alike."""

    open: Callable[..., Any]
    folder: Path
    settings: tuple
    parameters: int  # weights, which say what a token costs
    bytes: int  # of memory, once it is open


class Steps(NamedTuple):
    """What is done with each task: `write(task, work(model, read(task)), path)`. Only `work` needs the model."""

    read: Callable[[Any], Any]  # task -> what goes to a worker
    work: Callable[[Any, Any], Any]  # a module's function of the model and what was read; runs where the model is
    write: Callable[[Any, Any, Path], None]  # writes what `work` gave for a task to a file
    length: Callable[[Any], int]  # how many characters of text there are in what was read


class Workers:
    """A model in the processes that `compute` asks for: opened in this one for little work, else in each worker.

    A context manager: the workers end with its block.
    """

    def __init__(self, model: Model, compute: params.Compute, opened: Any = None) -> None:
        """`opened` is the model where this process has opened it already."""
        self.model, self._compute = model, compute
        self._stack, self._here, self._pool = ExitStack(), opened, None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)

    def here(self) -> Any:
        """The model, open in this process."""
        if self._here is None:
            self._here = self.model.open(self.model.folder, *self.model.settings)
        return self._here

    def start(self, stage: str, first: Any, steps: Steps, times: float) -> Executor | None:
        """The workers for work like that on the `first` task, so many `times`; None: this process does it.

        That depends on the inputs and the params, and on the machine where its memory or its GPUs are too few.
        """
        compute = self._compute
        if self._pool is not None or (compute.executor, compute.workers) == ("local", 1):
            return self._pool
        tokens = steps.length(steps.read(first)) * times / BYTES_PER_TOKEN
        worth = int(2.0 * self.model.parameters * tokens / WORTH[compute.device])
        most, reason = worth, ""
        if compute.executor == "local":
            most = min(compute.workers, worth)
            for bound, name in ((self._fitting(), "memory for more"), (self._gpus(), "more GPUs")):
                if bound < most:
                    most, reason = bound, f", no {name}"
            if most < 2:
                if reason:
                    print(f"{stage}: this process alone opens {self.model.folder}{reason}", flush=True)
                return None
        elif worth < 1 and compute.device == "cpu":
            return None
        self._here = None  # its memory is for the workers
        self._pool = self._stack.enter_context(processes(compute, most, gpu=compute.device == "cuda"))
        each = f"{self.model.bytes / 1e9:.1f} GB each"
        print(f"{stage}: {self._pool.workers} workers open {self.model.folder}, {each}{reason}", flush=True)
        return self._pool

    def _fitting(self) -> int:
        """How many copies of the model fit into this machine's free memory."""
        if self._compute.device == "cuda":
            return sys.maxsize
        return int(MEMORY * psutil.virtual_memory().available / max(self.model.bytes, 1))

    def _gpus(self) -> int:
        """How many GPUs hold a copy of the model each: none where it takes several."""
        if self._compute.device == "cpu":
            return sys.maxsize
        import torch

        count = torch.cuda.device_count()
        smallest = min((torch.cuda.get_device_properties(i).total_memory for i in range(count)), default=0)
        return len(visible_gpus()) if self.model.bytes < MEMORY * smallest else 1


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
    """`shards.map_shards` for work with a model, which is open in this process, or is that of `Workers`.

    `sizes` says how many of `unit` each task has: those with most begin first. At most AHEAD tasks for each worker are
    in memory.
    """
    sizes = sizes or [1] * len(tasks)
    several = isinstance(model, Workers)
    pool = model.start(stage, tasks[0], steps, sum(sizes) / max(sizes[0], 1)) if several and tasks else None
    if pool is None:

        def do(task: Any, path: Path) -> None:
            opened = model.here() if several else model
            steps.write(task, steps.work(opened, steps.read(task)), path)

        return shards.map_shards(stage, key, do, tasks, sizes=sizes, unit=unit)
    folder, done = shards.begun(stage, key)
    paths = [folder / f"{i:06d}" for i in range(len(tasks))]
    todo = [i for i, path in enumerate(paths) if path.name not in done]
    before, state = sum(sizes) - sum(sizes[i] for i in todo), _state(model.model.folder)

    def submit(i: int) -> Future:
        return pool.submit(do_in_worker, model.model, state, steps.work, steps.read(tasks[i]))

    waiting = deque(sorted(todo, key=lambda i: (-sizes[i], i)))
    with progress.bar(stage, sum(sizes), unit, before) as bar:
        for i, future in shards.in_parallel(waiting, submit, AHEAD * pool.workers):
            with shards.atomic(paths[i], keep=True) as temporary:
                steps.write(tasks[i], future.result(), temporary)
            bar.update(sizes[i])
    return paths


def _state(folder: Path) -> str:
    """The names, sizes and times of a model's files: a worker that lives on opens the model anew when they change."""
    files = sorted(file for file in Path(folder).rglob("*") if file.is_file())
    return shards.key_of([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files])


_one_at_a_time = threading.Lock()  # a worker of a cluster may have several threads, a model's passes want one
_opened: dict[tuple, Any] = {}  # in a worker: the last model, by all that it was opened with


def do_in_worker(model: Model, state: str, work: Callable[[Any, Any], Any], task: Any) -> Any:
    """`work(model, task)` with the model that this process opened for an earlier task, or opens now."""
    with _one_at_a_time:
        folder = str(Path(model.folder).absolute())
        identity = (model.open.__module__, model.open.__qualname__, folder, repr(model.settings), state)
        if identity not in _opened:
            _opened.clear()  # first, as both may not fit into memory
            _opened[identity] = model.open(model.folder, *model.settings)
        return work(_opened[identity], task)
