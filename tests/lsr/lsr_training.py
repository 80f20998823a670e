"""What tests of LSR's training share: what it writes, watching it, and processes that are threads of this one."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from small_project import TUNED
from waiting import until

from pipelines.lsr import ranks, refresh
from pipelines.lsr.rounds import Trainer

METRICS = Path("data/metrics/lsr_dense.json")


def change(project, **changes):
    project.params.lsr = project.params.lsr.model_copy(update=changes)


def written() -> dict[str, bytes]:
    """The files of a training that is done."""
    return {str(path): path.read_bytes() for path in [*TUNED.rglob("*.*"), METRICS]}


def remove_training():
    for made in (TUNED, Path(".longtail")):
        shutil.rmtree(made)
    METRICS.unlink()


def weights(encoder) -> torch.Tensor:
    return torch.cat([weight.detach().ravel().clone() for weight in encoder.parameters()])


def watched(monkeypatch, owner, name, before):
    """`before` is called with the arguments of each call of a method, ahead of it."""
    real = getattr(owner, name)

    def call(*arguments):
        before(*arguments)
        return real(*arguments)

    monkeypatch.setattr(owner, name, call)


def steps_from_now(monkeypatch, before=lambda number: None) -> list[int]:
    """The numbers of the steps that are trained from now on; `before` is called ahead of each."""
    steps = []
    watched(monkeypatch, Trainer, "step", lambda _, number: (before(number), steps.append(number)))
    return steps


@contextmanager
def refresh_in_a_thread(compute):
    """In place of refresh.processes: what the second process does can be watched."""
    assert (compute.executor, compute.workers) == ("local", 2)
    refresh._opened.clear()
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Wire:
    """torch.distributed among threads of this process, one for each rank; this thread is rank 0."""

    def __init__(self, size: int) -> None:
        self._meeting, self._sent, self._here = threading.Barrier(size), [None] * size, threading.local()
        self._here.rank, self._others = 0, ThreadPoolExecutor(size)

    def begin(self, work, rank: int) -> Future:
        """Do `work()` as a rank, in a thread; return once it waits for the others. Two must not load models at once."""

        def other():
            self._here.rank = rank
            try:
                work()
            except BaseException:
                self._meeting.abort()
                raise

        began, waiting = self._others.submit(other), self._meeting.n_waiting
        until(lambda: began.done() or self._meeting.n_waiting > waiting)
        return began

    def close(self) -> None:
        self._meeting.abort()
        self._others.shutdown()

    def init_process_group(self, backend, timeout):
        pass

    def new_group(self, backend, timeout):
        pass

    def is_initialized(self):
        return False

    def broadcast(self, tensor, source, group=None):
        tensor.copy_(self._exchanged(tensor)[source])

    def reduce(self, tensor, target):
        total = sum(self._exchanged(tensor))
        tensor.copy_(total if self._here.rank == target else torch.full_like(total, torch.nan))

    def _exchanged(self, tensor) -> list[torch.Tensor]:
        self._sent[self._here.rank] = tensor.clone()
        self._meeting.wait()
        sent = list(self._sent)
        self._meeting.wait()
        return sent


@contextmanager
def wired(size: int, monkeypatch) -> Iterator[Wire]:
    """In this block, ranks are threads."""
    wire = Wire(size)
    with monkeypatch.context() as patch:
        patch.setattr(ranks, "distributed", wire)
        try:
            yield wire
        finally:
            wire.close()
