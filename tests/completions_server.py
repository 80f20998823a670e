"""A real HTTP server on loopback with OpenAI's interfaces over a small local model, and faults
at will.
"""

import json
import os
from collections import Counter
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path

import torch
from http_faults import Fault, Handler, Server, reply, serving
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.params import params

LATE = -2  # a fault's `sent`: nothing comes until `go_on`


class Failing(Exception):
    """What a request does to a server that can't do it and doesn't say so."""


class Completions(Server):
    """The model in `folder`, which takes texts and token ids, one forward pass per prompt and
    token.

    The chat interface takes a message, which the model reads in its chat template. `requests` are
    the bodies, `paid` counts the prompts that were answered, by the whole request, `answered` those
    that were without a fault.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(_Handler)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._pass = lru_cache(512)(self._forward)  # tests ask for the same texts again and again

    def reset(self) -> None:
        super().reset()
        self.keys: set[str | None] = set()
        self.paid: Counter[str] = Counter()
        self.echo = True  # whether log-probabilities of prompts are shown
        self.shown = 20  # of the likeliest tokens, at most
        self.lost = 0  # log-probabilities of a prompt that are left out
        self.logprobs = self.usage = True
        # ways of real servers, seen in llama-cpp-python (all but the last two), llama.cpp and
        # transformers
        self.texts_only = False  # token ids make it fail
        self.least = 0  # tokens to make: fewer make it fail
        self.shifted = False  # log-probabilities of prompts are those of the place after
        self.penalty = 0.0  # nats, of a token that the text has already, when one is chosen
        self.quiet = False  # pieces of characters are shown as no text
        self.echo_fails = False
        self.ids = (
            False  # tokens are shown by their ids if a request asks for that, as vLLM shows them
        )
        self.chat = False  # log-probabilities come in the form of the chat interface
        self.refused: set[str] = set()  # fields of a chat's request
        self.said: str | None = None  # in a chat, in place of what the model says
        self.served: str | None = None  # the model's name in answers
        self.echoes = False  # whether texts begin with their prompt unless echo is false
        # words of a request -> what is wrong with the answer to each request that has them
        self.blocked: dict[str, Fault] = {}

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def converse(self, body: dict) -> dict:
        """The chat interface's answer.

        Raises Failing for a request with a field that is refused.
        """
        if refused := self.refused & set(body):
            raise Failing(f"Unsupported parameter: {min(refused)}")
        text = self.tokenizer.apply_chat_template(
            body["messages"], tokenize=False, add_generation_prompt=True
        )
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        asked = {
            "max_tokens": body["max_tokens"],
            "logprobs": body.get("top_logprobs", 0),
            "stop": body.get("stop"),
        }
        choice = self._continued(ids, asked, ends=True)
        message = {
            "role": "assistant",
            "content": choice["text"] if self.said is None else self.said,
        }
        shown = (
            {"content": _as_chat(choice["logprobs"])}
            if body.get("logprobs") and self.logprobs
            else None
        )
        made = len(choice["logprobs"]["tokens"])
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": made,
            "total_tokens": len(ids) + made,
        }
        answer = {"index": 0, "message": message, "logprobs": shown, "finish_reason": "stop"}
        return {"object": "chat.completion", "choices": [answer]} | self._about(usage)

    def _about(self, usage: dict) -> dict:
        """What an answer says of all choices together."""
        about = {"usage": usage} if self.usage else {}
        return about | ({"model": self.served} if self.served else {})

    def complete(self, body: dict) -> dict:
        """Raises Failing where the request makes it fail."""
        choices, made, prompts = [], 0, several(body["prompt"])
        ids_given = any(isinstance(prompt, list) for prompt in prompts)
        if (ids_given and self.texts_only) or body["max_tokens"] < self.least:
            raise Failing("could not broadcast input array")
        if body.get("echo") and self.echo_fails:
            raise Failing("Only no echo is supported")
        for index, prompt in enumerate(prompts):
            ids = prompt if isinstance(prompt, list) else self.tokenizer(prompt)["input_ids"]
            choice = self._continued(ids, body)
            made += len(choice["logprobs"]["tokens"])
            if body.get("echo", self.echoes):
                choice = self._echoed(ids, choice)
            if self.chat:
                choice["logprobs"] = {"content": _as_chat(choice["logprobs"])}
            # in no helpful order
            choices.insert(0, {"index": index, "finish_reason": "length", **choice})
            if not self.logprobs or (body.get("echo") and not self.echo):
                choices[0]["logprobs"] = None
        read = sum(
            len(p) if isinstance(p, list) else len(self.tokenizer(p)["input_ids"]) for p in prompts
        )
        usage = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
        return {"object": "text_completion", "choices": choices} | self._about(usage)

    def _log_probs(self, ids: list[int]) -> torch.Tensor:
        with self.lock:
            return self._pass(tuple(ids))

    @torch.inference_mode()
    def _forward(self, ids: tuple[int, ...]) -> torch.Tensor:
        return torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0], -1)

    def _echoed(self, ids: list[int], choice: dict) -> dict:
        rows = self._log_probs(ids)
        places = range(len(ids))
        values = [None, *rows[places[1:] if self.shifted else places[:-1], ids[1:]].tolist()][
            : len(ids) - self.lost
        ]
        own = {
            "tokens": self._texts(ids),
            "token_logprobs": values,
            "text_offset": self._offsets(ids),
        }
        own["top_logprobs"] = [None] * len(values)
        text, after = self.tokenizer.decode(ids), choice["logprobs"]
        width = len(self.tokenizer.decode(ids, skip_special_tokens=True))
        after["text_offset"] = [width + offset for offset in after["text_offset"]]
        shown = {name: own[name] + after[name] for name in own}
        return choice | {"text": text + choice["text"], "logprobs": shown}

    def _continued(self, ids: list[int], body: dict, *, ends: bool = False) -> dict:
        made, values, likeliest, text, stops = [], [], [], "", body.get("stop") or []
        for _ in range(body["max_tokens"]):
            row = self._log_probs(ids + made)[-1]
            penalised = row.clone()
            penalised[ids + made] -= body.get("penalty", self.penalty)
            token = int(penalised.argmax())
            if token == self.tokenizer.eos_token_id and (ends or body.get("stop")):
                break
            made.append(token)
            values.append(float(row[token]))
            best = row.topk(min(body["logprobs"], self.shown))
            by_id = self.ids and body.get("return_tokens_as_token_ids")
            tops = best.indices.tolist()
            names = [f"token_id:{top}" for top in tops] if by_id else self._texts(tops)
            likeliest.append(dict(zip(names, best.values.tolist(), strict=True)))
            text = self.tokenizer.decode(made, skip_special_tokens=True)
            if any(stop in text for stop in stops):
                break
        shown = {
            "tokens": self._texts(made),
            "token_logprobs": values,
            "text_offset": self._offsets(made),
        }
        ends = [text.index(stop) for stop in stops if stop in text]
        return {
            "text": text[: min(ends, default=None)],
            "logprobs": shown | {"top_logprobs": likeliest},
            "finish_reason": "stop" if ends else "length",
        }

    def _texts(self, ids: list[int]) -> list[str]:
        texts = [self.tokenizer.decode([i]) for i in ids]
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        written = ["" if self.quiet else f"bytes:{piece}" for piece in pieces]
        return [
            piece if "\ufffd" in text else text for text, piece in zip(texts, written, strict=True)
        ]

    def _offsets(self, ids: list[int]) -> list[int]:
        *before, text = (
            self.tokenizer.decode(ids[:i], skip_special_tokens=True) for i in range(len(ids) + 1)
        )
        # a piece of a character begins where the character does
        return [len(os.path.commonprefix([one, text])) for one in before]  # noqa: RUF071


def several(prompt: str | list) -> list:
    """The prompts of a request, which may say a single one, a text or token ids, without a list
    around it.
    """
    return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


def _as_chat(logprobs: dict) -> list[dict]:
    rows = zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    )
    return [
        {"id": 0, "token": token, "bytes": [], "logprob": value}
        | {
            "top_logprobs": [
                {"id": 0, "token": other, "logprob": most} for other, most in likeliest.items()
            ]
        }
        for token, value, likeliest in rows
    ]


class _Handler(Handler):
    server: Completions

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.keys.add(self.headers.get("Authorization"))
        fault = server.begin(self.path, body)
        for words, blocked in server.blocked.items():
            if words in json.dumps(body):
                fault = blocked
        try:
            made = server.converse if self.path.endswith("/chat/completions") else server.complete
            answer = b"" if fault.status != 200 else json.dumps(made(body)).encode()
        except Failing as error:
            fault = Fault(
                400 if "messages" in body else 500,
                json.dumps({"error": {"message": str(error)}}).encode(),
            )
        answer = answer if fault.body is None else fault.body
        with server.lock:
            server.now -= 1
            if fault.status == 200:
                prompts = several(body["prompt"]) if "prompt" in body else [body["messages"]]
                units = [
                    json.dumps(body | {"prompt": prompt}, sort_keys=True) for prompt in prompts
                ]
                server.paid.update(units)
                server.answered.update(units if fault == Fault() else [])
        if fault.sent == LATE:
            self.close_connection = server.go_on.wait()
            return
        reply(self, answer, fault, {})


def running(folder: Path) -> AbstractContextManager[Completions]:
    return serving(Completions(folder))


def settings(url: str, tokenizer: Path | None = None, *, chat: bool = False, **change) -> params.LM:
    """An `lm` of the params: the model served at `url`; `change` is of its section http."""
    plain = {"max_tokens": 128, "concurrency": 4, "logprobs": 5, "extra": {}, "max_cost": None}
    plain |= {
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "prompt_price": 0.0,
        "completion_price": 0.0,
    }
    http = params.LMServer(
        **plain | {"url": url, "tokenizer": tokenizer and str(tokenizer)} | change
    )
    rest = {"revision": None, "dtype": "fp32", "batch_tokens": 1024, "n_shots": None}
    return params.LM(path="served", http=http, chat=chat, **rest)
