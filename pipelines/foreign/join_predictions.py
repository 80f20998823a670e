"""Which question each row of a file of predictions answers: by id, by its text, or by position.

`joined_checks` says what speaks against the result.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_set, as_text, clean_id, text_key
from pipelines.foreign.prediction_files import Predictions

ENOUGH_ROWS = 20  # that no wrong order fits by chance
# Ids are sparse if their range has so many numbers for each id, or more. Then a match is no
# accident.
NUMBERS_PER_ID = 10
# Why a row has no question.
FOREIGN = "answer no question of the set"
OTHER_QUESTION = "have the id of one question and the text of another"
OTHER_ANSWERS = "have a question's text, but another subject or other answers"
AMBIGUOUS = "could answer several questions of the same text"
WITHOUT_QUESTION = (FOREIGN, OTHER_QUESTION, OTHER_ANSWERS, AMBIGUOUS)
DOUBLED = "answer a question that another row answers otherwise"
REPEATED = "say again what an earlier row says, and count once"
ADD_COLUMN = "add a column id, question_id or question"

# The place of a row's question in the set, or why it has none.
Place = int | str
TwoColumns = tuple[Sequence[str], Sequence[str]]  # the set's and the file's


@dataclass(frozen=True)
class QuestionKeys:
    """What tells the questions of a set apart, (questions,) each, in the set's order, as NFC."""

    questions: Sequence[str]
    answers: Sequence[Sequence[str]]
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # column -> ids
    # the columns of TELLING that the set has
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

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
    warning: str = ""  # what is odd about the ids

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Each row with its question."""
        return zip(self.rows, self.questions, strict=True)

    def described(self, predictions: Predictions) -> list[str]:
        """How the rows were joined and which were left out, in lines."""
        lines = [f"{len(self.rows):,} of {predictions.rows:,} rows joined by {self.by}"]
        for reason, rows in (self.rejected | {REPEATED: self.repeated}).items():
            if rows:
                lines.append(f"rows that {reason} ({len(rows):,}): {predictions.shown_rows(rows)}")
        if self.warning:
            lines.append(self.warning)
        return lines


@dataclass
class IdJoin:
    """What two columns of ids say: a question for each row, and what speaks against them."""

    ours: str  # the file's column
    theirs: str  # the set's column
    places: list[Place]
    compared: int = 0  # rows of which something else than the id could be compared
    contradicted: list[int] = field(default_factory=list)  # those of them that contradict
    warning: str = ""  # what is odd about the ids

    @property
    def is_refuted(self) -> bool:
        """Whether most rows contradict: then the ids are other numbers, such as those of rows."""
        return 2 * len(self.contradicted) > self.compared


def join_predictions(
    predictions: Predictions, asked: QuestionKeys, *, by_position: bool = False
) -> Match:
    """The question that each row answers, if that is beyond doubt.

    Rows are joined by the pair of id columns with the most ids in common, or by the question's text
    if more rows fit that way. An id is not believed where the row carries another question's text,
    and no id is where most rows do: row numbers may be ids by chance. Without ids and texts a file
    is joined by position, if it has as many rows as the set has questions, and either its gold
    answers confirm the order or `by_position` says that it is the set's.

    Rows that fit no question, several, or one that another row answers otherwise, are in
    `rejected`. Raises LongtailError for a file without ids, texts and a known order, or whose ids
    contradict its texts or answers.
    """
    if predictions.questions:
        return _join_with_texts(predictions, predictions.questions, asked)

    ids = _join_by_id(predictions, asked)
    if ids is None:
        warning = "its ids are not used, as the set has none" if predictions.ids else ""
        return _join_by_position(predictions, asked, by_position, warning)

    _compare_answers(ids, predictions, asked)
    if ids.is_refuted:
        raise _contradiction(predictions, ids.contradicted, "answer")
    if ids.warning:
        return _join_by_position(predictions, asked, by_position, ids.warning)
    return _match_of_ids(ids, predictions, asked)


def _join_with_texts(predictions: Predictions, texts: Sequence[str], asked: QuestionKeys) -> Match:
    """The join of a file that has questions: by ids unless more rows fit by their texts."""
    ids = _join_by_id(predictions, asked)
    if ids is None:
        return _join_by_text(predictions, texts, asked)

    _compare_texts(ids, texts, asked)
    if ids.is_refuted:
        by_text = _join_by_text(predictions, texts, asked)
        if not by_text.rows:
            raise _contradiction(predictions, ids.contradicted, "text")
        count = f"{len(ids.contradicted):,} are of questions with other texts"
        return replace(by_text, warning=f"its ids are left aside: {count}")

    by_id = _match_of_ids(ids, predictions, asked)
    if not by_id.rejected:
        return by_id
    by_text = _join_by_text(predictions, texts, asked)
    return by_id if len(by_id.rows) >= len(by_text.rows) else by_text


def _contradiction(predictions: Predictions, rows: Sequence[int], name: str) -> LongtailError:
    first = predictions.shown_rows(rows[:1])
    return LongtailError(
        f"{predictions.path}: {len(rows):,} rows have the id of one question and the {name} of "
        f"another, as {first}; drop the ids if they only number rows, or the {name}s if ids are "
        "right"
    )


def told_by(predictions: Predictions, asked: QuestionKeys) -> dict[str, TwoColumns]:
    """The columns of TELLING that file and set have in the same words: (the set's, the file's)."""
    telling: dict[str, TwoColumns] = {}
    for name, values in asked.columns.items():
        ours = predictions.column(name)
        if not ours:
            continue
        theirs = list(map(as_text, values))
        vocabulary = set(theirs)
        filled = [value for value in ours if value]
        n_shared = sum(value in vocabulary for value in filled)
        if 2 * n_shared > len(filled):
            telling[name] = (theirs, ours)

    return telling


def _join_by_id(predictions: Predictions, asked: QuestionKeys) -> IdJoin | None:
    """The join by the id columns with the most ids in common; None if the file or the set has none.

    Of two pairs with as many, the pair of the same name is taken. Columns of the set with an id
    twice are left out.
    """
    joins = []
    for theirs, values in asked.ids.items():
        place_of: dict[str, Place] = {}
        for place, value in enumerate(values):
            place_of[clean_id(value)] = place
        if len(place_of) < len(values):
            continue
        for ours, ids in predictions.ids.items():
            joins.append(IdJoin(ours, theirs, [place_of.get(id_, FOREIGN) for id_ in ids]))

    def fit(join: IdJoin) -> tuple[int, bool]:
        return -join.places.count(FOREIGN), join.ours == join.theirs

    return max(joins, key=fit, default=None)


def _match_of_ids(ids: IdJoin, predictions: Predictions, asked: QuestionKeys) -> Match:
    return _match(f"{ids.ours} = {ids.theirs}", ids.places, predictions, asked)


def _compare_texts(ids: IdJoin, texts: Sequence[str], asked: QuestionKeys) -> None:
    """Find the rows that have another text than the question of their id.

    Those with the text of another question lose theirs. A text that is none of the set's agrees if
    it has all of the question's words: it may be a whole prompt.
    """
    places = list(ids.places)
    for row, place in enumerate(ids.places):
        if not isinstance(place, int):
            continue
        ids.compared += 1
        text = texts[row]
        question = asked.questions[place]
        if text in ("", question):
            continue

        questions_of_text = asked.places.get(text_key(text), [])
        if questions_of_text:
            if place not in questions_of_text:
                places[row] = OTHER_QUESTION
                ids.contradicted.append(row)
        elif not _words(text).issuperset(_words(question)):
            ids.contradicted.append(row)

    ids.places = places


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _compare_answers(ids: IdJoin, predictions: Predictions, asked: QuestionKeys) -> None:
    """Find what is odd about ids that no text confirms, and the rows with other gold answers."""
    our_first = _first_number(predictions.ids[ids.ours])
    their_first = _first_number(asked.ids[ids.theirs])
    known = [(row, place) for row, place in enumerate(ids.places) if isinstance(place, int)]
    if {our_first, their_first} == {0, 1}:
        ids.warning = (
            f"{ids.ours} counts the file's rows from {our_first}, {ids.theirs} the set's from "
            f"{their_first}: is it one off?"
        )
    elif not known and predictions.rows == len(asked.questions):
        ids.warning = f"its {ids.ours} is none of the set's"
    elif may_match_by_chance(asked.ids[ids.theirs]):
        golds = _golds(predictions)
        for row, place in known:
            if golds[row] and asked.answer_sets[place]:
                ids.compared += 1
                if golds[row].isdisjoint(asked.answer_sets[place]):
                    ids.contradicted.append(row)


def _first_number(ids: Sequence[Any]) -> int | None:
    """The 0 or 1 from which ids count up, in any order; None if they do not."""
    numbers = set(map(clean_id, ids))
    for first in (0, 1):
        if numbers == {str(first + row) for row in range(len(numbers))}:
            return first
    return None


def may_match_by_chance(ids: Sequence[Any]) -> bool:
    """Whether the numbers of rows, or any others, may be these ids by chance."""
    texts = list(map(clean_id, ids))
    if not texts or not all(map(str.isdecimal, texts)):
        return False
    numbers = list(map(int, texts))
    return NUMBERS_PER_ID * len(numbers) > max(numbers) - min(numbers)


def _golds(predictions: Predictions) -> list[frozenset[str]]:
    """The gold answers in each row of the file."""
    if predictions.answers is None:
        return [frozenset()] * predictions.rows
    return [as_set(answers) for answers in predictions.answers]


def _join_by_text(predictions: Predictions, texts: Sequence[str], asked: QuestionKeys) -> Match:
    """The join by text, or by position if all texts are in the set's order.

    The text of a question that several subjects share is told apart by the columns of TELLING and
    by gold answers.
    """
    keys = list(map(text_key, texts))
    if keys == list(map(text_key, asked.questions)):
        return _join_by_position(predictions, asked)

    telling = told_by(predictions, asked)
    golds = _golds(predictions)
    places = []
    for row, key in enumerate(keys):
        same_text = asked.places.get(key, [])
        fitting = same_text
        for theirs, ours in telling.values():
            if ours[row]:  # an empty cell contradicts nothing, here as in the set
                fitting = [place for place in fitting if theirs[place] in ("", ours[row])]
        if golds[row]:
            equal = [place for place in fitting if asked.answer_sets[place] == golds[row]]
            shared = [place for place in fitting if asked.answer_sets[place] & golds[row]]
            fitting = equal or shared
        places.append(_place(fitting, same_text))

    by = ["question", *telling]
    if any(golds):
        by.append("answers")
    return _match(", ".join(by), places, predictions, asked)


def _place(fitting: Sequence[int], same_text: Sequence[int]) -> Place:
    """The one question that fits, or why there is none."""
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        return AMBIGUOUS
    return OTHER_ANSWERS if same_text else FOREIGN


def _join_by_position(
    predictions: Predictions, asked: QuestionKeys, by_position: bool = False, warning: str = ""
) -> Match:
    """The join by position, which questions or gold answers confirm, or `by_position` says.

    Gold answers confirm it if half the rows have some, all of these fit their own question, and
    ENOUGH_ROWS would not fit the next one. Then even of two equally frequent answers, as yes and
    no, one order in 2 ** ENOUGH_ROWS fits by chance.
    """
    n_questions = len(asked.questions)
    if predictions.rows != n_questions:
        raise LongtailError(
            f"{predictions.path}: {predictions.rows:,} rows without ids or questions, expected as "
            f"many as the set has questions ({n_questions:,}), in its order; {ADD_COLUMN}"
        )

    golds = _golds(predictions)
    rights = asked.answer_sets
    filled = [row for row in range(n_questions) if golds[row] and rights[row]]
    n_telling = 0
    for row in filled:
        if golds[row].isdisjoint(rights[row]):
            column = predictions.names["answers"]
            question = f"{row + 1} ({asked.questions[row][:80]})"
            raise LongtailError(
                f"{predictions.path}: row {row + 1} has other answers in `{column}` than the "
                f"set's question {question}, expected the set's order; {ADD_COLUMN}"
            )
        n_telling += golds[row].isdisjoint(rights[(row + 1) % n_questions])

    if predictions.questions:
        confirmed = "its questions confirm"
    elif n_telling >= ENOUGH_ROWS and 2 * len(filled) >= n_questions:
        confirmed = "its answers confirm"
    elif by_position:
        confirmed = "--by-position says"
    else:
        reason = f" ({warning})" if warning else ""
        raise LongtailError(
            f"{predictions.path}: no id or question of the set is in it{reason}, and nothing else "
            f"confirms that its rows are in the set's order; {ADD_COLUMN}, or say --by-position if "
            "they are in that order"
        )

    return _match(f"position, as {confirmed}", range(n_questions), predictions, asked)


def _match(
    by: str, places: Sequence[Place], predictions: Predictions, asked: QuestionKeys
) -> Match:
    """The match by `places`, each row's question or why it has none."""
    rows_of: dict[Place, list[int]] = {}
    for row, place in enumerate(places):
        rows_of.setdefault(place, []).append(row)

    rejected = {reason: rows_of[reason] for reason in WITHOUT_QUESTION if reason in rows_of}
    says = (predictions.texts, predictions.correct, predictions.calls, predictions.uncertainty)
    said = next(column for column in says if column)  # by which two rows say the same or not
    doubled = []
    repeated = []
    questions = []
    missing = []
    for question in range(len(asked.questions)):
        rows = rows_of.get(question, [])
        if not rows:
            missing.append(question)
        elif len({said[row] for row in rows}) > 1:
            doubled += rows
        else:
            questions.append(question)
            repeated += rows[1:]

    if doubled:
        rejected[DOUBLED] = sorted(doubled)
    return Match(
        by=by,
        rows=[rows_of[question][0] for question in questions],
        questions=questions,
        rejected=rejected,
        missing=missing,
        repeated=sorted(repeated),
    )
