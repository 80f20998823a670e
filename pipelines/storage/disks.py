"""What a full, a read-only or a failing disk means, in one line; and a look at the disks before any work.

The system's errors come as OSError, or inside libraries' errors, whose texts end in the system's words.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import LongtailError

if TYPE_CHECKING:
    import numpy as np

LEAST = 1 << 20  # free bytes without which no work begins
PLACES = ("data", ".longtail", ".dvc/tmp", ".dvc/cache")  # each may lie on a file system of its own
FULL = "free some, then run again, which goes on"
MEANING = {  # the system's words -> what to do
    r"No space left on device|database or disk is full|\d+ requested and \d+ written": FULL,  # the last is NumPy's
    r"Disk quota exceeded": "free some of it, then run again, which goes on",
    r"Read-only file system|attempt to write a readonly database": "make it writable, or use another",
    r"Permission denied|Operation not permitted": "give this user the right to write there, and to read what is there",
    r"Input/output error": "the disk may be failing: look at the system's log, then `longtail status --verify`",
    r"Is a directory": "name a file, not a folder",
    r"Too many open files": "raise the limit (ulimit -n)",
}


def meaning(error: BaseException) -> str | None:
    """One line for an error of the system's that a user can mend; None for any other error."""
    if not isinstance(error, LongtailError):
        files = [name for name in (getattr(error, "filename", None), getattr(error, "filename2", None)) if name]
        files = files[-1:] if isinstance(error, IsADirectoryError) else files  # of a move, where it leads
        return meaning_of(str(getattr(error, "strerror", None) or error), files)
    return None


def meaning_of(text: str, files: Iterable[str | os.PathLike] = ()) -> str | None:
    """`meaning` of a library's words, perhaps on some files; without any, on the places that a stage writes to."""
    for words, mend in MEANING.items():
        if match := re.search(words, text, re.IGNORECASE):
            named = [os.fsdecode(file) for file in files] or re.findall(r"'([^']+)'", text[match.end() :])
            places = [place for place in (*PLACES, tempfile.gettempdir()) if Path(place).is_dir()]
            full = [place for place in places if mend == FULL and shutil.disk_usage(place).free < LEAST]
            where = ", ".join(name.removeprefix(f"{Path.cwd()}/") for name in named or full or places)
            said = "no space left on device" if mend == FULL else f"{match[0][0].lower()}{match[0][1:]}"
            return f"{where}: {said}; {mend}"
    return None


def new_array(file: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped .npy file to fill. Its space is taken first: a disk that gets full would kill the process."""
    import numpy as np

    array = np.lib.format.open_memmap(file, "w+", dtype, shape)
    if array.nbytes:
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
