"""Judge files of predictions by a question set, both from anywhere, without a project."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.errors import LongtailError
from pipelines.foreign.join_predictions import Match, join_predictions
from pipelines.foreign.joined_checks import check_joined
from pipelines.foreign.layouts import DOUBT, RETRIEVED
from pipelines.foreign.prediction_files import Predictions, read_predictions
from pipelines.foreign.question_tables import ROLES, Questions
from pipelines.foreign.records import showing_columns
from pipelines.questions import matching, odd_answers
from pipelines.safe_text import mended
from pipelines.storage.file_kinds import check_link, check_no_folder
from pipelines.subsets import Subset

NO_ANSWER = -1
# The seed and resamples of draws and intervals: the same files give the same bytes.
SEED = 0
RESAMPLES = 1000
PREDICTIONS = "predictions: a table, JSON, JSON lines or Parquet"
DECISIONS = (*RETRIEVED, *DOUBT)
ENDING = re.compile(
    r"(\.(csv|tsv|txt|json|jsonl|ndjson|parquet))?(\.(gz|gzip|bz2|zst|xz|zip))?$", re.IGNORECASE
)


@dataclass(frozen=True)
class Answered:
    """A file's answers to the questions of a set; arrays are (questions,)."""

    name: str  # of the method
    correct: np.ndarray  # int8: 1 right, 0 wrong, NO_ANSWER where the file has none
    texts: list[str] | None  # what was said; None if the file only judges
    lines: list[str]  # what was read, and how it was joined and judged
    # how often it retrieved; NaN where that is not known, None if the file does not say
    calls: np.ndarray | None = None
    # how unsure it is, in whatever unit; NaN where it has no row
    uncertainty: np.ndarray | None = None
    says: bool = True  # whether the file has answers or judgements; without them all are wrong
    odd: Sequence[str] = ()  # what is odd about the answers, which `lines` say too

    @property
    def has(self) -> np.ndarray:
        """Which questions the file answers, bool."""
        return self.correct != NO_ANSWER

    def text(self, place: int) -> str:
        """What was said to a question; "" if the file only judges."""
        return self.texts[place] if self.texts else ""


class JudgedFile(NamedTuple):
    """A file's predictions, the questions that they answer, and which of the match's rows are
    right.
    """

    predictions: Predictions
    match: Match
    right: list[bool]
    lines: list[str]  # to show
    odd: Sequence[str] = ()  # what is odd about the answers


def short_name(path: Path) -> str:
    """A file's name without the ending that says its format: `gpt-4.1-mini` for
    gpt-4.1-mini.csv.gz.
    """
    return ENDING.sub("", path.name, count=1) or path.name


def named_files(places: Sequence[str], folder: Path) -> dict[str, Path]:
    """Name of a method -> its file, of words as NAME=FILE or FILE; paths are relative to `folder`.

    Without a name it is the file's `short_name`. Raises LongtailError for a name that two files
    have, and a file that is not there.
    """
    files: dict[str, Path] = {}
    for place in places:
        typed_name = ""
        path = folder / place
        if "=" in place and not path.exists():
            typed_name, _, file = place.partition("=")
            path = folder / file
        check_file(path)
        name = mended(typed_name.strip() or short_name(path))
        if name in files:
            raise LongtailError(
                f"{path}: a second file called {name!r}, expected others; give it as NAME=FILE"
            )
        files[name] = path

    return files


def check_file(path: Path) -> None:
    """Raise LongtailError for a path without a file of predictions, such as a folder or a pipe."""
    check_link(path)
    check_no_folder(path, PREDICTIONS)
    if not path.is_file():
        raise LongtailError(f"{path}: no such file, expected {PREDICTIONS}")


