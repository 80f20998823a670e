"""Prompts and continuations as one model's tokens: where a text begins, what too long a prompt loses (see Prompt)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.ragged import Ragged, byte_counts, cut, first_tokens, joined, padded

BEFORE = "\n"  # a text that others follow, and seldom one token with them


class PromptTokenizer:
    """A fast transformers tokenizer from `folder`, for the model `name` that reads `max_tokens` at once."""

    def __init__(self, tokenizer, folder: Path, name: str, max_tokens: int) -> None:
        self.tokenizer, self.name, self.max_tokens = tokenizer, name, max_tokens
        self._first, self._start = first_tokens(tokenizer, folder)
        before, alone, after = (one.tolist() for one in self._split([BEFORE, "a", BEFORE + "a"]))
        self._before = np.array(before if after != before + alone else [], np.int64)

    def tokens(self, texts: Sequence[str], *, ends: bool = False) -> tuple[Ragged, Ragged | None]:
        """Token ids of each text alone and, if asked, the character at which each token ends."""
        if not len(texts):
            return (empty := Ragged.of([])), empty
        encoded = self.tokenizer(
            list(texts),
            add_special_tokens=False,
            split_special_tokens=True,  # a "</s>" in a text is text
            return_attention_mask=False,
            return_offsets_mapping=ends,
            verbose=False,
        )
        tokens = Ragged.of(encoded["input_ids"])
        if not ends:
            return tokens, None
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(encoded["offset_mapping"])), np.int64)
        return tokens, Ragged(flat[1::2].copy(), tokens.bounds)

    def _split(self, texts: Sequence[str]) -> list[np.ndarray]:
        tokens, _ = self.tokens(texts)
        return tokens.split(tokens.values)

    def _following(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """`tokens`, with ends, of texts that stand after others: SentencePiece puts a space before one by itself."""
        if not len(self._before):
            return self.tokens(texts, ends=True)
        width, every = len(self._before), np.arange(len(texts))
        found, ends = self.tokens([BEFORE + text for text in texts], ends=True)
        first = padded(found.slice(every, 0 * every, np.minimum(found.lengths, width)), width, -1)[0]
        apart = (first == self._before).all(1)
        if not apart.all():
            found, ends = self.tokens(
                [BEFORE * some + text for some, text in zip(apart.tolist(), texts, strict=True)], ends=True
            )
        skipped = width * apart
        own, ends = (one.slice(every, skipped, found.lengths - skipped) for one in (found, ends))
        return own, Ragged(ends.values - np.repeat(len(BEFORE) * apart, own.lengths), own.bounds)

    def token_id(self, text: str) -> int:
        """The id of a text that is one token after others. Raises LongtailError for any other."""
        ids = self._following([text])[0].values
        if len(ids) != 1:
            raise LongtailError(f"{text!r} is {len(ids)} tokens for {self.name}, expected one")
        return int(ids[0])

    def continuations(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids of each text, and each token's UTF-8 bytes; many of the texts may be the same.

        Raises LongtailError for a text that alone fills what the model reads.
        """
        unique = list(dict.fromkeys(texts))
        place = {text: i for i, text in enumerate(unique)}
        tokens, ends = self._following(unique)
        rows = np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
        longest = tokens.lengths.max(initial=0)
        if longest > self.max_tokens - 1:
            raise LongtailError(
                f"a continuation has {longest} tokens, but {self.name} reads {self.max_tokens} at once; lower "
                "queries.continuation_tokens"
            )
        counts = Ragged(byte_counts(unique, ends).astype(np.int64), tokens.bounds)
        return tokens.take(rows), counts.take(rows)

    def prompts(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> Ragged:
        """Each prompt's tokens, cut as Prompt says to leave room for `reserved` (prompts,) more."""
        tokens, _ = self.tokens([prompt.document + prompt.context for prompt in prompts])
        n, lengths = len(prompts), tokens.lengths
        first = self._firsts(lengths)
        firsts = np.tile(self._first, n) if len(self._first) else np.full(first.sum(), self._start)
        opening = Ragged(firsts.astype(np.int64), np.concatenate([[0], np.cumsum(first)]))
        long, _, head, kept = self._cut(prompts, lengths, reserved)
        if not len(long):
            return joined([opening, tokens])
        beginning, end, every = lengths.copy(), np.zeros(n, np.int64), np.arange(n)
        beginning[long], end[long] = head, kept
        return joined(
            [opening, tokens.slice(every, np.zeros(n, np.int64), beginning), tokens.slice(every, lengths - end, end)]
        )

    def seen(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> list[Prompt]:
        """What is left of each prompt's texts in its tokens as `prompts` cuts them."""
        lengths = self.tokens([prompt.document + prompt.context for prompt in prompts])[0].lengths
        long, ends, head, kept = self._cut(prompts, lengths, reserved)
        left = list(prompts)
        for i, own, beginning, end in zip(long.tolist(), ends.split(ends.values), head, kept, strict=True):
            text, points = prompts[i].document + prompts[i].context, [0, *own.tolist()]  # characters between tokens
            left[i] = Prompt(text[points[len(own) - end] :] if end else "", text[: points[beginning]])
        return left

    def _firsts(self, lengths: np.ndarray) -> np.ndarray:
        """How many tokens of the model's own stand before texts of so many tokens."""
        return np.full(len(lengths), len(self._first)) if len(self._first) else (lengths == 0).astype(np.int64)

    def _cut(
        self, prompts: Sequence[Prompt], lengths: np.ndarray, reserved: np.ndarray
    ) -> tuple[np.ndarray, Ragged, np.ndarray, np.ndarray]:
        """Which prompts are too long; of these, the character at which each token ends, and how many tokens stay of the
        document's beginning and of the context's end."""
        room = self.max_tokens - self._firsts(lengths) - reserved
        long = np.flatnonzero(lengths > room)
        _, ends = self.tokens([prompts[i].document + prompts[i].context for i in long], ends=True)
        limits = np.fromiter((len(prompts[i].document) for i in long), np.int64, len(long))
        inside = np.concatenate([[0], np.cumsum(ends.values <= np.repeat(limits, ends.lengths))])
        document = np.diff(inside[ends.bounds])
        return long, ends, *cut(document, lengths[long] - document, room[long])
