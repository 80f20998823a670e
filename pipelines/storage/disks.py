"""Check disks before any work, say in one line what is wrong with a disk, and make private folders.

The system's errors come as OSError, or inside libraries' errors, whose texts end in the system's
words.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pipelines.errors import LongtailError

if TYPE_CHECKING:
    import numpy as np

LOCAL = Path("/var/tmp")  # a folder of this machine, which survives a restart
MIN_FREE_BYTES = 1 << 20  # free bytes without which no work begins
NETWORK = re.compile(
    r"nfs|cifs|smb|afs|9p|lustre|gpfs|beegfs|ceph|gluster|panfs|pvfs|orangefs|weka|fuse(\.|$)"
)
PLACES = ("data", ".longtail", ".dvc/tmp", ".dvc/cache")  # each may lie on a file system of its own
FULL = "free some, then run again, which goes on"
# The system's words -> what to do. The words with "requested" are NumPy's.
ADVICE = {
    r"No space left on device|database or disk is full|\d+ requested and \d+ written": FULL,
    r"Disk quota exceeded": FULL,
    r"Read-only file system|attempt to write a readonly database": (
        "make it writable, or use another"
    ),
    "Invalid cross-device link": "put all of data/ on one disk, and all of .longtail/",
    r"Permission denied|Operation not permitted": (
        "give this user the right to write there, and to read what is there"
    ),
}


def meaning(error: BaseException) -> str | None:
    """One line for a system's error that a user can mend; None for any other error."""
    if isinstance(error, LongtailError):
        return None
    names = [getattr(error, "filename", None), getattr(error, "filename2", None)]
    files = [name for name in names if name]
    text = getattr(error, "strerror", None) or error
    return meaning_of(str(text), files)


def meaning_of(text: str, files: Iterable[str | os.PathLike] = ()) -> str | None:
    """`meaning` of a library's words about `files`.

    Without files, the line names the files in the text, or else the places that a stage writes to.
    """
    for words, advice in ADVICE.items():
        match = re.search(words, text, re.IGNORECASE)
        if not match:
            continue

        names = [os.fsdecode(file) for file in files]
        if not names:
            names = re.findall(r"'([^']+)'", text[match.end() :])
        if not names:
            places = (*PLACES, tempfile.gettempdir())
            names = [place for place in places if Path(place).is_dir()]
        where = ", ".join(name.removeprefix(f"{Path.cwd()}/") for name in names)

        problem = match[0][0].lower() + match[0][1:]
        if advice == FULL:
            problem = "no space left on device"
        return f"{where}: {problem}; {advice}"
    return None


def new_array(file: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """A memory-mapped .npy file to fill.

    Its space on the disk is taken first, because a disk that gets full would kill the process.
    """
    import numpy as np

    array = np.lib.format.open_memmap(file, "w+", dtype, shape)
    if array.nbytes and hasattr(os, "posix_fallocate"):  # macOS has none
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
    return array


def check_disks(*places: str | os.PathLike) -> None:
    """Raise LongtailError for a place that is full or can't be written to; by default PLACES."""
    for place in map(Path, places or PLACES):
        near = next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
        try:
            with tempfile.TemporaryFile(dir=near):
                free = shutil.disk_usage(near).free
        except OSError as error:
            error.filename = str(near)
            raise LongtailError(meaning(error) or f"{near}: {error}") from None
        if free < MIN_FREE_BYTES:
            raise LongtailError(f"{place}: {free >> 10} kB are left on its disk; {FULL}")


def is_on_network(path: Path) -> bool:
    """Whether a path lies on a network file system, where SQLite's WAL mode does not work."""
    path = path.resolve()
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    for folder in (path, *path.parents):
        if str(folder) in mounts:
            return bool(NETWORK.match(mounts[str(folder)]))
    return False


def private(folder: Path) -> Path:
    """Make a folder that only this user can open (0700).

    Raises LongtailError if it is a link or another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise LongtailError(
            f"{folder}: a link or another user's, expected a folder of this user; remove it"
        )
    folder.chmod(0o700)
    return folder


def local(folder: Path) -> Path:
    """This machine's private folder for a shared one: below /var/tmp, with the same path there."""
    home = private(LOCAL / f"longtail-{os.geteuid()}")
    return private(home / folder.resolve().relative_to("/"))
