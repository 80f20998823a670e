"""A causal language model in a local folder, run by transformers: the frozen black box of REPLUG and of the answers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from pipelines.errors import LongtailError
from pipelines.lm.protocol import Generation, Prompt, Scores
from pipelines.lm.tokens import Ragged, byte_counts, cut, first_tokens, joined, padded, spans

logging.disable_progress_bar()  # of loading weights, which takes no time

LOGITS = 1 << 26  # at most so many logits at once: 256 MiB


class LocalModel:
    def __init__(self, folder: Path, *, name: str, dtype: str, batch_tokens: int, device: str, threads: int) -> None:
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(f"{folder}: no config.json, expected a causal language model in Hugging Face's layout")
        torch.set_num_threads(threads)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
            self.model = AutoModelForCausalLM.from_pretrained(
                folder, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[dtype], use_safetensors=True
            )
        except (OSError, ValueError) as error:
            raise LongtailError(
                f"{folder}: not a causal language model in safetensors: {' '.join(str(error).split())}"
            ) from None
        self.model.eval().requires_grad_(False).to(device)
        self.name, self.batch_tokens, self.device = name, batch_tokens, device
        self.max_tokens = _positions(self.model.config, self.tokenizer)
        self._first, self._start = first_tokens(self.tokenizer, folder)
        self._pad = self.tokenizer.pad_token_id or 0
        self._ends = _end_tokens(self.model, self.tokenizer)
        self._takes_positions = "position_ids" in inspect.signature(self.model.forward).parameters
        self._headless = self._head_is_last()
        self._holding = cache(self._tokens_holding)

    # ------------------------------------------------------------------ the protocol

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel. Pairs of like length share a batch, so their order does not matter.

        Raises LongtailError for a continuation that alone fills the model's positions.
        """
        unique = list(dict.fromkeys(continuations))
        place = {text: i for i, text in enumerate(unique)}
        tokens, ends = self._tokenise(unique, ends=True)
        rows = np.fromiter(map(place.__getitem__, continuations), np.int64, len(continuations))
        continuation = tokens.take(rows)
        if len(rows) and continuation.lengths.max() > self.max_tokens - 1:
            raise LongtailError(
                f"a continuation has {continuation.lengths.max()} tokens, but {self.name} reads {self.max_tokens} at "
                "once; lower queries.continuation_tokens"
            )
        pairs = joined([self._prompts(prompts, continuation.lengths), continuation])
        log_probs = np.empty(len(continuation.values), np.float32)
        for batch in self._batches(pairs.lengths):
            batch = batch[continuation.lengths[batch] > 0]
            if len(batch):
                asked = continuation.lengths[batch]
                columns = spans(pairs.lengths[batch] - asked - 1, asked)  # where the model predicts each asked token
                found = self._log_probs(pairs.take(batch), np.repeat(np.arange(len(batch)), asked), columns)
                log_probs[spans(continuation.bounds[batch], asked)] = found
        counted = Ragged(byte_counts(unique, ends).astype(np.int64), tokens.bounds).take(rows)
        return Scores(continuation.split(log_probs), continuation.split(counted.values.astype(np.int32)))

    @torch.inference_mode()
    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """See LanguageModel."""
        tokens = self._prompts(prompts, np.ones(len(prompts), np.int64))
        result = np.empty((len(prompts), self.model.config.get_text_config().vocab_size), np.float32)
        for batch in self._batches(tokens.lengths):
            ids, _ = self._tensors(tokens.take(batch))
            last = torch.from_numpy(tokens.lengths[batch] - 1)
            logits = self._logits(self._run(input_ids=ids, use_cache=False), torch.arange(len(batch)), last)
            result[batch] = torch.log_softmax(logits.float(), dim=-1).cpu().numpy()
        return result

    def token_id(self, text: str) -> int:
        """See LanguageModel."""
        ids = self._tokenise([text])[0].values
        if len(ids) != 1:
            raise LongtailError(f"{text!r} is {len(ids)} tokens for {self.name}, expected one")
        return int(ids[0])

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """See LanguageModel. Raises LongtailError where `max_tokens` leaves no room for a prompt."""
        if max_tokens >= self.max_tokens:
            raise LongtailError(f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once")
        tokens = self._prompts(prompts, np.full(len(prompts), max_tokens))
        results: dict[int, Generation] = {}
        for batch in self._batches(tokens.lengths + max_tokens):
            found = self._greedy(tokens.take(batch), max_tokens, stop)
            for row, (text, mean) in zip(batch.tolist(), found, strict=True):
                results[row] = Generation(text, mean, int(tokens.lengths[row]))
        return [results[row] for row in range(len(prompts))]

    # ------------------------------------------------------------------ tokens

    def _tokenise(self, texts: Sequence[str], *, ends: bool = False) -> tuple[Ragged, Ragged | None]:
        """Token ids of each text alone and, if asked, the character at which each token ends."""
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
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(encoded["offset_mapping"])), np.int64)
        return tokens, Ragged(flat[1::2].copy(), tokens.bounds)

    def _prompts(self, prompts: Sequence[Prompt], reserved: np.ndarray) -> Ragged:
        """Each prompt's tokens, cut as Prompt says to leave room for `reserved` (prompts,) more."""
        tokens, _ = self._tokenise([prompt.document + prompt.context for prompt in prompts])
        n, lengths = len(prompts), tokens.lengths
        first = np.full(n, len(self._first)) if len(self._first) else (lengths == 0).astype(np.int64)
        firsts = np.tile(self._first, n) if len(self._first) else np.full(first.sum(), self._start)
        opening = Ragged(firsts.astype(np.int64), np.concatenate([[0], np.cumsum(first)]))
        room = self.max_tokens - first - reserved
        long = np.flatnonzero(lengths > room)
        if not len(long):
            return joined([opening, tokens])
        document = np.zeros(n, np.int64)
        _, ends = self._tokenise([prompts[i].document + prompts[i].context for i in long], ends=True)
        limits = np.fromiter((len(prompts[i].document) for i in long), np.int64, len(long))
        inside = np.concatenate([[0], np.cumsum(ends.values <= np.repeat(limits, ends.lengths))])
        document[long] = np.diff(inside[ends.bounds])
        context = lengths - document
        head, kept = cut(document, context, room)
        every = np.arange(n)
        return joined(
            [opening, tokens.slice(every, np.zeros(n, np.int64), head), tokens.slice(every, lengths - kept, kept)]
        )

    def _batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Rows in batches of like length, the longest first, so that too small a memory shows at once."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            rows = max(1, self.batch_tokens // max(1, int(lengths[order[start]])))
            yield order[start : start + rows]
            start += rows

    def _tensors(self, rows: Ragged, *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        ids, real = padded(rows, int(rows.lengths.max()), self._pad, left=left)
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(real.astype(np.int64)).to(self.device)

    # ------------------------------------------------------------------ the model

    def _run(self, **inputs):
        return (self.model.base_model if self._headless else self.model)(**inputs)

    def _logits(self, outputs, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """(positions, vocabulary) at the given places only: over all of them they are most of a small model's work."""
        if self._headless:
            return self.model.get_output_embeddings()(outputs.last_hidden_state[rows, columns])
        return outputs.logits[rows, columns]

    def _head_is_last(self) -> bool:
        """Whether the logits are just the output embedding of the last hidden state: some models scale or cap them."""
        if self.model.base_model is self.model or self.model.get_output_embeddings() is None:
            return False
        ids = torch.arange(8, device=self.device)[None] % self.model.config.get_text_config().vocab_size
        with torch.inference_mode():
            whole = self.model(input_ids=ids).logits
            parts = self.model.get_output_embeddings()(self.model.base_model(input_ids=ids).last_hidden_state)
        return whole.shape == parts.shape and torch.allclose(whole, parts, rtol=1e-3, atol=1e-3)

    def _log_probs(self, rows: Ragged, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """log p of the token after each (row, column), (places,) float32. Causal models never see padding behind it."""
        ids, _ = self._tensors(rows)
        outputs = self._run(input_ids=ids, use_cache=False)
        places = (torch.from_numpy(row).to(self.device), torch.from_numpy(column).to(self.device))
        target = ids[places[0], places[1] + 1]
        step = max(1, LOGITS // self.model.config.get_text_config().vocab_size)
        found = []
        for i in range(0, len(row), step):
            logits = self._logits(outputs, places[0][i : i + step], places[1][i : i + step]).float()
            found.append(logits.gather(1, target[i : i + step, None]).squeeze(1) - logits.logsumexp(1))
        return torch.cat(found).cpu().numpy()

    def _greedy(self, rows: Ragged, max_tokens: int, stop: str) -> list[tuple[str, float]]:
        """Text and mean log-prob per row. Padding on the left, so that every row's new tokens stand in one column."""
        ids, mask = self._tensors(rows, left=True)
        n, holds = len(ids), self._holding(stop[-1])
        lengths = np.full(n, max_tokens)  # tokens made up to the end token (left out) or the one completing `stop`
        going = np.ones(n, bool)
        made, log_probs = np.zeros((n, max_tokens), np.int64), np.zeros((n, max_tokens), np.float32)
        positions, past = (mask.cumsum(1) - 1).clamp(min=0), None
        for step in range(max_tokens):
            extra = {"position_ids": positions} if self._takes_positions else {}
            outputs = self._run(input_ids=ids, attention_mask=mask, past_key_values=past, use_cache=True, **extra)
            last = torch.full((n,), ids.shape[1] - 1)
            likely, token = torch.log_softmax(self._logits(outputs, torch.arange(n), last).float(), dim=-1).max(1)
            made[:, step], log_probs[:, step] = token.cpu().numpy(), likely.cpu().numpy()
            ended = going & np.isin(made[:, step], self._ends)
            lengths[ended], going[ended] = step, False
            for row in np.flatnonzero(going & holds[made[:, step]]):
                if stop in self._decode(made[row, : step + 1]):
                    lengths[row], going[row] = step + 1, False
            if not going.any():
                break
            past, ids = outputs.past_key_values, token[:, None]
            mask = torch.cat([mask, mask.new_ones(n, 1)], dim=1)
            positions = mask.sum(1, keepdim=True) - 1
        return [self._answer(made[i, :m], log_probs[i, :m], stop) for i, m in enumerate(lengths)]

    def _answer(self, tokens: np.ndarray, log_probs: np.ndarray, stop: str) -> tuple[str, float]:
        text, found, _ = self._decode(tokens).partition(stop)
        count = len(tokens)
        while (
            found and count and len(self._decode(tokens[: count - 1])) >= len(text)
        ):  # tokens that are only the stop string's
            count -= 1
        return text, float(log_probs[:count].mean()) if count else float("-inf")

    def _decode(self, tokens: np.ndarray) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _tokens_holding(self, character: str) -> np.ndarray:
        """Which tokens have `character` in their text, (vocabulary,) bool: only those can complete a stop string."""
        size = self.model.config.get_text_config().vocab_size
        texts = self.tokenizer.batch_decode(np.arange(size)[:, None], clean_up_tokenization_spaces=False)
        return np.fromiter((character in text for text in texts), bool, size)


def _positions(config, tokenizer) -> int:
    """Tokens that the model reads at once."""
    text = config.get_text_config()
    known = [getattr(text, key, None) for key in ("max_position_embeddings", "n_positions")]
    return min(int(n) for n in [*known, tokenizer.model_max_length] if n)


def _end_tokens(model, tokenizer) -> list[int]:
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return [token for token in {*several, tokenizer.eos_token_id} if token is not None]
