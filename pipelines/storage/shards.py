"""Atomic writes and resumable, mapped work: a result is whole or not there, and a killed run goes on where it stopped.

Temporary files lie in .longtail/tmp, and finished shards of an unfinished stage in .longtail/shards/<stage>-<key>.
Where data/ is on another file system, its temporary files lie in data/.longtail/tmp, from where a rename works.
"""

import errno
import glob
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tqdm import tqdm

from pipelines import progress

SCRATCH = Path(".longtail")
PIECE = 1 << 20  # bytes that a worker reads at once of a shard of a stream
SAMPLE = 64 << 10  # bytes that a fingerprint reads at once
SAMPLES = 1024  # samples of a file or folder; if they cover it, it is read as a whole
END = 16 << 20  # bytes at a file's end: Parquet's say of every column chunk its place, size, minimum and maximum
AT_ONCE = 4096  # shards that an executor is given at once: more than it has workers, but no million futures


@contextmanager
def atomic(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well, the file or folder written there takes `path`'s place.

    It is on disk by then: a power cut leaves the old or the new, or of a folder, in the moment between them, none. With
    `keep`, what came to be at `path` meanwhile stays.
    """
    path = Path(path)
    holder = Path(tempfile.mkdtemp(prefix=f"{platform.node()}.{os.getpid()}-", dir=_temporary(path)))
    if holder.is_relative_to(Path.cwd()):  # DuckDB gets such names, and the project's may have a quote
        holder = holder.relative_to(Path.cwd())
    try:
        yield (temporary := holder / path.name)
        if keep and path.exists():
            return
        for file in [*temporary.rglob("*"), temporary]:
            sync(file)
        if temporary.is_dir():
            with suppress(FileNotFoundError):
                os.rename(path, holder / "old")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """The folder for temporary files that can take `path`'s place."""
    home = SCRATCH / "tmp"
    near = next(folder for folder in Path(os.path.abspath(path)).parents if folder.is_dir())
    home.mkdir(parents=True, exist_ok=True)
    if _together(home, near):
        return home
    if Path.cwd() not in near.parents:
        return near
    while near.parent != Path.cwd() and _together(near, near.parent):  # to the file system's top: outside of outputs
        near = near.parent
    (near / SCRATCH.name / "tmp").mkdir(parents=True, exist_ok=True)
    return near / SCRATCH.name / "tmp"


def _together(one: Path, other: Path) -> bool:
    """Whether files can be renamed from a folder to another: both are in one mount of one file system."""
    try:
        os.rename(one / "\n", other / "\n")  # there is no such file; the system looks at the mounts first
    except OSError as error:
        return error.errno != errno.EXDEV and one.stat().st_dev == other.stat().st_dev
    return True


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def scratch_folder() -> tempfile.TemporaryDirectory:
    """A temporary folder for a block; if this process is killed in the block, `sweep` removes the folder."""
    (SCRATCH / "tmp").mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=f"{platform.node()}.{os.getpid()}-", dir=SCRATCH / "tmp")


def sweep() -> None:
    """Remove the temporary files of processes that are gone: a killed one can't do it itself."""
    node = platform.node()
    for place in (Path(), Path("data"), *Path("data").glob("*/")):
        for holder in (place / SCRATCH / "tmp").glob(f"{glob.escape(node)}.*-*"):
            pid = holder.name.removeprefix(f"{node}.").split("-")[0]
            if pid.isdecimal() and not lives(int(pid)):
                shutil.rmtree(holder, ignore_errors=True)


def lives(pid: int) -> bool:
    """Whether a process runs. A zombie, of whose end nobody took note, does not."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as stable, readable JSON, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def key_of(*parts: Any) -> str:
    """A short name for the inputs of some work: values that print the same, and files by their `fingerprint`."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update((fingerprint(part) if isinstance(part, Path) else repr(part)).encode())
    return digest.hexdigest()


