"""Write a file or a folder as a whole or not at all. A killed run leaves no half-written output.

Temporary files of data/ lie in data/.longtail/tmp, those of .longtail/ in .longtail/tmp, and others
beside their target. So data/ and .longtail/ may be on disks of their own.
"""

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
DATA = Path("data")
HOMES = {DATA: DATA / SCRATCH / "tmp", SCRATCH: SCRATCH / "tmp"}  # of temporary files


@contextmanager
def atomic(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary path, and put the file or folder written there in `path`'s place.

    Where the block raises an error, or an interruption comes, `path` stays as it was. With `keep`,
    what came to be at `path` meanwhile stays.

    The new content is on the disk before it takes the place of the old. So a power cut leaves
    either the old or the new file. Of a folder it may leave neither, if it comes in the moment
    between the two renames.
    """
    path = Path(path)
    holder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=_temporary(path)))
    if holder.is_relative_to(Path.cwd()):
        # DuckDB gets such names, and the project's folder may have a quote in its name.
        holder = holder.relative_to(Path.cwd())
    temporary = holder / path.name

    try:
        yield temporary
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
        if not os.path.lexists(path):
            with suppress(FileNotFoundError):
                os.rename(holder / "old", path)
        shutil.rmtree(holder, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """The folder for temporary files that can take `path`'s place."""
    absolute = Path(os.path.abspath(path))
    for top, home in HOMES.items():
        if absolute.is_relative_to(top.absolute()):
            home.mkdir(parents=True, exist_ok=True)
            return home
    return next(folder for folder in absolute.parents if folder.is_dir())


def _prefix() -> str:
    """How this process's temporary folders are called; `sweep` reads the process from it."""
    return f"{platform.node()}.{os.getpid()}-"


def sync(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def scratch_folder() -> tempfile.TemporaryDirectory:
    """A temporary folder for a block; `sweep` removes it if this process is killed in the block."""
    home = HOMES[SCRATCH]
    home.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=_prefix(), dir=home)


def sweep() -> None:
    """Remove the temporary files of processes that were killed."""
    node = platform.node()
    for home in HOMES.values():
        for holder in home.glob(f"{glob.escape(node)}.*-*"):
            pid = holder.name.removeprefix(f"{node}.").split("-")[0]
            if pid.isdecimal() and not is_running(int(pid)):
                shutil.rmtree(holder, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie, which has ended and waits for its parent, does not."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_json(path: str | Path) -> Any:
    """The value of a file in JSON."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as stable, readable JSON, atomically."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(path, f"{text}\n")


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
