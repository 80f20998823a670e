"""Records of arrays: dataclasses whose arrays all have a row for each question, query or text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

Record = TypeVar("Record", bound=Any)


def take_rows(record: Record, rows: np.ndarray | slice) -> Record:
    """The record with the rows at these positions, or under this mask, of each of its arrays."""
    arrays = arrays_of(record)
    columns = {name: array[rows] for name, array in arrays.items()}
    return replace(record, **columns)


def arrays_of(record: Any) -> Mapping[str, np.ndarray]:
    """Field -> array of the record's fields that are arrays."""
    arrays = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
    return arrays
