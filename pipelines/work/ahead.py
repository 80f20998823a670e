"""Prepare the next piece of work in a thread while the present one is done."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pipelines.storage.work_store import in_parallel

PREPARED = 2  # pieces that are prepared or waiting: the next one, and the one after it

Piece = TypeVar("Piece")


def prepared(
    numbers: Sequence[int], prepare: Callable[[int], Piece], *, in_thread: bool
) -> Iterator[tuple[int, Piece]]:
    """Yield each number with `prepare(number)`, in order.

    With `in_thread`, a thread prepares the next ones while the caller works.
    """
    if not in_thread:
        for number in numbers:
            yield number, prepare(number)
        return

    with ThreadPoolExecutor(1) as thread:

        def submit(number: int) -> Future[Piece]:
            return thread.submit(prepare, number)

        for number, future in in_parallel(numbers, submit, PREPARED):
            yield number, future.result()
