"""Which question each row of a file of predictions answers: by id, by the question's text, or by position."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.errors import LongtailError
from pipelines.questions import matching
from pipelines.sources.cell_values import answer_list, as_text, clean_id, folded
from pipelines.sources.prediction_files import Predictions
from pipelines.sources.prediction_layouts import TELLING
from pipelines.sources.prediction_records import LINES, TEXTS

SHOWN = 5  # rows in a message
ENOUGH = 20  # right answers in a row are no model's, if they are all there is
FOREIGN = "answer no question of the set"
OTHER_QUESTION = "have the id of one question and the text of another"
OTHER_ANSWERS = "have a question's text, but another subject or other answers"
AMBIGUOUS = "could answer several questions of the same text"
DOUBLED = "answer a question that another row answers too"


@dataclass(frozen=True)
class Asked:
    """What tells the questions of a set apart, (questions,) each, in the set's order."""

    questions: Sequence[str]
    answers: Sequence[Sequence[str]]
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # column -> ids
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # those of TELLING that the set has

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any]]) -> Asked:
        """The set with the columns `question` and `possible_answers`; ids and TELLING are taken if they are there."""
        ids = {name: columns[name] for name in ("question_id", "id") if name in columns}
        telling = {name: columns[name] for name in TELLING if name in columns}
        return cls(columns["question"], columns["possible_answers"], ids, telling)

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Question's text, folded -> the questions that have it."""
        places: dict[str, list[int]] = {}
        for place, text in enumerate(self.questions):
            places.setdefault(folded(text), []).append(place)
        return places

    @cached_property
    def answer_sets(self) -> list[frozenset[str]]:
        return [frozenset(map(folded, answer_list(list(answers)))) for answers in self.answers]


@dataclass(frozen=True)
class Match:
    """Rows of a file and the questions that they answer, in the questions' order."""

    by: str  # the columns that they are joined by, or how else
    rows: list[int]
    questions: list[int]
    rejected: dict[str, list[int]]  # why -> rows of the file
    missing: list[int]  # questions that no row answers
    doubt: str = ""  # what is odd about the ids

    def described(self, predictions: Predictions) -> list[str]:
        """How the rows were joined and which were left out, in lines."""
        lines = [f"{len(self.rows):,} of {predictions.rows:,} rows joined by {self.by}"]
        for why, rows in self.rejected.items():
            lines.append(f"{len(rows):,} rows {why}: {shown(predictions, rows)}")
        return lines + [self.doubt] * bool(self.doubt)


def join(predictions: Predictions, asked: Asked) -> Match:
    """The question that each row answers, if that is beyond doubt.

    Rows are joined by the pair of id columns with the most ids in common, or by the question's text if more rows fit
    that way. The text of a question that several subjects share is told apart by the columns of TELLING and by the
    answer lists. An id is not believed where the row carries another question's text. No id is believed where most rows
    carry other texts or answers than their ids' questions: row numbers may be ids by chance. Without ids and texts a
    file is joined by position, if it has as many rows as the set has questions, and what it carries agrees.

    Rows that fit no question, several, or one that another row answers, are in `rejected`. Raises LongtailError for a
    file without ids, texts and a fitting number of rows, for one whose ids and texts contradict each other, and for one
    whose column `answer` has the gold answers.
    """
    match = _joined(predictions, asked)
    texts, of_answer = predictions.texts, predictions.names.get("prediction") == "answer"
    if texts and of_answer and len(match.rows) >= ENOUGH:
        pairs = zip(match.rows, match.questions, strict=True)
        if all(folded(texts[row]) in asked.answer_sets[place] for row, place in pairs):
            raise LongtailError(
                f"{predictions.path}: its column answer holds the gold answers, expected what a model said; call that "
                "column prediction"
            )
    return match


def _joined(predictions: Predictions, asked: Asked) -> Match:
    by_id = _by_id(predictions, asked)
    disagree = _disagreeing(predictions, asked, by_id) if by_id else []
    by_chance = bool(by_id) and 2 * len(disagree) > len(by_id.rows) + len(by_id.rejected.get(OTHER_QUESTION, ()))
    if by_id and not by_id.rejected and not by_chance:
        return by_id
    if by_id and not by_id.rows and predictions.questions is None:  # an object in JSON may have questions for its keys
        predictions = replace(predictions, questions=next(iter(predictions.ids.values())))
    if predictions.questions is not None:
        in_order = [folded(text) for text in predictions.questions] == [folded(text) for text in asked.questions]
        by_text = _by_position(predictions, asked) if in_order else _by_text(predictions, asked)
        if by_chance and by_text.rows:
            return replace(
                by_text, doubt=f"its ids are left aside: {len(disagree):,} are of questions with other texts"
            )
        if not by_chance:
            return by_id if by_id and len(by_id.rows) >= len(by_text.rows) else by_text
    if by_chance:
        raise _contradiction(predictions, asked, by_id.by, disagree)
    return by_id or _by_position(predictions, asked)


