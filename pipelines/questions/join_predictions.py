"""Which question each row of a file of predictions answers: by id, by the question's text, or by position."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import unescape
from typing import Any

from pipelines.errors import LongtailError
from pipelines.questions import matching
from pipelines.sources.cell_values import as_text, clean_id, folded
from pipelines.sources.prediction_files import Predictions
from pipelines.sources.prediction_layouts import QUESTION, TELLING
from pipelines.sources.record_files import LINES, TEXTS

SHOWN = 5  # rows in a message
ENOUGH = 20  # right answers in a row are no model's, if they are all there is; nor does an order fit 20 rows by chance
SPARSE = 10  # numbers for each id, in the range of the ids, from which on a number is no id by chance
POSITION = "position"
FOREIGN = "answer no question of the set"
OTHER_QUESTION = "have the id of one question and the text of another"
OTHER_ANSWERS = "have a question's text, but another subject or other answers"
AMBIGUOUS = "could answer several questions of the same text"
DOUBLED = "answer a question that another row answers otherwise"
QUOTES = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u2032`\u00b4", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"')
)


@dataclass(frozen=True)
class Asked:
    """What tells the questions of a set apart, (questions,) each, in the set's order. Texts are NFC."""

    questions: Sequence[str]
    answers: Sequence[Sequence[str]]
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # column -> ids
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # the columns of TELLING that the set has

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Question's `text_key` -> the questions that have it."""
        places: dict[str, list[int]] = {}
        for place, text in enumerate(self.questions):
            places.setdefault(text_key(text), []).append(place)
        return places

    @cached_property
    def answer_sets(self) -> list[frozenset[str]]:
        return [as_set(answers) for answers in self.answers]


@dataclass(frozen=True)
class Match:
    """Rows of a file and the questions that they answer, in the questions' order."""

    by: str  # the columns that they are joined by, or how else
    rows: list[int]
    questions: list[int]
    rejected: dict[str, list[int]]  # why -> rows of the file
    missing: list[int]  # questions that no row answers
    repeated: list[int]  # rows that say again what an earlier row says to the same question
    doubt: str = ""  # what is odd about the ids

    def described(self, predictions: Predictions) -> list[str]:
        """How the rows were joined and which were left out, in lines."""
        lines = [f"{len(self.rows):,} of {predictions.rows:,} rows joined by {self.by}"]
        lines += [f"{len(rows):,} rows {why}: {shown_rows(predictions, rows)}" for why, rows in self.rejected.items()]
        if self.repeated:
            again = shown_rows(predictions, self.repeated)
            lines.append(f"{len(self.repeated):,} rows say again what an earlier row says, and count once: {again}")
        return lines + [self.doubt] * bool(self.doubt)


def join_predictions(predictions: Predictions, asked: Asked, *, by_position: bool = False) -> Match:
    """The question that each row answers, if that is beyond doubt.

    Rows are joined by the pair of id columns with the most ids in common, or by the question's text if more rows fit
    that way. The text of a question that several subjects share is told apart by the columns of TELLING and by the
    answer lists. An id is not believed where the row carries another question's text, and no id is where most rows do:
    row numbers may be ids by chance. Without ids and texts a file is joined by position, if it has as many rows as the
    set has questions, and either its gold answers confirm the order or `by_position` says that it is the set's.

    Rows that fit no question, several, or one that another row answers otherwise, are in `rejected`; a row that says
    again what an earlier one says is in `repeated`. Raises LongtailError for a file without ids, texts and a known
    order, for one whose ids and texts contradict each other or `by_position`, and for one whose column `answer` has the
    gold answers.
    """
    match = _joined(predictions, asked, by_position)
    if by_position and not match.by.startswith(POSITION):
        _refuse_another_order(predictions, match)
    texts = predictions.texts
    if texts and len(match.rows) >= ENOUGH:
        pairs = zip(match.rows, match.questions, strict=True)
        if all(folded(texts[row]) in asked.answer_sets[place] for row, place in pairs):
            raise LongtailError(
                f"{predictions.path}: its column {predictions.names['prediction']} holds the gold answers, expected "
                "what a model said; call that column prediction"
            )
    return match


