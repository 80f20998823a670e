"""Questions to a language model on a server: the stage `answer` beside shards of 64 prompts, one
after the other.

    .venv/bin/python -m benchmarks.served

The server is on this machine, in a process of its own, and answers every request after 200
milliseconds, however many come at once. So the limit is known: (requests / concurrency) times 200
milliseconds.
"""

import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks import measure
from pipelines.answering import answer, prompts
from pipelines.lm.http_model import HttpModel
from pipelines.params import params
from pipelines.storage.atomic import SCRATCH

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from completions_server import settings
from http_faults import Fault, Handler, Server, reply

SHARD = 64  # prompts that the plain way sends before it waits for all of their answers
# prompts in a request, requests at the same time
LOADS = ((4, 8), (1, 64), (16, 8), (4, 32), (16, 32))
NEW_TOKENS = 15
REPLUG = params.Replug(top_k=1, temperature=1.0, mixture="token_mixture", vote=False)
ANSWER = params.Answer(
    max_questions=10**6,
    n_shots=0,
    new_tokens=NEW_TOKENS,
    passages=1,
    passage="{text}",
    passage_tokens=1,
)
LOGPROBS = {  # of an answer
    "tokens": [" x"],
    "token_logprobs": [-1.0],
    "top_logprobs": [{" x": -1.0}],
    "text_offset": [0],
}


class LateHandler(Handler):
    """Answers each prompt with its number of characters, after the server's `hold`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.begin(self.path, None)
        texts = body["prompt"]
        if isinstance(texts, str):
            texts = [texts]

        choices = []
        for number, text in enumerate(texts):
            choices.append({"index": number, "text": f" {len(text)}", "logprobs": LOGPROBS})
        usage = {"prompt_tokens": len(texts), "completion_tokens": len(texts)}
        content = json.dumps({"choices": choices, "usage": usage}).encode()
        reply(self, content, fault or Fault(), {})


class Client:
    """A model on the server, which `open` opens in the process that measures, and two ways to
    ask it.
    """

    def __init__(self, url: str, batch_size: int, concurrency: int, questions: pa.Table) -> None:
        self.lm = settings(url, batch_size=batch_size, concurrency=concurrency, max_tokens=10_000)
        self.questions = questions

    def open(self) -> None:
        shutil.rmtree(SCRATCH, ignore_errors=True)  # no answer is kept from another run
        self.model = HttpModel(Path("served"), self.lm, None, Path(SCRATCH / "completions"))

    def plain(self) -> list[str]:
        texts = self.questions["question"].to_pylist()
        sent = [prompts.question_prompt(text, None, []) for text in texts]
        answers = []
        for start in range(0, len(sent), SHARD):
            shard = sent[start : start + SHARD]
            for generation in self.model.generate(shard, NEW_TOKENS):
                answers.append(generation.text.strip())
        return answers

    def stage(self) -> list[str]:
        setup = answer.Setup(
            dataset="popqa",
            method="closed_book",
            lm=self.model,
            source=None,
            answer=ANSWER,
            replug=REPLUG,
            seed=0,
            key="key",
            server=self.lm.http,
        )
        answers, *_ = answer.answer(self.questions, setup)
        return answers["prediction"].to_pylist()


def make_questions(count: int) -> pa.Table:
    names = [f"{number:06d}" for number in range(count)]
    texts = []
    for number, name in enumerate(names):
        texts.append(f"Who is the father of {'x' * (number % 50)} {name}?")
    columns = {
        "question_id": names,
        "relation": ["P1"] * count,
        "subj": names,
        "possible_answers": [["x"]] * count,
        "question": texts,
        "split": ["test"] * count,
    }
    return pa.table(columns)


@contextmanager
def late_server(seconds: float) -> Iterator[str]:
    """The address of a server that answers each request after so many seconds."""
    server = Server(LateHandler)
    server.hold = seconds
    process = measure.FORK.Process(target=server.serve_forever, daemon=True)
    process.start()
    try:
        yield f"{server.address}/v1"
    finally:
        process.kill()
        process.join()
        server.server_close()


def compare(
    count: int, seconds: float, rounds: int, loads: Sequence[tuple[int, int]] = LOADS
) -> Iterator[str]:
    """The table's lines: `count` questions to a server that answers after so many seconds; the
    best of `rounds`.
    """
    yield "| batch_size | concurrency | requests | limit, s | one shard after the other, s | the stage, s |"
    yield "|---|---|---|---|---|---|"
    questions = make_questions(count)
    with measure.in_folder(), late_server(seconds) as url:
        for batch_size, concurrency in loads:
            client = Client(url, batch_size, concurrency, questions)
            ways = {
                "plain": partial(measure.alone, client.plain, warm=client.open),
                "stage": partial(measure.alone, client.stage, warm=client.open),
            }
            runs = measure.best(ways, rounds)
            plain = runs["plain"]
            stage = runs["stage"]
            assert plain.result == stage.result, "the two ways differ"

            requests = math.ceil(count / batch_size)
            limit = requests / concurrency * seconds
            cells = [str(batch_size), str(concurrency), f"{requests:,}", f"{limit:.2f}"]
            for run in (plain, stage):
                cells.append(f"{run.wall:.2f} ({run.wall / limit:.2f} times the limit)")
            yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(*compare(1_000, 0.2, rounds=3), sep="\n")
