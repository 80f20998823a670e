"""Any kind of tokenizer gives tokens that can be cut without splitting a character; tiktoken gives
the same ones.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from corpora import LEARNT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from pipelines.corpus.token_bytes import Encoder, byte_pairs, open_encoder
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.corpus.windows import cut_tokens
from sample.make.train_tokenizer import train_tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
# Spaces, marks that join the letter before, letters that a normalizer makes longer, and names of
# bytes.
ODD = "ab é北🙂\n\r\t\x00\x85\u3000\u200d▁e\u0301\u0345ﬁŉİ\u1100\u1161<0xE9>"
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
TEXT = ANY_TEXT | st.text(alphabet=ODD, max_size=60)


def learnt(tokenizer: Tokenizer, trainer: Callable, **given) -> Tokenizer:
    tokenizer.train_from_iterator(LEARNT, trainer(show_progress=False, **given))
    return tokenizer


def llama(normalized: bool) -> Tokenizer:
    """SentencePiece's BPE: a space is "▁", one stands in front, unknown characters are spelt in
    bytes.
    """
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if normalized:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    learnt(tokenizer, trainers.BpeTrainer, vocab_size=420, special_tokens=["<unk>", *BYTES])
    parts = json.loads(tokenizer.to_str())  # the bytes' names are no special tokens
    return Tokenizer.from_str(json.dumps(parts | {"added_tokens": parts["added_tokens"][:1]}))


def llama3(normalizer: normalizers.Normalizer | None) -> Tokenizer:
    """Byte-level BPE behind a pattern of its own; Qwen's composes characters first."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    split = pre_tokenizers.Split(
        Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"
    )
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    return learnt(tokenizer, trainers.BpeTrainer, vocab_size=330, initial_alphabet=ALPHABET)


def roberta() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), trim_offsets=True
    )
    special = ["<s>", "</s>"]
    return learnt(
        tokenizer,
        trainers.BpeTrainer,
        vocab_size=330,
        initial_alphabet=ALPHABET,
        special_tokens=special,
    )


def bert() -> Tokenizer:
    """WordPiece, which doesn't spell its text: case, accents, spaces and unknown words are lost in
    its tokens.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return learnt(tokenizer, trainers.WordPieceTrainer, vocab_size=120, special_tokens=["[UNK]"])


def t5() -> Tokenizer:
    """SentencePiece's other model, as T5's and XLM-R's: compatible characters are one, spaces
    too.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return learnt(
        tokenizer,
        trainers.UnigramTrainer,
        vocab_size=60,
        special_tokens=["<unk>"],
        unk_token="<unk>",
    )


LLAMA = [
    partial(llama, True),
    partial(llama, False),
    partial(llama3, None),
    partial(llama3, normalizers.NFC()),
]


@pytest.fixture(scope="module", params=[*LLAMA, roberta, bert, t5])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("tokenizer")
    request.param().save(str(folder / "tokenizer.json"))
    return open_encoder(folder)


@given(texts=st.lists(TEXT, max_size=3), size=st.integers(1, 12))
@example(texts=["a" + " " * 40 + "\n" * 40 + "b"], size=1)
@example(texts=[ODD * 3], size=5)
def test_pieces_join_to_the_text_and_none_is_empty(encoder, texts, size):
    for text, tokens in zip(texts, encoder(texts), strict=True):
        ranges = cut_tokens(tokens.bounds, size, 1)
        parts = [tokens.text(*piece) for piece in ranges]
        assert all(parts), "two documents would have the same id"
        assert "".join(parts) == (text if len(tokens.ids) else "")
        assert sum(end - begin for begin, end in ranges) == len(tokens.ids)


@settings(max_examples=80)
@given(
    texts=st.lists(
        ANY_TEXT | st.text("'tsredlvmc a\n\r\t\u00a0\u0085x1é北!", max_size=60), max_size=4
    )
)
@example(texts=["é<|special|>é", "<|special|>"])  # tiktoken's special token is text like any other
def test_both_ways_give_the_same_tokens(folder, slow, texts):
    assert byte_pairs(open_tokenizer(folder))
    for one, other in zip(open_encoder(folder)(texts), slow(texts), strict=True):
        assert all(map(np.array_equal, one, other))


def with_merges(folder: Path, merges: list[list[str]]) -> Tokenizer:
    """A tokenizer of bytes and of these pairs, in `folder`."""
    train_tokenizer(["x"], 259, folder)
    parts = json.loads((folder / "tokenizer.json").read_text())
    parts["model"]["merges"] = merges
    parts["model"]["vocab"] |= {"".join(pair): 259 + i for i, pair in enumerate(merges)}
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    return open_tokenizer(folder)


@pytest.mark.slow  # what a new version of either library could break
def test_every_character_is_taken_for_the_same_kind_by_both_ways(tmp_path):
    # Two libraries' tables of letters, digits and spaces. A vocabulary in which a character is one
    # token with a letter, a digit or a "!" before it, if it is of that kind, shows which kind each
    # library takes it for.
    tokenizer = with_merges(tmp_path, [[kind, byte] for kind in "e1!" for byte in ALPHABET])
    assert byte_pairs(tokenizer)
    codes = [
        *range(0xD800),
        *range(0xE000, 0x20000),
        *range(0x20000, 0x40000, 16),
        *range(0x40000, 0x110000, 4096),
    ]
    text = "".join(f"e{c}1{c}!{c}" for c in map(chr, codes))
    assert np.array_equal(open_encoder(tmp_path)([text])[0].ids, encode(tokenizer, [text])[0][0])


def test_a_book_of_spaces_or_of_one_letter_can_be_tokenised(folder):
    for text in (" " * 1_000_000 + "x", "a" * 1_000_000):
        assert open_encoder(folder)([text])[0].bounds[-1] == len(text)


def test_a_tokenizer_unlike_tiktoken_goes_the_slow_way(folder, tmp_path):
    for change, is_byte_level in [
        (lambda p: p, True),
        (lambda p: p.update(normalizer={"type": "NFC"}), False),
        (lambda p: p["pre_tokenizer"].update(add_prefix_space=True), False),
        (lambda p: p["pre_tokenizer"].update(use_regex=False), False),
        (lambda p: p["model"].update(ignore_merges=True), False),
        (lambda p: p["model"]["merges"].reverse(), False),
        (lambda p: p["added_tokens"][0].update(special=False), False),
    ]:
        parts = json.loads((folder / "tokenizer.json").read_text())
        change(parts)
        (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
        assert (byte_pairs(open_tokenizer(tmp_path)) is not None) == is_byte_level
    # "bc" is made first, so "ab" + "c" never meet; tiktoken would join "a" and "bc" to "abc".
    assert byte_pairs(with_merges(tmp_path, [["b", "c"], ["a", "b"], ["ab", "c"]])) is None
