"""Read a server's answer to one prompt, and find out what the server can do, by small requests before any work.

Servers differ, and a wrong number looks like any other. Scoring needs the log-probabilities of the prompt's own tokens
(`echo` with `logprobs`). Many servers accept such a request and leave them out, or give wrong ones.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt, up_to
from pipelines.lm.token_prompts import PromptTokenizer
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.lm.http_client import CompletionsClient

ROUNDING = 1e-3  # nats: how far above 0 a log-probability may come out
TOLERANCE = 0.5  # nats: how far two passes of a server may differ at one token, in whatever number format
PROBE, SHORTER_PROBE = "one two three", "one two"
ABILITIES = {"score": "score texts", "choose": "choose between options", "generate": "generate answers", "vote": "vote"}
ECHO = {"max_tokens": 1, "echo": True, "logprobs": 1}  # scores a prompt; some servers refuse 0, or take it as no limit


class Unable(LongtailError):
    """The server refused a request as one that it can't do, or did something else."""


class Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[Token] = []


class LogProbs(msgspec.Struct):
    """Lists with an entry per token; empty where the server shows none.

    Some servers, such as llama.cpp's, show all but `text_offset` in the form of the chat interface, as `content`.
    """

    tokens: list[str] | None = None  # the tokens' texts
    token_logprobs: list[float | None] | None = None  # None for a text's first token
    text_offset: list[int] | None = None  # the character at which the token begins
    top_logprobs: list[dict[str, float] | None] | None = None  # the likeliest tokens at this position
    content: list[Token] | None = None

    def __post_init__(self) -> None:
        if self.content and not self.tokens:
            self.tokens = [token.token for token in self.content]
            self.token_logprobs = [token.logprob for token in self.content]
            self.top_logprobs = [{top.token: top.logprob for top in token.top_logprobs} for token in self.content]
        for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            setattr(self, field, getattr(self, field) or [])
        largest = max(
            chain([0.0], filter(None, self.token_logprobs), *(top.values() for top in self.top_logprobs if top))
        )
        if largest > ROUNDING:
            raise ValueError(f"a log-probability of {largest:g}, which is above 0")


class Message(msgspec.Struct):
    content: str | None  # None: nothing is said


Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count = 0


class Choice(msgspec.Struct):
    """A server's answer to one prompt: the generated text, and the tokens' log-probabilities if it shows them.

    After a request with `echo`, both begin with the prompt's own. The chat interface gives a message for the text;
    `usage` is then known, because a request has one prompt.
    """

    text: str | None = None
    message: Message | None = None
    logprobs: LogProbs | None = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.text is None and self.message is None:
            raise ValueError("a choice without text or message")
        self.text = self.text or (self.message.content if self.message else "") or ""
        self.logprobs = self.logprobs or LogProbs()

    def prompt_log_probs(self, count: int, positions: np.ndarray) -> np.ndarray:
        """Log-probabilities, float32, of the tokens at `positions` of a prompt of `count` tokens, after ECHO.

        Raises Unable where the server does not show them.
        """
        values = np.array(self.logprobs.token_logprobs, np.float32)
        complete = len(self.logprobs.tokens or values) == len(values) in (count, count + 1)
        values = values[:count]
        if not complete or not np.isfinite(values[positions]).all():
            known = np.count_nonzero(np.isfinite(values[1:]))
            expected = f"{known} log-probabilities where a prompt's tokens have {count - 1}"
            raise Unable(f"gives {expected if known else 'no log-probabilities'} (echo with logprobs)")
        return values[positions]

    def likeliest(self) -> dict[str, float]:
        """Text and log-probability of the tokens shown for the first position."""
        return (self.logprobs.top_logprobs or [None])[0] or {}

    def answer(self, stop: str) -> tuple[str, float]:
        """The text `up_to` the stop string, and the mean log-probability of the tokens that begin before its end.

        The mean is nan where the server shows no log-probabilities. Raises Unable where another token was likelier.
        """
        text, shown = up_to(self.text, stop), self.logprobs
        if not (shown.tokens and shown.token_logprobs):
            return text, float("nan" if text else "-inf")
        log_probs = np.array(shown.token_logprobs, np.float64)
        largest = np.array([max((tokens or {}).values(), default=-np.inf) for tokens in shown.top_logprobs])
        if len(largest) == len(log_probs) and (largest - log_probs > TOLERANCE).any():
            position = int((largest - log_probs).argmax())
            raise Unable(
                f"answers {shown.tokens[position]!r} where another token is likelier by "
                f"{largest[position] - log_probs[position]:.1f} nats; switch its penalties off, there or in http.extra "
                "(as repeat_penalty: 1.0)"
            )
        if not text:
            return text, float("-inf")
        starts = np.asarray(shown.text_offset or np.cumsum([0, *map(len, shown.tokens)])[:-1])
        return text, float(log_probs[starts - starts[0] < len(text)].mean())


def is_piece(token: str) -> bool:
    """Whether the token is a part of a character. Servers write such tokens in different ways."""
    return not token or "\ufffd" in token or token.startswith("bytes:")


class Abilities:
    """What the server behind `client` can do for the model `name`.

    `shown` are the fields of a request that ask for an answer's log-probabilities. Raises LongtailError where the
    server can't be used at all, or `tokenizer` belongs to another model.
    """

    def __init__(
        self, name: str, settings: params.LMServer, client: CompletionsClient, tokenizer: PromptTokenizer | None
    ) -> None:
        self._name, self._settings, self._client, self._tokenizer = name, settings, client, tokenizer
        self.shown = {"logprobs": 1}
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
        """Generate a token after PROBE. Raises LongtailError where the server can't take prompts in this form."""
        key, texts = f"lm.{self._name}.http", [PROBE, SHORTER_PROBE][: self._settings.batch_size]
        try:
            return self._first_answer([self._prompt(text) for text in texts])
        except Unable as error:
            raise LongtailError(
                f"{error}; if it takes one prompt in a request, set {key}.batch_size to 1, and if it takes texts "
                f"alone, no token ids, {key}.tokenizer to null as well"
            ) from None

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
        if not self._tokenizer:
            raise Unable(f"params.yaml: lm.{self._name}.http.tokenizer is null")
        prompt, after = self._prompt(PROBE), (first.logprobs.tokens or [""])[0]
        following = self._tokenizer.tokens([after])[0].values.tolist()
        comparable = len(following) == 1 and first.logprobs.token_logprobs and not is_piece(after)
        prompt += following if comparable else []

        def read(_: int, choice: Choice) -> None:
            values = choice.prompt_log_probs(len(prompt), np.arange(1, max(len(prompt), 2)))
            tokens = choice.logprobs.tokens[: len(prompt)]
            if PROBE.replace(" ", "") not in "".join(filter(str.isalpha, "".join(tokens))):
                raise LongtailError(
                    f"params.yaml: lm.{self._name}.http.tokenizer is {self._settings.tokenizer}, whose {PROBE!r} is "
                    f"{''.join(tokens)!r} to {self._client.url}; expected the tokenizer of the model there"
                )
            expected = first.logprobs.token_logprobs[0] if comparable and tokens[-1:] == [after] else values[-1]
            if abs(values[-1] - expected) > TOLERANCE:
                raise Unable(
                    f"gives {after!r} after {PROBE!r} the log-probability {values[-1]:.2f} as a "
                    f"prompt's token (echo with logprobs), {expected:.2f} as an answer's"
                )

        self._client.ask([prompt], read, probe=True, **ECHO)

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
