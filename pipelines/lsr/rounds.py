"""A round of LSR (REPLUG §4): its scored candidates, the training steps on them, and what a killed run resumes from.

Beside its checkpoints (storage/checkpoint.py), the training's folder holds model-<step>/ for each encoder that is still
needed, the best among them, index-<step>/<corpus>/ for the last encoder that embedded the corpora, and scores/<corpus>/
(see refresh.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipelines.lsr import objective
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.params.params import LSR
from pipelines.retrieval import documents
from pipelines.retrieval.encoder import Encoder
from pipelines.storage.checkpoint import Checkpoints


@dataclass(frozen=True)
class ScoredCandidates:
    """The documents that a round's training queries of one corpus are trained on, with the language model's scores."""

    rows: np.ndarray  # (n,) of the corpus's queries, ascending
    positions: np.ndarray  # (n, k) of the documents
    targets: np.ndarray  # (n, k) L(y | d, x)
    gains: np.ndarray  # (n, k) nats per token that the document helps the language model, against none


class Trainer:
    """The encoder in training, with Adam. `start_round` says what the next steps learn from."""

    def __init__(self, encoder: Encoder, corpora: Sequence[CorpusQueries], schedule: Schedule, lsr: LSR) -> None:
        self.encoder, self.corpora, self.schedule, self.lsr = encoder, corpora, schedule, lsr
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=lsr.learning_rate)

    def start_round(self, candidates: Sequence[ScoredCandidates]) -> None:
        """Learn from these candidates, by corpus, in the steps to come; their texts are read into memory."""
        self.candidates, self._texts = candidates, []  # the last round's texts need not be in memory beside these
        self._distinct = [np.unique(of_corpus.positions) for of_corpus in candidates]  # ascending
        template = self.encoder.settings.document
        for corpus, positions in zip(self.corpora, self._distinct, strict=True):
            self._texts.append(documents.read_documents(corpus.docs, positions).filled(template))

    def texts(self, corpus: int, positions: np.ndarray) -> np.ndarray:
        """A corpus's candidates, titles and texts, as the encoder reads them."""
        return self._texts[corpus][np.searchsorted(self._distinct[corpus], positions)]

    def step(self, number: int) -> dict[str, float]:
        """One step of Adam, numbered from 0; returns its row of the training curve."""
        lsr = self.lsr
        warm = max(1, round(lsr.warmup * lsr.steps))
        self.optimizer.param_groups[0]["lr"] = lsr.learning_rate * min(1.0, (number + 1) / warm)
        texts, queries, places, targets, gains = self._batch(number)
        seen = {}

        def loss(of_documents: torch.Tensor, of_queries: torch.Tensor) -> torch.Tensor:
            rows = of_documents.index_select(0, places.ravel().to(of_documents.device))
            similarities = torch.einsum("bd,bkd->bk", of_queries, rows.view(*places.shape, -1))
            value = objective.lsr_loss(similarities, targets.to(similarities), lsr.gamma, lsr.beta, lsr.kl)
            seen["kl"], seen["similarities"] = float(value.detach()), similarities.detach().cpu()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        objective.backward(self.encoder, lsr, texts, queries, loss)
        self.optimizer.step()
        retriever = torch.softmax(seen["similarities"].double() / lsr.gamma, dim=1)
        return {
            "kl": seen["kl"],
            "entropy_retriever": objective.entropy(seen["similarities"], lsr.gamma),
            "entropy_lm": objective.entropy(targets, lsr.beta),
            "lm_gain": float((retriever * gains).sum(1).mean()),
        }

    def _batch(self, step: int) -> tuple[list[str], list[str], torch.Tensor, torch.Tensor, torch.Tensor]:
        """A step's distinct documents (m,), its queries (b,), and each query's documents as numbers of the former, with
        their targets and gains, (b, k) each."""
        texts, places, targets, gains, queries = [], [], [], [], []
        chosen = self.schedule.queries[self.schedule.batch(step)]
        for i, (corpus, candidates) in enumerate(zip(self.corpora, self.candidates, strict=True)):
            rows = chosen[chosen[:, 0] == i, 1]
            if not len(rows):
                continue
            at = np.searchsorted(candidates.rows, rows)
            distinct, inverse = np.unique(candidates.positions[at], return_inverse=True)
            places.append(inverse.reshape(len(rows), -1) + len(texts))
            texts.extend(self.texts(i, distinct))
            targets.append(candidates.targets[at])
            gains.append(candidates.gains[at])
            queries.extend(corpus.queries.texts[rows])
        return texts, queries, *(torch.from_numpy(np.concatenate(rows)) for rows in (places, targets, gains))


class TrainingFiles(Checkpoints):
    """All that a killed training resumes from: its checkpoints, encoders, indexes and scores."""

    def of_step(self, kind: str, step: int) -> Path:
        """The folder of the encoder after so many steps (`model`), or of its indexes of the corpora (`index`)."""
        return self._folder / f"{kind}-{step:08d}"

    def keep(self, kind: str, steps: Iterable[int]) -> None:
        """Remove the folders of a kind, but for those after `steps`."""
        for unneeded in {*self._folder.glob(f"{kind}-*")} - {self.of_step(kind, step) for step in steps}:
            shutil.rmtree(unneeded)

    def scores(self, corpus: str) -> Path:
        """The folder of the scores of a corpus's pairs."""
        return self._folder / "scores" / corpus
