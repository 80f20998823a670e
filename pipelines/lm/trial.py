"""Ways of reading that save work, each compared with plain passes over a fixed text when a model is opened.

Models differ in how they know a token's place, and in what they keep of the tokens before it; where that goes wrong, it
gives other numbers and no error. So nothing is taken on trust but a pass over one whole text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.decode import Decoder
from pipelines.lm.ragged import Ragged, padded
from pipelines.lm.weights import TEXT, TOLERANCE

TOKENS = 45  # of TEXT at most
SHORT = 5  # of these, as a text by itself, on which what padding left in a state has not worn off
BEGUN = 2  # of these, read before the others
SAME = 0.0005  # nats in fp32: mean absolute difference of a log-prob; other formats are TOLERANCE from fp32
REFUSED = 0.002  # where there is no other way
CANT = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError, RuntimeError)
# what architectures raise where they can't, each in its own words

Pair = tuple[torch.Tensor, torch.Tensor]  # log-probs by one way, and by the plain one


class Trial:
    """Plain passes of `model`, from `folder`, that reads `max_tokens` at once; and whether other ways give the same."""

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, tokenizer, folder: Path, max_tokens: int) -> None:
        ids = tokenizer(TEXT, verbose=False)["input_ids"][: min(TOKENS, max_tokens - 2)]
        self._model, self._pad = model, tokenizer.pad_token_id or 0
        self._ids = np.array(ids, np.int64)
        self._targets = torch.tensor(ids, device=model.device)
        self._rough = 0.0 if model.dtype == torch.float32 else 2 * TOLERANCE
        try:
            self._plain = self._log_probs(model(input_ids=self._targets[None]).logits[0])
            apart = self._apart(self._padding)
        except CANT as error:
            raise LongtailError(
                f"{folder}: {type(model).__name__} can't read texts of two lengths together "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); name another in lm"
            ) from error
        if not apart <= max(REFUSED, self._rough):
            raise LongtailError(
                f"{folder}: {type(model).__name__}, as it is configured, gives a text's tokens other log-probs where "
                "something follows them, expected a causal language model; name another in lm"
            )

    def reusable(self) -> bool:
        """Whether several texts can go on from what they begin with, read once (see prefixes.Prefixes)."""
        return self._agrees(self._begun)

    def cached(self, decoder: Decoder, *, gaps: bool) -> bool:
        """Whether texts behind padding can go on token by token; with `gaps`, padding comes after their beginnings."""
        return self._agrees(lambda: self._steps(decoder, gaps))

    def _agrees(self, compare: Callable[[], list[Pair]]) -> bool:
        try:
            return self._apart(compare) <= max(SAME, self._rough)
        except CANT:
            return False  # a way that it lacks: the way without is taken, which __init__ found to work

    @torch.inference_mode()
    def _apart(self, compare: Callable[[], list[Pair]]) -> float:
        """The largest mean absolute difference; NaN, which is no agreement, where there is one."""
        return torch.stack([torch.where(a == b, 0.0, (a - b).abs()).mean() for a, b in compare()]).max().item()

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """log p of every token of the text at each place, (places, tokens): the others may well be impossible."""
        return torch.log_softmax(logits.float(), dim=-1)[:, self._targets.to(logits.device)].to(self._targets.device)

    def _padding(self) -> list[Pair]:
        """The short text beside the whole."""
        found = self._model(input_ids=self._both(0)).logits
        return [(self._log_probs(own), self._plain[: len(own)]) for own in (found[0, :SHORT], found[1])]

    def _begun(self) -> list[Pair]:
        past = prefixes.Prefixes(self._model, self._targets[None, :BEGUN]).of(torch.zeros(2, dtype=torch.int64))
        found = self._model(input_ids=self._both(BEGUN), past_key_values=past, use_cache=True).logits
        rests = found[0, : SHORT - BEGUN], found[1]
        return [(self._log_probs(own), self._plain[BEGUN : BEGUN + len(own)]) for own in rests]

    def _steps(self, decoder: Decoder, gaps: bool) -> list[Pair]:
        """Two steps, the texts' last tokens being those made."""
        ends = np.array([SHORT, len(self._ids)])
        texts = Ragged.of([self._ids[: end - 1] for end in ends])
        held = decoder.hold(Ragged.of([self._ids[: BEGUN * gaps]]))
        passes = decoder.passes(texts, held, np.zeros(2, np.int64))
        first, second = next(passes), passes.send(self._targets[ends - 1])
        return [(self._log_probs(found), self._plain[at]) for found, at in ((first, ends - 2), (second, ends - 1))]

    def _both(self, start: int) -> torch.Tensor:
        rows = Ragged.of([self._ids[start:SHORT], self._ids[start:]])
        return torch.from_numpy(padded(rows, len(self._ids) - start, self._pad)[0]).to(self._model.device)
