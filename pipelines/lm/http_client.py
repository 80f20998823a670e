"""Send prompts to a server in batches, and keep each answer, so that it is paid for once.

The ledger has the kept answers, the cost so far, and the rate limits. All stages share its SQLite
file. A request is entered before it is sent, at its highest cost, and corrected when the server
says what it used. A request that was lost, or whose stage was killed, stays entered at its highest
cost.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import requests
from urllib3.exceptions import NewConnectionError

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm.server_answers import Choice, Silent, Unable, Usage
from pipelines.params import params
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.work import http

TIMEOUT = (30, 600)  # seconds to connect and to answer
ATTEMPTS = 8  # attempts of one request; the pauses between them double, to four minutes in all
PROBE_ATTEMPTS = 3  # attempts of a request that tries out the server
TEMPLATE_TOKENS = 64  # tokens that a chat's template may add to a message
UNABLE = (400, 422, 501)  # status codes for what a server can't do
# An error within an answer of status 200 -> its HTTP status; the first pattern that fits counts.
STATUSES = (
    (r"rate.?limit|too.?many|throttl|exhausted|quota|capacity|concurren|qps|slow.?down", 429),
    (
        r"overload|unavailable|loading|busy|warming|time.?out|timed.out|deadline|bad.?gateway"
        r"|upstream|provider",
        503,
    ),
    (r"api.?key|authenti|unauthori|credential", 401),
    (
        r"credit|billing|payment|balance|permission|forbidden|denied|moderat|not.?found"
        r"|not.?exist|no such",
        404,
    ),
    (
        r"invalid|bad.?request|context.?length|too.?l(ong|arge)|supported|value.?error"
        r"|content.?filter",
        400,
    ),
    (r"server.?error|internal|api.?error|exception|failed|\"finish_reason\":\s*\"error", 503),
)
# The status that an error names, in JSON and in other text.
CODE = re.compile(r"(?i)(?:code|status)\w*\"?:\s*\"?([45]\d\d)\b|^[^{\[]*?\b([45]\d\d)\b")
ERROR_BYTES = 2000  # bytes of an answer that may say what is wrong
MINUTE = 60.0  # seconds
TABLES = (
    "CREATE TABLE IF NOT EXISTS spent "
    "(model TEXT PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    # where each answer comes from
    "CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, server TEXT, model TEXT)",
    "CREATE TABLE IF NOT EXISTS recent "
    "(id INTEGER PRIMARY KEY, model TEXT, at REAL, tokens INTEGER)",
)

Result = TypeVar("Result")


class _Index(msgspec.Struct):
    index: int


class _Choices(msgspec.Struct):
    choices: list[msgspec.Raw]


class _Used(msgspec.Struct):
    usage: Usage


class _End(msgspec.Struct):
    """How a choice ended."""

    error: Any = None
    finish_reason: Any = None


class _Head(msgspec.Struct):
    """The fields that say whether an answer holds an error. The long rest is not read."""

    choices: list[_End]
    error: Any = None


class Tokens(NamedTuple):
    """Numbers of tokens."""

    prompt: int
    completion: int


class Ledger(KeptAnswers):
    """The kept answers and the entries of one model, in `folder`.

    The model is called `name` in the params and `model` on the server.
    """

    def __init__(self, folder: Path, name: str, model: str, server: params.LMServer) -> None:
        super().__init__(folder, math.inf)
        self._name = name
        self._model = f"{server.url} {model}"
        self._server = server
        for table in TABLES:
            self._db.execute(table)
        self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0, 0.0)", (self._model,))
        self.usage = {
            "lm_requests": 0.0,
            "lm_prompt_tokens": 0.0,
            "lm_completion_tokens": 0.0,
            "lm_cost": 0.0,
            "lm_reasoned": 0.0,  # answers whose reasoning was cut off
            "lm_undecided": 0.0,  # answers that the mixture left undecided
        }

    def _put_also(self, keys: Iterable[str]) -> None:
        """Note which server and model the answers come from."""
        server = self._server.url.rstrip("/")
        model = self._model.partition(" ")[2]
        rows = [(key, server, model) for key in keys]
        self._db.executemany(
            "INSERT OR REPLACE INTO asked (key, server, model) VALUES (?, ?, ?)", rows
        )

    def enter(self, most: Tokens) -> tuple[int | None, float]:
        """Enter a request that takes at most `most` tokens; returns its number and 0.

        If it would pass a limit per minute, returns None and the seconds to wait. Raises
        LongtailError where its cost may pass `max_cost`.
        """
        max_requests = self._server.requests_per_minute or math.inf
        max_tokens = self._server.tokens_per_minute or math.inf
        with self._writing():
            now = time.time()
            self._db.execute("DELETE FROM recent WHERE at < ?", (now - MINUTE,))
            requests_before, tokens_before, first = self._db.execute(
                "SELECT count(*), total(tokens), min(at) FROM recent WHERE model = ?",
                (self._model,),
            ).fetchone()
            too_many = requests_before >= max_requests or tokens_before + sum(most) > max_tokens
            if requests_before and too_many:  # a request too large for a minute is sent alone
                return None, max(0.01, first + MINUTE - now)

            self._check_cost(most)
            self._add(most, requests=1)
            inserted = self._db.execute(
                "INSERT INTO recent (model, at, tokens) VALUES (?, ?, ?)",
                (self._model, now, sum(most)),
            )
            return inserted.lastrowid, 0.0

    def _check_cost(self, most: Tokens) -> None:
        """Raise LongtailError where `most` tokens more may pass `max_cost`."""
        limit = self._server.max_cost
        if limit is None:
            return
        query = "SELECT cost FROM spent WHERE model = ?"
        (spent,) = self._db.execute(query, (self._model,)).fetchone()
        cost = self._cost(most)
        if spent + cost > limit:
            raise LongtailError(
                f"params.yaml: lm.{self._name}.http.max_cost is {limit:g}: {spent:.4g} are spent, "
                f"and the next request may cost {cost:.4g}; raise it to go on, all answers so far "
                "are kept"
            )

    def correct(self, number: int, most: Tokens, used: Tokens) -> None:
        """Change the entry `number` from `most` tokens to those that were `used`."""
        difference = Tokens(used.prompt - most.prompt, used.completion - most.completion)
        with self._writing():
            self._add(difference, requests=0)
            self._db.execute("UPDATE recent SET tokens = ? WHERE id = ?", (sum(used), number))

    def _add(self, tokens: Tokens, requests: int) -> None:
        """Add tokens and their cost to what the model spent, here and in all stages together."""
        cost = self._cost(tokens)
        self._db.execute(
            "UPDATE spent SET prompt_tokens = prompt_tokens + ?, "
            "completion_tokens = completion_tokens + ?, cost = cost + ? WHERE model = ?",
            (tokens.prompt, tokens.completion, cost, self._model),
        )
        self.usage["lm_requests"] += requests
        self.usage["lm_prompt_tokens"] += tokens.prompt
        self.usage["lm_completion_tokens"] += tokens.completion
        self.usage["lm_cost"] += cost

    def _cost(self, tokens: Tokens) -> float:
        prompt_cost = tokens.prompt * self._server.prompt_price
        completion_cost = tokens.completion * self._server.completion_price
        return (prompt_cost + completion_cost) / 1000  # prices are for 1,000 tokens


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
        asked = _Asked(prompts, read, lasts, probe, fields)
        for i, prompt in enumerate(prompts):
            key = self._cache_key(prompt, fields)
            if len(lasts):
                key += f":{lasts[i]}"
            asked.rows_of_key.setdefault(key, []).append(i)

        try:
            missing = self._accept_kept(asked)
            size = 1 if self.chat else self._settings.batch_size
            batches = [missing[start : start + size] for start in range(0, len(missing), size)]

            def ask_batch(keys: list[str]) -> None:
                self._ask_batch(asked, keys)

            with self.block():
                for _ in self.map(ask_batch, batches, None):
                    progress.advance(size, len(prompts) * times)
        except LongtailError as error:
            message = str(error)
            if self._key:  # a server may repeat the key in its words
                message = message.replace(self._key, "...")
            raise type(error)(message) from None
        return [asked.results[i] for i in range(len(prompts))]

    def _accept_kept(self, asked: _Asked) -> list[str]:
        """Read the answers that are kept; returns the keys of the prompts that have none."""
        missing = []
        for key in asked.rows_of_key:
            is_kept, raw = self._ledger.get(key)
            if is_kept:
                self._accept(asked, key, raw)
            else:
                missing.append(key)
        return missing

    def _ask_batch(self, asked: _Asked, keys: list[str]) -> None:
        """Send a request for the prompts of these keys, and keep the answers that are accepted."""
        first_rows = [asked.rows_of_key[key][0] for key in keys]
        batch = [asked.prompts[row] for row in first_rows]
        raws = self._request(batch, asked.probe, asked.fields)
        accepted = {}
        try:
            for key, row, raw in zip(keys, first_rows, raws, strict=True):
                self._accept(asked, key, raw)
                accepted[key] = raw
                if len(asked.lasts):
                    scored = asked.results[row].astype("<f4").tobytes()
                    accepted[key] = msgspec.json.encode({"text": "", "scored": scored})
        finally:  # the answers before a bad one are paid for
            self._ledger.put(accepted)

    def _accept(self, asked: _Asked, key: str, raw: bytes) -> None:
        """Read an answer for all rows that have its prompt."""
        choice = _decoded(raw, Choice, self.url)
        try:
            for row in asked.rows_of_key[key]:
                asked.results[row] = asked.read(row, choice)
        except (Unable, Silent) as error:
            raise type(error)(f"{self.url}: {self._name} {error}") from None

    def close(self) -> None:
        """Close the connections and the ledger."""
        super().close()
        self._ledger.close()

    def _cache_key(self, prompt: str | Sequence[int], fields: dict) -> str:
        """A hash of the request for this prompt alone, without the server's key."""
        body = json.dumps([self.url, self._body(prompt, fields)], sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()

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
        choices = [bytes(raw) for raw in _decoded(answer.content, _Choices, self.url).choices]
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
            self.go_on()
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
class _Asked:
    """Prompts that are asked together, and the results so far. Equal prompts are asked once."""

    prompts: Sequence[str | Sequence[int]]
    read: Callable[[int, Choice], Any]
    lasts: Sequence[int]
    probe: bool
    fields: dict[str, Any]
    rows_of_key: dict[str, list[int]] = field(default_factory=dict)  # the prompts' numbers
    results: dict[int, Any] = field(default_factory=dict)  # by the prompt's number


def unwrap(answer: requests.Response) -> None:
    """Give an answer of status 200 that holds an error the status of that error."""
    if answer.status_code != 200:
        return
    message = _error_in(answer.content)
    status = _status_named(message) if message is not None else None
    if status is not None:
        answer.status_code = status
        answer.reason = "within an answer of status 200"


def _error_in(body: bytes) -> str | None:
    """The part of an answer's body that may name an error; None for an answer without one."""
    beginning = body[:ERROR_BYTES].decode("utf-8", "replace")
    try:
        head = msgspec.json.decode(body, type=_Head)
    except msgspec.ValidationError:  # JSON of another kind
        return beginning
    except http.BROKEN:
        is_cut_json = beginning.lstrip()[:1] in ("{", "[")
        return None if is_cut_json else beginning

    for choice in head.choices:
        if choice.error or choice.finish_reason == "error":
            return msgspec.json.encode(choice).decode()
    if head.choices and not head.error:
        return None
    return msgspec.json.encode(head).decode()


def _status_named(message: str) -> int | None:
    """The HTTP status that an error's text names or means; None for another text."""
    code = CODE.search(message)
    if code:
        return int(code[1] or code[2])
    for words, status in STATUSES:
        if re.search(words, message, re.IGNORECASE):
            return status
    return None


def check_json(body: bytes) -> None:
    """Raise Again for JSON that was cut.

    What is no JSON, as NaN is not, would come again and cost again.
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except http.BROKEN as error:
        is_object = body.lstrip()[:1] == b"{"
        ends_early = "truncated" in str(error) or not body.rstrip().endswith(b"}")
        if is_object and ends_early:
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
