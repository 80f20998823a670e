"""Speed of an LSR step: Longtail's, and a plain one that embeds every document for each query and keeps no scores.

    .venv/bin/python -m benchmarks.lsr_speed
    .venv/bin/python -m benchmarks.lsr_speed --steps 20
    .venv/bin/python -m benchmarks.lsr_speed --refresh --steps 40

Queries, documents and language model are those in data/ (`longtail run` makes them). Candidates are those of its
untuned retriever. Two encoders are measured: the untuned one, and one of MiniLM's shape with random weights. The plain
step follows the formulas with transformers alone, in fp32: for each query it asks the language model about the k
documents, embeds them and the query with gradient, padded to the longest, and sums the loss. Both take the same batches
from the same weights, and must have the same losses. bf16 is measured if the CPU has it. Times are CPU seconds of one
core.

--refresh compares whole trainings of --steps steps in four rounds: with the index refreshed between rounds, and by a
second process beside them. Times are wall-clock seconds, so two cores should be free.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import SimpleNamespace

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel

from pipelines import methods, params_file
from pipelines.lm.open_lm import supervising_lm
from pipelines.lsr import train_lsr, training_queries
from pipelines.lsr.objective import GradientCache
from pipelines.lsr.refresh import Refresher
from pipelines.lsr.rounds import Trainer, TrainingFiles
from pipelines.retrieval.encoder import Encoder, has_bf16

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
PARTS = ("language model", "search", "gather", "embed documents", "embed queries", "loss, backward", "Adam")


class Plain:
    """A step that follows the formulas with transformers alone."""

    def __init__(self, encoder: Path, lm: Path, params: SimpleNamespace) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.model = AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval()
        self.lm_tokenizer = AutoTokenizer.from_pretrained(lm)
        self.lm = AutoModelForCausalLM.from_pretrained(lm, dtype=torch.float32).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=params.lsr.learning_rate)
        self.lsr, self.max_tokens, self.spent = params.lsr, params.retriever.max_tokens, Counter()

    def step(self, number: int, rows: list[tuple[str, list[str], list[str], str]]) -> float:
        """The loss of a batch; a row is a query, its documents, the language model's prompts, and the continuation."""
        lsr, losses = self.lsr, []
        for query, documents, prompts, continuation in rows:
            with timed(self.spent, "language model"):
                targets = self._mean_log_probs(prompts, continuation)
            with timed(self.spent, "embed documents"):
                of_documents = self._embed(documents)
            with timed(self.spent, "embed queries"):
                of_query = self._embed([query])
            log_p = torch.log_softmax(of_documents @ of_query[0] / lsr.gamma, 0)
            log_q = torch.log_softmax(targets / lsr.beta, 0)
            losses.append((log_q.exp() * (log_q - log_p)).sum())
        with timed(self.spent, "loss, backward"):
            loss = torch.stack(losses).mean()
            self.optimizer.zero_grad()
            loss.backward()
        with timed(self.spent, "Adam"):
            warm = round(lsr.warmup * lsr.steps)
            self.optimizer.param_groups[0]["lr"] = lsr.learning_rate * min(1.0, (number + 1) / warm)
            self.optimizer.step()
        return float(loss.detach())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        encoded = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        hidden, mask = self.model(input_ids=ids, attention_mask=mask).last_hidden_state, mask[..., None]
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    @torch.no_grad()
    def _mean_log_probs(self, prompts: list[str], continuation: str) -> torch.Tensor:
        wanted = self.lm_tokenizer(continuation, add_special_tokens=False)["input_ids"]
        read = [self.lm_tokenizer(prompt)["input_ids"] + wanted for prompt in prompts]
        width = max(map(len, read))
        ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens in read])
        mask = torch.tensor([[1] * len(tokens) + [0] * (width - len(tokens)) for tokens in read])
        log_probs = torch.log_softmax(self.lm(input_ids=ids, attention_mask=mask).logits, dim=-1)
        ends = [
            row[len(tokens) - len(wanted) - 1 : len(tokens) - 1] for row, tokens in zip(log_probs, read, strict=True)
        ]
        return torch.stack([end[range(len(wanted)), wanted].mean() for end in ends])


