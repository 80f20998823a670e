"""Do work with a model in many processes.

Texts go to a worker, arrays come back, and this process writes the files. A worker opens a
model once and keeps it. One worker computes a whole shard, with the same number of threads wherever
it runs, so the bytes don't depend on which worker did it. Little work is done in this process,
because a worker's start imports torch.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pipelines import progress
from pipelines.params import params
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import Unfinished, WorkStore, content_hash, in_parallel
from pipelines.work.ahead import prepared
from pipelines.work.executors import processes, visible_gpus

# Floating-point operations, some 20 seconds of them: less is not worth a worker's start.
OPERATIONS_PER_WORKER = {"cpu": 4e12, "cuda": 1e15}
# Prompts of a shard that a local language model gets, by device. No answer depends on the number. A
# killed run loses an unfinished shard; a GPU works on many prompts at once.
PROMPTS_PER_SHARD = {"cpu": 64, "cuda": 1024}
BYTES_PER_TOKEN = 4  # bytes of a text's token, to estimate the work
MEMORY_SHARE = 0.8  # share of the free memory that models may take
SHARDS_PER_WORKER = 2  # shards begun or waiting, for each worker
SHARDS_AT_SERVER = 4  # shards that ask a server together: while one waits, others go on
ROUNDS = 4  # a server's shard has this many times the prompts that the server gets at once


class Model(NamedTuple):
    """How a process opens a model: `open(folder, *settings)`.

    `open` is a module's function. Settings that print alike are alike.
    """

    open: Callable[..., Any]
    folder: Path
    settings: tuple
    parameters: int  # weights, which say what a token costs
    bytes: int  # bytes of memory that the open model takes


class Steps(NamedTuple):
    """What is done with each task: `write(task, work(model, read(task)), path)`.

    Only `work` needs the model. It is a module's function, and runs where the model is.
    """

    read: Callable[[Any], Any]  # task -> the input, which goes to a worker
    work: Callable[[Any, Any], Any]  # model, input -> result
    write: Callable[[Any, Any, Path], None]  # task, result, path: writes the task's file
    length: Callable[[Any], int]  # input -> the number of characters in its texts


class Workers(ExitStack):
    """A model in the processes that `compute` asks for; for little work, in this process.

    The processes end with the block.
    """

    def __init__(self, model: Model, compute: params.Compute, opened: Any = None) -> None:
        super().__init__()
        self.model = model
        self.usage: dict[str, float] = {}  # what the model counts, summed over all processes
        self._compute = compute
        self._model_here = opened
        self._pool: Executor | None = None

    def here(self) -> Any:
        """The model, open in this process."""
        if self._model_here is None:
            self._model_here = self.model.open(self.model.folder, *self.model.settings)
        return self._model_here

    def count(self, used: Mapping[str, float]) -> None:
        """Add to `usage`."""
        for name, value in used.items():
            self.usage[name] = self.usage.get(name, 0.0) + value

    def start(self, stage: str, first: Any, steps: Steps, times: float) -> Executor | None:
        """The workers for `times` times the work on the `first` task; None if there are none."""
        compute = self._compute
        alone = not compute.dask and compute.workers == 1
        if self._pool is not None or alone:
            return self._pool

        tokens = steps.length(steps.read(first)) * times / BYTES_PER_TOKEN
        operations = 2.0 * self.model.parameters * tokens
        n_workers = int(operations / OPERATIONS_PER_WORKER[compute.device])

        if compute.dask:
            fewest = 1 if compute.device == "cpu" else 0
        else:
            fewest = 2
            n_workers = min(compute.workers, n_workers, self._models_with_room())
        if n_workers < fewest:
            return None

        self._model_here = None  # its memory is for the workers
        self._pool = self.enter_context(processes(compute, n_workers, gpu=compute.device == "cuda"))
        print(
            f"{stage}: {self._pool.workers} workers open {self.model.folder}, "
            f"{self.model.bytes / 1e9:.1f} GB each"
        )
        return self._pool

    def _models_with_room(self) -> int:
        """How many times this machine has room for the model."""
        size = self.model.bytes
        if self._compute.device == "cpu":
            return int(MEMORY_SHARE * psutil.virtual_memory().available / max(size, 1))

        import torch

        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        smallest = min((gpu.total_memory for gpu in gpus), default=0)
        if size < MEMORY_SHARE * smallest:
            return len(visible_gpus())
        return 1  # one process takes several GPUs


class _Shards(NamedTuple):
    """The work of one call of `map_texts`, a file for each task."""

    stage: str
    key: str
    tasks: Sequence[Any]
    steps: Steps
    sizes: Sequence[int]
    unit: str

    def unfinished(self) -> AbstractContextManager[Unfinished]:
        """What is missing, under a progress bar."""
        return WorkStore().unfinished(self.stage, self.key, self.sizes, self.unit)

    def read(self, i: int) -> Any:
        """The input of task i."""
        return self.steps.read(self.tasks[i])

    def write(self, i: int, result: Any, path: Path) -> None:
        """Write the file of task i."""
        with atomic(path, keep=True) as temporary:
            self.steps.write(self.tasks[i], result, temporary)


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
    """`WorkStore.parts` for work with a model.

    In several processes, the tasks with most of `unit` begin first, a few at a time.
    """
    sizes = sizes or [1] * len(tasks)
    shards = _Shards(stage, key, tasks, steps, sizes, unit)
    if hasattr(model, "side_by_side"):
        return _map_served(model, shards)
    if isinstance(model, Workers) and tasks:
        times = sum(sizes) / max(sizes[0], 1)
        pool = model.start(stage, tasks[0], steps, times)
        if pool:
            return _map_in_pool(model, pool, shards)
    return _map_here(model, shards)


def _map_in_pool(model: Workers, pool: Executor, shards: _Shards) -> list[Path]:
    """`map_texts` in the processes of a pool."""
    # A worker that lives on opens the model anew when its files change.
    state = content_hash(model.model.folder)

    def submit(i: int) -> Future:
        return pool.submit(do_in_worker, model.model, state, shards.steps.work, shards.read(i))

    with shards.unfinished() as parts:
        largest_first = sorted(parts.missing, key=lambda i: -shards.sizes[i])
        for i, future in in_parallel(largest_first, submit, SHARDS_PER_WORKER * pool.workers):
            result, used = future.result()
            model.count(used)
            shards.write(i, result, parts.paths[i])
            parts.bar.update(shards.sizes[i])
    return parts.paths


def _map_here(model: Workers | Any, shards: _Shards) -> list[Path]:
    """`map_texts` in this process, for a model that is open here, or that Workers open here."""
    with shards.unfinished() as parts:
        for i, work_input in prepared(parts.missing, shards.read, in_thread=True):
            with progress.piece(parts.bar, shards.sizes[i]):
                if isinstance(model, Workers):
                    result, used = counted(shards.steps.work, model.here(), work_input)
                    model.count(used)
                else:
                    result = shards.steps.work(model, work_input)
                shards.write(i, result, parts.paths[i])
    return parts.paths


def _map_served(model: Any, shards: _Shards) -> list[Path]:
    """`map_texts` for a model on a server, which gets the requests of several shards together."""
    with shards.unfinished() as parts, model.side_by_side(SHARDS_AT_SERVER) as pool:

        def ask(work_input: Any, size: int) -> Any:
            with progress.piece(parts.bar, size):
                return shards.steps.work(model, work_input)

        def submit(i: int) -> Future:
            return pool.submit(ask, shards.read(i), shards.sizes[i])

        at_once = SHARDS_PER_WORKER * SHARDS_AT_SERVER
        for i, future in in_parallel(parts.missing, submit, at_once):
            shards.write(i, future.result(), parts.paths[i])
    return parts.paths


def shard_size(prompts: int, of_question: int, server: params.LMServer | None) -> int:
    """How many questions a shard has, with so many `prompts` and each question's `of_question`.

    On a server, a shard has at least as many prompts as ROUNDS of its requests.
    """
    if server is None:
        return max(1, prompts // of_question)
    prompts_in_rounds = ROUNDS * server.concurrency
    return ceil(max(prompts, prompts_in_rounds) / of_question)


def counted(
    work: Callable[[Any, Any], Any], model: Any, work_input: Any
) -> tuple[Any, dict[str, float]]:
    """`work(model, work_input)`, and how much it added to the counts in the model's `usage`."""
    usage = getattr(model, "usage", {})
    before = dict(usage)
    result = work(model, work_input)
    return result, {name: value - before[name] for name, value in usage.items()}


# A cluster's worker may have several threads, but a model's passes want one.
_model_lock = threading.Lock()
_opened: dict[tuple, Any] = {}  # a worker's last model, by everything that it was opened with


def do_in_worker(
    model: Model, state: str, work: Callable[[Any, Any], Any], work_input: Any
) -> tuple[Any, dict[str, float]]:
    """`counted` with the model that this process opened for an earlier task, or opens now.

    `state` stands for the content of the model's folder.
    """
    with _model_lock:
        folder = str(Path(model.folder).absolute())
        function = (model.open.__module__, model.open.__qualname__)
        identity = (function, folder, repr(model.settings), state)
        if identity not in _opened:
            _opened.clear()  # first, because both may not fit into memory
            _opened[identity] = model.open(model.folder, *model.settings)
        return counted(work, _opened[identity], work_input)
