"""Check which shortcuts give a model's own numbers: shared prefixes, cached decoding, padding.

Architectures differ in how they know a token's position and in what they cache of earlier tokens. Where a shortcut does
not fit a model, it gives other numbers and no error. So each shortcut is compared with plain forward passes over a
fixed text when a model is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.ragged import Ragged, padded
from pipelines.lm.weights import TEXT, TOLERANCE

TOKENS = 45  # of TEXT, at most
SHORT = 5  # of these, a second text: in so short a text the effect of padding on a state has not worn off
PREFIX = 2  # of these, read before the others
SAME = 0.0005  # nats in fp32: mean absolute difference of a log-prob; bf16 and int8 may be TOLERANCE from fp32
REFUSED = 0.002  # the same difference for padding, which no model can do without
# What architectures raise where they can't do something. The trial itself fails then, and the shortcut is not taken.
CANT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)

LogProbPairs = list[tuple[torch.Tensor, torch.Tensor]]  # with the shortcut, and by a plain pass


@torch.inference_mode()
def choose_shortcuts(passes: ForwardPasses, tokenizer, folder: Path, max_tokens: int) -> None:
    """Have `passes` take the shortcuts that give its model's numbers; the model in `folder` reads `max_tokens` at once.

    Raises LongtailError where the model can't read padded texts, or what follows a text changes it.
    """
    model, ids = passes.model, tokenizer(TEXT, verbose=False)["input_ids"][: min(TOKENS, max_tokens - 2)]
    trials, name = _Trials(passes, np.array(ids, np.int64), tokenizer.pad_token_id or 0), type(model).__name__
    format_error = 0.0 if model.dtype == torch.float32 else 2 * TOLERANCE
    try:
        difference = _difference(trials.together())
    except CANT as error:
        raise LongtailError(
            f"{folder}: {name} can't read texts of two lengths together "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); name another in lm"
        ) from error
    if not difference <= max(REFUSED, format_error):  # also where it is NaN
        raise LongtailError(
            f"{folder}: {name}, as it is configured, gives a text's tokens other log-probs where something follows "
            "them, expected a causal language model; name another in lm"
        )

    def agrees(shortcut: Callable[[], LogProbPairs]) -> bool:
        try:
            return _difference(shortcut()) <= max(SAME, format_error)
        except CANT:
            return False  # the model can't take this shortcut, and can do without

    passes.keeps = not model._is_stateful  # a recurrent model keeps more of a text than keys and values
    passes.shares_prefixes = passes.keeps and agrees(trials.after_prefix)
    passes.keeps = passes.keeps and agrees(trials.decoded)


def _difference(pairs: LogProbPairs) -> float:
    """The largest mean absolute difference of the pairs' log-probs; NaN where one is NaN."""
    return torch.stack([torch.where(a == b, 0.0, (a - b).abs()).mean() for a, b in pairs]).max().item()


class _Trials:
    """The log-probs of two texts, the tokens `ids` and the first SHORT of them, with each shortcut and without."""

    def __init__(self, passes: ForwardPasses, ids: np.ndarray, pad: int) -> None:
        self._passes, self._model, self._pad, self._ids = passes, passes.model, pad, ids
        self._targets = torch.from_numpy(ids).to(self._model.device)
        self._plain = self._log_probs(self._model(input_ids=self._targets[None]).logits[0])

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """log p of every token of the text at each position, (positions, tokens). Other tokens may be impossible."""
        return torch.log_softmax(logits.float(), dim=-1)[:, self._targets.to(logits.device)].to(self._targets.device)

    def together(self, start: int = 0, **options) -> LogProbPairs:
        """The short text and the whole text from position `start` on, in one batch that is padded on the right."""
        texts = Ragged.of([self._ids[start:SHORT], self._ids[start:]])
        ids = torch.from_numpy(padded(texts, len(self._ids) - start, self._pad)[0]).to(self._model.device)
        logits = self._model(input_ids=ids, **options).logits
        rows = logits[0, : SHORT - start], logits[1]
        return [(self._log_probs(row), self._plain[start : start + len(row)]) for row in rows]

    def after_prefix(self) -> LogProbPairs:
        """The short text and the whole text after their first PREFIX tokens, which are read once."""
        read, both = prefixes.Prefixes(self._model, self._targets[None, :PREFIX]), np.zeros(2, np.int64)
        past = prefixes.Continuing(read, both, None, both, both)
        return self.together(PREFIX, past_key_values=past, use_cache=True)

    def decoded(self) -> LogProbPairs:
        """Two decoding steps, in which both texts get their last token; their first tokens are read once if shared."""
        ends = np.array([SHORT, len(self._ids)])
        texts = Ragged.of([self._ids[: end - 1] for end in ends])
        held = prefixes.Held(self._model, Ragged.of([self._ids[: PREFIX * self._passes.shares_prefixes]]))
        passes = self._passes.decoding(texts, held, np.zeros(2, np.int64), 1)
        first, second = next(passes), passes.send(self._targets[ends - 1])
        steps = (first, ends - 2), (second, ends - 1)
        return [(self._log_probs(logits), self._plain[positions]) for logits, positions in steps]
