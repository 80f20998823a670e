"""Questions to a language model on a server: the stage `answer` beside shards of 64 prompts, one
after the other.

    .venv/bin/python -m benchmarks.served

The server is on this machine, in a process of its own, and answers every request after 200
milliseconds, however many come at once. So the limit is known: (requests / concurrency) times 200
milliseconds.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
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
LOADS = (
    (4, 8),
    (1, 64),
    (16, 8),
    (4, 32),
    (16, 32),
)  # prompts in a request, requests at the same time
NEW_TOKENS = 15
REPLUG = params.Replug(top_k=1, temperature=1.0, mixture="token_mixture", vote=False)
CHOSEN = params.Answer(
    max_questions=10**6,
    n_shots=0,
    new_tokens=NEW_TOKENS,
    passages=1,
    passage="{text}",
    passage_tokens=1,
)


class Late(Handler):
    """Answers each prompt with its number of characters, after the server's `hold`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault, asked = self.server.begin(self.path, None), body["prompt"]
        asked = [asked] if isinstance(asked, str) else asked
        shown = {
            "tokens": [" x"],
            "token_logprobs": [-1.0],
            "top_logprobs": [{" x": -1.0}],
            "text_offset": [0],
        }
        choices = [
            {"index": i, "text": f" {len(text)}", "logprobs": shown} for i, text in enumerate(asked)
        ]
        usage = {"prompt_tokens": len(asked), "completion_tokens": len(asked)}
        reply(self, json.dumps({"choices": choices, "usage": usage}).encode(), fault or Fault(), {})


class Asking:
    """A model on the server, which `open` opens in the process that measures, and two ways to
    ask it.
    """

    def __init__(self, url: str, batch: int, concurrency: int, questions: pa.Table) -> None:
        self.lm = settings(url, batch_size=batch, concurrency=concurrency, max_tokens=10_000)
        self.questions = questions

    def open(self) -> None:
        shutil.rmtree(SCRATCH, ignore_errors=True)  # no answer is kept from another run
        self.model = HttpModel(Path("served"), self.lm, None, Path(SCRATCH / "completions"))

    def plain(self) -> list[str]:
        sent = [
            prompts.question_prompt(text, None, [])
            for text in self.questions["question"].to_pylist()
        ]
        parts = (sent[start : start + SHARD] for start in range(0, len(sent), SHARD))
        return [
            made.text.strip() for part in parts for made in self.model.generate(part, NEW_TOKENS)
        ]

    def stage(self) -> list[str]:
        setup = answer.Setup(
            "popqa", "closed_book", self.model, None, CHOSEN, REPLUG, 0, "key", self.lm.http
        )
        return answer.answer(self.questions, setup)[0]["prediction"].to_pylist()


def questions(count: int) -> pa.Table:
    names = [f"{i:06d}" for i in range(count)]
    columns = {
        "question_id": names,
        "relation": ["P1"] * count,
        "subj": names,
        "possible_answers": [["x"]] * count,
    }
    texts = [f"Who is the father of {'x' * (i % 50)} {name}?" for i, name in enumerate(names)]
    return pa.table(columns | {"question": texts, "split": ["test"] * count})


def compare(
    count: int, seconds: float, rounds: int, loads: Sequence[tuple[int, int]] = LOADS
) -> Iterator[str]:
    """The table's lines: `count` questions to a server that answers after so many seconds; the
    best of `rounds`.
    """
    yield "| batch_size | concurrency | requests | limit, s | one shard after the other, s | the stage, s |"
    yield "|---" * 6 + "|"
    asked, server = questions(count), Server(Late)
    server.hold = seconds
    with measure.in_folder():
        serving = measure.FORK.Process(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            for batch, concurrency in loads:
                asking = Asking(f"{server.address}/v1", batch, concurrency, asked)
                both = {"plain": asking.plain, "stage": asking.stage}
                run = measure.best(
                    {
                        name: partial(measure.alone, way, warm=asking.open)
                        for name, way in both.items()
                    },
                    rounds,
                )
                assert run["plain"].result == run["stage"].result, "the two ways differ"
                requests = -(-count // batch)
                limit = requests / concurrency * seconds
                took = [
                    f"{run[name].wall:.2f} ({run[name].wall / limit:.2f} times the limit)"
                    for name in both
                ]
                yield f"| {batch} | {concurrency} | {requests:,} | {limit:.2f} | {' | '.join(took)} |"
        finally:
            serving.kill()
            serving.join()
            server.server_close()


if __name__ == "__main__":
    print(*compare(1_000, 0.2, rounds=3), sep="\n")
