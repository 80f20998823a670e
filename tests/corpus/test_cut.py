"""Pieces have exactly n tokens, no character is split, and nothing is lost."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.corpus.token_bytes import open_encoder
from pipelines.corpus.tokenizer import open_tokenizer
from pipelines.corpus.windows import cut_tokens, rolling_windows, separate_windows

WIDE = "🙂🙂🙂é北京𝄞"  # characters that a small byte-level vocabulary spells in two to four tokens
ASCII = st.text(st.characters(max_codepoint=127), max_size=120)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120) | ASCII


@pytest.fixture(scope="module", params=["fast", "slow"])
def encoder(request: pytest.FixtureRequest, folder, slow):
    return open_encoder(folder) if request.param == "fast" else slow


@settings(max_examples=50)
@given(text=TEXT, size=st.integers(1, 20), least=st.integers(1, 20))
@example(text=WIDE * 4, size=1, least=1)
@example(text="", size=1, least=1)
@example(text=WIDE * 4, size=5, least=3)
@example(text="a" + WIDE * 9, size=8, least=8)
def test_pieces_join_to_the_text_and_have_exactly_n_tokens(encoder, folder, text, size, least):
    least, tokenizer = min(least, size), open_tokenizer(folder)
    (tokens,) = encoder([text])
    pieces, ends = cut_tokens(tokens.bounds, size, least), tokens.bounds[1:]
    if len(tokens.ids) < least:
        assert pieces == []
        return
    parts, lengths = [tokens.text(*piece) for piece in pieces], np.diff(pieces).ravel()
    assert all(parts)
    assert "".join(parts) == text
    assert lengths.sum() == len(tokens.ids)
    if text.isascii():
        assert set(lengths[:-1].tolist()) <= {size}
    lasts = np.cumsum(lengths)
    for last, length in zip(lasts[:-1], lengths[:-1], strict=True):
        # moved back to the beginning of the character that the cut would have split
        if length < size:
            assert (ends[last : last + size - length] == -1).all()
        elif length > size:  # one character alone is longer than a piece
            assert (ends[last - length : last - 1] == -1).all()
    assert lengths[-1] < max(size, 4) + least
    for part, last, length in zip(parts, lasts, lengths, strict=True):
        assert (
            tokenizer.decode(tokens.ids[last - length : last].tolist(), skip_special_tokens=False)
            == part
        )


@given(
    text=TEXT,
    context=st.integers(1, 9),
    continuation=st.integers(1, 9),
    shift=st.floats(0, 1, exclude_max=True),
)
@example(text=WIDE * 6, context=3, continuation=4, shift=0.5)
def test_separate_windows_follow_one_another(encoder, text, context, continuation, shift):
    (tokens,) = encoder([text])
    found = np.array(separate_windows(tokens.bounds, context, continuation, shift), int).reshape(
        -1, 3
    )
    if len(text) * 4 < context + continuation:
        assert len(found) == 0
    elif text.isascii():
        assert len(found) == len(tokens.ids) // (context + continuation)
        spare = len(tokens.ids) % (context + continuation)
        assert all(found[:1, 0] == int(shift * (spare + 1)))
    assert (found[:, 0] >= 0).all()
    assert (np.diff(found, axis=1) > 0).all()
    assert (found[1:, 0] == found[:-1, 2]).all()
    assert (
        "".join(
            tokens.text(begin, middle) + tokens.text(middle, end) for begin, middle, end in found
        )
        in text
    )


@given(text=TEXT, context=st.integers(1, 9), stride=st.integers(1, 9))
@example(text=WIDE * 6, context=3, stride=4)
def test_rolling_windows_predict_every_token_once(encoder, text, context, stride):
    (tokens,) = encoder([text])
    total = len(tokens.ids)
    found = rolling_windows(tokens.bounds, context, stride, first=False)
    whole = rolling_windows(tokens.bounds, context, stride, first=True)
    assert whole[1:] == found
    if total:
        assert whole[0] == (0, 0, found[0][1] if found else total)
    alike = rolling_windows(tokens.bounds, context, stride, first="window")
    assert [end for *_, end in alike] == sorted({end for *_, end in alike}), "each token once"
    assert "".join(tokens.text(middle, end) for _, middle, end in alike) == text
    if text.isascii() and total:
        assert alike[0] == (0, 0, min(context + stride - 1, total))
        assert {end - begin for begin, _, end in alike[1:]} <= {context + stride}
        assert {end - middle for _, middle, end in alike[1:-1]} <= {stride}
    if not found:  # the first context, to the end of its last character, is all there is
        assert (tokens.bounds[context:-1] < 0).all()
        return
    found = np.array(found)
    begins, middles, ends = found.T
    assert (middles[1:] == ends[:-1]).all()
    assert (begins[0], ends[-1]) == (0, total)
    assert (np.diff(found, axis=1) > 0).all()
    assert (tokens.bounds[found] >= 0).all(), "no cut is inside a character"
    if text.isascii():
        assert middles.tolist() == list(range(context, total, stride))
        assert begins.tolist() == [max(middle - context, 0) for middle in middles.tolist()]
