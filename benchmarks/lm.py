"""Scoring with a local language model beside the published code's loop, on models of random weights.

    .venv/bin/python -m benchmarks.lm
    .venv/bin/python -m benchmarks.lm --threads 4 --queries 4

Every way scores the same (query, document) pairs, one thread, seconds of processor time (of the clock on a GPU, where
there is one); that all give the same log-probs is checked. Peak is the product of two large squares in the same number
format, by torch.matmul or by oneDNN, whichever is faster; its share is of the products that no way can do without.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable
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


def published(folder: Path, device: str, dtype: str, at_once: int) -> Callable:
    """Logits at all positions, eager attention, `at_once` pairs in a batch: 1, or those of a query."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype], attn_implementation="eager")
    model, own = model.eval().to(device), PreTrainedTokenizerFast.from_pretrained(folder)

    @torch.inference_mode()
    def score(prompts: list[Prompt], continuations: list[str]) -> np.ndarray:
        found = []
        for i in range(0, len(prompts), at_once):
            some = [p.document + p.context + c for p, c in zip(prompts, continuations, strict=True)][i : i + at_once]
            ids = torch.tensor(own(some)["input_ids"], device=device)
            asked = len(own(continuations[i])["input_ids"])
            log_probs = torch.log_softmax(model(input_ids=ids).logits.float(), dim=-1)
            chosen = log_probs[:, :-1].gather(2, ids[:, 1:, None])[:, -asked:, 0]
            found.append(chosen.flatten().cpu().numpy())
        return np.concatenate(found)

    return score


def open_model(folder: Path, device: str, dtype: str, threads: int) -> LocalModel:
    with contextlib.redirect_stdout(io.StringIO()):
        return LocalModel(
            folder, name="random", dtype=dtype, batch_tokens=65536 if device == "cuda" else 4096, device=device,
            threads=threads,
        )  # fmt: skip


def seconds(work: Callable, device: str, threads: int, rounds: int) -> tuple[float, object]:
    """The best round's, and what it gave."""
    clock = time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter
    best = np.inf
    for _ in range(rounds):
        started = clock()
        result = work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - started)
    return best, result


def peak(device: str, dtype: str, threads: int) -> float:
    """Multiplications and additions a second."""
    n = 8192 if device == "cuda" else 2048
    one = torch.randn(n, n, device=device, dtype=DTYPES[dtype])
    ways = [lambda: one @ one]
    if (device, dtype) == ("cpu", "fp32"):
        other = one.to_mkldnn()
        ways.append(lambda: torch.nn.functional.linear(other, one, one[0]))
    return 2 * n**3 / min(seconds(way, device, threads, 6)[0] for way in ways)


def compare(shape: Shape, device: str, threads: int, queries: int, rounds: int) -> list[str]:
    """Markdown: tokens a second of every way, how many times the published loop's, share of the peak."""
    prompts, continuations = make_pairs(shape, queries)
    tokens = len(prompts) * sum(shape.tokens)
    out = [f"{shape.name} shape on {device}: {len(prompts)} pairs of {'+'.join(map(str, shape.tokens))} tokens", ""]
    out += ["| way | tokens/s | times the loop in fp32 | share of peak |", "|---|---|---|---|"]
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, rates = write_model(shape, Path(name), 1024), {}
        for dtype in DTYPES:
            most, expected = peak(device, dtype, threads), None
            lm = open_model(folder, device, dtype, threads)
            ways: dict[str, Callable] = {
                "published: one pair at a time": published(folder, device, dtype, 1),
                "one batch per query": published(folder, device, dtype, DOCUMENTS),
                "longtail": lambda *given, lm=lm: np.concatenate(lm.score(*given).log_probs),
            }
            for way, score in ways.items():
                score(prompts[:DOCUMENTS], continuations[:DOCUMENTS])
                taken, found = seconds(lambda score=score: score(prompts, continuations), device, threads, rounds)
                expected = found if expected is None else expected
                assert np.abs(found - expected).mean() < {"fp32": 1e-4, "bf16": 0.05}[dtype], f"{way} differs"
                rates[way, dtype] = tokens / taken
                first.setdefault("rate", tokens / taken)
                share = len(prompts) * shape.flops / taken / most
                out.append(
                    f"| {way}, {dtype} | {tokens / taken:,.0f} | {tokens / taken / first['rate']:.1f} | {share:.0%} |"
                )
            out.append(f"| (peak, {dtype}: {most / 1e9:,.0f} Gflop/s) | | | |")
    return [*out, ""]


def compare_prefix(shape: Shape, device: str, threads: int, shared: int, prompts: int) -> list[str]:
    """Markdown: few-shot prompts with their common prefix read once, and as often as it stands there."""
    rng = np.random.default_rng(1)
    (shots,) = texts(rng, shape, 1, shared)
    asked = [Prompt(question, shots) for question in texts(rng, shape, prompts, 30)]
    answers = texts(rng, shape, prompts, 6)
    works = {
        "score": lambda lm: np.concatenate(lm.score(asked, answers).log_probs),
        "next_token": lambda lm: lm.next_token(asked).max(1),
        "generate 6 tokens": lambda lm: np.array([one.mean_log_prob for one in lm.generate(asked, 6)]),
    }
    out = [f"{prompts} prompts of {shared}+30 tokens, {shape.name} shape in bf16 on {device}", ""]
    out += ["| | seconds, prefix read each time | read once | ratio |", "|---|---|---|---|"]
    shared = prefixes.shared
    with tempfile.TemporaryDirectory() as name:
        lm = open_model(write_model(shape, Path(name), 2048), device, "bf16", threads)
        for what, work in works.items():
            once, found = seconds(lambda work=work: work(lm), device, threads, 2)
            prefixes.shared = lambda _, limits: np.zeros((2, len(limits)), np.int64)
            each, expected = seconds(lambda work=work: work(lm), device, threads, 1)
            prefixes.shared = shared
            assert np.abs(found - expected).mean() < 0.05, f"{what} differs"
            out.append(f"| {what} | {each:.2f} | {once:.2f} | {each / once:.1f} |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=1, help="times as many as else")
    parser.add_argument("--rounds", type=int, default=2, help="the best counts")
    parser.add_argument("--prompts", type=int, default=16, help="few-shot prompts")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        more = given.queries * (50 if device == "cuda" else 1)
        for shape in SHAPES:
            print("\n".join(compare(shape, device, given.threads, shape.queries * more, given.rounds)), flush=True)
        print("\n".join(compare_prefix(SHAPES[0], device, given.threads, 1600, given.prompts)), flush=True)


if __name__ == "__main__":
    main()