def read_answers(
    files: dict[str, Path],
    questions: Questions,
    pattern: str | None = None,
    *,
    by_position: bool = False,
    decisions: bool = False,
) -> list[Answered]:
    """The answers of each file, and with `decisions` when it retrieved, and its doubt.

    Raises LongtailError as `judge_file` does.
    """
    more = DECISIONS if decisions else ()
    n_questions = len(questions.ids)
    answered = []
    is_cut = False
    for name, path in files.items():
        judged = judge_file(path, questions, pattern, more, by_position=by_position)
        predictions = judged.predictions
        is_cut |= predictions.is_cut
        match = judged.match
        correct = np.full(n_questions, NO_ANSWER, np.int8)
        correct[match.questions] = judged.right
        texts = None
        if predictions.texts is not None:
            texts = [""] * n_questions
            for row, place in match.pairs:
                texts[place] = predictions.texts[row]

        file = Answered(
            name=name,
            correct=correct,
            texts=texts,
            lines=[*judged.lines, *judged.odd],
            calls=_in_order(predictions.calls, match, n_questions),
            uncertainty=_in_order(predictions.uncertainty, match, n_questions),
            says=predictions.says,
            odd=judged.odd,
        )
        answered.append(file)

    check_pattern(pattern, is_cut)
    if not any((file.correct == 1).any() for file in answered):
        line = (
            f"nothing is right: no answer of {questions.name} is in any prediction; its answers "
            "may be damaged or in another language, or the predictions of another question set"
        )
        for file in answered:
            line = "; ".join([line, *(f"{file.name}: {odd}" for odd in file.odd)])
        answered[-1].lines.append(line)

    return answered


def _in_order(values: Sequence[float] | None, match: Match, n_questions: int) -> np.ndarray | None:
    """A column of numbers in the order of the questions, NaN where there is no row."""
    if values is None:
        return None
    column = np.full(n_questions, np.nan)
    column[match.questions] = [values[row] for row in match.rows]
    return column


def in_subset(questions: Questions, name: str, subset: Subset) -> tuple[np.ndarray, str]:
    """Which questions a sample has, (questions,) bool, and a line on how many they are.

    Raises LongtailError if it has none of them.
    """
    is_inside = np.array([id_ in subset.ids for id_ in questions.ids], bool)
    if not is_inside.any():
        raise LongtailError(
            f"--subset {name}: no id of {questions.name}, such as {questions.ids[0]}, is in it, "
            "expected PopQA's ids; take popQA.tsv as the table of questions, to which "
            "files without ids are joined by their questions"
        )

    count = f"{int(is_inside.sum()):,} of its {len(subset.ids):,} questions"
    line = f"subset {name}: {subset.about}; {count} are in {questions.name}, and no others count"
    return is_inside, line


def keep_subset(
    answered: Sequence[Answered], questions: Questions, name: str, subset: Subset
) -> None:
    """Take away all answers to other questions than a sample's.

    Raises LongtailError if the set has none of these.
    """
    is_inside, line = in_subset(questions, name, subset)
    for file in answered:
        file.correct[~is_inside] = NO_ANSWER
    answered[-1].lines.append(line)


def judge_file(
    path: Path,
    questions: Questions,
    pattern: str | None = None,
    more: Collection[str] = (),
    *,
    by_position: bool = False,
) -> JudgedFile:
    """A file's predictions, joined with the questions and judged as in the paper.

    A file's own judgement counts only where it has no predictions, or the set no answers. `pattern`
    cuts the answers out of longer texts, if the file has it; `more` are names of further columns to
    keep. `by_position` says that rows are in the set's order. Raises LongtailError as
    `read_predictions` and `join_predictions` do, and for a file of which no row answers a question.
    """
    predictions = read_predictions(path, more, pattern)
    with showing_columns(predictions.shown_columns):
        has_ids_alone = bool(predictions.ids) and predictions.questions is None
        is_in_order = predictions.rows == len(questions.ids)
        if has_ids_alone and not questions.asked.ids and not is_in_order:
            raise LongtailError(
                f"{questions.name}: no column with the id ({', '.join(ROLES['id'])}), which "
                f"{path.name} names its questions by; add it, or name it with --columns id=NAME"
            )

        match = join_predictions(predictions, questions.asked, by_position=by_position)
        check_joined(predictions, questions.asked, match)
        lines = [*predictions.described, *match.described(predictions)]
        if not match.rows:
            raise _nothing_joined(path, questions, match, lines)
        if not predictions.says:
            lines.append(
                "it has no answers: those of the first two files are taken, for "
                f"{len(match.rows):,} questions"
            )
            return JudgedFile(predictions, match, [False] * len(match.rows), lines)

        right = _judgements(predictions, questions, match, lines)
        percent = 100 * sum(right) / len(right)
        lines.append(f"{len(right):,} answers, {percent:.1f} % right")
        odd = _odd(predictions, questions, match, right)
        return JudgedFile(predictions, match, right, lines, odd)


