"""Pieces have exactly n tokens, no character is split, and nothing is lost."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.corpus import token_bytes as module
from pipelines.corpus.cut import cut_texts, cut_tokens, token_bytes, windows, windows_throughout
from pipelines.corpus.token_bytes import Tokens, byte_pairs, byte_positions, open_encoder
from pipelines.corpus.tokenizer import encode, open_tokenizer, train

WIDE = "🙂🙂🙂é北京𝄞"  # characters that a small byte-level vocabulary spells in two to four tokens
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
LEARNT = ["the cat sat on the mat and the dog sat too, é 北", "they're 1234 -- don't\n\n  stop!!"] * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train(LEARNT, 330, folder)
    return folder


@pytest.fixture(scope="module")
def slow(folder):
    """The tokenizer by its offsets, as any that isn't a byte-level BPE."""
    return module._Offsets(open_tokenizer(folder))


@pytest.fixture(scope="module", params=["fast", "slow"])
def encoder(request: pytest.FixtureRequest, folder, slow):
    return open_encoder(folder) if request.param == "fast" else slow


def ends_of(tokens: Tokens, text: int) -> np.ndarray:
    first = int(tokens.counts[:text].sum())
    return tokens.ends[first : first + tokens.counts[text]]


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(TEXT, max_size=5), size=st.integers(1, 20), least=st.integers(1, 20))
@example(texts=[WIDE * 4, "", "a"], size=1, least=1)
@example(texts=["plain", WIDE * 4, "plain text again"], size=5, least=3)
@example(texts=["a" + WIDE * 9], size=8, least=8)
def test_pieces_join_to_the_text_and_have_exactly_n_tokens(encoder, texts: list[str], size: int, least: int) -> None:
    least = min(least, size)
    tokens = encoder(texts)
    pieces = cut_texts(tokens, np.ones(len(texts), dtype=bool), size, least, "merge")
    parts = [tokens.data[begin:end].decode() for begin, end in zip(pieces.begin, pieces.end, strict=True)]
    assert all(parts)
    for i, text in enumerate(texts):
        own = [part for part, of in zip(parts, pieces.text, strict=True) if of == i]
        lengths = pieces.tokens[pieces.text == i]
        if tokens.counts[i] < least:
            assert own == []
            continue
        assert "".join(own) == text
        assert lengths.sum() == tokens.counts[i]
        lasts = np.cumsum(lengths)
        ends = ends_of(tokens, i)
        for last, length in zip(lasts[:-1], lengths[:-1], strict=True):
            if length < size:  # moved back to the beginning of the character that the cut would have split
                assert (ends[last : last + size - length] == -1).all()
            elif length > size:  # one character alone is longer than a piece
                assert (ends[last - length : last - 1] == -1).all()
        assert lengths[-1] < max(size, 4) + least


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT, max_size=4), size=st.integers(1, 20))
def test_the_tokens_of_a_piece_spell_that_piece(encoder, folder, texts: list[str], size: int) -> None:
    tokens = encoder(texts)
    pieces = cut_texts(tokens, np.ones(len(texts), dtype=bool), size, 1, "merge")
    ids = np.split(tokens.ids, np.cumsum(pieces.tokens)[:-1]) if len(pieces.text) else []
    for own, begin, end in zip(ids, pieces.begin, pieces.end, strict=True):
        shown = open_tokenizer(folder).decode(own.tolist(), skip_special_tokens=False)
        assert shown.encode() == tokens.data[begin:end]


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters(max_codepoint=127), min_size=1, max_size=200), size=st.integers(2, 9))
def test_every_piece_of_ascii_but_the_last_is_exact(encoder, text: str, size: int) -> None:
    pieces = cut_texts(encoder([text]), np.array([True]), size, 1, "merge")
    assert set(pieces.tokens[:-1].tolist()) <= {size}


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(TEXT, max_size=5),
    wanted=st.lists(st.booleans(), min_size=5, max_size=5),
    size=st.integers(1, 12),
    least=st.integers(1, 12),
    short=st.sampled_from(["merge", "drop"]),
)
def test_many_texts_are_cut_as_each_by_itself(
    encoder, texts: list[str], wanted: list[bool], size: int, least: int, short: str
) -> None:
    least, chosen = min(least, size), np.array(wanted[: len(texts)], dtype=bool)
    tokens = encoder(texts)
    pieces = cut_texts(tokens, chosen, size, least, short)
    firsts, expected = np.cumsum(tokens.counts) - tokens.counts, []
    for i in np.flatnonzero(chosen):
        ranges = cut_tokens(ends_of(tokens, i), size, least, short)
        of = np.full(len(ranges), i)
        cuts = [token_bytes(tokens, firsts, of, ranges[:, column]).tolist() for column in (0, 1)]
        expected += zip(of.tolist(), (ranges[:, 1] - ranges[:, 0]).tolist(), *cuts, strict=True)
    assert list(zip(*(column.tolist() for column in pieces), strict=True)) == expected


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
    tokens = Tokens(
        np.zeros(total, np.uint32), np.arange(1, total + 1), np.array([total]), b"x" * total, np.array([total])
    )
    pieces = cut_texts(tokens, np.array([True]), 10, 4, short)
    assert list(zip(pieces.begin.tolist(), pieces.end.tolist(), strict=True)) == expected


