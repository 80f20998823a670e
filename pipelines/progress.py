"""Progress bars of long work, in which code far below says how much of the current piece is done.

A bar counts what its stage counts, as questions. A slow model takes a minute for a piece of some of
them; after each batch it calls `advance`, which the innermost bar of this thread shows, if there is
one. Threads may have pieces of one bar.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock

from tqdm import tqdm


@dataclass
class _Piece:
    """The work in progress under a bar."""

    bar: tqdm
    size: int
    share: float = 0.0  # the share of the piece that is done
    shown: int = 0  # how much of its size the bar shows

    def show(self, done: int) -> None:
        """Let the bar count `done` of the piece's units."""
        with _drawing:
            self.bar.update(done - self.shown)
        self.shown = done


_drawing = Lock()
_piece: ContextVar[_Piece | None] = ContextVar("piece", default=None)


def bar(desc: str, total: int | None, unit: str, initial: int = 0) -> tqdm:
    """A bar that is drawn every other second at most."""
    return tqdm(total=total, initial=initial, desc=desc, unit=unit, mininterval=2)


@contextmanager
def piece(bar: tqdm, size: int) -> Iterator[None]:
    """The block does `size` units of the bar's, as many as `advance` says so far, and all of them
    at its end.
    """
    current = _Piece(bar, size)
    before = _piece.set(current)
    try:
        yield
    finally:
        _piece.reset(before)
    current.show(size)


@contextmanager
def whole(desc: str, size: int, unit: str) -> Iterator[None]:
    """A bar for a block that is one piece."""
    with bar(desc, size, unit) as drawn, piece(drawn, size):
        yield


def advance(done: int, total: int) -> None:
    """Of the `total` parts of some work, `done` more are done; of several works in a piece the
    first counts.
    """
    current = _piece.get()
    if current and total:
        current.share = min(1.0, current.share + done / total)
        current.show(int(current.share * current.size))
