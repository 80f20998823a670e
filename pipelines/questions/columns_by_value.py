"""Columns of predictions that are known by their values: a set's questions, ids or gold answers, whatever their names.

Evaluations call the question `user_input`, `inputs.question`, `Frage`, or put it at the end of a prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.questions.join_predictions import ENOUGH, Asked, as_set, may_be_numbers, plain_text, text_key
from pipelines.sources.answer_lists import written_list
from pipelines.sources.cell_values import as_text, clean_id
from pipelines.sources.mentions import Names
from pipelines.sources.prediction_files import EXPECTED, FIRST, Predictions, read_predictions
from pipelines.sources.prediction_layouts import FIELDS, KNOWN, flattened, layout_of
from pipelines.sources.record_files import LINES, TEXTS, plain, read_any_records

ALIKE = 0.9  # share of a column's prompts that have the same text after their question, or before it
PROMPT = re.compile("prompt|input|instruct|message|request|quer|question|conversation")  # in a column's name
ENDS = 2000  # characters at each end of a prompt in which its question is looked for
SAMPLE = 1000  # rows by which columns are chosen; the others are not in memory
Cells = Mapping[str, Sequence[Any]]  # column -> its cells


def read_known_by_value(
    path: Path, asked: Asked, more: Collection[str] = (), pattern: str | None = None
) -> Predictions:
    """The predictions of a file (`read_predictions`), with the questions, ids and answers that other columns hold.

    Columns that nobody knows by name are looked at only where those that are known by name do not say which questions
    the rows answer. Raises LongtailError also for two columns that hold different questions of the set.
    """
    predictions = read_predictions(path, more, pattern, len(asked.questions))
    if predictions.layout in (TEXTS, LINES) or _identified(predictions, asked):
        return predictions
    sample, said = _sample(path), predictions.names.get("prediction")
    if said in sample and len(_leaves(sample[said][0])) < 2:  # no messages, of which some may be the question
        del sample[said]
    question, in_text = _question_column(path, sample, asked)
    sample.pop(said, None)
    ids = {name for name, cells in sample.items() if name not in KNOWN and _has_ids(cells, asked)}
    right = frozenset().union(*asked.answer_sets)
    golds = [name for name in sample if name not in {question, *ids} and _are_golds(sample[name], right)]
    chosen = {*filter(None, [question]), *ids, *golds} - predictions.cells.keys()
    if chosen:
        predictions = read_predictions(path, {*more, *chosen}, pattern, len(asked.questions))
    names, notes, cells = dict(predictions.names), [], predictions.cells
    if question:
        names["question"] = question
        found = (in_text or _exact)(list(map(_leaves, cells[question])), asked, question)
        texts = [text or "\n".join(leaves) for text, leaves in zip(found, map(_leaves, cells[question]), strict=True)]
        notes.append(f"`{question}` {'has' if in_text else 'is'} the question, by its values")
        predictions = replace(predictions, questions=texts)
    if ids:
        notes.append(f"`{', '.join(sorted(ids))}` is the id, by its values")
        predictions = replace(predictions, ids={name: list(map(clean_id, cells[name])) for name in sorted(ids)})
    if not any(predictions.answers or ()) and (gold := _gold_column(predictions, golds, asked)):
        names["answers"] = gold
        notes.append(f"`{gold}` has gold answers, by its values")
        predictions = replace(predictions, answers=list(map(_leaves, cells[gold])))
    return replace(predictions, names=names, described=[*predictions.described, *notes])


def _identified(predictions: Predictions, asked: Asked) -> bool:
    """Whether columns known by name hold the set's questions, or ids of it that no numbers of rows could be."""
    texts = (predictions.questions or [])[:SAMPLE]
    if _enough(sum(text_key(text) in asked.places for text in texts), sum(map(bool, texts))):
        return True
    return any(_has_ids(ids, asked) for ids in predictions.ids.values())


def _enough(hits: int, filled: int) -> bool:
    return hits > 0 and (2 * hits >= filled or hits >= ENOUGH)


