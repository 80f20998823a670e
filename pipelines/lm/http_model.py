"""HttpModel: a model behind OpenAI's completions or chat interface, served by vLLM, llama.cpp or a paid service."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.http_choice import ECHO, Abilities, Choice
from pipelines.lm.http_client import CompletionsClient
from pipelines.lm.language_model import Generation, Prompt, Scores
from pipelines.lm.ragged import joined
from pipelines.lm.token_prompts import PromptTokenizer, read_tokenizer
from pipelines.params import params


class HttpModel:
    """The LanguageModel `lm.path` of the server `lm.http.url`. Answers and costs are kept in the folder `cache`.

    With `http.tokenizer`, saved in `folder`, prompts are sent as token ids: they are cut as Prompt says, and scores are
    those of a local model. Without it, prompts are sent as texts: the server tokenises them, refuses long ones, and
    can't score or choose. With `lm.chat`, they are sent as texts to the chat interface.
    """

    def __init__(self, folder: Path, lm: params.LM, key: str | None, cache: Path) -> None:
        """Raises LongtailError where the server does not serve the model, or the tokenizer is another model's."""
        self.name, self.max_tokens, self._n_likeliest = Path(folder).name, lm.http.max_tokens, lm.http.logprobs
        self._tokenizer: PromptTokenizer | None = None
        decode = str
        if lm.http.tokenizer:
            tokenizer = read_tokenizer(folder)
            self._tokenizer = PromptTokenizer(tokenizer, folder, self.name, self.max_tokens)
            decode = tokenizer.decode
        self._client = CompletionsClient(self.name, lm.path, lm.http, key, cache, chat=lm.chat, decode=decode)
        self.abilities = Abilities(self.name, lm.http, self._client, self._tokenizer)
        self.scores, self.mixes, self.votes = "score" in self.abilities, False, "vote" in self.abilities
        self.begins = "" if lm.chat else " "

    @property
    def usage(self) -> dict[str, float]:
        return dict(self._client.usage)

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """Raises LongtailError where the server shows no log-probabilities of prompts, or there is no tokenizer."""
        self.abilities.require("score")
        tokens, counts = self._tokenizer.continuations(continuations)
        pairs = joined([self._tokenizer.prompts(prompts, tokens.lengths), tokens])
        nonempty = np.flatnonzero(tokens.lengths)
        sent = pairs.take(nonempty).tolist()

        def read(i: int, choice: Choice) -> np.ndarray:
            positions = np.arange(len(sent[i]) - tokens.lengths[nonempty[i]], len(sent[i]))
            return choice.prompt_log_probs(len(sent[i]), positions)

        log_probs = [np.empty(0, np.float32)] * len(prompts)
        for row, scored in zip(nonempty, self._client.ask(sent, read, **ECHO), strict=True):
            log_probs[row] = scored
        return Scores(log_probs, counts.split(counts.values.astype(np.int32)))

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        return self._tokenizer.fit(prompts, continuations)

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """All but the `http.logprobs` likeliest tokens are -inf.

        Where several tokens have a text that the server shows, each gets its log-probability. In a chat, the vocabulary
        are the texts that `token_id` was asked for; each gets the probability of its tokens with and without a space
        before. Raises LongtailError where the server shows no next tokens, or there is no tokenizer.
        """
        self.abilities.require("choose")
        sent, _ = self._as_sent(prompts, 1)
        shown = self._client.ask(sent, lambda _, choice: choice.likeliest(), max_tokens=1, logprobs=self._n_likeliest)
        size = len(self._tokenizer.tokenizer if self._tokenizer else self._ids_of_texts)
        result = np.full((len(prompts), size), -np.inf, np.float32)
        for row, likeliest in zip(result, shown, strict=True):
            for text, log_prob in likeliest.items():
                ids = self._ids_of_texts.get(text if self._tokenizer else text.strip(), [])
                row[ids] = np.logaddexp(row[ids], log_prob)
        return result

    @cached_property
    def _ids_of_texts(self) -> dict[str, list[int]]:
        """The ids of the tokens with each text. Parts of characters have no text of their own and are left out."""
        if not self._tokenizer:
            return {}
        tokenizer = self._tokenizer.tokenizer
        texts = tokenizer.batch_decode(np.arange(len(tokenizer))[:, None], clean_up_tokenization_spaces=False)
        ids: dict[str, list[int]] = {}
        for id_, text in enumerate(texts):
            if text and "\ufffd" not in text:
                ids.setdefault(text, []).append(id_)
        return ids

    def token_id(self, text: str) -> int:
        """Raises LongtailError where the server shows no next tokens."""
        self.abilities.require("choose")
        if not self._tokenizer:
            return self._ids_of_texts.setdefault(text, [len(self._ids_of_texts)])[0]
        return self._tokenizer.token_id(text)

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """Without a tokenizer nothing is cut: the server refuses a text that is too long."""
        return self._tokenizer.seen(prompts, np.full(len(prompts), max_tokens)) if self._tokenizer else list(prompts)

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """The mean log-probability is that of the tokens that begin before the text's end.

        A server stops at once where a text begins with the stop string. It is then asked again without one, and the
        tokens of both requests count. A chat is never sent one, because some services refuse white space there. Raises
        LongtailError where `max_tokens` leaves no room for a prompt.
        """
        if max_tokens >= self.max_tokens:
            raise LongtailError(f"{max_tokens} new tokens asked of {self.name}, which reads {self.max_tokens} at once")
        sent, lengths = self._as_sent(prompts, max_tokens)

        def read(i: int, choice: Choice) -> Generation:
            tokens = (choice.usage.prompt_tokens, choice.usage.completion_tokens) if choice.usage else None
            return Generation(*choice.answer(stop), *(tokens or (int(lengths[i]), len(choice.logprobs.tokens))))

        fields = {"max_tokens": max_tokens} | self.abilities.shown
        if self._client.chat:
            return self._client.ask(sent, read, **fields)
        made = self._client.ask(sent, read, stop=[stop], **fields)
        empty = [i for i, first in enumerate(made) if not first.text]
        again = self._client.ask([sent[i] for i in empty], lambda i, choice: read(empty[i], choice), **fields)
        for i, second in zip(empty, again, strict=True):
            tokens = made[i].prompt_tokens + second.prompt_tokens, made[i].new_tokens + second.new_tokens
            made[i] = Generation(second.text, second.mean_log_prob, *tokens)
        return made

    def _as_sent(self, prompts: Sequence[Prompt], max_tokens: int) -> tuple[list[str] | list[list[int]], np.ndarray]:
        """The prompts as token ids that leave room for `max_tokens`, or as texts; and their tokens, 0 if unknown."""
        if not self._tokenizer:
            return [prompt.document + prompt.context for prompt in prompts], np.zeros(len(prompts), np.int64)
        tokens = self._tokenizer.prompts(prompts, np.full(len(prompts), max_tokens))
        return tokens.tolist(), tokens.lengths

    def generate_mixture(self, *_, **__) -> list[Generation]:
        """Always raises LongtailError: the interface shows only a few of the most likely tokens."""
        raise LongtailError(
            f"{self._client.url}: shows only the likeliest next tokens of {self.name}, so it can't generate under the "
            f"mixture; it can still {self.abilities}"
        )
