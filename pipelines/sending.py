"""Send a folder's files, as a model's, to the workers of a Dask cluster that has no disk in common with this machine.

The files go through the scheduler in pieces, once however many workers lack them, into each worker's scratch folder.
Dask removes that folder with its worker. A larger folder goes through an object store that fsspec knows, or has to lie
at the same path on the workers' machines.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import shards
from pipelines.errors import LongtailError

DONE = "whole"  # the name of a file in the store, beside a folder's files: all of them are there
PIECE = 16 << 20  # bytes sent at once
MOST = 8 << 30  # bytes of a folder that is sent through the scheduler
KEPT = 3  # folders that a worker keeps, the newest


def send(client: Any, folder: Path, key: str, to: Sequence[str] | None = None, store: str | None = None) -> None:
    """Have a Dask client's workers, all or those at `to`, hold a folder; `key` is its `shards.key_of`.

    A large one is put into `store`, a URL, from where they get it. Raises LongtailError for a large one that a worker
    does not see where there is no store, for a store that can't be used, and where a folder arrives changed.
    """
    folder = Path(folder).absolute()
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    size = sum(file.stat().st_size for file in files)
    held = client.run(_holds, str(folder) if size > MOST else None, key, workers=to, on_error="ignore")
    lacking = [address for address, holds in held.items() if not holds]
    if not lacking:
        return
    names = [file.relative_to(folder).as_posix() for file in files]
    if size > MOST and store is None:
        raise LongtailError(
            f"{folder}: has {size / 1e9:.0f} GB, more than is sent to a Dask worker, and the one at {lacking[0]} has "
            "not the same files there; copy them to this path on each of the workers' machines, or set compute.store"
        )
    if size > MOST:
        _put(store, key, folder, names)
        said = client.run(_get, store, key, names, workers=lacking, on_error="ignore")
        if failed := [(address, why) for address, why in said.items() if why]:
            raise LongtailError(
                f"compute.store: the Dask worker at {failed[0][0]} can't read {store} ({failed[0][1]}); it needs access"
            )
    for file, name in zip(files, names, strict=True) if size <= MOST else ():
        for offset, piece in _pieces(file):
            client.run(_receive, key, name, offset, piece, workers=lacking, on_error="ignore")
    arrived = client.run(_finish, key, workers=lacking, on_error="ignore")
    if changed := [address for address, whole in arrived.items() if not whole]:
        raise LongtailError(
            f"{folder}: did not arrive whole at the Dask worker at {changed[0]}; is its disk full? Run again"
        )


def _put(store: str, key: str, folder: Path, names: Sequence[str]) -> None:
    """Put a folder's files into store/key, unless they all are there."""
    try:
        import fsspec

        system, root = fsspec.url_to_fs(f"{store.rstrip('/')}/{key}")
        if system.exists(f"{root}/{DONE}"):
            return
        for name in names:
            system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            system.put_file(str(folder / name), f"{root}/{name}")
        system.pipe_file(f"{root}/{DONE}", b"")
    except Exception as error:  # each kind of store has errors of its own
        raise LongtailError(f"compute.store: can't write to {store} ({_line(error)}); correct it") from None


async def _get(store: str, key: str, names: Sequence[str], dask_worker: Any) -> str | None:
    """Get a folder's files from store/key; why that fails, if it does."""
    begun = _begun(dask_worker.local_directory, key)

    def get() -> str | None:
        try:
            import fsspec

            system, root = fsspec.url_to_fs(f"{store.rstrip('/')}/{key}")
            for name in names:
                (begun / name).parent.mkdir(parents=True, exist_ok=True)
                system.get_file(f"{root}/{name}", str(begun / name))
        except Exception as error:
            return _line(error)
        return None

    return await asyncio.to_thread(get)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def place(folder: Path, key: str, scratch: str) -> Path | None:
    """Where a worker with the scratch folder `scratch` holds the files of `folder`; None if it doesn't."""
    if (sent := _home(scratch, key)).is_dir():
        return sent
    return Path(folder) if key in _same.get(str(folder), ()) else None


_same: dict[str, set[str]] = {}  # folder -> keys that it was seen to have, in a worker


async def _holds(folder: str | None, key: str, dask_worker: Any) -> bool:
    """Whether this worker was sent the files, or sees them itself in `folder`, if one is named."""
    if place(Path(folder or "/"), key, dask_worker.local_directory):
        return True
    if folder and Path(folder).is_dir() and await asyncio.to_thread(shards.key_of, Path(folder)) == key:
        _same.setdefault(folder, set()).add(key)
        return True
    return False


def _receive(key: str, name: str, offset: int, piece: bytes, dask_worker: Any) -> None:
    file = _begun(dask_worker.local_directory, key) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("r+b" if offset else "wb") as stream:
        stream.seek(offset)
        stream.write(piece)


async def _finish(key: str, dask_worker: Any) -> bool:
    """Check what arrived, and put it in its place; whether it is what was sent."""
    begun, home = _begun(dask_worker.local_directory, key), _home(dask_worker.local_directory, key)
    whole = await asyncio.to_thread(shards.key_of, begun) == key
    if whole and not home.exists():
        begun.rename(home)
        others = sorted(home.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for other in others[KEPT:]:
            shutil.rmtree(other, ignore_errors=True)
    shutil.rmtree(begun, ignore_errors=True)
    return whole


def _home(scratch: str, key: str) -> Path:
    return Path(scratch, "longtail", key)


def _begun(scratch: str, key: str) -> Path:
    return Path(scratch, "longtail", f"{key}.begun")


def _pieces(file: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of a file; an empty one has one piece."""
    with file.open("rb") as stream:
        offset, piece = 0, stream.read(PIECE)
        while piece or not offset:
            yield offset, piece
            offset += len(piece)
            piece = stream.read(PIECE)
            if not offset:
                return
