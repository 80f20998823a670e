"""Which question each row of a file of predictions answers: by id, by its text, or by position.

`check_joined` says what speaks against the result.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_set, as_text, clean_id, folded, text_key
from pipelines.foreign.layouts import ASKED, TELLING
from pipelines.foreign.prediction_files import Predictions
from pipelines.questions import matching

ROWS_SHOWN = 5  # in a message
# Rows that no order fits by chance, and that no model answers with nothing but gold answers.
ENOUGH_ROWS = 20
# Numbers for each id, in the range of the ids, from which on a number is no id by chance.
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


@dataclass(frozen=True)
class Asked:
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
    doubt: str = ""  # what is odd about the ids

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Each row with its question."""
        return zip(self.rows, self.questions, strict=True)

    def described(self, predictions: Predictions) -> list[str]:
        """How the rows were joined and which were left out, in lines."""
        lines = [f"{len(self.rows):,} of {predictions.rows:,} rows joined by {self.by}"]
        left_out = dict(self.rejected)
        if self.repeated:
            left_out[REPEATED] = self.repeated
        for reason, rows in left_out.items():
            lines.append(f"{len(rows):,} rows {reason}: {shown_rows(predictions, rows)}")
        if self.doubt:
            lines.append(self.doubt)
        return lines


@dataclass(frozen=True)
class IdJoin:
    """A join by two columns of ids, and the (row, question) that contradict it, if most do."""

    match: Match
    contradicting: list[tuple[int, int]]


def join_predictions(predictions: Predictions, asked: Asked, *, by_position: bool = False) -> Match:
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
    id_join = _join_by_id(predictions, asked)
    by_id = id_join.match if id_join else None
    contradicting = id_join.contradicting if id_join else []
    has_texts = bool(predictions.questions)
    if by_id and not contradicting and not by_id.doubt and not (has_texts and by_id.rejected):
        return by_id

    by_text = _join_by_text(predictions, asked) if has_texts else None
    is_question = predictions.names.get("question") in ASKED
    if contradicting and not (by_text and by_text.rows and is_question):
        raise _contradiction(predictions, contradicting)
    if not by_text:
        doubt = "its ids are not used, as the set has none" if predictions.ids else ""
        if by_id:
            doubt = by_id.doubt
        return _join_by_position(predictions, asked, by_position, doubt)
    if contradicting:
        count = f"{len(contradicting):,} are of questions with other texts"
        return replace(by_text, doubt=f"its ids are left aside: {count}")
    if by_id and len(by_id.rows) >= len(by_text.rows):
        return by_id
    return by_text


def _contradiction(predictions: Predictions, contradicting: list[tuple[int, int]]) -> LongtailError:
    first_row, _ = contradicting[0]
    name = "text" if predictions.questions else "answer"
    return LongtailError(
        f"{predictions.path}: {len(contradicting):,} rows have the id of one question and the "
        f"{name} of another, as {shown_rows(predictions, [first_row])}; drop the ids if they only "
        f"number rows, or the {name}s if ids are right"
    )


def check_joined(predictions: Predictions, asked: Asked, match: Match) -> None:
    """Refuse predictions that are gold answers, or most of which are of another subject or
    prompts.
    """
    pairs = list(match.pairs)
    for name, (theirs, ours) in told_by(predictions, asked).items():
        filled = [(row, place) for row, place in pairs if ours[row] and theirs[place]]
        differing = [row for row, place in filled if ours[row] != theirs[place]]
        if 2 * len(differing) > len(filled):
            raise LongtailError(
                f"{predictions.path}: {len(differing):,} rows, joined by {match.by}, have another "
                f"{name} than their question, as {shown_rows(predictions, differing[:1])}; drop "
                "what joins them, and bring ids or questions of this set"
            )

    if predictions.texts is not None:
        _check_texts(predictions, asked, pairs)


