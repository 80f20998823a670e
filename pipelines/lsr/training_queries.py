"""The queries that LSR learns from and is validated on (REPLUG §4), and the steps that use each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, draws
from pipelines.answering import passages, prompts
from pipelines.arrays import arrays_of
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.lm.open_lm import supervising_lm
from pipelines.lsr.lsr_settings import Settings
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
    """A corpus and queries for it.

    Training learns from the first `train` queries, and the others are for validation.
    """

    name: str  # unique: the corpus's, or the question set's if other queries have the corpus's name
    corpus: str
    queries: Queries
    train: int
    clusters: np.ndarray  # (n,) the source document of a text, the subject of a question
    answers: np.ndarray | None  # (n,) lists of a question's acceptable answers; None for texts
    retriever: str = ""  # that is tuned; the works of two trainings have different names

    @property
    def docs(self) -> Path:
        return CORPORA / self.corpus / "docs.parquet"

    @property
    def validation(self) -> np.ndarray:
        """Rows of the queries for validation."""
        return np.arange(self.train, len(self.queries))

    @property
    def of_texts(self) -> bool:
        """Whether these are queries of language modelling, not questions."""
        return self.answers is None

    @property
    def stage(self) -> str:
        """The name of the work that is done for this corpus."""
        return f"train_lsr@{self.retriever}-{self.name}"

    def digest(self) -> str:
        """A hash of all that training reads of it, but for the documents."""
        answers = None if self.answers is None else self.answers.tolist()
        content = (self.name, self.train, self.queries.document, answers)
        digest = blake2b(repr(content).encode(), digest_size=16)
        columns = [column.tolist() for column in arrays_of(self.queries).values()]
        for row in zip(*columns, strict=True):
            digest.update(repr(row).encode())
        return digest.hexdigest()


def read_training_queries(settings: Settings, retriever: str) -> list[CorpusQueries]:
    """The queries for the training of a retriever, by corpus.

    They are language-modelling queries of the first scored corpus, and questions that are answered
    from the datastore; `lsr.queries` says which. Raises LongtailError if there is nothing to learn
    from, or to choose the encoder by.
    """
    lsr = settings.lsr
    parts = settings.parts
    learnt_sets = catalogue.with_train_split(parts.answered)
    corpora = []
    if lsr.queries != "qa" and parts.scored:
        corpora.append(read_texts(parts.scored[0], settings, retriever))
    if lsr.queries != "lm" and learnt_sets:
        corpora.append(read_questions(learnt_sets[0], settings, retriever))

    if not sum(corpus.train for corpus in corpora):
        raise LongtailError(
            f"lsr.queries is {lsr.queries}, but there are no queries of that kind to learn from; "
            "raise query_share of the first corpus in parts.scored, or popqa.train_share"
        )
    if lsr.keep == "best" and not _validates(lsr.best_by, corpora):
        raise LongtailError(
            f"lsr.keep is best, but there are no queries to validate encoders by {lsr.best_by}; "
            "raise popqa.train_share or queries.validation_share, set another lsr.queries, "
            "or lsr.keep: last"
        )
    return [corpus for corpus in corpora if len(corpus.queries)]


def _validates(figure: str, corpora: list[CorpusQueries]) -> bool:
    """Whether there are validation queries that give a figure of BETTER."""
    for corpus in corpora:
        figure_of_corpus = "bits_per_byte" if corpus.answers is None else "recall_at_1"
        if figure_of_corpus == figure and len(corpus.validation):
            return True
    return False


def read_texts(name: str, settings: Settings, retriever: str) -> CorpusQueries:
    """Language-modelling queries of a corpus."""
    folder = CORPORA / name
    lsr = settings.lsr
    train, train_sources = read_language_modelling(folder, "train", settings.seed, lsr.lm_queries)
    validation, validation_sources = read_language_modelling(
        folder, "validation", settings.seed, lsr.validation_queries
    )
    queries = train.and_then(validation)
    clusters = np.concatenate([train_sources, validation_sources])
    return CorpusQueries(
        name=name,
        corpus=name,
        queries=queries,
        train=len(train),
        clusters=clusters,
        answers=None,
        retriever=retriever,
    )


def read_questions(dataset: str, settings: Settings, retriever: str) -> CorpusQueries:
    """Questions of a set's train split; those for validation share no subject with the others."""
    parts = settings.parts
    table = _answered_train_questions(QUESTIONS / dataset / f"{dataset}.parquet")
    pool = prompts.read_questions(table)
    subjects = np.array(pool.subjects, object)
    for row, uri in enumerate(table["s_uri"].to_pylist()):
        if uri:
            subjects[row] = uri
    held_out = draws.uniforms(settings.seed, "lsr validation", subjects) < VALIDATION_SHARE

    def draw(eligible: np.ndarray, purpose: str, at_most: int) -> np.ndarray:
        places = np.flatnonzero(eligible)
        if not len(places):
            return places
        ids = [pool.ids[place] for place in places]
        return places[draws.sample(settings.seed, purpose, ids, at_most)]

    train = draw(~held_out, "lsr questions", settings.lsr.qa_queries)
    validation = draw(held_out, "lsr judges", settings.lsr.validation_queries)
    rows = np.concatenate([train, validation])
    answers = np.empty(len(rows), object)
    answers[:] = [pool.answers[row] for row in rows]

    corpus = parts.datastore
    assert corpus is not None, "params are checked"
    name = dataset if corpus in parts.scored[:1] else corpus
    queries = question_queries(dataset, pool, rows, settings, retriever)
    return CorpusQueries(
        name=name,
        corpus=corpus,
        queries=queries,
        train=len(train),
        clusters=subjects[rows],
        answers=answers,
        retriever=retriever,
    )


