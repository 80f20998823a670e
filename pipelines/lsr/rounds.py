"""A round of LSR (REPLUG §4): the refresh that begins it.

A refresh embeds the corpora anew (§4.4), validates the encoder and scores the next candidates.
Queries are compared with all documents, which takes little beside embedding these; FAISS's lists
would miss some documents. Beside its checkpoints (storage/checkpoint.py), the training's folder
holds model-<step>/ for each encoder that is still needed, the best among them,
index-<step>/<corpus>/ with the embeddings by the last encoder that embedded the corpora, and
scores/<corpus>/.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipelines import methods
from pipelines.language import language
from pipelines.lm.language_model import LanguageModel
from pipelines.lm.open_lm import LMWorkers, lm_at_work, supervising_lm
from pipelines.lsr import objective
from pipelines.lsr.lsr_settings import Settings
from pipelines.lsr.scores import RightAnswers, Scores
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.methods import Method
from pipelines.questions import matching
from pipelines.replug import ensemble
from pipelines.retrieval import dense, documents
from pipelines.retrieval.embeddings import embed_corpus, forget_embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.scoring import logprobs
from pipelines.scoring.bits_per_byte import bits_per_byte
from pipelines.storage.atomic import atomic
from pipelines.storage.checkpoint import Checkpoints

VALIDATION_DOCUMENTS = 10  # of a validation query


@dataclass(frozen=True)
class ScoredCandidates:
    """The documents that a round's training queries of one corpus are trained on, with scores."""

    rows: np.ndarray  # (n,) of the corpus's queries, ascending
    positions: np.ndarray  # (n, k) of the documents
    targets: np.ndarray  # (n, k) L(y | d, x), by the language model
    # (n, k) nats per token that the document helps the language model, against none; with
    # lsr.likelihood answer_right: 1 where its answer is right only with the document, -1 where only
    # without; with holds_answer: 1 where the document holds an answer, as the target
    gains: np.ndarray


