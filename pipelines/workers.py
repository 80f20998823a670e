"""A model at work in many processes: texts go to a worker, arrays come back, and this process writes the files.

A worker opens a model once and keeps it for the shards that follow. It needs no file of the project, so the workers of
a Dask cluster may have no disk in common with this machine. A shard is always computed as a whole, by one worker, with
the same number of threads, so the bytes don't depend on which worker did it. Little work is done in this process: a
worker that starts has to import torch first.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pipelines import params, progress, sending, shards
from pipelines.pool import processes, visible_gpus

WORTH = {"cpu": 4e12, "cuda": 1e15}  # floating-point operations, some 20 seconds: less is not worth a worker
BYTES_PER_TOKEN = 4  # of a text, to estimate the work
MEMORY = 0.8  # share of the free memory that models may take
NOTED = "on "  # begins the names of files that say on what kind of device shards were computed
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
    in_memory: bool = False  # whether `read` opens no file: then all tasks are measured, and the longest begin first


class Done(NamedTuple):
    """What a worker gives back: the result, and the kind of device that computed it."""

    result: Any
    device: str


class Lacking(NamedTuple):
    """What a cluster's worker gives back that was not sent the model's files, as it came late."""

    address: str


class Workers:
    """A model in the processes that `compute` asks for: opened in this one for little work, else in each worker.

    A context manager: the workers end with its block.
    """

    def __init__(self, model: Model, compute: params.Compute, opened: Any = None) -> None:
        """`opened` is the model where this process has opened it already."""
        self.model, self._compute = model, compute
        self._stack, self._here, self._pool = ExitStack(), opened, None
        self._sent, self._key = model, ""  # as workers are told

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)

    def here(self) -> Any:
        """The model, open in this process."""
        if self._here is None:
            self._here = self.model.open(self.model.folder, *self.model.settings)
        return self._here

    def map(
        self,
        stage: str,
        key: str,
        tasks: Sequence[Any],
        steps: Steps,
        *,
        sizes: Sequence[int] = (),
        unit: str = "shard",
    ) -> list[Path]:
        """See `map_texts`."""
        sizes = sizes or [1] * len(tasks)
        if not tasks or not self._start(stage, tasks[0], steps, sum(sizes) / max(sizes[0], 1)):
            return _map_here(self.here, stage, key, tasks, steps, sizes, unit)
        folder, done = shards.begun(stage, key)
        paths = [folder / f"{i:06d}" for i in range(len(tasks))]
        todo = [i for i, path in enumerate(paths) if path.name not in done]
        lengths = {i: steps.length(steps.read(tasks[i])) if steps.in_memory else sizes[i] for i in todo}
        todo.sort(key=lambda i: (-lengths[i], i))
        waiting, before = deque(todo), sum(sizes) - sum(sizes[i] for i in todo)
        with progress.bar(stage, sum(sizes), unit, before) as bar:

            def submit(i: int) -> Future:
                return self._pool.submit(do_in_worker, self._sent, self._key, steps.work, steps.read(tasks[i]))

            for i, future in shards.in_parallel(waiting, submit, AHEAD * self._pool.workers):
                answer = shards.result_of(future, stage, i, f"{sizes[i]} {unit}s")
                if isinstance(answer, Lacking):  # a worker that came late
                    self._pool.bring(self._sent.folder, self._key, [answer.address])
                    waiting.appendleft(i)
                    continue
                with shards.atomic(paths[i], keep=True) as temporary:
                    steps.write(tasks[i], answer.result, temporary)
                _note(folder, answer.device)
                bar.update(sizes[i])
        return paths

    def _start(self, stage: str, first: Any, steps: Steps, times: float) -> bool:
        """Whether the work goes to workers, which then are ready: work like that on the `first` task, so many `times`.

        That depends on the inputs and the params, and on the machine where its memory or its GPUs are too few.
        """
        if self._pool is not None:
            return True
        compute = self._compute
        if compute.executor == "local" and compute.workers == 1:
            return False
        tokens = steps.length(steps.read(first)) * times / BYTES_PER_TOKEN
        worth = int(2.0 * self.model.parameters * tokens / WORTH[compute.device])
        if compute.executor == "local":
            most, reason = min(compute.workers, worth), ""
            for bound, name in ((self._fitting(), "memory for more"), (self._gpus(), "more GPUs")):
                if bound < most:
                    most, reason = bound, f", no {name}"
            if most < 2:
                if reason:
                    print(f"{stage}: this process alone opens {self.model.folder}{reason}", flush=True)
                return False
        elif worth < 1 and compute.device == "cpu":
            return False
        else:
            most, reason = None, ""
        self._here = None  # its memory is for the workers
        self._pool = self._stack.enter_context(processes(compute, most, project=False))
        self._sent = self.model._replace(folder=Path(self.model.folder).absolute())
        self._key = shards.key_of(self._sent.folder) if compute.executor == "dask" else ""
        self._pool.bring(self._sent.folder, self._key)
        each = f"{self.model.bytes / 1e9:.1f} GB each"
        print(f"{stage}: {self._pool.workers} workers open {self.model.folder}, {each}{reason}", flush=True)
        return True

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

    `sizes` says how many of `unit` each task has: those with most begin first, or with `steps.in_memory` those with the
    longest texts. At most AHEAD tasks for each worker are in memory.
    """
    if isinstance(model, Workers):
        return model.map(stage, key, tasks, steps, sizes=sizes, unit=unit)
    return _map_here(lambda: model, stage, key, tasks, steps, sizes, unit)


