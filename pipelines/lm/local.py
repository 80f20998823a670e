"""LocalModel: a causal language model in a local folder, run by transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers.utils import logging

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.decode import Decoder
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.model_files import CACHE_BYTES, UNREADABLE, max_tokens
from pipelines.lm.ragged import joined, spans
from pipelines.lm.shortcuts import choose_shortcuts
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.lm.weights import load
from pipelines.work import threads as torch_threads

logging.disable_progress_bar()  # loading weights takes no time


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
        torch_threads.use(threads)
        try:
            self.tokenizer = read_tokenizer(folder)
        except UNREADABLE as error:
            raise LongtailError(f"{folder}: no tokenizer: {' '.join(str(error).split())}") from None
        self.model = load(folder, self.tokenizer, dtype, device)
        self.name, self.batch_tokens = name, batch_tokens
        config = self.model.config.get_text_config()
        self.max_tokens, self._vocabulary = max_tokens(config, self.tokenizer), config.vocab_size
        self._texts = PromptTokenizer(self.tokenizer, folder, name, self.max_tokens, chat=chat)
        self.scores = self.mixes = self.votes = True
        self.usage, self.begins = {}, "" if chat else " "
        self._passes = ForwardPasses(self.model, self.tokenizer.pad_token_id or 0, batch_tokens)
        self._decoder = Decoder(self.model, self.tokenizer, self._passes)
        choose_shortcuts(self._passes, self.tokenizer, folder, self.max_tokens)
        self._decoded_tokens = None  # of the texts in a batch to be continued, where no pass reads all of it
        if self._passes.keeps:
            self._decoded_tokens = max(batch_tokens, CACHE_BYTES // self._passes.bytes_kept())

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
        for batch, outputs, skipped in self._passes.over(inputs, first):
            counted = scored.lengths[batch]
            rows, columns = np.repeat(np.arange(len(batch)), counted), spans(first[batch] - skipped, counted)
            targets = torch.from_numpy(scored.take(batch).values)
            parts = [
                -functional.cross_entropy(logits, targets[part].to(logits.device), reduction="none")
                for part, logits in self._passes.logits(outputs, rows, columns)
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
        for rows, logits in self._passes.after(tokens):
            result[rows] = torch.log_softmax(logits, dim=-1).cpu().numpy()
            progress.advance(len(rows), len(prompts))
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
        if self._passes.shares_prefixes and self._passes.keeps:
            shared[read], group[read] = prefixes.shared(tokens.take(places[read]), lengths[read] - 1)
        results: dict[int, Generation] = {}
        for window in _windows(shared, group, self.batch_tokens):
            numbers, first = np.unique(group[window], return_index=True)
            begun = tokens.slice(places[window].ravel()[first], 0 * first, shared[window].ravel()[first])
            held = prefixes.Held(self.model, begun)
            tokens_kept = (lengths[window].max(1, initial=0) + max_tokens) * read[window].sum(1)
            for rows in self._passes.batches(tokens_kept, self._decoded_tokens):
                batch = window[rows]
                prompts_read = read[batch]
                texts = self._decoder.greedy(
                    tokens.take(places[batch][prompts_read]),
                    np.nonzero(prompts_read)[0],
                    log_weights[batch][prompts_read],
                    held,
                    np.searchsorted(numbers, group[batch][prompts_read]),
                    max_tokens,
                    stop,
                    total=int(read.sum()),
                    sequence_mixture=sequence_mixture,
                )
                for question, (text, mean, made) in zip(batch.tolist(), texts, strict=True):
                    new_tokens = made * int(read[question].sum())
                    results[question] = Generation(text, mean, int(lengths[question].sum()), new_tokens)
        return [results[question] for question in range(len(log_weights))]


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
