"""What the benchmarks ask: their items, and the items' prompts with one document each.

Natural Questions and TriviaQA have short answers and no options (REPLUG, section 6.3). MMLU has
four options (section 6.2).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pipelines import draws
from pipelines.answering.prompts import compose
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.params.params import Tasks
from pipelines.questions import matching
from pipelines.sources.delimited import table_rows
from pipelines.sources.question_files import read_questions, read_records, shown
from pipelines.sources.rejects import Rejects
from pipelines.sources.repeats import Repeats
from pipelines.sources.streams import is_readable, visible_files

LETTERS = "ABCD"
COLUMNS = ("question", "subject", "choices", "answer")
# categories of open questions
IN_TRAINING = "in training set"
NEW = "not in training set"


def _read_categories() -> dict[str, str]:
    """Subject of MMLU -> its category."""
    text = Path(__file__).with_name("mmlu.yaml").read_text(encoding="utf-8")
    categories = {}
    for category, subjects in yaml.safe_load(text).items():
        categories |= dict.fromkeys(subjects, category)
    return categories


CATEGORIES = _read_categories()


@dataclass(frozen=True)
class Item:
    """A benchmark's question."""

    id: str  # unique within its task
    subject: str  # "" if a task has none
    query: str  # what is searched for
    body: str  # what the model sees after the knowledge: question, options, "Answer:"
    answers: list[str]
    category: str | None = None  # MMLU's, IN_TRAINING or NEW; None without training files


@dataclass(frozen=True)
class Task:
    """A benchmark."""

    name: str
    items: list[Item]  # asked, ordered by id
    # subject ("" if a task has none) -> its demonstrations, in the order in which they are shown
    shots: dict[str, list[Item]]
    param: str  # that sets the number of demonstrations
    options: bool  # whether an answer is one of the letters A to D


def read_open_qa(folder: Path, settings: Tasks, seed: int, rejects: Rejects) -> Task:
    """Natural Questions' or TriviaQA's questions, of every file below `folder`; bad ones go to
    `rejects`.

    Demonstrations are drawn from the training files in <folder>/train. A question that is shown, in
    whatever case, is not asked. A question's category says whether it occurs in these files. Raises
    LongtailError if demonstrations are wanted and there is no training file.
    """
    name = folder.name
    items = _items(folder, rejects)
    if settings.qa_shots and items and not (folder / "train").is_dir():
        raise LongtailError(
            f"params.yaml: tasks.qa_shots is {settings.qa_shots}, but {folder}/train has no file "
            f"to take demonstrations from; name the training file under fetch.files as "
            f"{name}/train, or set 0"
        )
    training_items = _items(folder / "train", rejects) if items else []
    shots = drawn(training_items, seed, f"{name} shots", settings.qa_shots)

    queries_shown = {item.query.casefold() for item in shots}
    unseen = [item for item in items if item.query.casefold() not in queries_shown]
    asked = drawn(unseen, seed, name, settings.max_questions)
    return Task(
        name=name,
        items=_categorised(asked, training_items),
        shots={"": shots},
        param="tasks.qa_shots",
        options=False,
    )


def _items(folder: Path, rejects: Rejects) -> list[Item]:
    items = []
    for question in read_questions(folder, rejects):
        item = Item(
            id=question.id,
            subject="",
            query=question.text,
            body=f"Question: {question.text}\nAnswer:",
            answers=question.answers,
        )
        items.append(item)
    return items


def _categorised(items: list[Item], training_items: list[Item]) -> list[Item]:
    """The items with their category: IN_TRAINING or NEW.

    A question occurs among the training questions if one of them has the same normal form: case,
    punctuation, articles and white space don't count. Without training questions the items have no
    category.
    """
    if not training_items:
        return items
    training_forms = {matching.normalise(item.query) for item in training_items}
    categorised = []
    for item in items:
        occurs = matching.normalise(item.query) in training_forms
        category = IN_TRAINING if occurs else NEW
        categorised.append(replace(item, category=category))
    return categorised


def drawn(items: list[Item], seed: int, purpose: str, n: int) -> list[Item]:
    """At most `n` of the items, drawn by hash, ordered by id."""
    items = sorted(items, key=lambda item: item.id)
    ids = [item.id for item in items]
    positions = draws.sample(seed, f"tasks {purpose}", ids, n)
    return [items[position] for position in positions]


def read_mmlu(folder: Path, settings: Tasks, seed: int, rejects: Rejects) -> Task:
    """The questions of the test split.

    A subject's demonstrations are the first items of its dev split. An item that its subject shows
    is not asked.
    """
    with_options = settings.mmlu_query == "question_and_options"
    test = read_split(folder, "test", rejects, with_options)
    dev = read_split(folder, "dev", rejects, with_options) if test else []
    shots: dict[str, list[Item]] = {}
    for item in test:
        shots[item.subject] = []
    for item in dev:
        shots_of_subject = shots.setdefault(item.subject, [])
        if len(shots_of_subject) < settings.mmlu_shots:
            shots_of_subject.append(item)

    bodies_shown = set()  # with their subjects
    for subject, items in shots.items():
        bodies_shown |= {(subject, shot.body) for shot in items}
    unseen = [item for item in test if (item.subject, item.body) not in bodies_shown]
    return Task(
        name=folder.name,
        items=drawn(unseen, seed, folder.name, settings.max_questions),
        shots=shots,
        param="tasks.mmlu_shots",
        options=True,
    )


