"""The rows of a file of answers: what a language model was sent and what it said, by question."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pipelines.answering import prompts, unanswered
from pipelines.answering.passages import Lookup
from pipelines.lm.language_model import Generation, Prompt
from pipelines.methods import Method
from pipelines.params import params
from pipelines.questions import matching

if TYPE_CHECKING:
    from pipelines.answering.answer import Setup


class Answered(NamedTuple):
    """What the LM was sent, what it saw of that, and what it answered."""

    sent: list[Prompt]
    seen: list[Prompt]  # of each prompt sent, what the LM's positions had room for
    generations: list[Generation]  # one a question


class _Question(NamedTuple):
    """A question with its passages, what the LM was sent and saw, and what it answered."""

    setup: Setup
    pool: prompts.Questions
    position: int  # in the pool
    passages: dict  # a row of passages.SCHEMA
    sent: list[Prompt]
    seen: list[Prompt]
    generation: Generation


def to_rows(
    setup: Setup,
    pool: prompts.Questions,
    asked: list[int],
    lookup: Lookup,
    answered: Answered,
) -> pa.Table:
    """The rows of some questions (unanswered.SCHEMA)."""
    # prompts of a question: one, or one per document of an ensemble
    k = len(answered.sent) // len(asked)
    rows = []
    for i, passages in enumerate(lookup.rows(asked)):
        prompts_of_question = slice(k * i, k * (i + 1))
        question = _Question(
            setup=setup,
            pool=pool,
            position=asked[i],
            passages=passages,
            sent=answered.sent[prompts_of_question],
            seen=answered.seen[prompts_of_question],
            generation=answered.generations[i],
        )
        rows.append(_row(question))
    return pa.Table.from_pylist(rows, schema=unanswered.SCHEMA)


def _row(question: _Question) -> dict:
    """The columns of PREDICTIONS; of a question without an answer, those that are known."""
    row = {
        "question_id": question.pool.ids[question.position],
        "method": Method.of_name(question.setup.method).kind,
        "prompt_hash": prompts.prompt_hash(*question.sent),
    }
    reason = question.generation.unanswered or question.passages.get("unanswered")
    if reason:
        return row | {"unanswered": reason}
    row |= _answer_columns(question)
    if question.setup.source:
        row |= _passage_columns(question)
    return row


def _answer_columns(question: _Question) -> dict:
    """The columns that every method has of an answer."""
    setup = question.setup
    generation = question.generation
    golds = question.pool.answers[question.position]
    text = generation.text
    is_right = matching.RULES[setup.protocol.answer]

    # The tokens of an answer and of its passages are not known if the server does not show them.
    new_tokens = None
    if generation.new_tokens or not text:
        new_tokens = generation.new_tokens + question.passages["new_tokens"]
    prompt_tokens = None
    if generation.prompt_tokens:
        prompt_tokens = generation.prompt_tokens + question.passages["prompt_tokens"]

    is_word = matching.word(text, golds, setup.language)
    cost = _cost(setup.server, prompt_tokens, new_tokens)
    row = {
        "prediction": text.strip(),
        "correct": is_right(text, golds),
        "correct_word": is_word,
        "mean_log_prob": generation.mean_log_prob,
        "lm_calls": len(question.sent),
        "remarks": list(generation.remarks),
        "new_tokens": new_tokens,
        "prompt_tokens": prompt_tokens,
        "cost": cost,
    }
    if setup.written:
        row["lm_calls"] += 1
        row["passage"] = question.passages["texts"][0]
    return row


def _cost(
    server: params.LMServer | None, prompt_tokens: int | None, new_tokens: int | None
) -> float | None:
    """What an answer costs by the server's prices; 0 for a local LM; None if tokens are not
    known.
    """
    if server is None:
        return 0.0
    if prompt_tokens is None or new_tokens is None:
        return None
    return (prompt_tokens * server.prompt_price + new_tokens * server.completion_price) / 1000


def _passage_columns(question: _Question) -> dict:
    """The columns on the passages: whether they have an answer, and the best one."""
    has_answer = None  # of a letter, which is no text
    if question.setup.protocol.answer != "letter":
        has_answer = _has_answer(question)
    title = question.passages["titles"][0]
    columns = {
        "doc_has_answer": has_answer,
        "doc_id": question.passages["doc_ids"][0],
        "doc_title": title,
        "similarity": question.passages["similarities"][0],
    }
    page = question.pool.pages[question.position]
    if title is not None and page:
        subject = question.pool.subjects[question.position] or ""
        columns["doc_is_subject"] = title == page
        columns["doc_is_namesake"] = matching.namesake(title, subject, page)
    return columns


def _has_answer(question: _Question) -> bool:
    """Whether some passage has an answer in what the LM saw of it."""
    language = question.setup.language
    text = question.pool.texts[question.position]
    golds = question.pool.answers[question.position]
    passages = question.passages["texts"]
    for passage, prompt, seen in zip(passages, question.sent, question.seen, strict=True):
        left = prompts.passage_left(passage, text, prompt, seen, language)
        if matching.word(left, golds, language):
            return True
    return False
