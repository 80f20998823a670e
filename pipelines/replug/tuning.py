"""LSR round by round (REPLUG §4): what the frozen language model says of the candidates, what the encoder learns."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import torch

from pipelines import draws, params, shards
from pipelines.lm.protocol import LanguageModel
from pipelines.replug import ensemble, objective, table
from pipelines.replug.queries import Queries
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
    key: str  # of everything that a language model's score of a pair depends on, but the pair
    done: list[str] = field(default_factory=list)  # keys of the shards kept for a killed run
    scored: pa.Table = field(default_factory=table.COLUMNS.empty_table)
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # of the pairs in `scored`, sorted
    sums: np.ndarray = field(default_factory=lambda: np.empty(0))  # of log p, by key
    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def stage(self) -> str:
        return f"train_lsr-{self.name}"

    @property
    def folder(self) -> Path:
        """Where the corpus lies as the encoder in training sees it."""
        return shards.SCRATCH / "lsr" / self.name

    def forget(self) -> None:
        """Remove the kept shards and the last index, once the result is written."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for key in self.done:
            shards.forget(self.stage, key)

    def score(self, lm: LanguageModel, pairs: np.ndarray) -> None:
        """Have the language model score those of `pairs` (n, 2) that it did not score before."""
        pairs = pairs[~np.isin(self._keys(pairs), self.keys)]
        if not len(pairs):
            return
        self.done.append(shards.key_of(self.key, pairs.tobytes()))
        new = table.score_pairs(self.stage, self.done[-1], lm, self.queries, self.docs, pairs)
        self.scored = pa.concat_tables([self.scored, new])
        keys = self._keys(np.stack([self.scored["query"].to_numpy(), self.scored["document"].to_numpy()], axis=1))
        sums, tokens = table.sums(self.scored)
        order = np.argsort(keys)
        self.keys, self.sums, self.tokens = keys[order], sums[order], tokens[order]

    def look_up(self, rows: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and tokens of scored pairs: rows (n,), found (n, k) -> (n, k) each."""
        pairs = np.stack([np.repeat(rows, found.shape[1]), found.ravel()], axis=1)
        places = np.searchsorted(self.keys, self._keys(pairs)).reshape(found.shape)
        return self.sums[places], self.tokens[places]

    def _keys(self, pairs: np.ndarray) -> np.ndarray:
        return pairs[:, 0] * (self.index.count + 1) + pairs[:, 1] + 1


@dataclass(frozen=True)
class Round:
    """One side's training queries until the next refresh: their candidates, what the language model says, the texts."""

    rows: np.ndarray  # (n,) of the side's queries, ascending
    found: np.ndarray  # (n, k) positions
    targets: np.ndarray  # (n, k) L(y | d, x)
    documents: np.ndarray  # (m,) distinct positions in `found`, ascending
    texts: np.ndarray  # (m,)


class Tuner:
    """The encoder in training, the candidates of the present round, and the language model's scores so far."""

    def __init__(
        self, encoder: Encoder, lm: LanguageModel, sides: Sequence[Side], settings: params.LSR, seed: int
    ) -> None:
        self.encoder, self.lm, self.sides, self.settings, self.seed = encoder, lm, sides, settings, seed
        self.k = min(settings.top_k, *(side.index.count for side in sides))
        self.rounds: list[Round] = []  # by side
        self.owners = np.concatenate(
            [np.stack([np.full(side.train, i), np.arange(side.train)], axis=1) for i, side in enumerate(sides)]
        )  # (all training queries, 2): side and row
        self._drawn: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # the last order: epoch, permutation
        self.optimizer = torch.optim.Adam(encoder.parameters(), lr=settings.learning_rate)

    def rebuild(self, settings: params.Index, compute: params.Compute) -> None:
        """Embed every corpus anew with the encoder of this moment, and index it, under .longtail/."""
        asked = SimpleNamespace(retriever=self.encoder.settings, compute=compute)
        for side in self.sides:
            held = side.queries.texts[-HELD_OUT:]
            with shards.atomic(side.folder) as folder:
                self.encoder.save(folder / "model")
                embed_corpus(side.docs, folder / "model", folder / "embeddings", asked, f"{side.stage}-embeddings")
                forget(f"{side.stage}-embeddings")
                queries = partial(self.encoder.embed_queries, list(held))
                made, _ = make(folder, queries, settings, self.seed, compute, side.stage)
            side.index = dense.Index(side.folder, made.probe, made.refine, compute.threads)

    def judge(self) -> dict[str, float]:
        """On the queries not learnt from: bits per byte of the ensemble, and recall of the right page."""
        figures = {}
        for side in self.sides:
            held = np.arange(side.train, len(side.queries))
            if not len(held):
                continue
            shown, scores = self._search(side, held, SHOWN)
            if side.pages is None:
                side.score(self.lm, table.unique_pairs(held, shown))
                log_probs, n_bytes = table.gather(side.scored, held, shown)
                nats = -ensemble.token_mixture(log_probs, ensemble.log_weights(scores, 1.0)).sum()
                figures[f"bpb_k{SHOWN}"] = float(ensemble.bits_per_byte(nats, n_bytes.sum()))
            else:
                right = documents.read(side.docs, shown).titles == side.pages[:, None]
                figures["recall_at_1"] = float(right[:, 0].mean())
                figures[f"recall_at_{SHOWN}"] = float(right.any(1).mean())
        return figures

    def ask(self, first: int) -> float:
        """Candidates and targets for the steps from `first` to the next refresh, for those queries only.

        Returns the mean entropy of Q, 1 if uniform.
        """
        last = min(first + self.settings.refresh_steps, self.settings.steps)
        needed = self.owners[np.unique(np.concatenate([self._batch(number) for number in range(first, last)]))]
        self.rounds, entropies = [], []
        for i, side in enumerate(self.sides):
            rows = needed[needed[:, 0] == i, 1]
            found, _ = self._search(side, rows, self.k)
            side.score(self.lm, table.unique_pairs(rows, found))
            targets = objective.likelihood(*side.look_up(rows, found), self.settings.likelihood)
            distinct = np.unique(found)
            texts = documents.read(side.docs, distinct).texts
            self.rounds.append(Round(rows, found, targets, distinct, texts))
            entropies.append(objective.entropy(targets, self.settings.beta) if len(rows) else 0.0)
        return float(np.average(entropies, weights=[len(one.rows) for one in self.rounds]))

    def step(self, number: int) -> dict[str, float]:
        """One step of Adam on the batch that is the `number`-th's, from 0."""
        s = self.settings
        warm = max(1, round(s.warmup * s.steps))
        self.optimizer.param_groups[0]["lr"] = s.learning_rate * min(1.0, (number + 1) / warm)
        similarities, targets = self._similarities(self._batch(number))
        loss = objective.lsr_loss(similarities, targets, s.gamma, s.beta, s.kl)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        p, q = objective.entropy(similarities.detach(), s.gamma), objective.entropy(targets, s.beta)
        return {"kl": float(loss.detach()), "entropy_retriever": p, "entropy_lm": q}

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

    def _similarities(self, batch: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """s(d, x) with gradient on both sides, and targets, (batch, k); a repeated document is embedded once."""
        texts, places, first, targets, asked = [], [], 0, [], []
        for i, (side, here) in enumerate(zip(self.sides, self.rounds, strict=True)):
            rows = self.owners[batch][self.owners[batch][:, 0] == i, 1]
            if not len(rows):
                continue
            at = np.searchsorted(here.rows, rows)
            unique, inverse = np.unique(here.found[at], return_inverse=True)
            texts.extend(here.texts[np.searchsorted(here.documents, unique)])
            places.append(inverse.reshape(len(rows), -1) + first)
            first += len(unique)
            targets.append(here.targets[at])
            asked.extend(side.queries.texts[rows])
        chosen = torch.from_numpy(np.concatenate(places))
        of_documents, of_queries = (
            self.encoder.embed_with_gradient(texts),
            self.encoder.embed_with_gradient(asked, True),
        )
        rows_of = of_documents.index_select(0, chosen.ravel().to(of_documents.device)).view(*chosen.shape, -1)
        similarities = torch.einsum("bd,bkd->bk", of_queries, rows_of)
        return similarities, torch.from_numpy(np.concatenate(targets)).to(similarities)

    def _search(self, side: Side, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return side.index.search(self.encoder.embed_queries(list(side.queries.texts[rows])), k)
