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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

SCRATCH = Path(".longtail")


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


def forget(stage: str, key: str) -> None:
    """Remove the finished shards of a stage whose output is written."""
    shutil.rmtree(SCRATCH / "shards" / f"{stage}-{key}", ignore_errors=True)
