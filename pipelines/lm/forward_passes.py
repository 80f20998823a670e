"""Forward passes of a transformers model over texts of any lengths: in batches, common beginnings once, few logits."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.language_model import no_tokens
from pipelines.lm.prefixes import KeysAndValues
from pipelines.lm.ragged import Ragged, joined, padded

TOLERANCE = 0.05  # nats: largest mean absolute difference of a token's log-prob from fp32's
TEXT = """The harbour master wrote down 14 ships on the first of May 1887, three of them from the south with salt and
cork. Nobody in the town had seen so many at once. "Where will they all lie?" asked Anna, who kept the inn by the
bridge. A year later the new pier was built of granite, 120 metres long, and the old one was left to the gulls."""
MAX_LOGITS = 1 << 23  # logits in memory at once: 32 MiB
CACHED_PER_NEW = 8  # cached tokens that count as one new token when a batch is sized
TOKENS = 45  # the most tokens of the text that shortcuts are tried on
SHORT = (
    5  # tokens of a second text, so short that the effect of padding on a state has not worn off
)
PREFIX = 2  # tokens of the common beginning, which are read before the others
SAME = 0.0005  # nats in fp32: mean absolute difference of a log-prob; bf16 and int8 may be TOLERANCE from fp32
REFUSED = 0.002  # the largest difference that padding may make: no model can do without padding
# What architectures raise where they can't do something. The trial itself fails then, and the shortcut is not taken.
CANT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)


class ForwardPasses:
    """Runs `model` over texts, at most `batch_tokens` tokens at a time. The token `pad` fills up shorter texts."""

    keeps = False  # whether texts can be continued from the keys and values of what was read before

    def __init__(self, model, pad: int, batch_tokens: int) -> None:
        self.model, self.device, self.batch_tokens = model, model.device, batch_tokens
        self.usage = no_tokens()
        self._pad, self._vocabulary = pad, model.config.get_text_config().vocab_size
        self._head = _Head(model)
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def over(self, rows: Ragged, first: np.ndarray) -> Iterator[tuple[np.ndarray, object, int]]:
        """Run the model over all rows. Yields a batch of row numbers, the outputs, and how many columns these skip.

        `first` (rows,) is the first column of each row that is needed. What rows have in common before it is read once.
        """
        n = len(first)
        shared, group = prefixes.shared(rows, first) if self.keeps else np.zeros((2, n), np.int64)
        for length in np.unique(shared)[::-1]:
            members = np.flatnonzero(shared == length)
            if not length:
                yield from self._continued(rows, members, None, members)
                continue
            _, leaders, owners = np.unique(group[members], return_index=True, return_inverse=True)
            step = max(1, self.batch_tokens // int(length))
            for start in range(0, len(leaders), step):
                leading = members[leaders[start : start + step]]
                read = prefixes.read_prefixes(
                    self.model, self._padded(rows.slice(leading, 0, length))
                )
                self._count(once := len(leading) * int(length), -once)
                chosen = np.flatnonzero((start <= owners) & (owners < start + step))
                yield from self._continued(rows, members[chosen], read, owners[chosen] - start)

    def logits(
        self, outputs, rows: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Logits (positions, vocabulary) float32 at the given rows and columns, in parts of at most MAX_LOGITS."""
        step = max(1, MAX_LOGITS // self._vocabulary)
        states = outputs.last_hidden_state if self._head.separable else outputs.logits
        rows, columns = (torch.from_numpy(numbers).to(states.device) for numbers in (rows, columns))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            states_of_part = states[rows[part], columns[part]]
            logits = self._head(states_of_part) if self._head.separable else states_of_part
            yield part, logits.float()

    def after(
        self, rows: Ragged, passes: Iterable[tuple[np.ndarray, object, int]] | None = None
    ) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield row numbers, and the logits after their last tokens, (rows, vocabulary) float32; of `passes` if any."""
        last = rows.lengths - 1
        for batch, outputs, skipped in passes or self.over(rows, last):
            for part, logits in self.logits(outputs, np.arange(len(batch)), last[batch] - skipped):
                yield batch[part], logits

    def hold(self, beginnings: Ragged) -> prefixes.Held:
        """Read common beginnings, for `decoding`."""
        self._count(once := len(beginnings.values), -once)
        return prefixes.Held(self.model, beginnings)

    def decoding(
        self,
        prompts: Ragged,
        held: prefixes.Held,
        beginnings: np.ndarray,
        new_tokens: int,
        total: int = 0,
    ) -> Generator[torch.Tensor, torch.Tensor, None]:
        """Yield logits (prompts, vocabulary) after each prompt, then after each token (prompts,) that is sent.

        Prompt i begins with the beginning number beginnings[i] of `held`. Progress counts prompts among `total`. A
        model without `keeps` reads the whole texts again at every step.
        """
        while not self.keeps:
            token = yield self._table(len(beginnings), self.after(prompts), total)
            prompts, total = joined([prompts, Ragged.of(token[:, None].tolist())]), 0
        kept, rows = KeysAndValues(prompts.lengths, new_tokens), np.arange(len(beginnings))
        continued = chain.from_iterable(
            self._continued(prompts, *group, kept) for group in held.of(beginnings)
        )
        token = yield self._table(len(rows), self.after(prompts, continued), total)
        while True:
            inputs = {"input_ids": token[:, None], "past_key_values": kept.append()}
            mask = torch.from_numpy(kept.real.astype(np.int64)).to(self.device)
            if self._takes_positions:
                inputs["position_ids"] = mask.sum(1, keepdim=True) - 1
            outputs = self._run(attention_mask=mask, **inputs)
            self._count(len(rows))
            token = yield torch.cat([logits for _, logits in self.logits(outputs, rows, 0 * rows)])

    def bytes_kept(self) -> int:
        """Bytes of the keys and values of one token."""
        kept = KeysAndValues(np.ones(1, np.int64), 0)
        for _ in self._continued(
            Ragged.of([[self._pad]]), np.zeros(1, np.int64), None, np.zeros(1, np.int64), kept
        ):
            pass
        return kept.bytes

    def batches(self, lengths: np.ndarray, most: int | None = None) -> Iterator[np.ndarray]:
        """Row numbers in batches of similar length, the longest first, so that memory runs out early if at all.

        A batch has `batch_tokens` tokens at most, or `most`, which holds where no forward pass reads all of it.
        """
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            rows = max(1, (most or self.batch_tokens) // longest)
            if not (most or self._head.separable):  # then a pass makes logits at every position
                rows = max(1, min(rows, MAX_LOGITS // (self._vocabulary * longest)))
            yield order[start : start + rows]
            start += rows

    def _table(
        self, n: int, parts: Iterable[tuple[np.ndarray, torch.Tensor]], total: int
    ) -> torch.Tensor:
        """Logits of `n` rows that come in `parts`, (n, vocabulary) float32. Progress counts rows among `total`."""
        found = torch.empty(n, self._vocabulary, device=self.device)
        for rows, logits in parts:
            found[torch.from_numpy(rows)] = logits.to(self.device)
            progress.advance(len(rows), total)
        return found

    def _continued(
        self,
        rows: Ragged,
        members: np.ndarray,
        read: DynamicCache | None,
        owners: np.ndarray,
        kept: KeysAndValues | None = None,
    ) -> Iterator[tuple[np.ndarray, object, int]]:
        """`over` the rows `members` (members,), of which row i continues prefix owners[i] of `read`, if any are."""
        length = read.get_seq_length() if read else 0
        remaining = rows.lengths[members] - length
        self._count(int(remaining.sum()), length * len(members))
        for batch in self.batches(np.maximum(remaining, (remaining + length) // CACHED_PER_NEW)):
            numbers, counts, past = members[batch], remaining[batch], {}
            if read or kept:
                past["past_key_values"] = prefixes.Continuing(
                    read, owners[batch], kept, numbers, counts + length
                )
            yield (
                numbers,
                self._run(input_ids=self._padded(rows.slice(numbers, length, counts)), **past),
                length,
            )

    def _count(self, read: int, shared: int = 0) -> None:
        self.usage["lm_tokens_read"] += read
        self.usage["lm_tokens_shared"] += shared

    def _padded(self, rows: Ragged) -> torch.Tensor:
        """Token ids (rows, longest). Padding is on the right, where a causal model never sees it."""
        return torch.from_numpy(padded(rows, int(rows.lengths.max()), self._pad)[0]).to(self.device)

    def _run(self, **inputs):
        """One forward pass: hidden states if the head can be run alone, else logits at all positions."""
        inputs["use_cache"] = "past_key_values" in inputs
        return (self.model.base_model if self._head.separable else self.model)(**inputs)


@torch.inference_mode()
def choose_shortcut(passes: ForwardPasses, tokenizer, folder: Path, max_tokens: int) -> None:
    """Have `passes` continue texts from keys and values where that gives plain passes' numbers over a fixed text.

    Where the shortcut does not fit an architecture, it gives other numbers and no error. The model in `folder` reads
    `max_tokens` at once. Raises LongtailError where it can't read padded texts, or what follows a text changes it.
    """
    model, name = passes.model, type(passes.model).__name__
    ids = np.array(
        tokenizer(TEXT, verbose=False)["input_ids"][: min(TOKENS, max_tokens - 2)], np.int64
    )
    targets = torch.from_numpy(ids).to(model.device)
    format_error = 0.0 if model.dtype == torch.float32 else 2 * TOLERANCE

    def log_probs(logits: torch.Tensor) -> torch.Tensor:
        """log p of every token of the text at each position, (positions, tokens). Other tokens may be impossible."""
        return torch.log_softmax(logits.float(), dim=-1)[:, targets.to(logits.device)].to(
            targets.device
        )

    def difference(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """The largest mean absolute difference of log-probs with a shortcut and without; NaN where one is NaN."""
        return (
            torch.stack([torch.where(a == b, 0.0, (a - b).abs()).mean() for a, b in pairs])
            .max()
            .item()
        )

    plain = log_probs(model(input_ids=targets[None]).logits[0])
    try:  # the short text and the whole text in one batch that is padded on the right
        both = torch.from_numpy(
            padded(Ragged.of([ids[:SHORT], ids]), len(ids), tokenizer.pad_token_id or 0)[0]
        )
        short, whole = model(input_ids=both.to(model.device)).logits
        together = difference(
            [(log_probs(short[:SHORT]), plain[:SHORT]), (log_probs(whole), plain)]
        )
    except CANT as error:
        raise LongtailError(
            f"{folder}: {name} can't read texts of two lengths together "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); name another in lm"
        ) from error
    if not together <= max(REFUSED, format_error):  # a difference of NaN is refused too
        raise LongtailError(
            f"{folder}: {name}, as it is configured, gives a text's tokens other log-probs where something follows "
            "them, expected a causal language model; name another in lm"
        )
    if model._is_stateful:  # a recurrent model keeps more of a text than keys and values
        return
    passes.keeps = True
    try:  # two decoding steps after a shared beginning, in which both texts get their last token
        ends, none = np.array([SHORT, len(ids)]), np.zeros(2, np.int64)
        held = prefixes.Held(model, Ragged.of([ids[:PREFIX]]))
        decoding = passes.decoding(Ragged.of([ids[: end - 1] for end in ends]), held, none, 1)
        before, after = log_probs(next(decoding)), log_probs(decoding.send(targets[ends - 1]))
        passes.keeps = difference([(before, plain[ends - 2]), (after, plain[ends - 1])]) <= max(
            SAME, format_error
        )
    except CANT:
        passes.keeps = False  # the model can do without


class _Head:
    """The part of `model` that makes logits of hidden states, so that they are made only where they are needed.

    `separable` says whether that gives the model's own numbers; a few tokens are tried. Else it must not be called.
    """

    def __init__(self, model) -> None:
        self._layers = _GivenStates()
        self._model = copy.copy(model)  # shares the weights
        self._model._modules = {**model._modules, model.base_model_prefix: self._layers}
        self.separable = model.base_model is not model and self._agrees(model)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) of the hidden states (n, width)."""
        self._layers.hidden = hidden[None]
        return self._model(input_ids=hidden.new_zeros(1, len(hidden), dtype=torch.int64)).logits[0]

    @torch.inference_mode()
    def _agrees(self, model) -> bool:
        ids = torch.arange(8, device=model.device)[None] % model.config.get_text_config().vocab_size
        expected, hidden = (
            model(input_ids=ids).logits[0],
            model.base_model(input_ids=ids).last_hidden_state[0],
        )
        try:
            logits = self(hidden)
        except (
            AttributeError,
            TypeError,
        ):  # the model needs more from its layers than their last hidden states
            return False
        return torch.allclose(expected, logits, rtol=1e-3, atol=1e-3)


class _GivenStates(nn.Module):
    """Takes the place of a model's layers and returns the hidden states it was given."""

    hidden: torch.Tensor

    @property
    def decoder(self) -> _GivenStates:
        """OPT calls its layers' `decoder`."""
        return self

    def forward(self, *_, **__) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.hidden)
