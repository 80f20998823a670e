"""The processes that train side by side, each with a share of a step's texts; torch.distributed joins them.

The first one, rank 0, is the stage's process, or torchrun's first. It alone reads queries and documents, has the
optimizer and writes files, so that nothing it keeps depends on how many there are. The others are sent texts and
weights, and send back vectors and gradients; they read nothing but the encoder's folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.pool import end_with_parent

BETWEEN_STEPS = timedelta(days=365)  # that a process waits for the next step: a refresh may lie between
WITHIN_STEP = timedelta(hours=1)  # that it waits for the others' shares
NOTICE = 20.0  # seconds in which a dead process should be noticed: by its exit, or by the end of what it took part in


class Lost(Exception):
    """A process that trains is gone, or does not answer."""


class Ranks:
    """This process's place among those that train, and what they exchange; of one process alone, nothing."""

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device
        self.since = 0.0  # when it began to wait for others; 0: it does not wait

    def join(self, **place: Any) -> None:
        """Meet the others; `place` says where, as for `init_process_group`."""
        if self.device != "cpu":
            torch.cuda.set_device(self.device)
        with self._together():
            backend = "gloo" if self.device == "cpu" else "cpu:gloo,cuda:nccl"
            distributed.init_process_group(backend, timeout=WITHIN_STEP, **place)
            self._patient = distributed.new_group(backend="gloo", timeout=BETWEEN_STEPS)

    def tell(self, what: Any) -> None:
        """Send `what`, as JSON, to all others; rank 0 does."""
        if self.size > 1:
            self._message(json.dumps(what).encode())

    def hear(self) -> Any:
        """What rank 0 tells, however long that takes."""
        return json.loads(self._message(b""))

    def copy(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give all processes rank 0's values."""
        self._all(distributed.broadcast, tensors)

    def sum(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give rank 0 the sums over all processes; in the others the tensors have any values afterwards."""
        self._all(distributed.reduce, tensors)

    def _message(self, said: bytes) -> bytes:
        length = torch.tensor([len(said)])
        with self._together():
            distributed.broadcast(length, 0, group=self._patient)
            data = torch.frombuffer(bytearray(said or int(length)), dtype=torch.uint8)
            distributed.broadcast(data, 0, group=self._patient)
        return data.numpy().tobytes()

    @torch.no_grad()
    def _all(self, exchange: Callable[[torch.Tensor, int], Any], tensors: Sequence[torch.Tensor]) -> None:
        if self.size == 1:
            return
        together = torch.cat([tensor.ravel() for tensor in tensors])  # one large message is faster than many small ones
        with self._together():
            exchange(together, 0)
        for tensor, values in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(values.view_as(tensor))

    @contextmanager
    def _together(self) -> Iterator[None]:
        self.since = time.monotonic()
        try:
            yield
        except RuntimeError as error:  # what torch.distributed raises, whatever the reason
            raise Lost(" ".join(str(error).split())[:200]) from error
        finally:
            self.since = 0.0


@contextmanager
def started(work: Callable[[Ranks], None], size: int, device: str) -> Iterator[Ranks]:
    """Yield the place of this process among `size` on this machine; the others do `work(ranks)`.

    They have ended when the caller's block has, also after an error, and if this process is killed. Raises
    LongtailError naming the one that died.
    """
    ranks = Ranks(0, size, device if device == "cpu" else "cuda:0")
    if size == 1:
        yield ranks
        return
    (shards.SCRATCH / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{platform.node()}.{os.getpid()}-", dir=shards.SCRATCH / "tmp") as folder:
        others = _Others(work, size, device, Path(folder, "store").absolute())
        try:
            threading.Thread(target=others.watch, args=(ranks,), daemon=True).start()
            others.wait()
            ranks.join(rank=0, world_size=size, store=others.store())
            yield ranks
            ranks.tell(None)
            others.join()
        except Lost as error:
            raise LongtailError(others.what_died() or f"the processes that train lost each other ({error})") from error
        finally:
            others.end()
            if distributed.is_initialized():
                distributed.destroy_process_group()


class _Others:
    """The processes that this one started."""

    def __init__(self, work: Callable[[Ranks], None], size: int, device: str, file: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._file, self._size, self._ended = file, size, threading.Event()
        self._processes, self._said = [], []
        for rank in range(1, size):
            mine, its = context.Pipe(duplex=False)
            at = device if device == "cpu" else f"cuda:{rank}"
            process = context.Process(target=_other, args=(work, rank, size, at, file, its), daemon=True)
            process.start()
            its.close()
            self._processes.append(process)
            self._said.append(mine)

    def store(self) -> distributed.FileStore:
        return distributed.FileStore(str(self._file), self._size)

    def wait(self) -> None:
        """Wait until all have started; raises Lost if one died."""
        for said in self._said:
            try:
                said.recv()
            except EOFError:
                raise Lost("at its start") from None

    def what_died(self) -> str | None:
        """The first of those that ended by themselves, and why; None if none did."""
        until = time.monotonic() + NOTICE
        while time.monotonic() < until:
            for rank, (process, said) in enumerate(zip(self._processes, self._said, strict=True), 1):
                if process.exitcode:
                    return (
                        f"process {rank + 1} of the {self._size} that train (lsr.processes) "
                        f"{_end(process.exitcode, said)}; "
                        "run again to go on from the last checkpoint, with another lsr.processes if you like"
                    )
            time.sleep(0.1)
        return None

    def watch(self, ranks: Ranks) -> None:
        """End this process if it goes on waiting for one that died, as GPUs do."""
        while not self._ended.wait(1.0):
            waiting = ranks.since and time.monotonic() - ranks.since > NOTICE
            if waiting and any(process.exitcode for process in self._processes):
                print(f"error: train_lsr: {self.what_died()}", file=sys.stderr, flush=True)
                os._exit(1)

    def join(self) -> None:
        for process in self._processes:
            process.join(NOTICE)

    def end(self) -> None:
        self._ended.set()
        for process in self._processes:
            process.kill()
            process.join()


def _end(exitcode: int, said: Connection) -> str:
    if exitcode < 0:
        name = signal.Signals(-exitcode).name
        return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    try:
        return said.recv()
    except EOFError:
        return f"ended with code {exitcode}"


def _other(work: Callable[[Ranks], None], rank: int, size: int, device: str, file: Path, said: Connection) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption ends the first process, and that ends this one
    said.send("started")
    ranks = Ranks(rank, size, device)
    try:
        ranks.join(rank=rank, world_size=size, store=distributed.FileStore(str(file), size))
        work(ranks)
    except Lost:
        return  # of another process: the first one says which
    except Exception as error:
        said.send(f"failed ({type(error).__name__}: {' '.join(str(error).split())[:300]})")
        raise SystemExit(1) from None


@contextmanager
def launched(environment: Mapping[str, str], device: str) -> Iterator[Ranks]:
    """Yield the place that torchrun gave this process. Raises LongtailError if another one died."""
    device = device if device == "cpu" else f"cuda:{environment['LOCAL_RANK']}"
    ranks = Ranks(int(environment["RANK"]), int(environment["WORLD_SIZE"]), device)
    try:
        ranks.join()
        yield ranks
        if ranks.rank == 0:
            ranks.tell(None)
    except Lost as error:
        raise LongtailError(
            f"process {ranks.rank + 1} of the {ranks.size} that train lost another, which torchrun names ({error}); "
            "start torchrun again to go on from the last checkpoint, with another number of processes if you like"
        ) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
