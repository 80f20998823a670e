"""Cut texts into pieces of exactly n tokens, never inside a character and without losing a byte (REPLUG, section 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipelines.corpus.token_bytes import Tokens


class Pieces(NamedTuple):
    """Pieces of several texts, in the texts' order; each column is (pieces,) int64."""

    text: np.ndarray  # the number of the text that the piece is from
    tokens: np.ndarray  # tokens of the piece
    begin: np.ndarray  # first byte, in `Tokens.data`
    end: np.ndarray  # byte behind the last one, in `Tokens.data`


def cut_texts(tokens: Tokens, wanted: np.ndarray, size: int, min_tokens: int, short: str) -> Pieces:
    """Cut the texts for which `wanted` (texts,) bool is true into pieces of `size` tokens; see `cut_tokens`.

    All texts are cut at once by array operations, except those where a cut would fall inside a character.
    """
    firsts = np.cumsum(tokens.counts) - tokens.counts
    counts = np.where(wanted, tokens.counts, 0)
    numbers = -(-counts // size)
    last_begin = (numbers - 1) * size
    last_size = counts - last_begin
    too_short = (last_size < min_tokens) & (numbers > 1)
    totals = counts - np.where(too_short & (short == "drop"), last_size, 0)
    numbers = np.where(counts < min_tokens, 0, numbers - too_short)
    text = np.repeat(np.arange(len(numbers)), numbers)
    begin = (np.arange(len(text)) - np.repeat(np.cumsum(numbers) - numbers, numbers)) * size
    end = np.where(begin == (numbers[text] - 1) * size, totals[text], begin + size)
    # A last piece that is too short is no piece, but a cut before it that moves changes how short it is.
    ending_short = np.flatnonzero(too_short)
    cuts = np.concatenate([firsts[text] + end, (firsts + last_begin)[ending_short]])
    irregular = np.unique(np.concatenate([text, ending_short])[tokens.ends[cuts - 1] < 0])
    if len(irregular):
        regular = ~np.isin(text, irregular)
        ranges = [
            cut_tokens(tokens.ends[first : first + count], size, min_tokens, short)
            for first, count in zip(firsts[irregular], counts[irregular], strict=True)
        ]
        text = np.concatenate([text[regular], np.repeat(irregular, list(map(len, ranges)))])
        begin = np.concatenate([begin[regular], *(pieces[:, 0] for pieces in ranges)])
        end = np.concatenate([end[regular], *(pieces[:, 1] for pieces in ranges)])
        order = np.argsort(text, kind="stable")
        text, begin, end = text[order], begin[order], end[order]
    return Pieces(text, end - begin, *(byte_cuts(tokens, firsts, text, cut) for cut in (begin, end)))


def byte_cuts(tokens: Tokens, firsts: np.ndarray, text: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The bytes, in `Tokens.data`, of the token boundaries `cuts` in the texts `text`, both (cuts,) int64.

    `firsts` (texts,) is the number of each text's first token. Boundary 0 is the text's start.
    """
    starts = np.cumsum(tokens.sizes) - tokens.sizes
    return np.where(cuts == 0, starts[text], tokens.ends[firsts[text] + np.maximum(cuts, 1) - 1])


def cut_tokens(ends: np.ndarray, size: int, min_tokens: int, short: str) -> np.ndarray:
    """Token ranges of `size` tokens each, (pieces, 2) int64, from one text's `Tokens.ends`.

    A cut that would fall inside a character moves back to the character's beginning, or forward to its end if the
    character alone is longer than a piece. A last piece shorter than `min_tokens` joins the piece before it (`short` is
    "merge") or is left out ("drop"). A text shorter than `min_tokens` has no piece.
    """
    total = len(ends)
    if total < min_tokens:
        return np.empty((0, 2), dtype=np.int64)
    cuts = [0]
    while total - cuts[-1] > size:
        cuts.append(_allowed(ends, cuts[-1], cuts[-1] + size))
    if total - cuts[-1] < min_tokens:
        if short == "merge":
            cuts.pop()
        else:
            total = cuts.pop()
    bounds = np.array([*cuts, total], dtype=np.int64)
    return np.stack([bounds[:-1], bounds[1:]], axis=1)


def windows(ends: np.ndarray, context: int, continuation: int, most: int) -> np.ndarray:
    """The first `most` windows of a context and its continuation, (windows, 3) int64: begin, middle and end token.

    The windows don't overlap. Both parts have their full length, except where a cut moved out of a character; none is
    empty.
    """
    rows: list[tuple[int, int, int]] = []
    begin = 0
    while len(rows) < most and begin + context + continuation <= len(ends):
        middle = _allowed(ends, begin, begin + context)
        if middle == len(ends):
            break
        end = _allowed(ends, middle, min(middle + continuation, len(ends)))
        rows.append((begin, middle, end))
        begin = end
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def windows_throughout(ends: np.ndarray, context: int, continuation: int) -> np.ndarray:
    """Windows over all of a text, (windows, 3) int64 as `windows` gives: for the perplexity of a published test split.

    Contexts overlap, so that every token behind the first `context` tokens is in exactly one continuation. The last
    continuation ends with the text and may be shorter.
    """
    rows: list[tuple[int, int, int]] = []
    middle = _allowed(ends, 0, context) if len(ends) > context else len(ends)
    while middle < len(ends):
        begin = max(middle - context, 0)
        while begin > 0 and ends[begin - 1] < 0:
            begin -= 1
        end = _allowed(ends, middle, min(middle + continuation, len(ends)))
        rows.append((begin, middle, end))
        middle = end
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _allowed(ends: np.ndarray, begin: int, cut: int) -> int:
    """The last token boundary in (begin, cut] that isn't inside a character; if there is none, the next after `cut`."""
    moved = cut
    while moved > begin and ends[moved - 1] < 0:
        moved -= 1
    if moved > begin:
        return moved
    while ends[cut - 1] < 0:
        cut += 1
    return cut
