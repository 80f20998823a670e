"""A real HTTP server on loopback with OpenAI's completions interface over a small local model, and faults at will."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from wikimedia_server import Fault

from pipelines import params

NOTHING = -1  # a fault's `sent`: the connection is closed without even a status
LATE = -2  # likewise: nothing comes until `go_on`


class Completions(ThreadingHTTPServer):
    """The model in `folder`, which takes texts and token ids, one forward pass per prompt and token.

    The faults hit the next requests in turn, one each (None: no fault). `requests` are the bodies of all that came,
    `paid` counts the prompts that were answered, by the whole request.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.reset()

    def reset(self) -> None:
        self.faults: list[Fault | None] = []
        self.requests: list[dict] = []
        self.keys: set[str | None] = set()
        self.paid: Counter[str] = Counter()
        self.now = self.most = 0  # requests at the same time
        self.hold = 0.0  # seconds that every answer takes, so that requests overlap
        self.echo = True  # whether log-probabilities of prompts are shown
        self.shown = 20  # of the likeliest tokens, at most
        self.lost = 0  # log-probabilities of a prompt that are left out
        self.logprobs = self.usage = True
        self.stalls_after: int | None = None  # requests, after which none is answered until `go_on`
        self.go_on = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def complete(self, body: dict) -> dict:
        choices, made, prompts = [], 0, several(body["prompt"])
        for index, prompt in enumerate(prompts):
            ids = prompt if isinstance(prompt, list) else self.tokenizer(prompt)["input_ids"]
            choice = self._echoed(ids) if body.get("echo") else self._continued(ids, body)
            made += 0 if body.get("echo") else len(choice["logprobs"]["tokens"])
            choices.insert(0, {"index": index, "finish_reason": "length", **choice})  # in no helpful order
            if not self.logprobs or (body.get("echo") and not self.echo):
                choices[0]["logprobs"] = None
        read = sum(len(p) if isinstance(p, list) else len(self.tokenizer(p)["input_ids"]) for p in prompts)
        usage = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
        return {"object": "text_completion", "choices": choices} | ({"usage": usage} if self.usage else {})

    def _log_probs(self, ids: list[int]) -> torch.Tensor:
        with self.lock, torch.inference_mode():
            return torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0], -1)

    def _echoed(self, ids: list[int]) -> dict:
        rows = self._log_probs(ids)
        values = [None, *rows[range(len(ids) - 1), ids[1:]].tolist()][: len(ids) - self.lost]
        shown = {"tokens": self._texts(ids), "token_logprobs": values, "text_offset": self._offsets(ids)}
        return {"text": self.tokenizer.decode(ids), "logprobs": shown | {"top_logprobs": [None] * len(values)}}

    def _continued(self, ids: list[int], body: dict) -> dict:
        made, values, likeliest, text, stop = [], [], [], "", (body.get("stop") or ["\0"])[0]
        for _ in range(body["max_tokens"]):
            row = self._log_probs(ids + made)[-1]
            token = int(row.argmax())
            if token == self.tokenizer.eos_token_id and body.get("stop"):
                break
            made.append(token)
            values.append(float(row[token]))
            best = row.topk(min(body["logprobs"], self.shown))
            likeliest.append(dict(zip(self._texts(best.indices.tolist()), best.values.tolist(), strict=True)))
            text = self.tokenizer.decode(made, skip_special_tokens=True)
            if stop in text:
                break
        shown = {"tokens": self._texts(made), "token_logprobs": values, "text_offset": self._offsets(made)}
        return {"text": text.split(stop)[0], "logprobs": shown | {"top_logprobs": likeliest}}

    def _texts(self, ids: list[int]) -> list[str]:
        texts = self.tokenizer.batch_decode([[i] for i in ids])
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        return [f"bytes:{piece}" if "\ufffd" in text else text for text, piece in zip(texts, pieces, strict=True)]

    def _offsets(self, ids: list[int]) -> list[int]:
        *before, text = (self.tokenizer.decode(ids[:i], skip_special_tokens=True) for i in range(len(ids) + 1))
        # a piece of a character begins where the character does
        return [len(os.path.commonprefix([one, text])) for one in before]  # noqa: RUF071


def several(prompt: str | list) -> list:
    """The prompts of a request, which may say a single one, a text or token ids, without a list around it."""
    return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


class _Handler(BaseHTTPRequestHandler):
    server: Completions
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer takes 40 ms

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append(body)
            server.keys.add(self.headers.get("Authorization"))
            fault = (server.faults.pop(0) if server.faults else None) or Fault()
            stalled = server.stalls_after is not None and len(server.requests) > server.stalls_after
            server.now += 1
            server.most = max(server.most, server.now)
        if stalled:
            server.go_on.wait()
            return
        if server.hold:
            threading.Event().wait(server.hold)
        answer = b"" if fault.status != 200 else json.dumps(server.complete(body)).encode()
        answer = answer if fault.body is None else fault.body
        with server.lock:
            server.now -= 1
            if fault.status == 200:
                prompts = several(body["prompt"])
                server.paid.update(json.dumps(body | {"prompt": prompt}, sort_keys=True) for prompt in prompts)
        if fault.sent in (NOTHING, LATE):
            self.close_connection = fault.sent == NOTHING or server.go_on.wait()
            return
        self.send_response(fault.status)
        headers = {"Content-Length": str(len(answer) if fault.length is None else fault.length)} | fault.headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer if fault.sent is None else answer[: fault.sent])
        if fault.sent is not None or fault.length is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(folder: Path) -> Iterator[Completions]:
    server = Completions(folder)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()


def settings(url: str, tokenizer: Path | None = None, **change) -> params.LM:
    """An `lm` of the params: the model served at `url`; `change` is of its section http."""
    http = params.LMServer(
        **{
            "url": url,
            "max_tokens": 128,
            "tokenizer": tokenizer and str(tokenizer),
            "batch_size": 8,
            "concurrency": 4,
            "logprobs": 5,
            "requests_per_minute": None,
            "tokens_per_minute": None,
            "prompt_price": 0.0,
            "completion_price": 0.0,
            "max_cost": None,
        }
        | change
    )
    return params.LM(
        source="http", path="served", revision=None, http=http, dtype="fp32", batch_tokens=1024, training=None
    )
