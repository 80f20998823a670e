"""Write a file or a folder as a whole or not at all. A killed run leaves no half-written output.

Temporary files lie in .longtail/tmp. Where data/ is on another file system, its temporary files lie in
data/.longtail/tmp, from where a rename works.
"""

import errno
import glob
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SCRATCH = Path(".longtail")


@contextmanager
def atomic(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well, the file or folder written there takes `path`'s place.

    It is on disk by then: a power cut leaves the old or the new, or of a folder, in the moment between them, none. With
    `keep`, what came to be at `path` meanwhile stays.
    """
    path = Path(path)
    holder = Path(
        tempfile.mkdtemp(prefix=f"{platform.node()}.{os.getpid()}-", dir=_temporary(path))
    )
    if holder.is_relative_to(
        Path.cwd()
    ):  # DuckDB gets such names, and the project's may have a quote
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
    while near.parent != Path.cwd() and _together(
        near, near.parent
    ):  # to the file system's top: outside of outputs
        near = near.parent
    (near / SCRATCH.name / "tmp").mkdir(parents=True, exist_ok=True)
    return near / SCRATCH.name / "tmp"


def _together(one: Path, other: Path) -> bool:
    """Whether files can be renamed from a folder to another: both are in one mount of one file system."""
    try:
        os.rename(
            one / "\n", other / "\n"
        )  # there is no such file; the system looks at the mounts first
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
    return tempfile.TemporaryDirectory(
        prefix=f"{platform.node()}.{os.getpid()}-", dir=SCRATCH / "tmp"
    )


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
        temporary.write_text(
            json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
        )
