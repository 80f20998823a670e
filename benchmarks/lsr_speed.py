"""Speed of an LSR step: Longtail's, and a plain one that embeds every document for each query and
keeps no scores.

Queries, documents and language model are those in data/ (`longtail run` makes them). Candidates are
those of its untuned retriever. Two encoders are measured: the untuned one, and one of MiniLM's
shape with random weights. The plain step follows the formulas with transformers alone, in fp32: for
each query it asks the language model about the k documents, embeds them and the query with
gradient, padded to the longest, and sums the loss. Both take the same batches from the same weights
in turns, and must have the same losses. bf16 is measured if the CPU has it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel

from benchmarks import measure
from benchmarks.encoder_speed import operations
from benchmarks.lm import peak, plain_scores
from benchmarks.measure import Row, Run
from pipelines import methods
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import supervising_lm
from pipelines.lsr import training_queries
from pipelines.lsr.lsr_settings import Settings
from pipelines.lsr.rounds import Refresher, TrainingFiles, make_deterministic
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


class Plain:
    """A step that follows the formulas with transformers alone."""

    def __init__(self, encoder: Path, lm: Path, settings: Settings, retriever: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        self.model = AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval()
        self.lm_tokenizer = AutoTokenizer.from_pretrained(lm)
        self.lm = AutoModelForCausalLM.from_pretrained(lm, dtype=torch.float32).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lsr.learning_rate)
        self.lsr = settings.lsr
        self.max_tokens = settings.retriever[retriever].max_tokens

    def step(self, number: int, rows: list[tuple[str, list[str], list[str], str]]) -> float:
        """The loss of a batch; a row is a query, its documents, the language model's prompts,
        and the continuation.
        """
        lsr, losses = self.lsr, []
        for query, documents, prompts, continuation in rows:
            targets = self._mean_log_probs(prompts, continuation)
            of_documents, of_query = self._embed(documents), self._embed([query])
            log_p = torch.log_softmax(of_documents @ of_query[0] / lsr.gamma, 0)
            log_q = torch.log_softmax(targets / lsr.beta, 0)
            losses.append((log_q.exp() * (log_q - log_p)).sum())
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        warm = round(lsr.warmup * lsr.steps)
        self.optimizer.param_groups[0]["lr"] = lsr.learning_rate * min(1.0, (number + 1) / warm)
        self.optimizer.step()
        return float(loss.detach())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        encoded = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        hidden, mask = (
            self.model(input_ids=ids, attention_mask=mask).last_hidden_state,
            mask[..., None],
        )
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    def _mean_log_probs(self, prompts: list[str], continuation: str) -> torch.Tensor:
        asked, n = [Prompt("", prompt) for prompt in prompts], len(prompts)
        found = plain_scores(self.lm, self.lm_tokenizer, n, asked, [continuation] * n)
        return torch.from_numpy(found).reshape(n, -1).mean(1)


def batch_of(trainer: Trainer, step: int) -> list[tuple[str, list[str], list[str], str]]:
    """A step's batch as rows for the plain step: each query with all of its documents."""
    rows = []
    for i, query in trainer.schedule.queries[trainer.schedule.batch(step)]:
        corpus, candidates = trainer.corpora[i], trainer.candidates[i]
        positions = candidates.positions[np.searchsorted(candidates.rows, query)]
        pairs = np.stack([np.full_like(positions, query), positions], axis=1)
        prompts = [
            prompt.document + prompt.context
            for prompt in logprobs.prompts(corpus.queries, corpus.docs, pairs)[0]
        ]
        documents = list(trainer.texts(i, positions))
        rows.append(
            (corpus.queries.texts[query], documents, prompts, corpus.queries.continuations[query])
        )
    return rows