def read_split(
    folder: Path, split: str, rejects: Rejects, with_options: bool = False
) -> list[Item]:
    """The questions below <folder>/<split>, in the benchmark's own layout or the Hub's; searched
    for `with_options`.

    The benchmark's own layout is <subject>_<split>.csv without a header, with the columns question,
    A, B, C, D and the right letter. The Hub's is Parquet or JSON with question, subject, choices
    (four) and answer (0 to 3, or the letter); a file named after its subject, or in a folder of its
    name, needs no `subject`. A question's id has its place among its subject's questions, so it is
    the same in both layouts. A question that a subject's file and another have, such as the Hub's
    `all`, counts once; a line says so. Bad rows go to `rejects`. Raises LongtailError if both
    layouts are there.
    """
    files = visible_files(folder / split)
    files.sort(key=lambda file: not _subject_of_file(file, split))
    if len({file.suffix == ".csv" for file in files}) > 1:
        raise LongtailError(
            f"{folder / split}: has .csv and other files, expected one layout; leave the others out"
        )

    places: Counter[str] = Counter()  # subject -> its questions so far
    repeats = Repeats(rejects)
    items = []
    for file in files:
        for number, record in _records(file, split, rejects):
            subject = _text(record.get("subject")) or _subject_of_file(file, split)
            question_id = f"{subject}/{split}/{places[subject] + 1}"
            item = _item_of_record(question_id, subject, record, with_options)
            if item and repeats.has(file, (subject, item.body, item.answers[0])):
                continue
            places[subject] += 1
            if item:
                items.append(item)
            else:
                reason = "no question of a subject of MMLU with 4 options and a letter"
                rejects.add(file, number, reason, shown(record))

    repeats.say(folder.name)
    return items


def _subject_of_file(file: Path, split: str) -> str:
    """The subject of MMLU that a file or its folder is named after; "" if there is none."""
    for name in (file.stem.removesuffix(f"_{split}"), file.parent.name):
        if name in CATEGORIES:
            return name
    return ""


def _records(file: Path, split: str, rejects: Rejects) -> Iterator[tuple[int, dict]]:
    """The line or row number and the record of each question of a file, in either layout."""
    if file.suffix == ".csv":
        return _csv(file, split, rejects)
    return read_records(file, COLUMNS, rejects)


def _csv(path: Path, split: str, rejects: Rejects) -> Iterator[tuple[int, dict]]:
    """The rows of <subject>_<split>.csv as the Hub has them."""
    subject = path.stem.removesuffix(f"_{split}")
    for number, row, text in table_rows(path, ",", len(LETTERS) + 2):
        rejects.read += 1
        if not row or not is_readable(row):
            rejects.add(path, number, "unreadable_row", text)
            continue
        question, *rest = row
        *choices, answer = rest or [""]
        record = {"question": question, "subject": subject, "choices": choices, "answer": answer}
        yield number, record


def _item_of_record(
    question_id: str, subject: str, record: Mapping[str, Any], with_options: bool
) -> Item | None:
    """The question of a record as the Hub has it; None if a part of it is missing or wrong."""
    question = _text(record.get("question"))
    choices = record.get("choices")
    options = [_text(choice) for choice in choices] if isinstance(choices, list) else []
    answer = _letter(record.get("answer"))
    has_options = len(options) == len(LETTERS) and all(options)
    if not question or not has_options or not answer or subject not in CATEGORIES:
        return None

    lines = []
    for letter, option in zip(LETTERS, options, strict=True):
        lines.append(f"{letter}. {option}")
    lettered = "\n".join(lines)
    query = f"{question}\n{lettered}" if with_options else question
    body = f"Question: {question}\n{lettered}\nAnswer:"
    return Item(
        id=question_id,
        subject=subject,
        query=query,
        body=body,
        answers=[answer],
        category=CATEGORIES[subject],
    )


def _letter(answer: object) -> str:
    """The letter of an answer, which is a number from 0 or the letter; "" if it is neither."""
    if type(answer) is int and 0 <= answer < len(LETTERS):
        return LETTERS[answer]
    letter = str(answer).strip()
    return letter if letter in tuple(LETTERS) else ""


def _text(cell: object) -> str:
    return cell.strip() if isinstance(cell, str) else ""


def demonstration(item: Item, document: str | None) -> str:
    """A solved item as it is shown before the question, a blank line after it."""
    return f"{_knowledge(document)}{item.body} {item.answers[0]}\n\n"


def prompts(
    items: Sequence[Item], shots: Sequence[Sequence[str]], documents: Sequence[Sequence[str | None]]
) -> list[Prompt]:
    """One prompt for each document of each item, an item's k prompts in a row; None stands for no
    document."""
    prompts = []
    for item, item_shots, item_documents in zip(items, shots, documents, strict=True):
        demonstrations = "".join(item_shots)
        for document in item_documents:
            prompts.append(compose(demonstrations, _knowledge(document), item.body))
    return prompts


def _knowledge(document: str | None) -> str:
    # "": fewer documents were retrieved than asked for
    return f"Knowledge: {document}\n" if document else ""
