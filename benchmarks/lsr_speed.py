"""A step of LSR: Longtail's beside the plain one, which embeds every document anew for each query and keeps no scores.

    .venv/bin/python -m benchmarks.lsr_speed
    .venv/bin/python -m benchmarks.lsr_speed --steps 20
    .venv/bin/python -m benchmarks.lsr_speed --refresh --steps 40

The queries, documents and language model are those in data/ (`longtail run` makes them), the candidates those of its
untuned retriever; encoders are that one, and one of MiniLM's shape with random weights. The plain step follows the
formulas with transformers alone, in fp32: for each query it asks the language model about the k documents, embeds them
and the query with gradient, padded to the longest, and sums the loss. Both take the same batches from the same weights,
and that they lose the same is checked; bf16 is measured where the CPU has it. Times are CPU seconds of one core.

With --refresh whole trainings are compared, of that many steps in four rounds: the index refreshed between rounds, and
by a second process beside them. Times are wall-clock seconds, so two cores should be free.
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

from pipelines import params_file
from pipelines.lm.open_lm import main_lm
from pipelines.lsr import train_lsr, training_queries
from pipelines.lsr.gradients import Gradients
from pipelines.lsr.refresh import RETRIEVER, Refresher
from pipelines.lsr.rounds import Rounds
from pipelines.lsr.tuning import Tuner
from pipelines.retrieval.encoder import Encoder, has_bf16

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
PARTS = ("language model", "search", "gather", "embed documents", "embed queries", "loss, backward", "Adam")


class Plain:
    """The step as the formulas have it."""

    def __init__(self, encoder: Path, lm: Path, given: SimpleNamespace) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.model = AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval()
        self.lm_tokenizer = AutoTokenizer.from_pretrained(lm)
        self.lm = AutoModelForCausalLM.from_pretrained(lm, dtype=torch.float32).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=given.lsr.learning_rate)
        self.settings, self.max_tokens, self.spent = given.lsr, given.retriever.max_tokens, Counter()

    def step(self, number: int, rows: list[tuple[str, list[str], list[str], str]]) -> float:
        """`rows` are a query, its documents, and what the language model reads before each, and is asked for."""
        s, kept = self.settings, []
        for query, documents, prompts, continuation in rows:
            with timed(self.spent, "language model"):
                targets = self._mean_log_probs(prompts, continuation)
            with timed(self.spent, "embed documents"):
                of_documents = self._embed(documents)
            with timed(self.spent, "embed queries"):
                of_query = self._embed([query])
            log_p = torch.log_softmax(of_documents @ of_query[0] / s.gamma, 0)
            log_q = torch.log_softmax(targets / s.beta, 0)
            kept.append((log_q.exp() * (log_q - log_p)).sum())
        with timed(self.spent, "loss, backward"):
            loss = torch.stack(kept).mean()
            self.optimizer.zero_grad()
            loss.backward()
        with timed(self.spent, "Adam"):
            self.optimizer.param_groups[0]["lr"] = s.learning_rate * min(1.0, (number + 1) / round(s.warmup * s.steps))
            self.optimizer.step()
        return float(loss.detach())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        given = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        hidden = self.model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).last_hidden_state
        mask = given["attention_mask"][..., None]
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    @torch.no_grad()
    def _mean_log_probs(self, prompts: list[str], continuation: str) -> torch.Tensor:
        asked = self.lm_tokenizer(continuation, add_special_tokens=False)["input_ids"]
        read = [self.lm_tokenizer(prompt)["input_ids"] + asked for prompt in prompts]
        width = max(map(len, read))
        ids = torch.tensor([one + [0] * (width - len(one)) for one in read])
        mask = torch.tensor([[1] * len(one) + [0] * (width - len(one)) for one in read])
        log_probs = torch.log_softmax(self.lm(input_ids=ids, attention_mask=mask).logits, dim=-1)
        own = [row[len(one) - len(asked) - 1 : len(one) - 1] for row, one in zip(log_probs, read, strict=True)]
        return torch.stack([rows[range(len(asked)), asked].mean() for rows in own])


@contextmanager
def timed(spent: Counter, part: str) -> Iterator[None]:
    started = time.process_time()
    yield
    spent[part] += time.process_time() - started


@contextmanager
def watched(tuner: Tuner, gradients: Gradients, spent: Counter) -> Iterator[None]:
    """Where a step's time goes; each part's seconds are its own, without those of the parts inside it."""
    inside: list[float] = []

    def watch(owner, name: str, part) -> None:
        work = getattr(owner, name)

        def call(*given):
            inside.append(0.0)
            started = time.process_time()
            result = work(*given)
            seconds = time.process_time() - started
            spent[part(*given)] += seconds - inside.pop()
            if inside:
                inside[-1] += seconds
            return result

        setattr(owner, name, call)

    names = {False: "embed documents", True: "embed queries"}
    watch(tuner.encoder, "embed_with_gradient", lambda _, queries=False: names[queries])
    watch(tuner.optimizer, "step", lambda *_: "Adam")
    watch(gradients, "backward", lambda *_: "loss, backward")
    watch(tuner, "step", lambda *_: "gather")
    yield


def rows_of(tuner: Tuner, number: int) -> list[tuple[str, list[str], list[str], str]]:
    """The plain step's rows of a batch: its queries one by one, each with all of its documents."""
    rows = []
    for i, query in tuner.order.owners[tuner.order.batch(number)]:
        queries, here = tuner.sides[i].queries, tuner.rounds[i]
        found = here.candidates.found[np.searchsorted(here.candidates.rows, query)]
        documents = list(here.texts[np.searchsorted(here.documents, found)])
        prompts = [text + queries.separator + queries.contexts[query] for text in documents]
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
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    given = params_file.load(*train_lsr.SECTIONS)
    given.lsr = given.lsr.model_copy(update={"kl": "q_p", "likelihood": "mean_logprob", "keep_scores": False})
    given.compute = given.compute.model_copy(update={"threads": 1, "workers": 1})
    data = Path("data").resolve()
    with tempfile.TemporaryDirectory() as name, chdir(name):
        for part in ("corpus", "popqa", "index", "models/lm", "models/retriever"):
            Path("data", part).parent.mkdir(parents=True, exist_ok=True)
            Path("data", part).symlink_to(data / part)
        (refreshes if asked.refresh else compare)(given, asked.steps)


