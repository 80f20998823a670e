"""LSR's refresh (REPLUG §4.4): embed and index the corpora anew, validate the encoder, score the next candidates."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from pipelines import methods
from pipelines.lm.open_lm import lm_at_work, supervising_lm
from pipelines.lsr.objective import likelihood
from pipelines.lsr.rounds import ScoredCandidates, TrainingFiles
from pipelines.lsr.scores import Scores
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.replug import ensemble
from pipelines.retrieval import dense, documents
from pipelines.retrieval.embeddings import embed_corpus, forget_embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.faiss_build import HELD_OUT, build_and_tune
from pipelines.scoring import logprobs
from pipelines.storage import shards

SHOWN = 10  # documents of a validation query


class Refresher:
    """Makes rounds, with the language model, an encoder, and the indexes of the corpora as that encoder embeds them."""

    def __init__(
        self, params: SimpleNamespace, corpora: Sequence[CorpusQueries], schedule: Schedule, files: TrainingFiles
    ) -> None:
        """Start with the untuned encoder. Raises LongtailError if a model or an index can't be opened."""
        make_deterministic()
        self._params, self.corpora, self.schedule, self._files = params, corpora, schedule, files
        folder, lm = supervising_lm(params)
        self._stack = ExitStack()
        self.lm = self._stack.enter_context(lm_at_work(folder, lm, params.compute, scoring=True))
        untuned = methods.encoder("dense", params.retrieves)
        self.encoder = Encoder.open(untuned, params.retriever, params.compute)
        self.scores = [Scores(files.scores(corpus.name), self.lm, corpus) for corpus in corpora]
        self._by_corpus = {queries.corpus: queries for queries in reversed(corpora)}
        folders = {name: methods.index("dense", params.retrieves, name) for name in self._by_corpus}
        self.indexes = {
            name: dense.Dense(folders[name], corpus.docs, untuned, self.encoder, params.compute).index
            for name, corpus in self._by_corpus.items()
        }
        self.k = min(params.lsr.top_k, *(index.count for index in self.indexes.values()))

    def close(self) -> None:
        """End the processes that the language model works in."""
        self._stack.close()

    def make_round(self, number: int) -> tuple[dict[str, float], list[ScoredCandidates]]:
        """A row of Progress.validation for a round's encoder, and the candidates that it finds, scored, by corpus."""
        step = self.schedule.encoder_step(number)
        if step:
            self._open(step)
        return {"step": step, **self.validate()}, self.score(self.search(number))

    def asked(self) -> dict[str, float]:
        """How much the language model scored so far, and what a server took for it."""
        scored = {f"scored_{c.name}": len(scores) for c, scores in zip(self.corpora, self.scores, strict=True)}
        return scored | self.lm.usage

    def validate(self) -> dict[str, float]:
        """On the validation queries: bits per byte of the ensemble, and recall of the right page.

        The ensemble is the paper's, SHOWN documents at temperature 1, whatever the params of `replug` are. So the tuned
        encoder does not depend on them, and trying another temperature needs no training.
        """
        figures = {}
        for i, (corpus, scores) in enumerate(zip(self.corpora, self.scores, strict=True)):
            rows = corpus.validation
            if not len(rows):
                continue
            positions, similarities = self._retrieve(i, rows, SHOWN)
            if corpus.pages is None:
                scores.score(logprobs.unique_pairs(rows, positions))
                log_probs, n_bytes = logprobs.gather(scores.whole, rows, positions)
                nats = -ensemble.token_mixture(log_probs, ensemble.log_weights(similarities, 1.0)).sum()
                figures[f"bpb_k{SHOWN}"] = float(ensemble.bits_per_byte(nats, n_bytes.sum()))
            else:
                right = documents.read_documents(corpus.docs, positions).titles == corpus.pages[:, None]
                figures["recall_at_1"] = float(right[:, 0].mean())
                figures[f"recall_at_{SHOWN}"] = float(right.any(1).mean())
        return figures

    def search(self, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """A round's candidates for each corpus: rows (n,) of its queries, positions (n, k)."""
        return [(rows, self._retrieve(i, rows, self.k)[0]) for i, rows in enumerate(self.schedule.rows(number))]

    def score(self, retrieved: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[ScoredCandidates]:
        """The candidates with their scores; the language model is asked for those that it has not scored yet."""
        candidates = []
        for scores, (rows, positions) in zip(self.scores, retrieved, strict=True):
            asked = np.pad(positions, ((0, 0), (0, 1)), constant_values=logprobs.NONE)  # each document, and none
            scores.score(logprobs.unique_pairs(rows, asked))
            sums, tokens = scores.look_up(rows, asked)
            means = likelihood(sums, tokens, "mean_logprob")
            targets = likelihood(sums, tokens, self._params.lsr.likelihood)[:, :-1]
            candidates.append(ScoredCandidates(rows, positions, targets, means[:, :-1] - means[:, -1:]))
        return candidates

    def _retrieve(self, corpus: int, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities (n, k) for a corpus's queries."""
        queries = self.corpora[corpus]
        vectors = self.encoder.embed_queries(list(queries.queries.texts[rows]))
        return self.indexes[queries.corpus].search(vectors, k)

    def _open(self, step: int) -> None:
        """Take the encoder after so many steps; embed and index the corpora with it, unless that was done before."""
        params, folder, model = self._params, self._files.index(step), self._files.model(step)
        self.indexes = {}  # the disk space of a removed file is free only when no index maps it
        self._files.remove_indexes_except(step)
        self.encoder = Encoder.open(model, params.retriever, params.compute, self.encoder.numerics)
        if not folder.exists():
            with shards.atomic(folder) as whole:
                depths = {name: self._index(corpus, model, whole / name) for name, corpus in self._by_corpus.items()}
                (whole / "depths.json").write_text(json.dumps(depths), encoding="utf-8")
            for corpus in self.corpora:
                forget_embeddings(f"{corpus.stage}-embeddings")
        depths = json.loads((folder / "depths.json").read_text(encoding="utf-8"))
        self.indexes = {
            name: dense.Index(folder / name, *depth, params.compute.threads) for name, depth in depths.items()
        }

    def _index(self, corpus: CorpusQueries, model: Path, folder: Path) -> tuple[int, int]:
        """Embed and index a corpus; returns how far a search looks: probe and refine."""
        params = self._params
        embed_corpus(corpus.docs, model, folder / "embeddings", params, f"{corpus.stage}-embeddings")
        queries = partial(self.encoder.embed_queries, list(corpus.queries.texts[-HELD_OUT:]))
        made, _ = build_and_tune(folder, queries, params, corpus.stage)
        return made.probe, made.refine


def make_deterministic() -> None:
    """Have torch sum in a fixed order in this process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS sums in no fixed order
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it takes time, and no result reads such memory
