"""Texts as their tokens, with the byte where each token ends: what cutting needs."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiktoken
import tokenizers
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import pre_tokenizers, processors

from pipelines.corpus.tokenizer import encode, open_tokenizer, stretches

CONTINUES = 0b10  # the first two bits of every byte of a character but its first


class Tokens(NamedTuple):
    """The tokens of a text."""

    ids: np.ndarray  # (tokens,) uint32
    # (tokens + 1,) int64: the bytes of `data` between which tokens lie; -1 inside a character
    bounds: np.ndarray
    data: bytes  # the text in UTF-8

    def text(self, begin: int, end: int) -> str:
        """The text of the tokens from `begin` up to, without, `end`."""
        return self.data[self.bounds[begin] : self.bounds[end]].decode()


Encoder = Callable[[Sequence[str]], list[Tokens]]


def open_encoder(folder: Path) -> Encoder:
    """The tokenizer of a Hugging Face folder as a function of texts; raises LongtailError as
    `open_tokenizer` does.

    A byte-level BPE like GPT-2's runs in tiktoken, six times as fast; its tokens spell the text's
    bytes, so no offsets are needed. Any other tokenizer runs in `tokenizers`, which gives offsets.
    """
    tokenizer = open_tokenizer(folder)
    ranks = byte_pairs(tokenizer)
    return _by_tiktoken(ranks) if ranks else _by_offsets(tokenizer)


def byte_pairs(tokenizer: tokenizers.Tokenizer) -> dict[bytes, int] | None:
    """The id of each token's bytes if tiktoken gives the same ids as `tokenizer`, else None.

    tiktoken joins any two neighbours that make a token, the lowest id first; `tokenizers` follows
    its list of merges. Both give the same ids if ids have the order of the merges, each token has
    one merge, and the bytes of every token are merged to that token.
    """
    config = json.loads(tokenizer.to_str())
    if not _is_plain_byte_level(config):
        return None
    vocabulary = config["model"]["vocab"]
    merged = []
    for pair in config["model"]["merges"]:
        merged.append(pair.replace(" ", "") if isinstance(pair, str) else "".join(pair))

    ids = [vocabulary[token] for token in merged]
    in_order = all(first < second for first, second in pairwise(ids))
    all_bytes = set(pre_tokenizers.ByteLevel.alphabet()) <= vocabulary.keys()
    if not in_order or not all_bytes:
        return None
    for token in merged:
        if [part.value for part in tokenizer.model.tokenize(token)] != [token]:
            return None

    letters = _letters()
    ranks = {}
    for token in [*letters, *merged]:
        ranks[bytes(letters[letter] for letter in token)] = vocabulary[token]
    return ranks


def _is_plain_byte_level(config: dict) -> bool:
    """Whether a tokenizer is a BPE over bytes that splits texts as GPT-2's does, with no option
    that changes a text.
    """
    model = config["model"]
    split = config["pre_tokenizer"] or {}
    options = (
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "ignore_merges",
    )
    splitting = (split.get("type"), split.get("add_prefix_space"), split.get("use_regex", True))
    return (
        model["type"] == "BPE"
        and not any(model.get(name) for name in options)
        and config["normalizer"] is None
        and splitting == ("ByteLevel", False, True)
        and all(token["special"] for token in config["added_tokens"])
    )


def _letters() -> dict[str, int]:
    """The letter that stands for each byte in a vocabulary of bytes (GPT-2's) -> the byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    for i, byte in enumerate(hidden):
        letters[chr(256 + i)] = byte
    return letters


def _by_tiktoken(ranks: dict[bytes, int]) -> Encoder:
    """A byte-level BPE with these tokens, whose lengths say where each ends."""
    # Without a special token, tiktoken would look for the empty text. This one, where a text has
    # it, is text too.
    special = {"<|special|>": max(ranks.values()) + 1}
    encoding = tiktoken.Encoding(
        "longtail", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special
    )
    lengths = np.zeros(max(ranks.values()) + 1, dtype=np.int64)
    lengths[list(ranks.values())] = [len(token) for token in ranks]

    def tokens(text: str) -> Tokens:
        data = text.encode("utf-8")
        ids_of = []
        for _, stretch in stretches(text):
            ids_of.append(encoding.encode_to_numpy(stretch, disallowed_special=()))
        ids = np.concatenate(ids_of)
        bounds = np.concatenate([[0], np.cumsum(lengths[ids])])
        assert len(data) == bounds[-1], "tokens don't spell their text"
        following = np.frombuffer(data + b" ", dtype=np.uint8)[bounds]
        return Tokens(ids, np.where(following >> 6 == CONTINUES, -1, bounds), data)

    def encode_texts(texts: Sequence[str]) -> list[Tokens]:
        return [tokens(text) for text in texts]

    return encode_texts


def _by_offsets(tokenizer: tokenizers.Tokenizer) -> Encoder:
    """Any fast tokenizer, with the offsets of its tokens."""
    # RoBERTa's offsets leave out a token's leading space, so that a token of nothing else would
    # have no bytes.
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)

    def tokens(text: str, ids: np.ndarray, offsets: np.ndarray) -> Tokens:
        data = text.encode("utf-8")
        values = np.frombuffer(data + b" ", dtype=np.uint8)
        character_starts = np.flatnonzero(values >> 6 != CONTINUES)
        characters = np.maximum.accumulate(offsets[:, 1])
        ends = character_starts[characters]
        # Each of several tokens that spell a character spans the whole character, so a token that
        # starts before the end of an earlier token continues a character.
        ends[:-1][offsets[1:, 0] < characters[:-1]] = -1
        # Text that the tokenizer leaves out at the end belongs to the last token.
        ends[-1:] = len(data)
        return Tokens(ids.astype(np.uint32), np.concatenate([[0], ends]), data)

    def encode_texts(texts: Sequence[str]) -> list[Tokens]:
        encoded = encode(tokenizer, texts)
        return [tokens(texts[i], ids, offsets) for i, (ids, offsets) in enumerate(encoded)]

    return encode_texts
