"""Which question each row of a file of predictions answers: by id, by the question's text, or by position."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.errors import LongtailError
from pipelines.questions import matching
from pipelines.sources.cell_values import as_text, clean_id, folded
from pipelines.sources.prediction_files import Predictions
from pipelines.sources.prediction_layouts import TELLING
from pipelines.sources.record_files import LINES, TEXTS

SHOWN = 5  # rows in a message
ENOUGH = 20  # right answers in a row are no model's, if they are all there is
FOREIGN = "answer no question of the set"
OTHER_QUESTION = "have the id of one question and the text of another"
OTHER_ANSWERS = "have a question's text, but another subject or other answers"
AMBIGUOUS = "could answer several questions of the same text"
DOUBLED = "answer a question that another row answers too"


@dataclass(frozen=True)
class Asked:
    """What tells the questions of a set apart, (questions,) each, in the set's order. Texts are NFC."""

    questions: Sequence[str]
    answers: Sequence[Sequence[str]]
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # column -> ids
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # the columns of TELLING that the set has

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Question's text, folded -> the questions that have it."""
        places: dict[str, list[int]] = {}
        for place, text in enumerate(self.questions):
            places.setdefault(folded(text), []).append(place)
        return places

    @cached_property
    def answer_sets(self) -> list[frozenset[str]]:
        return [_as_set(answers) for answers in self.answers]


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
        lines += [f"{len(rows):,} rows {why}: {shown_rows(predictions, rows)}" for why, rows in self.rejected.items()]
        return lines + [self.doubt] * bool(self.doubt)


def join_predictions(predictions: Predictions, asked: Asked) -> Match:
    """The question that each row answers, if that is beyond doubt.

    Rows are joined by the pair of id columns with the most ids in common, or by the question's text if more rows fit
    that way. The text of a question that several subjects share is told apart by the columns of TELLING and by the
    answer lists. An id is not believed where the row carries another question's text, and no id is where most rows do:
    row numbers may be ids by chance. Without ids and texts a file is joined by position, if it has as many rows as the
    set has questions, and what it carries agrees.

    Rows that fit no question, several, or one that another row answers, are in `rejected`. Raises LongtailError for a
    file without ids, texts and a fitting number of rows, for one whose ids and texts contradict each other, and for one
    whose column `answer` has the gold answers.
    """
    by_id, disagreeing = _by_id(predictions, asked)
    if by_id and not by_id.rows and predictions.questions is None:  # an object in JSON may have questions for its keys
        predictions = replace(predictions, questions=next(iter(predictions.ids.values())))
    if by_id and not by_id.rejected and not disagreeing:
        match = by_id
    elif predictions.questions is None:
        match = by_id or _by_position(predictions, asked)
    else:
        in_order = list(map(folded, predictions.questions)) == list(map(folded, asked.questions))
        match = _by_position(predictions, asked) if in_order else _by_text(predictions, asked)
        if disagreeing and not match.rows:
            row, place = disagreeing[0]
            raise LongtailError(
                f"{predictions.path}: {len(disagreeing):,} rows have the id of one question and the text of another, "
                f"as {shown_rows(predictions, [row])}: {predictions.questions[row][:80]}, in the set "
                f"{asked.questions[place][:80]}; drop the ids if they only number rows, or the texts if ids are right"
            )
        if disagreeing:
            doubt = f"its ids are left aside: {len(disagreeing):,} are of questions with other texts"
            match = replace(match, doubt=doubt)
        elif by_id and len(by_id.rows) >= len(match.rows):
            match = by_id
    texts = predictions.texts
    if texts and predictions.names.get("prediction") == "answer" and len(match.rows) >= ENOUGH:
        pairs = zip(match.rows, match.questions, strict=True)
        if all(folded(texts[row]) in asked.answer_sets[place] for row, place in pairs):
            raise LongtailError(
                f"{predictions.path}: its column answer holds the gold answers, expected what a model said; call that "
                "column prediction"
            )
    return match


def judge_predictions(predictions: Predictions, asked: Asked, match: Match) -> list[bool]:
    """Whether each row of `match` is right: its prediction as `matching.substring` judges, else as the file says."""
    texts, correct = predictions.texts, predictions.correct or []
    if texts is None:
        return [correct[row] for row in match.rows]
    pairs = zip(match.rows, match.questions, strict=True)
    return [matching.substring(texts[row], asked.answers[place]) for row, place in pairs]


