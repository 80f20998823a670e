"""One question answered by adaptive retrieval, and why: popularity, threshold and passage (PopQA,
§6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.adaptive import pairs, rule, subjects
from pipelines.adaptive.pairs import Choice
from pipelines.adaptive.subjects import Reading
from pipelines.answering import given_passages, passages, prompts
from pipelines.answering.given_passages import AskedSettings
from pipelines.answering.passages import PassageSettings
from pipelines.answering.session import Session
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.lm.language_model import all_answered
from pipelines.params.param_types import LMName
from pipelines.storage.atomic import read_json

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel

THRESHOLDS = "adaptive/popularity/thresholds.json"  # below the data folder
PLAIN_SET = "popqa"  # a question without a template gets the demonstrations of this question set


class Settings(PassageSettings, AskedSettings):
    """The sections of params.yaml by which a question is answered."""

    seed: int
    lms: list[LMName]


@dataclass(frozen=True)
class Decision:
    """Which of two answers counts, and why."""

    retrieve: bool  # the answer below the threshold counts
    # page views; None if there is none, or the rule is always or never to retrieve
    threshold: float | None
    why: str


@dataclass(frozen=True)
class Passage:
    """What was read.

    Of several documents together it has the text of all, the rest is the best one's.
    """

    id: str | None  # None if the language model wrote it (GenRead), as are title and similarity
    title: str | None
    text: str
    similarity: float | None
    measure: str  # what the similarity is, such as cosine (methods.measure)

    @property
    def body(self) -> str:
        """The text without the title that it begins with."""
        return self.text.removeprefix(f"{self.title}\n")


@dataclass(frozen=True)
class AskedQuestion:
    """A question with its answer, and all that led to it."""

    question: str  # the question in the wording that the language model read
    lm: str  # the language model that answered
    pair: str  # the name of the two answers, as thresholds.json has it
    method: str  # the method of the answer: closed_book, a retriever's or genread
    reading: Reading | None
    decision: Decision
    passage: Passage | None = None
    answer: str = ""
    # the answer's tokens' mean, nats; None if it is empty, or if a server does not show it
    mean_log_prob: float | None = None
    prompt_hash: str = ""  # equal to the evaluation's if it read the same prompt


def ask(
    question: str,
    lm: str,
    pair: str,
    settings: Settings,
    *,
    subject: str | None = None,
    data: Path,
    session: Session | None = None,
) -> AskedQuestion:
    """Answer a question by the threshold of its relation, tuned for this language model and these
    two answers.

    `pair` is their name in thresholds.json (`pairs.Choice.name`): a retriever's, or as
    bm25_below_dense. `subject` is a Wikidata id, to choose among namesakes. What is opened stays in
    `session` for the next question.

    Raises LongtailError for an empty question, an unknown language model, method or subject, and
    for a missing file.
    """
    if not question.strip():
        raise LongtailError("the question is empty, expected some words")
    choice = Choice.of_name(lm, pair)
    _refuse_unanswerable(choice, settings)

    reading = subjects.read_question(
        question, data, subject, language.read_language(settings.language)
    )
    decision = decide_question(reading, data / THRESHOLDS, choice)

    method = choice.below if decision.retrieve else choice.above
    asked = AskedQuestion(
        question=_wording(question, reading),
        lm=lm,
        pair=pair,
        method=method.name,
        reading=reading,
        decision=decision,
    )
    return _answer(asked, settings, data, session or Session())


def _refuse_unanswerable(choice: Choice, settings: Settings) -> None:
    """Raise LongtailError where a language model of the run can't answer by one of two methods."""
    if choice.lm not in settings.lms:
        names = ", ".join(settings.lms) or "none"
        raise LongtailError(f"--lm {choice.lm}: expected a name of params.yaml's lms: {names}")

    known = [name for name in methods.METHODS if name not in methods.ENSEMBLES]
    for method in (choice.above, choice.below):
        if method.kind not in known:
            expected = f"expected a method of {', '.join(known)}, or two as bm25_below_dense"
            raise LongtailError(f"{choice.name}: {method.name} can't answer here, {expected}")


def _wording(question: str, reading: Reading | None) -> str:
    """The question as the language model reads it: as it was evaluated, or as it is, with single
    spaces.
    """
    if reading is None:
        return " ".join(question.split())
    name = reading.subject.name if reading.subject else reading.name
    return reading.template.asked.replace("{}", name)