def fingerprint(path: Path) -> str:
    """A hash that stands for the content of a file or folder; takes a fraction of a second at any size.

    Of large ones it reads names, sizes, the ends and pieces spread evenly. It could miss a few bytes edited by hand.
    """
    path = Path(path)
    files = sorted(file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    sizes = [file.stat().st_size for file in files]
    digest = hashlib.blake2b(repr(([file.name for file in files], sizes)).encode(), digest_size=8)
    step = max(SAMPLE, sum(sizes) // SAMPLES)
    for file, size in zip(files, sizes, strict=True):
        with file.open("rb") as stream:
            for place in range(0, size, step):
                stream.seek(place)
                digest.update(stream.read(SAMPLE))
            if step > SAMPLE:
                stream.seek(max(0, size - END // len(files)))
                digest.update(stream.read())
    return digest.hexdigest()


def md5(path: Path) -> str:
    """DVC's hash of a file or a folder."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    return of_listing({name: md5(file) for name, file in files.items()})


def of_listing(files: dict[str, str]) -> str:
    """DVC's hash of a folder with these files: paths below it -> their hashes."""
    listed = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def map_shards(
    stage: str,
    key: str,
    work: Callable[[Any, Path], None],
    shards: Sequence[Any],
    executor: Executor | None = None,
    *,
    sizes: Sequence[int] = (),
    unit: str = "shard",
) -> list[Path]:
    """Do `work(shard, path)` for every shard not done before; return the shards' files, in the shards' order.

    The first error ends it. The caller writes the stage's output, and then calls `forget_shards`. Progress is shown
    in the `unit` of which `sizes` says how many each shard has.
    """
    sizes = sizes or [1] * len(shards)
    with unfinished(stage, key, sizes, unit) as (paths, todo, bar):
        if executor is None:
            for i in todo:
                with progress.piece(bar, sizes[i]):
                    _one(work, shards[i], paths[i])
            return paths
        for i, future in in_parallel(todo, lambda i: executor.submit(_one, work, shards[i], paths[i]), AT_ONCE):
            future.result()
            bar.update(sizes[i])
    return paths


@contextmanager
def unfinished(stage: str, key: str, sizes: Sequence[int], unit: str) -> Iterator[tuple[list[Path], list[int], tqdm]]:
    """Yield the files of all shards of a stage, the places of the missing ones, and a bar of all sizes."""
    folder, done = _begun(stage, key)
    paths = [folder / f"{i:06d}" for i in range(len(sizes))]
    todo = [i for i, path in enumerate(paths) if path.name not in done]
    before = sum(sizes) - sum(sizes[i] for i in todo)
    with progress.bar(stage, sum(sizes), unit, before) as bar:
        yield paths, todo, bar


def in_parallel(todo: Iterable[int], submit: Callable[[int], Future], at_once: int) -> Iterator[tuple[int, Future]]:
    """Submit what is `todo`, at most `at_once` unfinished at a time; yield each with its future once it is done."""
    waiting, running, ended = deque(todo), {}, SimpleQueue()
    while waiting or running:
        while waiting and len(running) < at_once:
            i = waiting.popleft()
            running[future := submit(i)] = i
            future.add_done_callback(ended.put)
        yield running.pop(future := ended.get()), future


def _begun(stage: str, key: str) -> tuple[Path, set[str]]:
    """A stage's shards and their names, listed: a network file system goes on to deny a file that it once denied."""
    folder = SCRATCH / "shards" / f"{stage}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder, {path.name for path in folder.iterdir()}


def _one(work: Callable[[Any, Path], None], shard: Any, path: Path) -> None:
    if not path.exists():  # done meanwhile by a worker that was thought lost
        with atomic(path, keep=True) as temporary:
            work(shard, temporary)


def map_stream(
    stage: str,
    key: str,
    work: Callable[[Any, Iterable[bytes], Path], None],
    stream: Iterable[tuple[Any, Iterable[bytes]]],
    executor: Executor | None = None,
    at_once: int = 1,
) -> Iterator[Path]:
    """`map_shards` for the shards of a long stream, which only this process can read: yield their files, in order.

    A shard comes as (what it is, its bytes in pieces); `work(what, pieces, path)` reads all pieces. At most `at_once`
    wait or are worked on. Their bytes pass to workers in that many files, ten times faster than by a pipe.
    """
    folder, done = _begun(stage, key)
    running: deque[tuple[Future | None, Path]] = deque()

    def finished() -> Path:
        future, path = running.popleft()
        if future:
            future.result()
        return path

    with scratch_folder() as slots, progress.bar(stage, None, "shard") as bar:
        for i, (what, pieces) in enumerate(stream):
            if len(running) == at_once:
                yield finished()
            path, future = folder / f"{i:06d}", None
            if path.name in done:
                deque(pieces, maxlen=0)
            else:
                slot = Path(slots, str(i % at_once))  # its last shard is finished: at most `at_once` are running
                with slot.open("r+b" if slot.exists() else "wb") as file:
                    size = sum(file.write(piece) for piece in pieces)
                call = work, what, slot, size, path
                future = executor.submit(_from_slot, *call) if executor else _from_slot(*call)
            running.append((future, path))
            bar.update()
        while running:
            yield finished()


def _from_slot(work: Callable[[Any, Iterable[bytes], Path], None], what: Any, slot: Path, size: int, path: Path):
    with slot.open("rb") as file, atomic(path, keep=True) as temporary:  # `keep`: by a worker that was thought lost
        work(what, (file.read(min(PIECE, size - start)) for start in range(0, size, PIECE)), temporary)


def forget_shards(stage: str, key: str) -> None:
    """Remove the finished shards of a stage whose output is written."""
    shutil.rmtree(SCRATCH / "shards" / f"{stage}-{key}", ignore_errors=True)
