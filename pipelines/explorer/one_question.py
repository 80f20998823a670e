"""One question with all about it: every answer, the passages, what each rule decides, and prompts.

Prompts are made again by the code that sent them, and compared with what was sent by their hash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import Rule
from pipelines.answering import given_passages, passages, prompts
from pipelines.answering.passages import Source
from pipelines.errors import LongtailError
from pipelines.explorer.reasons import READ_OF
from pipelines.explorer.run import SESSION, Run, lookup
from pipelines.lm.language_model import Prompt
from pipelines.methods import Method
from pipelines.replug import ensemble

Answers = dict[str, dict[str, dict]]  # language model -> method -> its row of predictions
Reader = tuple[str, str, dict]  # language model, method, and its row of predictions


@dataclass(frozen=True)
class Passage:
    """A passage that was the best one of its `readers`."""

    title: str
    doc_id: str  # "" if a language model wrote it
    text: str
    readers: list[Reader]

    @property
    def ways(self) -> list[tuple[str, str]]:
        """(language model, method) of each reader."""
        return [(lm, method) for lm, method, _ in self.readers]


@dataclass(frozen=True)
class Question:
    row: dict[str, Any]  # of the question set
    answers: Answers
    # Language model -> what each of its rules decides (`decisions_by_rules`).
    decisions: dict[str, list[dict]]
    # Id -> row of docs.parquet, of every best passage.
    documents: dict[str, dict]

    @property
    def passages(self) -> list[Passage]:
        """The best passages of the answers; the most used one comes first, written ones last."""
        retrieved: dict[str, Passage] = {}
        written = []
        for lm, by_method in self.answers.items():
            for method, answer in by_method.items():
                reader = (lm, method, answer)
                document = self.documents.get(answer["doc_id"])
                if answer["passage"]:
                    passage = Passage(f"written by {lm}", "", answer["passage"], [reader])
                    written.append(passage)
                elif document:
                    passage = Passage(document["title"], document["id"], document["text"], [])
                    retrieved.setdefault(passage.doc_id, passage).readers.append(reader)
        most_used = sorted(retrieved.values(), key=lambda passage: -len(passage.readers))
        return [*most_used, *written]

    def passage_of(self, lm: str, method: str) -> Passage | None:
        """The best passage of an answer, or None if it is not known."""
        for passage in self.passages:
            if (lm, method) in passage.ways:
                return passage
        return None

    def answer_by(self, lm: str, method: str) -> dict:
        """The row of predictions of an answer. Raises LongtailError if there is none."""
        answer = self.answers.get(lm, {}).get(method)
        if answer is None:
            raise LongtailError(f"prompt: no answer by {lm}, {method}")
        return answer


@dataclass(frozen=True)
class RebuiltPrompts:
    """The prompts of an answer, made again: one, or one for each document of an ensemble."""

    prompts: list[Prompt]
    documents: list[dict]  # id, title, similarity, and weight in an ensemble; none for closed-book
    same: bool  # whether they are those that were sent, by their hash


def read_question(run: Run, dataset: str, question_id: str) -> Question:
    """A question with all there is about it.

    Raises LongtailError for an id that the question set lacks.
    """
    rows = lookup(run.questions(dataset), "question_id", [question_id])
    if not rows:
        raise LongtailError(f"id: {dataset} has no question {question_id!r}")
    answers = _answers(run, dataset, question_id)
    decisions = {}
    for lm in run.answers(dataset):
        rules = run.rules(dataset, lm)
        if rules:
            decisions[lm] = decisions_by_rules(rules, rows[0], answers)
    return Question(rows[0], answers, decisions, _documents_of(run, answers))


def _answers(run: Run, dataset: str, question_id: str) -> Answers:
    """The answers to a question.

    Each has the `measure` that its similarity is, and what was `read`, one of READ.
    """
    answers: Answers = {}
    read = READ_OF.format(answer="")
    for lm, by_method in run.answers(dataset).items():
        for method, file in by_method.items():
            measure = "similarity"
            if lm in run.params.lms:
                measure = methods.measure(method, run.params.retrievers, run.params.retriever)
            for row in lookup(file, "question_id", [question_id], "*", f"{read} AS read"):
                answers.setdefault(lm, {})[method] = row | {"measure": measure}
    return answers


def _documents_of(run: Run, answers: Answers) -> dict[str, dict]:
    """The best passages of the answers, by their ids; nothing where the corpus is not there."""
    doc_ids = set()
    for by_method in answers.values():
        doc_ids |= {answer["doc_id"] for answer in by_method.values()}
    doc_ids.discard(None)
    file = run.data / "corpus" / str(run.params.parts.datastore) / "docs.parquet"
    if not doc_ids or not file.is_file():
        return {}
    rows = lookup(file, "id", sorted(doc_ids), "id", "title", "text")
    return {row["id"]: row for row in rows}


def decisions_by_rules(rules: Mapping[str, Rule], question: dict, answers: Answers) -> list[dict]:
    """The fields of each rule's `Decision`, with its `name` and the row of the `answer` it takes.

    `takes` is that answer's method if a rule chooses between two answers with passages. The
    `threshold` is None where the rule always retrieves, and the `answer` where it is missing.
    """
    decisions = []
    for name, rule in rules.items():
        decision = rule.decide(question["relation"], question["s_pop"])
        way = rule.below if decision.retrieve else rule.above
        lm, _, method = way.partition("/")
        fields = decision._asdict()
        if not math.isfinite(decision.threshold):
            fields["threshold"] = None
        fields["name"] = name
        fields["answer"] = answers.get(lm, {}).get(method)
        fields["takes"] = method if BELOW in name else ""
        decisions.append(fields)
    return decisions


def rebuild_prompts(
    run: Run, dataset: str, lm: str, method: str, question: Question
) -> RebuiltPrompts:
    """The prompts of one answer, made again by the code that made them.

    Raises LongtailError where that can't be done.
    """
    params = run.params
    answer = question.answer_by(lm, method)
    if lm not in params.lms:
        raise LongtailError(f"prompt: {lm} answered elsewhere, so its prompts are not known here")

    kind = Method.of_name(method).kind
    source = _source(run, dataset, kind, method, lm, answer)
    table, _ = given_passages.read_asked(dataset, params, run.data)
    pool = prompts.read_questions(table, prompts.read_demonstrations(dataset, run.data))
    place = pool.ids.index(answer["question_id"])
    made, retrieved = passages.prompts_of_question(params, dataset, pool, place, lm, source)
    documents = []
    if retrieved is not None and source is not None and not source.written:
        (row,) = retrieved.slice(0, 1).to_pylist()
        documents = _weighted_documents(run, kind, row)
    is_same = prompts.prompt_hash(*made) == answer["prompt_hash"]
    return RebuiltPrompts(made, documents, is_same)


def _source(run: Run, dataset: str, kind: str, method: str, lm: str, answer: dict) -> Source | None:
    """What finds the passages of an answer; of GenRead the passage that was kept."""
    if kind != "genread":
        spoken = prompts.language_of(dataset, run.params.language)
        return SESSION.source(method, run.params, run.data, spoken)
    n_shots = run.params.answer.of(dataset, run.params.lm[lm]).n_shots
    if n_shots and run.params.answer.shot_passages:
        raise LongtailError(
            "prompt: the language model wrote the demonstrations' passages, which are not kept"
        )

    def find(_: list[str]) -> pa.Table:
        return pa.table({"texts": [[answer["passage"]]]})

    return Source(find, 1, written=True)


def _weighted_documents(run: Run, kind: str, row: dict) -> list[dict]:
    """The documents of a row of passages, with their weights in an ensemble."""
    weights: list[float | None] = [None] * len(row["doc_ids"])
    if kind in methods.ENSEMBLES:
        similarities = np.array([row["similarities"]], float)
        log_weights = ensemble.log_weights(similarities, run.params.replug.temperature)
        weights = np.exp(log_weights)[0].tolist()
    documents = []
    columns = (row["doc_ids"], row["titles"], row["similarities"], weights)
    for doc_id, title, similarity, weight in zip(*columns, strict=True):
        if doc_id:
            document = {"id": doc_id, "title": title, "similarity": similarity, "weight": weight}
            documents.append(document)
    return documents
