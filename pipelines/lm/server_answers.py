"""A completions server's answer to one prompt, checked before its numbers are used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.lm.language_model import ECHOED, LED, up_to

ROUNDING = 1e-3  # nats: how far above 0 a log-probability may come out
# nats: how far two passes of a server may differ at one token, in whatever number format
TOLERANCE = 0.5
FLOOR = -9999.0  # what servers write for a log-probability that they do not know
PROMPT_END = 100  # characters at a prompt's end by which it is found in an answer
SHORT_PROMPT = 20  # characters; a model may write a shorter text by chance


# How a choice ends of which a filter keeps the text back: OpenAI's and Azure's content_filter,
# Gemini's SAFETY and PROHIBITED_CONTENT, Anthropic's refusal, Zhipu's sensitive, Bedrock's
# guardrail_intervened, Cohere's ERROR_TOXIC.
FILTERED = re.compile(
    "filter|refus|safety|prohibit|block|recitation|spii|sensitive|guardrail|toxic|moderat",
    re.IGNORECASE,
)
# The escapes of JSON: a character of two halves, half of one, any other.
ESCAPES = re.compile(
    rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.", re.DOTALL
)


REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")


class Refused(LongtailError):
    """The server gave no answer to a request, which may be the fault of its prompt."""


class Unable(LongtailError):
    """The server refused a request as one that it can't do, or did something else."""


class Silent(LongtailError):
    """The model said nothing, or nothing but its reasoning."""


class Token(msgspec.Struct):
    """A token of a chat's answer, and the likeliest tokens at its position."""

    token: str
    logprob: float | None = None
    top_logprobs: list[Token] = []


class LogProbs(msgspec.Struct):
    """Lists with an entry per token, empty where none is shown.

    llama.cpp has them in `content`, as chats do.
    """

    tokens: list[str] | None = None  # the tokens' texts
    token_logprobs: list[float | None] | None = None  # None for a text's first token
    text_offset: list[int] | None = None  # the character at which the token begins
    # the likeliest tokens at this position
    top_logprobs: list[dict[str, float | None] | None] | None = None
    content: list[Token] | None = None

    def __post_init__(self) -> None:
        if self.content and not self.tokens:
            self._read_content()
        for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            if not getattr(self, field):
                setattr(self, field, [])

        shown = list(self.token_logprobs)
        for top in self.top_logprobs:
            if top:
                shown += top.values()
        largest = max(filter(None, shown), default=0.0)
        if largest > ROUNDING:
            raise ValueError(f"a log-probability of {largest:g}, which is above 0")

    def _read_content(self) -> None:
        self.tokens = [token.token for token in self.content]
        self.token_logprobs = [token.logprob for token in self.content]
        self.top_logprobs = []
        for token in self.content:
            self.top_logprobs.append({top.token: top.logprob for top in token.top_logprobs})


class Part(msgspec.Struct):
    """A part of a message: text, a refusal, or reasoning, as Mistral and gateways send them."""

    type: str = ""
    text: str | None = None
    refusal: Any = None


class Message(msgspec.Struct):
    """A chat's message. Servers that keep reasoning apart show it in one of the other fields."""

    # None: the model says nothing
    content: str | list[Part] | msgspec.UnsetType | None = msgspec.UNSET
    refusal: Any = None  # OpenAI: the words in which the model declines
    reasoning: Any = None
    reasoning_content: Any = None

    def __post_init__(self) -> None:
        self.reasoning = bool(self.reasoning or self.reasoning_content)
        if isinstance(self.content, list):
            self._join(self.content)

    def _join(self, parts: list[Part]) -> None:
        self.content = "".join(part.text or "" for part in parts)
        for part in parts:
            self.refusal = self.refusal or part.refusal
            if part.type in REASONING_PARTS:
                self.reasoning = True


Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct):
    """The tokens that a request cost."""

    prompt_tokens: Count
    completion_tokens: Count = 0
    # how many of the prompt's were in a cache
    prompt_tokens_details: Any = None
    cache_read_input_tokens: Any = None

    @property
    def tokens_read(self) -> int:
        """The tokens of the prompts, cached ones included.

        Some servers count cached tokens twice then, which errs on the safe side.
        """
        details = self.prompt_tokens_details
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        counts = (self.prompt_tokens, cached, self.cache_read_input_tokens)
        return sum(count for count in counts if isinstance(count, int))


