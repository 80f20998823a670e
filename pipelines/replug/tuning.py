"""LSR round by round (REPLUG §4): what the frozen language model says of the candidates, what the encoder learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from pipelines import draws, params, shards
from pipelines.replug import ensemble, gradients, objective, table
from pipelines.replug.checkpoint import Candidates
from pipelines.replug.queries import Queries
from pipelines.replug.scores import Scores
from pipelines.retrieval import dense, documents
from pipelines.retrieval.embeddings import embed_corpus, forget
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.tune import HELD_OUT, make

SHOWN = 10  # documents of the validation's ensembles and recall


@dataclass
class Side:
    """One corpus with its queries: the first `train` of them are learnt from, the others only judge.

    `pages` are the titles of the pages that the judging questions are about; None where the queries are no questions.
    """

    name: str
    docs: Path
    queries: Queries
    train: int
    pages: np.ndarray | None
    index: dense.Index
    scores: Scores

    @property
    def stage(self) -> str:
        return f"train_lsr-{self.name}"


@dataclass(frozen=True)
class Round:
    """One side's training queries until the next refresh: their candidates, what the language model says, the texts."""

    rows: np.ndarray  # (n,) of the side's queries, ascending
    found: np.ndarray  # (n, k) positions
    targets: np.ndarray  # (n, k) L(y | d, x)
    gains: np.ndarray  # (n, k) nats per token that the document helps the language model, over none
    documents: np.ndarray  # (m,) distinct positions in `found`, ascending
    texts: np.ndarray  # (m,)


@dataclass(frozen=True)
class Batch:
    documents: list[str]  # (m,) distinct texts
    queries: list[str]  # (b,)
    places: torch.Tensor  # (b, k) in `documents`
    targets: torch.Tensor  # (b, k) as in Round
    gains: torch.Tensor


