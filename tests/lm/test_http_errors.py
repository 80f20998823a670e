"""An error within an answer of status 200 is dealt with as an answer of the error's own status."""

import json
from types import SimpleNamespace

import pytest
import requests
from http_faults import Fault

from pipelines.errors import LongtailError
from pipelines.lm import http_errors
from pipelines.lm.language_model import Prompt
from pipelines.work import web

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Par"}}


def error(**fields) -> dict:
    return {"error": fields}


BODIES = {  # who answers so -> (body, the status that it stands for)
    "OpenRouter": (error(message="Provider returned error", code=502), 502),
    "OpenRouter, a limit": (
        error(message="Rate limit exceeded: free-models-per-day", code=429) | {"user_id": "u"},
        429,
    ),
    "OpenRouter, no credits": (error(message="Insufficient credits", code=402), 402),
    "OpenRouter, midway": ({"choices": [CHOICE | {"error": {"code": 503, "message": "x"}}]}, 503),
    "OpenRouter, nothing said": ({"choices": [CHOICE | {"finish_reason": "error"}]}, 502),
    "OpenRouter, beside an answer": ({"choices": [CHOICE], **error(code=500)}, 500),
    "OpenRouter, another's error": (error(code=503, metadata={"raw": {"error": {"code": 400}}}), 503),
    "OpenAI": (error(message="x", type="invalid_request_error", code="rate_limit_exceeded"), 429),
    "OpenAI, its server": (error(message="The server had an error", type="server_error", code=None), 503),
    "OpenAI, the key": (error(message="Incorrect", type="invalid_request_error", code="invalid_api_key"), 401),
    "OpenAI, the length": (error(type="invalid_request_error", code="context_length_exceeded"), 400),
    "Anthropic": ({"type": "error", **error(type="overloaded_error", message="Overloaded")}, 503),
    "Gemini": ([error(code=429, status="RESOURCE_EXHAUSTED", message="x")], 429),
    "Gemini, by name": ([error(status="UNAVAILABLE", message="x")], 503),
    "vLLM": ({"object": "error", "message": "x", "type": "InternalServerError", "param": None, "code": 500}, 500),
    "vLLM, the model": ({"object": "error", "message": "x", "type": "NotFoundError", "code": 404}, 404),
    "LiteLLM": (error(message="x", type="None", param="None", code="429"), 429),
    "FastAPI": ({"detail": "Not Found"}, 404),
    "FastAPI, a field": ({"detail": [{"loc": ["body"], "msg": "x", "type": "value_error.missing"}]}, 400),
    "Mistral": ({"object": "error", "message": "x", "type": "service_tier_capacity_exceeded", "code": "3505"}, 429),
    "a gateway": ({"message": "Too many requests", "code": "Throttling.RateQuota"}, 429),
    "Azure": ({"statusCode": 429, "message": "Rate limit is exceeded."}, 429),
    "TGI": ({"error": "Model is overloaded", "error_type": "overloaded"}, 503),
    "the Hub": ({"error": "Model x is currently loading", "estimated_time": 20.0}, 503),
    "llama.cpp": (error(code=503, message="Loading model", type="unavailable_error"), 503),
    "Ollama": ({"error": "model 'x' not found, try pulling it first"}, 404),
    "MiniMax": ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, 429),
    "Qianfan": ({"error_code": 18, "error_msg": "Open api qps request limit reached"}, 429),
    "NIM": ({"type": "urn:problem", "title": "Too Many Requests", "status": 429}, 429),
    "events": ('data: {"choices": [{"delta": {}}]}\n\ndata: {"error": {"code": 502}}\n\ndata: [DONE]\n', 502),
    "events with names": ('event: error\ndata: {"error": {"type": "overloaded_error"}}\n', 503),
    "a page": ("<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>", 502),
    "a page with its number below": ("<!DOCTYPE html><html><h1>Error 524</h1></html>", 524),
    "plain text": ("error code: 504", 504),
    "plain words": ("upstream connect error or disconnect/reset before headers", 503),
    "an answer": ({"choices": [CHOICE | {"finish_reason": "stop"}], "error": None, "code": 500}, None),
    "an answer about errors": ({"choices": [CHOICE | {"text": "error 500: invalid"}]}, None),
    "another page": ("<!DOCTYPE html><h1>Hello</h1>", None),
    "an error of no known kind": (error(code="E17", message="no"), None),
    "cut": ('{"error": {"code": 502', None),
    "nothing": ("", None),
}