def _joined(predictions: Predictions, asked: Asked, by_position: bool) -> Match:
    by_id, disagreeing = _by_id(predictions, asked)
    if predictions.questions is None:
        if by_id is None or by_id.doubt:
            return _by_position(predictions, asked, by_position, by_id.doubt if by_id else "")
        if by_id.rows:
            _refuse_other_answers(predictions, asked, by_id)
            return by_id
        by_key = _by_text(replace(predictions, questions=next(iter(predictions.ids.values()))), asked)
        if by_key.rows:  # an object in JSON may have questions for its keys
            return by_key
        if predictions.rows == len(asked.questions):
            return _by_position(
                predictions, asked, by_position, f"its {by_id.by.partition(' = ')[0]} is none of the set's"
            )
        return by_id
    if by_id and not by_id.rejected and not disagreeing:
        return by_id
    in_order = list(map(text_key, predictions.questions)) == list(map(text_key, asked.questions))
    match = _by_position(predictions, asked, in_order=True) if in_order else _by_text(predictions, asked)
    if disagreeing and (not match.rows or predictions.names.get("question") not in QUESTION):  # known by its values
        row, place = disagreeing[0]
        raise LongtailError(
            f"{predictions.path}: {len(disagreeing):,} rows have the id of one question and the text of another, "
            f"as {shown_rows(predictions, [row])}: {predictions.questions[row][:80]}, in the set "
            f"{asked.questions[place][:80]}; drop the ids if they only number rows, or the texts if ids are right"
        )
    if disagreeing:
        doubt = f"its ids are left aside: {len(disagreeing):,} are of questions with other texts"
        return replace(match, doubt=doubt)
    return by_id if by_id and len(by_id.rows) >= len(match.rows) else match


def _refuse_other_answers(predictions: Predictions, asked: Asked, match: Match) -> None:
    """Raise LongtailError if most rows have another question's gold answers than their id, which may be a number."""
    answers = list(map(as_set, predictions.answers or ()))
    pairs = (
        zip(match.rows, match.questions, strict=True) if may_be_numbers(asked.ids[match.by.partition(" = ")[2]]) else ()
    )
    filled = [(row, place) for row, place in pairs if answers and answers[row] and asked.answer_sets[place]]
    other = [row for row, place in filled if not answers[row] & asked.answer_sets[place]]
    if 2 * len(other) > len(filled):
        raise LongtailError(
            f"{predictions.path}: {len(other):,} rows have the id of one question and another's answers in "
            f"`{predictions.names['answers']}`, as {shown_rows(predictions, other[:1])}; drop the ids if they only "
            "number rows, or the answers if ids are right"
        )


def _refuse_another_order(predictions: Predictions, match: Match) -> None:
    """Raise LongtailError if ids or texts put a row elsewhere than at its own position."""
    pairs = zip(match.rows, match.questions, strict=True)
    in_place = {*match.repeated, *(row for row, place in pairs if row == place)}
    others = [row for row in range(predictions.rows) if row not in in_place]
    if others or match.missing:
        first = f" ({shown_rows(predictions, others[:1])})" if others else ""
        raise LongtailError(
            f"{predictions.path}: --by-position contradicts the file: by its {match.by}, {len(others):,} rows{first} "
            f"are not at their question's place, and {len(match.missing):,} questions have no row; leave --by-position "
            "out, or bring its rows into the set's order"
        )


def judge_predictions(predictions: Predictions, asked: Asked, match: Match) -> list[bool]:
    """Whether each row of `match` is right: its prediction as `matching.substring` judges, else as the file says."""
    texts, correct = predictions.texts, predictions.correct or []
    if texts is None:
        return [correct[row] for row in match.rows]
    pairs = zip(match.rows, match.questions, strict=True)
    return [matching.substring(texts[row], asked.answers[place]) for row, place in pairs]


def may_be_numbers(ids: Sequence[Any]) -> bool:
    """Whether the numbers of rows, or any others, may be these ids by chance."""
    numbers = [int(id_) for id_ in map(clean_id, ids) if id_.isdecimal()]
    return len(numbers) == len(ids) and SPARSE * len(numbers) > max(numbers, default=0) - min(numbers, default=0)


def text_key(text: str) -> str:
    """A question for comparison: its `plain_text` without marks at its ends."""
    return plain_text(text).strip("\"' ?.!")


def plain_text(text: str) -> str:
    """A text as NFC without capitals and HTML's entities, with single blanks and straight quotes."""
    text = unescape(text) if "&" in text else text
    return folded(text if text.isascii() else text.translate(QUOTES))


