"""The workers that shards are mapped over: processes here or a Dask cluster's. The choice never changes a result."""

from __future__ import annotations

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

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage.atomic import scratch_folder, sweep

PATIENCE = 10  # seconds that a Dask scheduler has to answer in, and then its workers
ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "GOMP_SPINCOUNT",
    "TOKENIZERS_PARALLELISM",
)  # variables that workers get


@contextmanager
def processes(
    compute: params.Compute, most: int | None = None, *, gpu: bool = False
) -> Iterator[_Processes | _Cluster | None]:
    """Yield the executor that `compute` asks for, of at most `most` processes here; None: work in this process.

    With `gpu`, work goes to a cluster's workers that have the resource GPU, if there are such. An error stops what has
    not begun. Raises LongtailError for a cluster that can't be used, and where workers died.
    """
    workers = compute.workers if most is None else min(compute.workers, max(most, 1))
    if compute.executor == "dask":
        pool = _Cluster(compute.dask, gpu)
    elif workers > 1:
        pool = _Processes(workers, visible_gpus() if compute.device == "cuda" else [])
    else:
        yield None
        return
    try:
        yield pool
    except BrokenExecutor:
        died = (
            "a worker process died (out of memory?); run again to go on, with fewer compute.workers"
        )
        raise LongtailError(died) from None
    except CancelledError:
        raise LongtailError("lost the scheduler of compute.dask; run again to go on") from None
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # Dask's, which may not be installed
            raise
        died = f"died, {error.allowed_failures + 1} times, last {error.last_worker.address} (out of memory?)"
        raise LongtailError(
            f"the Dask workers that had a shard {died}; give workers more memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


class _Processes(ProcessPoolExecutor):
    """Processes of this machine; if there are several `gpus`, each process sees one of them, in turn."""

    def __init__(self, workers: int, gpus: Sequence[str]) -> None:
        # Spawned, not forked: this process may hold threads of DuckDB or a tokenizer, and their locks.
        self.workers, context = workers, multiprocessing.get_context("spawn")
        gpu_of_process = context.SimpleQueue()
        for number in range(workers):
            gpu_of_process.put(gpus[number % len(gpus)] if len(gpus) > 1 else None)
        super().__init__(workers, context, initializer=_begin, initargs=(gpu_of_process,))


def visible_gpus() -> list[str]:
    """The GPUs that torch may use in this process, as CUDA_VISIBLE_DEVICES names them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _begin(gpu_of_process: multiprocessing.SimpleQueue) -> None:
    """Let a process see its GPU alone, and end with its parent: it would wait for work for ever."""
    if (gpu := gpu_of_process.get()) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    parent = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Cluster(Executor):
    """The workers of a Dask scheduler, which gives the shards of lost ones to others; one cluster, one project."""

    def __init__(self, address: str, gpu: bool) -> None:
        self._client = _connect(address)
        declared = [
            worker.get("resources", {})
            for worker in self._client.scheduler_info(-1)["workers"].values()
        ]
        able = sum("GPU" in names for names in declared) if gpu else 0
        self.workers = able or sum(self._client.nthreads().values())
        # pure: a shard done again would be taken as done
        self._executor = self._client.get_executor(
            pure=False, **({"resources": {"GPU": 1}} if able else {})
        )
        self._holder = scratch_folder()
        probe = Path(self._holder.name, "probe")
        probe.touch()
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._home = (
            os.getcwd(),
            str(probe),
            _code(),
            environment,
        )  # what makes a worker like a process of this one
        answers = self._client.run(_greet, *self._home, on_error="return").values()
        # a connection's end is an OSError; the scheduler soon knows which worker is gone
        if errors := [
            one for one in answers if isinstance(one, Exception) and not isinstance(one, OSError)
        ]:
            self.shutdown(cancel_futures=True)
            raise LongtailError(
                f"compute.dask: a worker of {address} can't run Longtail: {errors[0]}"
            )

    def submit(self, work: Callable, /, *args: Any) -> Future:
        return self._executor.submit(_at_home, self._home, work, args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait and not cancel_futures)
        self._client.close()
        self._holder.cleanup()


def _connect(address: str):
    try:
        from distributed import Client
    except ImportError:
        raise LongtailError(
            "compute.executor: dask needs a package; `pip install 'longtail[dask]'`"
        ) from None
    logging.getLogger("distributed.client").setLevel(
        logging.CRITICAL
    )  # tracebacks of what comes as one line
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (
        OSError,
        ValueError,
        TypeError,
    ) as error:  # TypeError: tls:// without Dask's settings of certificates
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise LongtailError(
            f"compute.dask: no scheduler answers at {address} ({said}); start one there"
        ) from None
    try:
        client.wait_for_workers(1, PATIENCE)
    except TimeoutError:
        client.close()
        raise LongtailError(
            f"compute.dask: the scheduler at {address} has no workers; start some"
        ) from None
    return client


def _greet(*home: Any) -> None:
    """Check a worker before any shard, and remove what workers that were lost left on its machine."""
    _enter(*home)
    sweep()


def _at_home(home: tuple, work: Callable, args: tuple) -> Any:
    _enter(*home)
    return work(*args)


def _enter(folder: str, probe: str, code: str, environment: dict[str, str]) -> None:
    """Be in the project's folder, which has a file `probe`; each time, as a worker may come late or serve others."""
    try:
        os.chdir(folder)
        Path(probe).stat()
    except OSError:
        where = f"{folder}: not the same folder on {platform.node()}, where a Dask worker runs"
        shared = "a file system that all machines share; put the project on one, under the same path everywhere"
        raise LongtailError(f"{where}, expected {shared}") from None
    if _code() != code:
        said = (
            f"the Dask worker on {platform.node()} runs another version of Longtail or of a package"
        )
        raise LongtailError(f"{said}; install the same, and start the workers again")
    os.environ.update(environment)


@cache
def _code() -> str:
    """The code and packages that this process runs: as it first saw them, as a worker may have lived for weeks."""
    needed = {
        re.match(r"[\w.-]+", one)[0].lower()
        for one in requires("longtail")
        if "extra ==" not in one
    }
    found = {
        one.name.lower(): one.version.split("+")[0] for one in distributions()
    }  # no +cpu: torch makes no shards
    versions = [sys.version_info[:2], sorted((name, found.get(name)) for name in needed)]
    digest = hashlib.blake2b(repr(versions).encode(), digest_size=8)
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
