"""Send prompts to a server in batches, and keep each answer, so that it is paid for once.

The answers and what they cost are in the ledger (ledger.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import requests
from urllib3.exceptions import NewConnectionError

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm.hidden_errors import unwrap
from pipelines.lm.ledger import Ledger, Tokens
from pipelines.lm.server_answers import Choice, Silent, Unable, Usage
from pipelines.params import params
from pipelines.work import http

TIMEOUT = (30, 600)  # seconds to connect and to answer
ATTEMPTS = 8  # attempts of one request; the pauses between them double, to four minutes in all
PROBE_ATTEMPTS = 3  # attempts of a request that tries out the server
TEMPLATE_TOKENS = 64  # tokens that a chat's template may add to a message
UNABLE = (400, 422, 501)  # status codes for what a server can't do

Result = TypeVar("Result")


class _Index(msgspec.Struct):
    index: int


class _Choices(msgspec.Struct):
    choices: list[msgspec.Raw]


class _Used(msgspec.Struct):
    usage: Usage


class CompletionsClient(http.Client):
    """The model `model` of the server in `settings`, which the params call `name`.

    Answers and costs are kept in the folder `cache`. With `chat`, each prompt is a user's message
    to the chat interface, in a request of its own.
    """

    def __init__(
        self,
        name: str,
        model: str,
        settings: params.LMServer,
        key: str | None,
        cache: Path,
        chat: bool,
    ) -> None:
        super().__init__(settings.concurrency, TIMEOUT)
        self.chat = chat
        interface = "/chat/completions" if chat else "/completions"
        self.url = settings.url.rstrip("/") + interface
        self._name = name
        self._model = model
        self._settings = settings
        self._key = key
        # Set even without a key, because requests would look for one in ~/.netrc.
        self.session.auth = self._sign
        self._ledger = Ledger(cache, name, model, settings)
        self.usage = self._ledger.usage

    def ask(
        self,
        prompts: Sequence[str | Sequence[int]],
        read: Callable[[int, Choice], Result],
        *,
        lasts: Sequence[int] = (),
        probe: bool = False,
        times: int = 1,
        **fields,
    ) -> list[Result]:
        """`read(i, choice)` of the server's answer to each prompt i, in order.

        Prompts are texts or token ids. `fields` are the request's other fields. An answer is kept
        once `read` accepts it, and is never asked for again. With `lasts`, `read` returns the
        log-probabilities of so many last tokens of each prompt, and only these are kept. Work that
        asks so many `times` shows a part of its progress each time.

        Raises LongtailError before a request that may pass `max_cost`, and with the server's words
        where it refuses. That is Unable where it can't do this, or where a `probe` fails.
        """
        pending = _Pending(prompts, read, lasts, probe, fields)
        for i, prompt in enumerate(prompts):
            key = self._cache_key(prompt, fields)
            if len(lasts):
                key += f":{lasts[i]}"
            pending.rows_of_key.setdefault(key, []).append(i)

        def ask_batch(keys: list[str]) -> None:
            self._ask_batch(pending, keys)

        try:
            missing = self._accept_kept(pending)
            size = 1 if self.chat else self._settings.batch_size
            starts = range(0, len(missing), size)
            batches = [missing[start : start + size] for start in starts]
            with self.sending():
                for _ in self.map(ask_batch, batches, None):
                    progress.advance(size, len(prompts) * times)
        except LongtailError as error:
            message = str(error)
            if self._key:  # a server may repeat the key in its words
                message = message.replace(self._key, "...")
            raise type(error)(message) from None
        return [pending.results[i] for i in range(len(prompts))]

    def _accept_kept(self, pending: _Pending) -> list[str]:
        """Read the answers that are kept; returns the keys of the prompts that have none."""
        missing = []
        for key in pending.rows_of_key:
            is_kept, raw = self._ledger.get(key)
            if is_kept:
                self._accept(pending, key, raw)
            else:
                missing.append(key)
        return missing

    def _ask_batch(self, pending: _Pending, keys: list[str]) -> None:
        """Send a request for the prompts of these keys, and keep the answers that are accepted."""
        rows = [pending.rows_of_key[key][0] for key in keys]
        prompts = [pending.prompts[row] for row in rows]
        raws = self._request(prompts, pending.probe, pending.fields)
        accepted = {}
        try:
            for key, row, raw in zip(keys, rows, raws, strict=True):
                self._accept(pending, key, raw)
                accepted[key] = pending.kept_form(row, raw)
        finally:  # the answers before a bad one are paid for
            self._ledger.put(accepted)

    def _accept(self, pending: _Pending, key: str, raw: bytes) -> None:
        """Read an answer for all rows that have its prompt."""
        choice = _decoded(raw, Choice, self.url)
        try:
            for row in pending.rows_of_key[key]:
                pending.results[row] = pending.read(row, choice)
        except (Unable, Silent) as error:
            raise type(error)(f"{self.url}: {self._name} {error}") from None

    def close(self) -> None:
        """Close the connections and the ledger."""
        super().close()
        self._ledger.close()

    def _cache_key(self, prompt: str | Sequence[int], fields: dict) -> str:
        """A hash of the request for this prompt alone, without the server's key."""
        request = [self.url, self._body(prompt, fields)]
        text = json.dumps(request, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _body(self, prompt: str | list, fields: dict) -> dict:
        """A request's JSON for a prompt, or for a list of prompts."""
        body = {"model": self._model, "temperature": 0, **self._settings.extra, **fields}
        if not self.chat:
            return body | {"prompt": prompt}
        if "logprobs" in fields:
            body |= {"logprobs": True, "top_logprobs": fields["logprobs"]}
        return body | {"messages": [{"role": "user", "content": prompt}]}

    def _request(self, prompts: list, probe: bool, fields: dict) -> list[bytes]:
        """Send one request; returns each prompt's choice, as JSON.

        Raises Unable or LongtailError for a refusal.
        """
        answer = self._answered(prompts, probe, fields)
        decoded = _decoded(answer.content, _Choices, self.url)
        choices = [bytes(raw) for raw in decoded.choices]
        used = _used(answer, Tokens(0, 0))
        max_tokens = self._settings.max_tokens
        if used.prompt > max_tokens * len(prompts):
            # Some servers read more than the model was trained on.
            raise LongtailError(
                f"{self.url}: {used.prompt} tokens in {len(prompts)} prompts, where "
                f"lm.{self._name}.http.max_tokens is {max_tokens}; with its tokenizer set, "
                "prompts are cut"
            )
        if len(choices) != len(prompts):
            raise Unable(
                f"{self.url}: {len(choices)} choices for {len(prompts)} prompts, expected one each"
            )

        if self.chat and used.prompt:
            usage = Usage(prompt_tokens=used.prompt, completion_tokens=used.completion)
            choice = msgspec.json.decode(choices[0]) | {"usage": usage}
            return [msgspec.json.encode(choice)]
        by_index = {_decoded(raw, _Index, self.url).index: raw for raw in choices}
        if set(by_index) != set(range(len(prompts))):
            raise Unable(
                f"{self.url}: choices with the indices {sorted(by_index)}, "
                f"expected 0 to {len(prompts) - 1}"
            )
        return [by_index[i] for i in range(len(prompts))]

    def _answered(self, prompts: list, probe: bool, fields: dict) -> requests.Response:
        """The server's answer to one request. Raises Unable or LongtailError for a refusal."""
        prompt = prompts if len(prompts) > 1 else prompts[0]  # some servers refuse a list of one
        statuses: list[int] = []
        try:
            answer = self.send(
                "POST",
                self.url,
                json=self._body(prompt, fields),
                check=check_json,
                attempts=PROBE_ATTEMPTS if probe else ATTEMPTS,
                statuses=statuses,
            )
        except LongtailError as error:
            if probe and statuses[-1:] == [500]:  # some servers answer so to what they can't do
                raise Unable(str(error)) from None
            raise

        status = answer.status_code
        if status == 200:
            return answer
        message = str(http.refusal(answer, self.url))
        if status in (401, 403):
            message += "; set LONGTAIL_API_KEY"
        raise Unable(message) if status in UNABLE else LongtailError(message)

    def _once(self, method: str, url: str, *, statuses: list[int], **request) -> requests.Response:
        """Make one attempt, which the ledger enters before and corrects after.

        Adds the answer's status to `statuses`.
        """
        most = self._most_tokens(request["json"])
        number, wait = self._ledger.enter(most)
        while number is None:
            self.pause(wait)
            self.raise_if_stopped()
            number, wait = self._ledger.enter(most)
        try:
            answer = super()._once(method, url, **request)
        except requests.ConnectionError as error:
            reason = getattr(error.args[0], "reason", None)
            if isinstance(reason, NewConnectionError) or isinstance(error, requests.ConnectTimeout):
                self._ledger.correct(number, most, Tokens(0, 0))  # it never reached the server
            raise
        unwrap(answer)
        statuses.append(answer.status_code)
        self._ledger.correct(number, most, _used(answer, most))
        return answer

    def _most_tokens(self, body: dict) -> Tokens:
        """The most tokens that a request may cost."""
        prompts = body["messages"][0]["content"] if self.chat else body["prompt"]
        if isinstance(prompts, str) or isinstance(prompts[0], int):
            prompts = [prompts]  # a single prompt is sent without a list

        prompt_tokens = 0
        for prompt in prompts:
            if isinstance(prompt, str):
                # A text has at most one token per byte, and one that may begin it.
                prompt_tokens += len(prompt.encode()) + 1
            else:
                prompt_tokens += len(prompt)
        if self.chat:
            prompt_tokens += TEMPLATE_TOKENS
        return Tokens(prompt_tokens, body["max_tokens"] * len(prompts))

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


@dataclass
class _Pending:
    """Prompts of one `ask`, and the results so far. Equal prompts are asked once."""

    prompts: Sequence[str | Sequence[int]]
    read: Callable[[int, Choice], Any]
    lasts: Sequence[int]
    probe: bool
    fields: dict[str, Any]
    rows_of_key: dict[str, list[int]] = field(default_factory=dict)  # the prompts' numbers
    results: dict[int, Any] = field(default_factory=dict)  # by the prompt's number

    def kept_form(self, row: int, raw: bytes) -> bytes:
        """What is kept of an answer: all of it, or of a scored prompt the last tokens' scores."""
        if not len(self.lasts):
            return raw
        scored = self.results[row].astype("<f4").tobytes()
        return msgspec.json.encode({"text": "", "scored": scored})


def check_json(body: bytes) -> None:
    """Raise Again for JSON that was cut.

    Other invalid JSON, such as NaN, is not asked for again: the same would come, and cost again.
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except http.BROKEN as error:
        is_object = body.lstrip()[:1] == b"{"
        has_end = body.rstrip().endswith(b"}") and "truncated" not in str(error)
        if is_object and not has_end:
            raise http.Again("the answer was cut") from None


def _used(answer: requests.Response, most: Tokens) -> Tokens:
    """The tokens that an answer cost: 0 for a refusal, `most` where it does not say or was cut."""
    if answer.status_code != 200:
        return Tokens(0, 0)
    try:
        usage = msgspec.json.decode(answer.content, type=_Used).usage
    except http.BROKEN:
        return most
    return Tokens(usage.prompt_tokens, usage.completion_tokens)


def _decoded(raw: bytes, struct: type, url: str) -> Any:
    """JSON as a `struct`. Raises LongtailError where it is none."""
    try:
        return msgspec.json.decode(raw, type=struct)
    except http.BROKEN as error:
        beginning = raw[: http.MESSAGE_LENGTH].decode("utf-8", "replace")
        raise LongtailError(
            f"{url}: not the answer of a completions server ({error}), "
            f"expected JSON with choices: {beginning}"
        ) from None