def answered(body: object, status: int = 200, **headers: str) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer._content = status, (body if isinstance(body, str) else json.dumps(body)).encode()
    answer.headers.update(headers)
    http_errors.unwrap(answer)
    return answer


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_an_error_has_the_status_that_it_names_or_its_words_mean(body, status):
    assert answered(body).status_code == (status or 200)


NOW = 4_000_000_000.0  # seconds since 1970
LATER = {"code": 429, "metadata": {"headers": {"X-RateLimit-Reset": str(int(NOW + 600) * 1000)}}}


@pytest.mark.parametrize(
    ("body", "least", "most"),
    [
        (error(code=429, metadata={"headers": {"Retry-After": "40"}}), 40, 40),
        (error(code=429, metadata={"retry_after_seconds": 7.5}), 8, 8),
        (error(code=429, retry_after_ms=2500), 3, 3),
        ([error(code=429, details=[{"@type": "RetryInfo", "retryDelay": "37s"}])], 37, 37),
        (error(code="rate_limit_exceeded", message="Please try again in 1m12.5s. Visit us"), 73, 73),
        (error(code=429, message="Please retry after 6 seconds."), 6, 6),
        ({"error": "Model x is currently loading", "estimated_time": 20.0}, 20, 20),
        (error(**LATER), 600, 600),
    ],
)
def test_the_time_that_an_error_asks_to_wait_is_waited(body, least, most, monkeypatch):
    monkeypatch.setattr(http_errors, "time", SimpleNamespace(time=lambda: NOW))
    for status in (200, 429):
        assert least <= int(answered(body, status).headers["Retry-After"]) <= most
    assert answered(body, **{"Retry-After": "1"}).headers["Retry-After"] == "1", "a header says it better"
    assert "Retry-After" not in answered(body, 401).headers


def as_fault(body: object) -> Fault:
    return Fault(body=(body if isinstance(body, str) else json.dumps(body)).encode())


def test_what_may_pass_is_asked_for_again_and_costs_nothing(opened, server, local, cost, monkeypatch):
    lm, pauses = opened(prompt_price=1.0, batch_size=1, concurrency=1), []
    monkeypatch.setattr(web.Client, "pause", lambda _, seconds: pauses.append(round(seconds)))
    before, prompt = cost(), [Prompt("a b c")]
    wait = error(code=429, metadata={"retry_after_seconds": 40})
    server.faults = [as_fault(body) for body in (BODIES["OpenRouter"][0], BODIES["a page"][0], wait)]
    assert lm.generate(prompt, 3)[0].text == local.generate(prompt, 3)[0].text
    assert 40 in pauses
    read = len(server.requests[-1]["prompt"])
    assert cost() - before == pytest.approx(read / 1000), "three errors are not paid for"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OpenAI, the key", "answers 401 within an answer of status 200: .*; set LONGTAIL_API_KEY"),
        ("OpenRouter, no credits", "answers 402 within an answer of status 200: .*Insufficient credits"),
        ("Ollama", "answers 404 within .*try pulling it first"),
        ("an error of no known kind", "not the answer of a completions server .*E17"),
    ],
)
def test_what_will_not_pass_is_refused_at_once_in_the_servers_words(opened, server, name, words):
    server.faults = [as_fault(BODIES[name][0])] * 3
    with pytest.raises(LongtailError, match=words):
        opened()
    assert len(server.requests) == 1
