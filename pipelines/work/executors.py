"""Open the workers that shards are mapped over: processes here, or those of a Dask cluster.

The choice never changes a result.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import multiprocessing
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions, requires
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from pipelines import OBJECTS_PER_LOOK, redaction
from pipelines.errors import LongtailError, one_line
from pipelines.params import params
from pipelines.storage.atomic import scratch_folder, sweep

PATIENCE_SECONDS = 10  # for a Dask scheduler to answer, and then for its workers
# Variables of the environment that workers get.
ENVIRONMENT = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "TOKENIZERS_PARALLELISM")


@contextmanager
def processes(
    compute: params.Compute, most: int | None = None, *, gpu: bool = False
) -> Iterator[_Processes | _Cluster | None]:
    """Yield the executor that `compute` asks for; None if all work is for this process.

    It has at most `most` processes here. With `gpu`, work goes to a cluster's workers that have the
    resource GPU, if there are such. An error stops what has not begun. Raises LongtailError for a
    cluster that can't be used, and where workers died.
    """
    workers = compute.workers
    if most is not None:
        workers = min(workers, max(most, 1))

    pool: _Processes | _Cluster
    if compute.dask:
        pool = _Cluster(compute.dask, gpu)
    elif workers > 1:
        gpus = visible_gpus() if compute.device == "cuda" else []
        pool = _Processes(workers, gpus)
    else:
        yield None
        return
    try:
        yield pool
    except BrokenExecutor:
        raise LongtailError(
            "a worker process died (out of memory?); run again to go on, with fewer compute.workers"
        ) from None
    except CancelledError:
        raise LongtailError("lost the scheduler of compute.dask; run again to go on") from None
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # Dask's, which may not be installed
            raise
        times = error.allowed_failures + 1
        raise LongtailError(
            f"the Dask workers that had a shard died, {times} times, last "
            f"{error.last_worker.address} (out of memory?); give workers more memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


class _Processes(ProcessPoolExecutor):
    """Processes of this machine. If there are several `gpus`, each sees one of them, in turn."""

    def __init__(self, workers: int, gpus: Sequence[str]) -> None:
        self.workers = workers
        # Spawned, not forked: this process may hold threads of DuckDB or a tokenizer, with locks.
        context = multiprocessing.get_context("spawn")
        gpu_of_process = context.SimpleQueue()
        for number in range(workers):
            gpu = gpus[number % len(gpus)] if len(gpus) > 1 else None
            gpu_of_process.put(gpu)
        super().__init__(workers, context, initializer=_begin, initargs=(gpu_of_process,))


def visible_gpus() -> list[str]:
    """The GPUs that torch may use in this process, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _begin(gpu_of_process: multiprocessing.SimpleQueue) -> None:
    """Limit this process to one GPU, and end it when its parent dies.

    Without that, it would wait for work for ever. As in a stage, Python seldom looks for unused
    objects.
    """
    gc.set_threshold(OBJECTS_PER_LOOK)
    gpu = gpu_of_process.get()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    redaction.guard()
    parent = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Cluster(Executor):
    """The workers of a Dask scheduler, which gives the shards of lost ones to others."""

    def __init__(self, address: str, gpu: bool) -> None:
        self._client = _connect(address)
        workers = self._client.scheduler_info(-1)["workers"].values()
        n_with_gpu = 0
        if gpu:
            n_with_gpu = sum("GPU" in worker.get("resources", {}) for worker in workers)
        self.workers = n_with_gpu or sum(self._client.nthreads().values())
        options = {"resources": {"GPU": 1}} if n_with_gpu else {}
        # Not pure: Dask would take a shard that is done again as done.
        self._executor = self._client.get_executor(pure=False, **options)

        self._scratch = scratch_folder()
        probe = Path(self._scratch.name, "probe")
        probe.touch()
        # What makes a worker like a process of this one, see `_enter`.
        self._home = {
            "folder": os.getcwd(),
            "probe": str(probe),
            "code": _code(),
            "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        }
        answers = self._client.run(_greet, on_error="return", **self._home).values()
        for answer in answers:
            # An OSError is a connection's end. The scheduler soon knows which worker is gone.
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                self.shutdown(cancel_futures=True)
                raise LongtailError(
                    f"compute.dask: a worker of {address} can't run Longtail: {answer}"
                )

    def submit(self, work: Callable, /, *args: Any) -> Future:
        return self._executor.submit(_at_home, self._home, work, args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait and not cancel_futures)
        self._client.close()
        self._scratch.cleanup()


def _connect(address: str):
    """Dask's client of a scheduler that has workers."""
    try:
        from distributed import Client
    except ImportError:
        raise LongtailError(
            "compute.dask needs a package; `pip install -e '.[dask]'` in Longtail's checkout"
        ) from None
    # Dask would write tracebacks of errors that come as one line here.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        # A TypeError comes of tls:// without Dask's settings of certificates.
        raise LongtailError(
            f"compute.dask: no scheduler answers at {address} ({type(error).__name__}: "
            f"{one_line(error)}); start one there"
        ) from None
    try:
        client.wait_for_workers(1, PATIENCE_SECONDS)
    except TimeoutError:
        client.close()
        raise LongtailError(
            f"compute.dask: the scheduler at {address} has no workers; start some"
        ) from None
    return client


def _greet(**home: Any) -> None:
    """Check a worker before any shard, and remove what lost workers left on its machine."""
    _enter(**home)
    sweep()


def _at_home(home: dict[str, Any], work: Callable, args: tuple) -> Any:
    _enter(**home)
    return work(*args)


def _enter(folder: str, probe: str, code: str, environment: dict[str, str]) -> None:
    """Make a worker like a process of the project, whose `folder` has the file `probe`.

    This is done for each shard, because a worker may come late or serve other projects.
    """
    machine = platform.node()
    try:
        os.chdir(folder)
        Path(probe).stat()
    except OSError:
        raise LongtailError(
            f"{folder}: not the same folder on {machine}, where a Dask worker runs, expected "
            "a file system that all machines share; put the project on one, under the same path "
            "everywhere"
        ) from None
    if _code() != code:
        raise LongtailError(
            f"the Dask worker on {machine} runs another version of Longtail or of a package; "
            "install the same, and start the workers again"
        )
    os.environ.update(environment)


@cache
def _code() -> str:
    """A hash of the code and packages that this process runs.

    They are as the process first saw them, because a worker may have lived for weeks.
    """
    needed = set()
    for requirement in requires("longtail") or ():
        if "extra ==" not in requirement:
            needed.add(re.match(r"[\w.-]+", requirement)[0].lower())
    installed = {}
    for package in distributions():
        # Without +cpu or +cu126, because torch makes no shards.
        installed[package.name.lower()] = package.version.split("+")[0]
    packages = sorted((name, installed.get(name)) for name in needed)

    versions = [sys.version_info[:2], packages]
    digest = hashlib.blake2b(repr(versions).encode(), digest_size=8)
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
