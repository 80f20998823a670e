"""Texts to the language model's tokens, in batches, and the bytes where each token ends: what cutting needs."""

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

TOGETHER = 1_000_000  # characters that the slow way tokenises at once
CONTINUES = 0b10  # the first two bits of a byte that isn't the first of its character


class Tokens(NamedTuple):
    """The tokens of some texts, one after another, as are the texts' bytes."""

    ids: np.ndarray  # (tokens,) uint32
    ends: np.ndarray  # (tokens,) int64: the byte before which a cut can be made after the token; -1 inside a character
    counts: np.ndarray  # (texts,) int64: tokens of each text
    data: bytes  # of all texts
    sizes: np.ndarray  # (texts,) int64: bytes of each text


Encoder = Callable[[Sequence[str]], Tokens]


def open_encoder(folder: Path) -> Encoder:
    """The tokenizer of a Hugging Face folder as a function of texts; raises LongtailError as `open_tokenizer`.

    A byte-level BPE as GPT-2's is run by tiktoken, with the same ids some six times as fast: no offsets are needed, for
    its tokens spell the text's bytes. Any other goes through `tokenizers` and its offsets.
    """
    tokenizer = open_tokenizer(folder)
    ranks = byte_pairs(tokenizer)
    return _Bytes(ranks) if ranks else _Offsets(tokenizer)


def byte_pairs(tokenizer: tokenizers.Tokenizer) -> dict[bytes, int] | None:
    """Token bytes -> id where tiktoken gives the same ids as `tokenizer`, else None.

    tiktoken joins any two neighbours that make a token, lowest id first; `tokenizers` follows its list of merges. It is
    the same if ids follow the merges' order, one merge a token, and every token's own bytes are merged to that token:
    two neighbours that make a token are then always those of its merge.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    parts = json.loads(tokenizer.to_str())
    model, split = parts["model"], parts["pre_tokenizer"] or {}
    plain = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"}
    if (
        model["type"] != "BPE"
        or any(model.get(name) for name in plain)
        or parts["normalizer"] is not None
        or (split.get("type"), split.get("add_prefix_space"), split.get("use_regex", True))
        != ("ByteLevel", False, True)
        or not all(token["special"] for token in parts["added_tokens"])
    ):
        return None
    vocabulary = model["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merged = ["".join(pair) for pair in pairs]
    ids = [vocabulary[token] for token in merged]
    letters = _letters()
    if (
        any(second <= first for first, second in pairwise(ids))
        or not set(ByteLevel.alphabet()) <= vocabulary.keys()
        or any([part.value for part in tokenizer.model.tokenize(token)] != [token] for token in merged)
    ):
        return None
    return {bytes(letters[c] for c in token): vocabulary[token] for token in [*letters, *merged]}


def _letters() -> dict[str, int]:
    """GPT-2's character for each byte -> the byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


class _Bytes:
    def __init__(self, ranks: dict[bytes, int]) -> None:
        import tiktoken
        from tiktoken_ext.openai_public import r50k_pat_str

        self._encode = tiktoken.Encoding(
            "longtail", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={}
        ).encode_ordinary
        self._lengths = np.zeros(max(ranks.values()) + 1, dtype=np.int64)
        self._lengths[list(ranks.values())] = [len(token) for token in ranks]

    def __call__(self, texts: Sequence[str]) -> Tokens:
        own = [[np.array(self._encode(part), dtype=np.uint32) for _, part in stretches(text)] for text in texts]
        counts = np.array([sum(map(len, parts)) for parts in own], dtype=np.int64)
        ids = np.concatenate([np.empty(0, dtype=np.uint32), *(part for parts in own for part in parts)])
        data, sizes = _joined(texts)
        ends = np.cumsum(self._lengths[ids])
        assert len(data) == (ends[-1] if len(ends) else 0), "tokens don't spell their text"
        following = np.frombuffer(data + b" ", dtype=np.uint8)[ends]
        return Tokens(ids, np.where(following >> 6 == CONTINUES, -1, ends), counts, data, sizes)


class _Offsets:
    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        from tokenizers.processors import ByteLevel

        # RoBERTa's offsets leave out the space that a token begins with: one that is nothing else would have no bytes.
        tokenizer.post_processor = ByteLevel(trim_offsets=False)
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> Tokens:
        data, sizes = _joined(texts)
        ids, ends = [np.empty(0, dtype=np.uint32)], [np.empty(0, dtype=np.int64)]
        stops = np.cumsum(sizes)
        for text, (own, offsets), size, stop in zip(texts, self._encoded(texts), sizes, stops, strict=True):
            bounds = token_ends(offsets)
            found = np.where(bounds < 0, -1, byte_positions(text)[bounds] + stop - size)
            found[-1:] = stop  # what a tokenizer leaves out at the end belongs to the last token
            ids.append(own.astype(np.uint32))
            ends.append(found)
        counts = np.array([len(own) for own in ids[1:]], dtype=np.int64)
        return Tokens(np.concatenate(ids), np.concatenate(ends), counts, data, sizes)

    def _encoded(self, texts: Sequence[str]):
        begin = 0
        while begin < len(texts):
            end, size = begin, 0
            while end < len(texts) and size < TOGETHER:
                size += len(texts[end])
                end += 1
            yield from encode(self._tokenizer, texts[begin:end])
            begin = end


def _joined(texts: Sequence[str]) -> tuple[bytes, np.ndarray]:
    encoded = [text.encode("utf-8") for text in texts]
    return b"".join(encoded), np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))


def token_ends(offsets: np.ndarray) -> np.ndarray:
    """(tokens,) int64: the character before which the text can be cut after each token, or -1 inside a character.

    `offsets` (tokens, 2) are a fast tokenizer's (start, end) characters. The tokens of one character (byte-level BPE
    may need up to four) all span it whole, so a token that starts before its predecessors' end continues a character.
    """
    ends = np.maximum.accumulate(offsets[:, 1])
    inside = np.zeros(len(offsets), dtype=bool)
    inside[:-1] = offsets[1:, 0] < ends[:-1]
    return np.where(inside, -1, ends)


def byte_positions(text: str) -> np.ndarray:
    """(characters + 1,) int64: where each character begins in the text's UTF-8 bytes, and where the last one ends."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(sizes)])