def _judgements(
    predictions: Predictions, questions: Questions, match: Match, lines: list[str]
) -> list[bool]:
    """Whether each row of the match is right; a line says on how many the file differs."""
    own = []
    if predictions.correct is not None:
        own = [predictions.correct[row] for row in match.rows]
    has_answers = "answers" in questions.columns
    if not own and not has_answers:
        raise LongtailError(
            f"{predictions.path}: nothing says which predictions are right, as {questions.name} "
            f"has no column of answers and {predictions.path.name} no column `correct`; name the "
            "answers' column with --columns answers=NAME"
        )
    if predictions.texts is None or not has_answers:
        return own

    right = [
        matching.substring(predictions.texts[row], questions.asked.answers[place])
        for row, place in match.pairs
    ]
    n_differing = int(np.not_equal(own, right).sum()) if own else 0
    if n_differing:
        lines.append(
            f"{n_differing:,} answers are judged differently than in the file: predictions are "
            "judged here"
        )
    return right


def _odd(
    predictions: Predictions, questions: Questions, match: Match, right: Sequence[bool]
) -> list[str]:
    """Lines on what is odd about the answers. How many are empty stands in the file's notes."""
    if predictions.texts is None:
        return []
    texts = []
    golds = []
    judgements = []
    for (row, place), is_right in zip(match.pairs, right, strict=True):
        if predictions.texts[row]:
            texts.append(predictions.texts[row])
            golds.append(questions.asked.answers[place])
            judgements.append(is_right)

    oddities = odd_answers.find_oddities(texts, golds, judgements)
    return [f"odd: {count:,} of {len(texts):,} answers {what}" for what, count in oddities.items()]


def _nothing_joined(
    path: Path, questions: Questions, match: Match, lines: Sequence[str]
) -> LongtailError:
    """The error for a file of which no row answers a question."""
    id_column = match.by.partition(" = ")[2]
    example = questions.asked.questions[0]
    if id_column:
        example = ", ".join(map(str, questions.asked.ids[id_column][:3]))
    return LongtailError(
        f"{path}: no row answers a question of {questions.name} ({'; '.join(lines)}), expected its "
        f"{id_column or 'questions'}, such as {example}"
    )


def check_pattern(pattern: str | None, is_cut: bool) -> None:
    """Raise LongtailError for a pattern that no prediction has."""
    if pattern and not is_cut:
        raise LongtailError(
            f"--answer-pattern {pattern}: no prediction has it, expected some; leave it out or "
            "mend it"
        )


def in_all(answered: Sequence[Answered]) -> np.ndarray:
    """Which questions all files answer, (questions,) bool.

    Raises LongtailError if there is none.
    """
    is_answered = np.logical_and.reduce([file.has for file in answered])
    if not is_answered.any():
        counts = [f"{file.name} {int(file.has.sum()):,}" for file in answered]
        raise LongtailError(
            f"no question is answered by all files ({', '.join(counts)} answers), expected some; "
            "leave a file out"
        )
    return is_answered
