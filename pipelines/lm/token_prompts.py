"""Prompts and continuations as a model's tokens: how a text begins, how a long prompt is cut, bytes of each token."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.ragged import Ragged, joined, padded

MESSAGE = "\ue000"  # stands for the user's message in a chat template
TODAY = re.compile(r"""strftime_now\((["'])(.*?)\1\)""")  # in a chat template
DAY = date(2024, 7, 26)  # takes the place of today: else a prompt would be another one every day
BEFORE = "\n"  # put before a continuation to tokenise it; it rarely merges with the text after it


class PromptTokenizer:
    """A fast transformers tokenizer from `folder`, for the model `name` that reads `max_tokens` at once.

    With `chat`, each prompt is a user's message in the model's chat template, after which the model answers.
    """

    def __init__(
        self, tokenizer, folder: Path, name: str, max_tokens: int, *, chat: bool = False
    ) -> None:
        """Raises LongtailError where the tokenizer has no token to begin a text with, or no chat template."""
        self.tokenizer, self.name, self.max_tokens = tokenizer, name, max_tokens
        self._first, self._start = first_tokens(tokenizer, folder)
        tokens, _ = self.tokens([BEFORE, "a", BEFORE + "a"])
        before, alone, together = (ids.tolist() for ids in tokens.split(tokens.values))
        # Tokens of BEFORE where a text by itself is tokenised otherwise than after another, else none.
        self._before = np.array(before if together != before + alone else [], np.int64)
        self._last, self._lead = [], ""
        if chat:
            self._first, self._last, self._lead = self._template()

    def tokens(self, texts: Sequence[str], *, ends: bool = False) -> tuple[Ragged, Ragged | None]:
        """Token ids of each text by itself and, with `ends`, the character at which each token ends."""
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
        flat = np.fromiter(
            chain.from_iterable(chain.from_iterable(encoded["offset_mapping"])), np.int64
        )
        return tokens, Ragged(flat[1::2].copy(), tokens.bounds)

    def token_id(self, text: str) -> int:
        """The id of a text that is one token after another text. Raises LongtailError for any other text."""
        ids = self._following_tokens([text])[0].values
        if len(ids) != 1:
            raise LongtailError(f"{text!r} is {len(ids)} tokens for {self.name}, expected one")
        return int(ids[0])

    def continuations(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids of each text after another text, and each token's UTF-8 bytes. Equal texts are tokenised once.

        Raises LongtailError for a text that alone fills what the model reads.
        """
        unique = list(dict.fromkeys(texts))
        number = {text: i for i, text in enumerate(unique)}
        tokens, ends = self._following_tokens(unique)
        rows = np.fromiter(map(number.__getitem__, texts), np.int64, len(texts))
        longest = tokens.lengths.max(initial=0)
        if longest > self.max_tokens - 1:
            raise LongtailError(
                f"a continuation has {longest} tokens, but {self.name} reads {self.max_tokens} at once; lower "
                "windows.stride_tokens and queries.continuation_tokens"
            )
        counts = Ragged(byte_counts(unique, ends).astype(np.int64), tokens.bounds)
        return tokens.take(rows), counts.take(rows)

    def prompts(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> Ragged:
        """Each prompt's token ids, cut as Prompt says so that `reserved` (prompts,) more tokens fit."""
        read = self._read(prompts, reserved)
        n, lengths = len(read.texts), read.tokens.lengths
        closing = Ragged.of([self._last] * n)
        too_long, _, from_document, from_context = self._cut(read)
        if not len(too_long):
            return joined([read.opening, read.tokens, closing])
        head, tail, every = lengths.copy(), np.zeros(n, np.int64), np.arange(n)
        head[too_long], tail[too_long] = from_document, from_context
        kept = read.tokens.slice(every, 0, head), read.tokens.slice(every, lengths - tail, tail)
        return joined([read.opening, *kept, closing])

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        """Whether `prompts` leaves each prompt whole if its continuation is to fit, (prompts,) bool."""
        read = self._read(prompts, self.continuations(continuations)[0].lengths)
        return read.tokens.lengths <= read.room

    def seen(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> list[Prompt]:
        """The text of each prompt as `prompts` cuts it."""
        seen, read = list(prompts), self._read(prompts, reserved)
        too_long, ends, from_document, from_context = self._cut(read)
        rows = zip(
            too_long.tolist(), ends.split(ends.values), from_document, from_context, strict=True
        )
        for i, ends_of_tokens, head, tail in rows:
            text, bounds = read.texts[i], [0, *ends_of_tokens.tolist()]
            context = text[bounds[len(ends_of_tokens) - tail] :] if tail else ""
            seen[i] = Prompt(context, text[: bounds[head]].removeprefix(self._lead))
        return seen

    def _template(self) -> tuple[list[int], list[int], str]:
        """The chat template's tokens before and after a user's message, and the spaces before that merge with it."""
        if not self.tokenizer.chat_template:
            raise LongtailError(
                f"params.yaml: lm.{self.name}.chat is true, but the tokenizer of {self.name} has no chat template; set "
                "it to false, or name an instruction-tuned model"
            )
        template = TODAY.sub(
            lambda call: repr(DAY.strftime(call[2])), self.tokenizer.get_chat_template()
        )
        options = {"chat_template": template, "tokenize": False, "add_generation_prompt": True}
        text = self.tokenizer.apply_chat_template([{"role": "user", "content": MESSAGE}], **options)
        before, _, after = text.partition(MESSAGE)
        lead = before[len(before.rstrip(" ")) :]
        before = before.removesuffix(lead)
        if len(self._before):  # the tokenizer itself puts a space before a text
            lead, after = lead[1:], after.removeprefix(" ")
        return *self.tokenizer([before, after], add_special_tokens=False)["input_ids"], lead

    def _following_tokens(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids and ends of texts that follow another text: SentencePiece puts a space before a text by itself."""
        if not len(self._before):
            return self.tokens(texts, ends=True)
        width, every = len(self._before), np.arange(len(texts))
        tokens, ends = self.tokens([BEFORE + text for text in texts], ends=True)
        first = padded(tokens.slice(every, 0, np.minimum(tokens.lengths, width)), width, -1)[0]
        separate = (first == self._before).all(1)
        if not separate.all():  # BEFORE merged with these texts: tokenise them by themselves
            texts = [
                BEFORE * after + text for after, text in zip(separate.tolist(), texts, strict=True)
            ]
            tokens, ends = self.tokens(texts, ends=True)
        skipped = width * separate
        remaining = tokens.lengths - skipped
        tokens, ends = (rows.slice(every, skipped, remaining) for rows in (tokens, ends))
        return tokens, Ragged(
            ends.values - np.repeat(len(BEFORE) * separate, tokens.lengths), tokens.bounds
        )

    def _read(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> _Read:
        documents = [self._lead + prompt.document for prompt in prompts]
        texts = [
            document + prompt.context for document, prompt in zip(documents, prompts, strict=True)
        ]
        tokens, _ = self.tokens(texts)
        opening = Ragged.of(
            [self._first or [self._start] * (not n) for n in tokens.lengths.tolist()]
        )
        room = self.max_tokens - opening.lengths - len(self._last) - reserved
        return _Read(texts, np.array(list(map(len, documents)), np.int64), tokens, opening, room)

    def _cut(self, read: _Read) -> tuple[np.ndarray, Ragged, np.ndarray, np.ndarray]:
        """The prompts that are too long, the character at which each of their tokens ends, and how many tokens are kept
        of each document's beginning and of each context's end (see Prompt)."""
        too_long = np.flatnonzero(read.tokens.lengths > read.room)
        _, ends = self.tokens([read.texts[i] for i in too_long], ends=True)
        inside = np.concatenate(
            [[0], np.cumsum(ends.values <= np.repeat(read.documents[too_long], ends.lengths))]
        )
        document, room = np.diff(inside[ends.bounds]), read.room[too_long]
        context = read.tokens.lengths[too_long] - document
        from_context = np.maximum(np.minimum(context, np.maximum(room - document, room // 2)), 0)
        return (
            too_long,
            ends,
            np.minimum(document, np.maximum(room - from_context, 0)),
            from_context,
        )


class _Read(NamedTuple):
    """Prompts as texts, tokenised."""

    texts: list[str]
    documents: np.ndarray  # (prompts,) characters of each text that are its document's
    tokens: Ragged
    opening: Ragged  # tokens of the model's own that begin each text
    room: np.ndarray  # (prompts,) how many of `tokens` fit beside the reserved ones


def open_tokenizer(folder: Path) -> PromptTokenizer | None:
    """The tokenizer of the model in `folder`, for texts of any length; None where a server's is not known."""
    if not (folder / "tokenizer_config.json").is_file():
        return None
    return PromptTokenizer(read_tokenizer(folder), folder, folder.name, sys.maxsize)


def read_tokenizer(folder: Path):
    """The tokenizer that `base_lm` saved to `folder`. Raises as transformers does for a folder that is not whole."""
    config = Path(folder, "tokenizer_config.json")
    if (
        config.is_file()
        and json.loads(config.read_bytes()).get("tokenizer_class") == "TokenizersBackend"
    ):
        from transformers import (
            PreTrainedTokenizerFast,
        )  # AutoTokenizer takes seconds: it imports torch

        return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def byte_counts(texts: Sequence[str], ends: Ragged) -> np.ndarray:
    """UTF-8 bytes of each token, (total,) int32, where `ends` are the characters in its text at which tokens end.

    A token has the bytes since the token before; of several inside a character, the first has all; the last has the
    rest. A text's counts add up to its bytes.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    before = np.concatenate(
        [[0], np.cumsum(1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000))]
    )
    stops = np.cumsum(
        np.fromiter(map(len, texts), np.int64, len(texts))
    )  # in characters of the joined text
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)
    absolute = (
        np.maximum.accumulate(ends.values + np.repeat(starts, ends.lengths))
        if len(ends.values)
        else ends.values
    )
    nonempty = ends.lengths > 0
    absolute[ends.bounds[1:][nonempty] - 1] = stops[nonempty]
    previous = np.concatenate([[0], absolute[:-1]]).astype(np.int64)
    previous[ends.bounds[:-1][nonempty]] = starts[nonempty]
    return (before[absolute] - before[previous]).astype(np.int32)


def first_tokens(tokenizer, folder: Path) -> tuple[list[int], int]:
    """The tokens that the tokenizer puts before any text, and the token that an empty prompt begins with.

    Raises LongtailError where the tokenizer has neither a beginning-of-text nor an end-of-text token.
    """
    with_special, plain = (
        tokenizer("a")["input_ids"],
        tokenizer("a", add_special_tokens=False)["input_ids"],
    )
    first = next(i for i in range(len(with_special)) if with_special[i : i + len(plain)] == plain)
    starts = [
        token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None
    ]
    if not starts:
        raise LongtailError(
            f"{folder}: the tokenizer has neither a bos nor an eos token, expected one to begin a text with"
        )
    return with_special[:first], starts[0]