class Answer(NamedTuple):
    """The answer in a choice's text."""

    text: str
    mean_log_prob: float
    remarks: list[str]


class Choice(msgspec.Struct):
    """A server's answer to one prompt: the generated text, and its tokens' log-probabilities.

    After a request with `echo`, both begin with the prompt's own. The chat interface gives a
    message in place of the text. Its `usage` is known, because a request has one prompt.
    """

    text: str | None = None
    message: Message | None = None
    logprobs: LogProbs | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    native_finish_reason: Any = None  # OpenRouter: the reason in its provider's words
    stop_reason: Any = None  # Anthropic's name
    scored: bytes | None = None  # float32, all that is kept of a scored prompt
    other_model: str = ""  # the model that answered, where another was asked for

    def __post_init__(self) -> None:
        if not self.refusal:
            self._check_text()
        said = self.message.content if self.message else ""
        self.text = self.text or said or ""
        self.logprobs = self.logprobs or LogProbs()

    def _check_text(self) -> None:
        """Raise ValueError where there is no text."""
        if self.message is None:
            if self.text is None:
                raise ValueError("a choice without text or message")
        elif self.message.content is msgspec.UNSET and not self.message.reasoning:
            raise ValueError("a message without content")

    @property
    def refusal(self) -> str:
        """Why there is no answer of the model, "" if there is one."""
        if self.message and self.message.refusal:
            return f"it declines: {self.message.refusal}"
        for reason in (self.finish_reason, self.native_finish_reason, self.stop_reason):
            if FILTERED.search(str(reason)):
                return f"its answer is filtered ({reason})"
        return ""

    def prompt_log_probs(self, count: int, positions: np.ndarray) -> np.ndarray:
        """Log-probabilities, float32, of the tokens at `positions` of a prompt, after `echo`.

        The prompt has `count` tokens. Raises Unable where the server does not show all of them.
        """
        if self.scored is not None:
            return np.frombuffer(self.scored, "<f4").astype(np.float32)

        values = np.array(self.logprobs.token_logprobs, np.float32)
        values[values <= FLOOR] = np.nan
        n_tokens = len(self.logprobs.tokens or values)
        # Some servers generate one more token.
        complete = n_tokens == len(values) and n_tokens in (count, count + 1)
        values = values[:count]
        if complete and np.isfinite(values[positions]).all():
            return values[positions]

        n_known = np.count_nonzero(np.isfinite(values[1:]))
        raise Unable(
            f"gives {n_known} log-probabilities where a prompt's tokens have {count - 1} (echo "
            "with logprobs)"
        )

    def likeliest(self) -> dict[str, float]:
        """Text and log-probability of the tokens shown for the first position."""
        if not self.logprobs.top_logprobs:
            return {}
        top = self.logprobs.top_logprobs[0] or {}
        return {text: value for text, value in top.items() if is_known(value)}

    def spoken(self) -> tuple[bool, str]:
        """Whether the model reasoned before it answered, and the text without the reasoning.

        Raises Silent where nothing is left: an answer that was cut, or never begun, is not an empty
        answer.
        """
        reasoned, text = reasoning.split(self.text)
        apart = bool(self.message and self.message.reasoning)
        # OpenAI hides the reasoning. An answer that is cut may have been nothing else.
        hidden = bool(self.message and self.finish_reason == "length")
        if not text.strip() and (apart or hidden or text != self.text):
            raise Silent(
                f"says nothing but reasoning (finish_reason: {self.finish_reason}); switch that "
                "off, there or in http.extra (as chat_template_kwargs: {enable_thinking: false}, "
                "or reasoning_effort: none), raise new_tokens, or use a model that answers at once"
            )
        return apart or bool(reasoned.strip()), text

    def answer(self, stop: str, votes: bool = True, prompt: str = "") -> Answer:
        """The text `up_to` the stop string, and the mean log-probability of its tokens.

        A text that begins with the `prompt` is its answer after that. A chat's answer is taken
        after lines that are none. The tokens are those that begin within the text. The mean is nan
        where the server shows no log-probabilities of its own (no `votes`), and where the model
        reasoned. Raises Unable where another token was likelier, and Silent as `spoken` does.
        """
        reasoned, whole_text = self.spoken()
        remarks = []
        begins = after_prompt(whole_text, prompt)
        if begins:
            remarks.append(ECHOED)
        if self.message:
            lead = reasoning.after_leads(whole_text[begins:])
            if lead:
                remarks.append(LED)
            begins += lead

        text = up_to(whole_text[begins:], stop)
        shown = self.logprobs
        if reasoned or not votes or not shown.tokens or not shown.token_logprobs:
            mean_log_prob = float("nan") if text else float("-inf")
            return Answer(text, mean_log_prob, remarks)

        if not all(map(is_known, shown.token_logprobs)):
            raise Unable(f"answers with log-probabilities of {FLOOR:g} or null")
        log_probs = np.array(shown.token_logprobs, np.float64)
        self._check_greedy(log_probs)
        if not text:
            return Answer(text, float("-inf"), remarks)

        # SGLang shows -1 as the offset of each token.
        if shown.text_offset and shown.text_offset[-1] > shown.text_offset[0]:
            starts = np.asarray(shown.text_offset)
        else:
            lengths = [len(token) for token in shown.tokens]
            starts = np.cumsum(lengths) - lengths
        offsets = starts - starts[0]
        in_text = (offsets >= begins) & (offsets < begins + len(text))
        mean_log_prob = float(log_probs[in_text].mean()) if in_text.any() else float("nan")
        return Answer(text, mean_log_prob, remarks)

    def _check_greedy(self, log_probs: np.ndarray) -> None:
        """Raise Unable where a token was shown that is likelier than the answer's."""
        largest = []
        for top in self.logprobs.top_logprobs:
            known = filter(is_known, (top or {}).values())
            largest.append(max(known, default=-np.inf))
        if len(largest) != len(log_probs):
            return

        differences = np.array(largest) - log_probs
        if (differences > TOLERANCE).any():
            position = int(differences.argmax())
            raise Unable(
                f"answers {self.logprobs.tokens[position]!r} where another token is likelier by "
                f"{differences[position]:.1f} nats; switch its penalties off, there or in "
                "http.extra (as repeat_penalty: 1.0)"
            )


