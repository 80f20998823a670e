"""Keep finished pieces of long work, so that a killed run goes on where it stopped.

The store is the folder .longtail/work/<work>/<key>. A work is what a stage does under one name, as
"popularity". The key stands for the content that its result depends on: settings, code and input
files (`content_key`). With other content the key is another, and the work is done anew. What later
months reuse lies there too. What no run uses for UNUSED_SECONDS is removed.
"""

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tqdm import tqdm

from pipelines import progress
from pipelines.storage.atomic import SCRATCH, atomic, scratch_folder

READ_BYTES = 1 << 20  # bytes that are read at once, of a streamed part and of a file to hash
LARGE_BYTES = 64 << 20  # from this size on, the hash of a file or folder is kept
# A file that changed just now may change once more within the same tick of the file system's clock.
SECONDS_AT_REST = 2.0
SUBMITTED = 4096  # parts that an executor holds at once: more than its workers, but not millions
UNUSED_SECONDS = 100 * 86_400  # after which a stage's start sweeps away what no run has used


def content_key(settings: Any, code: str, *files: Path) -> str:
    """A short name for the content that a result depends on.

    `settings` are values that print alike when they are alike, `code` is a fingerprint of the code
    (work/code.py:fingerprint), and files and folders count by their `content_hash`.
    """
    hashes = [content_hash(file) for file in files]
    content = repr((settings, code, hashes))
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def content_hash(path: Path) -> str:
    """A hash of the content of a file or folder: of the files' names, sizes and bytes.

    The hash of a large one is kept. It is read again only after the place, size or time of one of
    its files has changed.
    """
    path = Path(path)
    paths = path.rglob("*") if path.is_dir() else [path]
    files = sorted(file for file in paths if file.is_file())
    states = [file.stat() for file in files]

    sizes = [state.st_size for state in states]
    last_change = max((state.st_ctime for state in states), default=0.0)
    if sum(sizes) < LARGE_BYTES or time.time() - last_change < SECONDS_AT_REST:
        return _hash_of_files(files)

    places = [str(file.absolute()) for file in files]
    times = [(state.st_ino, state.st_mtime_ns, state.st_ctime_ns) for state in states]
    key = hashlib.blake2b(repr((places, sizes, times)).encode(), digest_size=8).hexdigest()

    def write(kept: Path) -> None:
        kept.write_text(_hash_of_files(files), encoding="utf-8")

    return WorkStore().file("content_hash", key, write).read_text(encoding="utf-8")


def _hash_of_files(files: Sequence[Path]) -> str:
    names = [file.name for file in files]
    sizes = [file.stat().st_size for file in files]
    digest = hashlib.blake2b(repr((names, sizes)).encode(), digest_size=8)
    for file in files:
        with file.open("rb") as stream:
            for block in iter(partial(stream.read, READ_BYTES), b""):
                digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Unfinished:
    """The parts of a work, some of which earlier runs finished."""

    paths: list[Path]  # the files of all parts
    missing: list[int]  # the numbers of the parts that are not finished
    bar: tqdm  # counts the sizes of finished parts


