"""Find out what a server can do, by small requests before any work.

Scoring needs the log-probabilities of the prompt's own tokens (`echo` with `logprobs`). Many servers accept such a
request and leave them out, or give wrong ones.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.http_choice import TOLERANCE, Choice, Unable, is_piece
from pipelines.lm.http_client import CompletionsClient
from pipelines.lm.language_model import Prompt
from pipelines.lm.token_prompts import PromptTokenizer

PROBE, SHORTER_PROBE = "one two three", "one two"
ABILITIES = {"score": "score texts", "choose": "choose between options", "generate": "generate answers", "vote": "vote"}
ECHO = {"max_tokens": 0, "echo": True, "logprobs": 1}
ECHO_AND_ONE = ECHO | {"max_tokens": 1}  # for servers that refuse 0, or take it as no limit
COMMON = [" ", "\n", "e", "."]  # soon in any text: where 0 is no limit, they end it before the context is full


class Abilities:
    """What the server behind `client` can do for the model `name`.

    `echo` are the fields of a request that scores a prompt, `shown` those that ask for an answer's log-probabilities.
    Raises LongtailError where the server can't be used at all, or `tokenizer` belongs to another model.
    """

    def __init__(
        self, name: str, settings: params.LMServer, client: CompletionsClient, tokenizer: PromptTokenizer | None
    ) -> None:
        self._name, self._settings, self._client, self._tokenizer = name, settings, client, tokenizer
        self.echo, self.shown = ECHO, {"logprobs": 1}
        self._lacks: dict[str, str] = {}  # ability -> why the server lacks it
        first = self._try_chat() if client.chat else self._try_prompts()
        if not first.logprobs.token_logprobs and (first.text or not self.shown):
            self._lacks["vote"] = f"{client.url}: shows no log-probabilities of its answers"
        for ability, probe in (("score", partial(self._try_scoring, first)), ("choose", self._try_choosing)):
            try:
                probe()
            except Unable as error:
                self._lacks[ability] = str(error)

    def __contains__(self, ability: str) -> bool:
        return ability not in self._lacks

    def __str__(self) -> str:
        return " and ".join(what for ability, what in ABILITIES.items() if ability in self)

    def require(self, ability: str) -> None:
        """Raise LongtailError where the server lacks one of ABILITIES."""
        if reason := self._lacks.get(ability):
            raise LongtailError(f"{reason}, so {self._name} can't {ABILITIES[ability]}; it can still {self}")

    def _try_prompts(self) -> Choice:
        """Generate a token after PROBE. Raises LongtailError where the server can't take prompts in the form they have.

        The error says which other form it takes.
        """
        key, texts = f"lm.{self._name}.http", [PROBE, SHORTER_PROBE][: self._settings.batch_size]
        prompts = [self._prompt(text) for text in texts]
        try:
            return self._first_answer(prompts)
        except Unable as error:
            others = {
                f"one prompt in a request; set {key}.batch_size to 1": [self._prompt(PROBE)],
                f"texts, but no token ids; set {key}.tokenizer to null": texts,
                f"one text in a request; set {key}.batch_size to 1 and {key}.tokenizer to null": [PROBE],
            }
            for advice, other in others.items():
                if other != prompts:
                    with suppress(Unable):
                        self._first_answer(other)
                        raise LongtailError(f"{error}: it takes {advice}") from None
            raise

    def _try_chat(self) -> Choice:
        """Generate a token in answer to PROBE, without log-probabilities where the server refuses to show them."""
        try:
            return self._first_answer([PROBE])
        except Unable:
            self.shown = {}
            return self._first_answer([PROBE])

    def _first_answer(self, prompts: list) -> Choice:
        return self._client.ask(prompts, lambda _, choice: choice, probe=True, max_tokens=1, **self.shown)[0]

    def _try_scoring(self, first: Choice) -> None:
        """Score PROBE with `first`, the token generated after it: both ways must give it the same log-probability."""
        if self._client.chat:
            raise Unable(f"{self._client.url}: a chat interface shows no log-probabilities of prompts")
        shown = first.logprobs
        after = shown.tokens[0] if shown.tokens and not is_piece(shown.tokens[0]) else ""
        expected = (shown.token_logprobs or [None])[0] if after else None
        prompt = self._prompt(PROBE + after)
        if self._tokenizer and len(token := self._tokenizer.tokens([after])[0].values) == 1:
            prompt = [*self._prompt(PROBE), *token.tolist()]  # together, the texts may be other tokens

        def ask() -> None:
            stop = {} if self.echo["max_tokens"] else {"stop": COMMON}
            self._client.ask([prompt], read, probe=True, **self.echo, **stop)

        def read(_: int, choice: Choice) -> None:
            generated = self.echo["max_tokens"]
            if not generated and choice.finish_reason == "stop":
                raise Unable("takes max_tokens 0 as no limit")
            count = len(prompt) if self._tokenizer else choice.count_prompt_tokens(prompt, generated)
            values = choice.prompt_log_probs(count, np.arange(1, max(count, 2)), generated)
            if self._tokenizer:
                self._check_tokenizer(choice.logprobs.tokens, count)
            else:
                choice.token_starts(prompt, count)
            scored_after = choice.logprobs.tokens[:count][-1:] == [after]
            if expected is not None and scored_after and abs(values[-1] - expected) > TOLERANCE:
                raise Unable(
                    f"gives {after!r} after {PROBE!r} the log-probability {values[-1]:.2f} as a "
                    f"prompt's token (echo with logprobs), {expected:.2f} as an answer's"
                )

        try:
            ask()
        except Unable:
            self.echo = ECHO_AND_ONE
            ask()

    def _check_tokenizer(self, tokens: list[str], count: int) -> None:
        letters = "".join(filter(str.isalpha, "".join(tokens[:count])))
        if PROBE.replace(" ", "") not in letters:
            raise LongtailError(
                f"params.yaml: lm.{self._name}.http.tokenizer is {self._settings.tokenizer}, whose {PROBE!r} is "
                f"{''.join(tokens)!r} to {self._client.url}; expected the tokenizer of the model there"
            )

    def _try_choosing(self) -> None:
        wanted = self._settings.logprobs

        def read(_: int, choice: Choice) -> None:
            if (shown := len(choice.likeliest())) < wanted:
                raise Unable(f"shows {shown} of the likeliest next tokens, {wanted} are asked for")

        if not (self._tokenizer or self._client.chat):
            raise Unable(f"params.yaml: lm.{self._name}.http.tokenizer is null")
        self._client.ask([self._prompt(PROBE)], read, probe=True, max_tokens=1, logprobs=wanted)

    def _prompt(self, text: str) -> str | list[int]:
        """The text as prompts are sent: token ids with a tokenizer, the text itself without."""
        if not self._tokenizer:
            return text
        return self._tokenizer.prompts([Prompt(text)], np.ones(1, np.int64)).values.tolist()
