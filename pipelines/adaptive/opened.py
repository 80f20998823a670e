"""What answered the last question of a session, kept open for the next: a language model, and an index to search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Opened:
    """The last thing that was opened of each kind."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, Any]] = {}

    def get(self, kind: str, how: Callable[[], Any], files: Sequence[Path], *settings: Any) -> Any:
        """What `how` opened before of this kind, or opens now, where the files or the settings are others than then.

        A folder among `files` stands for all files below it.
        """
        every = [file for path in files for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        states = [(str(file), file.stat().st_ino, file.stat().st_size, file.stat().st_mtime_ns) for file in every]
        made_of = repr(settings), states
        if kind not in self._kept or self._kept[kind][0] != made_of:
            self._kept.pop(kind, None)  # first, as both may not fit into memory
            self._kept[kind] = made_of, how()
        return self._kept[kind][1]
