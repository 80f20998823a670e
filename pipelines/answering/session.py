"""A session of questions: a model or an index that was opened stays open for the next question."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.answering import passages
from pipelines.answering.passages import PassageSettings, Source
from pipelines.language.language import ENGLISH, Language
from pipelines.methods import Method

LOCK = Path("dvc.lock")  # it changes with every output of a run


class Session:
    """Keeps what was opened last under each name, until a run changes its outputs."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[str, Any]] = {}  # name -> settings as text, what was opened
        self._lock: bytes | None = None

    def get(self, name: str, open_: Callable[[], Any], *settings: Any) -> Any:
        """What `open_` gave under this name for the same settings, or gives now.

        Everything is forgotten when dvc.lock changes.
        """
        lock = LOCK.read_bytes() if LOCK.is_file() else None
        if lock != self._lock:
            self._opened.clear()
            self._lock = lock

        text = repr(settings)
        opened_for, opened = self._opened.get(name, ("", None))
        if opened_for != text:
            opened = None
            self._opened.pop(name, None)  # first, as both may not fit into memory
            opened = open_()
            self._opened[name] = (text, opened)
        return opened

    def source(
        self, method: str, settings: PassageSettings, data: Path, spoken: Language = ENGLISH
    ) -> Source | None:
        """`open_source` of a method that has files, None for the others.

        Raises LongtailError if an index is not there.
        """
        if not passages.inputs(method, settings, data):
            return None
        parsed = Method.parse(method, settings.retrievers)

        def open_() -> Source | None:
            return passages.open_source(method, None, settings, data, spoken)

        retriever = settings.retriever.get(parsed.retriever)
        used = (settings.answer, spoken.between_passages, settings.replug, settings.compute)
        return self.get("passages", open_, parsed, retriever, settings.parts.datastore, *used, data)
