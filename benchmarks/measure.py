"""What the speed benchmarks share: ways timed in turns, here or in processes of their own, and the
rows of the table.

CPU seconds are what a quiet machine takes, and a busy one can't distort much, so one core's work is
compared by them. Seconds by the clock ("wall") compare what several cores do side by side. Linux
alone is measured.
"""

import multiprocessing
import os
import platform
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import threadpoolctl

from pipelines.params import params

FORK = multiprocessing.get_context("fork")
HEAD = [
    "benchmark", "work", "beside", "its rate", "ours", "times as fast", "limit", "share of it", "MB, theirs / ours",
    "commit", "times in the run before", "machine",
]  # fmt: skip
NO_FILES = "no $LONGTAIL_REAL"  # a folder of real files
NO_WEIGHTS = "no $LONGTAIL_REAL_MODELS"  # a folder of real weights
# a Python that has llama-cpp-python; $LONGTAIL_GGUF has the models
NO_LLAMA_CPP = "no $LONGTAIL_LLAMA_CPP"


class Run(NamedTuple):
    """What one way took.

    `memory` is what its process needed at most, in MB, beyond what importing takes.
    """

    cpu: float  # seconds, of the processes that it started as well
    wall: float  # seconds
    memory: float
    result: Any


Way = Callable[[], Run]


class Row(NamedTuple):
    """One line of the table.

    Rates are of `unit` a second; a row that could not be measured says why.
    """

    work: str
    peer: str
    unit: str = ""
    of_peer: float = 0.0
    ours: float = 0.0
    limit: str = ""
    most: float = 0.0  # the machine's own rate, measured in the same run
    wall: bool = False  # whether by the clock
    memory: tuple[float, float] | None = None  # MB: the peer's, ours
    missing: str = ""

    @property
    def cells(self) -> list[str]:
        if self.missing:
            return [self.work, self.peer, f"not measured: {self.missing}", *[""] * 5]

        times = number(self.ours / self.of_peer)
        if self.wall:
            times += " (wall)"
        limit = ""
        share = ""
        if self.most:
            limit = f"{self.limit}: {number(self.most)}"
            share = f"{self.ours / self.most:.0%}"
        memory = ""
        if self.memory:
            memory = " / ".join(f"{megabytes:,.0f}" for megabytes in self.memory)
        of_peer = f"{number(self.of_peer)} {self.unit}/s"
        return [self.work, self.peer, of_peer, number(self.ours), times, limit, share, memory]


