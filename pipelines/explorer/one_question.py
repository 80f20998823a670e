"""A question with every answer to it: passages, what each rule decides, and the prompts as they were sent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.adaptive.pairs import BELOW
from pipelines.adaptive.rule import Rule
from pipelines.answering import given, passages, prompts
from pipelines.answering.passages import Source
from pipelines.errors import LongtailError
from pipelines.explorer.looked_at import OPENED, WHOSE, Run, lookup
from pipelines.lm.language_model import Prompt
from pipelines.replug import ensemble


@dataclass(frozen=True)
class Question:
    row: dict[str, Any]  # of the question set
    answers: dict[str, dict[str, dict]]  # language model -> method -> its row of predictions
    decisions: dict[str, list[dict]]  # language model -> what each of its rules decides (`decisions_by_rules`)
    documents: dict[str, dict]  # id -> row of docs.parquet, of every best passage of the questions read together

    @property
    def listed(self) -> list[tuple[str, str, dict]]:
        """(model, method, answer) of each answer."""
        return [(lm, method, answer) for lm, by in self.answers.items() for method, answer in by.items()]

    @property
    def read(self) -> list[tuple[dict, list[tuple[str, str, dict]]]]:
        """Each passage with those of `listed` that it was the best one of; the most used one comes first."""
        readers: dict[str, list[tuple[str, str, dict]]] = {}
        for one in self.listed:
            readers.setdefault(one[2]["doc_id"], []).append(one)
        used = sorted(readers.items(), key=lambda pair: -len(pair[1]))
        return [(self.documents[id_], by) for id_, by in used if id_ in self.documents]

    @property
    def written(self) -> list[tuple[str, str, str]]:
        """(model, method, passage) of each passage that a language model wrote itself."""
        return [(lm, method, answer["passage"]) for lm, method, answer in self.listed if answer["passage"]]


@dataclass(frozen=True)
class Sent:
    """The prompts of an answer, made again: one, or one for each document of an ensemble."""

    prompts: list[Prompt]
    documents: list[dict]  # id, title, similarity, and weight in an ensemble; none for closed-book
    same: bool  # whether they are those that were sent, by their hash


def read_answers_to(run: Run, dataset: str, question_ids: Sequence[str]) -> list[Question]:
    """Questions with all there is about them, in this order. Raises LongtailError for an id that the set lacks."""
    asked = {row["question_id"]: row for row in lookup(run.questions(dataset), "question_id", question_ids)}
    if missing := [id_ for id_ in question_ids if id_ not in asked]:
        raise LongtailError(f"id: {dataset} has no question {missing[0]!r}")
    answers = _answers(run, dataset, question_ids)
    known = {answer["doc_id"] for of in answers.values() for by in of.values() for answer in by.values()} - {None}
    docs = run.data / f"corpus/{run.params.parts.datastore}/docs.parquet"
    found = lookup(docs, "id", sorted(known), "title", "text") if known and docs.is_file() else []
    documents = {document["id"]: document for document in found}
    of_models = {lm: run.rules(dataset, lm) for lm in run.answers(dataset)}
    read = []
    for id_ in question_ids:
        decisions = {
            lm: decisions_by_rules(by_name, asked[id_], answers[id_]) for lm, by_name in of_models.items() if by_name
        }
        read.append(Question(asked[id_], answers[id_], decisions, documents))
    return read


def _answers(run: Run, dataset: str, question_ids: Sequence[str]) -> dict[str, dict[str, dict[str, dict]]]:
    """Question -> language model -> method -> the row of the answer, with the `measure` that its similarity is."""
    answers: dict[str, dict] = {id_: {} for id_ in question_ids}
    for lm, by_method in run.answers(dataset).items():
        for method, file in by_method.items():
            measure = methods.measure(method, run.params) if lm in run.params.lms else "similarity"
            for row in lookup(file, "question_id", question_ids, "*", f"{WHOSE.format(of='')} AS whose"):
                answers[row["question_id"]].setdefault(lm, {})[method] = row | {"measure": measure}
    return answers


def decisions_by_rules(by_name: dict[str, Rule], asked: dict, answers: dict[str, dict[str, dict]]) -> list[dict]:
    """The fields of each rule's `Decision`, with its `name` and the row of the `answer` that it takes, if there is one.

    `takes` is that answer's method if a rule chooses between two answers with passages. A threshold of None is always.
    """
    decisions = []
    for name, file in by_name.items():
        decided = file.decide(asked["relation"], asked["s_pop"])
        lm, _, method = (file.tail if decided.retrieve else file.popular).partition("/")
        cut = {"threshold": decided.threshold if math.isfinite(decided.threshold) else None}
        taken = {"answer": answers.get(lm, {}).get(method), "takes": method if BELOW in name else ""}
        decisions.append(decided._asdict() | cut | {"name": name} | taken)
    return decisions


def sent(run: Run, dataset: str, lm: str, method: str, question: Question) -> Sent:
    """The prompts of one answer, made again by the code that made them. LongtailError where that can't be done."""
    chosen, answer = run.params, question.answers.get(lm, {}).get(method)
    if answer is None:
        raise LongtailError(f"prompt: no answer by {lm}, {method}")
    if lm not in chosen.lms:
        raise LongtailError(f"prompt: {lm} answered elsewhere, so its prompts are not known here")
    kind = methods.split(method)[0]
    if kind != "genread":
        source = OPENED.source(method, run.params, run.data)
    elif chosen.answer.of(chosen.lm[lm]).n_shots and chosen.answer.shot_passages:
        raise LongtailError("prompt: the language model wrote the demonstrations' passages, which are not kept")
    else:
        source = Source(lambda _: pa.table({"texts": [[answer["passage"]]]}), 1, written=True)
    pool = prompts.read_questions(given.read_asked(dataset, chosen, run.data)[0])
    place = pool.ids.index(answer["question_id"])
    made, _, found = passages.prompts_of_question(chosen, dataset, pool, place, lm, source)
    documents = [] if source is None or source.written else _documents(run, kind, found.slice(0, 1).to_pylist()[0])
    return Sent(made, documents, prompts.prompt_hash(*made) == answer["prompt_hash"])


def _documents(run: Run, kind: str, found: dict) -> list[dict]:
    """The documents of a row of passages.SCHEMA, with their weights in an ensemble."""
    weights: list[float | None] = [None] * len(found["doc_ids"])
    if kind in methods.ENSEMBLES:
        similarities = np.array([found["similarities"]], float)
        weights = np.exp(ensemble.log_weights(similarities, run.params.replug.temperature))[0].tolist()
    rows = zip(found["doc_ids"], found["titles"], found["similarities"], weights, strict=True)
    return [{"id": id_, "title": title, "similarity": of, "weight": weight} for id_, title, of, weight in rows if id_]
