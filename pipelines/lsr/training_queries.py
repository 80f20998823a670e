"""What LSR learns from and is judged by (REPLUG §4): both corpora with their queries, and which of these when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipelines import draws, params
from pipelines.errors import LongtailError
from pipelines.scoring.queries import Queries, language_modelling, questions

CORPORA = Path("data/corpus")
POPQA = Path("data/questions/popqa/popqa.parquet")


@dataclass(frozen=True)
class Side:
    """One corpus with its queries: the first `train` of them are learnt from, the others only judge.

    `pages` are the titles of the pages that the judging questions are about; None where the queries are no questions.
    """

    name: str
    queries: Queries
    train: int
    pages: np.ndarray | None

    @property
    def docs(self) -> Path:
        return CORPORA / self.name / "docs.parquet"

    @property
    def judging(self) -> np.ndarray:
        """Rows of the queries that only judge."""
        return np.arange(self.train, len(self.queries))

    @property
    def stage(self) -> str:
        return f"train_lsr-{self.name}"


def read(given: SimpleNamespace) -> list[Side]:
    """Both corpora; `lsr.queries` says which kind of queries is learnt from, all held-out ones judge.

    Raises LongtailError where there are none to learn from.
    """
    lsr = given.lsr
    of_lm = lsr.lm_queries if lsr.queries != "qa" else 0
    of_qa = lsr.qa_queries if lsr.queries != "lm" else 0
    judges, *_ = language_modelling(CORPORA / "pile", "validation", given.seed, lsr.validation_queries)
    learnt, *_ = language_modelling(CORPORA / "pile", "train", given.seed, of_lm)
    asked, held, pages = questions(POPQA, given.seed, lsr.validation_share, of_qa, lsr.validation_queries)
    if not len(learnt) + len(asked):
        raise LongtailError(
            f"lsr.queries is {lsr.queries}, but there are no queries of that kind to learn from; "
            "raise corpus.pile.query_share or popqa.train_share"
        )
    both = [("pile", learnt, judges, None), ("wikipedia", asked, held, np.asarray(pages, object))]
    return [
        Side(name, train.and_then(judging), len(train), pages)
        for name, train, judging, pages in both
        if len(train) + len(judging)
    ]


class Order:
    """Which training queries each step learns from, and which steps make a round: those with the same candidates.

    A round's candidates are those of the encoder before its first step; where `lsr.refresh` is async, of the encoder
    one round earlier, so that they can be found while that round trains. The last round, where `lsr.refresh` is async
    the last two, have no steps: they are there for the validation of their encoders, the final one among them.
    """

    def __init__(self, sides: Sequence[Side], settings: params.LSR, seed: int) -> None:
        self._settings, self._seed, self._train = settings, seed, [side.train for side in sides]
        self.owners = np.concatenate(
            [np.stack([np.full(train, i), np.arange(train)], axis=1) for i, train in enumerate(self._train)]
        )  # (all training queries, 2): side and row
        self._drawn: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # the last pass: its number, permutation
        self._behind = int(settings.refresh == "async")
        self.rounds = -(-settings.steps // settings.refresh_steps) + 1 + self._behind

    def steps(self, number: int) -> range:
        """Those of a round."""
        s = self._settings
        return range(min(number * s.refresh_steps, s.steps), min((number + 1) * s.refresh_steps, s.steps))

    def encoder(self, number: int) -> int:
        """The step before which the encoder was as it makes a round's candidates: 0 is the untuned one."""
        return self.steps(max(number - self._behind, 0)).start

    def rows(self, number: int) -> list[np.ndarray]:
        """Each side's training queries of a round's steps, ascending."""
        steps = self.steps(number)
        asked = np.unique(np.concatenate([self.batch(step) for step in steps] or [np.empty(0, np.int64)]))
        owners = self.owners[asked]
        return [owners[owners[:, 0] == i, 1] for i in range(len(self._train))]

    def batch(self, step: int) -> np.ndarray:
        """Numbers of a step's training queries: a pass over all of them in a drawn order, then another."""
        n, size = len(self.owners), self._settings.batch_size
        places = np.arange(step * size, (step + 1) * size)
        passes = [self._pass(number)[places[places // n == number] % n] for number in np.unique(places // n)]
        return np.concatenate(passes)

    def _pass(self, number: int) -> np.ndarray:
        if self._drawn[0] != number:
            drawn = draws.generator(self._seed, "lsr order", str(number))
            self._drawn = (number, drawn.permutation(len(self.owners)))
        return self._drawn[1]