def _answered_train_questions(file: Path) -> pa.Table:
    table = parquet.read_parquet(file)
    has_answers = pc.greater(pc.list_value_length(table["possible_answers"]), 0)
    is_train = pc.equal(table["split"], "train")
    return table.filter(pc.and_(is_train, has_answers)).sort_by("question_id")


def question_queries(
    dataset: str, pool: prompts.Questions, rows: np.ndarray, settings: Settings, retriever: str
) -> Queries:
    """The questions `rows` of a pool, as the stage `answer` asks them, continued by an answer.

    The answer is a question's first. Before each question stand `lsr.n_shots` demonstrations:
    before a document with the untuned retriever's best passages (if `answer.shot_passages`), before
    none without any.
    """
    spoken = language.read_language(settings.language)
    _, lm = supervising_lm(settings)
    n_shots = settings.lsr.shots(settings.answer, dataset, lm)
    shot_rows = prompts.demonstrations(settings.seed, dataset, pool, rows.tolist(), n_shots)
    passage_of_text = {}
    if settings.answer.shot_passages:
        distinct_rows = sorted(set().union(*shot_rows))
        shot_texts = [pool.texts[row] for row in distinct_rows]
        passage_of_text = _best_passages(shot_texts, settings, retriever)

    shots = without_shots(len(rows))
    for number, rows_of_question in enumerate(shot_rows):
        with_passages = []
        without_passages = []
        for row in rows_of_question:
            text = pool.texts[row]
            with_passages.append((text, pool.shown[row], passage_of_text.get(text)))
            without_passages.append((text, pool.shown[row], None))
        shots[number, 0] = prompts.shown(with_passages, spoken)
        shots[number, 1] = prompts.shown(without_passages, spoken)

    ids = []
    texts = []
    contexts = []
    continuations = []
    for row in rows:
        text = pool.texts[row]
        context = spoken.asked(text)
        answered = spoken.answered(text, pool.answers[row][0])
        ids.append(pool.ids[row])
        texts.append(text)
        contexts.append(context)
        continuations.append(answered[len(context) :])
    return Queries(
        ids=np.array(ids, object),
        texts=np.array(texts, object),
        contexts=np.array(contexts, object),
        continuations=np.array(continuations, object),
        shots=shots,
        document=f"{settings.answer.passage}\n\n",
    )


def _best_passages(texts: list[str], settings: Settings, retriever: str) -> dict[str, str]:
    """The untuned retriever's best document of each text, as the language model reads it."""
    if not texts:
        return {}
    corpus = settings.parts.datastore
    assert corpus is not None, "params are checked"
    index = open_index(Method("dense", retriever), corpus, settings)
    docs = CORPORA / corpus / "docs.parquet"
    source = passages.retrieved(index, docs, 1, settings.answer.passage, between=None)
    passages_of_texts = source.find(texts)["texts"].to_pylist()
    return {text: best[0] for text, best in zip(texts, passages_of_texts, strict=True)}


class Schedule:
    """Which training queries each step learns from, and which steps make a round.

    A round is `lsr.refresh_steps` steps with the same candidates. The last round has no steps; it
    validates the last encoder.
    """

    def __init__(self, corpora: Sequence[CorpusQueries], lsr: LSR, seed: int) -> None:
        self._lsr = lsr
        self._seed = seed
        self._n_corpora = len(corpora)
        self._order_of_pass = lru_cache(maxsize=1)(self._draw_order)
        self.rounds = -(-lsr.steps // lsr.refresh_steps) + 1
        # all training queries, (n, 2): number of the corpus, row of its queries
        queries = []
        for number, corpus in enumerate(corpora):
            rows = np.arange(corpus.train)
            numbers = np.full(corpus.train, number)
            queries.append(np.stack([numbers, rows], axis=1))
        self.queries = np.concatenate(queries)

    def steps(self, round_number: int) -> range:
        """The training steps of a round; its candidates' encoder was trained for `start` steps."""
        size = self._lsr.refresh_steps
        steps = range(self._lsr.steps)
        return steps[round_number * size : (round_number + 1) * size]

    def rows(self, round_number: int) -> list[np.ndarray]:
        """Each corpus's queries that a round's steps learn from, as ascending rows."""
        places = [np.empty(0, np.int64)]
        places += [self.batch(step) for step in self.steps(round_number)]
        queries = self.queries[np.unique(np.concatenate(places))]
        return [queries[queries[:, 0] == number, 1] for number in range(self._n_corpora)]

    def batch(self, step: int) -> np.ndarray:
        """Which of `queries` a step learns from; each pass over them has its own random order."""
        n = len(self.queries)
        size = self._lsr.batch_size
        places = np.arange(step * size, (step + 1) * size)
        batch = []
        for number in np.unique(places // n):
            places_of_pass = places[places // n == number] % n
            batch.append(self._order_of_pass(number)[places_of_pass])
        return np.concatenate(batch)

    def _draw_order(self, number: int) -> np.ndarray:
        """The order of the queries in a pass over all of them."""
        generator = draws.generator(self._seed, "lsr order", str(number))
        return generator.permutation(len(self.queries))
