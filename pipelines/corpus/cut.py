"""Where a text is cut into pieces of exactly n tokens: never inside a character, nothing lost (REPLUG, section 5)."""

from __future__ import annotations

import numpy as np


def token_ends(offsets: np.ndarray) -> np.ndarray:
    """(tokens,) int64: the character before which the text can be cut after each token, or -1 inside a character.

    `offsets` (tokens, 2) are a fast tokenizer's (start, end) characters. The tokens of one character (byte-level BPE
    may need up to four) all span it whole, so a token that starts before its predecessors' end continues a character.
    """
    ends = np.maximum.accumulate(offsets[:, 1])
    inside = np.zeros(len(offsets), dtype=bool)
    inside[:-1] = offsets[1:, 0] < ends[:-1]
    return np.where(inside, -1, ends)


def cut_tokens(ends: np.ndarray, tokens: int, min_tokens: int, short: str) -> np.ndarray:
    """(pieces, 2) int64 token ranges of `tokens` tokens each, from `token_ends`.

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


def character_cuts(ends: np.ndarray, cuts: np.ndarray, length: int) -> np.ndarray:
    """Character positions of the token boundaries `cuts` in a text of `length` characters; 0 is its start."""
    if len(ends) == 0:
        return np.where(cuts > 0, length, 0)
    return np.where(cuts == 0, 0, np.where(cuts == len(ends), length, ends[cuts - 1]))


def byte_positions(text: str) -> np.ndarray:
    """(characters + 1,) int64: where each character begins in the text's UTF-8 bytes, and where the last one ends."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(sizes)])
