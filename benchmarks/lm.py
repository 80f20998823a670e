"""Scoring with a local language model beside the published code's loop, on models of random weights.

    .venv/bin/python -m benchmarks.lm
    .venv/bin/python -m benchmarks.lm --threads 4 --queries 4
    .venv/bin/python -m benchmarks.lm --workers 2 --model smollm2-135m   # many processes beside one
    .venv/bin/python -m benchmarks.lm --pile pile.jsonl.zst --model smollm2-135m   # what is scored, not how fast

Every way scores the same (query, document) pairs, one thread, seconds of processor time (of the clock on a GPU, where
there is one); that all give the same log-probs is checked. Peak is the product of two large squares in the same number
format, by torch.matmul or by oneDNN, whichever is faster; its share is of the products that no way can do without.

With --workers, the same shards by this process and by so many workers, in turns; the bytes are compared. The efficiency
is the seconds of one process over the workers times theirs: once they have the model open, and with their start. On a
machine that does other work too, the ratio of processor time says what the workers cost beside the shards themselves.

With --pile, a model's bits per byte of a file of the Pile, without documents, by two protocols: rolling windows over
whole documents, and the second 128 tokens of those documents that have 256, alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
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

from pipelines import draws, intervals, params, parquet, shards, workers
from pipelines.corpus.cut import rolling_windows
from pipelines.corpus.token_bytes import open_encoder
from pipelines.lm import prefixes
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import lm_at_work
from pipelines.lm.weights import TEXT
from pipelines.replug.ensemble import bits_per_byte
from pipelines.scoring import logprobs
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_raw
from pipelines.sources.wikipedia import parts

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


def compare_workers(model: Path | None, n_workers: int, shards_of_each: int, rounds: int) -> list[str]:
    """Markdown: seconds of one process and of several for the same shards, a query's pairs each."""
    workers.WORTH = {"cpu": 1.0}  # however little there is to do
    shape, rng = SHAPES[0], np.random.default_rng(0)
    count = shards_of_each * n_workers
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = model or write_model(shape, Path("random"), 1024)
        prompts, continuations = make_pairs(shape, count)
        if model:  # whose tokenizer knows words
            drawn = [" ".join(rng.choice(TEXT.split(), 100)) + " " for _ in range(len(prompts) + 2 * count)]
            prompts = [Prompt(drawn[i // DOCUMENTS], drawn[2 * count + i]) for i in range(len(prompts))]
            continuations = [drawn[count + i // DOCUMENTS] for i in range(len(prompts))]
        tasks = [slice(i, i + DOCUMENTS) for i in range(0, len(prompts), DOCUMENTS)]
        settings = {
            "path": str(folder),
            "revision": None,
            "http": None,
            "training": None,
            "n_shots": None,
            "chat": False,
        }
        lm = params.LM(source="pretrained", dtype="fp32", batch_tokens=4096, **settings)
        ids = np.full(DOCUMENTS, "", object)
        steps = workers.Steps(
            read=lambda task: logprobs.Asked(prompts[task], ids, continuations[task]),
            work=logprobs.scored,
            write=lambda _, table, path: parquet.write(table, path),
            length=logprobs.Asked.length,
        )
        taken: dict[str, list[float]] = {}
        worked: dict[str, list[float]] = {}  # seconds of processor time

        def run(key: str, opened, some: list[slice]) -> list[bytes]:
            started, before = time.perf_counter(), processor_time()
            files = workers.map_texts(opened, "benchmark", key, some, steps)
            taken.setdefault(key, []).append(time.perf_counter() - started)
            worked.setdefault(key, []).append(processor_time() - before)
            written = [file.read_bytes() for file in files]
            shards.forget("benchmark", key)
            return written

        for _ in range(rounds):
            with lm_at_work(folder, lm, compute_of(1)) as one:
                run("warm", one, tasks[:1])
                expected = run("one process", one, tasks)
            del one
            with lm_at_work(folder, lm, compute_of(n_workers)) as many:
                assert run("workers, with their start", many, tasks) == expected, "other bytes"
                assert run("workers", many, tasks) == expected, "other bytes"
            print(", ".join(f"{key} {values[-1]:.1f} s" for key, values in taken.items()), flush=True)
    tokens = count * DOCUMENTS * (300 if model else sum(shape.tokens))
    first = min(taken["one process"])
    out = [f"{count} shards of {DOCUMENTS} pairs, about {tokens:,} tokens, 1 thread each", ""]
    out += ["| | seconds (best round) | efficiency | processor time | of one process's |", "|---|---|---|---|---|"]
    for key in ("one process", "workers", "workers, with their start"):
        best = min(taken[key])
        efficiency = first / best / (1 if key == "one process" else n_workers)
        cost = min(worked[key])
        row = f"| {key.replace('workers', f'{n_workers} workers', 1)} | {best:.1f} | {efficiency:.2f} "
        out.append(f"{row}| {cost:.1f} | {cost / min(worked['one process']):.2f} |")
    return out


def processor_time() -> float:
    """Seconds of this process and of those that it started and that still run."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(used.user + used.system for used in times)


def compute_of(workers: int) -> params.Compute:
    return params.Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu")


def protocols(pile: Path, lm: LocalModel, folder: Path, n: int) -> list[str]:
    """Markdown: by subset, what rolling windows and documents' beginnings score; `n` drawn windows of each."""
    encoder, width = open_encoder(folder), 128
    rows: dict[str, list] = {}  # subset -> (document, its protocol's name, context, continuation)
    sizes: dict[str, list[tuple[int, bool]]] = {}  # subset -> bytes of each document, and whether it has 256 tokens
    for raw in chain.from_iterable(read_raw("pile", part, Rejects(0)) for part in parts(pile)):
        ends = encoder([raw.text]).ends
        data, bounds, long = raw.text.encode(), np.concatenate([[0], ends]), len(ends) >= 2 * width
        sizes.setdefault(raw.source, []).append((len(data), long))
        cuts = rolling_windows(ends, width, width, first=True)
        for begin, middle, end in bounds[cuts].tolist():
            window = (raw.source_document, data[begin:middle].decode(), data[middle:end].decode())
            rows.setdefault(raw.source, []).append(("whole", *window))
            if long and begin == 0 and middle:
                rows[raw.source].append(("beginning", *window))
    out = [
        "| subset | documents | too short for 128+128 | share of bytes in beginnings | bits per byte: beginnings "
        "| whole documents |"
    ]
    out += ["|---|---|---|---|---|---|"]
    totals = np.zeros((2, 2))  # protocol -> bits, bytes
    for subset, of_subset in sorted(rows.items()):
        n_bytes, long = (np.array(column) for column in zip(*sizes[subset], strict=True))
        figures = []
        for i, protocol in enumerate(("beginning", "whole")):
            of_protocol = [row[1:] for row in of_subset if row[0] == protocol]
            keys = [f"{name}:{number}" for number, (name, *_) in enumerate(of_protocol)]
            drawn = [of_protocol[j] for j in draws.sample(0, protocol, keys, n)]
            scores = lm.score([Prompt(context) for _, context, _ in drawn], [text for *_, text in drawn])
            nats = [-log_probs.sum(dtype=float) for log_probs in scores.log_probs]
            sums = np.stack([nats, [counts.sum() for counts in scores.bytes]], axis=1)
            of_document = intervals.cluster_sums(sums, np.array([name for name, *_ in drawn]))
            figures.append(intervals.bootstrap(of_document, _bits_per_byte, draws.generator(0, subset), 1000))
            scored = sum(len(text.encode()) for *_, text in of_protocol)
            totals[i] += figures[-1].value * scored, scored
        share = sum(len(row[-1].encode()) for row in of_subset if row[0] == "beginning") / n_bytes.sum()
        shown = [f"{f.value:.3f} [{f.low:.3f}, {f.high:.3f}]" for f in figures]
        out.append(f"| {subset} | {len(long)} | {1 - long.mean():.0%} | {share:.1%} | {' | '.join(shown)} |")
        print(out[-1], flush=True)
    before, now = totals[:, 0] / totals[:, 1]
    counts = np.concatenate([[long for _, long in of_subset] for of_subset in sizes.values()])
    share = totals[0, 1] / totals[1, 1]
    return [
        *out,
        f"| all, by bytes | {len(counts)} | {1 - counts.mean():.0%} | {share:.1%} | {before:.3f} | {now:.3f} |",
    ]


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 2) sums of nats and bytes."""
    return bits_per_byte(sums[:, 0], sums[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=1, help="times as many as else")
    parser.add_argument("--rounds", type=int, default=2, help="the best counts")
    parser.add_argument("--prompts", type=int, default=16, help="few-shot prompts")
    parser.add_argument("--pile", type=Path, help="a file of the Pile, .jsonl.zst")
    parser.add_argument("--model", type=Path, help="with --pile or --workers: the language model's folder")
    parser.add_argument("--workers", type=int, help="compare so many processes with one; --model: of real weights")
    parser.add_argument("--shards", type=int, default=6, help="with --workers: of each of them")
    parser.add_argument("--windows", type=int, default=16, help="with --pile: of each subset and protocol, at most")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.workers:
        model = given.model and given.model.absolute()
        print("\n".join(compare_workers(model, given.workers, given.shards, given.rounds)))
        return
    if given.pile:
        lm = open_model(given.model, "cpu", "fp32", given.threads)
        print("\n".join(protocols(given.pile, lm, given.model, given.windows)))
        return
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        more = given.queries * (50 if device == "cuda" else 1)
        for shape in SHAPES:
            print("\n".join(compare(shape, device, given.threads, shape.queries * more, given.rounds)), flush=True)
        print("\n".join(compare_prefix(SHAPES[0], device, given.threads, 1600, given.prompts)), flush=True)


if __name__ == "__main__":
    main()
