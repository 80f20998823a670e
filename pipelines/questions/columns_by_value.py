"""The column of predictions that holds a set's questions, known by its values.

Evaluations call the question `user_input`, `inputs.question`, `Frage`, or put it at the end of a prompt.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.questions.join_predictions import ENOUGH, Asked, may_be_numbers
from pipelines.sources.cell_values import (
    MARKS,
    as_text,
    clean_id,
    plain_text,
    text_key,
    written_list,
)
from pipelines.sources.prediction_files import EXPECTED, FIRST, Predictions, read_predictions
from pipelines.sources.prediction_layouts import FIELDS, KNOWN, flattened, layout_of
from pipelines.sources.record_files import LINES, TEXTS, plain, read_any_records

PROMPT = re.compile(
    "prompt|input|instruct|message|request|quer|question|conversation"
)  # in a column's name
ENDS = 2000  # characters at each end of a prompt in which its question is looked for
SAMPLE = 1000  # rows by which columns are chosen; the others are not in memory


def read_known_by_value(
    path: Path, asked: Asked, more: Collection[str] = (), pattern: str | None = None
) -> Predictions:
    """The predictions of a file (`read_predictions`), with the questions that a column of another name holds.

    Such a column is looked for only where those that are known by name do not say which questions the rows answer.
    Raises LongtailError also for two columns that hold different questions of the set.
    """
    predictions = read_predictions(path, more, pattern, len(asked.questions))
    if predictions.layout in (TEXTS, LINES) or _identified(predictions, asked):
        return predictions
    sample, said = _sample(path), predictions.names.get("prediction")
    if (
        said in sample and len(_leaves(sample[said][0])) < 2
    ):  # no messages, of which some may be the question
        del sample[said]
    name, find = _question_column(path, sample, asked)
    if not name:
        return predictions
    if name not in predictions.cells:
        predictions = read_predictions(path, {*more, name}, pattern, len(asked.questions))
    rows = list(map(_leaves, predictions.cells[name]))
    texts = [
        text or "\n".join(row) for text, row in zip(find(rows, asked, name), rows, strict=True)
    ]
    described = [
        *predictions.described,
        f"`{name}` {'is' if find is _exact else 'has'} the question, by its values",
    ]
    return replace(
        predictions,
        questions=texts,
        names=predictions.names | {"question": name},
        described=described,
    )


def _identified(predictions: Predictions, asked: Asked) -> bool:
    """Whether columns known by name hold the set's questions, or ids of it that no numbers of rows could be."""
    texts = [text for text in (predictions.questions or [])[:SAMPLE] if text]
    if _enough(sum(text_key(text) in asked.places for text in texts), len(texts)):
        return True
    sets = [{*map(clean_id, ids)} for ids in asked.ids.values() if not may_be_numbers(ids)]
    return any(
        2 * len(known.intersection(ids)) >= len(ids)
        for known in sets
        for ids in predictions.ids.values()
    )


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
    return {
        plain(name): [row[name] for row in rows]
        for name in rows[0]
        if all(name in row for row in rows)
    }


def _question_column(
    path: Path, sample: Mapping[str, list[Any]], asked: Asked
) -> tuple[str, Callable]:
    """The column with the most of the set's questions, and the function that finds these in it; "" for none."""
    leaves = {name: list(map(_leaves, cells)) for name, cells in sample.items()}
    for find in (_exact, _within):
        keys = {name: list(map(text_key, find(rows, asked, name))) for name, rows in leaves.items()}
        counts = {name: len({*texts} - {""}) for name, texts in keys.items()}
        holding = [name for name in keys if _enough(counts[name], sum(map(any, leaves[name])))]
        best = max(holding, key=counts.__getitem__, default="")
        for name in holding:
            if any(a and b and a != b for a, b in zip(keys[best], keys[name], strict=True)):
                raise LongtailError(
                    f"{path}: its columns {best} and {name} hold different questions of the set in one row; call "
                    "the one that was asked `question`"
                )
        if best:
            return best, find
    return "", _exact


def _exact(rows: Sequence[list[str]], asked: Asked, name: str) -> list[str]:
    """The question of the set that each row has as its last question; "" where another or none is the last."""
    lasts = (
        next((t for t in reversed(row) if t.endswith("?") or text_key(t) in asked.places), "")
        for row in rows
    )
    return [text if text_key(text) in asked.places else "" for text in lasts]


def _within(rows: Sequence[list[str]], asked: Asked, name: str) -> list[str]:
    """The question of the set that each row's prompt asks last, behind demonstrations maybe; "" for none.

    Only columns that are called as prompts are read: retrieved texts may hold questions too. So may any text hold a
    question of less than three words.
    """
    if not PROMPT.search(name):
        return [""] * len(rows)
    texts = ["\n".join(row) for row in rows]  # of long ones the middle has passages
    texts = [text[:ENDS] + text[max(ENDS, len(text) - ENDS) :] for text in texts]
    texts = ["\n".join(map(plain_text, text.splitlines())) for text in texts]
    (keys, names), last = asked.long_keys, {}
    for of_texts, of_keys in names.find(texts):
        for row, number in zip(of_texts.tolist(), of_keys.tolist(), strict=True):
            if row not in last or keys[number] not in last[row]:
                last[row] = keys[number]
    found = [""] * len(rows)
    for row, key in last.items():
        before, _, rest = texts[row].rpartition(key)
        after, mark = (
            rest.lstrip(MARKS),
            before.rpartition("\n")[2],
        )  # what its line begins with, as "question:"
        if not (re.match(r" ?\w", rest) or "?" in after or (mark and mark in after)):
            found[row] = asked.questions[asked.places[key][0]]
    return found


def _leaves(value: Any) -> list[str]:
    """The texts in a cell, which may be nested, also where it is written as JSON or as Python writes it."""
    if isinstance(value, str) and (written := written_list(value)) is not None:
        value = written
    if isinstance(value, dict | list | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return [text for part in parts for text in _leaves(part)]
    return list(filter(None, [as_text(value)]))
