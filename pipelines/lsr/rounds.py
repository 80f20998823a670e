"""A round of LSR (REPLUG §4): the refresh that begins it, and the training steps on its candidates.

A refresh embeds the corpora anew (§4.4), validates the encoder and scores the next candidates. Queries are compared
with all documents, which takes little beside embedding these; FAISS's lists would miss some. Beside its checkpoints
(storage/checkpoint.py), the training's folder holds model-<step>/ for each encoder that is still needed, the best among
them, index-<step>/<corpus>/ with the embeddings by the last encoder that embedded the corpora, and scores/<corpus>/.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipelines import methods
from pipelines.language import language
from pipelines.lm.language_model import LanguageModel
from pipelines.lm.open_lm import lm_at_work, supervising_lm
from pipelines.lsr import objective
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.params.params import LSR
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.retrieval import dense, documents
from pipelines.retrieval.embeddings import embed_corpus, forget_embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.scoring import logprobs
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.checkpoint import Checkpoints
from pipelines.storage.work_store import forget_shards, key_of
from pipelines.work import workers

SHOWN = 10  # documents of a validation query
ANSWERED = 256  # answers that the language model generates at once; a killed run loses no more of a local model's


@dataclass(frozen=True)
class ScoredCandidates:
    """The documents that a round's training queries of one corpus are trained on, with the language model's scores."""

    rows: np.ndarray  # (n,) of the corpus's queries, ascending
    positions: np.ndarray  # (n, k) of the documents
    targets: np.ndarray  # (n, k) L(y | d, x)
    gains: (
        np.ndarray
    )  # (n, k) nats per token that the document helps the language model, against none; with
    # lsr.likelihood answer_right: 1 where its answer is right only with the document, -1 where only without


class Refresher(ExitStack):
    """Makes rounds, with the language model, an encoder, and the indexes of the corpora as that encoder embeds them."""

    def __init__(
        self,
        params: SimpleNamespace,
        corpora: Sequence[CorpusQueries],
        schedule: Schedule,
        files: TrainingFiles,
    ) -> None:
        """Start with the untuned encoder. Raises LongtailError if a model or an index can't be opened."""
        super().__init__()
        make_deterministic()
        self._params, self.corpora, self.schedule, self._files = params, corpora, schedule, files
        lsr, (folder, lm) = params.lsr, supervising_lm(params)
        answers = lsr.likelihood == "answer_right"
        self.lm = self.enter_context(lm_at_work(folder, lm, params.compute, scoring=not answers))
        untuned = methods.encoder_folder(methods.Method("dense", params.retrieves))
        self.encoder = Encoder.open(untuned, params.retriever, params.compute)
        ask = partial(RightAnswers, params) if answers else Scores
        self.scores = [ask(files.scores(corpus.name), self.lm, corpus) for corpus in corpora]
        self._by_corpus = {queries.corpus: queries for queries in reversed(corpora)}
        folders = {
            name: methods.index_folder(methods.Method("dense", params.retrieves), name)
            for name in self._by_corpus
        }
        self.indexes = {
            name: dense.Dense(
                folders[name], corpus.docs, untuned, self.encoder, params.compute, flat=True
            ).index
            for name, corpus in self._by_corpus.items()
        }
        count = min(index.count for index in self.indexes.values())
        near = min(lsr.top_k - lsr.further_k, count)
        further = np.linspace(
            near, min(10 * lsr.top_k, count), min(lsr.further_k, count - near) + 1
        )[1:]
        self.ranks = np.concatenate(
            [np.arange(near), np.rint(further).astype(np.int64) - 1]
        )  # of the candidates

    def make_round(self, number: int) -> tuple[dict[str, float], list[ScoredCandidates]]:
        """The validation of a round's encoder, and the candidates that it finds, scored, by corpus."""
        steps = self.schedule.steps(number)
        step = steps.start
        if step and (steps or any(len(corpus.validation) for corpus in self.corpora)):
            self._open(step)
        scored = [self.score(i, *retrieved) for i, retrieved in enumerate(self.search(number))]
        return {"step": step, **self.validate()}, scored

    def asked(self) -> dict[str, float]:
        """How much the language model scored so far, and what a server took for it."""
        scored = {
            f"scored_{c.name}": len(scores)
            for c, scores in zip(self.corpora, self.scores, strict=True)
        }
        return scored | self.lm.usage

    def validate(self) -> dict[str, float]:
        """On the validation queries: bits per byte of the ensemble, and the share of questions with an answer found.

        The ensemble is the paper's, SHOWN documents at temperature 1, so that the encoder does not depend on `replug`.
        """
        figures = {}
        for i, (corpus, scores) in enumerate(zip(self.corpora, self.scores, strict=True)):
            rows = corpus.validation
            if not len(rows):
                continue
            positions, similarities = self._retrieve(i, rows, SHOWN)
            if corpus.answers is None:
                scores.score(logprobs.unique_pairs(rows, positions))
                log_probs, n_bytes = logprobs.gather(scores.whole, rows, positions)
                nats = -ensemble.token_mixture(
                    log_probs, ensemble.log_weights(similarities, 1.0)
                ).sum()
                figures[f"bpb_k{SHOWN}"] = float(bits_per_byte(nats, n_bytes.sum()))
            else:
                holds = self.hold_answers(i, rows, positions)
                figures["recall_at_1"] = float(holds[:, 0].mean())
                figures[f"recall_at_{SHOWN}"] = float(holds.any(1).mean())
        return figures

    def hold_answers(self, corpus: int, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Whether documents (n, k) hold an answer to the questions `rows` (n,) as whole words, as they are read."""
        asked, spoken = self.corpora[corpus], language.read_language(self._params.language)
        read = documents.read_documents(asked.docs, positions).filled(asked.queries.document)
        pairs = zip(read, asked.answers[rows], strict=True)
        return np.array(
            [[matching.word(text, answers, spoken) for text in texts] for texts, answers in pairs]
        )

    def candidates(self, corpus: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents that a corpus's queries `rows` (n,) are trained on, by rank: positions, similarities (n, k)."""
        positions, similarities = self._retrieve(corpus, rows, int(self.ranks[-1]) + 1)
        return positions[:, self.ranks], similarities[:, self.ranks]

    def search(self, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """A round's candidates for each corpus: rows (n,) of its queries, positions (n, k)."""
        return [
            (rows, self.candidates(i, rows)[0]) for i, rows in enumerate(self.schedule.rows(number))
        ]

    def score(self, corpus: int, rows: np.ndarray, positions: np.ndarray) -> ScoredCandidates:
        """A corpus's candidates with their scores; the language model is asked only for missing scores."""
        asked = np.pad(
            positions, ((0, 0), (0, 1)), constant_values=logprobs.NONE
        )  # each document, and none
        self.scores[corpus].score(logprobs.unique_pairs(rows, asked))
        sums, tokens = self.scores[corpus].look_up(rows, asked)
        means = objective.likelihood(sums, tokens, "mean_logprob")
        targets = objective.likelihood(sums, tokens, self._params.lsr.likelihood)[:, :-1]
        return ScoredCandidates(rows, positions, targets, means[:, :-1] - means[:, -1:])

    def _retrieve(self, corpus: int, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities (n, k) for a corpus's queries."""
        queries = self.corpora[corpus]
        vectors = self.encoder.embed_queries(list(queries.queries.texts[rows]))
        return self.indexes[queries.corpus].search(vectors, k)

    def _open(self, step: int) -> None:
        """Take the encoder after so many steps; embed the corpora with it, unless that was done before."""
        params, model, folder = (
            self._params,
            *(self._files.of_step(kind, step) for kind in ("model", "index")),
        )
        self.indexes = {}  # the disk space of a removed file is free only when no index maps it
        self._files.keep("index", [step])
        self.encoder = Encoder.open(model, params.retriever, params.compute, self.encoder.numerics)
        if not folder.exists():
            with atomic(folder) as whole:
                for name, corpus in self._by_corpus.items():
                    embed_corpus(
                        corpus.docs,
                        model,
                        whole / name / "embeddings",
                        retriever=params.retriever,
                        compute=params.compute,
                        name=f"{corpus.stage}-embeddings",
                    )
            for corpus in self.corpora:
                forget_embeddings(f"{corpus.stage}-embeddings")
        opened = {"threads": params.compute.threads, "device": params.compute.device}
        self.indexes = {name: dense.Index(folder / name, **opened) for name in self._by_corpus}


class Scores:
    """The language model's scores of a corpus's queries: sums of log p, for validation the log p of each token.

    `folder` has a Parquet file of `schema` for each time that pairs were scored. A score's last digits depend on its
    batch, so scores stay within their training.
    """

    schema = logprobs.SCORED_PAIRS

    def __init__(self, folder: Path, lm: LanguageModel, corpus: CorpusQueries) -> None:
        self._folder, self._lm, self._corpus = folder, lm, corpus
        self._keys = np.empty(0, np.int64)  # the scored pairs' keys, ascending
        self._sums, self._tokens = np.empty(0), np.empty(0, np.int64)  # in the keys' order
        self.whole = self.schema.empty_table()  # the pairs of validation queries
        for file in sorted(folder.glob("*.parquet")):
            self._load(file)

    def __len__(self) -> int:
        return len(self._keys)

    def score(self, pairs: np.ndarray) -> None:
        """Have the language model score the `pairs` (n, 2), of query and position or NONE, that have no score yet."""
        pairs = pairs[~np.isin(logprobs.pair_keys(*pairs.T), self._keys)]
        if not len(pairs):
            return
        stage, key = self._corpus.stage, key_of(str(self._folder), pairs.tobytes())
        files = self._ask(stage, key, pairs)
        kept = self._folder / f"{key}.parquet"
        with atomic(kept) as path, parquet.writer(path, self.schema) as writer:
            for file in files:
                writer.write_table(parquet.read_parquet(file, schema=self.schema))
        forget_shards(stage, key)
        self._load(kept)

    def _ask(self, stage: str, key: str, pairs: np.ndarray) -> list[Path]:
        """Files of `schema` for the pairs, in their order, which stay under (stage, key)."""
        parts = np.split(pairs, range(logprobs.SHARD, len(pairs), logprobs.SHARD))
        return logprobs.score_parts(
            stage, key, self._lm, self._corpus.queries, self._corpus.docs, parts
        )

    def _rewards(self, scored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        return logprobs.sums(scored)

    def look_up(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of log p and numbers of tokens of scored pairs: rows (n,), positions (n, k) -> (n, k) each."""
        places = np.searchsorted(self._keys, logprobs.pair_keys(rows[:, None], positions))
        return self._sums[places], self._tokens[places]

    def _load(self, file: Path) -> None:
        for batch in parquet.batches(file):
            scored = pa.Table.from_batches([batch])
            keys, (sums, tokens) = (
                np.append(self._keys, logprobs.keys_of(scored)),
                self._rewards(scored),
            )
            order = np.argsort(keys, kind="stable")
            self._keys = keys[order]
            self._sums, self._tokens = (
                np.append(self._sums, sums)[order],
                np.append(self._tokens, tokens)[order],
            )
            whole = pa.array(scored["query"].to_numpy() >= self._corpus.train)
            self.whole = pa.concat_tables([self.whole, scored.filter(whole)])


class RightAnswers(Scores):
    """Whether the language model's own answer is right: 1 or 0, as of one token.

    It is asked as the stage `answer` asks, and judged by whole words: short aliases ("pol" in "Poland") get no credit.
    """

    schema = pa.schema({"query": pa.int64(), "document": pa.int64(), "right": pa.bool_()})

    def __init__(
        self, params: SimpleNamespace, folder: Path, lm: LanguageModel, corpus: CorpusQueries
    ) -> None:
        self._new_tokens, self._spoken = (
            params.answer.new_tokens,
            language.read_language(params.language),
        )
        self._size = workers.shard_size(ANSWERED, 1, supervising_lm(params)[1].http)
        super().__init__(folder, lm, corpus)

    def _ask(self, stage: str, key: str, pairs: np.ndarray) -> list[Path]:
        corpus = self._corpus

        def read(part: np.ndarray) -> logprobs.Asked:
            return logprobs.Asked(*logprobs.prompts(corpus.queries, corpus.docs, part), [])

        def write(part: np.ndarray, answers: list[str], path: Path) -> None:
            asked = zip(answers, corpus.answers[part[:, 0]], strict=True)
            right = [matching.word(answer, known, self._spoken) for answer, known in asked]
            parquet.write_parquet(pa.table([*part.T, right], schema=self.schema), path)

        parts = np.split(pairs, range(self._size, len(pairs), self._size))
        steps = workers.Steps(
            read, partial(_answers, self._new_tokens), write, logprobs.Asked.length
        )
        return workers.map_texts(
            self._lm, stage, key, parts, steps, sizes=list(map(len, parts)), unit="answer"
        )

    def _rewards(self, scored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        right = scored["right"].to_numpy(zero_copy_only=False)
        return right.astype(np.float64), np.ones(len(right), np.int64)


def _answers(new_tokens: int, lm: LanguageModel, asked: logprobs.Asked) -> list[str]:
    return [generation.text for generation in lm.generate(asked.prompts, new_tokens)]


class TrainingFiles(Checkpoints):
    """All that a killed training resumes from: its checkpoints, encoders, indexes and scores."""

    def of_step(self, kind: str, step: int) -> Path:
        """The folder of the encoder after so many steps (`model`), or of its indexes of the corpora (`index`)."""
        return self._folder / f"{kind}-{step:08d}"

    def keep(self, kind: str, steps: Iterable[int]) -> None:
        """Remove the folders of a kind, except the folders after `steps`."""
        for unneeded in {*self._folder.glob(f"{kind}-*")} - {
            self.of_step(kind, step) for step in steps
        }:
            shutil.rmtree(unneeded)

    def scores(self, corpus: str) -> Path:
        """The folder of the scores of a corpus's pairs."""
        return self._folder / "scores" / corpus


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
        self.encoder, self.corpora, self.schedule, self.lsr, self.betas = (
            encoder,
            corpora,
            schedule,
            lsr,
            betas,
        )
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=lsr.learning_rate)

    def start_round(self, candidates: Sequence[ScoredCandidates]) -> None:
        """Learn from these candidates, by corpus, in the steps to come; their texts are read into memory."""
        self.candidates, self._texts = (
            candidates,
            [],
        )  # the last round's texts need not be in memory beside these
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
        texts, queries, places, targets, gains, betas, asked = self._batch(number)
        equal = {"uniform": 1 - len(queries) / asked}
        if not queries:
            return (
                dict.fromkeys(("kl", "entropy_retriever"), 0.0)
                | {"entropy_lm": 1.0, "lm_gain": 0.0}
                | equal
            )
        seen = {}

        def loss(of_documents: torch.Tensor, of_queries: torch.Tensor) -> torch.Tensor:
            rows = of_documents.index_select(0, places.ravel().to(of_documents.device))
            similarities = torch.einsum("bd,bkd->bk", of_queries, rows.view(*places.shape, -1))
            value = objective.lsr_loss(
                similarities, targets.to(similarities), lsr.gamma, betas.to(similarities), lsr.kl
            )
            seen["kl"], seen["similarities"] = float(value.detach()), similarities.detach().cpu()
            return value

        self.optimizer.zero_grad(set_to_none=True)
        objective.backward(self.encoder, lsr, texts, queries, loss)
        self.optimizer.step()
        retriever = torch.softmax(seen["similarities"].double() / lsr.gamma, dim=1)
        return {
            "kl": seen["kl"],
            "entropy_retriever": objective.entropy(seen["similarities"], lsr.gamma),
            "entropy_lm": objective.entropy(targets, betas),
            "lm_gain": float((retriever * gains).sum(1).mean()),
            **equal,
        }

    def _batch(self, step: int) -> tuple[Any, ...]:
        """A step's distinct documents (m,), its queries (b,), and each query's documents as numbers of the former, with
        their targets and gains, (b, k) each, betas (b, 1); and how many queries there were before those were left out
        that teach nothing, as Q would only flatten P_R there."""
        texts, places, targets, gains, betas, queries = [], [], [], [], [], []
        chosen = self.schedule.queries[self.schedule.batch(step)]
        for i, (corpus, candidates) in enumerate(zip(self.corpora, self.candidates, strict=True)):
            rows = chosen[chosen[:, 0] == i, 1]
            at = np.searchsorted(candidates.rows, rows)
            teach = objective.informative(candidates.targets[at])
            rows, at = rows[teach], at[teach]
            distinct, inverse = np.unique(candidates.positions[at], return_inverse=True)
            places.append(inverse.reshape(candidates.positions[at].shape) + len(texts))
            texts.extend(self.texts(i, distinct))
            targets.append(candidates.targets[at])
            gains.append(candidates.gains[at])
            betas.append(np.full((len(rows), 1), self.betas[i]))
            queries.extend(corpus.queries.texts[rows])
        arrays = (
            torch.from_numpy(np.concatenate(rows)) for rows in (places, targets, gains, betas)
        )
        return texts, queries, *arrays, len(chosen)


def make_deterministic() -> None:
    """Have torch sum in a fixed order in this process."""
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # without it, cuBLAS sums in no fixed order
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = (
        False  # it takes time, and no result reads such memory
    )
