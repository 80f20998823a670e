"""The dvc command as it is, but that it writes dvc.lock and .dvc/tmp/rwlock whole or not at all.

DVC truncates these files and then writes them, dvc.lock for a tenth of a second, after every stage: a run killed in
that moment would leave half a lock, which the next `dvc repro` refuses, or takes for the state of fewer stages.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dvc import rwlock
from dvc.utils.serialize import _common, _yaml

_edit_rwlock = rwlock._edit_rwlock


def main() -> int:
    """Run `dvc` with this process's arguments; returns its exit code."""
    from dvc.cli import main as dvc

    write_whole()
    return dvc(sys.argv[1:])


def write_whole() -> None:
    """From now on, DVC within this process writes its two files whole or not at all."""
    _common._dump_data = _yaml._dump_data = _dump_whole
    rwlock._edit_rwlock = lambda folder, fs, hardlink: _edit_rwlock(folder, _WholeFiles(fs), hardlink)


class _WholeFiles:
    """DVC's file system, on which a file opened to be written takes its place when it is closed without an error."""

    def __init__(self, fs):
        self.join, self._fs = fs.join, fs

    def open(self, path: str, mode: str = "r", encoding: str = "utf-8"):
        return _whole(Path(path)) if mode == "w" else self._fs.open(path, mode, encoding=encoding)


def _dump_whole(path, data, dumper, fs=None, **options) -> None:
    """In place of DVC's `_dump_data`: the same text, moved into place when it is complete."""
    with _whole(Path(path)) as stream:
        dumper(data, stream, **options)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[str]]:
    folder = path.resolve().parent
    scratch = folder / ".dvc/tmp" if (folder / ".dvc/tmp").is_dir() else folder
    with tempfile.NamedTemporaryFile("w", dir=scratch, encoding="utf-8", delete=False) as stream:
        try:
            yield stream
        except BaseException:
            os.unlink(stream.name)
            raise
    os.chmod(stream.name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(stream.name, path)


if __name__ == "__main__":
    sys.exit(main())
