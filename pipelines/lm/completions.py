"""OpenAI's completions interface: prompts in batches, several requests at once, each answer kept and paid for once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec
import requests
from urllib3.exceptions import NewConnectionError

from pipelines import params, web
from pipelines.errors import LongtailError
from pipelines.lm.choice import Choice, Unable
from pipelines.lm.ledger import Ledger, Tokens

TIMEOUT = (30, 600)  # seconds to connect, and to answer
ATTEMPTS = 8  # of one request: with the pauses doubling, four minutes
PROBES = 3  # attempts while nothing is known of the server
LOOK = 0.5  # seconds between two looks for what another process is asking for
UNABLE = (400, 422, 501)  # how servers refuse what they can't do

Result = TypeVar("Result")


class _Place(msgspec.Struct):
    index: int


class _Choices(msgspec.Struct):
    choices: list[msgspec.Raw]


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0


class _Used(msgspec.Struct):
    usage: _Usage


class Completions(web.Client):
    """The model `model` of `server`, which the params call `name`; answers and costs are kept in the folder `cache`."""

    def __init__(self, name: str, model: str, server: params.LMServer, key: str | None, cache: Path) -> None:
        super().__init__(server.concurrency, TIMEOUT)
        self.url = server.url.rstrip("/") + "/completions"
        self._name, self._model, self._batch, self._key = name, model, server.batch_size, key
        self._extra, self._reads = server.extra, server.max_tokens
        self.session.auth = self._sign  # set even without a key: requests would look for one in ~/.netrc
        self._ledger = Ledger(cache, name, model, server)

    @property
    def usage(self) -> dict[str, float]:
        """Requests, tokens and cost since this was made."""
        return dict(self._ledger.usage)

    def ask(
        self,
        prompts: Sequence[str | Sequence[int]],
        read: Callable[[int, Choice], Result],
        *,
        probe: bool = False,
        **asked,
    ) -> list[Result]:
        """`read(i, choice)` of what the server makes of each prompt, text or token ids, in order.

        A choice is kept once all its prompt's reads went well, and then never asked for again; what another process is
        asking for at the moment is waited for. `read` raises Unable for one that isn't what was `asked`. Raises
        LongtailError with the server's own words on any refusal (Unable, if it can't do this; of a `probe` also where
        it fails each time), and before a request that may pass `max_cost`.
        """
        places: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            places.setdefault(self._name_of(prompt, asked), []).append(i)
        results: dict[int, Result] = {}

        def accept(name: str, raw: bytes) -> None:
            choice = _decoded(raw, Choice, self.url)
            try:
                results.update((i, read(i, choice)) for i in places[name])
            except Unable as error:
                raise Unable(f"{self.url}: {error}") from None

        def missing(names: Iterable[str]) -> list[str]:
            """Those of which no answer is kept; the others are read."""
            left = []
            for name in names:
                found, raw = self._ledger.get(name)
                if found:
                    accept(name, raw)
                else:
                    left.append(name)
            return left

        def request(names: list[str]) -> list[str]:
            """Ask for all but what another process asks for: its names."""
            with self._ledger.claimed(names) as own:
                if asking := missing(own):  # it may have come since it was looked for
                    raws = self._request([prompts[places[name][0]] for name in asking], probe, asked)
                    good = {}
                    try:
                        for name, raw in zip(asking, raws, strict=True):
                            accept(name, raw)
                            good[name] = raw
                    finally:  # those before a bad one are paid for
                        self._ledger.put(good)
                return [name for name in names if name not in own]

        try:
            left = missing(places)
            while left:
                batches = [left[start : start + self._batch] for start in range(0, len(left), self._batch)]
                done = self.map(request, batches, self._name if len(batches) > 1 else None)
                if left := list(chain.from_iterable(done)):
                    self.pause(LOOK)
                    left = missing(left)
        except LongtailError:
            self.restart()
            raise
        return [results[i] for i in range(len(prompts))]

    def close(self) -> None:
        super().close()
        self._ledger.close()

    def _name_of(self, prompt: str | Sequence[int], asked: dict) -> str:
        """By which the answer is kept: all of the request, had it been for this prompt alone; the key is no part."""
        body = json.dumps([self.url, self._body(prompt, asked)], sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()

    def _body(self, prompt, asked: dict) -> dict:
        return {"model": self._model, "prompt": prompt, "temperature": 0, **self._extra, **asked}

    def _request(self, prompts: list, probe: bool, asked: dict) -> list[bytes]:
        """The choice, as JSON, for each prompt."""
        statuses: list[int] = []
        try:
            answer = self.send(
                "POST",
                self.url,
                json=self._body(prompts if len(prompts) > 1 else prompts[0], asked),  # some take no list of one
                check=self._check,
                attempts=PROBES if probe else ATTEMPTS,
                hooks={"response": lambda answer, **_: statuses.append(answer.status_code)},
            )
            if answer.status_code != 200:
                kind = Unable if answer.status_code in UNABLE else LongtailError
                hint = "; set LONGTAIL_API_KEY" if answer.status_code in (401, 403) else ""
                raise kind(f"{web.refusal(answer, self.url)}{hint}")
        except LongtailError as error:  # a server may say the key in its refusal
            said = str(error).replace(self._key, "...") if self._key else str(error)
            kind = Unable if probe and statuses[-1:] == [500] else type(error)  # servers' other way to say they can't
            raise kind(said) from None
        choices = _decoded(answer.content, _Choices, self.url).choices
        used = _used(answer, Tokens(0, 0)).prompt
        if used > self._reads * len(prompts):  # some servers go on beyond what the model has learnt to read
            raise LongtailError(
                f"{self.url}: {used} tokens in {len(prompts)} prompts, where lm.{self._name}.http.max_tokens is "
                f"{self._reads}; with its tokenizer set, prompts are cut"
            )
        if len(choices) != len(prompts):
            raise Unable(f"{self.url}: {len(choices)} choices for {len(prompts)} prompts, expected one each")
        return sorted(map(bytes, choices), key=lambda raw: _decoded(raw, _Place, self.url).index)

    def _check(self, body: bytes) -> None:
        """Cut JSON is asked for again; a page that is no JSON at all comes from no completions server."""
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except msgspec.DecodeError:
            if body.lstrip()[:1] == b"{":
                raise web.Again("the answer was cut") from None

    def _once(self, method: str, url: str, **request) -> requests.Response:
        """One attempt, entered in the ledger at the most that it may cost, and then at what it cost."""
        body = request["json"]
        prompts = _several(body["prompt"])
        most = Tokens(sum(map(most_tokens, prompts)), body["max_tokens"] * len(prompts))
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
                self._ledger.correct(number, most, Tokens(0, 0))  # it never got there
            raise
        self._ledger.correct(number, most, _used(answer, most))
        return answer

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def _several(prompt: str | Sequence) -> Sequence[str | Sequence[int]]:
    """The prompts of a request, which says a single one without a list around it."""
    return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


def most_tokens(prompt: str | Sequence[int]) -> int:
    """No token is less than a byte; one more may begin the text."""
    return len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)


def _used(answer: requests.Response, most: Tokens) -> Tokens:
    """What the answer cost: nothing if it is a refusal, `most` if it doesn't say or was cut."""
    if answer.status_code != 200:
        return Tokens(0, 0)
    try:
        usage = msgspec.json.decode(answer.content, type=_Used).usage
    except msgspec.DecodeError:
        return most
    return Tokens(usage.prompt_tokens, usage.completion_tokens)


def _decoded(raw: bytes, kind: type, url: str):
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise LongtailError(
            f"{url}: not the answer of a completions server ({error}), expected JSON with choices"
        ) from None