@settings(max_examples=100, deadline=None)
@given(text=TEXT, context=st.integers(1, 9), continuation=st.integers(1, 9), most=st.integers(1, 4))
@example(text=WIDE * 6, context=3, continuation=4, most=4)
def test_windows_follow_one_another_from_the_beginning(
    encoder, text: str, context: int, continuation: int, most: int
) -> None:
    tokens = encoder([text])
    found = windows(tokens.ends, context, continuation, most)
    assert len(found) <= most
    if len(text) * 4 < context + continuation:
        assert len(found) == 0
    elif text.isascii():
        assert len(found) == min(most, len(tokens.ends) // (context + continuation))
    flat = found.ravel()
    assert (np.diff(flat) >= 0).all()
    assert (found[:, 1] > found[:, 0]).all()
    assert (found[:, 2] > found[:, 1]).all()
    assert (found[1:, 0] == found[:-1, 2]).all()
    cuts = token_bytes(tokens, np.zeros(1, int), np.zeros(len(flat), int), flat).reshape(-1, 3)
    shown = b"".join(tokens.data[a:b] + tokens.data[b:c] for a, b, c in cuts.tolist())
    assert text.startswith(shown.decode())


@settings(max_examples=100, deadline=None)
@given(text=TEXT, context=st.integers(1, 9), continuation=st.integers(1, 9))
@example(text=WIDE * 6, context=3, continuation=4)
def test_windows_throughout_have_every_token_behind_the_first_context_in_one_continuation(
    encoder, text: str, context: int, continuation: int
) -> None:
    tokens = encoder([text])
    found = windows_throughout(tokens.ends, context, continuation)
    if not len(found):  # the first context, to the end of its last character, is all there is
        assert (tokens.ends[context - 1 : -1] < 0).all()
        return
    begins, middles, ends = found.T
    assert (middles[1:] == ends[:-1]).all()
    assert (begins[0], ends[-1]) == (0, len(tokens.ends))
    assert (begins < middles).all()
    assert (middles < ends).all()
    assert (tokens.ends[found[found > 0] - 1] >= 0).all(), "no cut is inside a character"
    if text.isascii():
        assert middles.tolist() == list(range(context, len(tokens.ends), continuation))
        assert begins.tolist() == [max(middle - context, 0) for middle in middles.tolist()]


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT | st.text("'tsredlvmc a\n\r\t\u00a0\u0085x1é北!", max_size=60), max_size=4))
def test_both_ways_give_the_same_tokens(folder, slow, texts: list[str]) -> None:
    fast = open_encoder(folder)
    assert isinstance(fast, module._Bytes)
    for one, other in zip(fast(texts), slow(texts), strict=True):
        assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def test_every_character_is_taken_for_the_same_kind_by_both_ways(tmp_path) -> None:
    # Two libraries' tables of letters, digits and spaces. A vocabulary in which a character is one token with a letter,
    # a digit or a "!" before it, if it is of that kind, shows which kind each library takes it for.
    train(["x"], 259, tmp_path)
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    bytes_ = sorted(set(parts["model"]["vocab"]) - {"<s>", "</s>", "<pad>"})
    parts["model"]["merges"] = [[kind, byte] for kind in "e1!" for byte in bytes_]
    parts["model"]["vocab"] |= {"".join(pair): 259 + i for i, pair in enumerate(parts["model"]["merges"])}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    tokenizer = open_tokenizer(tmp_path)
    fast = open_encoder(tmp_path)
    assert isinstance(fast, module._Bytes)
    codes = [*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0x40000, 16), *range(0x40000, 0x110000, 4096)]
    text = "".join(f"e{c}1{c}!{c}" for c in map(chr, codes))
    assert np.array_equal(fast([text]).ids, encode(tokenizer, [text])[0][0])


def test_a_book_of_spaces_or_of_one_letter_can_be_tokenised(folder) -> None:
    for text in (" " * 2_000_000 + "x", "a" * 2_000_000):
        assert open_encoder(folder)([text]).sizes.tolist() == [len(text)]


def changed(folder, tmp_path, change) -> bool:
    parts = json.loads((folder / "tokenizer.json").read_text())
    change(parts)
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    return byte_pairs(open_tokenizer(tmp_path)) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.update(normalizer={"type": "NFC"}),
        lambda p: p["pre_tokenizer"].update(add_prefix_space=True),
        lambda p: p["pre_tokenizer"].update(use_regex=False),
        lambda p: p["model"].update(ignore_merges=True),
        lambda p: p["model"]["merges"].reverse(),
        lambda p: p["added_tokens"][0].update(special=False),
    ],
)
def test_a_tokenizer_that_tiktoken_would_run_otherwise_goes_the_slow_way(folder, tmp_path, change) -> None:
    assert changed(folder, tmp_path, lambda parts: None)
    assert not changed(folder, tmp_path, change)


def test_a_vocabulary_with_an_unreachable_token_goes_the_slow_way(tmp_path) -> None:
    # "bc" is made first, so "ab" + "c" never meet; tiktoken would join "a" and "bc" to "abc".
    train(["x"], 259, tmp_path)
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    size = len(parts["model"]["vocab"])
    parts["model"]["merges"] = [["b", "c"], ["a", "b"], ["ab", "c"]]
    parts["model"]["vocab"] |= {"bc": size, "ab": size + 1, "abc": size + 2}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    tokenizer = open_tokenizer(tmp_path)
    assert len(encode(tokenizer, ["abc"])[0][0]) == 2
    assert byte_pairs(tokenizer) is None


@settings(deadline=None)
@given(st.text())
def test_byte_positions_are_those_of_utf8(text: str) -> None:
    assert byte_positions(text).tolist() == [len(text[:i].encode()) for i in range(len(text) + 1)]
