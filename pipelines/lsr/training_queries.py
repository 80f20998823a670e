"""The queries that LSR learns from and is validated on (REPLUG §4), and the training steps that each is used in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params.params import LSR
from pipelines.scoring.queries import Queries, read_language_modelling, read_questions
from pipelines.storage import parquet

CORPORA = Path("data/corpus")
QUESTIONS = Path("data/questions")
VALIDATION_SHARE = 0.25  # share of the train split's subjects whose questions validate


@dataclass(frozen=True)
class CorpusQueries:
    """A corpus and queries for it: training learns from the first `train` of them, the others are for validation."""

    name: str  # unique: the corpus's, or the question set's if other queries for the same corpus have that
    corpus: str
    queries: Queries
    train: int
    pages: np.ndarray | None  # titles of the pages that validation questions are about; None if not questions
    retriever: str = ""  # the retriever that is tuned; the stages of two trainings have different names

    @property
    def docs(self) -> Path:
        return CORPORA / self.corpus / "docs.parquet"

    @property
    def validation(self) -> np.ndarray:
        """Rows of the queries for validation."""
        return np.arange(self.train, len(self.queries))

    @property
    def stage(self) -> str:
        return f"train_lsr@{self.retriever}-{self.name}"

    def digest(self) -> str:
        """A hash of all that training reads of it, but for the documents."""
        pages = self.pages if self.pages is None else self.pages.tolist()
        found = blake2b(repr((self.name, self.train, self.queries.document, pages)).encode(), digest_size=16)
        for row in zip(*self.queries.columns(), strict=True):
            found.update(repr(row).encode())
        return found.hexdigest()


def read_training_queries(params: SimpleNamespace) -> list[CorpusQueries]:
    """Language-modelling queries of the first scored corpus, and questions that are answered from the datastore.

    Training learns from those that `lsr.queries` says, and is validated on the same kinds: a refresh embeds no corpus
    that nothing is learnt from. LongtailError if none are to learn from, or to choose the encoder by.
    """
    lsr, seed, parts = params.lsr, params.seed, params.parts
    corpora = []
    for name in parts.scored[:1] if lsr.queries != "qa" else ():
        validation, *_ = read_language_modelling(CORPORA / name, "validation", seed, lsr.validation_queries)
        train, *_ = read_language_modelling(CORPORA / name, "train", seed, lsr.lm_queries)
        corpora.append(CorpusQueries(name, name, train.and_then(validation), len(train), None, params.retrieves))
    sets = [QUESTIONS / name / f"{name}.parquet" for name in parts.answered if lsr.queries != "lm"]
    # the first one that names its subjects' pages
    for file in [f for f in sets if not f.is_file() or "s_wiki_title" in parquet.schema_of(f).names][:1]:
        name = file.stem if parts.datastore in parts.scored[:1] else parts.datastore
        amounts = VALIDATION_SHARE, lsr.qa_queries, lsr.validation_queries
        spoken = language.read_language(params.language)
        train, validation, pages = read_questions(file, seed, *amounts, params.answer.passage, spoken)
        queries, titles = train.and_then(validation), np.asarray(pages, object)
        corpora.append(CorpusQueries(name, parts.datastore, queries, len(train), titles, params.retrieves))
    if not sum(corpus.train for corpus in corpora):
        raise LongtailError(
            f"lsr.queries is {lsr.queries}, but there are no queries of that kind to learn from; "
            "raise query_share of the first corpus in parts.scored, or popqa.train_share"
        )
    if lsr.keep == "best" and not any(len(corpus.validation) for corpus in corpora):
        raise LongtailError(
            "lsr.keep is best, but there are no queries to validate encoders on; raise queries.validation_share, "
            "or set lsr.keep: last"
        )
    return [corpus for corpus in corpora if len(corpus.queries)]


class Schedule:
    """Which training queries each step learns from, and which steps make a round.

    A round is `lsr.refresh_steps` steps with the same candidates, found by the encoder at the round's start. The last
    round has no steps; it validates the last encoder.
    """

    def __init__(self, corpora: Sequence[CorpusQueries], lsr: LSR, seed: int) -> None:
        self._lsr, self._seed, self._train = lsr, seed, [corpus.train for corpus in corpora]
        self.queries = np.concatenate(
            [np.stack([np.full(train, i), np.arange(train)], axis=1) for i, train in enumerate(self._train)]
        )  # (all training queries, 2): number of the corpus, row of its queries
        self._order_of_pass = lru_cache(maxsize=1)(self._draw_order)
        self.rounds = -(-lsr.steps // lsr.refresh_steps) + 1

    def steps(self, round_number: int) -> range:
        """The training steps of a round; the encoder that finds its candidates was trained for `start` steps."""
        size, end = self._lsr.refresh_steps, self._lsr.steps
        return range(min(round_number * size, end), min((round_number + 1) * size, end))

    def rows(self, round_number: int) -> list[np.ndarray]:
        """Each corpus's queries that a round's steps learn from, as ascending rows."""
        batches = [self.batch(step) for step in self.steps(round_number)]
        queries = self.queries[np.unique(np.concatenate(batches or [np.empty(0, np.int64)]))]
        return [queries[queries[:, 0] == i, 1] for i in range(len(self._train))]

    def batch(self, step: int) -> np.ndarray:
        """Which of `queries` a step learns from; each pass over all of them has a random order of its own."""
        n, size = len(self.queries), self._lsr.batch_size
        places = np.arange(step * size, (step + 1) * size)
        passes = np.unique(places // n)
        return np.concatenate([self._order_of_pass(number)[places[places // n == number] % n] for number in passes])

    def _draw_order(self, number: int) -> np.ndarray:
        return draws.generator(self._seed, "lsr order", str(number)).permutation(len(self.queries))
