"""Send prompts to a server, each in a request, and keep each answer, so that it is paid for once.

The answers and what they cost are in the ledger (ledger.py).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import requests
from urllib3.exceptions import NewConnectionError

from pipelines import progress, redaction
from pipelines.errors import BROKEN_JSON, LongtailError, Unreachable
from pipelines.lm import cut_prompts
from pipelines.lm.hidden_errors import unwrap
from pipelines.lm.language_model import no_answer
from pipelines.lm.ledger import Ledger, Tokens
from pipelines.lm.served_models import is_same_model
from pipelines.lm.server_answers import (
    Choice,
    Refused,
    Silent,
    Unable,
    Usage,
    with_whole_characters,
)
from pipelines.params import params
from pipelines.work import http

TIMEOUT = (30, 600)  # seconds to connect and to answer
ATTEMPTS = 8  # attempts of one request; the pauses between them double, to four minutes in all
PROBE_ATTEMPTS = 3  # attempts of a request that tries out the server
MOST_CHECKS = 5  # times that a server is asked whether it cuts prompts
TEMPLATE_TOKENS = 64  # tokens that a chat's template may add to a message
UNABLE = (400, 422, 501)  # status codes for what a server can't do
# Status codes for a prompt that a filter, a firewall or a server's limit refuses.
REFUSED = (*UNABLE, 403, 413, 424, 451)
# What a server says of a field that it wants or refuses -> what to write.
EXTRA = {
    r"max_completion_tokens": "max_completion_tokens: 1000, for thoughts and answer,",
    r"(?i)temperature.*(support|positive)|support.*temperature": (
        "temperature: null, with which answers are drawn at random,"
    ),
    r"enable_thinking must be": "enable_thinking: false",
}
HEADER_VALUE = re.compile("[!-~]+")  # of a key
PROMPT_SHOWN = 80  # characters at a prompt's end, which has its question, in a message

Result = TypeVar("Result")


class TooMany(Unreachable):
    """The server answers 429 to all attempts: the limit of an account, and no fault of a prompt."""


class _Choices(msgspec.Struct):
    choices: list[msgspec.Raw] | None
    model: Any = None  # that answered


class _Used(msgspec.Struct):
    usage: Usage


class CompletionsClient(http.Client):
    """The model `model` of the server in `settings`, which the params call `name`.

    Answers and costs are kept in the folder `cache`. With `chat`, each prompt is a user's message
    to the chat interface.
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
        address = urlsplit(settings.url)
        self.url = address._replace(path=address.path.rstrip("/") + interface).geturl()
        self._is_azure = "api-version=" in address.query
        self._name = name
        self.model = model
        self._settings = settings
        self._key = _header_value(key)
        if self._key:  # without it, requests looks for a user in ~/.netrc
            self.session.auth = self._sign
        self._ledger = Ledger(cache, name, model, settings)
        self.usage = self._ledger.usage
        # A prompt with which nothing is wrong: does the server answer it, when it refuses another?
        self.harmless: str | Sequence[int] = ""
        self._counts = cut_prompts.Counts()
        self._checks_left = MOST_CHECKS

    def ask(
        self,
        prompts: Sequence[str | Sequence[int]],
        read: Callable[[int, Choice], Result],
        *,
        lasts: Sequence[int] = (),
        probe: bool = False,
        times: int = 1,
        may_be_refused: bool = False,
        **fields,
    ) -> list[Result]:
        """`read(i, choice)` of the server's answer to each prompt i, in order.

        Prompts are texts or token ids. `fields` are the request's other fields. An answer is kept
        once `read` accepts it, and is never asked for again. With `lasts`, `read` returns the
        log-probabilities of so many last tokens of each prompt, and only these are kept. Work that
        asks so many `times` shows a part of its progress each time.

        A prompt that the server does not answer, where it answers others, has the result
        `no_answer(reason)` if it `may_be_refused`, and is asked for again next time. Otherwise
        LongtailError is raised with the server's words. It is Unable where the server can't do
        this, or where a `probe` fails. Raises LongtailError as well before a request that may pass
        `max_cost`.
        """
        pending = _Pending(prompts, read, lasts, probe, may_be_refused, fields)
        for i, prompt in enumerate(prompts):
            key = self._cache_key(prompt, fields)
            if len(lasts):
                key += f":{lasts[i]}"
            pending.rows_of_key.setdefault(key, []).append(i)

        def ask_one(key: str) -> None:
            self._ask_one(pending, key)

        missing = self._accept_kept(pending)
        with self.sending():
            for _ in self.map(ask_one, missing, None):
                progress.advance(1, len(prompts) * times)
        return [pending.results[i] for i in range(len(prompts))]

    def _accept_kept(self, pending: _Pending) -> list[str]:
        """Read the answers that are kept; returns the keys of the prompts that have none."""
        missing = []
        for key in pending.rows_of_key:
            is_kept, raw = self._ledger.get(key)
            choice = _decoded(raw, Choice, self.url) if is_kept else None
            if choice and not choice.refusal:
                self._accept(pending, key, choice)
            else:
                missing.append(key)
        return missing

    def _ask_one(self, pending: _Pending, key: str) -> None:
        """Send the prompt with this key, and keep the answer if it is accepted."""
        row = pending.rows_of_key[key][0]
        prompt = pending.prompts[row]
        try:
            raw = self._request(prompt, pending.probe, pending.fields, pending.may_be_refused)
        except TooMany:
            raise
        except (Refused, Unreachable) as error:
            self._check_harmless(pending, error)
            self._set_aside(pending, key, error)
            return

        choice = _decoded(raw, Choice, self.url)
        if choice.refusal:
            reason = f"{self.url}: {self._name} gives no answer: {choice.refusal}"
            self._set_aside(pending, key, Refused(reason))
            return
        self._accept(pending, key, choice)
        self._ledger.put({key: pending.kept_form(row, raw)})

    def _check_harmless(self, pending: _Pending, error: LongtailError) -> None:
        """Raise the `error` where it is not the fault of a prompt.

        The server does not answer a harmless prompt either then.
        """
        if not pending.may_be_refused:
            raise error
        try:
            self._request(self.harmless, True, pending.fields)
        except LongtailError:
            raise error from None

    def _set_aside(self, pending: _Pending, key: str, error: LongtailError) -> None:
        """Leave a prompt without an answer, or raise the error where that may not be."""
        if not pending.may_be_refused:
            raise error
        reason = str(error)
        rows = pending.rows_of_key[key]
        for row in rows:
            pending.results[row] = no_answer(reason)
        self._ledger.count("lm_unanswered")
        prompt = pending.prompts[rows[0]]
        end = repr(prompt[-PROMPT_SHOWN:]) if isinstance(prompt, str) else f"{len(prompt)} tokens"
        print(f"{self._name}: no answer to a prompt that ends with {end}: {reason}")

    def _accept(self, pending: _Pending, key: str, choice: Choice) -> None:
        """Read an answer for all rows that have its prompt."""
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

    def _body(self, prompt: str | Sequence[int], fields: dict) -> dict:
        """A request's JSON for a prompt."""
        extra = self._settings.extra
        body = {"model": self.model, "temperature": 0, **extra, **fields}
        left_out = [name for name, value in extra.items() if value is None]
        if "max_completion_tokens" in extra:
            left_out.append("max_tokens")
        for name in left_out:
            body.pop(name, None)
        if not self.chat:
            return body | {"prompt": prompt}
        if "logprobs" in fields:
            body |= {"logprobs": True, "top_logprobs": fields["logprobs"]}
        return body | {"messages": [{"role": "user", "content": prompt}]}

    def _request(
        self,
        prompt: str | Sequence[int],
        probe: bool,
        fields: dict,
        may_be_refused: bool = False,
    ) -> bytes:
        """Send one request; returns the prompt's choice, as JSON.

        A status of 500 that comes again and again is a refusal where the prompt `may_be_refused`.
        Raises Refused or another LongtailError for a refusal.
        """
        answer = self._answered(prompt, probe, fields, may_be_refused)
        decoded = _decoded(answer.content, _Choices, self.url)
        usage = _usage(answer)
        if usage:
            self._check_whole(prompt, usage, fields)
        choices = decoded.choices or []
        if may_be_refused and not choices:  # as Gemini answers a prompt that it blocks
            body = http.beginning(answer.content)
            raise Refused(f"{self.url}: an answer without choices: {body}")
        if len(choices) != 1:
            raise Unable(f"{self.url}: {len(choices)} choices for a prompt, expected one")

        about: dict[str, Any] = {}  # what the server says beside the choice, and is kept with it
        if decoded.model and not is_same_model(self.model, str(decoded.model)):
            about["other_model"] = str(decoded.model)
        if self.chat and usage and usage.prompt_tokens:
            about["usage"] = usage
        choice = bytes(choices[0])
        return msgspec.json.encode(msgspec.json.decode(choice) | about) if about else choice

    def _check_whole(self, prompt: str | Sequence[int], usage: Usage, fields: dict) -> None:
        """Raise LongtailError where the server's count of tokens shows that it cuts the prompt.

        It does so as well where it is longer than the params say. Where the server may cut it, it
        is asked again: for the prompt, for half of it, and for twice the prompt. A count of this
        prompt alone proves nothing: the server may leave out what is in its cache, and a tokenizer
        may put several words into one token.
        """
        max_tokens = self._settings.max_tokens
        if usage.prompt_tokens > max_tokens:
            # Some servers read more than the model was trained on.
            raise LongtailError(
                f"{self.url}: {usage.prompt_tokens} tokens in a prompt, where "
                f"lm.{self._name}.http.max_tokens is {max_tokens}; with its tokenizer set, "
                "prompts are cut"
            )
        if not isinstance(prompt, str) or not self._checks_left:
            return  # the client itself has cut token ids
        words = cut_prompts.count_words(prompt)
        tokens = usage.tokens_read
        if not self._counts.may_be_cut(tokens, words):
            return
        self._checks_left -= 1
        tokens_of_new = self._tokens_of_new(prompt, fields)
        if tokens_of_new > tokens + cut_prompts.NEW_TOKENS:
            return  # it had left out what is in its cache
        of_half = self._tokens_of_new(prompt[: len(prompt) // 2], fields)
        try:
            of_twice = self._tokens_of_new(f"{prompt} {prompt}", fields, probe=True)
        except LongtailError:
            of_twice = 2 * tokens_of_new  # a server that refuses what is too long cuts nothing
        if not cut_prompts.is_cut(tokens_of_new, of_half, of_twice):
            return
        message = (
            f"{self.url}: {tokens_of_new} tokens in a prompt of {words} words, {of_half} in half "
            f"of it, {of_twice} in twice of it"
        )
        if tokens >= cut_prompts.SMALLEST_CONTEXT:
            raise LongtailError(f"{message}: the server cuts it; {cut_prompts.ADVICE}")
        print(f"{message}: the server cuts it, or counts wrong")
        self._checks_left = 0

    def _tokens_of_new(self, prompt: str, fields: dict, *, probe: bool = False) -> int:
        """The tokens that the server counts in a text whose beginning is in no cache."""
        usage = _usage(self._answered(f"{uuid.uuid4()} {prompt}", probe, fields))
        return usage.tokens_read if usage else 0

    def _answered(
        self,
        prompt: str | Sequence[int],
        probe: bool,
        fields: dict,
        may_be_refused: bool = False,
    ) -> requests.Response:
        """The server's answer to one request. Raises Refused or LongtailError for a refusal."""
        statuses: list[int] = []
        try:
            answer = self.send(
                "POST",
                self.url,
                json=self._body(prompt, fields),
                check=check_json,
                attempts=PROBE_ATTEMPTS if probe else ATTEMPTS,
                statuses=statuses,
                may_be_refused=may_be_refused,
            )
        except LongtailError as error:
            if statuses[-1:] == [429]:
                raise TooMany(str(error)) from None
            if probe and statuses[-1:] == [500]:  # some servers answer so to what they can't do
                raise Unable(str(error)) from None
            raise

        status = answer.status_code
        if status == 200:
            return answer
        message = f"{http.refusal(answer, self.url)}{self._advice(answer)}"
        if may_be_refused and status in REFUSED:
            raise Refused(message)
        raise Unable(message) if status in UNABLE else LongtailError(message)

    def _advice(self, answer: requests.Response) -> str:
        """What to do about a refusal, after its words; "" where nothing is known."""
        if answer.status_code in (401, 403):
            if self._key:
                return "; LONGTAIL_API_KEY is not its key, or the key has no right to this"
            return "; set LONGTAIL_API_KEY, or name a user for this host in ~/.netrc"
        if answer.status_code in UNABLE:
            words = answer.content[: http.BLOCK].decode("utf-8", "replace")
            for said, entry in EXTRA.items():
                if re.search(said, words):
                    return f"; write {entry} into lm.{self._name}.http.extra"
        return ""

    def _once(
        self, method: str, url: str, *, statuses: list[int], may_be_refused: bool, **request
    ) -> requests.Response:
        """Make one attempt, which the ledger enters before and corrects after.

        Adds the answer's status to `statuses`. Raises Refused for the last of PROBE_ATTEMPTS that
        fail with 500, where the prompts `may_be_refused`.
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
        self._mend(answer)
        unwrap(answer)
        statuses.append(answer.status_code)
        self._ledger.correct(number, most, _used(answer, most))
        if may_be_refused and statuses.count(500) == PROBE_ATTEMPTS:
            raise Refused(str(http.refusal(answer, self.url)))
        return answer

    def _mend(self, answer: requests.Response) -> None:
        """Replace halves of characters in an answer's JSON, and count such answers.

        The key is taken out: some servers put into an answer what went wrong with it.
        """
        body = answer.raw.read()
        mended = with_whole_characters(body)
        shown = redaction.without_known(mended.decode("utf-8", "surrogateescape"))
        answer.raw = io.BytesIO(shown.encode("utf-8", "surrogateescape"))
        if mended != body:
            self._ledger.count("lm_mended")

    def _most_tokens(self, body: dict) -> Tokens:
        """The most tokens that a request may cost."""
        prompt = body["messages"][0]["content"] if self.chat else body["prompt"]
        prompt_tokens = len(prompt)
        if isinstance(prompt, str):
            # A text has at most one token per byte, and one that may begin it.
            prompt_tokens = len(prompt.encode()) + 1
        if self.chat:
            prompt_tokens += TEMPLATE_TOKENS
        new_tokens = body.get("max_completion_tokens") or body.get("max_tokens")
        return Tokens(prompt_tokens, new_tokens or self._settings.max_tokens)

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._is_azure:
            request.headers["api-key"] = self._key
        else:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


@dataclass
class _Pending:
    """Prompts of one `ask`, and the results so far. Equal prompts are asked once."""

    prompts: Sequence[str | Sequence[int]]
    read: Callable[[int, Choice], Any]
    lasts: Sequence[int]
    probe: bool
    may_be_refused: bool
    fields: dict[str, Any]
    rows_of_key: dict[str, list[int]] = field(default_factory=dict)  # the prompts' numbers
    results: dict[int, Any] = field(default_factory=dict)  # by the prompt's number

    def kept_form(self, row: int, raw: bytes) -> bytes:
        """What is kept of an answer: all of it, or of a scored prompt the last tokens' scores."""
        if not len(self.lasts):
            return raw
        scored = self.results[row].astype("<f4").tobytes()
        return msgspec.json.encode({"text": "", "scored": scored})


def _header_value(key: str | None) -> str | None:
    """A key as a header takes it, without what stands around it in files; None if there is none.

    Raises LongtailError where no header can have it.
    """
    redaction.remember(key)
    bare = (key or "").strip(redaction.AROUND)
    if bare and not HEADER_VALUE.fullmatch(bare):
        raise LongtailError(
            "LONGTAIL_API_KEY: white space or a character that no key has, such as … where a page "
            "cuts it; copy the whole key alone"
        )
    return bare or None


def check_json(body: bytes) -> None:
    """Raise Again for JSON that was cut.

    Other invalid JSON, such as NaN, is not asked for again: the same would come, and cost again.
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except BROKEN_JSON as error:
        is_object = body.lstrip()[:1] == b"{"
        has_end = body.rstrip().endswith(b"}") and "truncated" not in str(error)
        if is_object and not has_end:
            raise http.Again("the answer was cut") from None


def _used(answer: requests.Response, most: Tokens) -> Tokens:
    """The tokens that an answer cost: 0 for a refusal, `most` where it does not say or was cut."""
    if answer.status_code != 200:
        return Tokens(0, 0)
    usage = _usage(answer)
    return Tokens(usage.prompt_tokens, usage.completion_tokens) if usage else most


def _usage(answer: requests.Response) -> Usage | None:
    """The tokens that a request cost; None where the answer does not say it, or is cut."""
    try:
        return msgspec.json.decode(answer.content, type=_Used).usage
    except BROKEN_JSON:
        return None


def _decoded(raw: bytes, struct: type, url: str) -> Any:
    """JSON as a `struct`. Raises LongtailError where it is none."""
    try:
        return msgspec.json.decode(raw, type=struct)
    except BROKEN_JSON as error:
        raise LongtailError(
            f"{url}: not the answer of a completions server ({error}), "
            f"expected JSON with choices: {http.beginning(raw)}"
        ) from None
