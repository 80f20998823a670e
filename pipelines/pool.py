"""The workers that shards are mapped over, processes here or a Dask cluster's; which of them never changes a result."""

from __future__ import annotations

import hashlib
import io
import logging
import multiprocessing
import os
import pickle
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import distributions, requires
from multiprocessing.connection import wait
from pathlib import Path
from queue import LifoQueue
from typing import Any, NamedTuple

from pipelines import bounds, params, sending, shards
from pipelines.errors import LongtailError, NotShared, WorkerLost

ATTEMPTS = 3  # workers that one shard may cost; a Dask scheduler has its own number (allowed-failures)
PATIENCE = 10  # seconds that a Dask scheduler has to answer in, and then its workers
ENVIRONMENT = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "TOKENIZERS_PARALLELISM", *bounds.ENVIRONMENT)  # for workers


class Pool(Executor):
    workers: int  # that work side by side

    def bring(self, folder: Path, key: str, to: Sequence[str] | None = None) -> None:
        """Have workers, all or those of the addresses `to`, see the folder's files, of which `key` is the hash."""


@contextmanager
def processes(compute: params.Compute, most: int | None = None, *, project: bool = True) -> Iterator[Pool | None]:
    """Yield the executor that `compute` asks for, of at most `most` processes here; None: work in this process.

    Without `project`, a cluster's workers need not see the project's folder: what they work on comes with the call,
    and goes to workers with the resource GPU where compute.device is cuda and the cluster has such workers.
    An error stops what has not begun. The shard of a worker that dies is done again; WorkerLost where that fails.
    Raises LongtailError for a cluster that can't be used.
    """
    workers = compute.workers if most is None else min(compute.workers, max(most, 1))
    if compute.executor == "local" and workers == 1:
        yield None
        return
    if compute.executor == "dask":
        pool = _Cluster(compute, project=project)
    else:
        pool = _Processes(workers, visible_gpus() if compute.device == "cuda" else [])
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Processes(Pool):
    """Executors of one process each, so that a process that dies takes nobody else's shard along."""

    def __init__(self, workers: int, gpus: Sequence[str]) -> None:
        """Each process sees one of `gpus`, in turn, if there are several."""
        self.workers = workers
        self._threads = ThreadPoolExecutor(workers)
        self._idle: LifoQueue[tuple[str | None, ProcessPoolExecutor]] = LifoQueue()  # the last first: few ever start
        for number in reversed(range(workers)):
            gpu = gpus[number % len(gpus)] if len(gpus) > 1 else None
            self._idle.put((gpu, _process(gpu)))

    def submit(self, work: Callable, /, *args: Any, **kwargs: Any) -> Future:
        return self._threads.submit(self._run, work, *args, **kwargs)

    def _run(self, work: Callable, /, *args: Any, **kwargs: Any) -> Any:
        gpu, process = self._idle.get()
        try:
            for _ in range(ATTEMPTS):
                try:
                    return process.submit(work, *args, **kwargs).result()
                except BrokenProcessPool:
                    process.shutdown()
                    process = _process(gpu)
        finally:
            self._idle.put((gpu, process))
        raise WorkerLost(
            f"the worker process died, {ATTEMPTS} times (out of memory?); run again, with fewer compute.workers"
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        while not self._idle.empty():
            self._idle.get()[1].shutdown(wait)


def _process(gpu: str | None) -> ProcessPoolExecutor:
    # Spawned, not forked: this process may hold threads of DuckDB or a tokenizer, and their locks.
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(gpu,))


def visible_gpus() -> list[str]:
    """The GPUs that torch may use in this process, as CUDA_VISIBLE_DEVICES names them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _begin(gpu: str | None) -> None:
    """Let a process see its GPU alone, and end with its parent."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    end_with_parent()


def end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Home(NamedTuple):
    """What makes a Dask worker work as a process of this one would."""

    folder: str | None  # the project's; None: the worker need not see it
    probe: Path  # a file there
    code: str
    main: str | None  # the module that is `__main__` here
    environment: dict[str, str]


