"""Which question each row of a file of predictions answers: by id, by the question's text, or by position.

`check_joined` says what speaks against the result.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_set, as_text, clean_id, folded, text_key
from pipelines.foreign.layouts import QUESTION, TELLING
from pipelines.foreign.prediction_files import Predictions
from pipelines.questions import matching
from pipelines.sources.mentions import Names

SHOWN = 5  # rows in a message
ENOUGH = (
    20  # rows that no order fits by chance, and that no model answers with nothing but gold answers
)
SPARSE = (
    10  # numbers for each id, in the range of the ids, from which on a number is no id by chance
)
POSITION = "position"
FOREIGN = "answer no question of the set"
OTHER_QUESTION = "have the id of one question and the text of another"
OTHER_ANSWERS = "have a question's text, but another subject or other answers"
AMBIGUOUS = "could answer several questions of the same text"
WITHOUT = (FOREIGN, OTHER_QUESTION, OTHER_ANSWERS, AMBIGUOUS)  # why a row has no question
DOUBLED = "answer a question that another row answers otherwise"
AGAIN = "say again what an earlier row says, and count once"


@dataclass(frozen=True)
class Asked:
    """What tells the questions of a set apart, (questions,) each, in the set's order. Texts are NFC."""

    questions: Sequence[str]
    answers: Sequence[Sequence[str]]
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # column -> ids
    columns: Mapping[str, Sequence[Any]] = field(
        default_factory=dict
    )  # the columns of TELLING that the set has

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Question's `text_key` -> the questions that have it."""
        places: dict[str, list[int]] = {}
        for place, text in enumerate(self.questions):
            places.setdefault(text_key(text), []).append(place)
        return places

    @cached_property
    def long_keys(self) -> tuple[list[str], Names]:
        """The keys of `places` that no longer text holds by chance, and how to find them."""
        keys = [key for key in self.places if key.count(" ") >= 2]
        return keys, Names(keys)

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

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Each row with its question."""
        return zip(self.rows, self.questions, strict=True)

    def described(self, predictions: Predictions) -> list[str]:
        """How the rows were joined and which were left out, in lines."""
        lines = [f"{len(self.rows):,} of {predictions.rows:,} rows joined by {self.by}"]
        left_out = self.rejected | ({AGAIN: self.repeated} if self.repeated else {})
        lines += [
            f"{len(rows):,} rows {why}: {shown_rows(predictions, rows)}"
            for why, rows in left_out.items()
        ]
        return lines + [self.doubt] * bool(self.doubt)


def join_predictions(predictions: Predictions, asked: Asked, *, by_position: bool = False) -> Match:
    """The question that each row answers, if that is beyond doubt.

    Rows are joined by the pair of id columns with the most ids in common, or by the question's text if more rows fit
    that way. An id is not believed where the row carries another question's text, and no id is where most rows do: row
    numbers may be ids by chance. Without ids and texts a file is joined by position, if it has as many rows as the set
    has questions, and either its gold answers confirm the order or `by_position` says that it is the set's.

    Rows that fit no question, several, or one that another row answers otherwise, are in `rejected`. LongtailError for
    a file without ids, texts and a known order, or whose ids contradict its texts or answers.
    """
    texts = predictions.questions
    by_id, other = _by_id(predictions, asked)
    if by_id and not (other or by_id.doubt or (texts and by_id.rejected)):
        return by_id
    by_text = _by_text(predictions, asked) if texts else None
    if other and not (by_text and by_text.rows and predictions.names.get("question") in QUESTION):
        row, name = other[0][0], "text" if texts else "answer"
        raise LongtailError(
            f"{predictions.path}: {len(other):,} rows have the id of one question and the {name} of another, as "
            f"{shown_rows(predictions, [row])}; drop the ids if they only number rows, or the {name}s if ids are right"
        )
    if not by_text:
        no_ids = "its ids are not used, as the set has none" if predictions.ids else ""
        return _by_position(predictions, asked, by_position, by_id.doubt if by_id else no_ids)
    if other:
        return replace(
            by_text,
            doubt=f"its ids are left aside: {len(other):,} are of questions with other texts",
        )
    return by_id if by_id and len(by_id.rows) >= len(by_text.rows) else by_text


def check_joined(predictions: Predictions, asked: Asked, match: Match) -> None:
    """Raise LongtailError where predictions are gold answers, or most are of another subject or hold their question."""
    path, pairs = predictions.path, list(match.pairs)
    for name, (theirs, ours) in told_by(predictions, asked).items():
        filled = [(row, place) for row, place in pairs if ours[row] and theirs[place]]
        other = [row for row, place in filled if ours[row] != theirs[place]]
        if 2 * len(other) > len(filled):
            raise LongtailError(
                f"{path}: {len(other):,} rows, joined by {match.by}, have another {name} than their question, as "
                f"{shown_rows(predictions, other[:1])}; drop what joins them, and bring ids or questions of this set"
            )
    if predictions.texts is None:
        return
    said = [(folded(predictions.texts[row]), place) for row, place in pairs]
    if len(said) >= ENOUGH and all(text in asked.answer_sets[place] for text, place in said):
        raise LongtailError(
            f"{path}: its column {predictions.names['prediction']} holds the gold answers, expected what a model said; "
            "call that column prediction"
        )
    asks = list(map(folded, asked.questions))
    quoting = sum(" " in asks[place] and asks[place] in text for text, place in said) if asks else 0
    if 2 * quoting > len(said) and not predictions.is_cut:
        raise LongtailError(
            f"{path}: {quoting:,} of {len(said):,} predictions hold their question, expected what was said alone, not "
            "the prompt; --answer-pattern '(?i)answer:(.*)' judges what follows alone, '(.*)' all of the text"
        )


def judge_predictions(predictions: Predictions, asked: Asked, match: Match) -> list[bool]:
    """Whether each row of `match` is right: its prediction as `matching.substring` judges, else as the file says."""
    if predictions.texts is None:
        return [predictions.correct[row] for row in match.rows]
    return [
        matching.substring(predictions.texts[row], asked.answers[place])
        for row, place in match.pairs
    ]


def may_be_numbers(ids: Sequence[Any]) -> bool:
    """Whether the numbers of rows, or any others, may be these ids by chance."""
    numbers = [int(id_) for id_ in map(clean_id, ids) if id_.isdecimal()]
    return len(numbers) == len(ids) and SPARSE * len(numbers) > max(numbers, default=0) - min(
        numbers, default=0
    )


def _golds(predictions: Predictions) -> list[frozenset[str]]:
    return [as_set(answers) for answers in predictions.answers or [()] * predictions.rows]


def shown_rows(predictions: Predictions, rows: Sequence[int]) -> str:
    """The first few rows, each by its number and its id or question."""
    keys = next(iter(predictions.ids.values()), predictions.questions)
    names = [f"row {row + 1}" + (f" ({keys[row][:80]})" if keys else "") for row in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return ", ".join(names) + more


def _by_id(predictions: Predictions, asked: Asked) -> tuple[Match | None, list[tuple[int, int]]]:
    """The join by the id columns with the most ids in common; None if the file or the set has no ids.

    Of two pairs with as many, the pair of the same name is taken. Second come the (row, question) that contradict each
    other, if most do: by the row's text, or without texts by its gold answers where the id may be a row's number. A
    text that is none of the set's agrees if it has all of the question's words: it may be a whole prompt.
    """
    columns: dict[tuple[str, str], list[int | str]] = {}
    for theirs, values in asked.ids.items():
        known = {clean_id(id_): place for place, id_ in enumerate(values)}
        if len(known) == len(values):
            for ours, ids in predictions.ids.items():
                columns[ours, theirs] = [known.get(id_, FOREIGN) for id_ in ids]
    if not columns:
        return None, []
    ours, theirs = max(
        columns, key=lambda pair: (-columns[pair].count(FOREIGN), pair[0] == pair[1])
    )
    places, texts, other, doubt = columns[ours, theirs], predictions.questions, [], ""
    pairs = [(row, place) for row, place in enumerate(places) if place != FOREIGN]
    first = _numbers_from(predictions.ids[ours]), _numbers_from(asked.ids[theirs])
    if texts:
        other = [(row, place) for row, place in pairs if _contradicts(texts[row], place, asked)]
        for row, _ in other if 2 * len(other) <= len(pairs) else ():
            if text_key(texts[row]) in asked.places:
                places[row] = OTHER_QUESTION
    elif first in ((0, 1), (1, 0)):
        doubt = f"{ours} counts the file's rows from {first[0]}, {theirs} the set's from {first[1]}: is it one off?"
    elif not pairs and len(places) == len(asked.questions):
        doubt = f"its {ours} is none of the set's"
    elif may_be_numbers(asked.ids[theirs]):
        golds, rights = _golds(predictions), asked.answer_sets
        pairs = [(row, place) for row, place in pairs if golds[row] and rights[place]]
        other = [(row, place) for row, place in pairs if golds[row].isdisjoint(rights[place])]
    match = _match(f"{ours} = {theirs}", places, predictions, asked, doubt)
    return match, other if 2 * len(other) > len(pairs) else []


def _contradicts(text: str, place: int, asked: Asked) -> bool:
    """Whether a text is another question than this one of the set, and no prompt that may hold it."""
    if text in ("", asked.questions[place]):
        return False
    if of_text := asked.places.get(text_key(text)):
        return place not in of_text
    words, of_question = (
        set(re.findall(r"\w+", said.casefold())) for said in (text, asked.questions[place])
    )
    return not of_question <= words


def _numbers_from(ids: Sequence[Any]) -> int | None:
    """The 0 or 1 from which ids count up, in any order; None if they do not."""
    numbers = set(map(clean_id, ids))
    return next(
        (n for n in (0, 1) if numbers == {str(n + row) for row in range(len(numbers))}), None
    )


def _by_text(predictions: Predictions, asked: Asked) -> Match:
    """The join by text, or by position if all texts are in the set's order.

    The text of a question that several subjects share is told apart by the columns of TELLING and by answer lists.
    """
    keys = list(map(text_key, predictions.questions or ()))
    if keys == list(map(text_key, asked.questions)):
        return _by_position(predictions, asked)
    telling = told_by(predictions, asked)
    golds = _golds(predictions)
    places: list[int | str] = []
    for row, key in enumerate(keys):
        fits = of_text = asked.places.get(key, [])
        for theirs, ours in telling.values() if of_text else ():
            fits = [place for place in fits if not ours[row] or theirs[place] in ("", ours[row])]
        if golds[row]:
            equal = [place for place in fits if asked.answer_sets[place] == golds[row]]
            fits = equal or [place for place in fits if asked.answer_sets[place] & golds[row]]
        places.append(
            fits[0]
            if len(fits) == 1
            else AMBIGUOUS
            if fits
            else OTHER_ANSWERS
            if of_text
            else FOREIGN
        )
    return _match(
        ", ".join(["question", *telling, *["answers"] * any(golds)]), places, predictions, asked
    )


def told_by(
    predictions: Predictions, asked: Asked
) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """The columns of TELLING that file and set have in the same words: (the set's texts, the file's texts)."""
    telling: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for name in TELLING:
        if name in asked.columns and (ours := predictions.column(name)):
            theirs = list(map(as_text, asked.columns[name]))
            known, filled = set(theirs), [value for value in ours if value]
            if 2 * sum(value in known for value in filled) > len(filled):
                telling[name] = theirs, ours
    return telling


def _by_position(
    predictions: Predictions, asked: Asked, by_position: bool = False, odd: str = ""
) -> Match:
    """The join by position, which the questions confirm, if there are any, or gold answers, or else `by_position` says.

    Gold answers confirm it if half the rows have some, all of these fit their own question, and `ENOUGH` would not fit
    the next one: then even of two equally frequent answers, as yes and no, one order in 2 ** ENOUGH fits by chance.
    """
    n, path, golds, rights = (
        len(asked.questions),
        predictions.path,
        _golds(predictions),
        asked.answer_sets,
    )
    add = "add a column id, question_id or question"
    if predictions.rows != n:
        raise LongtailError(
            f"{path}: {predictions.rows:,} rows without ids or questions, expected as many as the set has questions "
            f"({n:,}), in its order; {add}"
        )
    filled = [row for row in range(n) if golds[row] and rights[row]]
    if other := [row for row in filled if golds[row].isdisjoint(rights[row])]:
        raise LongtailError(
            f"{path}: row {other[0] + 1} has other answers in `{predictions.names['answers']}` than the set's question "
            f"{other[0] + 1} ({asked.questions[other[0]][:80]}), expected the set's order; {add}"
        )
    telling = sum(golds[row].isdisjoint(rights[(row + 1) % n]) for row in filled)
    if predictions.questions:
        said = "its questions confirm"
    elif telling >= ENOUGH and 2 * len(filled) >= n:
        said = "its answers confirm"
    elif by_position:
        said = "--by-position says"
    else:
        raise LongtailError(
            f"{path}: no id or question of the set is in it{f' ({odd})' * bool(odd)}, and nothing else confirms that "
            f"its rows are in the set's order; {add}, or say --by-position if they are in that order"
        )
    return _match(f"{POSITION}, as {said}", range(n), predictions, asked)


def _match(
    by: str, places: Sequence[int | str], predictions: Predictions, asked: Asked, doubt: str = ""
) -> Match:
    """The match by `places`: each row's question, or which of WITHOUT it is."""
    rows_of: dict[int | str, list[int]] = {}
    for row, place in enumerate(places):
        rows_of.setdefault(place, []).append(row)
    rejected = {why: rows_of.pop(why, []) for why in WITHOUT}
    said = next(
        of
        for of in (predictions.texts, predictions.correct, predictions.calls, predictions.doubt)
        if of
    )
    doubled = {place for place, rows in rows_of.items() if len({said[row] for row in rows}) > 1}
    rejected[DOUBLED] = sorted(row for place in doubled for row in rows_of[place])
    once = sorted(rows_of.keys() - doubled)
    return Match(
        by,
        rows=[rows_of[place][0] for place in once],
        questions=once,
        rejected={why: rows for why, rows in rejected.items() if rows},
        missing=[place for place in range(len(asked.questions)) if place not in rows_of],
        repeated=sorted(row for place in once for row in rows_of[place][1:]),
        doubt=doubt,
    )