def _answer(
    asked: AskedQuestion,
    settings: Settings,
    data: Path,
    session: Session,
) -> AskedQuestion:
    """Search, and let the language model answer."""
    from pipelines.lm.open_lm import open_lm

    weights = data / "models/lm" / asked.lm
    lm_settings = settings.lm[asked.lm]

    def open_model() -> LanguageModel:
        depends_on = (weights, lm_settings, settings.compute)
        return session.get("model", partial(open_lm, *depends_on), *depends_on)

    # An index is searched before the language model is opened, which takes longer to fail.
    source = session.source(asked.method, settings, data)
    if asked.method == "genread":
        source = passages.open_source(asked.method, open_model(), settings, data)
    dataset, pool, place = _place(asked, settings, data)
    question_prompts, retrieved = passages.prompts_of_question(
        settings, dataset, pool, place, asked.lm, source
    )
    (prompt,) = question_prompts
    passage = None
    if retrieved is not None:
        if asked.method == "genread":
            passages.check_written(retrieved["unanswered"].to_pylist())
        passage = _best_passage(retrieved, asked.method, settings)

    model = open_model()
    (generation,) = all_answered(model.generate([prompt], settings.answer.new_tokens))
    mean_log_prob = None
    if math.isfinite(generation.mean_log_prob):
        mean_log_prob = generation.mean_log_prob
    return replace(
        asked,
        passage=passage,
        answer=generation.text.strip(),
        mean_log_prob=mean_log_prob,
        prompt_hash=prompts.prompt_hash(prompt),
    )


def _best_passage(retrieved: pa.Table, method: str, settings: Settings) -> Passage:
    """The best passage of the only question of `retrieved`."""
    columns = retrieved.select(["doc_ids", "titles", "texts", "similarities"])
    doc_id, title, text, similarity = (column[0][0].as_py() for column in columns)
    measure = methods.measure(method, settings.retrievers, settings.retriever)
    return Passage(doc_id, title, text, similarity, measure)


def _place(
    asked: AskedQuestion, settings: Settings, data: Path
) -> tuple[str, prompts.Questions, int]:
    """A question set, and the place of the question in it: its subject's question's, or after all
    others.
    """
    reading = asked.reading
    dataset = reading.template.dataset if reading else PLAIN_SET
    table = given_passages.read_asked(dataset, settings, data)[0].sort_by("question_id")
    pool = prompts.read_questions(table)

    relation = ""
    if reading:
        relation = reading.template.relation
        qid = reading.subject.qid if reading.subject else None
        for place, uri in enumerate(table["s_uri"].to_pylist()):
            is_subject = uri is not None and uri.endswith(f"/{qid}")
            if is_subject and pool.texts[place] == asked.question:
                return dataset, pool, place

    place = len(pool.ids)
    ids = [*pool.ids, asked.question]
    texts = [*pool.texts, asked.question]
    relations = np.append(pool.relations, relation)
    return dataset, replace(pool, ids=ids, texts=texts, relations=relations), place


def decide_question(reading: Reading | None, thresholds: Path, choice: Choice) -> Decision:
    """Retrieve if the subject has fewer page views than its relation's threshold, or if one of the
    two is not known.

    To retrieve is to take the answer below the threshold.
    """
    if reading is None:
        return _without_threshold("The question follows no template of this run", choice)
    subject = reading.subject
    if subject is None:
        missing = f"No subject in this run's tables is called {reading.name!r}"
        return _without_threshold(missing, choice)
    if subject.popularity is None:
        missing = f"The page views of {subject.label} ({subject.qid}) are not known"
        return _without_threshold(missing, choice)
    entry = _entries(thresholds, reading.template.dataset, choice.lm).get(choice.name)
    if not entry:
        missing = f"No threshold is tuned for {choice.lm} with {choice.name}"
        return _without_threshold(missing, choice)

    in_use = rule.parse(entry, str(thresholds))
    decision = in_use.decide(reading.template.relation, subject.popularity)
    threshold = None
    if in_use.policy == rule.THRESHOLDS and math.isfinite(decision.threshold):
        threshold = decision.threshold
    why = f"{subject.popularity:,} views a month; {decision.why}"
    return Decision(decision.retrieve, threshold, why)


def _without_threshold(missing: str, choice: Choice) -> Decision:
    """To retrieve, because something is not known that a threshold needs."""
    why = f"{missing}, so {choice.below.name} answers without a threshold."
    return Decision(retrieve=True, threshold=None, why=why)


def best_retriever(lm: str, data: Path) -> str | None:
    """The retriever with which thresholds are most accurate on held-out questions of PopQA.

    None if none was tuned with this language model.
    """
    thresholds = data / THRESHOLDS
    if not thresholds.is_file():
        return None
    accuracies = {}
    for name, entry in _entries(thresholds, PLAIN_SET, lm).items():
        choice = Choice.of_name(lm, name)
        kind = choice.below.kind
        is_retriever = choice.above == pairs.CLOSED_BOOK and methods.INDEXES.get(kind) == kind
        figure = entry.get("held_out", {}).get("adaptive")
        if is_retriever and figure:
            accuracies[name] = figure["value"]
    return max(accuracies, key=accuracies.__getitem__, default=None)


def _entries(thresholds: Path, dataset: str, lm: str) -> dict[str, dict]:
    """The entries of thresholds.json for a question set and a language model, by choice."""
    if not thresholds.is_file():
        raise LongtailError(f"{thresholds}: no such file; `longtail run` writes it")
    rules = read_json(thresholds)["rules"]
    return rules.get(dataset, {}).get(lm, {})
