"""The training steps of LSR (REPLUG §4): the encoder learns from a round's scored candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipelines.lm.ragged import Ragged
from pipelines.lsr import objective
from pipelines.lsr.rounds import ScoredCandidates
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.params.params import LSR
from pipelines.retrieval import documents
from pipelines.retrieval.encoder import Encoder
from pipelines.work import devices


@dataclass(frozen=True)
class Batch:
    """What a step learns from, without the queries that teach nothing.

    Q would only flatten P_R where all documents of a query have the same target.
    """

    documents: Ragged  # tokens of distinct documents, (m,)
    queries: Ragged  # tokens, (b,)
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
        """`betas` are each corpus's temperatures of Q. `encoder` was opened with EXACT."""
        self.encoder = encoder
        self.corpora = corpora
        self.schedule = schedule
        self.lsr = lsr
        # On a GPU that has bf16, if the untuned encoder is as good in it; weights and Adam stay
        # fp32.
        self._bf16 = encoder.on_gpu and encoder.fastest("auto").dtype == "bf16"
        self.betas = betas
        weights = encoder.parameters()
        self.optimizer = torch.optim.Adam(weights, lr=lsr.learning_rate, fused=encoder.on_gpu)

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

    def step(self, number: int, batch: Batch | None = None) -> dict[str, float]:
        """One step of Adam, numbered from 0; returns its row of the training curve.

        `batch` is what `batch(number)` returns, if the caller has it.
        """
        lsr = self.lsr
        warm_up_steps = max(1, round(lsr.warmup * lsr.steps))
        learning_rate = lsr.learning_rate * min(1.0, (number + 1) / warm_up_steps)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        batch = batch or self.batch(number)
        if not len(batch.targets):
            return {
                "kl": 0.0,
                "entropy_retriever": 0.0,
                "entropy_lm": 1.0,
                "lm_gain": 0.0,
                "uniform": batch.uniform,
            }

        device = self.encoder.device
        document_of = devices.to_device(batch.document_of.numpy(), device)
        targets = devices.to_device(batch.targets.float().numpy(), device)
        betas = devices.to_device(batch.betas.float().numpy(), device)
        seen: dict[str, torch.Tensor] = {}

        def loss(document_vectors: torch.Tensor, query_vectors: torch.Tensor) -> torch.Tensor:
            rows = document_vectors.index_select(0, document_of.ravel())
            rows = rows.view(*document_of.shape, -1)
            similarities = torch.einsum("bd,bkd->bk", query_vectors, rows)
            value = objective.lsr_loss(similarities, targets, lsr.gamma, betas, lsr.kl)
            seen["kl"] = value.detach()
            seen["similarities"] = similarities.detach()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        objective.backward(self.encoder, batch.documents, batch.queries, loss, bf16=self._bf16)
        self.optimizer.step()

        similarities = seen["similarities"].cpu()  # waits for the end of the step
        p_retriever = torch.softmax(similarities.double() / lsr.gamma, dim=1)
        expected_gains = (p_retriever * batch.gains).sum(1)
        return {
            "kl": float(seen["kl"]),
            "entropy_retriever": objective.entropy(similarities, lsr.gamma),
            "entropy_lm": objective.entropy(batch.targets, batch.betas),
            "lm_gain": float(expected_gains.mean()),
            "uniform": batch.uniform,
        }

    def batch(self, number: int) -> Batch:
        """What a step learns from."""
        texts: list[str] = []
        queries: list[np.ndarray] = []  # tokens
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
            queries += self._query_tokens(corpus, rows)
            targets.append(candidates.targets[places])
            gains.append(candidates.gains[places])
            betas.append(np.full((len(rows), 1), self.betas[number_of_corpus]))
        return Batch(
            documents=self.encoder.tokens(texts),
            queries=Ragged.of(queries),
            document_of=_joined(document_of),
            targets=_joined(targets),
            gains=_joined(gains),
            betas=_joined(betas),
            uniform=1 - len(queries) / len(scheduled),
        )

    def _query_tokens(self, corpus: CorpusQueries, rows: np.ndarray) -> list[np.ndarray]:
        """The tokens of a corpus's queries `rows` (n,), as the encoder reads them."""
        texts = corpus.queries.texts[rows].tolist()
        tokens = self.encoder.tokens(texts, queries=True, of_texts=corpus.of_texts)
        return tokens.split(tokens.values)


def _joined(arrays: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays))
