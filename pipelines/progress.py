"""Progress bars of long work, in which code far below says how much of the current piece is done.

A bar counts what its stage counts, as questions. A slow model takes a minute for a piece of some of them; after each
batch it calls `advance`, which the innermost bar of this thread shows, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tqdm import tqdm


@dataclass
class _Piece:
    bar: tqdm
    begin: int  # the bar's position before the piece
    size: int
    share: float = 0.0  # the share of the piece that is done


_piece: ContextVar[_Piece | None] = ContextVar("piece", default=None)


def bar(desc: str, total: int | None, unit: str, initial: int = 0) -> tqdm:
    """A bar that is drawn every other second at most."""
    return tqdm(total=total, initial=initial, desc=desc, unit=unit, mininterval=2)


@contextmanager
def piece(bar: tqdm, size: int) -> Iterator[None]:
    """The block does `size` units of the bar's, as many as `advance` says so far, and all of them at its end."""
    before, begin = _piece.set(_Piece(bar, bar.n, size)), bar.n
    try:
        yield
    finally:
        _piece.reset(before)
    bar.update(begin + size - bar.n)


@contextmanager
def whole(desc: str, size: int, unit: str) -> Iterator[None]:
    """A bar for a block that is one piece."""
    with bar(desc, size, unit) as drawn, piece(drawn, size):
        yield


def advance(done: int, total: int) -> None:
    """Of the `total` parts of some work, `done` more are done; of several works in a piece the first counts."""
    if (current := _piece.get()) and total:
        current.share = min(1.0, current.share + done / total)
        current.bar.update(current.begin + int(current.share * current.size) - current.bar.n)