def _disagreeing(predictions: Predictions, asked: Asked, by_id: Match) -> list[tuple[int, int]]:
    """(row, question) where a row has the question's id, but neither its text nor, without texts, one of its answers.

    A text agrees if it has all of the question's words: it may be a whole prompt.
    """
    texts, answers = predictions.questions, predictions.answers if predictions.questions is None else None

    def differs(row: int, place: int) -> bool:
        if texts is not None:
            asks = asked.questions[place]
            return texts[row] not in ("", asks) and not _words(asks) <= _words(texts[row])
        return bool(answers[row]) and not asked.answer_sets[place] & frozenset(map(folded, answers[row]))

    pairs = zip(by_id.rows, by_id.questions, strict=True)
    return [pair for pair in pairs if differs(*pair)] if texts is not None or answers else []


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", as_text(text).casefold()))


def _contradiction(predictions: Predictions, asked: Asked, by: str, disagree: list[tuple[int, int]]) -> LongtailError:
    row, place = disagree[0]
    ids, what, theirs, ours = by.partition(" = ")[0], "question", predictions.questions, asked.questions
    if theirs is None:
        what, theirs, ours = "answers", predictions.answers, asked.answers
    return LongtailError(
        f"{predictions.path}: {len(disagree):,} rows have the id of one question and the {what} of another, as "
        f"{shown(predictions, [row])}: {str(theirs[row])[:80]}, in the set {str(ours[place])[:80]}; expected the same; "
        f"drop the column {ids} if it only numbers rows, or {predictions.names[what]} if the ids are right"
    )


def judged(predictions: Predictions, asked: Asked, match: Match) -> list[bool]:
    """Whether each row of `match` is right: its prediction as `matching.substring` judges, else as the file says."""
    if predictions.texts is None:
        return [bool(predictions.correct[row]) for row in match.rows] if predictions.correct else []
    texts = predictions.texts
    return [
        matching.substring(texts[row], [unicodedata.normalize("NFC", answer) for answer in asked.answers[place]])
        for row, place in zip(match.rows, match.questions, strict=True)
    ]


