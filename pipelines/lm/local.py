"""A causal language model in a local folder, run by transformers: the frozen black box of REPLUG and of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoTokenizer
from transformers.utils import logging

from pipelines.errors import LongtailError
from pipelines.lm import prefixes
from pipelines.lm.decode import Batch, Decoder
from pipelines.lm.head import Head
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.ragged import Ragged, joined, padded, spans
from pipelines.lm.token_prompts import PromptTokenizer
from pipelines.lm.trial import Trial
from pipelines.lm.weights import load

logging.disable_progress_bar()  # of loading weights, which takes no time

LOGITS = 1 << 23  # at most so many logits at once: 32 MiB
PAST = 8  # looking at so many tokens read before takes the memory of a new one, at most
UNBOUNDED = 1 << 30  # tokenizers say so, or more, for no limit
WITHOUT_POSITIONS = 2048  # ALiBi has no limit either; what BLOOM, which has it, was trained on


class LocalModel:
    def __init__(self, folder: Path, *, name: str, dtype: str, batch_tokens: int, device: str, threads: int) -> None:
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(f"{folder}: no config.json, expected a causal language model in Hugging Face's layout")
        torch.set_num_threads(threads)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise LongtailError(f"{folder}: no tokenizer: {' '.join(str(error).split())}") from None
        self.model = load(folder, self.tokenizer, dtype, device)
        self.name, self.batch_tokens, self.device = name, batch_tokens, self.model.device
        config = self.model.config.get_text_config()
        self.max_tokens, self._vocabulary = _positions(config, self.tokenizer), config.vocab_size
        self._texts = PromptTokenizer(self.tokenizer, folder, name, self.max_tokens)
        self.scores, self.mixes, self.usage = True, True, {}
        self._pad = self.tokenizer.pad_token_id or 0
        self._head = Head(self.model)
        self._decoder = Decoder(self.model, self.tokenizer, self._after)
        trial, gaps = Trial(self.model, self.tokenizer, folder, self.max_tokens), prefixes.reusable(self.model)
        self._reusable = gaps and trial.reusable()
        self._decoder.cached = trial.cached(self._decoder, gaps=False)
        self._holds = gaps and self._decoder.cached and trial.cached(self._decoder, gaps=True)
        self._window = prefixes.window(config)

    # ------------------------------------------------------------------ the protocol

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel. Pairs of like length share a batch, so their order does not matter.

        Raises LongtailError for a continuation that alone fills the model's positions.
        """
        continuation, counts = self._texts.continuations(continuations)
        asked = np.flatnonzero(continuation.lengths > 0)
        pairs = joined([self._texts.prompts(prompts, continuation.lengths), continuation]).take(asked)
        wanted = continuation.take(asked)
        first = pairs.lengths - wanted.lengths - 1  # the column where the model predicts the first asked token
        log_probs = np.empty(len(wanted.values), np.float32)
        # The last token is asked for, but nothing after it.
        inputs = pairs.slice(np.arange(len(asked)), np.zeros(len(asked), np.int64), pairs.lengths - 1)
        for batch, outputs, skipped in self._read(inputs, first):
            rows, count = np.repeat(np.arange(len(batch)), wanted.lengths[batch]), wanted.lengths[batch]
            columns = spans(first[batch] - skipped, count)
            targets = torch.from_numpy(wanted.take(batch).values)
            found = [
                -functional.cross_entropy(logits, targets[part].to(logits.device), reduction="none")
                for part, logits in self._logits(outputs, rows, columns)
            ]
            log_probs[spans(wanted.bounds[batch], count)] = torch.cat(found).cpu().numpy()
        return Scores(continuation.split(log_probs), continuation.split(counts.values.astype(np.int32)))

    @torch.inference_mode()
    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """See LanguageModel."""
        tokens = self._texts.prompts(prompts, np.ones(len(prompts), np.int64))
        result = np.empty((len(prompts), self._vocabulary), np.float32)
        last = tokens.lengths - 1
        for batch, outputs, skipped in self._read(tokens, last):
            for part, logits in self._logits(outputs, np.arange(len(batch)), last[batch] - skipped):
                result[batch[part]] = torch.log_softmax(logits, dim=-1).cpu().numpy()
        return result

    def token_id(self, text: str) -> int:
        """See LanguageModel."""
        return self._texts.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """See LanguageModel."""
        return self._texts.seen(prompts, np.full(len(prompts), max_tokens))

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """See LanguageModel. Raises LongtailError if `max_tokens` leaves no room for a prompt."""
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
        """See LanguageModel. Raises LongtailError if `max_tokens` leaves no room for a prompt."""
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
            held = self._decoder.hold(begun)
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
        return [results[question] for question in range(len(log_weights))]

    # ------------------------------------------------------------------ the model

    def _read(self, rows: Ragged, first: np.ndarray) -> Iterator[tuple[np.ndarray, object, int]]:
        """Every row in some batch, what the model says of it, and how many of its first columns are left out there.

        `first` (rows,) is the first column of each that is asked for. What the rows before it share is read once.
        """
        n = len(first)
        shared, group = prefixes.shared(rows, first) if self._reusable else (np.zeros(n, np.int64), None)
        for length in np.unique(shared)[::-1]:
            members = np.flatnonzero(shared == length)
            if not length:
                for batch in self._batches(rows.lengths[members]):
                    yield members[batch], self._run(input_ids=self._tensor(rows.take(members[batch]))), 0
                continue
            _, leaders, owners = np.unique(group[members], return_index=True, return_inverse=True)
            step = max(1, self.batch_tokens // length)
            for start in range(0, len(leaders), step):
                some = members[leaders[start : start + step]]
                held = prefixes.Prefixes(self.model, self._tensor(_part(rows, some, 0, length)))
                mine = np.flatnonzero((start <= owners) & (owners < start + step))
                left = rows.lengths[members[mine]] - length
                for batch in self._batches(np.maximum(left, (left + length) // PAST)):
                    chosen = members[mine[batch]]
                    past = held.of(torch.from_numpy(owners[mine[batch]] - start))
                    ids = self._tensor(_part(rows, chosen, length, left[batch]))
                    yield chosen, self._run(input_ids=ids, past_key_values=past), int(length)

    def _batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Rows in batches of like length, the longest first, so that too small a memory shows at once."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            rows = max(1, self.batch_tokens // max(1, int(lengths[order[start]])))
            if not self._head.apart:  # then a pass makes logits at every position
                rows = max(1, min(rows, LOGITS // (self._vocabulary * max(1, int(lengths[order[start]])))))
            yield order[start : start + rows]
            start += rows

    def _tensor(self, rows: Ragged) -> torch.Tensor:
        """Padding on the right: what is read from left to right never sees it."""
        return torch.from_numpy(padded(rows, int(rows.lengths.max()), self._pad)[0]).to(self.device)

    def _run(self, **inputs):
        inputs["use_cache"] = "past_key_values" in inputs
        return (self.model.base_model if self._head.apart else self.model)(**inputs)

    def _after(self, rows: Ragged) -> torch.Tensor:
        """Logits after the last token of each row, (rows, vocabulary)."""
        outputs, last = self._run(input_ids=self._tensor(rows)), rows.lengths - 1
        return torch.cat([logits for _, logits in self._logits(outputs, np.arange(len(last)), last)])

    def _logits(self, outputs, rows: np.ndarray, columns: np.ndarray) -> Iterator[tuple[slice, torch.Tensor]]:
        """(places, vocabulary) float32 at the given places only, in parts of at most LOGITS numbers."""
        step = max(1, LOGITS // self._vocabulary)
        states = outputs.last_hidden_state if self._head.apart else outputs.logits
        rows, columns = (torch.from_numpy(places).to(states.device) for places in (rows, columns))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            chosen = states[rows[part], columns[part]]
            logits = self._head(chosen) if self._head.apart else chosen
            yield part, logits.float()


def _windows(shared: np.ndarray, group: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Questions one after another whose prompts' prefixes, each held once, have at most `most` tokens together.

    `shared` and `group` are (questions, k): tokens of the prefix and its number, 0 for none.
    """
    start, held = 0, {}
    for question, own in enumerate(map(dict, map(zip, group.tolist(), shared.tolist()))):
        if question > start and sum((held | own).values()) > most:
            yield np.arange(start, question)
            start, held = question, {}
        held |= own
    if start < len(group):
        yield np.arange(start, len(group))


def _part(rows: Ragged, chosen: np.ndarray, start: int, lengths: int | np.ndarray) -> Ragged:
    return rows.slice(chosen, np.full(len(chosen), start), np.broadcast_to(lengths, len(chosen)))


def _positions(config, tokenizer) -> int:
    """Tokens that the model reads at once."""
    known = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions", "seq_length")]
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":  # longer texts are read by other factors, and all others of their batch
        known.append(rope["original_max_position_embeddings"])
    known.append(getattr(config, "index_topk", None))  # beyond it only so many are looked at, which padding may change
    known = [int(n) for n in [*known, tokenizer.model_max_length] if n and n < UNBOUNDED]
    return min(known, default=WITHOUT_POSITIONS)