def compare_steps(settings: Settings, retriever: str, steps: int) -> list[Row]:
    """The first steps of a training, Longtail's and the plain ones."""
    lsr = settings.lsr.model_copy(update={"refresh_steps": steps})
    settings = settings.model_copy(update={"lsr": lsr})
    corpora = training_queries.read_training_queries(settings, retriever)
    schedule = training_queries.Schedule(corpora, lsr, settings.seed)
    files = TrainingFiles("benchmark", "key")
    refresher = Refresher(settings, retriever, corpora, schedule, files)
    search = measure.timed(lambda: refresher.search(0))
    ask = partial(_candidates, refresher, search.result)
    score, again = measure.timed(ask), measure.timed(ask)  # the second time all scores are kept
    untuned = methods.encoder_folder(methods.Method("dense", retriever))
    shapes = {
        f"the encoder of data/, {refresher.encoder.dim} dimensions": untuned,
        "MiniLM's shape": _minilm(untuned),
    }
    found = []
    for name, folder in shapes.items():
        run, most = _in_turns(folder, settings, retriever, corpora, schedule, score.result, steps)
        searched = {dtype: search.cpu + again.cpu for dtype in run if dtype != "plain"} | {
            "plain": 0.0
        }
        taken = {way: one._replace(cpu=one.cpu + searched[way]) for way, one in run.items()}
        taken["fp32, a pair's first time"] = run["fp32"]._replace(
            cpu=run["fp32"].cpu + search.cpu + score.cpu
        )
        for way, one in taken.items():
            if way != "plain":
                what = f"LSR's step, {name}, {way}{'' if 'first' in way else ', scores kept'}"
                limit = (
                    {"limit": f"the encoder's products in {way}", "most": most[way]}
                    if way in most
                    else {}
                )
                found.append(
                    measure.row(
                        what, PEER, "steps", steps, taken["plain"], one, memory=False, **limit
                    )
                )
    return found


def _candidates(refresher: Refresher, retrieved) -> list:
    """Each corpus's candidates with the language model's scores."""
    return [refresher.score(number, *of_corpus) for number, of_corpus in enumerate(retrieved)]


def _in_turns(
    folder: Path,
    settings: Settings,
    retriever: str,
    corpora,
    schedule,
    candidates,
    steps: int,
) -> tuple[dict[str, Run], dict[str, float]]:
    """What so many steps take by each way, a step of each in turns; raises where losses differ.

    Also the steps a second that the products allow, by number format, if each text of a step is
    embedded once.
    """
    ways: dict[str, Callable[[int], float]] = {}
    taken: dict[str, Run] = {}

    def add(way: str, run: Run) -> None:
        before = taken.get(way, Run(0.0, 0.0, 0.0, []))
        results = before.result if run.result is None else [*before.result, run.result]
        taken[way] = Run(before.cpu + run.cpu, before.wall + run.wall, 0.0, results)

    for dtype in ("fp32", "bf16") if has_bf16("cpu") else ("fp32",):
        lsr = settings.lsr.model_copy(update={"dtype": dtype})
        encoder, betas = (
            Encoder.open(folder, settings.retriever[retriever], settings.compute),
            [lsr.beta] * len(corpora),
        )
        trainer = Trainer(encoder, corpora, schedule, lsr, betas)
        add(dtype, measure.timed(lambda trainer=trainer: trainer.start_round(candidates) and None))
        ways[dtype] = lambda number, trainer=trainer: trainer.step(number)["kl"]
    plain, batches = (
        Plain(folder, supervising_lm(settings)[0], settings, retriever),
        [batch_of(trainer, i) for i in range(steps)],
    )
    ways["plain"] = lambda number: plain.step(number, batches[number])
    for number in range(steps):
        for way, step in ways.items():
            add(way, measure.timed(partial(step, number)))
    losses = {way: run.result for way, run in taken.items()}
    for way, close in {"fp32": 1e-3, "bf16": 1e-2}.items():
        assert way not in losses or np.allclose(losses[way], losses["plain"], rtol=close), (
            f"other losses: {losses}"
        )
    forward = 0.0
    for rows in batches:
        distinct = sorted({text for query, documents, *_ in rows for text in (query, *documents)})
        forward += operations(
            trainer.encoder.documents.tokens(distinct).lengths, plain.model.config
        )
    # going back takes two products for each of the way there
    return taken, {
        dtype: steps * peak(dtype) / (3 * forward) for dtype in taken if dtype != "plain"
    }


def _minilm(untuned: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(untuned)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 512,
    }
    BertModel(BertConfig(**shape, **MINILM), add_pooling_layer=False).save_pretrained("minilm")
    tokenizer.save_pretrained("minilm")
    return Path("minilm")


def rows(quick: bool = False) -> list[Row]:
    data = Path("data").resolve()
    if not (data / "models/lm").is_dir() or not (data / "index").is_dir():
        return [Row("LSR's step", PEER, missing=measure.NO_RUN)]
    make_deterministic()
    settings = params_file.load_settings(Settings)
    lsr = settings.lsr.model_copy(update={"kl": "q_p", "likelihood": "mean_logprob"})
    compute = settings.compute.model_copy(update={"threads": 1, "workers": 1})
    settings = settings.model_copy(update={"lsr": lsr, "compute": compute})
    with measure.in_folder():
        for part in ("corpus", "questions", "index", "models/lm", "models/retriever"):
            Path("data", part).parent.mkdir(parents=True, exist_ok=True)
            Path("data", part).symlink_to(data / part)
        return compare_steps(settings, settings.parts.tuned[0], 1 if quick else 3)