@contextmanager
def timed(spent: Counter, part: str) -> Iterator[None]:
    started = time.process_time()
    yield
    spent[part] += time.process_time() - started


@contextmanager
def watched(trainer: Trainer, gradients: GradientCache, spent: Counter) -> Iterator[None]:
    """Add each part's seconds to `spent`, without the seconds of the parts inside it."""
    inside: list[float] = []

    def watch(owner, name: str, part) -> None:
        work = getattr(owner, name)

        def call(*arguments):
            inside.append(0.0)
            started = time.process_time()
            result = work(*arguments)
            seconds = time.process_time() - started
            spent[part(*arguments)] += seconds - inside.pop()
            if inside:
                inside[-1] += seconds
            return result

        setattr(owner, name, call)

    names = {False: "embed documents", True: "embed queries"}
    watch(trainer.encoder, "embed_with_gradient", lambda _, queries=False: names[queries])
    watch(trainer.optimizer, "step", lambda *_: "Adam")
    watch(gradients, "backward", lambda *_: "loss, backward")
    watch(trainer, "step", lambda *_: "gather")
    yield


def rows_of(trainer: Trainer, step: int) -> list[tuple[str, list[str], list[str], str]]:
    """A step's batch as rows for the plain step: each query with all of its documents."""
    rows = []
    for i, query in trainer.schedule.queries[trainer.schedule.batch(step)]:
        queries, candidates = trainer.corpora[i].queries, trainer.candidates[i]
        documents = list(trainer.texts(i, candidates.positions[np.searchsorted(candidates.rows, query)]))
        prompts = [f"{text}\n{queries.contexts[query]}" for text in documents]
        rows.append((queries.texts[query], documents, prompts, queries.continuations[query]))
    return rows


def print_row(name: str, spent: Counter, steps: int, first: float) -> None:
    total = sum(spent.values()) / steps
    parts = " | ".join(f"{1000 * spent[part] / steps:,.0f}" if spent[part] else "-" for part in PARTS)
    print(f"| {name} | {1 / total:.2f} | {first / total:.1f} | {parts} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--refresh", action="store_true", help="compare lsr.refresh sync and async")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    params = params_file.load(*train_lsr.SECTIONS)
    params = methods.with_retriever(params, params.parts.tuned[0])
    params.lsr = params.lsr.model_copy(update={"kl": "q_p", "likelihood": "mean_logprob", "keep_scores": False})
    params.compute = params.compute.model_copy(update={"threads": 1, "workers": 1})
    data = Path("data").resolve()
    with tempfile.TemporaryDirectory() as name, chdir(name):
        for part in ("corpus", "questions", "index", "models/lm", "models/retriever"):
            Path("data", part).parent.mkdir(parents=True, exist_ok=True)
            Path("data", part).symlink_to(data / part)
        (compare_refreshes if arguments.refresh else compare_steps)(params, arguments.steps)


