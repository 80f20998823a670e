"""Atomic writes and resumable, mapped work: a result is whole or not there, and a killed run goes on where it stopped.

Half-done work lies under .longtail/ (never under data/): temporary files in .longtail/tmp, finished shards of an
unfinished stage in .longtail/shards/<stage>-<key>, removed when the stage is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

SCRATCH = Path(".longtail")
PIECE = 1 << 20  # bytes that a worker reads at once of a shard of a stream


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well, the file or folder written there takes `path`'s place."""
    path = Path(path)
    (SCRATCH / "tmp").mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f"{platform.node()}.{os.getpid()}-", dir=SCRATCH / "tmp"))
    try:
        yield (temporary := holder / path.name)
        if temporary.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def sweep() -> None:
    """Remove the temporary files of processes that are gone: a killed one can't do it itself."""
    import psutil

    for holder in (SCRATCH / "tmp").glob(f"{platform.node()}.*-*"):
        if not psutil.pid_exists(int(holder.name.removeprefix(f"{platform.node()}.").split("-")[0])):
            shutil.rmtree(holder, ignore_errors=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as stable, readable JSON, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def key_of(*parts: Any) -> str:
    """A short name for the inputs of some work: values that print the same, and files by their bytes."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, Path):
            for file in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if file.is_file():
                    digest.update(file.name.encode())
                    with file.open("rb") as stream:
                        for block in iter(lambda: stream.read(1 << 20), b""):
                            digest.update(block)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


def map_shards(
    stage: str, key: str, work: Callable[[Any, Path], None], shards: Sequence[Any], executor: Executor | None = None
) -> list[Path]:
    """Do `work(shard, path)` for every shard not done before; return the shards' files, in the shards' order.

    A shard's file appears whole or not at all. `work` must be picklable when an executor is given. The caller reads the
    files, writes the stage's output, and calls `forget(stage, key)`.
    """
    folder = SCRATCH / "shards" / f"{stage}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i:06d}" for i in range(len(shards))]
    todo = [(shard, path) for shard, path in zip(shards, paths, strict=True) if not path.exists()]
    with tqdm(total=len(shards), initial=len(shards) - len(todo), desc=stage, unit="shard", mininterval=2) as bar:
        if executor is None:
            for shard, path in todo:
                _one(work, shard, path)
                bar.update()
        else:
            for future in [executor.submit(_one, work, shard, path) for shard, path in todo]:
                future.result()
                bar.update()
    return paths


def _one(work: Callable[[Any, Path], None], shard: Any, path: Path) -> None:
    with atomic(path) as temporary:
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

    A shard comes as (what it is, its bytes in pieces); `work(what, pieces, path)` is done for those not done before,
    and reads all pieces. `at_once` shards wait or are worked on, no more: their bytes pass to the workers in as many
    files, written over and over, which is ten times faster than the executor's pipe.
    """
    folder = SCRATCH / "shards" / f"{stage}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    (SCRATCH / "tmp").mkdir(exist_ok=True)
    running: deque[tuple[Future | None, Path]] = deque()
    with (
        tempfile.TemporaryDirectory(prefix=f"{platform.node()}.{os.getpid()}-", dir=SCRATCH / "tmp") as slots,
        tqdm(desc=stage, unit="shard", mininterval=2) as bar,
    ):
        for i, (what, pieces) in enumerate(stream):
            if len(running) == at_once:
                yield _finished(*running.popleft())
            path, future = folder / f"{i:06d}", None
            if path.exists():
                deque(pieces, maxlen=0)  # read and forgotten
            elif executor is None:
                _streamed(work, what, pieces, path)
            else:
                slot = Path(slots) / str(i % at_once)  # its last shard is finished: at most `at_once` are running
                with slot.open("r+b" if slot.exists() else "wb") as file:
                    size = sum(file.write(piece) for piece in pieces)
                future = executor.submit(_from_slot, work, what, slot, size, path)
            running.append((future, path))
            bar.update()
        while running:
            yield _finished(*running.popleft())


def _finished(future: Future | None, path: Path) -> Path:
    if future:
        future.result()
    return path


def _streamed(work: Callable[[Any, Iterable[bytes], Path], None], what: Any, pieces: Iterable[bytes], path: Path):
    with atomic(path) as temporary:
        work(what, pieces, temporary)


def _from_slot(work: Callable[[Any, Iterable[bytes], Path], None], what: Any, slot: Path, size: int, path: Path):
    with slot.open("rb") as file:
        starts = range(0, size, PIECE)
        _streamed(work, what, (file.read(min(PIECE, size - start)) for start in starts), path)


def forget(stage: str, key: str) -> None:
    """Remove the finished shards of a stage whose output is written."""
    shutil.rmtree(SCRATCH / "shards" / f"{stage}-{key}", ignore_errors=True)
