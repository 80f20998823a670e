"""A language model behind OpenAI's completions interface: vLLM, llama.cpp, TGI, or a paid service.

What the server can do is tried out before any work: scoring needs the log-probabilities of the prompt's own tokens
(`echo` with `logprobs`), which many servers accept and then silently leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from transformers import AutoTokenizer
from urllib3.util import Retry

from pipelines.errors import LongtailError
from pipelines.lm.protocol import Generation, Prompt, Scores
from pipelines.lm.tokens import Ragged, byte_counts, cut

BATCH = 32  # prompts in a request
TIMEOUT = (10, 300)  # seconds to connect, to answer
RETRIED = (408, 409, 429, 500, 502, 503, 504)


class HttpModel:
    """`folder` may hold the model's tokenizer: with it too long prompts are cut, without it the server refuses them."""

    def __init__(
        self, url: str, model: str, folder: Path, *, max_tokens: int, api_key: str | None = None, back_off: float = 1.0
    ) -> None:
        if not (url and model and max_tokens):
            raise LongtailError(
                "params.yaml: lm.source is http, so lm.url (the server), lm.path (the model's name there) and "
                "lm.max_tokens (what it reads at once) must be set"
            )
        self.name, self.max_tokens, self._url, self._model = model, max_tokens, url.rstrip("/") + "/completions", model
        self._session = requests.Session()
        retry = Retry(  # honours Retry-After by itself
            total=8, status_forcelist=RETRIED, allowed_methods=None, backoff_factor=back_off, raise_on_status=False
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry))
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"
        self._tokenizer = AutoTokenizer.from_pretrained(folder) if (Path(folder) / "tokenizer.json").is_file() else None
        self._scores = self._can_score()

    # ------------------------------------------------------------------ the protocol

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """See LanguageModel. The tokens are the server's; a token that begins in the prompt counts to the prompt.

        Raises LongtailError where the server gives no log-probabilities of prompts.
        """
        self.require_scoring()
        log_probs, ends = [], []
        for start in range(0, len(prompts), BATCH):
            asked = slice(start, start + BATCH)
            both = list(zip(prompts[asked], continuations[asked], strict=True))
            texts = [self._shown(prompt, self.max_tokens - self._count(c))[0] for prompt, c in both]
            whole = [text + c for text, (_, c) in zip(texts, both, strict=True)]
            for text, full, choice in zip(texts, whole, self._complete(whole, max_tokens=0, echo=True), strict=True):
                own, stops = _continuation(choice["logprobs"], len(text), len(full))
                log_probs.append(own)
                ends.append(stops)
        counted = Ragged.of(ends)
        return Scores(log_probs, counted.split(byte_counts(continuations, counted)))

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """Always raises LongtailError: the interface shows only a few of the most likely tokens."""
        raise LongtailError(
            f"{self._url}: shows only the few most likely next tokens of {self.name}, not its whole distribution; "
            "it can still generate answers" + (" and score texts" if self._scores else "")
        )

    def token_id(self, text: str) -> int:
        """See LanguageModel. Raises LongtailError without the model's tokenizer."""
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"] if self._tokenizer else []
        if len(ids) != 1:
            raise LongtailError(f"{text!r} is not one token for {self.name}, or its tokenizer is not at hand")
        return ids[0]

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """See LanguageModel. The mean log-probability is over the tokens that the server shows, before `stop`."""
        results = []
        for start in range(0, len(prompts), BATCH):
            shown = [self._shown(prompt, self.max_tokens - max_tokens) for prompt in prompts[start : start + BATCH]]
            choices = self._complete([text for text, _ in shown], max_tokens=max_tokens, stop=[stop])
            for (_, tokens), choice in zip(shown, choices, strict=True):
                text, log_prob = _answer(choice, stop)
                results.append(Generation(text, log_prob, tokens))
        return results

    def require_scoring(self) -> None:
        """Raise LongtailError, before any work, where the server can't score."""
        if not self._scores:
            raise LongtailError(
                f"{self._url}: gives no log-probabilities of the prompt's tokens (echo with logprobs), so {self.name} "
                "can't score; it can still generate answers (`answer`, and the ensemble by vote)"
            )

    # ------------------------------------------------------------------ the server

    def _complete(self, prompts: Sequence[str], **asked) -> list[dict]:
        """The choices for each prompt, in order. Raises LongtailError with the server's own words on any refusal."""
        body = {"model": self._model, "prompt": list(prompts), "temperature": 0, "logprobs": 1, **asked}
        try:
            response = self._session.post(self._url, json=body, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise LongtailError(
                f"{self._url}: no answer from the server ({type(error).__name__}); is it running?"
            ) from None
        if response.status_code != 200:
            said = " ".join(response.text.split())[:300]
            hint = "; set LONGTAIL_API_KEY" if response.status_code in (401, 403) else ""
            raise LongtailError(f"{self._url}: HTTP {response.status_code}: {said}{hint}")
        try:
            choices = sorted(response.json()["choices"], key=lambda choice: choice["index"])
        except (ValueError, KeyError, TypeError):
            raise LongtailError(
                f"{self._url}: not the answer of a completions server, expected JSON with choices"
            ) from None
        if len(choices) != len(prompts):
            raise LongtailError(f"{self._url}: {len(choices)} choices for {len(prompts)} prompts, expected one each")
        return choices

    def _can_score(self) -> bool:
        """Whether the log-probabilities of a prompt come back. A refused request means no, no server is an error."""
        try:
            logprobs = self._complete(["one two three"], max_tokens=0, echo=True)[0].get("logprobs") or {}
        except LongtailError as error:
            if "HTTP 4" in str(error) and "HTTP 401" not in str(error) and "HTTP 403" not in str(error):
                return False
            raise
        values, offsets = logprobs.get("token_logprobs") or [], logprobs.get("text_offset") or []
        return len(values) == len(offsets) > 1 and all(isinstance(value, float) for value in values[1:])

    # ------------------------------------------------------------------ tokens

    def _offsets(self, text: str) -> np.ndarray:
        """Beginning and end of each token in characters, (tokens, 2); none where the tokenizer is not at hand."""
        if self._tokenizer is None:
            return np.empty((0, 2), np.int64)
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return np.array(encoded["offset_mapping"], np.int64).reshape(-1, 2)

    def _count(self, text: str) -> int:
        return len(self._offsets(text))

    def _shown(self, prompt: Prompt, room: int) -> tuple[str, int]:
        """What the server gets of a prompt, cut as Prompt says to `room` tokens less one of its own, and its tokens."""
        text = prompt.document + prompt.context
        ends = self._offsets(text)[:, 1]
        if len(ends) < room:
            return text, len(ends)
        document = np.count_nonzero(ends <= len(prompt.document))
        head, kept = (int(n) for n in cut(np.array(document), np.array(len(ends) - document), np.array(room - 1)))
        first = ends[len(ends) - kept - 1] if kept < len(ends) else 0  # where the last token that goes ends
        return text[: ends[head - 1] if head else 0] + text[first:], head + kept


def _continuation(logprobs: dict, start: int, end: int) -> tuple[np.ndarray, list[int]]:
    """Log-probs of the tokens from character `start` to `end` of the echoed text, and where each ends after `start`.

    A token that begins before `start` is the prompt's: a server's tokens need not respect where the prompt ends.
    """
    offsets = np.array(logprobs["text_offset"], np.int64)
    inside = (offsets >= start) & (offsets < end)
    stops = np.append(offsets[1:], end)[inside]
    values = [value for value, chosen in zip(logprobs["token_logprobs"], inside, strict=True) if chosen]
    return np.array(values, np.float32), (np.minimum(stops, end) - start).tolist()


def _answer(choice: dict, stop: str) -> tuple[str, float]:
    """The text up to the stop string, and the mean log-prob of its tokens where the server shows them."""
    text = choice["text"].split(stop, 1)[0]
    logprobs = choice.get("logprobs") or {}
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    begins = np.cumsum([0, *map(len, tokens)])[:-1]
    own = [value for value, begin in zip(values, begins, strict=True) if begin < len(text) and value is not None]
    return text, float(np.mean(own)) if own else float("-inf")
