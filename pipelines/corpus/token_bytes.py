"""Texts as the language model's tokens, and the byte where each token ends: what cutting needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipelines.corpus.tokenizer import encode, open_tokenizer, stretches

if TYPE_CHECKING:
    import tokenizers

CONTINUES = 0b10  # the first two bits of every byte of a character but its first


class Tokens(NamedTuple):
    """The tokens of a text."""

    ids: np.ndarray  # (tokens,) uint32
    bounds: np.ndarray  # (tokens + 1,) int64: the bytes of `data` between which tokens lie; -1 inside a character
    data: bytes  # the text in UTF-8

    def text(self, begin: int, end: int) -> str:
        """The text of the tokens from `begin` up to, without, `end`."""
        return self.data[self.bounds[begin] : self.bounds[end]].decode()


Encoder = Callable[[Sequence[str]], list[Tokens]]


def open_encoder(folder: Path) -> Encoder:
    """The tokenizer of a Hugging Face folder as a function of texts; raises LongtailError as `open_tokenizer` does.

    A byte-level BPE like GPT-2's runs in tiktoken, six times as fast; its tokens spell the text's bytes, so no offsets
    are needed. Any other tokenizer runs in `tokenizers`, which gives offsets.
    """
    tokenizer = open_tokenizer(folder)
    ranks = byte_pairs(tokenizer)
    return _by_tiktoken(ranks) if ranks else _by_offsets(tokenizer)


def byte_pairs(tokenizer: tokenizers.Tokenizer) -> dict[bytes, int] | None:
    """The id of each token's bytes if tiktoken gives the same ids as `tokenizer`, else None.

    tiktoken joins any two neighbours that make a token, the lowest id first; `tokenizers` follows its list of merges.
    Both give the same ids if ids have the order of the merges, each token has one merge, and the bytes of every token
    are merged to that token: two neighbours that make a token are then always those of its merge.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    config = json.loads(tokenizer.to_str())
    model, split = config["model"], config["pre_tokenizer"] or {}
    options = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
    splitting = split.get("type"), split.get("add_prefix_space"), split.get("use_regex", True)
    if (
        model["type"] != "BPE"
        or any(model.get(name) for name in options)
        or config["normalizer"] is not None
        or splitting != ("ByteLevel", False, True)
        or not all(token["special"] for token in config["added_tokens"])
    ):
        return None
    vocabulary = model["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merged = ["".join(pair) for pair in pairs]
    ids = [vocabulary[token] for token in merged]
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}  # GPT-2's
    if (
        any(second <= first for first, second in pairwise(ids))
        or not set(ByteLevel.alphabet()) <= vocabulary.keys()
        or any([part.value for part in tokenizer.model.tokenize(token)] != [token] for token in merged)
    ):
        return None
    return {bytes(letters[c] for c in token): vocabulary[token] for token in [*letters, *merged]}


def _by_tiktoken(ranks: dict[bytes, int]) -> Encoder:
    """A byte-level BPE with these tokens, whose lengths say where each ends."""
    import tiktoken
    from tiktoken_ext.openai_public import r50k_pat_str

    # Without a special token, tiktoken would look for the empty text. This one, where a text has it, is text too.
    special = {"<|special|>": max(ranks.values()) + 1}
    encoding = tiktoken.Encoding("longtail", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special)
    lengths = np.zeros(max(ranks.values()) + 1, dtype=np.int64)
    lengths[list(ranks.values())] = [len(token) for token in ranks]

    def tokens(text: str) -> Tokens:
        data, parts = text.encode("utf-8"), (part for _, part in stretches(text))
        ids = np.concatenate([encoding.encode_to_numpy(part, disallowed_special=()) for part in parts])
        bounds = np.concatenate([[0], np.cumsum(lengths[ids])])
        assert len(data) == bounds[-1], "tokens don't spell their text"
        following = np.frombuffer(data + b" ", dtype=np.uint8)[bounds]
        return Tokens(ids, np.where(following >> 6 == CONTINUES, -1, bounds), data)

    return lambda texts: list(map(tokens, texts))


def _by_offsets(tokenizer: tokenizers.Tokenizer) -> Encoder:
    """Any fast tokenizer, with the offsets of its tokens."""
    from tokenizers.processors import ByteLevel

    # RoBERTa's offsets leave out a token's leading space, so that a token of nothing else would have no bytes.
    tokenizer.post_processor = ByteLevel(trim_offsets=False)

    def tokens(text: str, ids: np.ndarray, offsets: np.ndarray) -> Tokens:
        data, characters = text.encode("utf-8"), np.maximum.accumulate(offsets[:, 1])
        ends = np.flatnonzero(np.frombuffer(data + b" ", dtype=np.uint8) >> 6 != CONTINUES)[characters]
        # Each of several tokens that spell a character spans the whole character, so a token that starts before the
        # end of an earlier token continues a character.
        ends[:-1][offsets[1:, 0] < characters[:-1]] = -1
        ends[-1:] = len(data)  # text that the tokenizer leaves out at the end belongs to the last token
        return Tokens(ids.astype(np.uint32), np.concatenate([[0], ends]), data)

    return lambda texts: [tokens(text, *of) for text, of in zip(texts, encode(tokenizer, texts), strict=True)]
