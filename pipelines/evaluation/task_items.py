"""What the benchmarks ask: their items, and the items' prompts with one document each.

Natural Questions and TriviaQA have short answers and no options (REPLUG, section 6.3). MMLU has four options, answered
by the largest next-token probability under the ensemble (section 6.2).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from pipelines import draws
from pipelines.answering.prompts import compose
from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.sources.delimited import table_rows
from pipelines.sources.question_files import read_questions, read_records, shown
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import visible_files

LETTERS = "ABCD"
LETTER = re.compile(
    rf"\b[{LETTERS}]\b"
)  # in a generated answer, as "B", "(B)" or "The answer is B."
COLUMNS = ("question", "subject", "choices", "answer")
ANSWER_TOKENS = 8  # of an answer in which a letter is looked for
CATEGORIES: dict[str, str] = {
    subject: category
    for category, subjects in yaml.safe_load(
        Path(__file__).with_name("mmlu.yaml").read_text(encoding="utf-8")
    ).items()
    for subject in subjects
}


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
    shots: dict[
        str, list[Item]
    ]  # subject ("" if a task has none) -> its demonstrations, in the order shown
    param: str  # that sets the number of demonstrations
    options: bool  # whether an answer is one of the letters A to D


def drawn(items: list[Item], seed: int, purpose: str, n: int) -> list[Item]:
    """At most `n` of the items, drawn by hash, ordered by id."""
    items = sorted(items, key=lambda item: item.id)
    return [
        items[i] for i in draws.sample(seed, f"tasks {purpose}", [item.id for item in items], n)
    ]


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
    return Task(
        name,
        drawn(asked, seed, name, settings.max_questions),
        {"": shown},
        "tasks.qa_shots",
        options=False,
    )


def _items(folder: Path, rejects: Rejects) -> list[Item]:
    return [
        Item(
            question.id, "", question.text, f"Question: {question.text}\nAnswer:", question.answers
        )
        for question in read_questions(folder, rejects)
    ]


def read_mmlu(folder: Path, settings: params.Tasks, seed: int, rejects: Rejects) -> Task:
    """The questions of the test split.

    A subject's demonstrations are the first items of its dev split. An item that its subject shows is not asked.
    """
    with_options = settings.mmlu_query == "question_and_options"
    asked = read_split(folder, "test", rejects, with_options)
    solved: dict[str, list[Item]] = {item.subject: [] for item in asked}
    for item in read_split(folder, "dev", rejects, with_options) if asked else []:
        solved.setdefault(item.subject, []).append(item)
    shots = {subject: items[: settings.mmlu_shots] for subject, items in solved.items()}
    known = {(item.subject, item.body) for shown in shots.values() for item in shown}
    rest = [item for item in asked if (item.subject, item.body) not in known]
    items = drawn(rest, seed, folder.name, settings.max_questions)
    return Task(folder.name, items, shots, "tasks.mmlu_shots", options=True)


def read_split(
    folder: Path, split: str, rejects: Rejects, with_options: bool = False
) -> list[Item]:
    """The questions below <folder>/<split>, in the benchmark's own layout or the Hub's; searched for `with_options`.

    The benchmark's own layout is <subject>_<split>.csv without a header, with the columns question, A, B, C, D and the
    right letter. The Hub's is Parquet or JSON with question, subject, choices (four) and answer (0 to 3, or the
    letter). A question's id has its place among its subject's questions, so it is the same in both layouts. Bad rows go
    to `rejects`. Raises LongtailError if both layouts are there, which would ask each question twice.
    """
    files = visible_files(folder / split)
    if len({file.suffix == ".csv" for file in files}) > 1:
        raise LongtailError(
            f"{folder / split}: has .csv and other files, expected one layout; leave the others out"
        )
    places: Counter[str] = Counter()
    items = []
    for file in files:
        rows = (
            _csv(file, split, rejects)
            if file.suffix == ".csv"
            else read_records(file, COLUMNS, rejects)
        )
        for number, record in rows:
            subject, question = (_text(record.get(name)) for name in ("subject", "question"))
            choices, answer = record.get("choices"), record.get("answer")
            options = [_text(choice) for choice in choices] if isinstance(choices, list) else []
            answer = (
                LETTERS[answer]
                if type(answer) is int and 0 <= answer < len(LETTERS)
                else str(answer).strip()
            )
            places[subject] += 1
            whole = (
                len(options) == len(LETTERS)
                and all((question, *options))
                and answer in tuple(LETTERS)
            )
            if subject not in CATEGORIES or not whole:
                rejects.add(
                    file,
                    number,
                    "no question of a subject of MMLU with 4 options and a letter",
                    shown(record),
                )
                continue
            lettered = "\n".join(
                f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=True)
            )
            body = f"Question: {question}\n{lettered}\nAnswer:"
            query = f"{question}\n{lettered}" if with_options else question
            items.append(
                Item(f"{subject}/{split}/{places[subject]}", subject, query, body, [answer])
            )
    return items


def _csv(path: Path, split: str, rejects: Rejects) -> Iterator[tuple[int, dict]]:
    """The rows of <subject>_<split>.csv as the Hub has them."""
    subject = path.stem.removesuffix(f"_{split}")
    for number, row, text in table_rows(path, ",", len(LETTERS) + 2):
        rejects.read += 1
        if row:
            question, *choices, answer = [*row, ""][: max(2, len(row))]
            yield (
                number,
                {"question": question, "subject": subject, "choices": choices, "answer": answer},
            )
        else:
            rejects.add(path, number, "unreadable_row", text)


def _text(cell: object) -> str:
    return cell.strip() if isinstance(cell, str) else ""


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
    return (
        f"Knowledge: {document}\n" if document else ""
    )  # "": fewer documents were found than asked for


def answer_by_letter(
    lm: LanguageModel, prompts: list[Prompt], log_weights: np.ndarray
) -> list[str]:
    """The letter with the largest log sum_d lambda_d p(letter | d, x) per question; "", which is wrong, if it has none.

    `prompts` are k in a row for each question; `log_weights` (questions, k) are log lambda. Where a server shows none
    of the letters and can't score them, the letter that it writes counts as certain: the documents vote.
    """
    log_probs = _letter_log_probs(lm, prompts).reshape(*log_weights.shape, len(LETTERS))
    mixed = ensemble.token_mixture(log_probs, log_weights)
    return [
        LETTERS[i] if shown else ""
        for i, shown in zip(mixed.argmax(1), np.isfinite(mixed).any(1), strict=True)
    ]


def shows_letters(lm: LanguageModel) -> bool:
    """Whether a language model shows the letters' probabilities, so that these are mixed and no letters vote."""
    return lm.scores or any(_token_id(lm, lm.begins + letter) is not None for letter in LETTERS)


