"""Natural Questions and TriviaQA: questions with short answers and no options (REPLUG, section 6.3)."""

from __future__ import annotations

from pathlib import Path

from pipelines import params
from pipelines.evaluation.task_items import Item, Task, drawn
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects


def read(folder: Path, settings: params.Tasks, seed: int, rejects: Rejects) -> Task:
    """The questions of every file below `folder`; bad ones go to `rejects`.

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
