"""Speed of an LSR step: Longtail's, and a plain one that embeds every document for each query and
keeps no scores.

Queries, documents and language model are those in data/ (`longtail run` makes them). Candidates are
those of its untuned retriever. Two encoders are measured: the untuned one, and one of MiniLM's
shape with random weights. The plain step follows the formulas with transformers alone, in fp32: for
each query it asks the language model about the k documents, embeds them and the query with
gradient, padded to the longest, and sums the loss. Both take the same batches from the same weights
in turns, and must have the same losses. bf16 is measured if the CPU has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel

from benchmarks import measure, operations, plain_ways
from benchmarks.measure import Row
from pipelines import methods
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import supervising_lm
from pipelines.lsr import training_queries
from pipelines.lsr.lsr_settings import Settings
from pipelines.lsr.rounds import Refresher, ScoredCandidates, TrainingFiles, make_deterministic
from pipelines.lsr.trainer import Trainer
from pipelines.params import params_file
from pipelines.retrieval.encoder import Encoder
from pipelines.scoring import logprobs
from pipelines.work.devices import has_bf16

MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
PEER = "fp32, every document embedded for each query, no scores kept"
CLOSE = {"fp32": 1e-3, "bf16": 1e-2}  # relative difference of losses


class Example(NamedTuple):
    """What the plain step learns from: a query with all of its documents."""

    query: str
    documents: list[str]
    prompts: list[str]  # to the language model, one for each document
    continuation: str


@dataclass(frozen=True)
class Training:
    """A training's queries, the candidates of its first round, and what these took."""

    settings: Settings
    retriever: str
    corpora: Sequence[training_queries.CorpusQueries]
    schedule: training_queries.Schedule
    candidates: list[ScoredCandidates]  # of each corpus
    search_seconds: float  # of CPU, for all candidates
    score_seconds: float  # the language model is asked
    look_up_seconds: float  # all scores are kept


@dataclass(frozen=True)
class Steps:
    """What the same steps took by each way."""

    seconds: dict[str, float]  # of CPU
    operations: float  # multiplications and additions that no way can do without


def rows(quick: bool = False) -> list[Row]:
    data = Path("data").resolve()
    if not (data / "models/lm").is_dir() or not (data / "index").is_dir():
        return [Row("LSR's step", PEER, missing=measure.NO_RUN)]

    make_deterministic()
    n_steps = 1 if quick else 3
    settings = params_file.load_settings(Settings)
    lsr_changes = {"kl": "q_p", "likelihood": "mean_logprob", "refresh_steps": n_steps}
    changes = {
        "lsr": settings.lsr.model_copy(update=lsr_changes),
        "compute": settings.compute.model_copy(update={"threads": 1, "workers": 1}),
    }
    settings = settings.model_copy(update=changes)
    with measure.in_folder():
        for part in ("corpus", "questions", "index", "models/lm", "models/retriever"):
            link = Path("data", part)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(data / part)
        return compare_steps(settings, settings.parts.tuned[0], n_steps)


def compare_steps(settings: Settings, retriever: str, n_steps: int) -> list[Row]:
    """The first steps of a training, Longtail's and the plain ones."""
    corpora = training_queries.read_training_queries(settings, retriever)
    schedule = training_queries.Schedule(corpora, settings.lsr, settings.seed)
    files = TrainingFiles("benchmark", "key")
    refresher = Refresher(settings, retriever, corpora, schedule, files)
    search = measure.timed(partial(refresher.search, 0))
    ask = partial(score_candidates, refresher, search.result)
    score = measure.timed(ask)
    look_up = measure.timed(ask)
    training = Training(
        settings=settings,
        retriever=retriever,
        corpora=corpora,
        schedule=schedule,
        candidates=score.result,
        search_seconds=search.cpu,
        score_seconds=score.cpu,
        look_up_seconds=look_up.cpu,
    )

    untuned = methods.encoder_folder(methods.Method("dense", retriever))
    dim = refresher.encoder.dim
    table = compare_encoder(f"the encoder of data/, {dim} dimensions", untuned, training, n_steps)
    minilm = Path("minilm")
    write_minilm(untuned, minilm)
    return table + compare_encoder("MiniLM's shape", minilm, training, n_steps)


def score_candidates(
    refresher: Refresher, searched: list[tuple[np.ndarray, np.ndarray]]
) -> list[ScoredCandidates]:
    """Each corpus's candidates with the language model's scores."""
    scored = []
    for number, (queries, positions) in enumerate(searched):
        scored.append(refresher.score(number, queries, positions))
    return scored


def compare_encoder(name: str, encoder: Path, training: Training, n_steps: int) -> list[Row]:
    """A row for each number format, and one for scores that are not kept yet."""
    steps = measure_steps(encoder, training, n_steps)
    plain_rate = n_steps / steps.seconds["plain"]
    table = []
    for dtype in CLOSE:
        if dtype not in steps.seconds:
            continue
        with_kept = steps.seconds[dtype] + training.search_seconds + training.look_up_seconds
        products = operations.products_per_second(dtype)
        row = Row(
            f"LSR's step, {name}, {dtype}, scores kept",
            PEER,
            unit="steps",
            of_peer=plain_rate,
            ours=n_steps / with_kept,
            limit=f"the encoder's products in {dtype}",
            most=n_steps * products / steps.operations,
        )
        table.append(row)

    first_time = steps.seconds["fp32"] + training.search_seconds + training.score_seconds
    label = f"LSR's step, {name}, fp32, a pair's first time"
    return [*table, Row(label, PEER, "steps", plain_rate, n_steps / first_time)]