@dataclass(frozen=True)
class WorkStore:
    """Finished pieces of work in `folder`, by work and key.

    A work holds either parts or single files. The caller writes the stage's output from its parts,
    and then calls `forget`. A file stays for later runs, until `sweep` finds it unused.
    """

    folder: Path = SCRATCH / "work"

    def path(self, work: str, key: str) -> Path:
        """Where the parts or the file of a work and key lie."""
        return self.folder / work / key

    def parts(
        self,
        work: str,
        key: str,
        tasks: Sequence[Any],
        do: Callable[[Any, Path], None],
        executor: Executor | None = None,
    ) -> list[Path]:
        """Have `do(task, path)` write the file of each task that has none; return all files.

        The files are in the order of `tasks`. The first error ends the work. A progress bar counts
        the tasks.
        """
        with self.unfinished(work, key, [1] * len(tasks), "shard") as parts:
            if executor is None:
                for i in parts.missing:
                    with progress.piece(parts.bar, 1):
                        _do_part(do, tasks[i], parts.paths[i])
                return parts.paths

            def submit(i: int) -> Future:
                return executor.submit(_do_part, do, tasks[i], parts.paths[i])

            for _, future in in_parallel(parts.missing, submit, SUBMITTED):
                future.result()
                parts.bar.update()
        return parts.paths

    @contextmanager
    def unfinished(
        self, work: str, key: str, sizes: Sequence[int], unit: str
    ) -> Iterator[Unfinished]:
        """Yield what is missing of a work of as many parts as `sizes`, under a progress bar."""
        folder, finished = self._begin(work, key)
        paths = [folder / _part_name(i) for i in range(len(sizes))]
        missing = [i for i, path in enumerate(paths) if path.name not in finished]

        missing_size = sum(sizes[i] for i in missing)
        total = sum(sizes)
        with progress.bar(work, total, unit, total - missing_size) as bar:
            yield Unfinished(paths, missing, bar)

    def parts_of_stream(
        self,
        work: str,
        key: str,
        do: Callable[[Any, Iterable[bytes], Path], None],
        stream: Iterable[tuple[Any, Iterable[bytes]]],
        executor: Executor | None = None,
        at_once: int = 1,
    ) -> Iterator[Path]:
        """`parts` for a long stream that only this process can read; yields the files in order.

        The stream yields pairs of a task and its bytes in pieces. `do(task, pieces, path)` reads
        all pieces. At most `at_once` tasks wait or run. Workers get the bytes in that many files,
        which is ten times faster than a pipe.
        """
        folder, finished = self._begin(work, key)
        running: deque[tuple[Future | None, Path]] = deque()

        def next_finished() -> Path:
            future, path = running.popleft()
            if future:
                future.result()
            return path

        with scratch_folder() as slots, progress.bar(work, None, "shard") as bar:
            for i, (task, pieces) in enumerate(stream):
                if len(running) == at_once:
                    yield next_finished()

                path = folder / _part_name(i)
                future = None
                if path.name in finished:
                    deque(pieces, maxlen=0)  # reads the stream on to the next task
                else:
                    slot = Path(slots, str(i % at_once))  # free: its last task is finished
                    size = _fill_slot(slot, pieces)
                    if executor is None:
                        _do_slot(do, task, slot, size, path)
                    else:
                        future = executor.submit(_do_slot, do, task, slot, size, path)
                running.append((future, path))
                bar.update()

            while running:
                yield next_finished()

    def file(self, work: str, key: str, write: Callable[[Path], None]) -> Path:
        """The finished file or folder of a work and key; `write(path)` makes a missing one."""
        path = self.used(work, key)
        if path is None:
            path = self.path(work, key)
            with atomic(path, keep=True) as temporary:
                write(temporary)
        return path

    def used(self, work: str, key: str) -> Path | None:
        """The file or folder of a work and key, which counts as used now; None if there is none."""
        path = self.path(work, key)
        if not path.exists():
            return None
        os.utime(path)  # `sweep` leaves it
        return path

    def forget(self, work: str, key: str | None = None) -> None:
        """Remove what is kept for a work and key; without a key, for all keys of the work."""
        folder = self.folder / work
        _remove(folder if key is None else folder / key)
        with suppress(OSError):  # other keys are there
            folder.rmdir()

    def sweep(self, since: float) -> None:
        """Remove what no run has used since then (unix seconds)."""
        for path in sorted(self.folder.glob("*/*")):
            with suppress(FileNotFoundError):  # another process removed it
                if path.stat().st_mtime < since:
                    self.forget(path.parent.name, path.name)

    def _begin(self, work: str, key: str) -> tuple[Path, set[str]]:
        """The folder of a work's parts, and the names of the finished ones.

        The folder is listed once. A network file system goes on to deny a file that it once denied.
        """
        folder = self.path(work, key)
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)  # it is in use, and `sweep` leaves it
        return folder, {path.name for path in folder.iterdir()}


def in_parallel(
    numbers: Iterable[int], submit: Callable[[int], Future], at_once: int
) -> Iterator[tuple[int, Future]]:
    """Submit the numbers in order, and yield each with its future once that is done.

    At most `at_once` futures are unfinished at any time.
    """
    waiting = deque(numbers)
    running: dict[Future, int] = {}
    done: SimpleQueue[Future] = SimpleQueue()
    while waiting or running:
        while waiting and len(running) < at_once:
            number = waiting.popleft()
            future = submit(number)
            running[future] = number
            future.add_done_callback(done.put)
        future = done.get()
        yield running.pop(future), future


def _part_name(number: int) -> str:
    return f"{number:06d}"


def _do_part(do: Callable[[Any, Path], None], task: Any, path: Path) -> None:
    if path.exists():  # a worker that was thought lost has finished it meanwhile
        return
    with atomic(path, keep=True) as temporary:
        do(task, temporary)


def _fill_slot(slot: Path, pieces: Iterable[bytes]) -> int:
    """Write the pieces over the start of the file `slot`; returns their size in bytes."""
    size = 0
    with slot.open("r+b" if slot.exists() else "wb") as file:
        for piece in pieces:
            size += file.write(piece)
    return size


def _do_slot(
    do: Callable[[Any, Iterable[bytes], Path], None], task: Any, slot: Path, size: int, path: Path
) -> None:
    """Do a task whose bytes are the first `size` of the file `slot`."""

    def pieces(file) -> Iterator[bytes]:
        for start in range(0, size, READ_BYTES):
            yield file.read(min(READ_BYTES, size - start))

    # `keep`: a worker that was thought lost may have finished it meanwhile
    with slot.open("rb") as file, atomic(path, keep=True) as temporary:
        do(task, pieces(file), temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
