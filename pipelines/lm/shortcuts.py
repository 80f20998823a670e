"""Try on a fixed text whether a model's faster ways give the same numbers as its plain passes.

Where a shortcut does not fit an architecture, it gives other numbers and no error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pipelines.errors import LongtailError
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.key_value_cache import Prefixes
from pipelines.lm.ragged import Ragged, padded

TEXT = (
    "The harbour master wrote down 14 ships on the first of May 1887, three of them from the south "
    'with salt and\ncork. Nobody in the town had seen so many at once. "Where will they all lie?" '
    "asked Anna, who kept the inn by the\nbridge. A year later the new pier was built of granite, "
    "120 metres long, and the old one was left to the gulls."
)
TRIAL_TOKENS = 45  # the most tokens of TEXT that shortcuts are tried on
# Tokens of a second text. In longer ones the effect of padding on a state has worn off.
SHORT_TOKENS = 5
PREFIX_TOKENS = 2  # tokens of the common beginning, which are read before the others

# Mean absolute differences of a token's log-prob, in nats.
TOLERANCE = 0.05  # the largest from fp32 that another number format may have
MAX_SHORTCUT_DIFFERENCE = 0.0005  # in fp32, with a shortcut
MAX_PADDING_DIFFERENCE = 0.002  # in fp32, with padding, which no model can do without

# What architectures raise where they can't do something.
UNABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)


@torch.inference_mode()
def choose_shortcut(
    passes: ForwardPasses, tokenizer, folder: Path, max_tokens: int, difference: float | None
) -> None:
    """Have `passes` continue texts from keys and values where that gives plain passes' numbers.

    The model in `folder` reads `max_tokens` at once, and its log-probs have a `difference` from
    fp32's, None if that is unknown. Raises LongtailError where the model can't read padded texts,
    or what follows a text changes its numbers.
    """
    n_tokens = min(TRIAL_TOKENS, max_tokens - 2)
    ids = tokenizer(TEXT, verbose=False)["input_ids"]
    trial = _Trial(passes, np.array(ids[:n_tokens], np.int64))
    format_difference = 0.0
    if passes.model.dtype != torch.float32:
        format_difference = 2 * max(TOLERANCE, difference or 0.0)

    _check_padding(trial, tokenizer.pad_token_id or 0, folder, format_difference)

    if passes.model._is_stateful:  # a recurrent model keeps more of a text than keys and values
        return
    passes.can_continue = True
    try:
        difference_of_decoding = trial.difference_of_decoding()
        limit = max(MAX_SHORTCUT_DIFFERENCE, format_difference)
        passes.can_continue = difference_of_decoding <= limit
    except UNABLE:
        passes.can_continue = False  # the model can do without


def _check_padding(trial: _Trial, pad: int, folder: Path, format_difference: float) -> None:
    """Raise LongtailError for a model whose numbers padding changes."""
    name = type(trial.passes.model).__name__
    try:
        difference = trial.difference_of_padding(pad)
    except UNABLE as error:
        reason = " ".join(str(error).split())[:200]
        raise LongtailError(
            f"{folder}: {name} can't read texts of two lengths together "
            f"({type(error).__name__}: {reason}); name another in lm"
        ) from error
    # A difference of NaN is refused too.
    if not difference <= max(MAX_PADDING_DIFFERENCE, format_difference):
        raise LongtailError(
            f"{folder}: {name}, as it is configured, gives a text's tokens other log-probs where "
            "something follows them, expected a causal language model; name another in lm"
        )


class _Trial:
    """The log-probs of a text's tokens by a plain pass, to compare others with."""

    def __init__(self, passes: ForwardPasses, ids: np.ndarray) -> None:
        """`ids` (tokens,) are the text's."""
        self.passes = passes
        self._ids = ids
        self._targets = torch.from_numpy(ids).to(passes.model.device)
        outputs = passes.model(input_ids=self._targets[None])
        self._plain = self._log_probs(outputs.logits[0])

    def difference_of_padding(self, pad: int) -> float:
        """The difference where the text and a short one are in a batch padded on the right."""
        short_and_long = Ragged.of([self._ids[:SHORT_TOKENS], self._ids])
        ids, _ = padded(short_and_long, len(self._ids), pad)
        inputs = torch.from_numpy(ids).to(self._targets.device)
        short, long = self.passes.model(input_ids=inputs).logits
        short_difference = self._difference(short[:SHORT_TOKENS], slice(SHORT_TOKENS))
        long_difference = self._difference(long, slice(None))
        return float(np.maximum(short_difference, long_difference))  # NaN where one is NaN

    def difference_of_decoding(self) -> float:
        """The difference in two decoding steps after a shared beginning.

        In the second step both texts, the short one and the long one, get their last token.
        """
        ends = np.array([SHORT_TOKENS, len(self._ids)])
        prefix = Ragged.of([self._ids[:PREFIX_TOKENS]])
        held = Prefixes(self.passes.model, prefix)
        prompts = Ragged.of([self._ids[: end - 1] for end in ends])
        beginnings = np.zeros(len(ends), np.int64)
        decoding = self.passes.decoding(prompts, held, beginnings, new_tokens=1)
        before = self._difference(next(decoding), ends - 2)
        last_tokens = self._targets[ends - 1]
        after = self._difference(decoding.send(last_tokens), ends - 1)
        return float(np.maximum(before, after))  # NaN where one is NaN

    def _difference(self, logits: torch.Tensor, positions: np.ndarray | slice) -> float:
        """The mean absolute difference of log-probs from the plain pass's at these positions.

        It is NaN where a number is NaN.
        """
        log_probs = self._log_probs(logits)
        plain = self._plain[positions]
        differences = (log_probs - plain).abs()
        # Equal numbers differ by 0, also infinite ones.
        differences = torch.where(log_probs == plain, 0.0, differences)
        return differences.mean().item()

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """log p of every token of the text at each position, (positions, tokens).

        Other tokens may be impossible.
        """
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        log_probs_of_text = log_probs[:, self._targets.to(log_probs.device)]
        return log_probs_of_text.to(self._targets.device)
