"""Question prompts, their demonstrations drawn by a hash of (seed, question id) (PopQA, section 4, appendix B)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines import draws
from pipelines.lm.protocol import Prompt


@dataclass(frozen=True)
class Questions:
    """The columns of a question set that prompts are made of, in the order of question_id."""

    ids: list[str]
    relations: np.ndarray  # (n,) str
    texts: list[str]
    answers: list[list[str]]


def demonstrations(
    seed: int, dataset: str, questions: Questions, asked: Sequence[int], n_shots: int
) -> list[list[int]]:
    """Positions of each asked question's demonstrations among `questions`, in the order they are shown.

    PopQA: one question of each other relation, at most `n_shots` of them; EntityQuestions: any `n_shots` others. Drawn
    by a hash of (seed, question id), so that neither resuming nor sharding changes a prompt. A question with the same
    text (the published set repeats some) is never its own demonstration.
    """
    if n_shots == 0:
        return [[] for _ in asked]
    rows = {relation: np.flatnonzero(questions.relations == relation) for relation in np.unique(questions.relations)}
    everything = np.arange(len(questions.ids))
    return [
        _one_per_relation(seed, questions, position, rows, n_shots)
        if dataset == "popqa"
        else _any(seed, questions, position, everything, n_shots)
        for position in asked
    ]


def _one_per_relation(
    seed: int, questions: Questions, position: int, rows: dict[str, np.ndarray], n_shots: int
) -> list[int]:
    id_ = questions.ids[position]
    others = [relation for relation in rows if relation != questions.relations[position]]
    others.sort(key=lambda relation: (draws.uniform(seed, "shot order", f"{id_}|{relation}"), relation))
    return [
        int(rows[relation][int(draws.uniform(seed, "shot", f"{id_}|{relation}") * len(rows[relation]))])
        for relation in others[:n_shots]
    ]


def _any(seed: int, questions: Questions, position: int, pool: np.ndarray, n_shots: int) -> list[int]:
    id_, text = questions.ids[position], questions.texts[position]
    chosen: list[int] = []
    for draw in range(20 * n_shots):  # small sets: repeated draws may run into what is already chosen
        pick = int(pool[int(draws.uniform(seed, "shot", f"{id_}|{draw}") * len(pool))])
        if pick not in chosen and questions.texts[pick] != text:
            chosen.append(pick)
        if len(chosen) == n_shots:
            break
    return chosen


def question_prompt(question: str, passage: str | None, shots: Sequence[tuple[str, str, str | None]]) -> Prompt:
    """`Q: <question> A:`, after the passage and a blank line where there is one, after the demonstrations.

    `shots` are (question, answer, passage or None), each shown the same way and followed by a blank line.
    """
    shown = [f"{_passage(p)}Q: {q} A: {a}\n\n" for q, a, p in shots]
    return compose(shown, _passage(passage), f"Q: {question} A:")


def compose(shots: Sequence[str], document: str, question: str) -> Prompt:
    """Demonstrations, document and question as one prompt.

    Without demonstrations the document is the prompt's document, which is never cut at its beginning. With them it
    stands next to its question, so it is part of the context, whose far end (the demonstrations) goes first where room
    is short.
    """
    if shots:
        return Prompt(context="".join(shots) + document + question)
    return Prompt(context=question, document=document)


def prompt_hash(prompt: Prompt) -> str:
    """16 hex digits that tell two prompts apart."""
    return hashlib.blake2b(f"{prompt.document}\x1f{prompt.context}".encode(), digest_size=8).hexdigest()


def _passage(text: str | None) -> str:
    return "" if text is None else f"{text}\n\n"