def _check_texts(predictions: Predictions, asked: Asked, pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse texts that are all gold answers, or most of which hold their question."""
    said = predictions.texts or []
    texts = [(folded(said[row]), place) for row, place in pairs]
    are_golds = all(text in asked.answer_sets[place] for text, place in texts)
    if len(texts) >= ENOUGH_ROWS and are_golds:
        raise LongtailError(
            f"{predictions.path}: its column {predictions.names['prediction']} holds the gold "
            "answers, expected what a model said; call that column prediction"
        )
    if predictions.is_cut or not asked.questions:
        return
    questions = list(map(folded, asked.questions))
    quoting = 0
    for text, place in texts:
        quoting += " " in questions[place] and questions[place] in text

    if 2 * quoting > len(texts):
        raise LongtailError(
            f"{predictions.path}: {quoting:,} of {len(texts):,} predictions hold their question, "
            "expected what was said alone, not the prompt; --answer-pattern '(?i)answer:(.*)' "
            "judges what follows alone, '(.*)' all of the text"
        )


def judge_predictions(predictions: Predictions, asked: Asked, match: Match) -> list[bool]:
    """Whether each row of `match` is right: as `matching.substring` judges, else as the file
    says.
    """
    if predictions.texts is None:
        correct = predictions.correct or []
        return [correct[row] for row in match.rows]
    judged = []
    for row, place in match.pairs:
        judged.append(matching.substring(predictions.texts[row], asked.answers[place]))
    return judged


def shown_rows(predictions: Predictions, rows: Sequence[int]) -> str:
    """The first few rows, each by its number and its id or question."""
    keys = next(iter(predictions.ids.values()), predictions.questions)
    names = []
    for row in rows[:ROWS_SHOWN]:
        key = f" ({keys[row][:80]})" if keys else ""
        names.append(f"row {row + 1}{key}")
    text = ", ".join(names)
    if len(rows) > ROWS_SHOWN:
        text += f" and {len(rows) - ROWS_SHOWN:,} more"
    return text


def told_by(
    predictions: Predictions, asked: Asked
) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """The columns of TELLING that file and set have in the same words: (the set's, the file's)."""
    telling: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for name in TELLING:
        ours = predictions.column(name)
        if not ours or name not in asked.columns:
            continue
        theirs = list(map(as_text, asked.columns[name]))
        vocabulary = set(theirs)
        filled = [value for value in ours if value]
        n_shared = sum(value in vocabulary for value in filled)
        if 2 * n_shared > len(filled):
            telling[name] = (theirs, ours)

    return telling


def _join_by_id(predictions: Predictions, asked: Asked) -> IdJoin | None:
    """The join by the id columns with the most ids in common; None if the file or the set has none.

    Of two pairs with as many, the pair of the same name is taken. The row's text contradicts an id
    if it is another question of the set. Without texts, where the id may be a row's number, the
    row's gold answers do.
    """
    columns = _places_by_ids(predictions, asked)
    if not columns:
        return None

    def fit(pair: tuple[str, str]) -> tuple[int, bool]:
        return -columns[pair].count(FOREIGN), pair[0] == pair[1]

    ours, theirs = max(columns, key=fit)
    places = columns[ours, theirs]
    pairs = [(row, place) for row, place in enumerate(places) if isinstance(place, int)]
    contradicting: list[tuple[int, int]] = []
    doubt = ""
    if predictions.questions:
        contradicting = _other_texts(predictions.questions, pairs, asked)
        if 2 * len(contradicting) <= len(pairs):
            for row, _ in contradicting:
                if text_key(predictions.questions[row]) in asked.places:
                    places[row] = OTHER_QUESTION
    else:
        doubt = _doubt(predictions, asked, ours, theirs, n_known=len(pairs))
        if not doubt and may_be_numbers(asked.ids[theirs]):
            pairs, contradicting = _other_answers(predictions, pairs, asked)

    match = _match(f"{ours} = {theirs}", places, predictions, asked, doubt)
    if 2 * len(contradicting) <= len(pairs):
        contradicting = []
    return IdJoin(match, contradicting)


def _places_by_ids(predictions: Predictions, asked: Asked) -> dict[tuple[str, str], list[Place]]:
    """For each column of ids of the file and of the set, the rows' places by them."""
    columns: dict[tuple[str, str], list[Place]] = {}
    for theirs, values in asked.ids.items():
        place_of: dict[str, Place] = {clean_id(value): place for place, value in enumerate(values)}
        if len(place_of) < len(values):
            continue
        for ours, ids in predictions.ids.items():
            columns[ours, theirs] = [place_of.get(id_, FOREIGN) for id_ in ids]
    return columns


def _doubt(predictions: Predictions, asked: Asked, ours: str, theirs: str, n_known: int) -> str:
    """What is odd about two columns of ids, of which so many are the same; "" for nothing."""
    our_first = _numbers_from(predictions.ids[ours])
    their_first = _numbers_from(asked.ids[theirs])
    if {our_first, their_first} == {0, 1}:
        return (
            f"{ours} counts the file's rows from {our_first}, {theirs} the set's from "
            f"{their_first}: is it one off?"
        )
    if not n_known and predictions.rows == len(asked.questions):
        return f"its {ours} is none of the set's"
    return ""


def _numbers_from(ids: Sequence[Any]) -> int | None:
    """The 0 or 1 from which ids count up, in any order; None if they do not."""
    numbers = set(map(clean_id, ids))
    for first in (0, 1):
        if numbers == {str(first + row) for row in range(len(numbers))}:
            return first
    return None


def may_be_numbers(ids: Sequence[Any]) -> bool:
    """Whether the numbers of rows, or any others, may be these ids by chance."""
    numbers = [int(id_) for id_ in map(clean_id, ids) if id_.isdecimal()]
    if len(numbers) < len(ids):
        return False
    if not numbers:
        return False
    return NUMBERS_PER_ID * len(numbers) > max(numbers) - min(numbers)


def _other_texts(
    texts: Sequence[str], pairs: Sequence[tuple[int, int]], asked: Asked
) -> list[tuple[int, int]]:
    """The pairs of which the row has another question's text.

    A text that is none of the set's agrees if it has all of the question's words: it may be a whole
    prompt.
    """
    contradicting = []
    for row, place in pairs:
        text = texts[row]
        if text in ("", asked.questions[place]):
            continue
        places = asked.places.get(text_key(text))
        if places:
            agrees = place in places
        else:
            words = set(re.findall(r"\w+", text.casefold()))
            agrees = words.issuperset(re.findall(r"\w+", asked.questions[place].casefold()))
        if not agrees:
            contradicting.append((row, place))

    return contradicting


def _other_answers(
    predictions: Predictions, pairs: Sequence[tuple[int, int]], asked: Asked
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The pairs that have gold answers on both sides, and those of them with none in common."""
    golds = _golds(predictions)
    rights = asked.answer_sets
    answered = [(row, place) for row, place in pairs if golds[row] and rights[place]]
    return answered, [pair for pair in answered if golds[pair[0]].isdisjoint(rights[pair[1]])]


def _golds(predictions: Predictions) -> list[frozenset[str]]:
    """The gold answers in each row of the file."""
    if predictions.answers is None:
        return [frozenset()] * predictions.rows
    return [as_set(answers) for answers in predictions.answers]


def _join_by_text(predictions: Predictions, asked: Asked) -> Match:
    """The join by text, or by position if all texts are in the set's order.

    The text of a question that several subjects share is told apart by the columns of TELLING and
    by gold answers.
    """
    keys = list(map(text_key, predictions.questions or ()))
    if keys == list(map(text_key, asked.questions)):
        return _join_by_position(predictions, asked)

    telling = told_by(predictions, asked)
    golds = _golds(predictions)
    places = []
    for row, key in enumerate(keys):
        same_text = asked.places.get(key, [])
        fitting = same_text
        for theirs, ours in telling.values():
            fitting = [place for place in fitting if _agree(ours[row], theirs[place])]
        if golds[row]:
            equal = [place for place in fitting if asked.answer_sets[place] == golds[row]]
            shared = [place for place in fitting if asked.answer_sets[place] & golds[row]]
            fitting = equal or shared
        places.append(_place(fitting, same_text))

    by = ["question", *telling]
    if any(golds):
        by.append("answers")
    return _match(", ".join(by), places, predictions, asked)


def _agree(ours: str, theirs: str) -> bool:
    """Whether two cells say the same, or one of them nothing."""
    return not ours or theirs in ("", ours)


def _place(fitting: Sequence[int], same_text: Sequence[int]) -> Place:
    """The one question that fits, or why there is none."""
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        return AMBIGUOUS
    return OTHER_ANSWERS if same_text else FOREIGN


def _join_by_position(
    predictions: Predictions, asked: Asked, by_position: bool = False, doubt: str = ""
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
            raise LongtailError(
                f"{predictions.path}: row {row + 1} has other answers in "
                f"`{predictions.names['answers']}` than the set's question {row + 1} "
                f"({asked.questions[row][:80]}), expected the set's order; {ADD_COLUMN}"
            )
        n_telling += golds[row].isdisjoint(rights[(row + 1) % n_questions])

    if predictions.questions:
        confirmed = "its questions confirm"
    elif n_telling >= ENOUGH_ROWS and 2 * len(filled) >= n_questions:
        confirmed = "its answers confirm"
    elif by_position:
        confirmed = "--by-position says"
    else:
        reason = f" ({doubt})" if doubt else ""
        raise LongtailError(
            f"{predictions.path}: no id or question of the set is in it{reason}, and nothing else "
            f"confirms that its rows are in the set's order; {ADD_COLUMN}, or say --by-position if "
            "they are in that order"
        )

    return _match(f"position, as {confirmed}", range(n_questions), predictions, asked)


def _match(
    by: str, places: Sequence[Place], predictions: Predictions, asked: Asked, doubt: str = ""
) -> Match:
    """The match by `places`, each row's question or why it has none."""
    rows_of: dict[Place, list[int]] = {}
    for row, place in enumerate(places):
        rows_of.setdefault(place, []).append(row)

    rejected = {reason: rows_of.pop(reason, []) for reason in WITHOUT_QUESTION}

    columns = (predictions.texts, predictions.correct, predictions.calls, predictions.doubt)
    said = next(column for column in columns if column)
    doubled = set()
    for place, rows in rows_of.items():
        if len({said[row] for row in rows}) > 1:
            doubled.add(place)

    rejected[DOUBLED] = []
    repeated = []
    questions = []
    answered = sorted(place for place in rows_of if isinstance(place, int))
    for place in answered:
        if place in doubled:
            rejected[DOUBLED] += rows_of[place]
        else:
            questions.append(place)
            repeated += rows_of[place][1:]

    rejected[DOUBLED].sort()
    return Match(
        by=by,
        rows=[rows_of[place][0] for place in questions],
        questions=questions,
        rejected={reason: rows for reason, rows in rejected.items() if rows},
        missing=[place for place in range(len(asked.questions)) if place not in rows_of],
        repeated=sorted(repeated),
        doubt=doubt,
    )
