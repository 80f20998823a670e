"""Scoring with a local language model beside the published code's loop, on models of random weights.

    .venv/bin/python -m benchmarks.lm

Every way scores the same (query, document) pairs on one core; that all give the same log-probs is checked. The limit is
the product of two large squares in the same number format, by torch.matmul or by oneDNN, whichever is faster; its share
is of the products that no way can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from benchmarks import measure
from benchmarks.measure import Row
from pipelines.lm import prefixes
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
DOCUMENTS = 10  # of each query


class Shape(NamedTuple):
    name: str
    vocabulary: int
    width: int
    layers: int
    inner: int  # parameters of one layer's products
    tokens: tuple[int, int, int]  # of document, context, continuation
    queries: int

    @property
    def flops(self) -> float:
        """Multiplications and additions that a pair needs: all layers, and logits where they are asked for."""
        n = sum(self.tokens) - 1
        layers = self.layers * (2 * n * self.inner + 2 * n * n * self.width)  # attention looks at half of n x n
        return layers + 2 * self.tokens[2] * self.width * self.vocabulary


SHAPES = [
    Shape("GPT-2 small", 50257, 768, 12, 12 * 768 * 768, (128, 128, 128), 1),
    Shape("the sample's", 1700, 128, 4, 4 * 128 * 128 + 3 * 128 * 256, (64, 24, 24), 40),
]


def write_model(shape: Shape, folder: Path, positions: int) -> Path:
    """Random weights, and a tokenizer whose tokens are the words w0, w1, ..."""
    torch.manual_seed(0)
    if shape.width == 768:
        model = GPT2LMHeadModel(GPT2Config(n_positions=positions))
    else:
        sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
        model = LlamaForCausalLM(
            LlamaConfig(vocab_size=1700, max_position_embeddings=positions, tie_word_embeddings=True, **sizes)
        )
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(shape.vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w0", eos_token="w0", pad_token="w0").save_pretrained(
        folder
    )
    return folder


def texts(rng: np.random.Generator, shape: Shape, n: int, tokens: int) -> list[str]:
    return [" ".join(f"w{i}" for i in row) + " " for row in rng.integers(1, shape.vocabulary, (n, tokens))]


def make_pairs(shape: Shape, queries: int) -> tuple[list[Prompt], list[str]]:
    rng = np.random.default_rng(0)
    documents = texts(rng, shape, queries * DOCUMENTS, shape.tokens[0])
    contexts, continuations = (np.repeat(texts(rng, shape, queries, n), DOCUMENTS).tolist() for n in shape.tokens[1:])
    return [Prompt(c, d) for c, d in zip(contexts, documents, strict=True)], continuations


def published(folder: Path) -> Callable[[list[Prompt], list[str]], np.ndarray]:
    """Logits at all positions, eager attention, one pair at a time, in fp32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    own = PreTrainedTokenizerFast.from_pretrained(folder)

    @torch.inference_mode()
    def score(prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
        found = []
        for prompt, continuation in zip(prompts, continuations, strict=True):
            ids = torch.tensor(own([prompt.document + prompt.context + continuation])["input_ids"])
            asked = len(own(continuation)["input_ids"])
            log_probs = torch.log_softmax(model(input_ids=ids).logits.float(), dim=-1)
            found.append(log_probs[0, :-1].gather(1, ids[0, 1:, None])[-asked:, 0].numpy())
        return np.concatenate(found)

    return score


def open_model(folder: Path, dtype: str) -> LocalModel:
    return LocalModel(folder, name="benchmark", dtype=dtype, batch_tokens=4096, device="cpu", threads=1)


def peak(dtype: str, n: int = 2048) -> float:
    """Multiplications and additions a second of one core."""
    one = torch.randn(n, n, dtype=DTYPES[dtype])
    ways = {"matmul": lambda: one @ one}
    if dtype == "fp32":
        other = one.to_mkldnn()
        ways["oneDNN"] = lambda: torch.nn.functional.linear(other, one, one[0])
    found = measure.best({name: partial(measure.timed, way) for name, way in ways.items()}, 6)
    return 2 * n**3 / min(run.cpu for run in found.values())


def compare(shape: Shape, queries: int, rounds: int) -> list[Row]:
    """Tokens a second in each number format."""
    prompts, continuations = make_pairs(shape, queries)
    folder = write_model(shape, Path(shape.name), 1024)
    loop, found = published(folder), []
    opened = {dtype: open_model(folder, dtype) for dtype in DTYPES}
    ways = {"loop": partial(measure.timed, partial(loop, prompts, continuations))}
    for dtype, lm in opened.items():
        lm.score(prompts[:DOCUMENTS], continuations[:DOCUMENTS])
        ways[dtype] = partial(measure.timed, partial(scores, lm, prompts, continuations))
    run, tokens = measure.best(ways, rounds), len(prompts) * sum(shape.tokens)
    for dtype, close in {"fp32": 1e-4, "bf16": 0.05}.items():
        assert np.abs(run[dtype].result - run["loop"].result).mean() < close, f"{dtype} differs"
        most = peak(dtype) * sum(shape.tokens) / shape.flops
        what, limit = f"scoring, {shape.name} shape, {dtype}", f"products in {dtype}"
        peer = "one pair at a time, all logits, fp32"
        found.append(
            measure.row(what, peer, "tokens", tokens, run["loop"], run[dtype], limit=limit, most=most, memory=False)
        )
    return found


def scores(lm: LocalModel, prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
    return np.concatenate(lm.score(prompts, continuations).log_probs)


def compare_prefix(shape: Shape, shared: int, count: int, rounds: int) -> list[Row]:
    """Few-shot prompts with their common prefix read once, and as often as it stands there."""
    rng = np.random.default_rng(1)
    (shots,) = texts(rng, shape, 1, shared)
    asked = [Prompt(question, shots) for question in texts(rng, shape, count, 30)]
    answers = texts(rng, shape, count, 6)
    works = {
        "scoring": lambda: scores(lm, asked, answers),
        "next token": lambda: lm.next_token(asked).max(1),
        "six tokens generated": lambda: np.array([one.mean_log_prob for one in lm.generate(asked, 6)]),
    }
    lm, found, once = open_model(write_model(shape, Path("prefix"), 2048), "bf16"), [], prefixes.shared

    def each_time(work: Callable[[], np.ndarray]) -> measure.Run:
        prefixes.shared = lambda _, limits: np.zeros((2, len(limits)), np.int64)
        try:
            return measure.timed(work)
        finally:
            prefixes.shared = once

    for what, work in works.items():
        run = measure.best({"each": partial(each_time, work), "once": partial(measure.timed, work)}, rounds)
        assert np.abs(run["once"].result - run["each"].result).mean() < 0.05, f"{what} differs"
        what = f"{count} prompts with {shared:,} tokens in common, {what}, {shape.name} shape, bf16"
        found.append(measure.row(what, "read each time", "prompts", count, run["each"], run["once"], memory=False))
    return found


def rows(quick: bool = False) -> list[Row]:
    rounds, sample = 1 if quick else 2, SHAPES[1]
    with measure.in_folder():
        if quick:
            return compare(sample, 1, rounds) + compare_prefix(sample, 100, 4, rounds)
        found = [row for shape in SHAPES for row in compare(shape, shape.queries, rounds)]
        return found + compare_prefix(SHAPES[0], 1600, 16, rounds)


if __name__ == "__main__":
    measure.main(rows)