def machine() -> str:
    """The processor and its cores."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    processor = re.search(r"model name\s*:\s*(.*)", information)
    name = processor[1].strip() if processor else platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def real(name: str, folder: str = "LONGTAIL_REAL") -> Path | None:
    """A real file or folder, if this machine has it."""
    path = Path(os.environ.get(folder) or "no folder", name).absolute()
    return path if path.exists() else None


def compute(workers: int = 1) -> params.Compute:
    return params.Compute(threads=1, workers=workers, dask=None, device="cpu")


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def row(
    work: str, peer: str, unit: str, size: float, theirs: Run, ours: Run, *, limit: str = "", most: float = 0.0,
    wall: bool = False, memory: bool = True,
) -> Row:  # fmt: skip
    """The row of two ways that did the same work of `size` units; `most` units a second are the
    limit.
    """
    return Row(
        work=work,
        peer=peer,
        unit=unit,
        of_peer=size / (theirs.wall if wall else theirs.cpu),
        ours=size / (ours.wall if wall else ours.cpu),
        limit=limit,
        most=most,
        wall=wall,
        memory=(theirs.memory, ours.memory) if memory else None,
    )


def beside(
    work: str, peer: str, unit: str, size: float, plain: Way, ours: Way, *, rounds: int, limit: str = "",
    most: Way | None = None, two: Way | None = None, start: Way | None = None,
) -> list[Row]:  # fmt: skip
    """The rows of two ways, timed in turns, whose results must be equal; `most` does what no way
    can do without.

    With `two` workers there are two rows more, by the clock: with their start, which `start` takes,
    and without.
    """
    ways = {"plain": plain, "ours": ours, "most": most, "two": two, "start": start}
    runs = best({name: way for name, way in ways.items() if way}, rounds)
    theirs = runs["plain"]
    for name in ("ours", "two"):
        if name in runs:
            assert runs[name].result == theirs.result, f"{work}: the two ways differ"

    rate = size / runs["most"].cpu if most else 0.0
    table = [row(work, peer, unit, size, theirs, runs["ours"], limit=limit, most=rate)]
    if two and start:
        with_start = runs["two"]
        seconds = max(with_start.wall - runs["start"].wall, 1e-2)
        started = with_start._replace(wall=seconds)
        for when, run in {"and their start": with_start, "once started": started}.items():
            label = f"{work}, two workers {when}"
            table.append(row(label, peer, unit, size, theirs, run, wall=True, memory=False))
    return table


def timed(work: Callable[[], Any], warm: Callable[[], Any] | None = None) -> Run:
    """What `work` takes in this process, after `warm`: what a process does but once is no part
    of a rate.
    """
    memory_before = _memory("VmRSS")
    if warm:
        warm()
    started = time.perf_counter()
    cpu_before = _cpu()
    result = work()
    cpu = _cpu() - cpu_before
    wall = time.perf_counter() - started
    return Run(cpu, wall, _memory("VmHWM") - memory_before, result)


def in_turns(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Run]:
    """The best of `rounds` of each work in this process."""
    return best({name: partial(timed, work) for name, work in works.items()}, rounds)


def alone(
    work: Callable,
    *args: Any,
    warm: Callable[[], Any] | None = None,
    then: Callable[[Any], Any] | None = None,
) -> Run:
    """What `work(*args)` takes in a forked process, after `warm()`; the result is what `then` makes
    of it here.

    A fork has all that is imported here. The libraries that compute, as torch does, may not have
    computed here before.
    """
    receive, send = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_send, args=(send, work, args, warm))
    process.start()
    send.close()
    try:
        message = receive.recv()
    except EOFError:
        raise RuntimeError(f"{work} ended without a result; was there memory enough?") from None
    finally:
        process.join()

    if isinstance(message, BaseException):
        raise message
    if then:
        return message._replace(result=then(message.result))
    return message


def _send(send, work: Callable, args: tuple, warm: Callable[[], Any] | None) -> None:
    try:
        one_core()
        send.send(timed(lambda: work(*args), warm))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        send.send(error)


def one_core() -> None:
    """Have the libraries that compute do so on one core."""
    threadpoolctl.threadpool_limits(1)
    torch = sys.modules.get("torch")
    if torch:
        torch.set_num_threads(1)
    arrow = sys.modules.get("pyarrow")
    if arrow:
        arrow.set_cpu_count(1)


def best(ways: Mapping[str, Way], rounds: int) -> dict[str, Run]:
    """Each way's least seconds, of CPU and by the clock, and its most memory, of `rounds` in
    turns.
    """
    bests: dict[str, Run] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            run = way()
            before = bests.get(name, run)
            bests[name] = Run(
                cpu=min(run.cpu, before.cpu),
                wall=min(run.wall, before.wall),
                memory=max(run.memory, before.memory),
                result=run.result,
            )
    return bests


def _cpu() -> float:
    """Seconds so far, of this process and of those that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _memory(name: str) -> float:
    """MB; VmHWM is the most so far. getrusage would give the parent's where that is more."""
    status = Path("/proc/self/status").read_text()
    kilobytes = re.search(rf"{name}:\s+(\d+) kB", status)[1]
    return int(kilobytes) / 1e3


@contextmanager
def in_folder() -> Iterator[Path]:
    """Work in an empty folder, which is deleted afterwards; what stages print is not shown."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nothing,
        chdir(folder),
        redirect_stdout(nothing),
        redirect_stderr(nothing),
    ):
        yield Path(folder)


def table_rows(
    name: str, rows: Iterable[Row], commit: str, machine: str, before: Iterable[list[str]]
) -> list[list[str]]:
    """The table's rows of a benchmark, measured at that commit; `before` are those of its last
    run.
    """
    times = {}
    for cells in before:
        line = dict(zip(HEAD, cells, strict=True))
        times[line["work"], line["beside"]] = line["times as fast"]

    table = []
    for row in rows:
        times_before = times.get((row.work, row.peer), "")
        table.append([name, *row.cells, commit, times_before, machine])
    return table
