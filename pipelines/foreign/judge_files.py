"""Judge files of predictions by a question set, both from anywhere, without a project."""

import operator
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.foreign.join_predictions import (
    Match,
    check_joined,
    join_predictions,
    judge_predictions,
)
from pipelines.foreign.layouts import DOUBT, RETRIEVED
from pipelines.foreign.prediction_files import Predictions, read_predictions
from pipelines.foreign.question_tables import ROLES, Questions
from pipelines.storage.file_kinds import check_link
from pipelines.subsets import Subset

NO_ANSWER = -1
DECISIONS = (*RETRIEVED, *DOUBT)
ENDING = re.compile(
    r"(\.(csv|tsv|txt|json|jsonl|ndjson|parquet))?(\.(gz|gzip|bz2|zst|xz|zip))?$", re.IGNORECASE
)


@dataclass(frozen=True)
class Answered:
    """A file's answers to the questions of a set."""

    name: str  # of the method
    correct: np.ndarray  # (questions,) int8: 1 right, 0 wrong, NO_ANSWER where the file has none
    texts: list[str] | None  # (questions,) what was said; None if the file only judges
    lines: list[str]  # what was read, and how it was joined and judged
    calls: np.ndarray | None = (
        None  # (questions,) how often it retrieved; NaN where that is not known
    )
    doubt: np.ndarray | None = (
        None  # (questions,) how unsure it is, in whatever unit; NaN where it has no row
    )
    says: bool = True  # whether the file has answers or judgements; without them all are wrong

    @property
    def has(self) -> np.ndarray:
        """Which questions the file answers, (questions,) bool."""
        return self.correct != NO_ANSWER

    @property
    def decides(self) -> bool:
        """Whether the file says when it retrieved."""
        return self.calls is not None


def short_name(path: Path) -> str:
    """A file's name without the ending that says its format: `gpt-4.1-mini` for gpt-4.1-mini.csv.gz."""
    return ENDING.sub("", path.name, count=1) or path.name


def named_files(places: Sequence[str], folder: Path) -> dict[str, Path]:
    """Name of a method -> its file, of words as NAME=FILE or FILE; paths are relative to `folder`.

    Without a name it is the file's `short_name`, with its folder where another file is called alike. Raises
    LongtailError for a name that two files have, and a file that is not there.
    """
    named: dict[str, Path] = {}
    for place in places:
        given, _, file = (
            place.partition("=")
            if "=" in place and not (folder / place).exists()
            else ("", "", place)
        )
        path = folder / file
        check_link(path)
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise LongtailError(
                f"{path}: {what}, expected predictions: a table, JSON, JSON lines or Parquet"
            )
        alike = [other for other in places if short_name(Path(other)) == short_name(path)]
        name = given.strip() or f"{path.parent.name}/" * (len(alike) > 1) + short_name(path)
        if name in named:
            raise LongtailError(
                f"{path}: a second file called {name!r}, expected others; give it as NAME=FILE"
            )
        named[name] = path
    return named


def read_answers(
    files: dict[str, Path],
    questions: Questions,
    pattern: str | None = None,
    *,
    by_position: bool = False,
    decisions: bool = False,
) -> list[Answered]:
    """The answers of each file; with `decisions` when it retrieved, and its doubt. LongtailError as `judge_file`."""
    answered, is_cut = [], False
    for name, path in files.items():
        more = DECISIONS if decisions else ()
        predictions, match, right, lines = judge_file(
            path, questions, pattern, more, by_position=by_position
        )
        is_cut |= predictions.is_cut
        correct, said = np.full(len(questions.ids), NO_ANSWER, np.int8), None
        correct[match.questions] = right
        if predictions.texts is not None:
            said = [""] * len(questions.ids)
            for row, place in match.pairs:
                said[place] = predictions.texts[row]
        numbers = {"calls": predictions.calls, "doubt": predictions.doubt}
        for what, values in numbers.items():
            if values is not None:
                numbers[what] = np.full(len(correct), np.nan)
                numbers[what][match.questions] = [values[row] for row in match.rows]
        answered.append(Answered(name, correct, said, lines, **numbers, says=predictions.says))
    check_pattern(pattern, is_cut)
    if not any((one.correct == 1).any() for one in answered):
        answered[-1].lines.append(
            f"nothing is right: no answer of {questions.name} is in any prediction; its answers may be damaged or in "
            "another language, or the predictions of another question set"
        )
    return answered