class Refresher(ExitStack):
    """Makes rounds, with the language model, an encoder, and the indexes of its embeddings."""

    def __init__(
        self,
        settings: Settings,
        retriever: str,
        corpora: Sequence[CorpusQueries],
        schedule: Schedule,
        files: TrainingFiles,
    ) -> None:
        """Start with the untuned encoder.

        Raises LongtailError if a model or an index can't be opened.
        """
        super().__init__()
        make_deterministic()
        self.corpora = corpora
        self.schedule = schedule
        self._settings = settings
        self._encoder_settings = settings.retriever[retriever]
        self._files = files

        self.lm: LanguageModel | LMWorkers | None = None
        self.scores: list[Scores] = []
        if settings.lsr.likelihood != "holds_answer":
            self._open_scores()

        untuned = Method("dense", retriever)
        model = methods.encoder_folder(untuned)
        self.encoder = Encoder.open(model, self._encoder_settings, settings.compute)
        # A corpus with several sets of queries is embedded once, under the name of the first.
        self._sets_of_corpora: dict[str, CorpusQueries] = {}
        for queries in corpora:
            self._sets_of_corpora.setdefault(queries.corpus, queries)
        self.indexes = {}
        for corpus, queries in self._sets_of_corpora.items():
            index_folder = methods.index_folder(untuned, corpus)
            opened = dense.Dense(
                index_folder, queries.docs, model, self.encoder, settings.compute, flat=True
            )
            self.indexes[corpus] = opened.index
        smallest = min(index.count for index in self.indexes.values())
        # documents that a query is trained on
        self.n_candidates = min(settings.lsr.top_k, smallest)

    def _open_scores(self) -> None:
        """Take the language model to work, and what it scored before the training was killed."""
        answers = self._settings.lsr.likelihood == "answer_right"
        folder, settings = supervising_lm(self._settings)
        lm = lm_at_work(folder, settings, self._settings.compute, scoring=not answers)
        self.lm = self.enter_context(lm)
        for queries in self.corpora:
            scores_folder = self._files.scores(queries.name)
            if answers:
                self.scores.append(RightAnswers(self._settings, scores_folder, self.lm, queries))
            else:
                self.scores.append(Scores(scores_folder, self.lm, queries))

    def make_round(self, round_number: int) -> tuple[dict[str, float], list[ScoredCandidates]]:
        """The validation of a round's encoder, and its candidates by corpus, scored."""
        steps = self.schedule.steps(round_number)
        validates = any(len(corpus.validation) for corpus in self.corpora)
        if steps.start and (steps or validates):
            self._open(steps.start)

        scored = []
        for number, (rows, positions) in enumerate(self.search(round_number)):
            scored.append(self.score(number, rows, positions))
        return {"step": steps.start} | self.validate(), scored

    def usage(self) -> dict[str, float]:
        """How much the language model scored so far, and what a server took for it."""
        if self.lm is None:
            return {}
        usage: dict[str, float] = {}
        for corpus, scores in zip(self.corpora, self.scores, strict=True):
            usage[f"scored_{corpus.name}"] = len(scores)
        return usage | dict(self.lm.usage)

    def validate(self) -> dict[str, float]:
        """Figures of the validation queries.

        They are bits per byte of the ensemble, and the share of questions with an answer in their
        documents. The ensemble is the paper's, VALIDATION_DOCUMENTS at temperature 1, so that the
        encoder does not depend on `replug`.
        """
        figures = {}
        for number, corpus in enumerate(self.corpora):
            rows = corpus.validation
            if not len(rows):
                continue
            positions, similarities = self._retrieve(number, rows, VALIDATION_DOCUMENTS)
            if corpus.of_texts:
                bits = self._ensemble_bits(number, rows, positions, similarities)
                figures["bits_per_byte"] = bits
            else:
                holds = self.hold_answers(number, rows, positions)
                figures["recall_at_1"] = float(holds[:, 0].mean())
                figures[f"recall_at_{VALIDATION_DOCUMENTS}"] = float(holds.any(1).mean())
        return figures

    def _ensemble_bits(
        self, number: int, rows: np.ndarray, positions: np.ndarray, similarities: np.ndarray
    ) -> float:
        """Bits per byte of the ensemble of documents (n, k) on a corpus's queries `rows` (n,)."""
        scores = self.scores[number]
        scores.score(logprobs.unique_pairs(rows, positions))
        log_probs, n_bytes = logprobs.gather(scores.validation, rows, positions)
        weights = ensemble.log_weights(similarities, 1.0)
        nats = -ensemble.token_mixture(log_probs, weights).sum()
        return float(bits_per_byte(nats, n_bytes.sum()))

    def hold_answers(self, number: int, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Whether documents (n, k) hold an answer to the questions `rows` (n,) as whole words."""
        corpus = self.corpora[number]
        spoken = language.read_language(self._settings.language)
        read = documents.read_documents(corpus.docs, positions)
        texts = read.filled(corpus.queries.document)
        assert corpus.answers is not None, "texts have no answers"
        holds = np.zeros(positions.shape, bool)
        for row, answers in enumerate(corpus.answers[rows]):
            holds[row] = [matching.word(text, answers, spoken) for text in texts[row]]
        return holds

    def candidates(self, number: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents that a corpus's queries `rows` (n,) are trained on, the best first.

        Returns positions and similarities (n, k).
        """
        return self._retrieve(number, rows, self.n_candidates)

    def search(self, round_number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """A round's candidates for each corpus: rows (n,) of its queries, positions (n, k)."""
        searched = []
        for number, rows in enumerate(self.schedule.rows(round_number)):
            positions, _ = self.candidates(number, rows)
            searched.append((rows, positions))
        return searched

    def score(self, number: int, rows: np.ndarray, positions: np.ndarray) -> ScoredCandidates:
        """A corpus's candidates with their scores.

        The language model is asked only for missing scores.
        """
        likelihood = self._settings.lsr.likelihood
        if likelihood == "holds_answer":
            holds = self.hold_answers(number, rows, positions).astype(np.float64)
            return ScoredCandidates(rows, positions, targets=holds, gains=holds)

        scores = self.scores[number]
        # each document, and none in the last place
        and_none = np.pad(positions, ((0, 0), (0, 1)), constant_values=logprobs.NONE)
        scores.score(logprobs.unique_pairs(rows, and_none))
        sums, tokens = scores.look_up(rows, and_none)

        means = objective.likelihood(sums, tokens, "mean_logprob")
        likelihoods = objective.likelihood(sums, tokens, likelihood)
        targets = likelihoods[:, :-1]
        gains = means[:, :-1] - means[:, -1:]
        return ScoredCandidates(rows, positions, targets, gains)

    def _retrieve(self, number: int, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities (n, k) for a corpus's queries."""
        corpus = self.corpora[number]
        texts = list(corpus.queries.texts[rows])
        vectors = self.encoder.embed_queries(texts, corpus.of_texts)
        return self.indexes[corpus.corpus].search(vectors, k)

    def _open(self, step: int) -> None:
        """Take the encoder after so many steps, and the corpora's embeddings by it."""
        compute = self._settings.compute
        model = self._files.model(step)
        folder = self._files.index(step)
        self.indexes = {}  # the disk space of a removed file is free only when no index maps it
        self._files.keep_indexes([step])
        self.encoder = Encoder.open(
            model, self._encoder_settings, compute, numerics=self.encoder.numerics
        )
        if not folder.exists():
            self._embed_corpora(model, folder)
        for corpus in self._sets_of_corpora:
            index = dense.Index(folder / corpus, threads=compute.threads, device=compute.device)
            self.indexes[corpus] = index

    def _embed_corpora(self, model: Path, out: Path) -> None:
        sets = self._sets_of_corpora.values()
        with atomic(out) as folder:
            for queries in sets:
                embed_corpus(
                    queries.docs,
                    model,
                    folder / queries.corpus / "embeddings",
                    retriever=self._encoder_settings,
                    compute=self._settings.compute,
                    name=f"{queries.stage}-embeddings",
                )
        for queries in sets:
            forget_embeddings(f"{queries.stage}-embeddings")


class TrainingFiles(Checkpoints):
    """All that a killed training resumes from: its checkpoints, encoders, indexes and scores."""

    def model(self, step: int) -> Path:
        """The folder of the encoder after so many steps."""
        return self._folder / f"model-{step:08d}"

    def index(self, step: int) -> Path:
        """The folder of the corpora's indexes by the encoder after so many steps."""
        return self._folder / f"index-{step:08d}"

    def scores(self, corpus: str) -> Path:
        """The folder of the scores of a corpus's pairs."""
        return self._folder / "scores" / corpus

    def keep_models(self, steps: Iterable[int]) -> None:
        """Remove the encoders, except those after `steps`."""
        _remove_others(self._folder.glob("model-*"), {self.model(step) for step in steps})

    def keep_indexes(self, steps: Iterable[int]) -> None:
        """Remove the indexes, except those after `steps`."""
        _remove_others(self._folder.glob("index-*"), {self.index(step) for step in steps})


def _remove_others(folders: Iterable[Path], needed: set[Path]) -> None:
    for folder in set(folders) - needed:
        shutil.rmtree(folder)


def make_deterministic() -> None:
    """Have torch sum in a fixed order in this process."""
    # Without it, cuBLAS sums in no fixed order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Filling memory takes time, and no result reads such memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
