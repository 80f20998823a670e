"""The servers of one model: a request goes to the least busy, and one that fails is left out of the rest of the run."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tqdm import tqdm


class Servers:
    """The addresses `urls` of servers that serve one model; at most `at_once` requests to each side by side."""

    def __init__(self, urls: Sequence[str], at_once: int) -> None:
        self._urls, self._at_once = list(urls), at_once
        self._busy: Counter[str] = Counter()  # requests to each that are not answered
        self._changed = threading.Condition()
        self._model: str | None = None  # as the first answer states it

    @contextmanager
    def least_busy(self, go_on: Callable[[], None]) -> Iterator[str]:
        """Yield the address of the least busy server, the first of equals, once it has room for a request.

        `go_on` is called while waiting, and raises where waiting is to end.
        """
        with self._changed:
            while self._busy[url := min(self._urls, key=self._busy.__getitem__)] >= self._at_once:
                self._changed.wait(1.0)
                go_on()
            self._busy[url] += 1
        try:
            yield url
        finally:
            with self._changed:
                self._busy[url] -= 1
                self._changed.notify_all()

    @property
    def several(self) -> bool:
        """Whether another server can take over."""
        return len(self._urls) > 1

    def leave_out(self, url: str, reason: object) -> bool:
        """Send nothing more to a server, and warn; False if it is the only one left."""
        with self._changed:
            if url in self._urls:
                if len(self._urls) == 1:
                    return False
                self._urls.remove(url)
                tqdm.write(f"warning: {url} is left out, others go on: {reason}", file=sys.stderr)
            return True

    def states(self, model: str | None) -> str | None:
        """What another server stated as its model before, if that differs from `model`; else None."""
        with self._changed:
            self._model = self._model or model
            return self._model if model and model != self._model else None