class Tuner:
    """The encoder in training, and the candidates of the present round with what the language model says of them."""

    def __init__(self, encoder: Encoder, sides: Sequence[Side], settings: params.LSR, seed: int) -> None:
        self.encoder, self.sides, self.settings, self.seed = encoder, sides, settings, seed
        self.k = min(settings.top_k, *(side.index.count for side in sides))
        self.rounds: list[Round] = []  # by side
        self.owners = np.concatenate(
            [np.stack([np.full(side.train, i), np.arange(side.train)], axis=1) for i, side in enumerate(sides)]
        )  # (all training queries, 2): side and row
        self._drawn: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # the last order: epoch, permutation
        self.optimizer = torch.optim.Adam(encoder.parameters(), lr=settings.learning_rate)

    def rebuild(self, folder: Path, settings: params.Index, compute: params.Compute) -> list[list[int]]:
        """Embed every corpus anew with the encoder of this moment, and index it, in `folder`.

        Returns how far each index looks: probe and refine.
        """
        asked, looks = SimpleNamespace(retriever=self.encoder.settings, compute=compute), []
        with shards.atomic(folder) as whole:
            for side in self.sides:
                own, held = whole / side.name, side.queries.texts[-HELD_OUT:]
                self.encoder.save(own / "model")
                embed_corpus(side.docs, own / "model", own / "embeddings", asked, f"{side.stage}-embeddings")
                queries = partial(self.encoder.embed_queries, list(held))
                made, _ = make(own, queries, settings, self.seed, compute, side.stage)
                looks.append([made.probe, made.refine])
        for side in self.sides:
            forget(f"{side.stage}-embeddings")
        self.open(folder, looks, compute)
        return looks

    def open(self, folder: Path, looks: list[list[int]], compute: params.Compute) -> None:
        """Search in what `rebuild` made."""
        for side, (probe, refine) in zip(self.sides, looks, strict=True):
            side.index = dense.Index(folder / side.name, probe, refine, compute.threads)

    def judge(self) -> dict[str, float]:
        """On the queries not learnt from: bits per byte of the ensemble, and recall of the right page."""
        figures = {}
        for side in self.sides:
            held = np.arange(side.train, len(side.queries))
            if not len(held):
                continue
            shown, scores = self.search_of(side, held, SHOWN)
            if side.pages is None:
                side.scores.score(table.unique_pairs(held, shown))
                log_probs, n_bytes = table.gather(side.scores.judged, held, shown)
                nats = -ensemble.token_mixture(log_probs, ensemble.log_weights(scores, 1.0)).sum()
                figures[f"bpb_k{SHOWN}"] = float(ensemble.bits_per_byte(nats, n_bytes.sum()))
            else:
                right = documents.read(side.docs, shown).titles == side.pages[:, None]
                figures["recall_at_1"] = float(right[:, 0].mean())
                figures[f"recall_at_{SHOWN}"] = float(right.any(1).mean())
        return figures

    def search(self, first: int) -> Candidates:
        """The candidates for the steps from `first` to the next refresh, of those queries only."""
        asked = self.owners[self.needed(first)]
        rows = [asked[asked[:, 0] == i, 1] for i in range(len(self.sides))]
        return [(own, self.search_of(side, own, self.k)[0]) for side, own in zip(self.sides, rows, strict=True)]

    def needed(self, first: int) -> np.ndarray:
        """Numbers of the training queries of the steps from `first` to the next refresh, ascending."""
        last = min(first + self.settings.refresh_steps, self.settings.steps)
        return np.unique(np.concatenate([self._batch(number) for number in range(first, last)]))

    def ask(self, candidates: Candidates) -> None:
        """Have the language model score what it did not score before: the targets of the steps to come."""
        self.rounds = []
        for side, (rows, found) in zip(self.sides, candidates, strict=True):
            nothing = np.full((len(rows), 1), table.NONE)
            side.scores.score(table.unique_pairs(rows, np.concatenate([nothing, found], axis=1)))
            sums, tokens = side.scores.look_up(rows, found)
            targets = objective.likelihood(sums, tokens, self.settings.likelihood)
            alone = objective.likelihood(*side.scores.look_up(rows, nothing), "mean_logprob")
            gains = objective.likelihood(sums, tokens, "mean_logprob") - alone
            distinct = np.unique(found)
            texts = documents.read(side.docs, distinct).texts
            self.rounds.append(Round(rows, found, targets, gains, distinct, texts))

    @property
    def candidates(self) -> Candidates:
        return [(one.rows, one.found) for one in self.rounds]

    def step(self, number: int) -> dict[str, float]:
        """One step of Adam on the batch that is the `number`-th's, from 0."""
        s = self.settings
        warm = max(1, round(s.warmup * s.steps))
        self.optimizer.param_groups[0]["lr"] = s.learning_rate * min(1.0, (number + 1) / warm)
        batch = self._gathered(self._batch(number))
        seen = {}

        def loss(of_documents: torch.Tensor, of_queries: torch.Tensor) -> torch.Tensor:
            rows = of_documents.index_select(0, batch.places.ravel().to(of_documents.device))
            similarities = torch.einsum("bd,bkd->bk", of_queries, rows.view(*batch.places.shape, -1))
            value = objective.lsr_loss(similarities, batch.targets.to(similarities), s.gamma, s.beta, s.kl)
            seen["kl"], seen["similarities"] = float(value.detach()), similarities.detach().cpu()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        gradients.backward(self.encoder, batch.documents, batch.queries, loss, s)
        self.optimizer.step()
        chosen = torch.softmax(seen["similarities"].double() / s.gamma, dim=1)
        return {
            "kl": seen["kl"],
            "entropy_retriever": objective.entropy(seen["similarities"], s.gamma),
            "entropy_lm": objective.entropy(batch.targets, s.beta),
            "lm_gain": float((chosen * batch.gains).sum(1).mean()),
        }

    def _gathered(self, numbers: np.ndarray) -> Batch:
        """The batch of so numbered training queries; a repeated document is there once."""
        texts, places, targets, gains, asked = [], [], [], [], []
        owners = self.owners[numbers]
        for i, (side, here) in enumerate(zip(self.sides, self.rounds, strict=True)):
            rows = owners[owners[:, 0] == i, 1]
            if not len(rows):
                continue
            at = np.searchsorted(here.rows, rows)
            unique, inverse = np.unique(here.found[at], return_inverse=True)
            places.append(inverse.reshape(len(rows), -1) + len(texts))
            texts.extend(here.texts[np.searchsorted(here.documents, unique)])
            targets.append(here.targets[at])
            gains.append(here.gains[at])
            asked.extend(side.queries.texts[rows])
        return Batch(texts, asked, *(torch.from_numpy(np.concatenate(one)) for one in (places, targets, gains)))

    def _batch(self, number: int) -> np.ndarray:
        """Numbers of the training queries of a step: a pass over all of them in a drawn order, then another."""
        n, size = len(self.owners), self.settings.batch_size
        places = np.arange(number * size, (number + 1) * size)
        orders = [self._order(epoch)[places[places // n == epoch] % n] for epoch in np.unique(places // n)]
        return np.concatenate(orders)

    def _order(self, epoch: int) -> np.ndarray:
        if self._drawn[0] != epoch:
            purpose = draws.generator(self.seed, "lsr order", str(epoch))
            self._drawn = (epoch, purpose.permutation(len(self.owners)))
        return self._drawn[1]

    def search_of(self, side: Side, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return side.index.search(self.encoder.embed_queries(list(side.queries.texts[rows])), k)
