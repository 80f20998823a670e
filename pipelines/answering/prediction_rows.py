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
    for i, passage_row in enumerate(lookup.rows(asked)):
        position = asked[i]
        prompts_of_question = slice(k * i, k * (i + 1))
        sent = answered.sent[prompts_of_question]
        reason = answered.generations[i].unanswered or passage_row.get("unanswered")
        if reason:
            row = _unanswered_row(setup, pool.ids[position], sent, reason)
            rows.append(row)
            continue

        row = _row(setup, pool, position, passage_row, sent, answered.generations[i])
        if setup.source:
            seen = answered.seen[prompts_of_question]
            row |= _passage_columns(setup, pool, position, passage_row, sent, seen)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=unanswered.SCHEMA)


def _unanswered_row(setup: Setup, question_id: str, sent: list[Prompt], reason: str) -> dict:
    """The columns that are known of a question without an answer."""
    return {
        "question_id": question_id,
        "method": Method.of_name(setup.method).kind,
        "prompt_hash": prompts.prompt_hash(*sent),
        "unanswered": reason,
    }


def _row(
    setup: Setup,
    pool: prompts.Questions,
    position: int,
    passage_row: dict,
    sent: list[Prompt],
    generation: Generation,
) -> dict:
    """The columns of PREDICTIONS that every method has; `passage_row` is of passages.SCHEMA."""
    answers = pool.answers[position]
    text = generation.text
    method = Method.of_name(setup.method)
    row = {
        "question_id": pool.ids[position],
        "method": method.kind,
        "prediction": text.strip(),
        "correct": matching.RULES[setup.protocol.answer](text, answers),
        "correct_word": matching.word(text, answers, setup.language),
        "prompt_hash": prompts.prompt_hash(*sent),
        "mean_log_prob": generation.mean_log_prob,
        "lm_calls": len(sent),
        "remarks": list(generation.remarks),
    }
    if setup.written:
        row["lm_calls"] += 1
        row["passage"] = passage_row["texts"][0]

    # The tokens of an answer and of its passages are not known if the server does not show them.
    new_tokens = None
    if generation.new_tokens or not text:
        new_tokens = generation.new_tokens + passage_row["new_tokens"]
    prompt_tokens = None
    if generation.prompt_tokens:
        prompt_tokens = generation.prompt_tokens + passage_row["prompt_tokens"]
    row["new_tokens"] = new_tokens
    row["prompt_tokens"] = prompt_tokens
    row["cost"] = _cost(setup.server, prompt_tokens, new_tokens)
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


def _passage_columns(
    setup: Setup,
    pool: prompts.Questions,
    position: int,
    passage_row: dict,
    sent: list[Prompt],
    seen: list[Prompt],
) -> dict:
    """The columns of PREDICTIONS on the passages: whether they have an answer, and the best one."""
    has_answer = None  # of a letter, which is no text
    if setup.protocol.answer != "letter":
        has_answer = _has_answer(setup, pool, position, passage_row["texts"], sent, seen)
    doc_id = passage_row["doc_ids"][0]
    title = passage_row["titles"][0]
    similarity = passage_row["similarities"][0]
    columns = {
        "doc_has_answer": has_answer,
        "doc_id": doc_id,
        "doc_title": title,
        "similarity": similarity,
    }
    page = pool.pages[position]
    if title is not None and page:
        subject = pool.subjects[position] or ""
        columns["doc_is_subject"] = title == page
        columns["doc_is_namesake"] = matching.namesake(title, subject, page)
    return columns


def _has_answer(
    setup: Setup,
    pool: prompts.Questions,
    position: int,
    passages: list[str],
    sent: list[Prompt],
    seen: list[Prompt],
) -> bool:
    """Whether some passage has an answer in what the LM saw of it."""
    for passage, prompt, seen_prompt in zip(passages, sent, seen, strict=True):
        question = pool.texts[position]
        left = prompts.passage_left(passage, question, prompt, seen_prompt, setup.language)
        if matching.word(left, pool.answers[position], setup.language):
            return True
    return False
