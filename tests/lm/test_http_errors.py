"""An error within an answer of status 200 is dealt with as an answer of the error's own status."""

import json

import pytest
import requests
from http_faults import Fault

from pipelines.errors import LongtailError
from pipelines.lm import hidden_errors
from pipelines.lm.language_model import Prompt
from pipelines.work import http

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Par"}}


def error(**fields) -> dict:
    return {"error": fields}


BODIES = {  # who answers so -> (body, the status that it stands for)
    "OpenRouter": (error(message="Provider returned error", code=502), 502),
    "OpenRouter, a limit": (error(message="Rate limit exceeded: free-models-per-day", code=429) | {"user_id": "u"}, 429),
    "OpenRouter, no credits": (error(message="Insufficient credits", code=402), 402),
    "OpenRouter, midway": ({"choices": [CHOICE | {"error": {"code": 503, "message": "x"}}]}, 503),
    "OpenRouter, nothing said": ({"choices": [CHOICE | {"finish_reason": "error"}]}, 503),
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
}  # fmt: skip


def answered(body: object) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer._content = (
        200,
        (body if isinstance(body, str) else json.dumps(body)).encode(),
    )
    hidden_errors.unwrap(answer)
    return answer


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_an_error_has_the_status_that_it_names_or_its_words_mean(body, status):
    assert answered(body).status_code == (status or 200)


def as_fault(body: object) -> Fault:
    return Fault(body=(body if isinstance(body, str) else json.dumps(body)).encode())


def test_what_may_pass_is_asked_for_again_and_costs_nothing(
    opened, server, local, cost, monkeypatch
):
    lm = opened(prompt_price=1.0, concurrency=1)
    monkeypatch.setattr(http.Client, "pause", lambda *_: None)
    before, prompt = cost(), [Prompt("a b c")]
    server.faults = [as_fault(BODIES[name][0]) for name in ("OpenRouter", "a page", "Gemini")]
    assert lm.generate(prompt, 3)[0].text == local.generate(prompt, 3)[0].text
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
)  # fmt: skip
def test_what_will_not_pass_is_refused_at_once(opened, server, name, words):
    server.faults = [as_fault(BODIES[name][0])] * 3
    with pytest.raises(LongtailError, match=words):
        opened()
    assert len(server.requests) == 1