def _letter_log_probs(lm: LanguageModel, prompts: list[Prompt]) -> np.ndarray:
    """log p of each letter as the answer to each prompt, (prompts, 4); -inf if it is not known."""
    log_probs = np.full((len(prompts), len(LETTERS)), -np.inf)
    ids = [_token_id(lm, lm.begins + letter) for letter in LETTERS]
    single = [i for i, id_ in enumerate(ids) if id_ is not None]
    if single:
        log_probs[:, single] = lm.next_token(prompts)[:, [ids[i] for i in single]]
    hidden = np.argwhere(np.isneginf(log_probs))
    if len(hidden) and (0 < len(single) < len(LETTERS) or lm.scores):
        scores = lm.score(
            [prompts[row] for row, _ in hidden], [lm.begins + LETTERS[i] for _, i in hidden]
        )
        log_probs[tuple(hidden.T)] = [of_tokens.sum() for of_tokens in scores.log_probs]
    elif len(unknown := np.flatnonzero(np.isneginf(log_probs).all(1))):
        answers = lm.generate([prompts[row] for row in unknown], ANSWER_TOKENS)
        for row, generation in zip(unknown, answers, strict=True):
            if letter := LETTER.search(generation.text):
                log_probs[row, LETTERS.index(letter[0])] = 0.0
    return log_probs


def _token_id(lm: LanguageModel, text: str) -> int | None:
    """The id of a text that is one token; None if it is several, as in a small vocabulary, or not shown by a server."""
    try:
        return lm.token_id(text)
    except LongtailError:
        return None
