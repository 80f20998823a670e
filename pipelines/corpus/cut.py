"""Where texts are cut into pieces of exactly n tokens: never inside a character, nothing lost (REPLUG, section 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipelines.corpus.token_bytes import Tokens


class Pieces(NamedTuple):
    """Pieces of some texts in the texts' order; all (pieces,) int64."""

    text: np.ndarray  # which text it is from
    tokens: np.ndarray  # how many it has
    begin: np.ndarray  # bytes, in all texts' data
    end: np.ndarray


def cut_texts(tokens: Tokens, wanted: np.ndarray, size: int, least: int, short: str) -> Pieces:
    """Cut the texts that `wanted` (texts,) bool names into pieces of `size` tokens, as `cut_tokens` does one text.

    All texts at once, but for those where a cut would fall inside a character.
    """
    firsts = np.cumsum(tokens.counts) - tokens.counts
    counts = np.where(wanted, tokens.counts, 0)
    numbers = -(-counts // size)
    cut_last = (numbers - 1) * size
    last = counts - cut_last
    too_short = (last < least) & (numbers > 1)
    totals = counts - np.where(too_short & (short == "drop"), last, 0)
    numbers = np.where(counts < least, 0, numbers - too_short)
    text, begin = _numbered(numbers)
    begin = begin * size
    end = np.where(begin == (numbers[text] - 1) * size, totals[text], begin + size)
    joined = np.flatnonzero(too_short)  # the cut before a last piece that is too short counts, though nobody sees it
    cuts = np.concatenate([firsts[text] + end, (firsts + cut_last)[joined]])
    moved = np.unique(np.concatenate([text, joined])[tokens.ends[cuts - 1] < 0])
    if len(moved):
        regular = ~np.isin(text, moved)
        ranges = [
            cut_tokens(tokens.ends[first : first + count], size, least, short)
            for first, count in zip(firsts[moved], counts[moved], strict=True)
        ]
        text = np.concatenate([text[regular], np.repeat(moved, list(map(len, ranges)))])
        begin, end = (
            np.concatenate([regular_part[regular], *(own[:, column] for own in ranges)])
            for column, regular_part in enumerate((begin, end))
        )
        order = np.argsort(text, kind="stable")
        text, begin, end = text[order], begin[order], end[order]
    return Pieces(text, end - begin, *(token_bytes(tokens, firsts, text, cut) for cut in (begin, end)))


def _numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each text's things, `counts` of them: (text, number within the text)."""
    text = np.repeat(np.arange(len(counts)), counts)
    return text, np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)


def token_bytes(tokens: Tokens, firsts: np.ndarray, text: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Bytes of the token boundaries `cuts` of the texts `text`; 0 is a text's start, whatever its first token spans."""
    starts = np.cumsum(tokens.sizes) - tokens.sizes
    return np.where(cuts == 0, starts[text], tokens.ends[firsts[text] + np.maximum(cuts, 1) - 1])


def cut_tokens(ends: np.ndarray, tokens: int, min_tokens: int, short: str) -> np.ndarray:
    """(pieces, 2) int64 token ranges of `tokens` tokens each, from one text's `Tokens.ends`.

    A cut that would fall inside a character moves back to its beginning (forward where the character alone is longer
    than a piece). A last piece shorter than `min_tokens` joins the one before (`short` = "merge") or is left out
    ("drop"); a text shorter than `min_tokens` has no piece.
    """
    total = len(ends)
    if total < min_tokens:
        return np.empty((0, 2), dtype=np.int64)
    cuts = [0]
    while total - cuts[-1] > tokens:
        cuts.append(_allowed(ends, cuts[-1], cuts[-1] + tokens))
    if total - cuts[-1] < min_tokens:
        if short == "merge":
            cuts.pop()
        else:
            total = cuts.pop()
    bounds = np.array([*cuts, total], dtype=np.int64)
    return np.stack([bounds[:-1], bounds[1:]], axis=1)


def windows(ends: np.ndarray, context: int, continuation: int, most: int) -> np.ndarray:
    """(windows, 3) int64: begin, middle and end tokens of the first `most` stretches of context + continuation tokens.

    Both parts have their full length, but for the few tokens by which a cut moved out of a character; none is empty.
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
    """(windows, 3) int64 as `windows`, but overlapping: every token behind the first `context` is in one continuation.

    The last continuation is as long as the text. So the perplexity of a published test split can be told in full.
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
    """The last token boundary in (begin, cut] that isn't inside a character; failing that, the first behind `cut`."""
    moved = cut
    while moved > begin and ends[moved - 1] < 0:
        moved -= 1
    if moved > begin:
        return moved
    while ends[cut - 1] < 0:
        cut += 1
    return cut
