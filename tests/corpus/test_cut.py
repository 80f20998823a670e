"""Pieces have exactly n tokens, no character is split, and nothing is lost."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.corpus.cut import byte_positions, character_cuts, cut_tokens, token_ends, windows
from pipelines.lm.tokenizer import encode, open_tokenizer, train

WIDE = "🙂🙂🙂é北京𝄞"  # characters that a small byte-level vocabulary spells in two to four tokens


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train(["the cat sat on the mat and the dog sat too, é 北"] * 30, 290, folder)
    return open_tokenizer(folder)


def offsets_of(tokenizer, text: str) -> np.ndarray:
    [(_, offsets)] = encode(tokenizer, [text])
    return offsets


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=120), tokens=st.integers(1, 20), least=st.integers(1, 20))
@example(text=WIDE * 4, tokens=1, least=1)
@example(text=WIDE * 4, tokens=5, least=3)
@example(text="a" + WIDE * 9, tokens=8, least=8)
def test_pieces_join_to_the_text_and_have_exactly_n_tokens(tokenizer, text: str, tokens: int, least: int) -> None:
    least = min(least, tokens)
    offsets = offsets_of(tokenizer, text)
    ends = token_ends(offsets)
    pieces = cut_tokens(ends, tokens, least, "merge")
    if len(offsets) < least:
        assert len(pieces) == 0
        return
    cuts = character_cuts(ends, np.append(pieces[:, 0], pieces[-1, 1]), len(text))
    parts = [text[a:b] for a, b in pairwise(cuts)]
    assert "".join(parts) == text
    assert all(parts)
    lengths = pieces[:, 1] - pieces[:, 0]
    assert lengths.sum() == len(offsets)
    # By bytes: a piece's tokens spell that piece and no part of another.
    for (first, last), part in zip(pieces, parts, strict=True):
        ids = encode(tokenizer, [text])[0][0][first:last].tolist()
        assert tokenizer.decode(ids, skip_special_tokens=False) == part
    for (_, last), length in zip(pieces[:-1], lengths[:-1], strict=True):
        if length < tokens:  # moved back to the beginning of the character that the cut would have split
            assert (ends[last : last + tokens - length] == -1).all()
        elif length > tokens:  # one character alone is longer than a piece
            assert (ends[last - length : last - 1] == -1).all()
    assert lengths[-1] < max(tokens, 4) + least


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters(max_codepoint=127), min_size=1, max_size=200), tokens=st.integers(2, 9))
def test_every_piece_of_ascii_but_the_last_is_exact(tokenizer, text: str, tokens: int) -> None:
    pieces = cut_tokens(token_ends(offsets_of(tokenizer, text)), tokens, 1, "merge")
    assert set((pieces[:-1, 1] - pieces[:-1, 0]).tolist()) <= {tokens}


@pytest.mark.parametrize(
    ("total", "short", "expected"),
    [
        (20, "merge", [(0, 10), (10, 20)]),
        (23, "merge", [(0, 10), (10, 23)]),
        (23, "drop", [(0, 10), (10, 20)]),
        (24, "drop", [(0, 10), (10, 20), (20, 24)]),
        (4, "drop", [(0, 4)]),
        (3, "merge", []),
        (0, "merge", []),
    ],
)
def test_a_last_piece_that_is_too_short(total: int, short: str, expected: list) -> None:
    pieces = cut_tokens(np.arange(1, total + 1), 10, 4, short)
    assert [tuple(piece) for piece in pieces.tolist()] == expected


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=100), context=st.integers(1, 9), continuation=st.integers(1, 9), most=st.integers(1, 4))
@example(text=WIDE * 6, context=3, continuation=4, most=4)
def test_windows_follow_one_another_from_the_beginning(
    tokenizer, text: str, context: int, continuation: int, most: int
) -> None:
    ends = token_ends(offsets_of(tokenizer, text))
    found = windows(ends, context, continuation, most)
    assert len(found) <= most
    if len(text) * 4 < context + continuation:
        assert len(found) == 0
    elif text.isascii():
        assert len(found) == min(most, len(ends) // (context + continuation))
    flat = found.ravel()
    assert (np.diff(flat) >= 0).all()
    assert (found[:, 1] > found[:, 0]).all()
    assert (found[:, 2] > found[:, 1]).all()
    assert (found[1:, 0] == found[:-1, 2]).all()
    characters = character_cuts(ends, flat, len(text)).reshape(-1, 3)
    shown = "".join(text[a:b] + text[b:c] for a, b, c in characters.tolist())
    assert text.startswith(shown)


@settings(deadline=None)
@given(st.text())
def test_byte_positions_are_those_of_utf8(text: str) -> None:
    assert byte_positions(text).tolist() == [len(text[:i].encode()) for i in range(len(text) + 1)]
