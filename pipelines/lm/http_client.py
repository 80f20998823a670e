"""Send prompts to a server: in batches, several requests at once, each answer paid for once and kept.

The ledger has the kept answers, the cost so far, and the rate limits; all stages share one SQLite file. A request is
entered before it is sent, at its highest cost, and corrected when the server says what it used. A request that was
lost, or whose stage was killed, stays entered at its highest cost.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import requests
from urllib3.exceptions import NewConnectionError

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm.http_choice import Choice, Silent, Unable, Usage
from pipelines.params import params
from pipelines.work import http

TIMEOUT = (30, 600)  # seconds to connect and to answer
ATTEMPTS = 8  # attempts of one request; the pauses between them double, to four minutes in all
PROBE_ATTEMPTS = 3  # attempts of a request that tries out the server
TEMPLATE = 64  # tokens that a chat's template may add to a message
UNABLE = (400, 422, 501)  # status codes for what a server can't do
STATUSES = (  # what an error within an answer of status 200 says -> its HTTP status; the first that fits counts
    (r"rate.?limit|too.?many|throttl|exhausted|quota|capacity|concurren|qps|slow.?down", 429),
    (
        r"overload|unavailable|loading|busy|warming|time.?out|timed.out|deadline|bad.?gateway|upstream|provider",
        503,
    ),
    (r"api.?key|authenti|unauthori|credential", 401),
    (
        r"credit|billing|payment|balance|permission|forbidden|denied|moderat|not.?found|not.?exist|no such",
        404,
    ),
    (
        r"invalid|bad.?request|context.?length|too.?l(ong|arge)|supported|value.?error|content.?filter",
        400,
    ),
    (r"server.?error|internal|api.?error|exception|failed|\"finish_reason\":\s*\"error", 503),
)
CODE = re.compile(
    r"(?i)(?:code|status)\w*\"?:\s*\"?([45]\d\d)\b|^[^{\[]*?\b([45]\d\d)\b"
)  # in JSON, and in other text
MINUTE = 60.0  # seconds
TABLES = (
    "CREATE TABLE IF NOT EXISTS spent "
    "(model TEXT PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    "CREATE TABLE IF NOT EXISTS asked (key TEXT PRIMARY KEY, server TEXT, model TEXT)",  # the answers' source
    "CREATE TABLE IF NOT EXISTS recent (id INTEGER PRIMARY KEY, model TEXT, at REAL, tokens INTEGER)",
)

Result = TypeVar("Result")


class _Index(msgspec.Struct):
    index: int


class _Choices(msgspec.Struct):
    choices: list[msgspec.Raw]


class _Used(msgspec.Struct):
    usage: Usage


class _End(msgspec.Struct):
    error: Any = None
    finish_reason: Any = None


class _Head(msgspec.Struct):
    """What says whether an answer holds an error; the rest, which may be long, is not read."""

    choices: list[_End]
    error: Any = None


class Tokens(NamedTuple):
    prompt: int
    completion: int


class Ledger(http.Kept):
    """The entries of one model, called `name` in the params and `model` on the server. All are kept in `folder`."""

    def __init__(self, folder: Path, name: str, model: str, server: params.LMServer) -> None:
        super().__init__(folder, math.inf)
        self._name, self._model, self._server = name, f"{server.url} {model}", server
        for table in TABLES:
            self._db.execute(table)
        self._db.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0, 0.0)", (self._model,))
        # the last two: answers whose reasoning was cut off, and those that the mixture left undecided
        names = (
            "lm_requests",
            "lm_prompt_tokens",
            "lm_completion_tokens",
            "lm_cost",
            "lm_reasoned",
            "lm_undecided",
        )
        self.usage = dict.fromkeys(names, 0.0)

    def _put_also(self, keys: Iterable[str]) -> None:
        """Keep whose the answers are."""
        server, model = self._server.url.rstrip("/"), self._model.partition(" ")[2]
        rows = [(key, server, model) for key in keys]
        self._db.executemany(
            "INSERT OR REPLACE INTO asked (key, server, model) VALUES (?, ?, ?)", rows
        )

    def enter(self, most: Tokens) -> tuple[int | None, float]:
        """Enter a request that takes at most `most` tokens; returns its number and 0.

        If it would pass the limit per minute, returns None and the seconds to wait. Raises LongtailError where its cost
        may pass `max_cost`.
        """
        requests = self._server.requests_per_minute or math.inf
        tokens = self._server.tokens_per_minute or math.inf
        with self._writing():
            now = time.time()
            self._db.execute("DELETE FROM recent WHERE at < ?", (now - MINUTE,))
            requests_before, tokens_before, first = self._db.execute(
                "SELECT count(*), total(tokens), min(at) FROM recent WHERE model = ?",
                (self._model,),
            ).fetchone()
            too_many = requests_before >= requests or tokens_before + sum(most) > tokens
            if requests_before and too_many:  # a request too large for a minute is sent alone
                return None, max(0.01, first + MINUTE - now)
            (spent,) = self._db.execute(
                "SELECT cost FROM spent WHERE model = ?", (self._model,)
            ).fetchone()
            if (limit := self._server.max_cost) is not None and spent + self._cost(most) > limit:
                raise LongtailError(
                    f"params.yaml: lm.{self._name}.http.max_cost is {limit:g}: {spent:.4g} are spent, and the next "
                    f"request may cost {self._cost(most):.4g}; raise it to go on, all answers so far are kept"
                )
            self._add(most, requests=1)
            row = (self._model, now, sum(most))
            return self._db.execute(
                "INSERT INTO recent (model, at, tokens) VALUES (?, ?, ?)", row
            ).lastrowid, 0.0

    def correct(self, number: int, most: Tokens, used: Tokens) -> None:
        """Change the entry `number` from `most` tokens to those that were `used`."""
        with self._writing():
            self._add(
                Tokens(used.prompt - most.prompt, used.completion - most.completion), requests=0
            )
            self._db.execute("UPDATE recent SET tokens = ? WHERE id = ?", (sum(used), number))

    def _add(self, tokens: Tokens, requests: int) -> None:
        added = (*tokens, self._cost(tokens))
        self._db.execute(
            "UPDATE spent SET prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, "
            "cost = cost + ? WHERE model = ?",
            (*added, self._model),
        )
        for name, value in zip(self.usage, (requests, *added), strict=False):
            self.usage[name] += value

    def _cost(self, tokens: Tokens) -> float:
        server = self._server
        return (
            tokens.prompt * server.prompt_price + tokens.completion * server.completion_price
        ) / 1000


class CompletionsClient(http.Client):
    """The model `model` of the server in `settings`, called `name` in the params; answers and costs stay in `cache`.

    With `chat`, each prompt is a user's message to the chat interface, in a request of its own.
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
        self.chat, self.url = (
            chat,
            settings.url.rstrip("/") + ("/chat" if chat else "") + "/completions",
        )
        self._name, self._model, self._settings, self._key = name, model, settings, key
        self.session.auth = (
            self._sign
        )  # set even without a key: requests would look for one in ~/.netrc
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
        """`read(i, choice)` of the server's answer to each prompt, in order. Prompts are texts or token ids.

        `fields` are the request's other fields. An answer is kept once `read` accepts it, and is never asked for again.
        With `lasts`, only the results are kept: log-probabilities of so many last tokens of each prompt. Work that asks
        so many `times` shows a part of its progress each time. Raises LongtailError before a request that may pass
        `max_cost`, and with the server's own words where it refuses; that is Unable where it can't do this, or where a
        `probe` fails.
        """
        rows_of_key: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            key = self._cache_key(prompt, fields) + (f":{lasts[i]}" if len(lasts) else "")
            rows_of_key.setdefault(key, []).append(i)
        results: dict[int, Result] = {}

        def accept(key: str, raw: bytes) -> None:
            choice = _decoded(raw, Choice, self.url)
            try:
                results.update((i, read(i, choice)) for i in rows_of_key[key])
            except (Unable, Silent) as error:
                raise type(error)(f"{self.url}: {self._name} {error}") from None

        def request(keys: list[str]) -> None:
            raws, good = (
                self._request([prompts[rows_of_key[key][0]] for key in keys], probe, fields),
                {},
            )
            try:
                for key, raw in zip(keys, raws, strict=True):
                    accept(key, raw)
                    good[key] = raw
                    if len(lasts):
                        scored = results[rows_of_key[key][0]].astype("<f4").tobytes()
                        good[key] = msgspec.json.encode({"text": "", "scored": scored})
            finally:  # answers before a bad one are paid for
                self._ledger.put(good)

        missing, size = [], 1 if self.chat else self._settings.batch_size
        try:
            for key in rows_of_key:
                is_kept, raw = self._ledger.get(key)
                if is_kept:
                    accept(key, raw)
                else:
                    missing.append(key)
            with self.block():
                batches = [missing[start : start + size] for start in range(0, len(missing), size)]
                for _ in self.map(request, batches, None):
                    progress.advance(size, len(prompts) * times)
        except LongtailError as error:  # a server may repeat the key in what it says
            raise type(error)(str(error).replace(self._key or "\0", "...")) from None
        return [results[i] for i in range(len(prompts))]

    def close(self) -> None:
        super().close()
        self._ledger.close()

    def _cache_key(self, prompt: str | Sequence[int], fields: dict) -> str:
        """A hash of the request for this prompt alone, without the server's key."""
        body = json.dumps([self.url, self._body(prompt, fields)], sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()

    def _body(self, prompt, fields: dict) -> dict:
        body = {"model": self._model, "temperature": 0, **self._settings.extra, **fields}
        if not self.chat:
            return body | {"prompt": prompt}
        shown = (
            {"logprobs": True, "top_logprobs": fields["logprobs"]} if "logprobs" in fields else {}
        )
        return body | shown | {"messages": [{"role": "user", "content": prompt}]}

    def _request(self, prompts: list, probe: bool, fields: dict) -> list[bytes]:
        """Send one request; returns each prompt's choice, as JSON. Raises Unable or LongtailError for a refusal."""
        statuses: list[int] = []
        try:
            answer = self.send(
                "POST",
                self.url,
                json=self._body(
                    prompts if len(prompts) > 1 else prompts[0], fields
                ),  # some refuse a list of one
                check=check_json,
                attempts=PROBE_ATTEMPTS if probe else ATTEMPTS,
                statuses=statuses,
            )
        except LongtailError as error:
            if probe and statuses[-1:] == [500]:  # some say so of what they can't do
                raise Unable(str(error)) from None
            raise
        if answer.status_code != 200:
            kind = Unable if answer.status_code in UNABLE else LongtailError
            hint = "; set LONGTAIL_API_KEY" if answer.status_code in (401, 403) else ""
            raise kind(f"{http.refusal(answer, self.url)}{hint}")
        choices = list(map(bytes, _decoded(answer.content, _Choices, self.url).choices))
        used, most = _used(answer, Tokens(0, 0)), self._settings.max_tokens
        if used.prompt > most * len(
            prompts
        ):  # some servers read more than the model was trained on
            raise LongtailError(
                f"{self.url}: {used.prompt} tokens in {len(prompts)} prompts, where lm.{self._name}.http.max_tokens is "
                f"{most}; with its tokenizer set, prompts are cut"
            )
        if len(choices) != len(prompts):
            raise Unable(
                f"{self.url}: {len(choices)} choices for {len(prompts)} prompts, expected one each"
            )
        if self.chat and used.prompt:
            return [msgspec.json.encode(msgspec.json.decode(choices[0]) | {"usage": Usage(*used)})]
        placed = {_decoded(raw, _Index, self.url).index: raw for raw in choices}
        if set(placed) != set(range(len(prompts))):
            raise Unable(
                f"{self.url}: choices with the indices {sorted(placed)}, expected 0 to {len(prompts) - 1}"
            )
        return [placed[i] for i in range(len(prompts))]

    def _once(self, method: str, url: str, *, statuses: list[int], **request) -> requests.Response:
        """Make one attempt, entered in the ledger at its highest cost before and at its real cost after."""
        body = request["json"]
        prompts = body["messages"][0]["content"] if self.chat else body["prompt"]
        if isinstance(prompts, str) or isinstance(
            prompts[0], int
        ):  # a single prompt stands there without a list
            prompts = [prompts]
        # a prompt has at most one token per byte of a text, and one that may begin it
        sizes = [
            len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)
            for prompt in prompts
        ]
        most = Tokens(sum(sizes) + TEMPLATE * self.chat, body["max_tokens"] * len(prompts))
        number, wait = self._ledger.enter(most)
        while number is None:
            self.pause(wait)
            self.go_on()
            number, wait = self._ledger.enter(most)
        try:
            answer = super()._once(method, url, **request)
        except requests.ConnectionError as error:
            refused = isinstance(getattr(error.args[0], "reason", None), NewConnectionError)
            if refused or isinstance(error, requests.ConnectTimeout):
                self._ledger.correct(number, most, Tokens(0, 0))  # it never reached the server
            raise
        unwrap(answer)
        statuses.append(answer.status_code)
        self._ledger.correct(number, most, _used(answer, most))
        return answer

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def unwrap(answer: requests.Response) -> None:
    """Give an answer of status 200 that holds an error the status of that error."""
    if answer.status_code != 200:
        return
    said = answer.content[:2000].decode("utf-8", "replace")
    try:
        head = msgspec.json.decode(answer.content, type=_Head)
        ended = next(
            (one for one in head.choices if one.error or one.finish_reason == "error"), None
        )
        if head.choices and not (ended or head.error):
            return
        said = msgspec.json.encode(ended or head).decode()
    except msgspec.ValidationError:  # JSON of another kind
        pass
    except http.BROKEN:
        if said.lstrip()[:1] in ("{", "["):  # JSON that was cut
            return
    code = CODE.search(said)
    found = (
        (int(code[1] or code[2]),)
        if code
        else (status for words, status in STATUSES if re.search(words, said, re.I))
    )
    if status := next(iter(found), None):
        answer.status_code, answer.reason = status, "within an answer of status 200"


def check_json(body: bytes) -> None:
    """Raise Again for JSON that was cut. What is no JSON, as NaN is, would come again and cost again."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except http.BROKEN as error:
        if body.lstrip()[:1] == b"{" and (
            "truncated" in str(error) or not body.rstrip().endswith(b"}")
        ):
            raise http.Again("the answer was cut") from None


def _used(answer: requests.Response, most: Tokens) -> Tokens:
    """The tokens that an answer cost: none for a refusal, `most` where it does not say or was cut."""
    if answer.status_code != 200:
        return Tokens(0, 0)
    try:
        usage = msgspec.json.decode(answer.content, type=_Used).usage
    except http.BROKEN:
        return most
    return Tokens(usage.prompt_tokens, usage.completion_tokens)


def _decoded(raw: bytes, kind: type, url: str):
    try:
        return msgspec.json.decode(raw, type=kind)
    except http.BROKEN as error:
        beginning = raw[: http.SHOWN].decode("utf-8", "replace")
        raise LongtailError(
            f"{url}: not the answer of a completions server ({error}), expected JSON with choices: {beginning}"
        ) from None
