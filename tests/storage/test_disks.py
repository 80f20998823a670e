"""What the system and the libraries say of a full or read-only disk becomes one line that says
where and what to do."""

import errno
import os
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.storage import disks


@pytest.fixture(autouse=True)
def here(workplace):
    Path("data").mkdir()


def test_an_error_with_a_file_names_it():
    error = OSError(errno.EROFS, os.strerror(errno.EROFS), str(Path.cwd() / "data/x"))
    assert disks.meaning(error) == "data/x: read-only file system; make it writable, or use another"
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/elsewhere/y")
    assert disks.meaning(error).startswith(
        "/elsewhere/y: permission denied; give this user the right"
    )
    said = f"failed to transfer 'ab' - [Errno 28] No space left on device: '{Path.cwd()}/data/a' -> '/cache/ab.tmp'"
    # DVC's
    assert disks.meaning_of(said).startswith(
        "data/a, /cache/ab.tmp: no space left on device; free some"
    )
    assert disks.meaning(ValueError("no space in the name")) is None
    assert disks.meaning(OSError(errno.ENOENT, os.strerror(errno.ENOENT), "x")) is None
    assert disks.meaning(LongtailError("x: Permission denied by the server")) is None


@pytest.mark.parametrize(
    "said",
    [
        # pyarrow
        "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
        "database or disk is full",  # SQLite
        "Could not write file: No space left on device",  # DuckDB
        "Error while serializing: I/O error: No space left on device (os error 28)",  # safetensors
    ],
)
def test_an_error_without_a_file_names_likely_places(said, monkeypatch):
    assert (
        disks.meaning(RuntimeError(said)).partition(";")[0].partition(": ")[0].startswith("data, ")
    )
    monkeypatch.setattr(disks, "MIN_FREE_BYTES", 1 << 60)  # as if all were full
    assert "free some, then run again, which goes on" in disks.meaning(RuntimeError(said))


def test_places_are_looked_at_where_they_will_be(monkeypatch):
    disks.check_disks("data/not/yet/there", ".longtail")
    assert (os.listdir(), os.listdir("data")) == (["data"], [])
    monkeypatch.setattr(disks, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(LongtailError, match=r"^data: \d+ kB are left on its disk; free some"):
        disks.check_disks("data")
