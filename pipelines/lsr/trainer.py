"""The training steps of LSR (REPLUG §4): the encoder learns from a round's scored candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipelines.lsr import objective
from pipelines.lsr.rounds import ScoredCandidates
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.params.params import LSR
from pipelines.retrieval import documents
from pipelines.retrieval.encoder import Encoder


@dataclass(frozen=True)
class Batch:
    """What a step learns from, without the queries that teach nothing.

    Q would only flatten P_R where all documents of a query have the same target.
    """

    documents: list[str]  # distinct, (m,)
    queries: list[str]  # (b,)
    document_of: torch.Tensor  # (b, k), numbers of `documents`
    targets: torch.Tensor  # (b, k)
    gains: torch.Tensor  # (b, k)
    betas: torch.Tensor  # (b, 1)
    uniform: float  # the share of queries that were left out


class Trainer:
    """The encoder in training, with Adam. `start_round` says what the next steps learn from."""

    def __init__(
        self,
        encoder: Encoder,
        corpora: Sequence[CorpusQueries],
        schedule: Schedule,
        lsr: LSR,
        betas: Sequence[float],
    ) -> None:
        """`betas` are each corpus's temperatures of Q."""
        self.encoder = encoder
        self.corpora = corpora
        self.schedule = schedule
        self.lsr = lsr
        self.betas = betas
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=lsr.learning_rate)

    def start_round(self, candidates: Sequence[ScoredCandidates]) -> None:
        """Learn from these candidates, by corpus, in the steps to come.

        Their texts are read into memory.
        """
        self.candidates = candidates
        self._texts = []  # the last round's texts need not be in memory beside these
        self._distinct = [np.unique(scored.positions) for scored in candidates]  # ascending
        template = self.encoder.settings.document
        for corpus, positions in zip(self.corpora, self._distinct, strict=True):
            read = documents.read_documents(corpus.docs, positions)
            self._texts.append(read.filled(template))

    def texts(self, number: int, positions: np.ndarray) -> np.ndarray:
        """A corpus's candidates, titles and texts, as the encoder reads them."""
        places = np.searchsorted(self._distinct[number], positions)
        return self._texts[number][places]

    def step(self, number: int) -> dict[str, float]:
        """One step of Adam, numbered from 0; returns its row of the training curve."""
        lsr = self.lsr
        warm_up_steps = max(1, round(lsr.warmup * lsr.steps))
        learning_rate = lsr.learning_rate * min(1.0, (number + 1) / warm_up_steps)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        batch = self.batch(number)
        if not batch.queries:
            return {
                "kl": 0.0,
                "entropy_retriever": 0.0,
                "entropy_lm": 1.0,
                "lm_gain": 0.0,
                "uniform": batch.uniform,
            }

        seen: dict[str, Any] = {}

        def loss(document_vectors: torch.Tensor, query_vectors: torch.Tensor) -> torch.Tensor:
            numbers = batch.document_of.ravel().to(document_vectors.device)
            rows = document_vectors.index_select(0, numbers)
            rows = rows.view(*batch.document_of.shape, -1)
            similarities = torch.einsum("bd,bkd->bk", query_vectors, rows)
            targets = batch.targets.to(similarities)
            betas = batch.betas.to(similarities)
            value = objective.lsr_loss(similarities, targets, lsr.gamma, betas, lsr.kl)
            seen["kl"] = float(value.detach())
            seen["similarities"] = similarities.detach().cpu()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        objective.backward(self.encoder, lsr, batch.documents, batch.queries, loss)
        self.optimizer.step()

        similarities = seen["similarities"]
        p_retriever = torch.softmax(similarities.double() / lsr.gamma, dim=1)
        expected_gains = (p_retriever * batch.gains).sum(1)
        return {
            "kl": seen["kl"],
            "entropy_retriever": objective.entropy(similarities, lsr.gamma),
            "entropy_lm": objective.entropy(batch.targets, batch.betas),
            "lm_gain": float(expected_gains.mean()),
            "uniform": batch.uniform,
        }

    def batch(self, number: int) -> Batch:
        """What a step learns from."""
        texts: list[str] = []
        queries: list[str] = []
        document_of = []
        targets = []
        gains = []
        betas = []
        scheduled = self.schedule.queries[self.schedule.batch(number)]
        for number_of_corpus, candidates in enumerate(self.candidates):
            corpus = self.corpora[number_of_corpus]
            rows = scheduled[scheduled[:, 0] == number_of_corpus, 1]
            places = np.searchsorted(candidates.rows, rows)
            teaches = objective.informative(candidates.targets[places])
            rows = rows[teaches]
            places = places[teaches]

            positions = candidates.positions[places]
            distinct, numbers = np.unique(positions, return_inverse=True)
            document_of.append(numbers.reshape(positions.shape) + len(texts))
            texts.extend(self.texts(number_of_corpus, distinct))
            queries.extend(corpus.queries.texts[rows])
            targets.append(candidates.targets[places])
            gains.append(candidates.gains[places])
            betas.append(np.full((len(rows), 1), self.betas[number_of_corpus]))
        return Batch(
            documents=texts,
            queries=queries,
            document_of=_joined(document_of),
            targets=_joined(targets),
            gains=_joined(gains),
            betas=_joined(betas),
            uniform=1 - len(queries) / len(scheduled),
        )


def _joined(arrays: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays))
