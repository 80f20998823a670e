"""Keep finished parts of a stage's work, so that a killed run goes on where it stopped.

Finished shards of an unfinished stage lie in .longtail/shards/<stage>-<key>.
"""

import hashlib
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tqdm import tqdm

from pipelines import progress
from pipelines.storage.atomic import SCRATCH, atomic, scratch_folder

PIECE = 1 << 20  # bytes that a worker reads at once of a shard of a stream
SAMPLE = 64 << 10  # bytes that a fingerprint reads at once
SAMPLES = 1024  # samples of a file or folder; if they cover it, it is read as a whole
END = (
    16 << 20
)  # bytes at a file's end: Parquet's say of every column chunk its place, size, minimum and maximum
AT_ONCE = 4096  # shards that an executor is given at once: more than it has workers, but no million futures


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
    files = sorted(
        file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()
    )
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
        for i, future in in_parallel(
            todo, lambda i: executor.submit(_one, work, shards[i], paths[i]), AT_ONCE
        ):
            future.result()
            bar.update(sizes[i])
    return paths


@contextmanager
def unfinished(
    stage: str, key: str, sizes: Sequence[int], unit: str
) -> Iterator[tuple[list[Path], list[int], tqdm]]:
    """Yield the files of all shards of a stage, the places of the missing ones, and a bar of all sizes."""
    folder, done = _begun(stage, key)
    paths = [folder / f"{i:06d}" for i in range(len(sizes))]
    todo = [i for i, path in enumerate(paths) if path.name not in done]
    before = sum(sizes) - sum(sizes[i] for i in todo)
    with progress.bar(stage, sum(sizes), unit, before) as bar:
        yield paths, todo, bar


def in_parallel(
    todo: Iterable[int], submit: Callable[[int], Future], at_once: int
) -> Iterator[tuple[int, Future]]:
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
                slot = Path(
                    slots, str(i % at_once)
                )  # its last shard is finished: at most `at_once` are running
                with slot.open("r+b" if slot.exists() else "wb") as file:
                    size = sum(file.write(piece) for piece in pieces)
                call = work, what, slot, size, path
                future = executor.submit(_from_slot, *call) if executor else _from_slot(*call)
            running.append((future, path))
            bar.update()
        while running:
            yield finished()


def _from_slot(
    work: Callable[[Any, Iterable[bytes], Path], None], what: Any, slot: Path, size: int, path: Path
):
    with (
        slot.open("rb") as file,
        atomic(path, keep=True) as temporary,
    ):  # `keep`: by a worker that was thought lost
        work(
            what,
            (file.read(min(PIECE, size - start)) for start in range(0, size, PIECE)),
            temporary,
        )


def forget_shards(stage: str, key: str) -> None:
    """Remove the finished shards of a stage whose output is written."""
    shutil.rmtree(SCRATCH / "shards" / f"{stage}-{key}", ignore_errors=True)