def compare_refreshes(params: SimpleNamespace, steps: int) -> None:
    """Time whole trainings; the parts are timed in the first, which runs in one process."""
    spent: Counter = Counter()

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments):
            with timed(spent, name):
                return real(*arguments)

        setattr(owner, name, call)

    watch(Refresher, "make_round")
    watch(Trainer, "step")
    seconds = {}
    for when in ("sync", "async"):
        update = {"refresh": when, "steps": steps, "refresh_steps": -(-steps // 4)}
        params.lsr = params.lsr.model_copy(update=update)
        started = time.perf_counter()
        train_lsr.train(params)
        seconds[when] = time.perf_counter() - started
        if when == "sync":
            parts = Counter(spent)
    shares = f"{parts['step']:.0f} s of a core for steps, {parts['make_round']:.0f} s for refreshes"
    print(f"\n{steps} steps in four rounds: {shares}\n")
    print("| refresh | seconds | times as fast |\n|---|---|---|")
    for when, took in seconds.items():
        print(f"| {when} | {took:.0f} | {seconds['sync'] / took:.2f} |")
    both = sum(parts.values())
    print(f"at most {both / max(parts.values()):.2f}, were all of the shorter part done beside the longer")


def compare_steps(params: SimpleNamespace, steps: int) -> None:
    """Time the first steps of a training, Longtail's and the plain ones."""
    params.lsr = params.lsr.model_copy(update={"refresh": "sync", "refresh_steps": steps})
    corpora = training_queries.read(params)
    schedule = training_queries.Schedule(corpora, params.lsr, params.seed)
    refresher = Refresher(params, corpora, schedule, TrainingFiles("benchmark"))
    lm, encoder = refresher.lm, refresher.encoder
    calls, score = Counter(), lm.score

    def counted(prompts, continuations):
        calls["pairs"] += len(prompts)
        return score(prompts, continuations)

    lm.score = counted
    search, new, again = Counter(), Counter(), Counter()
    with timed(search, "search"):
        retrieved = refresher.search(0)
    with timed(new, "language model"):
        candidates = refresher.score(retrieved)
    scored = calls["pairs"]
    with timed(again, "language model"):
        refresher.score(retrieved)
    print(f"{steps} steps of {params.lsr.batch_size} queries x {refresher.k} documents, {scored:,} pairs scored;")
    print(f"asked again: {calls['pairs'] - scored} pairs scored")

    wide, untuned = Path("minilm"), methods.encoder("dense", params.retrieves)
    tokenizer = AutoTokenizer.from_pretrained(untuned)
    torch.manual_seed(0)
    shape = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 512}
    BertModel(BertConfig(**shape, **MINILM), add_pooling_layer=False).save_pretrained(wide)
    tokenizer.save_pretrained(wide)
    for name, path in ((f"{encoder.dim} dimensions ({untuned})", untuned), ("MiniLM's shape", wide)):
        spent, losses = {}, {}
        for dtype in ("fp32", "bf16") if has_bf16("cpu") else ("fp32",):
            lsr = params.lsr.model_copy(update={"dtype": dtype})
            gradients = GradientCache(Encoder.open(path, params.retriever, params.compute), lsr)
            trainer = Trainer(gradients, corpora, schedule, lsr)
            spent[dtype] = Counter()
            with timed(spent[dtype], "gather"):
                trainer.start_round(candidates)
            with watched(trainer, gradients, spent[dtype]):
                losses[dtype] = [trainer.step(number)["kl"] for number in range(steps)]
        batches = [rows_of(trainer, number) for number in range(steps)]
        distinct = [len({text for _, texts, *_ in rows for text in texts}) for rows in batches]
        plain = Plain(path, supervising_lm(params)[0], params)
        losses["plain"] = [plain.step(number, rows) for number, rows in enumerate(batches)]
        assert np.allclose(losses["fp32"], losses["plain"], rtol=1e-3), f"other losses: {losses}"
        print(f"\n{name}; {np.mean(distinct):.0f} distinct documents a step\n")
        print(f"| step, one core | steps/s | times | ms: {' | '.join(PARTS)} |")
        print("|---" * (3 + len(PARTS)) + "|")
        first = sum(plain.spent.values()) / steps
        print_row("plain", plain.spent, steps, first)
        print_row("longtail, a pair's first time", spent["fp32"] + search + new, steps, first)
        for dtype, of_dtype in spent.items():
            print_row(f"longtail, scores kept, {dtype}", of_dtype + search + again, steps, first)
        encoding = Counter({part: seconds for part, seconds in plain.spent.items() if part != PARTS[0]})
        print_row("the encoder's part: plain", encoding, steps, sum(encoding.values()) / steps)
        for dtype, of_dtype in spent.items():
            print_row(f"the encoder's part: longtail, {dtype}", of_dtype, steps, sum(encoding.values()) / steps)
        if "bf16" in losses:
            off = max(abs(a - b) / b for a, b in zip(losses["bf16"], losses["fp32"], strict=True))
            print(f"bf16's losses are fp32's but for {off:.1e} of them, at most")


if __name__ == "__main__":
    main()
