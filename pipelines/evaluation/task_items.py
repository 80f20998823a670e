"""What the tasks share: items, and their prompts with one document each.

Also the reader of Natural Questions and TriviaQA: short answers and no options (REPLUG, section 6.3). MMLU has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines import draws
from pipelines.answering.prompts import compose
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.params import params
from pipelines.sources.question_files import read_questions
from pipelines.sources.rejects import Rejects


@dataclass(frozen=True)
class Item:
    id: str  # unique within its task
    subject: str  # "" if a task has none
    query: str  # what is searched for
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

    Demonstrations are drawn from the training files in <folder>/train. A question that is shown, in whatever case, is
    not asked. Raises LongtailError if demonstrations are wanted and there is no training file.
    """
    name, asked, shown = folder.name, _items(folder, rejects), []
    if settings.qa_shots and asked:
        if not (folder / "train").is_dir():
            raise LongtailError(
                f"params.yaml: tasks.qa_shots is {settings.qa_shots}, but {folder}/train has no file to take "
                f"demonstrations from; name the training file under fetch.files as {name}/train, or set 0"
            )
        shown = drawn(_items(folder / "train", rejects), seed, f"{name} shots", settings.qa_shots)
    known = {item.query.casefold() for item in shown}
    asked = [item for item in asked if item.query.casefold() not in known]
    return Task(name, drawn(asked, seed, name, settings.max_questions), {"": shown}, "tasks.qa_shots", options=False)


def _items(folder: Path, rejects: Rejects) -> list[Item]:
    return [
        Item(question.id, "", question.text, f"Question: {question.text}\nAnswer:", question.answers)
        for question in read_questions(folder, rejects)
    ]


def demonstration(item: Item, document: str | None) -> str:
    """A solved item as it is shown before the question, a blank line after it."""
    return f"{_knowledge(document)}{item.body} {item.answers[0]}\n\n"


def prompts(
    items: Sequence[Item], shots: Sequence[Sequence[str]], documents: Sequence[Sequence[str | None]]
) -> list[Prompt]:
    """One prompt for each document of each item, an item's k prompts in a row; None stands for no document."""
    return [
        compose("".join(shots_of_item), _knowledge(document), item.body)
        for item, shots_of_item, documents_of_item in zip(items, shots, documents, strict=True)
        for document in documents_of_item
    ]


def _knowledge(document: str | None) -> str:
    return f"Knowledge: {document}\n" if document else ""  # "": fewer documents were found than asked for
