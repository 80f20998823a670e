"""Say in one line what is wrong around a command: git, DVC's files, packages, disks, names.

An error is explained once it has come, so a command is only kept from its work by what it needs.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pipelines.errors import LongtailError, one_line
from pipelines.safe_text import UNREADABLE
from pipelines.storage import disks

OUR_PACKAGES = ("flows", "pipelines")
CONFLICT = re.compile("^(?:<{7}|>{7}) ", re.MULTILINE)  # git's marks
# Files of the project that people edit or merge, and that every run reads.
MERGED_FILES = (
    "dvc.lock",
    "dvc.yaml",
    "params.yaml",
    "prefect.yaml",
    "conf/**/*.yaml",
    ".dvc/config",
    ".dvc/config.local",
)
# What git and DVC say -> what to do.
ADVICE = {
    r"not a git repository": (
        "the folder may be unpacked from an archive; run git init in it, or git clone Longtail's "
        "repository"
    ),
    r"not inside of a DVC repository": "its folder .dvc is missing; git checkout .dvc brings it",
    r"dubious ownership": (
        "another user owns it; say that you trust it, as git advises, or git clone it anew"
    ),
    r"No such file or directory: 'git'": "install git",
    r"\bindex\b": "move .git/index away, and git reset makes it anew",
}


def explain(error: Exception) -> str | None:
    """One line for an error that a user can mend; None for any other, whose traceback says more."""
    conflict = _conflict(error)
    if conflict:
        return conflict
    if isinstance(error, LongtailError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return _missing_package(error)
    if isinstance(error, IsADirectoryError):
        path = os.fsdecode(error.filename2 or error.filename).removeprefix(f"{Path.cwd()}/")
        return f"{path}: is a directory; name a file, not a folder"
    return disks.meaning(error)


def check_name(root: Path) -> None:
    """Raise LongtailError for a project in a folder whose name DVC can't read."""
    if UNREADABLE.search(str(root)):
        raise LongtailError(
            f"{root}: bytes that are not UTF-8, expected a path in UTF-8, which DVC needs; rename "
            "that folder"
        )


def check_environment(root: Path) -> None:
    """Raise LongtailError where this Python is that of another checkout, which was copied here."""
    note = root / ".venv/place"  # make writes there where it made .venv
    home = Path(sys.prefix).parent
    if note.is_file() and Path(note.read_text().strip()) == home != root:
        raise LongtailError(
            f".venv: the environment of {home}, expected one of this folder, which was copied; "
            "`make install` makes it"
        )


def check_git_index(root: Path) -> None:
    """Raise LongtailError for a git index that git can't read, at which DVC's first stage fails."""
    if shutil.which("git") is None:
        return
    command = ["git", "ls-files", "dvc.yaml"]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if process.returncode and "index" in process.stderr:
        raise LongtailError(with_advice(process.stderr))


def with_advice(text: str) -> str:
    """`text`, of git or DVC, with what to do about it."""
    words = one_line(text).rstrip(".")
    for pattern, remedy in ADVICE.items():
        if re.search(pattern, words):
            return f"{words}; {remedy}"
    return f"{words}; see whether .git and .dvc are whole, or git clone the project anew"


def _conflict(error: Exception) -> str | None:
    """A line on git's conflict marks in a file that an error is about, or may be about."""
    for path in _merged_files():
        is_about_another = isinstance(error, LongtailError) and path.name not in str(error)
        text = path.read_text(encoding="utf-8", errors="replace")
        mark = CONFLICT.search(text)
        if mark and not is_about_another:
            line = text.count("\n", 0, mark.start()) + 1
            return (
                f"{path}: line {line}: git's conflict marks ({mark[0].strip()}), expected one side "
                f"of each; choose, or take the commit's if it has the file: git checkout HEAD -- "
                f"{path}"
            )
    return None


def _merged_files() -> Iterator[Path]:
    for pattern in MERGED_FILES:
        yield from filter(Path.is_file, sorted(Path().glob(pattern)))


def _missing_package(error: ModuleNotFoundError) -> str | None:
    package = str(error.name).split(".")[0]
    if package in OUR_PACKAGES:
        return None
    return (
        f"this needs {package}, which comes with the whole pipeline: pip install '.[pipeline]' in "
        "Longtail's checkout"
    )