class _Cluster(Pool):
    """The workers of a Dask scheduler, which gives the shards of lost ones to others; one cluster, one project."""

    def __init__(self, compute: params.Compute, *, project: bool) -> None:
        self._address = address = compute.dask
        self._store, gpu = compute.store, not project and compute.device == "cuda"
        self._client = _connect(address)
        (shards.SCRATCH / "tmp").mkdir(parents=True, exist_ok=True)
        holder = tempfile.mkdtemp(prefix=f"{platform.node()}.{os.getpid()}-", dir=shards.SCRATCH / "tmp")
        probe = Path(holder, "probe")
        probe.touch()
        main = getattr(sys.modules["__main__"], "__spec__", None)
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._home = _Home(os.getcwd() if project else None, probe, _code(), main and main.name, environment)
        declared = [worker.get("resources", {}) for worker in self._client.scheduler_info(-1)["workers"].values()]
        needed = {"resources": {"GPU": 1}} if gpu and any("GPU" in names for names in declared) else {}
        # pure: a shard done again would be taken as done
        self._executor = self._client.get_executor(pure=False, **needed)
        try:
            self._greet_workers()
        except Exception as error:
            self.shutdown(cancel_futures=True)
            if isinstance(error, LongtailError):
                raise
            raise LongtailError(
                f"compute.dask: the workers of {address} can't run Longtail ({_line(error)}); install it where they are"
            ) from None
        able = [names for names in declared if "GPU" in names]
        self.workers = len(able) if needed else sum(self._client.nthreads().values())

    def _greet_workers(self) -> None:
        """`_greet` all workers, again if one of them was lost meanwhile."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._client.run(_greet, self._home)
                return
            except OSError:  # a connection's end; the scheduler soon knows which worker is gone
                if attempt == ATTEMPTS:
                    raise
                time.sleep(1)

    def bring(self, folder: Path, key: str, to: Sequence[str] | None = None) -> None:
        sending.send(self._client, folder, key, to, self._store)

    def submit(self, work: Callable, /, *args: Any, **kwargs: Any) -> Future:
        call = pickle.dumps((work, args, kwargs))
        future: Future = Future()
        self._executor.submit(_at_home, self._home, call).add_done_callback(partial(self._pass_on, future))
        return future

    def _pass_on(self, future: Future, of_dask: Future) -> None:
        from distributed import KilledWorker

        if of_dask.cancelled():
            error = LongtailError(f"compute.dask: lost the scheduler at {self._address}; run again to go on")
        elif isinstance(error := of_dask.exception(), KilledWorker):
            error = WorkerLost(
                f"the Dask worker that had it died, {error.allowed_failures + 1} times, last the one at "
                f"{error.last_worker.address} (out of memory, of this shard or of another that it had?); "
                "give workers more memory, or see their logs"
            )
        if error:
            future.set_exception(error)
        else:
            future.set_result(of_dask.result())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait and not cancel_futures)
        self._client.close()
        shutil.rmtree(self._home.probe.parent, ignore_errors=True)


def _connect(address: str):
    try:
        from distributed import Client
    except ImportError:
        raise LongtailError(
            "compute.executor: dask needs the package distributed, which is missing; `pip install 'longtail[dask]'`"
        ) from None
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # tracebacks of what comes as one line
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without Dask's settings of certificates
        raise LongtailError(
            f"compute.dask: no scheduler answers at {address} ({_line(error)}); start one there, or correct the address"
        ) from None
    try:
        client.wait_for_workers(1, PATIENCE)
    except TimeoutError:
        client.close()
        raise LongtailError(f"compute.dask: the scheduler at {address} has no workers; start some") from None
    return client


def about(address: str) -> str:
    """A line on the cluster of a Dask scheduler: its workers, and its dashboard; LongtailError where it has none."""
    client = _connect(address)
    try:
        workers = client.scheduler_info(-1)["workers"].values()
        gpus = sum("GPU" in worker.get("resources", {}) for worker in workers)
        with_gpus = f", {gpus} of them with the resource GPU" if gpus else ""
        return f"{address} has {len(workers)} workers{with_gpus}; its dashboard: {client.dashboard_link}"
    finally:
        client.close()


def _greet(home: _Home) -> None:
    """Check a worker before any shard, and remove what workers that were lost left on its machine."""
    _enter(home)
    if home.folder:
        shards.sweep()


def _at_home(home: _Home, call: bytes) -> Any:
    _enter(home)

    class Unpickler(pickle.Unpickler):
        """Finds what a stage's module, run as `__main__`, sends of itself."""

        def find_class(self, module: str, name: str) -> Any:
            return super().find_class((home.main or module) if module == "__main__" else module, name)

    work, args, kwargs = Unpickler(io.BytesIO(call)).load()
    return work(*args, **kwargs)


def _enter(home: _Home) -> None:
    """Be in the project's folder, with its environment; each time, as a worker can come late or serve others too."""
    try:
        if home.folder:
            os.chdir(home.folder)
            home.probe.stat()
    except OSError:
        raise NotShared(
            f"{home.folder}: not the same folder on {platform.node()}, where a Dask worker runs, expected a file "
            "system that all machines share; put the project on one, under the same path everywhere"
        ) from None
    if _code() != home.code:
        raise LongtailError(
            f"the Dask worker on {platform.node()} runs another version of Longtail or of a package; "
            "install the same, and start the workers again"
        )
    os.environ.update(home.environment)


@cache
def _code() -> str:
    """The code and packages that this process runs: as it first saw them, as a worker may have lived for weeks."""
    needed = {re.match(r"[\w.-]+", one)[0].lower() for one in requires("longtail") if "extra ==" not in one}
    found = {one.name.lower(): one.version.split("+")[0] for one in distributions()}  # not +cpu: torch makes no shards
    versions = [sys.version_info[:2], sorted((name, found.get(name)) for name in needed)]
    digest = hashlib.blake2b(repr(versions).encode(), digest_size=8)
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
