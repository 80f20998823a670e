"""Servers that want other fields, headers or addresses than OpenAI's first ones."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from completions_server import settings
from http_faults import Fault, Handler, Server, reply, serving

from pipelines.errors import LongtailError
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt
from pipelines.work import http

Answer = tuple[int, dict]


class Played(Server):
    """Answers as `respond(path, headers, body)` says."""

    respond: Callable[[str, dict, dict], Answer]

    def __init__(self) -> None:
        super().__init__(_Plays)


class _Plays(Handler):
    server: Played

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.begin(self.path, body)
        status, answer = self.server.respond(self.path, self.headers, body)
        reply(self, json.dumps(answer).encode(), Fault(status), {})


def answered(text: str = "politician") -> Answer:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    return 200, {"choices": [choice], "usage": usage}


def refused(status: int, message: str) -> Answer:
    return status, {"error": {"message": message, "type": "invalid_request_error"}}


TEMPERATURE = {  # a refusal, and a value that is taken
    "OpenAI": ("Unsupported value: 'temperature' does not support 0 with this model.", None),
    "TGI": ("Input validation error: `temperature` must be strictly positive", 1),
}


def newest(refusal: str, path: str, headers: dict, body: dict) -> Answer:
    """A model that thinks, as OpenAI's of 2025 and 2026; `refusal` is of its temperature."""
    if "max_tokens" in body:
        return refused(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
        )
    if body.get("temperature", 1) != 1:
        return refused(400, refusal)
    assert "stop" not in body, "these models refuse it, too"
    if body.get("enable_thinking", True):
        return refused(400, "enable_thinking must be set to false for non-streaming calls")
    if "logprobs" in body:
        return refused(400, "Unsupported parameter: 'logprobs'")
    return answered() if body["max_completion_tokens"] == 900 else refused(400, "too few")


def azure(path: str, headers: dict, body: dict) -> Answer:
    if headers["api-key"] != "s3cret-key" or headers["Authorization"]:
        return refused(401, "Access denied due to invalid subscription key")
    right = "/openai/deployments/gpt/chat/completions?api-version=2024-10-21"
    return answered() if path == right else refused(404, "Resource not found")


def behind_basic_auth(path: str, headers: dict, body: dict) -> Answer:
    given = headers["Authorization"]
    return answered() if given == "Basic YWRhOmxvdmVsYWNl" else refused(401, f"no: {given}")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(http, "BACKOFF", 0.0)
    monkeypatch.setenv("NETRC", "/dev/null")
    with serving(Played()) as server:
        yield server


def texts(
    played: Played, cache: Path, key: str | None = None, path: str = "/v1", **change
) -> list[str]:
    chosen = settings(f"{played.address}{path}", None, chat=True, **change)
    model = HttpModel(Path("gpt"), chosen, key, cache)
    return [made.text for made in model.generate([Prompt("Q: 1 A:"), Prompt("Q: 2 A:")], 15)]


@pytest.mark.parametrize(("refusal", "taken"), TEMPERATURE.values(), ids=TEMPERATURE)
def test_a_field_that_a_server_wants_or_refuses_is_in_extra(played, tmp_path, refusal, taken):
    played.respond = partial(newest, refusal)
    extra = {}
    for entry, value, said in [
        ("max_completion_tokens", 900, "write max_completion_tokens: 1000"),
        ("temperature", taken, "write temperature: null"),
        ("enable_thinking", False, "write enable_thinking: false"),
    ]:
        with pytest.raises(LongtailError, match=rf"{said}.* into lm\.gpt\.http\.extra$"):
            texts(played, tmp_path, extra=extra)
        extra[entry] = value
    assert texts(played, tmp_path, extra=extra) == ["politician"] * 2
    with pytest.raises(LongtailError, match=r"max_cost is 0\.5: 0 are spent, .* may cost 0\.9"):
        texts(played, tmp_path / "paid", extra=extra, completion_price=1.0, max_cost=0.5)


def test_an_address_may_have_a_version_whose_key_has_a_header_of_its_own(played, tmp_path):
    played.respond = azure
    path = "/openai/deployments/gpt/?api-version=2024-10-21"
    assert texts(played, tmp_path, "s3cret-key\n", path) == ["politician"] * 2
    with pytest.raises(LongtailError, match=r"401 .*; LONGTAIL_API_KEY is not its key"):
        texts(played, tmp_path / "other", "another-key", path)


def test_a_user_of_netrc_signs_in_where_there_is_no_key(played, tmp_path, monkeypatch):
    played.respond = behind_basic_auth
    with pytest.raises(LongtailError, match=r"401 .*; set LONGTAIL_API_KEY, or .* ~/\.netrc"):
        texts(played, tmp_path)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password lovelace\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert texts(played, tmp_path) == ["politician"] * 2
    with pytest.raises(LongtailError, match=r"no: Bearer \(secret\)"):
        texts(played, tmp_path / "other", "s3cret-key")