def _sample(path: Path) -> dict[str, list[Any]]:
    """The first rows of all columns that each of these rows has."""
    known = {*KNOWN, *FIELDS}
    kind, names, records = read_any_records(path, known, EXPECTED)
    if kind == "Parquet":  # of which only the columns that are asked for are read
        once = {name for name, count in Counter(map(plain, names)).items() if count == 1}
        records = read_any_records(path, {*known, *once}, EXPECTED)[2]
    rows = [row for _, row in islice(records, SAMPLE)]
    layout = layout_of(rows[:FIRST])
    rows = [flattened(row, layout) for row in rows]
    return {plain(name): [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}


def _question_column(path: Path, sample: Cells, asked: Asked) -> tuple[str, Callable | None]:
    """The column with the most of the set's questions, and how to find these if they are parts of longer texts."""
    leaves = {name: list(map(_leaves, cells)) for name, cells in sample.items()}
    for find in (_exact, _InTexts(asked.questions)):
        found = {name: find(cells, asked, name) for name, cells in leaves.items()}
        counts = {name: len(set(map(text_key, texts)) - {""}) for name, texts in found.items()}
        holding = [name for name in found if _enough(counts[name], sum(map(any, leaves[name])))]
        if holding:
            best = max(holding, key=lambda name: counts[name])
            for name in holding:
                if any(a and b and text_key(a) != text_key(b) for a, b in zip(found[best], found[name], strict=True)):
                    raise LongtailError(
                        f"{path}: its columns {best} and {name} hold different questions of the set in one row; call "
                        "the one that was asked `question`"
                    )
            return best, None if find is _exact else find
    return "", None


def _exact(rows: Sequence[list[str]], asked: Asked, name: str) -> list[str]:
    """The question of the set that each row has as its last question; "" where another or none is the last."""
    found = []
    for texts in rows:
        last = next((text for text in reversed(texts) if text.endswith("?") or text_key(text) in asked.places), "")
        found.append(last if text_key(last) in asked.places else "")
    return found


class _InTexts:
    """Finds the question of a set that longer texts ask last, such as prompts with demonstrations.

    The text after the question is the same in nearly all rows, or the text before it in a column that is called as
    prompts are: retrieved texts may hold questions too. Questions of less than three words are not looked for, as texts
    may hold them by chance.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        self.questions = [text for text in dict.fromkeys(questions) if len(text.split()) >= 3]
        self.keys = [plain_text(text) for text in self.questions]
        self.names: Names | None = None  # as soon as a text is to be searched

    def __call__(self, rows: Sequence[list[str]], asked: Asked, name: str) -> list[str]:
        """The last question in each row, "" where it has none; one after which another follows does not count."""
        self.names = self.names or Names(self.keys)
        texts = ["\n".join(leaves) for leaves in rows]  # of long ones the middle has passages
        texts = [f"{text[:ENDS]}\n{text[-ENDS:]}" if len(text) > 2 * ENDS else text for text in texts]
        texts = ["\n".join(map(plain_text, text.splitlines())) for text in texts]
        last: dict[int, int] = {}
        for of_texts, of_names in self.names.find(texts):
            for row, number in zip(of_texts.tolist(), of_names.tolist(), strict=True):
                if row not in last or self.keys[number] not in self.keys[last[row]]:
                    last[row] = number
        found, around = [""] * len(texts), []
        for row, number in last.items():
            before, _, after = texts[row].rpartition(self.keys[number])
            mark = before.rpartition("\n")[2]  # what stands before it in its line, as "question:"
            goes_on = re.match(r" ?\w", after) and not self.keys[number].endswith("?")
            if not (goes_on or "?" in after or (mark and mark in after)):
                found[row] = self.questions[number]
                around.append((before, after))
        sides = [Counter(side).most_common(1)[0][1] for side in zip(*around, strict=True)]
        alike = max(sides if PROMPT.search(name) else sides[1:], default=0)
        return found if ALIKE * len(around) <= alike else [""] * len(texts)


def _has_ids(cells: Iterable[Any], asked: Asked) -> bool:
    """Whether half the cells are ids of the set, each another one; no other number may be such an id by chance."""
    cells = list(map(clean_id, cells))
    for ids in asked.ids.values():
        if not may_be_numbers(ids) and 2 * len({*map(clean_id, ids)}.intersection(cells)) >= len(cells):
            return True
    return False


def _are_golds(cells: Sequence[Any], right: Collection[str]) -> bool:
    """Whether all that stands in a column is some question's right answer."""
    filled = [gold for gold in map(as_set, map(_leaves, cells)) if gold]
    return len(filled) >= ENOUGH and not any(map(frozenset(right).isdisjoint, filled))


def _gold_column(predictions: Predictions, names: Sequence[str], asked: Asked) -> str:
    """The column whose answers all fit the question of their row, or of their position.

    Without questions, a column that has the set's answers in another order counts too: it says that the order is not
    the set's. Any other column of right answers may be another model's.
    """
    texts = predictions.questions
    if texts is None and predictions.rows != len(asked.questions):
        return ""
    places = [[row] for row in range(predictions.rows)]
    if texts is not None:
        places = [asked.places.get(text_key(text), []) for text in texts]
    owners = {answer: number for number, answers in enumerate(asked.answer_sets) for answer in answers}
    all_owners = Counter(owners[min(answers)] for answers in asked.answer_sets if answers)
    for name in names:
        golds = list(map(as_set, map(_leaves, predictions.cells[name])))
        pairs = [(gold, of_row) for gold, of_row in zip(golds, places, strict=True) if gold and of_row]
        fits = all(any(gold & asked.answer_sets[place] for place in of_row) for gold, of_row in pairs)
        reordered = texts is None and Counter(owners.get(min(gold)) for gold in golds if gold) == all_owners
        if fits or reordered:
            return name
    return ""


def _leaves(value: Any) -> list[str]:
    """The texts in a cell, which may be nested, also where it is written as JSON or as Python writes it."""
    return list(filter(None, _walk(value)))


def _walk(value: Any) -> Iterator[str]:
    if isinstance(value, str) and (written := written_list(value)) is not None:
        value = written
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _walk(part)
    else:
        yield as_text(value)
