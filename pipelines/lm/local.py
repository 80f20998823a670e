"""LocalModel: a causal language model in a local folder, run by transformers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoTokenizer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import logging

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.decode import Batch, Decoder
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.model_files import max_tokens
from pipelines.lm.ragged import Ragged, joined, padded, spans
from pipelines.lm.shortcuts import ShortcutCheck
from pipelines.lm.token_prompts import PromptTokenizer
from pipelines.lm.trials import Trials
from pipelines.lm.weights import load

logging.disable_progress_bar()  # loading weights takes no time

MAX_LOGITS = 1 << 23  # logits in memory at once: 32 MiB
CACHED_PER_NEW = 8  # so many cached tokens count as one new token when a batch is sized


class LocalModel:
    """The LanguageModel in `folder`, called `name`. A forward pass has at most `batch_tokens` tokens.

    With `chat`, prompts are messages in the model's chat template.
    """

    def __init__(
        self, folder: Path, *, name: str, dtype: str, batch_tokens: int, device: str, threads: int, chat: bool = False
    ) -> None:
        """Raises LongtailError where `folder` has no causal language model, no tokenizer, or no template for a chat."""
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(f"{folder}: no config.json, expected a causal language model in Hugging Face's layout")
        torch.set_num_threads(threads)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise LongtailError(f"{folder}: no tokenizer: {' '.join(str(error).split())}") from None
        trials = Trials(folder, dtype, device)
        self.model = load(folder, self.tokenizer, dtype, device, trials)
        self.name, self.batch_tokens, self.device = name, batch_tokens, self.model.device
        config = self.model.config.get_text_config()
        self.max_tokens, self._vocabulary = max_tokens(config, self.tokenizer), config.vocab_size
        self._texts = PromptTokenizer(self.tokenizer, folder, name, self.max_tokens, chat=chat)
        self.scores = self.mixes = self.votes = True
        self.usage, self.begins = {}, "" if chat else " "
        self._pad = self.tokenizer.pad_token_id or 0
        self._head = _Head(self.model, trials)
        self._decoder = Decoder(self.model, self.tokenizer, self._logits_after)
        check = ShortcutCheck(self.model, self.tokenizer, folder, self.max_tokens, trials)
        keeps_keys_and_values = not self.model._is_stateful  # as a transformer, but not a recurrent model
        self._shares_prefixes = keeps_keys_and_values and check.shared_prefixes()
        self._decoder.cached = check.cached_decoding(self._decoder, gaps=False)
        self._holds = keeps_keys_and_values and self._decoder.cached and check.cached_decoding(self._decoder, gaps=True)
        self._window = prefixes.window(config)
        trials.keep()

    # ------------------------------------------------------------------ the protocol

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """The pairs' order does not matter: pairs of similar length share a batch.

        Raises LongtailError for a continuation that alone fills the model's positions.
        """
        continuation, counts = self._texts.continuations(continuations)
        nonempty = np.flatnonzero(continuation.lengths > 0)
        pairs = joined([self._texts.prompts(prompts, continuation.lengths), continuation]).take(nonempty)
        scored = continuation.take(nonempty)
        first = pairs.lengths - scored.lengths - 1  # the column that predicts the continuation's first token
        log_probs = np.empty(len(scored.values), np.float32)
        # The last token of a pair is predicted, but no token after it: the model need not read it.
        inputs = pairs.slice(np.arange(len(nonempty)), 0, pairs.lengths - 1)
        for batch, outputs, skipped in self._forward_passes(inputs, first):
            counted = scored.lengths[batch]
            rows, columns = np.repeat(np.arange(len(batch)), counted), spans(first[batch] - skipped, counted)
            targets = torch.from_numpy(scored.take(batch).values)
            parts = [
                -functional.cross_entropy(logits, targets[part].to(logits.device), reduction="none")
                for part, logits in self._logits(outputs, rows, columns)
            ]
            log_probs[spans(scored.bounds[batch], counted)] = torch.cat(parts).cpu().numpy()
            progress.advance(len(batch), len(nonempty))
        return Scores(continuation.split(log_probs), continuation.split(counts.values.astype(np.int32)))

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        return self._texts.fit(prompts, continuations)

    @torch.inference_mode()
    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        tokens = self._texts.prompts(prompts, np.ones(len(prompts), np.int64))
        result = np.empty((len(prompts), self._vocabulary), np.float32)
        last = tokens.lengths - 1
        for batch, outputs, skipped in self._forward_passes(tokens, last):
            for part, logits in self._logits(outputs, np.arange(len(batch)), last[batch] - skipped):
                result[batch[part]] = torch.log_softmax(logits, dim=-1).cpu().numpy()
            progress.advance(len(batch), len(prompts))
        return result

    def token_id(self, text: str) -> int:
        return self._texts.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        return self._texts.seen(prompts, np.full(len(prompts), max_tokens))

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """Raises LongtailError if `max_tokens` leaves no room for a prompt."""
        return self.generate_mixture(prompts, np.zeros((len(prompts), 1)), max_tokens, stop)

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """Raises LongtailError if `max_tokens` leaves no room for a prompt."""
        if max_tokens >= self.max_tokens:
            raise LongtailError(f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once")
        tokens = self._texts.prompts(prompts, np.full(len(prompts), max_tokens))
        places = np.arange(len(prompts)).reshape(log_weights.shape)
        read = np.isfinite(log_weights)
        lengths = np.where(read, tokens.lengths[places], 0)
        shared, group = np.zeros((2, *places.shape), np.int64)
        # Padding between what is held and what follows would push it out of a window.
        if self._holds and lengths.max(initial=0) + max_tokens <= self._window:
            shared[read], group[read] = prefixes.shared(tokens.take(places[read]), lengths[read] - 1)
        results: dict[int, Generation] = {}
        for window in _windows(shared, group, self.batch_tokens):
            numbers, first = np.unique(group[window], return_index=True)
            begun = tokens.slice(places[window].ravel()[first], 0 * first, shared[window].ravel()[first])
            held = prefixes.Held(self.model, begun)
            for rows in self._batches((lengths[window].max(1, initial=0) + max_tokens) * read[window].sum(1)):
                batch = window[rows]
                prompts_read = read[batch]
                together = Batch(
                    prompts=tokens.take(places[batch][prompts_read]),
                    questions=np.nonzero(prompts_read)[0],
                    log_weights=log_weights[batch][prompts_read],
                    held=held,
                    beginnings=np.searchsorted(numbers, group[batch][prompts_read]),
                )
                texts = self._decoder.greedy(together, max_tokens, stop, sequence_mixture=sequence_mixture)
                for question, (text, mean, made) in zip(batch.tolist(), texts, strict=True):
                    new_tokens = made * int(read[question].sum())
                    results[question] = Generation(text, mean, int(lengths[question].sum()), new_tokens)
                progress.advance(len(batch), len(log_weights))
        return [results[question] for question in range(len(log_weights))]

    # ------------------------------------------------------------------ forward passes

    def _forward_passes(self, rows: Ragged, first: np.ndarray) -> Iterator[tuple[np.ndarray, object, int]]:
        """Run the model over all rows. Yields a batch of row numbers, the model's outputs, and how many columns of
        these rows the outputs leave out at the beginning.

        `first` (rows,) is the first column of each row that is needed. What rows have in common before it is read once.
        """
        n = len(first)
        shared, group = prefixes.shared(rows, first) if self._shares_prefixes else (np.zeros(n, np.int64), None)
        for length in np.unique(shared)[::-1]:
            members = np.flatnonzero(shared == length)
            if length:
                yield from self._passes_after_prefixes(rows, members, group[members], int(length))
                continue
            for batch in self._batches(rows.lengths[members]):
                yield members[batch], self._run(input_ids=self._padded(rows.take(members[batch]))), 0

    def _passes_after_prefixes(
        self, rows: Ragged, members: np.ndarray, group: np.ndarray, length: int
    ) -> Iterator[tuple[np.ndarray, object, int]]:
        """`_forward_passes` over the rows `members`: those of one `group` (members,) have a prefix of `length` tokens
        in common."""
        _, leaders, owners = np.unique(group, return_index=True, return_inverse=True)
        step = max(1, self.batch_tokens // length)
        for start in range(0, len(leaders), step):
            leading = members[leaders[start : start + step]]
            read = prefixes.Prefixes(self.model, self._padded(rows.slice(leading, 0, length)))
            chosen = np.flatnonzero((start <= owners) & (owners < start + step))
            remaining = rows.lengths[members[chosen]] - length
            for batch in self._batches(np.maximum(remaining, (remaining + length) // CACHED_PER_NEW)):
                numbers = members[chosen[batch]]
                past = read.cache_for(torch.from_numpy(owners[chosen[batch]] - start))
                ids = self._padded(rows.slice(numbers, length, remaining[batch]))
                yield numbers, self._run(input_ids=ids, past_key_values=past), length

    def _batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Row numbers in batches of similar length. The longest come first, so that memory runs out early if at all."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            rows = max(1, self.batch_tokens // longest)
            if not self._head.separable:  # then a pass makes logits at every position
                rows = max(1, min(rows, MAX_LOGITS // (self._vocabulary * longest)))
            yield order[start : start + rows]
            start += rows

    def _padded(self, rows: Ragged) -> torch.Tensor:
        """Token ids (rows, longest). Padding is on the right, where a causal model never sees it."""
        return torch.from_numpy(padded(rows, int(rows.lengths.max()), self._pad)[0]).to(self.device)

    def _run(self, **inputs):
        """One forward pass: hidden states if the head can be run alone, else logits at all positions."""
        inputs["use_cache"] = "past_key_values" in inputs
        return (self.model.base_model if self._head.separable else self.model)(**inputs)

    def _logits_after(self, rows: Ragged) -> torch.Tensor:
        """Logits after the last token of each row, (rows, vocabulary)."""
        outputs, last = self._run(input_ids=self._padded(rows)), rows.lengths - 1
        return torch.cat([logits for _, logits in self._logits(outputs, np.arange(len(last)), last)])

    def _logits(self, outputs, rows: np.ndarray, columns: np.ndarray) -> Iterator[tuple[slice, torch.Tensor]]:
        """Logits (positions, vocabulary) float32 at the given rows and columns, in parts of at most MAX_LOGITS."""
        step = max(1, MAX_LOGITS // self._vocabulary)
        states = outputs.last_hidden_state if self._head.separable else outputs.logits
        rows, columns = (torch.from_numpy(numbers).to(states.device) for numbers in (rows, columns))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            states_of_part = states[rows[part], columns[part]]
            logits = self._head(states_of_part) if self._head.separable else states_of_part
            yield part, logits.float()


class _Head:
    """The part of `model` that makes logits of hidden states: the output embedding and, in some models, a scale or cap.

    Calling it computes logits at the positions that are needed, not at all. `separable` says whether that works for
    the model; a few tokens are tried to find out. Do not call a head that is not separable.
    """

    def __init__(self, model, trials: Trials) -> None:
        self._layers = _GivenStates()
        self._model = copy.copy(model)  # shares the weights
        self._model._modules = {**model._modules, model.base_model_prefix: self._layers}
        alone = model.base_model is not model
        self.separable = alone and trials.found("separable head", lambda: self._agrees(model))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) of the hidden states (n, width)."""
        self._layers.hidden = hidden[None]
        return self._model(input_ids=hidden.new_zeros(1, len(hidden), dtype=torch.int64)).logits[0]

    @torch.inference_mode()
    def _agrees(self, model) -> bool:
        ids = torch.arange(8, device=model.device)[None] % model.config.get_text_config().vocab_size
        expected, hidden = model(input_ids=ids).logits[0], model.base_model(input_ids=ids).last_hidden_state[0]
        try:
            logits = self(hidden)
        except (AttributeError, TypeError):  # the model needs more from its layers than their last hidden states
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


def _windows(shared: np.ndarray, group: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Split the questions into runs whose prefixes, each counted once, have at most `max_tokens` tokens together.

    `shared` and `group` are (questions, k): the length of each prompt's prefix and its number, 0 for none.
    """
    start, held = 0, {}
    for question, prefixes_of_question in enumerate(map(dict, map(zip, group.tolist(), shared.tolist()))):
        if question > start and sum((held | prefixes_of_question).values()) > max_tokens:
            yield np.arange(start, question)
            start, held = question, {}
        held |= prefixes_of_question
    if start < len(group):
        yield np.arange(start, len(group))
