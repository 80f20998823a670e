"""Token sequences of unequal length as one flat array and its bounds, and the bytes of each token, without loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, … (lengths[0] numbers), then the same from starts[1], …: (sum of lengths,) int64."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


@dataclass(frozen=True)
class Ragged:
    """Sequence i is values[bounds[i]:bounds[i + 1]]; values (total,) int64, bounds (sequences + 1,) int64."""

    values: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        return cls(np.fromiter(chain.from_iterable(sequences), np.int64, bounds[-1]), bounds)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.bounds)

    def take(self, rows: np.ndarray) -> Ragged:
        """The given sequences, in the given order."""
        return self.slice(rows, np.zeros(len(rows), np.int64), self.lengths[rows])

    def slice(self, rows: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Ragged:
        """From sequence rows[i], `lengths[i]` values from its `starts[i]`-th on."""
        return Ragged(
            self.values[spans(self.bounds[rows] + starts, lengths)], np.concatenate([[0], np.cumsum(lengths)])
        )

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """`values` (total,), cut as the sequences are."""
        return np.split(values, self.bounds[1:-1]) if len(self.bounds) > 1 else []


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Sequence i of the result is sequence i of every part, one after another."""
    lengths = np.stack([part.lengths for part in parts])  # (parts, sequences)
    bounds = np.concatenate([[0], np.cumsum(lengths.sum(0))])
    values = np.empty(bounds[-1], np.int64)
    starts = bounds[:-1].copy()
    for part, own in zip(parts, lengths, strict=True):
        values[spans(starts, own)] = part.values
        starts += own
    return Ragged(values, bounds)


def padded(rows: Ragged, width: int, pad: int, *, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(sequences, width) int64 token ids filled up with `pad`, and which of them are real, bool."""
    lengths = rows.lengths[:, None]
    columns = np.arange(width)[None, :] - (width - lengths if left else 0)
    real = (columns >= 0) & (columns < lengths)
    values = np.full((len(lengths), width), pad, np.int64)
    values[real] = rows.values
    return values, real


def cut(document: np.ndarray, context: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens stay of the document's beginning and the context's end where `room` of them fit (see Prompt)."""
    kept = np.maximum(np.minimum(context, np.maximum(room - document, room // 2)), 0)
    return np.minimum(document, np.maximum(room - kept, 0)), kept


def byte_counts(texts: Sequence[str], ends: Ragged) -> np.ndarray:
    """UTF-8 bytes of each token, (total,) int32, from `ends`: the character in its text at which each token ends.

    A token gets the bytes from the last token's end to its own, so spaces before it are its own; of several tokens
    inside one character the first gets all its bytes; what follows the last token's end is the last token's. So the
    counts of a text with a token add up to the text's bytes, exactly.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    before = np.concatenate([[0], np.cumsum(1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000))])
    stops = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))  # in characters of the joined text
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)
    absolute = np.maximum.accumulate(ends.values + np.repeat(starts, ends.lengths)) if len(ends.values) else ends.values
    some = ends.lengths > 0
    absolute[ends.bounds[1:][some] - 1] = stops[some]
    firsts = ends.bounds[:-1][some]
    previous = np.concatenate([[0], absolute[:-1]]).astype(np.int64)
    previous[firsts] = starts[some]
    return (before[absolute] - before[previous]).astype(np.int32)


def first_tokens(tokenizer, folder: Path) -> tuple[np.ndarray, int]:
    """The tokens that the tokenizer puts before a text of its own accord, and the one that an empty prompt begins with.

    Raises LongtailError where the tokenizer has neither a beginning-of-text nor an end-of-text token.
    """
    with_special, plain = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    first = next(i for i in range(len(with_special)) if with_special[i : i + len(plain)] == plain)
    starts = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None]
    if not starts:
        raise LongtailError(
            f"{folder}: the tokenizer has neither a bos nor an eos token, expected one to begin a text with"
        )
    return np.array(with_special[:first], np.int64), starts[0]