def after_prompt(text: str, prompt: str) -> int:
    """The character of a text at which its prompt ends, 0 where it does not begin with that.

    Servers may cut the prompt's beginning off, or put more of a chat template before it.
    """
    prompt = prompt.strip()
    end_of_prompt = prompt[-PROMPT_END:]
    place = text.find(end_of_prompt)
    if not prompt or place < 0:
        return 0
    end = place + len(end_of_prompt)
    beginning = text[:end].strip()
    follows_more = len(prompt) >= SHORT_PROMPT and prompt in beginning and bool(text[end:].strip())
    return end if beginning in prompt or follows_more else 0


def are_known(values: Sequence[float | None]) -> bool:
    """Whether a server knows the log-probabilities of an answer's tokens, which are not all 0."""
    return any(values) and all(map(is_known, values))


def is_known(value: float | None) -> bool:
    """Whether a server knows a log-probability."""
    return value is not None and value > FLOOR


def with_whole_characters(body: bytes) -> bytes:
    """JSON in which U+FFFD stands for each part of a character, escaped or not.

    A model's token may be a part of a character, and some servers end an answer with it.
    """

    def whole(escape: re.Match) -> bytes:
        return rb"\ufffd" if escape["half"] else escape[0]

    text = body.decode("utf-8", "replace")
    return ESCAPES.sub(whole, text.encode())