def shown(predictions: Predictions, rows: Sequence[int]) -> str:
    """The first few rows, each by its number and its id or question."""
    keys = next(iter(predictions.ids.values()), predictions.questions)
    names = [f"row {row + 1}" + (f" ({keys[row][:80]})" if keys else "") for row in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return ", ".join(names) + more


def _by_id(predictions: Predictions, asked: Asked) -> Match | None:
    """The join by the id columns with the most ids in common; None if the file or the set has no ids.

    Of two pairs with as many, the pair of the same name is taken.
    """
    best: tuple[tuple[int, bool], str, list[int | None]] | None = None
    for theirs, values in asked.ids.items():
        known = {clean_id(value): place for place, value in enumerate(values)}
        if len(known) < len(values):
            if len(asked.ids) > 1:  # the other column may do
                continue
            twice = next(key for key, count in Counter(map(clean_id, values)).items() if count > 1)
            raise LongtailError(f"the question set has the {theirs} {twice} more than once, expected every id once")
        for ours, ids in predictions.ids.items():
            places = [known.get(id_) for id_ in ids]
            fits = len(places) - places.count(None), ours == theirs
            if best is None or fits > best[0]:
                best = fits, f"{ours} = {theirs}", places
    if best is None:
        return None
    places, rejected = best[2], {}
    rejected[FOREIGN] = [row for row, place in enumerate(places) if place is None]
    if predictions.questions is not None:
        rejected[OTHER_QUESTION], texts = [], list(asked.questions)
        for row, text in enumerate(predictions.questions):
            if places[row] is None or text == texts[places[row]]:
                continue
            of_text = asked.places.get(folded(text))
            if of_text and places[row] not in of_text:
                rejected[OTHER_QUESTION].append(row)
                places[row] = None
    ours, _, theirs = best[1].partition(" = ")
    first = _numbers_from(predictions.ids[ours]), _numbers_from(list(map(clean_id, asked.ids[theirs])))
    one_off = predictions.questions is None and first in ((0, 1), (1, 0))
    doubt = f"{ours} counts the file's rows from {first[0]}, {theirs} the set's from {first[1]}: is it one off?"
    return replace(_match(best[1], places, rejected, asked), doubt=doubt * one_off)


def _numbers_from(ids: Sequence[str]) -> int | None:
    """The 0 or 1 from which ids count their rows; None if they do not."""
    return next((first for first in (0, 1) if all(id_ == str(row) for row, id_ in enumerate(ids, first))), None)


def _by_text(predictions: Predictions, asked: Asked) -> Match:
    """The join by text, told apart by further columns and by answer lists."""
    rejected: dict[str, list[int]] = {FOREIGN: [], OTHER_ANSWERS: [], AMBIGUOUS: []}
    places: list[int | None] = []
    used: set[str] = set()
    telling = {}
    for name in (name for name in TELLING if name in asked.columns and name in predictions.columns):
        theirs, ours = [as_text(value) for value in asked.columns[name]], predictions.columns[name]
        known, filled = set(theirs), [value for value in ours if value]
        if 2 * sum(value in known for value in filled) > len(filled):  # else it says the same in other words
            telling[name] = theirs, ours
    for row, text in enumerate(predictions.questions or ()):
        candidates = list(asked.places.get(folded(text), ()))
        why = FOREIGN if not candidates else OTHER_ANSWERS
        for name, fits in _narrowed(predictions, asked, telling, row, candidates):
            if len(fits) < len(candidates):
                used.add(name)
            candidates = fits
        if len(candidates) == 1:
            places.append(candidates[0])
            continue
        rejected[AMBIGUOUS if candidates else why].append(row)
        places.append(None)
    by = ", ".join(["question", *(name for name in (*TELLING, "answers") if name in used)])
    return _match(by, places, rejected, asked)


def _narrowed(
    predictions: Predictions,
    asked: Asked,
    telling: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    row: int,
    candidates: list[int],
) -> Iterator[tuple[str, list[int]]]:
    """Yield (column, those of the candidates that agree with the row in it and all before)."""
    for name, (theirs, ours) in telling.items():
        if ours[row]:
            candidates = [place for place in candidates if theirs[place] in ("", ours[row])]
            yield name, candidates
    answers = frozenset(map(folded, predictions.answers[row])) if predictions.answers else frozenset()
    if answers:
        equal = [place for place in candidates if asked.answer_sets[place] == answers]
        yield "answers", equal or [place for place in candidates if asked.answer_sets[place] & answers]


def _by_position(predictions: Predictions, asked: Asked) -> Match:
    n = len(asked.questions)
    no_columns = predictions.layout in (TEXTS, LINES)
    add = f"{'write objects with' if no_columns else 'add a column'} id, question_id or question"
    if predictions.rows != n:
        raise LongtailError(
            f"{predictions.path}: {predictions.rows:,} rows without ids or questions, expected as many as the set has "
            f"questions ({n:,}), in its order; {add}"
        )
    checked = ""
    for row in range(n):
        answers = frozenset(map(folded, predictions.answers[row])) if predictions.answers else frozenset()
        other_answers = answers and not answers & asked.answer_sets[row]
        prompt = folded(predictions.prompts[row]) if predictions.prompts else ""
        if other_answers or (prompt and folded(asked.questions[row]) not in prompt):
            what = "answers" if other_answers else "prompt"
            raise LongtailError(
                f"{predictions.path}: row {row + 1} has other {what} than the set's question {row + 1} "
                f"({asked.questions[row][:80]}), expected the set's order; {add}"
            )
        checked = checked or ("answers" if answers else "prompts" if prompt else "")
    checked = "questions" if predictions.questions is not None else checked
    by = f"position, as its {checked} confirm" if checked else "position, which nothing in the file confirms"
    by += "; its ids are not used, as the set has none" if predictions.ids and not asked.ids else ""
    return _match(by, list(range(n)), {}, asked)


def _match(by: str, places: Sequence[int | None], rejected: dict[str, list[int]], asked: Asked) -> Match:
    counts = Counter(place for place in places if place is not None)
    rejected[DOUBLED] = [row for row, place in enumerate(places) if place is not None and counts[place] > 1]
    rows = sorted((place, row) for row, place in enumerate(places) if place is not None and counts[place] == 1)
    has = set(counts)
    return Match(
        by,
        rows=[row for _, row in rows],
        questions=[place for place, _ in rows],
        rejected={why: of_why for why, of_why in rejected.items() if of_why},
        missing=[place for place in range(len(asked.questions)) if place not in has],
    )
