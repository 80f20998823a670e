"""LSR step by step (REPLUG §4): what the encoder learns from the candidates of a round and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipelines import params
from pipelines.lsr import objective
from pipelines.lsr.gradients import Gradients
from pipelines.lsr.rounds import Candidates
from pipelines.lsr.training_queries import Order, Side
from pipelines.retrieval import documents


@dataclass(frozen=True)
class Round:
    """One side's candidates with their texts."""

    candidates: Candidates
    documents: np.ndarray  # (m,) distinct positions, ascending
    texts: np.ndarray  # (m,)


@dataclass(frozen=True)
class Batch:
    documents: list[str]  # (m,) distinct texts
    queries: list[str]  # (b,)
    places: torch.Tensor  # (b, k) in `documents`
    targets: torch.Tensor  # (b, k) as in Candidates
    gains: torch.Tensor


class Tuner:
    """The encoder in training: `gradients` says which, and where its gradient is computed."""

    def __init__(self, gradients: Gradients, sides: Sequence[Side], order: Order, settings: params.LSR) -> None:
        self.encoder, self._gradients = gradients.encoder, gradients
        self.sides, self.order, self.settings = sides, order, settings
        self.rounds: list[Round] = []  # by side
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=settings.learning_rate)

    def take(self, candidates: Sequence[Candidates]) -> None:
        """Learn from these, by side, in the steps to come."""
        self.rounds = []
        for side, own in zip(self.sides, candidates, strict=True):
            distinct = np.unique(own.found)
            self.rounds.append(Round(own, distinct, documents.read(side.docs, distinct).texts))

    def step(self, number: int) -> dict[str, float]:
        """One step of Adam on the batch that is the `number`-th's, from 0."""
        s = self.settings
        warm = max(1, round(s.warmup * s.steps))
        self.optimizer.param_groups[0]["lr"] = s.learning_rate * min(1.0, (number + 1) / warm)
        batch = self._gathered(self.order.batch(number))
        seen = {}

        def loss(of_documents: torch.Tensor, of_queries: torch.Tensor) -> torch.Tensor:
            rows = of_documents.index_select(0, batch.places.ravel().to(of_documents.device))
            similarities = torch.einsum("bd,bkd->bk", of_queries, rows.view(*batch.places.shape, -1))
            value = objective.lsr_loss(similarities, batch.targets.to(similarities), s.gamma, s.beta, s.kl)
            seen["kl"], seen["similarities"] = float(value.detach()), similarities.detach().cpu()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        self._gradients.backward(batch.documents, batch.queries, loss)
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
        owners = self.order.owners[numbers]
        for i, (side, here) in enumerate(zip(self.sides, self.rounds, strict=True)):
            rows, own = owners[owners[:, 0] == i, 1], here.candidates
            if not len(rows):
                continue
            at = np.searchsorted(own.rows, rows)
            unique, inverse = np.unique(own.found[at], return_inverse=True)
            places.append(inverse.reshape(len(rows), -1) + len(texts))
            texts.extend(here.texts[np.searchsorted(here.documents, unique)])
            targets.append(own.targets[at])
            gains.append(own.gains[at])
            asked.extend(side.queries.texts[rows])
        return Batch(texts, asked, *(torch.from_numpy(np.concatenate(one)) for one in (places, targets, gains)))
