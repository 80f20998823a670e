"""Files of predictions held against a question set from anywhere, without a project: which answer is right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.questions import join_predictions
from pipelines.questions.question_tables import Questions
from pipelines.sources import prediction_files
from pipelines.sources.prediction_files import Predictions

NO_ANSWER = -1
ENDING = re.compile(r"(\.(csv|tsv|txt|json|jsonl|ndjson|parquet))?(\.(gz|bz2|zst|xz))?$", re.IGNORECASE)


@dataclass(frozen=True)
class Answered:
    """A file's answers to the questions of a set."""

    name: str  # of the method
    correct: np.ndarray  # (questions,) int8: 1 right, 0 wrong, NO_ANSWER where the file has none
    texts: list[str] | None  # (questions,) what was said; None if the file only judges
    lines: list[str]  # what was read, and how it was joined and judged

    @property
    def has(self) -> np.ndarray:
        """Which questions the file answers, (questions,) bool."""
        return self.correct != NO_ANSWER


def short_name(path: Path) -> str:
    """A file's name without the ending that says its format: `gpt-4.1-mini` for gpt-4.1-mini.csv.gz."""
    return ENDING.sub("", path.name, count=1) or path.name


def named_files(places: Sequence[str], folder: Path) -> dict[str, Path]:
    """Name of a method -> its file, of words as NAME=FILE or FILE; paths are relative to `folder`.

    Without a name it is the file's `short_name`, with its folder where files of several folders are called
    alike. Raises LongtailError for a name that two files have, and a file that is not there.
    """
    split = [_split(place, folder) for place in places]
    stems = Counter(short_name(path) for name, path in split if not name)
    named: dict[str, Path] = {}
    if twice := next((path for path, count in Counter(p.resolve() for _, p in split).items() if count > 1), None):
        raise LongtailError(f"{twice}: given twice, expected a file for each system; leave one out")
    for name, path in split:
        stem = short_name(path)
        name = name or (f"{path.parent.name}/{stem}" if stems[stem] > 1 else stem)
        if name in named:
            raise LongtailError(
                f"{path}: a second file called {name!r}, expected names that differ; give it as NAME=FILE"
            )
        if not path.is_file():
            raise LongtailError(f"{path}: no such file, expected predictions: a table, JSON, JSON lines or Parquet")
        named[name] = path
    return named


def read(
    files: dict[str, Path], questions: Questions, pattern: str | None = None, *, texts: bool = False
) -> list[Answered]:
    """The answers of each file, judged as in the paper (`join_predictions.judged`).

    A file's own judgement counts only where it has no predictions, or the set no answers. `pattern` cuts the answers
    out of longer texts, in the files in which it finds any. With `texts` they are kept. Raises LongtailError as
    `prediction_files.read` and `join` do, for a file of which no row answers a question, and for a pattern that no file
    has.
    """
    answered, cut = [], False
    for name, path in files.items():
        predictions = prediction_files.read(path, pattern=pattern)
        cut |= predictions.uncut is not None
        answered.append(_judged(name, predictions, questions, texts))
    if pattern and not cut:
        raise LongtailError(f"--answer-pattern {pattern}: no prediction has it, expected some; leave it out or mend it")
    return answered


def in_all(answered: Sequence[Answered]) -> np.ndarray:
    """Which questions all files answer, (questions,) bool. Raises LongtailError if there is none."""
    rows = np.logical_and.reduce([one.has for one in answered])
    if not rows.any():
        counts = ", ".join(f"{one.name} {int(one.has.sum()):,}" for one in answered)
        raise LongtailError(f"no question is answered by all files ({counts} answers), expected some; leave a file out")
    return rows


def _split(place: str, folder: Path) -> tuple[str, Path]:
    name, equals, path = place.partition("=")
    whole = folder / place
    return ("", whole) if whole.exists() or not equals else (name.strip(), folder / path)


def _judged(name: str, predictions: Predictions, questions: Questions, keep_texts: bool) -> Answered:
    match = join_predictions.join(predictions, questions.asked)
    if not match.rows:
        said = "; ".join(match.described(predictions))
        theirs = match.by.partition(" = ")[2]
        such = ", ".join(map(str, questions.asked.ids[theirs][:3])) if theirs else questions.asked.questions[0]
        raise LongtailError(
            f"{predictions.path}: no row answers a question of {questions.name} ({said}), expected its "
            f"{theirs or 'questions'}, such as {such}"
        )
    lines = [*predictions.described(), *match.described(predictions)]
    judges = predictions.correct is not None
    if predictions.texts is not None and ("answers" in questions.columns or not judges):
        if "answers" not in questions.columns:
            raise LongtailError(
                f"{predictions.path}: predictions, but {questions.name} has no answers to judge them and the file no "
                "column correct; name the answers' column with --columns answers=NAME"
            )
        right = join_predictions.judged(predictions, questions.asked, match)
        differ = sum(predictions.correct[row] != ok for row, ok in zip(match.rows, right, strict=True)) if judges else 0
        if differ:
            lines.append(f"{differ:,} answers are judged differently than in the file: predictions are judged here")
    else:
        right = [predictions.correct[row] for row in match.rows]
    correct = np.full(len(questions.ids), NO_ANSWER, np.int8)
    correct[match.questions] = right
    lines.append(f"{len(right):,} answers, {100 * sum(right) / len(right):.1f} % right")
    texts: list[str] | None = None
    if keep_texts and predictions.texts is not None:
        texts = [""] * len(questions.ids)
        for row, place in zip(match.rows, match.questions, strict=True):
            texts[place] = predictions.texts[row]
    return Answered(name, correct, texts, lines)
