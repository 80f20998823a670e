"""What the tasks share: an item, its prompts with one document each, and the room that demonstrations may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.answering.prompts import compose
from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.replug import ensemble


@dataclass(frozen=True)
class Item:
    id: str  # unique within its task
    subject: str  # "" where a task has none
    query: str  # what is searched for: the bare question
    body: str  # what the model sees after the knowledge: question, options, "Answer:"
    answers: list[str]


@dataclass(frozen=True)
class Found:
    """The documents of some queries: texts (queries, k) str, similarities (queries, k) float32."""

    texts: np.ndarray
    similarities: np.ndarray


Search = Callable[[Sequence[str]], Found]


def demonstration(item: Item, document: str | None) -> str:
    """A solved item as it is shown before the question, a blank line after it."""
    return f"{_knowledge(document)}{item.body} {item.answers[0]}\n\n"


def prompts(items: Sequence[Item], shots: Sequence[Sequence[str]], found: Found | None) -> list[Prompt]:
    """A prompt for each item and each of its k documents, k in a row; one an item without documents."""
    documents = found.texts if found else np.full((len(items), 1), None)
    return [
        compose(shown, _knowledge(document), item.body)
        for item, shown, own in zip(items, shots, documents, strict=True)
        for document in own
    ]


def log_weights(items: Sequence[Item], found: Found | None, temperature: float) -> np.ndarray:
    """log lambda = log softmax over each item's documents of similarity/temperature, (items, k); zeros closed-book."""
    if found is None:
        return np.zeros((len(items), 1))
    return ensemble.log_weights(found.similarities, temperature)


def check_room(
    shots: dict[str, list[str]], param: str, n_shots: int, lm: LanguageModel, count: Callable[[str], int]
) -> None:
    """Raise LongtailError naming `param` where some subject's demonstrations take more than half of what the model
    reads.

    The model would else lose their beginning, or the options, without a word.
    """
    room = lm.max_tokens // 2
    taken = {subject: np.cumsum([count(text) for text in texts]) for subject, texts in shots.items() if texts}
    worst = max(taken, key=lambda subject: taken[subject][-1], default=None)
    if worst is not None and taken[worst][-1] > room:
        fits = min(int((sums <= room).sum()) for sums in taken.values())
        raise LongtailError(
            f"params.yaml: {param} is {n_shots}, but these demonstrations{f' of {worst}' if worst else ''} take "
            f"{taken[worst][-1]} tokens, expected at most half of the {lm.max_tokens} that {lm.name} reads at once; "
            f"set it to {fits} or take a model with a longer context"
        )


def _knowledge(document: str | None) -> str:
    return "" if document is None else f"Knowledge: {document}\n"
