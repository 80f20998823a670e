"""Check which shortcuts give a model's own numbers: shared prefixes, cached decoding, padding.

Architectures differ in how they know a token's position and in what they cache of earlier tokens. Where a shortcut does
not fit a model, it gives other numbers and no error. So each shortcut is compared with plain forward passes over a
fixed text when a model is opened for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.decode import Decoder
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.ragged import Ragged, padded
from pipelines.lm.weights import TEXT, TOLERANCE, Trials

TOKENS = 45  # of TEXT, at most
SHORT = 5  # of these, a second text: in so short a text the effect of padding on a state has not worn off
PREFIX = 2  # of these, read before the others
SAME = 0.0005  # nats in fp32: mean absolute difference of a log-prob; bf16 and int8 may be TOLERANCE from fp32
REFUSED = 0.002  # the same difference for padding, which no model can do without
# What architectures raise where they can't do something. The trial itself fails then, and the shortcut is not taken.
CANT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)

LogProbPair = tuple[torch.Tensor, torch.Tensor]  # with the shortcut, and by a plain pass


class ShortcutCheck:
    """Compares shortcuts with plain passes of `model`, from `folder`, which reads `max_tokens` at once."""

    def __init__(self, model: PreTrainedModel, tokenizer, folder: Path, max_tokens: int, trials: Trials) -> None:
        """Raises LongtailError where the model can't read padded texts, or what follows a text changes it."""
        ids = tokenizer(TEXT, verbose=False)["input_ids"][: min(TOKENS, max_tokens - 2)]
        self._model, self._pad = model, tokenizer.pad_token_id or 0
        self._ids = np.array(ids, np.int64)
        self._targets = torch.tensor(ids, device=model.device)
        self._format_error = 0.0 if model.dtype == torch.float32 else 2 * TOLERANCE
        self._trials = trials
        try:
            difference = trials.found("padding", lambda: self._difference(self._together))
        except CANT as error:
            raise LongtailError(
                f"{folder}: {type(model).__name__} can't read texts of two lengths together "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); name another in lm"
            ) from error
        if not difference <= max(REFUSED, self._format_error):  # also where it is NaN
            raise LongtailError(
                f"{folder}: {type(model).__name__}, as it is configured, gives a text's tokens other log-probs where "
                "something follows them, expected a causal language model; name another in lm"
            )

    def choose(self, passes: ForwardPasses, decoder: Decoder) -> None:
        """Have `passes` and `decoder` take the shortcuts that give this model's numbers.

        A model that is recurrent keeps more of a text than keys and values.
        """
        passes.keeps = not self._model._is_stateful
        passes.shares_prefixes = passes.keeps and self._agrees("shared prefixes", self._after_prefix)
        passes.keeps = passes.keeps and self._agrees(
            "kept keys and values", lambda: self._decoded(decoder, passes.shares_prefixes)
        )
        decoder.cached = passes.keeps or self._agrees("its own cache", lambda: self._decoded(decoder, False))

    def _agrees(self, name: str, shortcut: Callable[[], list[LogProbPair]]) -> bool:
        return self._trials.found(name, lambda: self._fits(shortcut))

    def _fits(self, shortcut: Callable[[], list[LogProbPair]]) -> bool:
        try:
            return self._difference(shortcut) <= max(SAME, self._format_error)
        except CANT:
            return False  # the model can't take this shortcut; it can do without, as __init__ found

    @cached_property
    @torch.inference_mode()
    def _plain(self) -> torch.Tensor:
        """`_log_probs` of the whole text by a plain pass."""
        return self._log_probs(self._model(input_ids=self._targets[None]).logits[0])

    @torch.inference_mode()
    def _difference(self, shortcut: Callable[[], list[LogProbPair]]) -> float:
        """The largest mean absolute difference of the pairs' log-probs; NaN where one is NaN."""
        return torch.stack([torch.where(a == b, 0.0, (a - b).abs()).mean() for a, b in shortcut()]).max().item()

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """log p of every token of the text at each position, (positions, tokens). Other tokens may be impossible."""
        return torch.log_softmax(logits.float(), dim=-1)[:, self._targets.to(logits.device)].to(self._targets.device)

    def _together(self, start: int = 0, **options) -> list[LogProbPair]:
        """The short text and the whole text from position `start` on, in one batch that is padded on the right."""
        texts = Ragged.of([self._ids[start:SHORT], self._ids[start:]])
        ids = torch.from_numpy(padded(texts, len(self._ids) - start, self._pad)[0]).to(self._model.device)
        logits = self._model(input_ids=ids, **options).logits
        rows = logits[0, : SHORT - start], logits[1]
        return [(self._log_probs(row), self._plain[start : start + len(row)]) for row in rows]

    def _after_prefix(self) -> list[LogProbPair]:
        """The short text and the whole text after their first PREFIX tokens, which are read once."""
        read, both = prefixes.Prefixes(self._model, self._targets[None, :PREFIX]), np.zeros(2, np.int64)
        past = prefixes.Continuing(read, both, None, both, both)
        return self._together(PREFIX, past_key_values=past, use_cache=True)

    def _decoded(self, decoder: Decoder, prefix: bool) -> list[LogProbPair]:
        """Two decoding steps, in which both texts get their last token. With `prefix`, their first are read once."""
        ends = np.array([SHORT, len(self._ids)])
        texts = Ragged.of([self._ids[: end - 1] for end in ends])
        held = prefixes.Held(self._model, Ragged.of([self._ids[: PREFIX * prefix]]))
        passes = decoder.passes(texts, held, np.zeros(2, np.int64), 1)
        first, second = next(passes), passes.send(self._targets[ends - 1])
        steps = (first, ends - 2), (second, ends - 1)
        return [(self._log_probs(logits), self._plain[positions]) for logits, positions in steps]
