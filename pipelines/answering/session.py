"""What a session of questions opened, such as a model or an index, kept for the next question."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.answering.passages import AnsweringSettings, Source, inputs, open_source
from pipelines.errors import LongtailError

LOCK = Path("dvc.lock")  # every run that changes an output writes it


class Session:
    """What was opened last of each kind; all is forgotten once a run has changed dvc.lock."""

    def __init__(self, lock: Path = LOCK) -> None:
        self._lock = lock
        self._lock_text = self._read_lock()
        self._opened: dict[str, tuple[str, Any]] = {}  # kind -> (settings, what was opened)

    def get(self, kind: str, open_new: Callable[[], Any], *settings: Any) -> Any:
        """What `open_new` opened before of this kind with these settings, or opens now."""
        lock_text = self._read_lock()
        if lock_text != self._lock_text:
            self._opened.clear()
            self._lock_text = lock_text
        key = repr(settings)
        if kind in self._opened and self._opened[kind][0] == key:
            return self._opened[kind][1]

        self._opened.pop(kind, None)  # first, as both may not fit into memory
        opened = open_new()
        self._opened[kind] = (key, opened)
        return opened

    def source(self, method: str, settings: AnsweringSettings, data: Path) -> Source | None:
        """`open_source` of a method that has files, None for others.

        Raises LongtailError if an index lacks.
        """
        files = inputs(method, settings, data)
        if not files:
            return None
        for file in files:
            if file.name == "meta.json" and not file.is_file():
                raise LongtailError(f"{file.parent}: no such index; `longtail run` makes it")

        def open_new() -> Source | None:
            return open_source(method, None, settings, data)

        return self.get("passages", open_new, method, settings, data)

    def _read_lock(self) -> bytes:
        return self._lock.read_bytes() if self._lock.is_file() else b""
