"""Pieces have exactly n tokens, no character is split, and nothing is lost."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.corpus.cut import byte_cuts, cut_texts, cut_tokens, rolling_windows, separate_windows
from pipelines.corpus.token_bytes import Tokens, open_encoder
from pipelines.corpus.tokenizer import open_tokenizer

WIDE = "🙂🙂🙂é北京𝄞"  # characters that a small byte-level vocabulary spells in two to four tokens
ASCII = st.text(st.characters(max_codepoint=127), max_size=120)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120) | ASCII


@pytest.fixture(scope="module", params=["fast", "slow"])
def encoder(request: pytest.FixtureRequest, folder, slow):
    return open_encoder(folder) if request.param == "fast" else slow


def ends_of(tokens: Tokens, text: int) -> np.ndarray:
    first = int(tokens.counts[:text].sum())
    return tokens.ends[first : first + tokens.counts[text]]


@settings(max_examples=120)
@given(
    texts=st.lists(st.tuples(TEXT, st.booleans()), max_size=5),
    size=st.integers(1, 20),
    least=st.integers(1, 20),
)
@example(texts=[(WIDE * 4, True), ("", True), ("a", True)], size=1, least=1)
@example(texts=[("plain", True), (WIDE * 4, True), ("plain text again", True)], size=5, least=3)
@example(texts=[("a" + WIDE * 9, True)], size=8, least=8)
def test_pieces_join_to_the_wanted_texts_and_have_exactly_n_tokens(encoder, folder, texts, size, least):
    least, tokenizer = min(least, size), open_tokenizer(folder)
    tokens = encoder([text for text, _ in texts])
    pieces = cut_texts(tokens, np.array([wanted for _, wanted in texts], dtype=bool), size, least)
    parts = [tokens.data[begin:end].decode() for begin, end in zip(pieces.begin, pieces.end, strict=True)]
    assert all(parts)
    for i, (text, wanted) in enumerate(texts):
        pieces_of_text = [part for part, number in zip(parts, pieces.text, strict=True) if number == i]
        lengths, ends = pieces.tokens[pieces.text == i], ends_of(tokens, i)
        if tokens.counts[i] < least or not wanted:
            assert pieces_of_text == []
            continue
        assert np.diff(cut_tokens(ends, size, least)).ravel().tolist() == lengths.tolist()
        assert "".join(pieces_of_text) == text
        assert lengths.sum() == tokens.counts[i]
        if text.isascii():
            assert set(lengths[:-1].tolist()) <= {size}
        lasts = np.cumsum(lengths)
        for last, length in zip(lasts[:-1], lengths[:-1], strict=True):
            if length < size:  # moved back to the beginning of the character that the cut would have split
                assert (ends[last : last + size - length] == -1).all()
            elif length > size:  # one character alone is longer than a piece
                assert (ends[last - length : last - 1] == -1).all()
        assert lengths[-1] < max(size, 4) + least
        ids = tokens.ids[tokens.counts[:i].sum() :]
        for part, last, length in zip(pieces_of_text, lasts, lengths, strict=True):
            assert tokenizer.decode(ids[last - length : last].tolist(), skip_special_tokens=False) == part


@settings(max_examples=80)
@given(text=TEXT, context=st.integers(1, 9), continuation=st.integers(1, 9), shift=st.floats(0, 1, exclude_max=True))
@example(text=WIDE * 6, context=3, continuation=4, shift=0.5)
def test_separate_windows_follow_one_another(encoder, text, context, continuation, shift):
    tokens = encoder([text])
    found = separate_windows(tokens.ends, context, continuation, shift)
    if len(text) * 4 < context + continuation:
        assert len(found) == 0
    elif text.isascii():
        assert len(found) == len(tokens.ends) // (context + continuation)
        spare = len(tokens.ends) % (context + continuation)
        assert all(found[:1, 0] == int(shift * (spare + 1)))
    assert (found[:, 0] >= 0).all()
    assert (np.diff(found, axis=1) > 0).all()
    assert (found[1:, 0] == found[:-1, 2]).all()
    flat = found.ravel()
    cuts = byte_cuts(tokens, np.zeros(1, int), np.zeros(len(flat), int), flat).reshape(-1, 3)
    shown = b"".join(tokens.data[a:b] + tokens.data[b:c] for a, b, c in cuts.tolist())
    assert shown.decode() in text


@settings(max_examples=80)
@given(text=TEXT, context=st.integers(1, 9), stride=st.integers(1, 9))
@example(text=WIDE * 6, context=3, stride=4)
def test_rolling_windows_predict_every_token_once(encoder, text, context, stride):
    tokens = encoder([text])
    found = rolling_windows(tokens.ends, context, stride, first=False)
    whole = rolling_windows(tokens.ends, context, stride, first=True)
    assert whole[1:].tolist() == found.tolist()
    if len(tokens.ends):
        assert whole[0].tolist() == [0, 0, found[0, 1] if len(found) else len(tokens.ends)]
    if not len(found):  # the first context, to the end of its last character, is all there is
        assert (tokens.ends[context - 1 : -1] < 0).all()
        return
    begins, middles, ends = found.T
    assert (middles[1:] == ends[:-1]).all()
    assert (begins[0], ends[-1]) == (0, len(tokens.ends))
    assert (np.diff(found, axis=1) > 0).all()
    assert (tokens.ends[found[found > 0] - 1] >= 0).all(), "no cut is inside a character"
    if text.isascii():
        assert middles.tolist() == list(range(context, len(tokens.ends), stride))
        assert begins.tolist() == [max(middle - context, 0) for middle in middles.tolist()]