def refreshes(given: SimpleNamespace, steps: int) -> None:
    """Whole trainings; the seconds of the core that each part takes are those of the first, in one process."""
    spent: Counter = Counter()

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(*given):
            with timed(spent, name):
                return real(*given)

        setattr(owner, name, call)

    watch(Refresher, "round")
    watch(Tuner, "step")
    seconds = {}
    for when in ("sync", "async"):
        update = {"refresh": when, "steps": steps, "refresh_steps": -(-steps // 4)}
        given.lsr = given.lsr.model_copy(update=update)
        started = time.perf_counter()
        train_lsr.train(given)
        seconds[when] = time.perf_counter() - started
        if when == "sync":
            parts = Counter(spent)
    shares = f"{parts['step']:.0f} s of a core for steps, {parts['round']:.0f} s for refreshes"
    print(f"\n{steps} steps in four rounds: {shares}\n")
    print("| refresh | seconds | times as fast |\n|---|---|---|")
    for when, own in seconds.items():
        print(f"| {when} | {own:.0f} | {seconds['sync'] / own:.2f} |")
    both = sum(parts.values())
    print(f"at most {both / max(parts.values()):.2f}, were all of the shorter part done beside the longer")


def compare(given: SimpleNamespace, steps: int) -> None:
    given.lsr = given.lsr.model_copy(update={"refresh": "sync", "refresh_steps": steps})
    both = training_queries.read(given)
    order = training_queries.Order(both, given.lsr, given.seed)
    refresher = Refresher(given, both, order, Rounds("benchmark"))
    lm, encoder = refresher.lm, refresher.encoder
    calls, score = Counter(), lm.score

    def counted(prompts, continuations):
        calls["pairs"] += len(prompts)
        return score(prompts, continuations)

    lm.score = counted
    search, new, again = Counter(), Counter(), Counter()
    with timed(search, "search"):
        found = refresher.search(0)
    with timed(new, "language model"):
        candidates = refresher.ask(found)
    scored = calls["pairs"]
    with timed(again, "language model"):
        refresher.ask(found)
    print(f"{steps} steps of {given.lsr.batch_size} queries x {refresher.k} documents, {scored:,} pairs scored;")
    print(f"asked again: {calls['pairs'] - scored} pairs scored")

    wide = Path("minilm")
    own = AutoTokenizer.from_pretrained(RETRIEVER)
    torch.manual_seed(0)
    shape = {"vocab_size": len(own), "pad_token_id": own.pad_token_id, "max_position_embeddings": 512}
    BertModel(BertConfig(**shape, **MINILM), add_pooling_layer=False).save_pretrained(wide)
    own.save_pretrained(wide)
    for name, path in ((f"{encoder.dim} dimensions (data/models/retriever)", RETRIEVER), ("MiniLM's shape", wide)):
        spent, losses = {}, {}
        for dtype in ("fp32", "bf16") if has_bf16("cpu") else ("fp32",):
            settings = given.lsr.model_copy(update={"dtype": dtype})
            gradients = Gradients(Encoder.open(path, given.retriever, given.compute), [], settings)
            own = Tuner(gradients, both, order, settings)
            spent[dtype] = Counter()
            with timed(spent[dtype], "gather"):
                own.take(candidates)
            with watched(own, gradients, spent[dtype]):
                losses[dtype] = [own.step(number)["kl"] for number in range(steps)]
        batches = [rows_of(own, number) for number in range(steps)]
        distinct = [len({text for _, texts, *_ in rows for text in texts}) for rows in batches]
        plain = Plain(path, main_lm(given)[0], given)
        losses["plain"] = [plain.step(number, rows) for number, rows in enumerate(batches)]
        assert np.allclose(losses["fp32"], losses["plain"], rtol=1e-3), f"other losses: {losses}"
        print(f"\n{name}; {np.mean(distinct):.0f} distinct documents a step\n")
        print(f"| step, one core | steps/s | times | ms: {' | '.join(PARTS)} |")
        print("|---" * (3 + len(PARTS)) + "|")
        first = sum(plain.spent.values()) / steps
        print_row("plain", plain.spent, steps, first)
        print_row("longtail, a pair's first time", spent["fp32"] + search + new, steps, first)
        for dtype, own_spent in spent.items():
            print_row(f"longtail, scores kept, {dtype}", own_spent + search + again, steps, first)
        asked = Counter({part: seconds for part, seconds in plain.spent.items() if part != PARTS[0]})
        print_row("the encoder's part: plain", asked, steps, sum(asked.values()) / steps)
        for dtype, own_spent in spent.items():
            print_row(f"the encoder's part: longtail, {dtype}", own_spent, steps, sum(asked.values()) / steps)
        if "bf16" in losses:
            off = max(abs(a - b) / b for a, b in zip(losses["bf16"], losses["fp32"], strict=True))
            print(f"bf16's losses are fp32's but for {off:.1e} of them, at most")


if __name__ == "__main__":
    main()