def keep_subset(
    answered: Sequence[Answered], questions: Questions, name: str, subset: Subset
) -> None:
    """Take away all answers to other questions than a sample's. Raises LongtailError if the set has none of these."""
    inside = np.array([id_ in subset.ids for id_ in questions.ids], bool)
    if not inside.any():
        raise LongtailError(
            f"--subset {name}: no id of {questions.name}, such as {questions.ids[0]}, is in it, expected PopQA's ids; "
            "give popQA.tsv as --questions, to which files without ids are joined by their questions"
        )
    for one in answered:
        one.correct[~inside] = NO_ANSWER
    kept = f"{int(inside.sum()):,} of its {len(subset.ids):,} questions are in {questions.name}"
    answered[-1].lines.append(f"subset {name}: {subset.about}; {kept}, and no others count")


def judge_file(
    path: Path,
    questions: Questions,
    pattern: str | None = None,
    more: Collection[str] = (),
    *,
    by_position: bool = False,
) -> tuple[Predictions, Match, list[bool], list[str]]:
    """A file's predictions, the questions that they answer, which of the match's rows are right, and lines to show.

    They are judged as in the paper; a file's own judgement counts only where it has no predictions, or the set no
    answers. `pattern` cuts the answers out of longer texts, if the file has it; `more` are names of further columns to
    keep. `by_position` says that rows are in the set's order. Raises LongtailError as `read_predictions` and
    `join_predictions` do, and for a file of which no row answers a question.
    """
    predictions = read_predictions(path, more, pattern)
    no_ids = predictions.ids and not questions.asked.ids
    if no_ids and predictions.questions is None and predictions.rows != len(questions.ids):
        raise LongtailError(
            f"{questions.name}: no column with the id ({', '.join(ROLES['id'])}), which {path.name} names its "
            "questions by; add it, or name it with --columns id=NAME"
        )
    match = join_predictions(predictions, questions.asked, by_position=by_position)
    check_joined(predictions, questions.asked, match)
    lines = [*predictions.described, *match.described(predictions)]
    if not match.rows:
        theirs = match.by.partition(" = ")[2]
        such = (
            ", ".join(map(str, questions.asked.ids[theirs][:3]))
            if theirs
            else questions.asked.questions[0]
        )
        raise LongtailError(
            f"{path}: no row answers a question of {questions.name} ({'; '.join(lines)}), expected its "
            f"{theirs or 'questions'}, such as {such}"
        )
    if not predictions.says:
        lines.append(
            f"it has no answers: those of the first two files are taken, for {len(match.rows):,} questions"
        )
        return predictions, match, [False] * len(match.rows), lines
    if predictions.correct is None and "answers" not in questions.columns:
        raise LongtailError(
            f"{path}: nothing says which predictions are right, as {questions.name} has no column of answers and "
            f"{path.name} no column `correct`; name the answers' column with --columns answers=NAME"
        )
    said = [predictions.correct[row] for row in match.rows] if predictions.correct else []
    right = (
        judge_predictions(predictions, questions.asked, match)
        if "answers" in questions.columns
        else said
    )
    if differ := sum(map(operator.ne, said, right)):
        lines.append(
            f"{differ:,} answers are judged differently than in the file: predictions are judged here"
        )
    lines.append(f"{len(right):,} answers, {100 * sum(right) / len(right):.1f} % right")
    return predictions, match, right, lines


def check_pattern(pattern: str | None, is_cut: bool) -> None:
    """Raise LongtailError for a pattern that no prediction has."""
    if pattern and not is_cut:
        raise LongtailError(
            f"--answer-pattern {pattern}: no prediction has it, expected some; leave it out or mend it"
        )


def in_all(answered: Sequence[Answered]) -> np.ndarray:
    """Which questions all files answer, (questions,) bool. Raises LongtailError if there is none."""
    rows = np.logical_and.reduce([one.has for one in answered])
    if not rows.any():
        counts = ", ".join(f"{one.name} {int(one.has.sum()):,}" for one in answered)
        raise LongtailError(
            f"no question is answered by all files ({counts} answers), expected some; leave a file out"
        )
    return rows
