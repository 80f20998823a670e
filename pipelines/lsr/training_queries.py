"""The queries that LSR learns from and is validated on (REPLUG §4), and the training steps that each is used in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.compute as pc

from pipelines import draws
from pipelines.answering import passages, prompts
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.methods import Method
from pipelines.params.params import LSR
from pipelines.retrieval.retriever import open_index
from pipelines.scoring.logprobs import Queries, read_language_modelling, without_shots
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
    clusters: np.ndarray  # (n,) the source document of a text, the subject of a question
    answers: (
        np.ndarray | None
    )  # (n,) lists of a question's acceptable answers; None if not questions
    retriever: str = (
        ""  # the retriever that is tuned; the stages of two trainings have different names
    )

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
        answers = self.answers if self.answers is None else self.answers.tolist()
        found = blake2b(
            repr((self.name, self.train, self.queries.document, answers)).encode(), digest_size=16
        )
        for row in zip(*(column.tolist() for column in self.queries.columns()), strict=True):
            found.update(repr(row).encode())
        return found.hexdigest()


def read_training_queries(params: SimpleNamespace) -> list[CorpusQueries]:
    """Language-modelling queries of the first scored corpus, and questions that are answered from the datastore.

    `lsr.queries` says which. LongtailError if none are to learn from, or to choose the encoder by.
    """
    lsr, seed, parts = params.lsr, params.seed, params.parts
    corpora = []
    for name in parts.scored[:1] if lsr.queries != "qa" else ():
        amounts = ("train", lsr.lm_queries), ("validation", lsr.validation_queries)
        train, validation = (
            read_language_modelling(CORPORA / name, split, seed, most) for split, most in amounts
        )
        queries, sources = (
            train[0].and_then(validation[0]),
            np.concatenate([train[1], validation[1]]),
        )
        corpora.append(
            CorpusQueries(name, name, queries, len(train[0]), sources, None, params.retrieves)
        )
    for name in parts.answered[:1] if lsr.queries != "lm" else ():
        asked = read_questions(QUESTIONS / name / f"{name}.parquet", params)
        unique = name if parts.datastore in parts.scored[:1] else parts.datastore
        corpora.append(CorpusQueries(unique, parts.datastore, *asked, params.retrieves))
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


def read_questions(
    file: Path, params: SimpleNamespace
) -> tuple[Queries, int, np.ndarray, np.ndarray]:
    """Questions of a set's train split, to learn from and then for validation, and the number of the former.

    The two share no subject. Also returns their subjects and their acceptable answers (n,).
    """
    table, lsr, seed = parquet.read_parquet(file), params.lsr, params.seed
    answered = pc.greater(pc.list_value_length(table["possible_answers"]), 0)
    table = table.filter(pc.and_(pc.equal(table["split"], "train"), answered)).sort_by(
        "question_id"
    )
    pool = prompts.read_questions(table)
    named = zip(table["s_uri"].to_pylist(), pool.subjects, strict=True)
    subjects = np.array([uri or name for uri, name in named], object)
    held_out = draws.uniforms(seed, "lsr validation", subjects) < VALIDATION_SHARE

    def draw(eligible: np.ndarray, purpose: str, at_most: int) -> np.ndarray:
        places = np.flatnonzero(eligible)
        return (
            places[draws.sample(seed, purpose, [pool.ids[i] for i in places], at_most)]
            if len(places)
            else places
        )

    train = draw(~held_out, "lsr questions", lsr.qa_queries)
    validation = draw(held_out, "lsr judges", lsr.validation_queries)
    rows = np.concatenate([train, validation])
    answers = np.empty(len(rows), object)
    answers[:] = [pool.answers[row] for row in rows]
    return question_queries(file.stem, pool, rows, params), len(train), subjects[rows], answers


def question_queries(
    dataset: str, pool: prompts.Questions, rows: np.ndarray, params: SimpleNamespace
) -> Queries:
    """The questions `rows` of a pool, to be read as the stage `answer` asks them, and continued by their first answer.

    Before each stand `lsr.n_shots` demonstrations: before a document with the untuned retriever's best passages (if
    `answer.shot_passages`), before none without any.
    """
    lsr, spoken = params.lsr, language.read_language(params.language)
    n_shots = lsr.shots(params.answer, params.lm[lsr.lm])
    of_each = prompts.demonstrations(params.seed, dataset, pool, rows.tolist(), n_shots)
    shown = sorted({*chain(*of_each)}) if params.answer.shot_passages else ()
    found = _best_passages([pool.texts[row] for row in shown], params)
    shots = without_shots(len(rows))
    for number, of_one in enumerate(of_each):
        examples = [
            (pool.texts[row], pool.shown[row], found.get(pool.texts[row])) for row in of_one
        ]
        shots[number] = [
            prompts.shown(examples, spoken),
            prompts.shown([(*one[:2], None) for one in examples], spoken),
        ]
    texts = [pool.texts[row] for row in rows]
    asked = [spoken.asked(text) for text in texts]
    full = (
        spoken.answered(text, pool.answers[row][0]) for text, row in zip(texts, rows, strict=True)
    )
    continuations = [whole[len(start) :] for whole, start in zip(full, asked, strict=True)]
    columns = (
        np.array(column, object)
        for column in ([pool.ids[row] for row in rows], texts, asked, continuations)
    )
    return Queries(*columns, f"{params.answer.passage}\n\n", shots)


def _best_passages(texts: list[str], params: SimpleNamespace) -> dict[str, str]:
    """The untuned retriever's best document of each text, as the language model reads it."""
    if not texts:
        return {}
    settings = SimpleNamespace(
        compute=params.compute, retriever={params.retrieves: params.retriever}
    )
    untuned = Method("dense", params.retrieves)
    retriever = open_index(untuned, params.parts.datastore, settings)
    docs = CORPORA / params.parts.datastore / "docs.parquet"
    found = passages.retrieved(retriever, docs, 1, params.answer.passage, together=False).find(
        texts
    )
    return {text: best for text, (best, *_) in zip(texts, found["texts"].to_pylist(), strict=True)}


class Schedule:
    """Which training queries each step learns from, and which steps make a round.

    A round is `lsr.refresh_steps` steps with the same candidates. The last has no steps; it validates the last encoder.
    """

    def __init__(self, corpora: Sequence[CorpusQueries], lsr: LSR, seed: int) -> None:
        self._lsr, self._seed, self._train = lsr, seed, [corpus.train for corpus in corpora]
        self.queries = np.concatenate(
            [
                np.stack([np.full(train, i), np.arange(train)], axis=1)
                for i, train in enumerate(self._train)
            ]
        )  # (all training queries, 2): number of the corpus, row of its queries
        self._order_of_pass = lru_cache(maxsize=1)(
            lambda number: draws.generator(seed, "lsr order", str(number)).permutation(
                len(self.queries)
            )
        )
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
        return np.concatenate(
            [self._order_of_pass(number)[places[places // n == number] % n] for number in passes]
        )
