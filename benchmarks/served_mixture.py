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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import bm25s
import numpy as np
import torch
from pyarrow import csv
from transformers import DynamicCache

from pipelines import draws
from pipelines.answering.prompts import question_prompt
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Generation, Prompt
from pipelines.lm.local import LocalModel
from pipelines.replug import ensemble

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from completions_server import Completions, settings
from http_faults import serving

COUNTS = (20, 10, 5, 3, 2, 1)  # likeliest tokens that the server shows
NEW_TOKENS = 15  # of an answer
LENGTH = 1024  # tokens of a prompt and its answer, at most
VOTES = 5  # questions that are answered by vote, too
LIKELIEST = 100  # tokens that the server remembers of each place
PROMPTS = 256  # whose keys and values the server keeps
# tokens, of which a prompt must know so many to begin with another one's keys and values
SHARED = 32


class CachingServer(Completions):
    """Reads what no prompt before had, and counts these tokens as `read`.

    It shows tokens by their ids.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read = 0
        self.ids = True
        self.shown = LIKELIEST
        self._caches: list[tuple[list[int], DynamicCache]] = []
        self._likeliest: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def _log_probs(self, ids: list[int]) -> torch.Tensor:
        """Of the last place alone where the prompt is long."""
        if len(ids) < SHARED:
            return super()._log_probs(ids)
        key = tuple(ids)
        with self.lock, torch.inference_mode():
            if key not in self._likeliest:
                log_probs = torch.log_softmax(self._logits(ids), -1)
                self._likeliest[key] = log_probs.topk(LIKELIEST)
            values, tokens = self._likeliest[key]
            others = torch.full((1, self.model.config.vocab_size), -1e4)
            return others.index_put_((torch.tensor(0), tokens), values)

    def _logits(self, ids: list[int]) -> torch.Tensor:
        """The logits of the last place, (vocabulary,)."""
        cache = self._take_cache(ids[:-1])
        new = ids[cache.get_seq_length() :]
        self.read += len(new)
        output = self.model(input_ids=torch.tensor([new]), past_key_values=cache, logits_to_keep=1)
        self._caches = [*self._caches[1 - PROMPTS :], (ids, cache)]
        return output.logits[0, -1]

    def _take_cache(self, ids: list[int]) -> DynamicCache:
        """Keys and values of the longest beginning that an earlier prompt had; else, empty ones."""
        n_shared = []
        for known, _ in self._caches:
            n_shared.append(len(os.path.commonprefix([ids, known])))  # noqa: RUF071
        if max(n_shared, default=0) < SHARED:
            return DynamicCache()

        place = int(np.argmax(n_shared))
        known, cache = self._caches.pop(place)
        surplus = len(known) - n_shared[place]
        if surplus:
            cache.crop(-surplus)
        return cache


class Questions(NamedTuple):
    """Questions with passages."""

    prompts: list[Prompt]  # k in a row for each question
    weights: np.ndarray  # log lambda, (questions, k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("files", type=Path)
    parser.add_argument("documents", type=int)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="draws the questions")
    arguments = parser.parse_args()
    k = arguments.documents
    questions = read_questions(arguments.files, arguments.questions, k, arguments.seed)
    for row in compare(arguments.model, questions, k):
        print(json.dumps(row), flush=True)


def read_questions(files: Path, count: int, k: int, seed: int) -> Questions:
    """Drawn questions with their k best passages."""
    layout = csv.ParseOptions(delimiter="\t", quote_char=False)
    passages = csv.read_csv(files / "psgs_w100.tsv.gz", parse_options=layout)["text"].to_pylist()
    rows = csv.read_csv(files / "popQA_covered.tsv", parse_options=layout)
    quiet = {"show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(passages, **quiet), **quiet)

    ids = list(map(str, rows["id"].to_pylist()))
    prompts = []
    similarities = []
    for number in draws.sample(seed, "served mixture", ids, count).tolist():
        question = rows["question"][number].as_py()
        places, scores = index.retrieve(bm25s.tokenize(question, **quiet), k=k, **quiet)
        for place in places[0]:
            prompts.append(question_prompt(question, passages[place], []))
        similarities.append(scores / scores.max())
    weights = ensemble.log_weights(np.concatenate(similarities), temperature=1.0)
    return Questions(prompts, weights)


def compare(folder: Path, questions: Questions, k: int) -> Iterator[dict]:
    """The facts for each number of tokens that the server shows, then for the vote: shares, and
    means of an answer.

    `read` are the tokens that the server reads with its cache; only the first row finds it empty.
    """
    n_questions = len(questions.weights)
    here = LocalModel(
        folder, name=folder.name, dtype="fp32", batch_tokens=2048, device="cpu", threads=1
    )
    local = here.generate_mixture(questions.prompts, questions.weights, NEW_TOKENS)
    local_texts = [generation.text for generation in local]
    runs = [(count, True) for count in COUNTS]
    runs += [(COUNTS[0], False), (None, True)]
    with tempfile.TemporaryDirectory() as kept, serving(CachingServer(folder)) as server:
        for count, by_ids in runs:
            shown = count or 1
            lm = settings(server.url, folder, logprobs=shown, max_tokens=LENGTH, concurrency=1)
            there = HttpModel(folder, lm, None, Path(kept) / str(by_ids))
            server.ids = by_ids
            read_before = server.read
            if count is None:
                row, generations = vote(there, questions, k)
            else:
                row, generations = mixture(there, questions, k, local_texts)
            asked = {"model": folder.name, "k": k, "questions": n_questions}
            row = asked | {"shown": count, "ids": by_ids} | row
            billed = sum(generation.prompt_tokens for generation in generations)
            row["billed"] = round(billed / row["questions"])
            row["read"] = round((server.read - read_before) / row["questions"])
            yield row


def vote(model: HttpModel, questions: Questions, k: int) -> tuple[dict, list[Generation]]:
    """The facts of VOTES questions that are answered by vote, and their answers."""
    generations = model.generate(questions.prompts[: k * VOTES], NEW_TOKENS)
    answers = ensemble.vote(generations, questions.weights[:VOTES])
    return {"way": "vote", "prompts": k, "questions": len(answers)}, answers


def mixture(
    model: HttpModel, questions: Questions, k: int, local_texts: list[str]
) -> tuple[dict, list[Generation]]:
    """The facts of the mixture, and its answers."""
    answers = model.generate_mixture(questions.prompts, questions.weights, NEW_TOKENS)
    n_decided = 0
    n_same = 0
    for answer, local_text in zip(answers, local_texts, strict=True):
        n_decided += answer.decided
        n_same += answer.decided and answer.text == local_text

    steps = sum(answer.new_tokens for answer in answers) / k
    n_undecided = len(answers) - n_decided
    row = {
        "way": "mixture",
        "prompts": round(steps * k / len(answers), 1),
        "answers": n_decided / len(answers),
        "tokens": round(1 - n_undecided / steps, 4),
        "decided": n_decided,
        "same": n_same,
    }
    return row, answers


if __name__ == "__main__":
    main()
