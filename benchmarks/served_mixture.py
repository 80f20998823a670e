"""REPLUG's mixture on a server: how many answers the likeliest N tokens decide, for each N, and
what they cost.

    .venv/bin/python -m benchmarks.served_mixture MODEL FILES 10 --questions 20

MODEL is a folder of weights, FILES one with psgs_w100.tsv.gz and popQA_covered.tsv (questions that
the passages cover). Each question has the 10 best passages of BM25. The server is that of the
tests, on this machine, with a cache of prefixes: of a prompt that it knows but for the last token,
it reads that token. The weights of passages are the softmax of their BM25 scores, divided by the
question's largest, so they are about as even as those of cosines.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import torch
from pyarrow import csv
from transformers import DynamicCache

from pipelines import draws
from pipelines.answering.prompts import question_prompt
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.replug import ensemble

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from completions_server import Completions, settings
from http_faults import serving

COUNTS = (20, 10, 5, 3, 2, 1)  # likeliest tokens that the server shows
NEW_TOKENS, LENGTH = 15, 1024  # tokens of an answer; tokens of a prompt and its answer, at most
VOTES = 5  # questions that are answered by vote, too
LIKELIEST = 100  # tokens that the server remembers of each place
PROMPTS = 256  # whose keys and values the server keeps
SHARED = (
    32  # tokens, of which a prompt must know so many to begin with another one's keys and values
)


class Remembering(Completions):
    """Reads what no prompt before had, and counts these tokens as `read`.

    It shows tokens by their ids.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read, self.ids, self.shown = 0, True, LIKELIEST
        self._caches: list[tuple[list[int], DynamicCache]] = []
        self._last: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def _log_probs(self, ids: list[int]) -> torch.Tensor:
        """Of the last place alone where the prompt is long."""
        if len(ids) < SHARED:
            return super()._log_probs(ids)
        with self.lock, torch.inference_mode():
            if tuple(ids) not in self._last:
                row = torch.log_softmax(self._logits(ids), -1)
                self._last[tuple(ids)] = row.topk(LIKELIEST)
            values, tokens = self._last[tuple(ids)]
            return torch.full((1, self.model.config.vocab_size), -1e4).index_put_(
                (torch.tensor(0), tokens), values
            )

    def _logits(self, ids: list[int]) -> torch.Tensor:
        known = [len(os.path.commonprefix([ids[:-1], other])) for other, _ in self._caches]  # noqa: RUF071
        place = int(np.argmax(known)) if known else 0
        cache = DynamicCache()
        if known and known[place] >= SHARED:
            other, cache = self._caches.pop(place)
            if surplus := len(other) - known[place]:
                cache.crop(-surplus)
        new = ids[cache.get_seq_length() :]
        self.read += len(new)
        logits = self.model(
            input_ids=torch.tensor([new]), past_key_values=cache, logits_to_keep=1
        ).logits[0, -1]
        self._caches = [*self._caches[1 - PROMPTS :], (ids, cache)]
        return logits


def asked(
    files: Path, questions: int, k: int, seed: int
) -> Iterator[tuple[list[Prompt], np.ndarray]]:
    """Each question's prompts with its k best passages, and their similarities (1, k)."""
    layout = csv.ParseOptions(delimiter="\t", quote_char=False)
    texts = csv.read_csv(files / "psgs_w100.tsv.gz", parse_options=layout)["text"].to_pylist()
    rows = csv.read_csv(files / "popQA_covered.tsv", parse_options=layout)
    index, said = bm25s.BM25(), {"show_progress": False}
    index.index(bm25s.tokenize(texts, **said), **said)
    for row in draws.sample(
        seed, "served mixture", [str(key) for key in rows["id"].to_pylist()], questions
    ).tolist():
        question = rows["question"][row].as_py()
        places, scores = index.retrieve(bm25s.tokenize(question, **said), k=k, **said)
        yield (
            [question_prompt(question, texts[place], []) for place in places[0]],
            scores / scores.max(),
        )


def compare(
    model: Path, files: Path, questions: int, k: int, seed: int, counts: Sequence[int] = COUNTS
) -> Iterator[dict]:
    """The facts for each number of tokens that the server shows, then for the vote: shares, and
    means of an answer.

    `read` are the tokens that the server reads with its cache; only the first row finds it empty.
    """
    several = list(asked(files, questions, k, seed))
    prompts = [prompt for of_question, _ in several for prompt in of_question]
    weights = ensemble.log_weights(
        np.concatenate([similarities for _, similarities in several]), 1.0
    )
    here = LocalModel(
        model, name=model.name, dtype="fp32", batch_tokens=2048, device="cpu", threads=1
    )
    local = here.generate_mixture(prompts, weights, NEW_TOKENS)
    with tempfile.TemporaryDirectory() as folder, serving(Remembering(model)) as server:
        for count, by_ids in (
            *((count, True) for count in counts),
            (counts[0], False),
            (None, True),
        ):
            lm = settings(server.url, model, logprobs=count or 1, max_tokens=LENGTH, concurrency=1)
            there = HttpModel(model, lm, None, Path(folder) / str(by_ids))
            row = {
                "model": model.name,
                "k": k,
                "questions": questions,
                "shown": count,
                "ids": by_ids,
            }
            before, server.ids = server.read, by_ids
            if count is None:
                made = ensemble.vote(
                    there.generate(prompts[: k * VOTES], NEW_TOKENS), weights[:VOTES]
                )
                row |= {"way": "vote", "prompts": k, "questions": len(made)}
            else:
                made = there.generate_mixture(prompts, weights, NEW_TOKENS)
                decided = [one.decided for one in made]
                same = [
                    one.text == other.text
                    for one, other in zip(made, local, strict=True)
                    if one.decided
                ]
                steps = sum(one.new_tokens for one in made) / k
                row |= {
                    "way": "mixture",
                    "prompts": round(steps * k / questions, 1),
                    "answers": np.mean(decided),
                }
                row |= {
                    "tokens": round(1 - decided.count(False) / steps, 4),
                    "decided": len(same),
                    "same": sum(same),
                }
            mean = {"billed": sum(one.prompt_tokens for one in made), "read": server.read - before}
            yield row | {name: round(value / row["questions"]) for name, value in mean.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("files", type=Path)
    parser.add_argument("documents", type=int)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="draws the questions")
    given = parser.parse_args()
    for line in compare(given.model, given.files, given.questions, given.documents, given.seed):
        print(json.dumps(line), flush=True)
