"""What the speed benchmarks share: ways timed in turns, here or in processes of their own, and the
rows of the table.

CPU seconds are what a quiet machine takes, and a busy one can't distort much, so one core's work is
compared by them. Seconds by the clock ("wall") compare what several cores do side by side. Linux
alone is measured.
"""

import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import threadpoolctl

from pipelines.params import params

FORK = multiprocessing.get_context("fork")
HEAD = [
    "benchmark", "work", "beside", "its rate", "ours", "times as fast", "limit", "share of it", "MB, theirs / ours",
    "commit", "times in the run before", "machine",
]  # fmt: skip
NO_FILES, NO_WEIGHTS = (
    "no $LONGTAIL_REAL",
    "no $LONGTAIL_REAL_MODELS",
)  # folders of real files and real weights
NO_LLAMA_CPP = (
    "no $LONGTAIL_LLAMA_CPP"  # a Python that has llama-cpp-python; $LONGTAIL_GGUF has the models
)
NO_RUN = "no finished run here (longtail run makes one)"


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
        times = f"{number(self.ours / self.of_peer)}{' (wall)' * self.wall}"
        limit = (
            [f"{self.limit}: {number(self.most)}", f"{self.ours / self.most:.0%}"]
            if self.most
            else ["", ""]
        )
        memory = " / ".join(f"{value:,.0f}" for value in self.memory) if self.memory else ""
        return [
            self.work,
            self.peer,
            f"{number(self.of_peer)} {self.unit}/s",
            number(self.ours),
            times,
            *limit,
            memory,
        ]


def real(name: str, folder: str = "LONGTAIL_REAL") -> Path | None:
    """A real file or folder, if this machine has it."""
    path = Path(os.environ.get(folder) or "no folder", name).absolute()
    return path if path.exists() else None


def compute(workers: int = 1) -> params.Compute:
    return params.Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu")


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
    rates = (size / (run.wall if wall else run.cpu) for run in (theirs, ours))
    needed = (theirs.memory, ours.memory) if memory else None
    return Row(work, peer, unit, *rates, limit, most, wall, needed)


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
    run = best({name: way for name, way in ways.items() if way}, rounds)
    for name in ("ours", "two"):
        assert name not in run or run[name].result == run["plain"].result, (
            f"{work}: the two ways differ"
        )
    rate = size / run["most"].cpu if most else 0.0
    found = [row(work, peer, unit, size, run["plain"], run["ours"], limit=limit, most=rate)]
    if two and start:
        started = run["two"]._replace(wall=max(run["two"].wall - run["start"].wall, 1e-2))
        for when, one in {"and their start": run["two"], "once started": started}.items():
            what = f"{work}, two workers {when}"
            found.append(row(what, peer, unit, size, run["plain"], one, wall=True, memory=False))
    return found


def timed(work: Callable[[], Any], warm: Callable[[], Any] | None = None) -> Run:
    """What `work` takes in this process, after `warm`: what a process does but once is no part
    of a rate.
    """
    before = _memory("VmRSS")
    if warm:
        warm()
    clock, cpu = time.perf_counter(), _cpu()
    result = work()
    return Run(_cpu() - cpu, time.perf_counter() - clock, _memory("VmHWM") - before, result)


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
        found = receive.recv()
    except EOFError:
        raise RuntimeError(f"{work} ended without a result; was there memory enough?") from None
    finally:
        process.join()
    if isinstance(found, BaseException):
        raise found
    return found._replace(result=then(found.result)) if then else found


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
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    if arrow := sys.modules.get("pyarrow"):
        arrow.set_cpu_count(1)


def best(ways: Mapping[str, Way], rounds: int) -> dict[str, Run]:
    """Each way's least seconds, of CPU and by the clock, and its most memory, of `rounds` in
    turns.
    """
    found: dict[str, Run] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            this = way()
            last = found.get(name, this)
            least = min(this.cpu, last.cpu), min(this.wall, last.wall)
            found[name] = Run(*least, max(this.memory, last.memory), this.result)
    return found


def _cpu() -> float:
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _memory(name: str) -> float:
    """MB; VmHWM is the most so far. getrusage would give the parent's where that is more."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1e3


@contextmanager
def in_folder() -> Iterator[Path]:
    """Work in an empty folder, which is deleted afterwards; what stages print is not shown."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        nothing = stack.enter_context(open(os.devnull, "w"))
        for one in (chdir(folder), redirect_stdout(nothing), redirect_stderr(nothing)):
            stack.enter_context(one)
        yield Path(folder)


def table_rows(
    name: str, rows: Iterable[Row], commit: str, machine: str, before: Iterable[list[str]]
) -> list[list[str]]:
    """The table's rows of a benchmark, measured at that commit; `before` are those of its last
    run.
    """
    times = {(cells[1], cells[2]): cells[HEAD.index("times as fast")] for cells in before}
    return [
        [name, *row.cells, commit, times.get((row.work, row.peer), ""), machine] for row in rows
    ]
