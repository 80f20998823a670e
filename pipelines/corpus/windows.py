"""Where a text is cut: into documents, into queries without overlap, and into rolling windows
(REPLUG, section 5).

All functions take `bounds` (tokens + 1,), the bytes between which a text's tokens lie, -1 inside a
character (token_bytes.py:Tokens). No cut falls inside a character.
"""

from itertools import pairwise

import numpy as np

Window = tuple[int, int, int]  # where its context begins, what is predicted begins, and it ends


def cut_tokens(bounds: np.ndarray, size: int, min_tokens: int) -> list[tuple[int, int]]:
    """Token ranges of `size` tokens each.

    A cut inside a character moves back to the character's beginning, or forward to its end if the
    character alone is longer than a piece. A last piece shorter than `min_tokens` joins the piece
    before it; a shorter text has no piece.
    """
    total = len(bounds) - 1
    if total < min_tokens:
        return []
    cuts = [0]
    while total - cuts[-1] > size:
        cuts.append(_allowed(bounds, cuts[-1], cuts[-1] + size))
    if total - cuts[-1] < min_tokens:
        cuts.pop()
    return list(pairwise([*cuts, total]))


def separate_windows(
    bounds: np.ndarray, context: int, continuation: int, shift: float
) -> list[Window]:
    """All windows of a context and its continuation that fit a text, without overlap: begin, middle
    and end of each.

    `shift`, from 0 to 1, says which part of the tokens that no window has room for lies before the
    first one. Both parts have their full length, except where a cut moved out of a character.
    """
    total = len(bounds) - 1
    length = context + continuation
    begin = int(shift * (total % length + 1))
    begin = _allowed(bounds, 0, begin) if begin and total >= length else 0

    windows = []
    while begin + length <= total:
        middle = _allowed(bounds, begin, begin + context)
        if middle == total:
            break
        end = _allowed(bounds, middle, min(middle + continuation, total))
        windows.append((begin, middle, end))
        begin = end
    return windows


def rolling_windows(
    bounds: np.ndarray, context: int, stride: int, first: bool | str
) -> list[Window]:
    """Windows over all of a text: begin of the context, begin and end of what is predicted, in
    tokens.

    Every token behind the first `context` is predicted in exactly one window. With `first`, the
    tokens before it are predicted by one more window, whose context is empty. The last window may
    be shorter. With `first` "window", all windows have the same length: the first predicts all its
    context + stride - 1 tokens (the token that begins a text takes the place of one), and the last
    has the more context, the less it predicts.
    """
    total = len(bounds) - 1
    same_length = first == "window"
    first_length = context + stride - 1 if same_length else context
    middle = _allowed(bounds, 0, first_length) if total > first_length else total

    windows = []
    if first and middle:
        windows.append((0, 0, middle))
    while middle < total:
        end = _allowed(bounds, middle, min(middle + stride, total))
        begin = end - context - stride if same_length else middle - context
        windows.append((last_boundary(bounds, max(begin, 0)), middle, end))
        middle = end
    return windows


def last_boundary(bounds: np.ndarray, begin: int) -> int:
    """The last token boundary up to `begin` that isn't inside a character."""
    while bounds[begin] < 0:
        begin -= 1
    return begin


def _allowed(bounds: np.ndarray, begin: int, cut: int) -> int:
    """The last token boundary in (begin, cut] that isn't inside a character; if there is none, the
    next after `cut`.
    """
    boundary = last_boundary(bounds, cut)
    if boundary > begin:
        return boundary
    while bounds[cut] < 0:
        cut += 1
    return cut
