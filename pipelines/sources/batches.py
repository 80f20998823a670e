"""Items in lists of a bounded size."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def in_batches(
    items: Iterable[Item],
    size: Callable[[Item], int],
    max_size: int,
    max_items: float = math.inf,
) -> Iterator[list[Item]]:
    """Yield the items in lists of up to `max_items` whose sizes add up to `max_size` at most.

    An item that is larger than that is a list of its own.
    """
    batch: list[Item] = []
    batch_size = 0
    for item in items:
        item_size = size(item)
        if batch and (len(batch) == max_items or batch_size + item_size > max_size):
            yield batch
            batch = []
            batch_size = 0
        batch.append(item)
        batch_size += item_size

    if batch:
        yield batch