def as_set(answers: Sequence[str]) -> frozenset[str]:
    """Answers for comparison."""
    return frozenset(map(folded, answers)) - {""}


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
            of_text = asked.places.get(text_key(texts[row]), ())
            if place not in of_text and (of_text or not _words(asked.questions[place]) <= _words(texts[row])):
                disagreeing.append((row, place))
    if 2 * len(disagreeing) <= len(places) - len(rejected[FOREIGN]):
        rejected[OTHER_QUESTION] = [row for row, _ in disagreeing if text_key(texts[row]) in asked.places]
        for row in rejected[OTHER_QUESTION]:
            places[row] = None
        disagreeing = []
    first = _numbers_from(predictions.ids[ours]), _numbers_from(list(map(clean_id, asked.ids[theirs])))
    one_off = f"{ours} counts the file's rows from {first[0]}, {theirs} the set's from {first[1]}: is it one off?"
    doubt = one_off if texts is None and first in ((0, 1), (1, 0)) else ""
    return replace(_match(f"{ours} = {theirs}", places, rejected, asked, predictions), doubt=doubt), disagreeing


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", as_text(text).casefold()))


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
    answers = list(map(as_set, predictions.answers or ()))
    rejected: dict[str, list[int]] = {FOREIGN: [], OTHER_ANSWERS: [], AMBIGUOUS: []}
    places: list[int | None] = []
    for row, text in enumerate(predictions.questions or ()):
        of_text = asked.places.get(text_key(text), [])
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
    return _match(by, places, rejected, asked, predictions)


def _by_position(
    predictions: Predictions, asked: Asked, by_position: bool = False, odd: str = "", *, in_order: bool = False
) -> Match:
    """The join by position, which the questions confirm (`in_order`), or gold answers, or else `by_position` says.

    Gold answers confirm it if half the rows have some, all of these fit their own question, and `ENOUGH` would not fit
    the next one: then even of two equally frequent answers, as yes and no, one order in 2 ** ENOUGH fits by chance.
    """
    n, path = len(asked.questions), predictions.path
    add = "write objects with" if predictions.layout in (TEXTS, LINES) else "add a column"
    add += " id, question_id or question"
    if predictions.rows != n:
        raise LongtailError(
            f"{path}: {predictions.rows:,} rows without ids or questions, expected as many as the set has questions "
            f"({n:,}), in its order; {add}"
        )
    answers = list(map(as_set, predictions.answers or [()] * n))
    filled = [row for row in range(n) if answers[row] and asked.answer_sets[row]]
    if (row := next((row for row in filled if not answers[row] & asked.answer_sets[row]), None)) is not None:
        raise LongtailError(
            f"{path}: row {row + 1} has other answers in `{predictions.names['answers']}` than the set's question "
            f"{row + 1} ({asked.questions[row][:80]}), expected the set's order; {add}"
        )
    telling = sum(not answers[row] & asked.answer_sets[(row + 1) % n] for row in filled)
    checked = "questions" if in_order else "answers" if telling >= ENOUGH and 2 * len(filled) >= n else ""
    if predictions.ids and not asked.ids:
        odd = "its ids are not used, as the set has none"
    if not checked and not by_position:
        raise LongtailError(
            f"{path}: no id or question of the set is in it{f' ({odd})' * bool(odd)}, and nothing else confirms that "
            f"its rows are in the set's order; {add}, or say --by-position if they are in that order"
        )
    by = f"{POSITION}, as {f'its {checked} confirm' if checked else '--by-position says'}"
    return _match(f"{by}; {odd}" if odd else by, list(range(n)), {}, asked, predictions)


def _match(
    by: str, places: Sequence[int | None], rejected: dict[str, list[int]], asked: Asked, predictions: Predictions
) -> Match:
    rows_of: dict[int, list[int]] = {}
    for row, place in enumerate(places):
        if place is not None:
            rows_of.setdefault(place, []).append(row)
    said = predictions.correct if predictions.texts is None else predictions.texts
    repeated, rejected[DOUBLED] = [], []
    for rows in rows_of.values() if len(rows_of) < len(places) else ():
        if len({said[row] for row in rows}) == 1:
            repeated += rows[1:]
        else:
            rejected[DOUBLED] += rows
    apart = {*rejected[DOUBLED], *repeated}
    pairs = sorted((place, rows[0]) for place, rows in rows_of.items() if rows[0] not in apart)
    return Match(
        by,
        rows=[row for _, row in pairs],
        questions=[place for place, _ in pairs],
        rejected={why: sorted(of_why) for why, of_why in rejected.items() if of_why},
        missing=[place for place in range(len(asked.questions)) if place not in rows_of],
        repeated=sorted(repeated),
    )