def measure_steps(folder: Path, training: Training, n_steps: int) -> Steps:
    """Steps of one encoder by each way, a step of each in turns; raises where losses differ."""
    seconds: dict[str, float] = {}
    ways: dict[str, Callable[[int], float]] = {}
    for dtype in ("fp32", "bf16") if has_bf16("cpu") else ("fp32",):
        trainer = open_trainer(folder, training, dtype)
        start = measure.timed(partial(trainer.start_round, training.candidates))
        seconds[dtype] = start.cpu
        ways[dtype] = partial(step_loss, trainer)

    plain = PlainTraining(folder, training)
    batches = [read_batch(trainer, number) for number in range(n_steps)]
    seconds["plain"] = 0.0
    ways["plain"] = lambda number: plain.step(number, batches[number])

    losses: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(n_steps):
        for way, step in ways.items():
            run = measure.timed(partial(step, number))
            seconds[way] += run.cpu
            losses[way].append(run.result)

    for dtype, close in CLOSE.items():
        if dtype in losses:
            is_close = np.allclose(losses[dtype], losses["plain"], rtol=close)
            assert is_close, f"other losses: {losses}"
    # going back takes two products for each of the way there
    return Steps(seconds, 3 * forward_operations(trainer.encoder, folder, batches))


def open_trainer(folder: Path, training: Training, dtype: str) -> Trainer:
    settings = training.settings
    lsr = settings.lsr.model_copy(update={"dtype": dtype})
    encoder = Encoder.open(folder, settings.retriever[training.retriever], settings.compute)
    betas = [lsr.beta] * len(training.corpora)
    return Trainer(encoder, training.corpora, training.schedule, lsr, betas)


def step_loss(trainer: Trainer, number: int) -> float:
    return trainer.step(number)["kl"]


def read_batch(trainer: Trainer, step: int) -> list[Example]:
    """A step's batch, as the plain step reads it."""
    examples = []
    for number, query in trainer.schedule.queries[trainer.schedule.batch(step)]:
        corpus = trainer.corpora[number]
        candidates = trainer.candidates[number]
        positions = candidates.positions[np.searchsorted(candidates.rows, query)]
        pairs = np.stack([np.full_like(positions, query), positions], axis=1)
        prompts, *_ = logprobs.prompts(corpus.queries, corpus.docs, pairs)
        example = Example(
            query=corpus.queries.texts[query],
            documents=list(trainer.texts(number, positions)),
            prompts=[prompt.document + prompt.context for prompt in prompts],
            continuation=corpus.queries.continuations[query],
        )
        examples.append(example)
    return examples


def forward_operations(encoder: Encoder, folder: Path, batches: list[list[Example]]) -> float:
    """Operations of the passes forward, if each text of a step is embedded once."""
    shape = BertConfig.from_pretrained(folder)
    total = 0.0
    for batch in batches:
        texts: set[str] = set()
        for example in batch:
            texts.add(example.query)
            texts.update(example.documents)
        lengths = encoder.documents.tokens(sorted(texts)).lengths
        total += operations.of_encoder(lengths, shape)
    return total


class PlainTraining:
    """Steps that follow the formulas with transformers alone."""

    def __init__(self, encoder: Path, training: Training) -> None:
        settings = training.settings
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.model = AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval()
        lm, *_ = supervising_lm(settings)
        self.lm_tokenizer = AutoTokenizer.from_pretrained(lm)
        self.lm = AutoModelForCausalLM.from_pretrained(lm, dtype=torch.float32).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lsr.learning_rate)
        self.lsr = settings.lsr
        self.max_tokens = settings.retriever[training.retriever].max_tokens

    def step(self, number: int, batch: list[Example]) -> float:
        """The loss of a batch, before the step that it leads to."""
        losses = []
        for example in batch:
            scores = self._mean_log_probs(example.prompts, example.continuation)
            documents = self._embed(example.documents)
            (query,) = self._embed([example.query])
            log_p = torch.log_softmax(documents @ query / self.lsr.gamma, 0)
            log_q = torch.log_softmax(scores / self.lsr.beta, 0)
            losses.append((log_q.exp() * (log_q - log_p)).sum())
        loss = torch.stack(losses).mean()

        self.optimizer.zero_grad()
        loss.backward()
        warm_steps = round(self.lsr.warmup * self.lsr.steps)
        share = min(1.0, (number + 1) / warm_steps)
        self.optimizer.param_groups[0]["lr"] = self.lsr.learning_rate * share
        self.optimizer.step()
        return float(loss.detach())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        """Vectors of length 1, (texts, dim)."""
        vectors = plain_ways.mean_vectors(self.model, self.tokenizer, texts, self.max_tokens)
        return torch.nn.functional.normalize(vectors, dim=1)

    def _mean_log_probs(self, prompts: list[str], continuation: str) -> torch.Tensor:
        """The continuation's mean log-prob a token after each prompt."""
        n = len(prompts)
        pairs = [Prompt("", prompt) for prompt in prompts]
        log_probs = plain_ways.scores(self.lm, self.lm_tokenizer, n, pairs, [continuation] * n)
        return torch.from_numpy(log_probs).reshape(n, -1).mean(1)


def write_minilm(untuned: Path, folder: Path) -> None:
    """An encoder of MiniLM's shape with random weights, and the untuned encoder's tokenizer."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(untuned)
    shape = BertConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=512,
        **MINILM,
    )
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
