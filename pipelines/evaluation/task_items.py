"""What the tasks share: items, their prompts with one document each, and the room that demonstrations may take.

Also the reader of Natural Questions and TriviaQA: short answers and no options (REPLUG, section 6.3). MMLU has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import draws, params
from pipelines.answering.prompts import compose
from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects


@dataclass(frozen=True)
class Item:
    id: str  # unique within its task
    subject: str  # "" if a task has none
    query: str  # what is searched for: the bare question
    body: str  # what the model sees after the knowledge: question, options, "Answer:"
    answers: list[str]


@dataclass(frozen=True)
class Task:
    name: str
    items: list[Item]  # asked, ordered by id
    shots: dict[str, list[Item]]  # subject ("" if a task has none) -> its demonstrations, in the order shown
    param: str  # that sets the number of demonstrations
    options: bool  # whether an answer is one of the letters A to D


def drawn(items: list[Item], seed: int, purpose: str, n: int) -> list[Item]:
    """At most `n` of the items, drawn by hash, ordered by id."""
    items = sorted(items, key=lambda item: item.id)
    return [items[i] for i in draws.sample(seed, f"tasks {purpose}", [item.id for item in items], n)]


def read_open_qa(folder: Path, settings: params.Tasks, seed: int, rejects: Rejects) -> Task:
    """Natural Questions' or TriviaQA's questions, of every file below `folder`; bad ones go to `rejects`.

    Demonstrations are drawn from the questions. A question that is shown, in whatever case, is not asked.
    """
    items = [
        Item(question.id, "", question.text, f"Question: {question.text}\nAnswer:", question.answers)
        for question in read_questions(folder, rejects)
    ]
    name = folder.name
    shown = drawn(items, seed, f"{name} shots", min(settings.qa_shots, max(0, len(items) - 1)))
    known = {item.query.casefold() for item in shown}
    rest = [item for item in items if item.query.casefold() not in known]
    return Task(name, drawn(rest, seed, name, settings.max_questions), {"": shown}, "tasks.qa_shots", options=False)


def demonstration(item: Item, document: str | None) -> str:
    """A solved item as it is shown before the question, a blank line after it."""
    return f"{_knowledge(document)}{item.body} {item.answers[0]}\n\n"


def prompts(
    items: Sequence[Item], shots: Sequence[Sequence[str]], documents: Sequence[Sequence[str | None]]
) -> list[Prompt]:
    """One prompt for each document of each item, an item's k prompts in a row; None stands for no document."""
    return [
        compose(shots_of_item, _knowledge(document), item.body)
        for item, shots_of_item, documents_of_item in zip(items, shots, documents, strict=True)
        for document in documents_of_item
    ]


def check_room(
    shots: dict[str, list[str]], param: str, n_shots: int, lm: LanguageModel, count: Callable[[str], int]
) -> None:
    """Raise LongtailError naming `param` if a subject's demonstrations take more than half of what the model reads.

    Too long a prompt would lose its first demonstrations, or the options, without a word.
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
