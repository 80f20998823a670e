"""LocalModel: a causal language model in a local folder, run by transformers.

It decodes greedily (REPLUG §3.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from pipelines import progress, reasoning
from pipelines.errors import LongtailError
from pipelines.lm.decoding import GeneratedTexts, PromptWeights, Questions
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.language_model import (
    LED,
    Generation,
    LocalAbilities,
    Prompt,
    Scores,
    check_room,
    no_answer,
)
from pipelines.lm.local_answers import LocalAnswers
from pipelines.lm.model_files import UNREADABLE, check_config, max_tokens, padding_token
from pipelines.lm.ragged import joined, spans
from pipelines.lm.shortcuts import choose_shortcut
from pipelines.lm.sizes import choose_sizes
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.lm.weights import load
from pipelines.work import threads as torch_threads
from pipelines.work.devices import Fetched

PROBE = "one two three"
PROBE_TOKENS = 8  # tokens of the answer to PROBE; reasoning shows in them
ADVICE = (
    "raise answer.new_tokens (to 1024, say), or use a model or a chat template that answers at once"
)


class LocalModel(LocalAbilities):
    """The LanguageModel in `folder`, called `name`.

    With `chat`, prompts are messages in its chat template.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        dtype: str,
        batch_tokens: int | None,
        device: str,
        threads: int,
        chat: bool = False,
    ) -> None:
        """Raises LongtailError where `folder` has no causal language model, or no tokenizer.

        With `chat`, it also raises it where the tokenizer has no chat template.
        """
        check_config(folder)
        torch_threads.use(threads)
        try:
            self.tokenizer = read_tokenizer(folder)
        except UNREADABLE as error:
            raise LongtailError(f"{folder}: no tokenizer: {' '.join(str(error).split())}") from None
        loaded = load(folder, self.tokenizer, dtype, device)
        self.model = loaded.model

        self.name = name
        self.max_tokens = max_tokens(folder, self.tokenizer)
        self.begins = "" if chat else " "
        self._vocabulary = self.model.config.get_text_config().vocab_size
        self._texts = PromptTokenizer(self.tokenizer, folder, name, self.max_tokens, chat=chat)
        self.fits = self._texts.fits
        self.seen = self._texts.seen
        self._answers = LocalAnswers(self._texts)
        self._ends = self._end_tokens()
        # Decoding steps that are computed before the tokens of a step are looked at.
        self._steps_ahead = 1 if self.model.device.type == "cuda" else 0
        self._holding = cache(self._tokens_holding)

        self.sizes = choose_sizes(self.model, batch_tokens)
        pad = padding_token(folder, self.model, self.tokenizer, chat=chat)
        self._passes = ForwardPasses(self.model, pad, self.sizes)
        choose_shortcut(self._passes, self.tokenizer, folder, self.max_tokens, loaded.difference)
        # The tokens of a batch of texts that are continued, if no pass reads all of them at once.
        self._decoded_tokens = None
        if self._passes.can_continue:
            fitting = self.sizes.cache_bytes // self._passes.bytes_kept()
            self._decoded_tokens = max(self.sizes.batch_tokens, fitting)
        self._reasons = False  # whether the model reasons before it answers
        self.usage = self._passes.usage
        if chat:
            self.usage |= {"lm_reasoned": 0.0, "lm_unanswered": 0.0}
            self._try_chat()
        for name in self.usage:  # the trials do not count
            self.usage[name] = 0.0

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel.

        Raises LongtailError for a continuation that alone fills the model's positions.
        """
        continuation_tokens, byte_counts = self._texts.continuations(continuations)
        prompt_tokens = self._texts.prompts(prompts, continuation_tokens.lengths)
        nonempty = np.flatnonzero(continuation_tokens.lengths > 0)
        pairs = joined([prompt_tokens, continuation_tokens]).take(nonempty)
        scored = continuation_tokens.take(nonempty)

        # The column that predicts the continuation's first token.
        first = pairs.lengths - scored.lengths - 1
        # The last token of a pair is predicted, but no token after it. The model need not read it.
        inputs = pairs.slice(0, pairs.lengths - 1)

        log_probs = np.empty(len(scored.values), np.float32)
        for batch in self._passes.over(inputs, first):
            lengths = scored.lengths[batch.rows]
            rows = np.repeat(np.arange(len(batch.rows)), lengths)
            columns = spans(first[batch.rows] - batch.skipped, lengths)
            targets = torch.from_numpy(scored.take(batch.rows).values)

            parts = []
            for part, logits in self._passes.logits(batch.outputs, rows, columns):
                targets_of_part = targets[part].to(logits.device)
                nats = functional.cross_entropy(logits, targets_of_part, reduction="none")
                parts.append(-nats)
            positions = spans(scored.bounds[batch.rows], lengths)
            log_probs[positions] = torch.cat(parts).cpu().numpy()
            progress.advance(len(batch.rows), len(nonempty))

        byte_counts_int32 = byte_counts.values.astype(np.int32)
        return Scores(
            log_probs=continuation_tokens.split(log_probs),
            bytes=continuation_tokens.split(byte_counts_int32),
        )

    def choose(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> np.ndarray:
        """See LanguageModel."""
        log_probs = np.full((len(prompts), len(texts)), np.nan)
        if self._reasons:  # the first token is one of reasoning
            return log_probs
        ids = self._texts.token_ids(texts)
        if ids:
            columns = [texts.index(text) for text in ids]
            log_probs[:, columns] = self.next_token(prompts)[:, [*ids.values()]]
        return log_probs

    @torch.inference_mode()
    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """Log-probabilities of the token after each prompt, (prompts, vocabulary) float32."""
        tokens = self._texts.prompts(prompts, 1)
        result = np.empty((len(prompts), self._vocabulary), np.float32)
        for rows, logits in self._passes.after(tokens):
            result[rows] = torch.log_softmax(logits, dim=-1).cpu().numpy()
            progress.advance(len(rows), len(prompts))
        return result

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
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
        check_room(self, max_tokens)
        tokens = self._texts.prompts(prompts, max_tokens)
        questions = Questions(tokens, log_weights, find_shared=self._passes.can_continue)

        generations: dict[int, Generation] = {}
        for batch, passes in self._decodings(questions, max_tokens):
            generated = self._greedy(
                passes,
                questions,
                batch,
                max_tokens=max_tokens,
                stop=stop,
                sequence_mixture=sequence_mixture,
            )
            for question, (new_tokens, log_probs) in zip(batch, generated, strict=True):
                answer = self._answers.read(new_tokens, log_probs, stop)
                if answer.silent:
                    self.usage["lm_unanswered"] += 1
                    within = f"nothing but reasoning within {max_tokens} tokens"
                    generations[question] = no_answer(f"{within}; {ADVICE}")
                    continue

                if answer.reasoned:
                    self.usage["lm_reasoned"] += 1
                n_prompts = int(questions.read[question].sum())
                n_read = int(questions.lengths[question].sum())
                generations[question] = Generation(
                    text=answer.text,
                    mean_log_prob=answer.mean_log_prob,
                    prompt_tokens=n_read,
                    new_tokens=len(new_tokens) * n_prompts,
                    remarks=(LED,) if answer.led else (),
                )
        return [generations[question] for question in range(len(log_weights))]

    def _try_chat(self) -> None:
        """Find out by a small answer whether the model reasons. Prints that, and what stops it."""
        switch = self._texts.frame.switch
        if switch:
            print(f"{self.name}: its chat template is told not to reason ({switch})")
        (answer,) = self.generate([Prompt(PROBE)], PROBE_TOKENS)
        self._reasons = self.usage["lm_reasoned"] > 0 or answer.unanswered != ""
        if self._reasons:
            self.scores = False
            print(f"{self.name}: {reasoning.CUT_OFF}")

    def _decodings(
        self, questions: Questions, max_tokens: int
    ) -> Iterator[tuple[np.ndarray, Generator[torch.Tensor, torch.Tensor, None]]]:
        """Yield batches of questions, as their numbers, and the decoding of their prompts.

        Prefixes are read for a window of questions, which has many batches.
        """
        n_read = int(questions.read.sum())
        for window in questions.windows(self.sizes.batch_tokens):
            groups, prefixes = questions.prefixes(window)
            held = self._passes.hold(prefixes)

            # What each question's prompts need in the cache, with their new tokens.
            longest = questions.lengths[window].max(1, initial=0) + max_tokens
            cached_tokens = longest * questions.read[window].sum(1)
            for rows in self._passes.batches(cached_tokens, self._decoded_tokens):
                batch = window[rows]
                read = questions.read[batch]
                prompts = questions.prompts[batch][read]
                groups_of_prompts = questions.groups[batch][read]
                beginnings = np.searchsorted(groups, groups_of_prompts)
                passes = self._passes.decoding(
                    prompts=questions.tokens.take(prompts),
                    held=held,
                    beginnings=beginnings,
                    new_tokens=max_tokens,
                    total=n_read,
                )
                yield batch, passes

    @torch.inference_mode()
    def _greedy(
        self,
        passes: Generator[torch.Tensor, torch.Tensor, None],
        questions: Questions,
        batch: np.ndarray,
        *,
        max_tokens: int,
        stop: str,
        sequence_mixture: bool,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The generated tokens of each question in `batch`, and their log-probabilities.

        `passes` decode the questions' prompts. The next token has the largest sum over the
        question's prompts of weight * p(token | prompt, text so far). The tokens end with the one
        that completes `stop` in the answer, or before the end token.
        """
        device = self.model.device
        read = questions.read[batch]
        rows_of_prompts, _ = np.nonzero(read)  # (prompts,): each prompt's question in the batch
        log_weights = questions.log_weights[batch][read]
        weights = PromptWeights(rows_of_prompts, log_weights, device, moving=sequence_mixture)
        row_of_prompt = torch.from_numpy(rows_of_prompts).to(device)
        texts = GeneratedTexts(
            len(batch),
            max_tokens,
            ends=self._ends,
            completes_stop=self._holding(stop[-1]),
            is_complete=partial(self._answers.is_complete, stop=stop),
        )

        # On a GPU, the tokens of a step are looked at while the next step is computed.
        coming: deque[tuple[Fetched, Fetched]] = deque()
        logits = next(passes)
        for step in range(max_tokens):
            # Probabilities, not their logs: the largest of a mixture never underflows.
            mixture = weights.matrix @ torch.softmax(logits.float(), dim=-1)
            largest, next_token = mixture.max(1)
            coming.append((Fetched(next_token), Fetched(largest.log())))
            if len(coming) > self._steps_ahead:
                texts.add(*coming.popleft())
            if step + 1 == max_tokens or texts.all_ended:
                break

            token_of_prompt = next_token[row_of_prompt]
            weights.follow(logits, token_of_prompt)
            logits = passes.send(token_of_prompt)
        for token, log_prob in coming:
            texts.add(token, log_prob)
        return texts.as_list()

    def _end_tokens(self) -> list[int]:
        """The tokens that end a text: the model's, which are one, several or none, and the
        tokenizer's."""
        ends = self.model.generation_config.eos_token_id
        if not isinstance(ends, list):
            ends = [ends]
        tokens = {*ends, self.tokenizer.eos_token_id}
        return [token for token in tokens if token is not None]

    def _tokens_holding(self, character: str) -> np.ndarray:
        """Which tokens have `character` in their text, (vocabulary,) bool.

        Only these can complete a stop string that ends with it.
        """
        texts = self._texts.texts_of_ids(self._vocabulary)
        return np.array([character in text for text in texts], bool)
