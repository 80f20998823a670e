"""Prompts and continuations as one model's tokens: where a text begins, what too long a prompt loses (see Prompt)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.protocol import Prompt
from pipelines.lm.tokens import Ragged, byte_counts, cut, first_tokens, joined


class PromptTokenizer:
    """A fast transformers tokenizer from `folder`, for the model `name` that reads `max_tokens` at once."""

    def __init__(self, tokenizer, folder: Path, name: str, max_tokens: int) -> None:
        self.tokenizer, self.name, self.max_tokens = tokenizer, name, max_tokens
        self._first, self._start = first_tokens(tokenizer, folder)

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

    def token_id(self, text: str) -> int:
        """The id of a text that is one token. Raises LongtailError for any other."""
        ids = self.tokens([text])[0].values
        if len(ids) != 1:
            raise LongtailError(f"{text!r} is {len(ids)} tokens for {self.name}, expected one")
        return int(ids[0])

    def continuations(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids of each text, and each token's UTF-8 bytes; many of the texts may be the same.

        Raises LongtailError for a text that alone fills what the model reads.
        """
        unique = list(dict.fromkeys(texts))
        place = {text: i for i, text in enumerate(unique)}
        tokens, ends = self.tokens(unique, ends=True)
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
        first = np.full(n, len(self._first)) if len(self._first) else (lengths == 0).astype(np.int64)
        firsts = np.tile(self._first, n) if len(self._first) else np.full(first.sum(), self._start)
        opening = Ragged(firsts.astype(np.int64), np.concatenate([[0], np.cumsum(first)]))
        room = self.max_tokens - first - reserved
        long = np.flatnonzero(lengths > room)
        if not len(long):
            return joined([opening, tokens])
        document = np.zeros(n, np.int64)
        _, ends = self.tokens([prompts[i].document + prompts[i].context for i in long], ends=True)
        limits = np.fromiter((len(prompts[i].document) for i in long), np.int64, len(long))
        inside = np.concatenate([[0], np.cumsum(ends.values <= np.repeat(limits, ends.lengths))])
        document[long] = np.diff(inside[ends.bounds])
        context = lengths - document
        head, kept = cut(document, context, room)
        every = np.arange(n)
        return joined(
            [opening, tokens.slice(every, np.zeros(n, np.int64), head), tokens.slice(every, lengths - kept, kept)]
        )
