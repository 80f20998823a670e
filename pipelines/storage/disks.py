"""What a full, a read-only or a failing disk means, in one line; a look at the disks before any work; private folders.

The system's errors come as OSError, or inside libraries' errors, whose texts end in the system's words.
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

LOCAL = Path("/var/tmp")  # of this machine; kept when it starts anew
LEAST = 1 << 20  # free bytes without which no work begins
NETWORK = re.compile(
    r"nfs|cifs|smb|afs|9p|lustre|gpfs|beegfs|ceph|gluster|panfs|pvfs|orangefs|weka|fuse(\.|$)"
)
PLACES = ("data", ".longtail", ".dvc/tmp", ".dvc/cache")  # each may lie on a file system of its own
FULL = "free some, then run again, which goes on"
MEANING = {  # the system's words -> what to do
    r"No space left on device|database or disk is full|\d+ requested and \d+ written": FULL,  # the last is NumPy's
    r"Disk quota exceeded": FULL,
    r"Read-only file system|attempt to write a readonly database": "make it writable, or use another",
    r"Permission denied|Operation not permitted": "give this user the right to write there, and to read what is there",
}


def meaning(error: BaseException) -> str | None:
    """One line for an error of the system's that a user can mend; None for any other error."""
    if not isinstance(error, LongtailError):
        files = [
            name
            for name in (getattr(error, "filename", None), getattr(error, "filename2", None))
            if name
        ]
        return meaning_of(str(getattr(error, "strerror", None) or error), files)
    return None


def meaning_of(text: str, files: Iterable[str | os.PathLike] = ()) -> str | None:
    """`meaning` of a library's words, perhaps on some files; without any, on the places that a stage writes to."""
    for words, mend in MEANING.items():
        if match := re.search(words, text, re.IGNORECASE):
            named = [os.fsdecode(file) for file in files] or re.findall(
                r"'([^']+)'", text[match.end() :]
            )
            places = [place for place in (*PLACES, tempfile.gettempdir()) if Path(place).is_dir()]
            where = ", ".join(name.removeprefix(f"{Path.cwd()}/") for name in named or places)
            said = (
                "no space left on device"
                if mend == FULL
                else f"{match[0][0].lower()}{match[0][1:]}"
            )
            return f"{where}: {said}; {mend}"
    return None


def new_array(file: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped .npy file to fill. Its space is taken first: a disk that gets full would kill the process."""
    import numpy as np

    array = np.lib.format.open_memmap(file, "w+", dtype, shape)
    if array.nbytes and hasattr(os, "posix_fallocate"):  # macOS has none
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
    return array


def check_disks(*places: str | os.PathLike) -> None:
    """Raise LongtailError for a place, of those given or of PLACES, that has no space or can't be written to."""
    for place in map(Path, places or PLACES):
        near = next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
        try:
            with tempfile.TemporaryFile(dir=near):
                free = shutil.disk_usage(near).free
        except OSError as error:
            error.filename = str(near)
            raise LongtailError(meaning(error) or f"{near}: {error}") from None
        if free < LEAST:
            raise LongtailError(f"{place}: {free >> 10} kB are left on its disk; {FULL}")


def is_on_network(path: Path) -> bool:
    """Whether a path lies on a network file system, where SQLite's WAL mode does not work."""
    path = path.resolve()
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    near = next(
        (mounts[str(folder)] for folder in (path, *path.parents) if str(folder) in mounts), ""
    )
    return bool(NETWORK.match(near))


def private(folder: Path) -> Path:
    """Make a folder that only this user can open (0700); LongtailError if it is a link or another user's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        raise LongtailError(
            f"{folder}: a link or another user's, expected a folder of this user; remove it"
        )
    folder.chmod(0o700)
    return folder


def local(folder: Path) -> Path:
    """The private folder that stands for a shared one on this machine: below /var/tmp, with the same path there."""
    return private(private(LOCAL / f"longtail-{os.geteuid()}") / folder.resolve().relative_to("/"))
