"""What a completions server says of one prompt: servers differ, and a wrong number looks like any other."""

from __future__ import annotations

import msgspec
import numpy as np

from pipelines.errors import LongtailError

SAME = 0.5  # nats: how far two passes of a server, in whatever number format, may be apart at one token


class Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[Token] = []


class LogProbs(msgspec.Struct):
    """A list entry per token: its text, log p (None for a text's first), where it begins in characters, likeliest.

    Some servers, llama.cpp's for one, say all but the third in the form of the chat interface, as `content`.
    """

    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    text_offset: list[int] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    content: list[Token] | None = None

    def __post_init__(self) -> None:
        if self.content and not self.tokens:
            self.tokens = [one.token for one in self.content]
            self.token_logprobs = [one.logprob for one in self.content]
            self.top_logprobs = [{other.token: other.logprob for other in one.top_logprobs} for one in self.content]


class Choice(msgspec.Struct):
    text: str
    logprobs: LogProbs | None = None


class Unable(LongtailError):
    """The server refused a request as one that it can't do, or did something else."""


def prompt_tokens(choice: Choice, text: str, more: int) -> int:
    """How many of the tokens shown are those of the prompt `text`: not those of `more` that were asked for after it."""
    shown, said = (choice.logprobs.tokens or [], choice.logprobs.text_offset) if choice.logprobs else ([], None)
    ended = said and said[-1] < len(text)  # the model had nothing to say
    return max(0, len(shown) - (0 if ended else more))


def prompt_log_probs(choice: Choice, tokens: int, own: np.ndarray, more: int) -> np.ndarray:
    """Those of the prompt's tokens at the places `own`, float32; `more` may have been made after them.

    Raises Unable where the prompt's are not as many as `tokens`.
    """
    values = np.array((choice.logprobs and choice.logprobs.token_logprobs) or [], np.float32)
    whole = len(values) > 0 and len(values) == len(choice.logprobs.tokens or values) in (tokens, tokens + more)
    whole = whole and own.max(initial=0) < tokens
    values = values[:tokens]
    if whole and 0 in own and not np.isfinite(values[0]):
        raise Unable("gives no log-probability of a text's first token; set the tokenizer in http to the model's own")
    if not whole or not np.isfinite(values[own]).all():
        given = np.count_nonzero(np.isfinite(values[1:]))
        said = (
            f"{given} log-probabilities where a prompt's tokens have {tokens - 1}" if given else "no log-probabilities"
        )
        raise Unable(f"gives {said} (echo with logprobs)")
    return values[own]


def begins(choice: Choice, text: str, count: int) -> np.ndarray:
    """The character of `text` at which each of the first `count` tokens begins, which one of the server's own may open.

    Raises Unable where that does not show.
    """
    shown, said = (choice.logprobs.tokens or [])[:count], (choice.logprobs.text_offset or [])[:count]
    ends = np.cumsum([0, *map(len, shown)])
    if text in ("".join(shown), "".join(shown[1:])):
        return ends[:-1] - (ends[-1] - len(text))
    widths = np.diff(said, append=len(text))  # 0: a token that stands for no text, or begins inside a character
    if len(said) == len(shown) and (widths >= 0).all():
        placed = zip(shown, said, widths, strict=True)
        if all(not width or piece(token) or text.startswith(token, begin) for token, begin, width in placed):
            return np.array(said, np.int64)
    raise Unable("does not show which tokens are the continuation's; set http.tokenizer to the model's own")


def piece(token: str) -> bool:
    """Whether it stands for a piece of a character, which servers write in ways of their own."""
    return not token or "\ufffd" in token or token.startswith("bytes:")


def likeliest(choice: Choice) -> dict[str, float]:
    """Text and log p of the tokens shown for the first place."""
    shown = choice.logprobs.top_logprobs if choice.logprobs else None
    return (shown[0] if shown else None) or {}


def answer(choice: Choice, stop: str) -> tuple[str, float]:
    """The text up to the stop string, and the mean log-prob of its tokens; nan where the server doesn't show it.

    Raises Unable where another token was likelier.
    """
    text, logprobs = choice.text.split(stop, 1)[0], choice.logprobs
    if not (logprobs and logprobs.tokens and logprobs.token_logprobs):
        return text, float("nan" if text else "-inf")
    log_probs = np.array(logprobs.token_logprobs, np.float64)
    most = np.array([max((one or {}).values(), default=-np.inf) for one in logprobs.top_logprobs or []])
    if len(most) == len(log_probs) and (most - log_probs > SAME).any():
        place = int((most - log_probs).argmax())
        more = most[place] - log_probs[place]
        raise Unable(
            f"answers {logprobs.tokens[place]!r} where another token is likelier by {more:.1f} nats; switch its "
            "penalties off, there or in http.extra (as repeat_penalty: 1.0)"
        )
    if not text:
        return text, float("-inf")
    begin = logprobs.text_offset or np.cumsum([0, *map(len, logprobs.tokens)])[:-1]
    return text, float(log_probs[np.asarray(begin) - begin[0] < len(text)].mean())