def _map_here(
    model: Callable[[], Any],
    stage: str,
    key: str,
    tasks: Sequence[Any],
    steps: Steps,
    sizes: Sequence[int],
    unit: str,
) -> list[Path]:
    folder, _ = shards.begun(stage, key)

    def do(task: Any, path: Path) -> None:
        opened = model()
        steps.write(task, steps.work(opened, steps.read(task)), path)
        if hasattr(opened, "device"):  # not that of a server, which is not known
            _note(folder, device_kind())

    return shards.map_shards(stage, key, do, tasks, sizes=sizes, unit=unit)


def _note(folder: Path, device: str) -> None:
    """Remember, beside a stage's unfinished shards, on what kind of device one of them was computed."""
    (folder / f"{NOTED}{device.replace('/', ' ')}").touch()


def metadata(stage: str, key: str) -> dict[str, str]:
    """For a table made of these shards: the kinds of device they were computed on, unless that is one kind of CPU."""
    _, names = shards.begun(stage, key)
    kinds = sorted(name.removeprefix(NOTED) for name in names if name.startswith(NOTED))
    return {"computed_on": ", ".join(kinds)} if len(kinds) > 1 or not all(map(_is_cpu, kinds)) else {}


def _is_cpu(kind: str) -> bool:
    return kind.startswith("CPU ")


_one_at_a_time = threading.Lock()  # a worker of a cluster may have several threads, a model's passes want one
_opened: dict[tuple, Any] = {}  # in a worker: the last model, by all that it was opened with


def do_in_worker(model: Model, key: str, work: Callable[[Any, Any], Any], task: Any) -> Done | Lacking:
    """`work(model, task)` with the model that this process opened for an earlier task, or opens now.

    With a `key`, this is a worker of a cluster, and the model's folder is where `sending.place` says.
    """
    with _one_at_a_time:
        identity = (model.open.__module__, model.open.__qualname__, str(model.folder), repr(model.settings), key)
        if identity not in _opened:
            folder = model.folder
            if key:
                from distributed import get_worker

                folder = sending.place(folder, key, get_worker().local_directory)
                if folder is None:
                    return Lacking(get_worker().address)
            _opened.clear()  # first, as both may not fit into memory
            _opened[identity] = model.open(folder, *model.settings)
        return Done(work(_opened[identity], task), device_kind())


def device_kind() -> str:
    """What computes in this process, as it decides last digits: a GPU's name, or the CPU's vector instructions."""
    torch = sys.modules.get("torch")
    if torch is None:
        return f"CPU {os.uname().machine}"
    if torch.cuda.is_initialized():
        return torch.cuda.get_device_name()
    return f"CPU {torch.backends.cpu.get_cpu_capability()}"