def shown_rows(predictions: Predictions, rows: Sequence[int]) -> str:
    """The first few rows, each by its number and its id or question."""
    keys = next(iter(predictions.ids.values()), predictions.questions)
    names = [f"row {row + 1}" + (f" ({keys[row][:80]})" if keys else "") for row in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return ", ".join(names) + more


def _by_id(predictions: Predictions, asked: Asked) -> tuple[Match | None, list[tuple[int, int]]]:
    """The join by the id columns with the most ids in common; None if the file or the set has no ids.

    Of two pairs with as many, the pair of the same name is taken. Where most rows have another text than their ids'
    questions, these (row, question) come second. A text that is none of the set's agrees if it has all of the
    question's words: it may be a whole prompt.
    """
    pairs: dict[tuple[str, str], list[int | None]] = {}
    for theirs, values in asked.ids.items():
        keys = list(map(clean_id, values))
        known = {key: place for place, key in enumerate(keys)}
        if len(known) == len(keys):
            pairs |= {(ours, theirs): list(map(known.get, ids)) for ours, ids in predictions.ids.items()}
        elif len(asked.ids) == 1:  # else the other column may do
            twice, _ = Counter(keys).most_common(1)[0]
            raise LongtailError(f"the question set has the {theirs} {twice} more than once, expected every id once")
    if not pairs:
        return None, []
    ours, theirs = max(pairs, key=lambda pair: (-pairs[pair].count(None), pair[0] == pair[1]))
    places, texts = pairs[ours, theirs], predictions.questions
    rejected = {FOREIGN: [row for row, place in enumerate(places) if place is None]}
    disagreeing: list[tuple[int, int]] = []
    for row, place in enumerate(places if texts else ()):
        if place is not None and texts[row] not in ("", asked.questions[place]):
            of_text = asked.places.get(folded(texts[row]), ())
            if place not in of_text and (of_text or not _words(asked.questions[place]) <= _words(texts[row])):
                disagreeing.append((row, place))
    if 2 * len(disagreeing) <= len(places) - len(rejected[FOREIGN]):
        rejected[OTHER_QUESTION] = [row for row, _ in disagreeing if folded(texts[row]) in asked.places]
        for row in rejected[OTHER_QUESTION]:
            places[row] = None
        disagreeing = []
    first = _numbers_from(predictions.ids[ours]), _numbers_from(list(map(clean_id, asked.ids[theirs])))
    one_off = f"{ours} counts the file's rows from {first[0]}, {theirs} the set's from {first[1]}: is it one off?"
    doubt = one_off if texts is None and first in ((0, 1), (1, 0)) else ""
    return replace(_match(f"{ours} = {theirs}", places, rejected, asked), doubt=doubt), disagreeing


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", as_text(text).casefold()))


def _as_set(answers: Sequence[str]) -> frozenset[str]:
    return frozenset(map(folded, answers)) - {""}


def _numbers_from(ids: Sequence[str]) -> int | None:
    """The 0 or 1 from which ids count their rows; None if they do not."""
    return next((first for first in (0, 1) if all(id_ == str(row) for row, id_ in enumerate(ids, first))), None)


def _by_text(predictions: Predictions, asked: Asked) -> Match:
    """The join by text, told apart by further columns and by answer lists."""
    telling: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for name in TELLING:
        if name in asked.columns and (ours := predictions.column(name)):
            theirs = list(map(as_text, asked.columns[name]))
            known, filled = set(theirs), [value for value in ours if value]
            if 2 * sum(value in known for value in filled) > len(filled):  # else it says the same in other words
                telling[name] = theirs, ours
    answers = list(map(_as_set, predictions.answers or ()))
    rejected: dict[str, list[int]] = {FOREIGN: [], OTHER_ANSWERS: [], AMBIGUOUS: []}
    places: list[int | None] = []
    for row, text in enumerate(predictions.questions or ()):
        of_text = asked.places.get(folded(text), [])
        fits = [
            place
            for place in of_text
            if all(not ours[row] or theirs[place] in ("", ours[row]) for theirs, ours in telling.values())
        ]
        if answers and answers[row]:
            equal = [place for place in fits if asked.answer_sets[place] == answers[row]]
            fits = equal or [place for place in fits if asked.answer_sets[place] & answers[row]]
        if len(fits) != 1:
            rejected[AMBIGUOUS if fits else OTHER_ANSWERS if of_text else FOREIGN].append(row)
        places.append(fits[0] if len(fits) == 1 else None)
    by = ", ".join(["question", *telling, *["answers"] * any(answers)])
    return _match(by, places, rejected, asked)


def _by_position(predictions: Predictions, asked: Asked) -> Match:
    n = len(asked.questions)
    add = "write objects with" if predictions.layout in (TEXTS, LINES) else "add a column"
    add += " id, question_id or question"
    if predictions.rows != n:
        raise LongtailError(
            f"{predictions.path}: {predictions.rows:,} rows without ids or questions, expected as many as the set has "
            f"questions ({n:,}), in its order; {add}"
        )
    answers = list(map(_as_set, predictions.answers or [()] * n))
    prompts = list(map(folded, predictions.column(predictions.names.get("prompt", "")) or [""] * n))
    for row in range(n):
        other_answers = answers[row] and not answers[row] & asked.answer_sets[row]
        if other_answers or (prompts[row] and folded(asked.questions[row]) not in prompts[row]):
            what = "answers" if other_answers else "prompt"
            raise LongtailError(
                f"{predictions.path}: row {row + 1} has other {what} than the set's question {row + 1} "
                f"({asked.questions[row][:80]}), expected the set's order; {add}"
            )
    carried = {"questions": predictions.questions, "answers": any(answers), "prompts": any(prompts)}
    checked = next((what for what, there in carried.items() if there), "")
    by = f"position, as its {checked} confirm" if checked else "position, which nothing in the file confirms"
    by += "; its ids are not used, as the set has none" if predictions.ids and not asked.ids else ""
    return _match(by, list(range(n)), {}, asked)


def _match(by: str, places: Sequence[int | None], rejected: dict[str, list[int]], asked: Asked) -> Match:
    counts = Counter(place for place in places if place is not None)
    rejected[DOUBLED] = [row for row, place in enumerate(places) if place is not None and counts[place] > 1]
    pairs = sorted((place, row) for row, place in enumerate(places) if place is not None and counts[place] == 1)
    return Match(
        by,
        rows=[row for _, row in pairs],
        questions=[place for place, _ in pairs],
        rejected={why: of_why for why, of_why in rejected.items() if of_why},
        missing=[place for place in range(len(asked.questions)) if place not in counts],
    )
