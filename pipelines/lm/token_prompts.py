"""Turn prompts and continuations into a model's tokens.

This says how a text begins, how a long prompt is cut, and how many bytes each token has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.chat_template import Frame, read_frame
from pipelines.lm.language_model import Prompt
from pipelines.lm.model_files import read_object
from pipelines.lm.ragged import Ragged, bounds_of, joined, padded

BEFORE = "\n"  # put before a continuation to tokenise it; it rarely merges with the text after it


class PromptTokenizer:
    """A fast transformers tokenizer from `folder`, for prompts to the model called `name`.

    The model reads `max_tokens` at once. With `chat`, each prompt is a user's message in the
    model's chat template, after which the model answers.
    """

    def __init__(
        self, tokenizer, folder: Path, name: str, max_tokens: int, *, chat: bool = False
    ) -> None:
        """Raises LongtailError where the tokenizer has no token to begin a text with.

        With `chat`, it also raises it where there is no chat template.
        """
        self.tokenizer = tokenizer
        self.name = name
        self.max_tokens = max_tokens
        self._first, self._start = first_tokens(tokenizer, folder)
        self._last: list[int] = []  # the tokens after each prompt
        self._lead = ""  # the spaces before each prompt, which merge with it

        trial_tokens, _ = self.tokens([BEFORE, "a", BEFORE + "a"])
        before, alone, together = trial_tokens.tolist()
        # The tokens of BEFORE, if a text by itself is tokenised otherwise than after another.
        follows_otherwise = together != before + alone
        self._before = np.array(before if follows_otherwise else [], np.int64)
        self.frame: Frame | None = None
        if chat:
            self.frame = read_frame(tokenizer, name)
            self._put_into(self.frame)

    def tokens(self, texts: Sequence[str], *, ends: bool = False) -> tuple[Ragged, Ragged | None]:
        """Token ids of each text by itself.

        With `ends`, the second result is the character at which each token ends.
        """
        if not len(texts):
            return Ragged.of([]), Ragged.of([])
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
        offsets = chain.from_iterable(encoded["offset_mapping"])
        ends_of_tokens = np.fromiter((end for _, end in offsets), np.int64)
        return tokens, Ragged(ends_of_tokens, tokens.bounds)

    def decode(self, tokens: Sequence[int] | np.ndarray, *, special: bool = False) -> str:
        """The text of tokens, without the special ones, or with them."""
        return self.tokenizer.decode(
            tokens, skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )

    def texts_of_ids(self, count: int) -> list[str]:
        """The text of each of the token ids 0 to `count` - 1 by itself."""
        ids = np.arange(count)[:, None]
        return self.tokenizer.batch_decode(ids, clean_up_tokenization_spaces=False)

    def token_ids(self, texts: Sequence[str]) -> dict[str, int]:
        """The ids of those texts that are one token after another text."""
        tokens, _ = self._following_tokens(texts)
        ids = {}
        for text, ids_of_text in zip(texts, tokens.tolist(), strict=True):
            if len(ids_of_text) == 1:
                ids[text] = ids_of_text[0]
        return ids

    def continuations(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids of each text after another text, and the UTF-8 bytes of each token.

        Equal texts are tokenised once. Raises LongtailError for a text that alone fills what the
        model reads.
        """
        unique = list(dict.fromkeys(texts))
        number = {text: i for i, text in enumerate(unique)}
        tokens, ends = self._following_tokens(unique)
        rows = np.array([number[text] for text in texts], np.int64)
        longest = tokens.lengths.max(initial=0)
        if longest > self.max_tokens - 1:
            raise LongtailError(
                f"a continuation has {longest} tokens, but {self.name} reads {self.max_tokens} at "
                "once; lower windows.stride_tokens and queries.continuation_tokens"
            )
        bytes_of_tokens = byte_counts(unique, ends).astype(np.int64)
        counts = Ragged(bytes_of_tokens, tokens.bounds)
        return tokens.take(rows), counts.take(rows)

    def prompts(self, prompts: Sequence[Prompt], reserved: int | np.ndarray) -> Ragged:
        """Each prompt's token ids, cut so that `reserved` more tokens fit.

        That is one number, or one for each prompt.
        """
        texts = self._texts(prompts, reserved)
        lengths = texts.tokens.lengths
        closing = Ragged.of([self._last] * len(lengths))
        cuts = self._cuts(texts)
        if not len(cuts.rows):
            return joined([texts.opening, texts.tokens, closing])

        head_lengths = lengths.copy()
        head_lengths[cuts.rows] = cuts.head_lengths
        tail_lengths = np.zeros(len(lengths), np.int64)
        tail_lengths[cuts.rows] = cuts.tail_lengths
        head = texts.tokens.slice(0, head_lengths)
        tail = texts.tokens.slice(lengths - tail_lengths, tail_lengths)
        return joined([texts.opening, head, tail, closing])

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        """Whether a prompt need not be cut for its continuation to fit, (prompts,) bool."""
        continuation_tokens, _ = self.continuations(continuations)
        texts = self._texts(prompts, continuation_tokens.lengths)
        return texts.tokens.lengths <= texts.room

    def seen(self, prompts: Sequence[Prompt], reserved: int) -> list[Prompt]:
        """The text of each prompt as `prompts` cuts it."""
        texts = self._texts(prompts, reserved)
        cuts = self._cuts(texts)
        ends = cuts.ends.split(cuts.ends.values)
        seen = list(prompts)
        for number, row in enumerate(cuts.rows.tolist()):
            text = texts.texts[row]
            bounds = [0, *ends[number].tolist()]
            document = text[: bounds[cuts.head_lengths[number]]]
            context = ""
            tail_length = cuts.tail_lengths[number]
            if tail_length:
                context = text[bounds[-1 - tail_length] :]
            seen[row] = Prompt(context, document.removeprefix(self._lead))
        return seen

    def _put_into(self, frame: Frame) -> None:
        """Have each prompt stand in the frame of a chat template."""
        before = frame.before
        after = frame.after
        lead = before[len(before.rstrip(" ")) :]
        before = before.removesuffix(lead)
        if len(self._before):  # the tokenizer itself puts a space before a text
            lead = lead[1:]
            after = after.removeprefix(" ")
        self._lead = lead
        encoded = self.tokenizer([before, after], add_special_tokens=False)
        self._first, self._last = encoded["input_ids"]

    def _following_tokens(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Token ids of texts that follow another text, and the character at which each token ends.

        SentencePiece puts a space before a text by itself, but not after another.
        """
        if not len(self._before):
            return self.tokens(texts, ends=True)

        width = len(self._before)
        following_texts = [BEFORE + text for text in texts]
        tokens, ends = self.tokens(following_texts, ends=True)
        shown_widths = np.minimum(tokens.lengths, width)
        table, _ = padded(tokens.slice(0, shown_widths), width, -1)
        separate = (table == self._before).all(1)
        if not separate.all():  # BEFORE merged with some texts: tokenise these by themselves
            again = list(texts)
            for i in np.flatnonzero(separate):
                again[i] = following_texts[i]
            tokens, ends = self.tokens(again, ends=True)

        # where BEFORE was tokenised with a text, its tokens and characters are not the text's
        tokens_before = np.where(separate, width, 0)
        lengths = tokens.lengths - tokens_before
        tokens = tokens.slice(tokens_before, lengths)
        ends = ends.slice(tokens_before, lengths)
        characters_before = np.repeat(np.where(separate, len(BEFORE), 0), lengths)
        return tokens, Ragged(ends.values - characters_before, tokens.bounds)

    def _texts(self, prompts: Sequence[Prompt], reserved: int | np.ndarray) -> _Texts:
        texts = []
        document_lengths = []
        for prompt in prompts:
            document = self._lead + prompt.document
            texts.append(document + prompt.context)
            document_lengths.append(len(document))
        tokens, _ = self.tokens(texts)

        opening_of_empty = self._first or [self._start]
        openings = [self._first if n else opening_of_empty for n in tokens.lengths.tolist()]
        opening = Ragged.of(openings)
        room = self.max_tokens - opening.lengths - len(self._last) - reserved
        return _Texts(texts, np.array(document_lengths, np.int64), tokens, opening, room)

    def _cuts(self, texts: _Texts) -> _Cuts:
        rows = np.flatnonzero(texts.tokens.lengths > texts.room)
        long_texts = [texts.texts[i] for i in rows]
        _, ends = self.tokens(long_texts, ends=True)

        # How many tokens of each text end within its document.
        document_ends = np.repeat(texts.document_lengths[rows], ends.lengths)
        ends_before = bounds_of(ends.values <= document_ends)
        document_tokens = np.diff(ends_before[ends.bounds])
        context_tokens = texts.tokens.lengths[rows] - document_tokens

        room = texts.room[rows]
        room_for_context = np.maximum(room - document_tokens, room // 2)
        tail_lengths = np.maximum(np.minimum(context_tokens, room_for_context), 0)
        room_for_document = np.maximum(room - tail_lengths, 0)
        head_lengths = np.minimum(document_tokens, room_for_document)
        return _Cuts(rows, ends, head_lengths, tail_lengths)


class _Texts(NamedTuple):
    """Prompts as texts, tokenised."""

    texts: list[str]
    document_lengths: np.ndarray  # (prompts,) characters of each text that are its document's
    tokens: Ragged
    opening: Ragged  # the model's tokens that begin each text
    room: np.ndarray  # (prompts,) how many of `tokens` fit beside the reserved ones


class _Cuts(NamedTuple):
    """How prompts that are too long are cut (see Prompt)."""

    rows: np.ndarray  # (cuts,) the prompts' numbers
    ends: Ragged  # the character at which each of their tokens ends
    head_lengths: np.ndarray  # (cuts,) tokens that stay of the document's beginning
    tail_lengths: np.ndarray  # (cuts,) tokens that stay of the context's end


def read_tokenizer(folder: Path):
    """The tokenizer that `base_lm` saved to `folder`.

    Raises as transformers does for a folder that is not complete.
    """
    config = read_object(Path(folder, "tokenizer_config.json"))
    if config.get("tokenizer_class") == "TokenizersBackend":
        # AutoTokenizer would take seconds, because it imports torch.
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def byte_counts(texts: Sequence[str], ends: Ragged) -> np.ndarray:
    """UTF-8 bytes of each token, (total,) int32. `ends` are the characters at which tokens end.

    A token has the bytes since the token before. Of several tokens inside a character, the first
    has all its bytes. The last token has the rest, so that a text's counts add up to its bytes.
    """
    # The bytes before each character of the joined texts.
    joined_texts = "".join(texts)
    points = np.frombuffer(joined_texts.encode("utf-32-le"), np.uint32)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    bytes_before = bounds_of(sizes)

    # The characters at which texts and tokens begin and end, in the joined texts.
    text_lengths = np.array([len(text) for text in texts], np.int64)
    text_ends = np.cumsum(text_lengths)
    text_starts = text_ends - text_lengths
    if not len(ends.values):
        return np.zeros(0, np.int32)
    token_ends = ends.values + np.repeat(text_starts, ends.lengths)
    token_ends = np.maximum.accumulate(token_ends)

    nonempty = ends.lengths > 0
    first = ends.bounds[:-1][nonempty]
    last = ends.bounds[1:][nonempty] - 1
    token_ends[last] = text_ends[nonempty]
    token_starts = np.roll(token_ends, 1)
    token_starts[first] = text_starts[nonempty]
    counts = bytes_before[token_ends] - bytes_before[token_starts]
    return counts.astype(np.int32)


def first_tokens(tokenizer, folder: Path) -> tuple[list[int], int]:
    """The tokens that the tokenizer puts before any text, and the one that begins an empty prompt.

    Raises LongtailError where the tokenizer has neither a beginning-of-text nor an end-of-text
    token.
    """
    start = tokenizer.bos_token_id
    if start is None:
        start = tokenizer.eos_token_id
    if start is None:
        raise LongtailError(
            f"{folder}: the tokenizer has neither a bos nor an eos token, expected one to begin a "
            "text with"
        )

    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    with_special = tokenizer("a")["input_ids"]
    for n_first in range(len(with_special)):
        if with_special[n_first : n_first + len(plain)] == plain:
            return with_special[:n_first], start
    return [], start
