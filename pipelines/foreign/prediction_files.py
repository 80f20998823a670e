"""Predictions that other systems wrote: many layouts, read as columns of one form."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import ne
from pathlib import Path
from typing import Any

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.foreign import decisions, layouts
from pipelines.foreign.answer_lists import read_lists, written_value
from pipelines.foreign.cell_values import as_text, clean_id, judgement
from pipelines.foreign.prediction_texts import UnreadableError, cut_answers, texts_of
from pipelines.foreign.record_file import Cells
from pipelines.foreign.records import read_records, showing_columns, to_columns

# Reasoning, or an answer with something before it.
WHOLE_TEXT = re.compile(
    r"</?(?:think|thinking|reasoning|answer|search|information)>|\\boxed\{|.\banswer:",
    re.IGNORECASE | re.DOTALL,
)
IN_BRACKETS = re.compile(r"\{.*\}|\[.*\]", re.DOTALL)
LAYOUT_RECORDS = 100  # records that tell the layout, as the first of all may be an error
ROWS_SHOWN = 5  # in a message
LONG_TEXT = 1000  # characters from which on a text is no answer but says how it was found
TEXT = (
    "expected a text, a list of texts, or an object with `answer`, `text` or an assistant's "
    "`content`"
)
NAMES = ", ".join((*layouts.CLEAR_PREDICTION, layouts.ANSWER))
JUDGEMENTS = ", ".join((*layouts.JUDGED, *layouts.SCORES))
EXPECTED = f"one with what a model said ({NAMES}), or with whether that was right ({JUDGEMENTS})"
# What may surprise about predictions, in the order to show.
LISTS = "are lists; the first text of each is judged"
BEGINNING_WITH_PROMPT = "begin with their prompt; what follows it is judged"
WITHOUT_MATCH = "have nothing that --answer-pattern finds"
REASONING = "begin with reasoning; what follows it is judged"
WHOLE = (
    "are whole texts of reasoning, or say 'Answer:', where a name that is only mentioned counts; "
    "--answer-pattern '<answer>(.*?)</answer>' or '(?i)answer:(.*)' judges that part alone"
)
EMPTY = "are empty, and so wrong"
UNANSWERED = "have no answer (null, an error, reasoning, tools or sources), and so are wrong"
REMARKS = (LISTS, BEGINNING_WITH_PROMPT, WITHOUT_MATCH, REASONING, WHOLE, EMPTY)


@dataclass
class Predictions:
    """The rows of a file, (rows,) each; a column that the file lacks is None, or has no entry."""

    path: Path
    layout: str  # in words, such as "TSV" or "lm-evaluation-harness' samples"
    rows: int
    names: dict[str, str]  # role, of layouts.ROLES, "retrieved" or "doubt" -> the column's name
    ids: dict[str, list[str]]  # column -> ids
    cells: Cells  # column -> its cells, as they are in the file
    texts: list[str] | None = None  # what the model said, as NFC, without white space around it
    correct: list[bool] | None = None  # the file's own judgement
    questions: list[str] | None = None
    answers: list[tuple[str, ...]] | None = None  # gold answers; empty where a row has none
    calls: list[float] | None = None  # how often the system retrieved, NaN where it is not known
    uncertainty: list[float] | None = None  # of the system; infinite where it is not known
    is_cut: bool = False  # whether a pattern cut the predictions out
    paths: Mapping[str, str] = field(default_factory=dict)  # column -> where the layout has it
    shown_columns: str = ""  # all that the file has, as in `RecordFile.shown`
    notes: list[str] = field(default_factory=list)  # what may surprise about the file

    @property
    def says(self) -> bool:
        """Whether there are predictions or judgements; else there are decisions alone."""
        return self.texts is not None or self.correct is not None

    @property
    def keys(self) -> Sequence[str] | None:
        """What names the rows in messages: their ids, or else their questions."""
        return next(iter(self.ids.values()), self.questions)

    def column(self, name: str) -> list[str] | None:
        """A column as texts."""
        return list(map(as_text, self.cells[name])) if name in self.cells else None

    def shown_rows(self, rows: Sequence[int]) -> str:
        """The first few rows, each by its number and its key."""
        names = []
        for row in rows[:ROWS_SHOWN]:
            key = f" ({self.keys[row][:80]})" if self.keys else ""
            names.append(f"row {row + 1}{key}")
        text = ", ".join(names)
        if len(rows) > ROWS_SHOWN:
            text += f" and {len(rows) - ROWS_SHOWN:,} more"
        return text

    @property
    def described(self) -> list[str]:
        """What the file is, which columns are what, and what may surprise about it, in lines."""
        roles = []
        for role, name in [*self.names.items(), *(("ids", name) for name in self.ids)]:
            roles.append(f"{role} in `{self.paths.get(name, name)}`")
        about = f"{self.path.name}: {self.layout}, {self.rows:,} rows"
        return [f"{about}; {', '.join(roles)}", *self.notes]


def read_predictions(
    path: Path, more: Collection[str] = (), pattern: str | None = None
) -> Predictions:
    """The predictions of a file: a table, JSON, JSON lines or Parquet, compressed or not.

    `more` are names of further columns to keep. With RETRIEVED and DOUBT among them, a file that
    has one of these may lack predictions. `pattern` cuts the answers out of longer texts, if any
    text has it; a text without it then is an empty prediction. Raises LongtailError, in one line,
    for a file that has neither predictions nor judgements, has a column twice, or is damaged.
    """
    known = layouts.KNOWN.union(more)
    file = read_records(path, known, EXPECTED)
    with showing_columns(file.shown):
        first = list(islice(file.records, LAYOUT_RECORDS))
        places = layouts.places_of_columns(first, known)
        records = chain(first, file.records)
        cells = to_columns(path, layouts.rows_of_columns(records, places, known), file.notes)
        if "filtered_resps" in cells:
            _check_filter(path, cells.get(layouts.FILTER, []))
        cells = _without_refused_questions(cells, file.notes)
        names = _columns_by_role(cells)
        _cut_questions(cells, names)

        first_column: Sequence[Any] = next(iter(cells.values()), ())
        ids = {name: list(map(clean_id, cells[name])) for name in layouts.IDS if name in cells}
        predictions = Predictions(
            path=path,
            layout=file.kind,
            rows=len(first_column),
            names=names,
            ids=ids,
            cells=cells,
            paths=places,
            shown_columns=file.shown,
            notes=file.notes,
        )
        _read_judgements(predictions)
        if "retrieved" in more:
            predictions.calls = decisions.read_calls(cells, names, file.notes)
            predictions.uncertainty = decisions.read_doubt(cells, names, file.notes)
        if predictions.names.keys().isdisjoint(("prediction", "correct", "retrieved", "doubt")):
            raise LongtailError(
                f"{path}: {file.shown}; expected {EXPECTED}; rename one, of two systems in two "
                "columns in a copy of the file for each"
            )

        if "question" in predictions.names:
            predictions.questions = predictions.column(predictions.names["question"])
        if "prediction" in predictions.names:
            _read_texts(predictions, pattern)
        if "answers" in predictions.names:
            _read_gold_answers(predictions)
        return predictions


def _cut_questions(cells: Cells, names: dict[str, str]) -> None:
    """Cut the questions out of prompts, where no other column has them."""
    name = names.get("question") or names.get("prompt")
    if name not in (layouts.INPUT, *layouts.PROMPT):
        return
    for pattern in layouts.QUESTIONS_IN_PROMPTS:
        matches = [re.match(pattern, as_text(prompt)) for prompt in cells[name]]
        questions = [match[1] for match in matches if match]
        if len(questions) == len(matches):
            names["question"] = "question"
            cells["question"] = questions
            return


def _check_filter(path: Path, filters: Sequence[Any]) -> None:
    """Refuse samples of several filters, as a question then has several predictions."""
    names = list(dict.fromkeys(map(as_text, filters)))
    if len(names) > 1:
        name = shlex.quote(path.name)
        raise LongtailError(
            f"{path}: samples of the filters {', '.join(names)}, expected those of one; "
            f"jq -c 'select(.filter == \"{names[0]}\")' {name} > {shlex.quote('one-' + path.name)}"
        )


def _without_refused_questions(cells: Cells, notes: list[str]) -> Cells:
    """The rows without those that have neither a prediction nor a judgement.

    So this project writes a question that a server refused to answer.
    """
    columns = [cells[name] for name in ("prediction", "correct") if name in cells]
    if len(columns) < 2:
        return cells
    rows = range(len(columns[0]))
    answered = [row for row in rows if any(column[row] is not None for column in columns)]
    if len(answered) in (0, len(rows)):
        return cells
    notes.append(
        f"{len(rows) - len(answered):,} of {len(rows):,} rows have neither a prediction nor a "
        "judgement, as of questions that a server refused, and are left out"
    )
    return {
        name: [cells_of_column[row] for row in answered] for name, cells_of_column in cells.items()
    }


def _columns_by_role(cells: Cells) -> dict[str, str]:
    """Role -> the likeliest of its columns that has something in it."""
    filled = set()
    for name, values in cells.items():
        if any(value not in (None, "") for value in values):
            filled.add(name)

    names = {}
    for role, candidates in layouts.ROLES.items():
        names[role] = next((name for name in candidates if name in filled), "")
    names["prediction"] = _prediction_column(names["prediction"], cells, filled)
    return {role: name for role, name in names.items() if name}


def _prediction_column(likeliest: str, cells: Cells, filled: Collection[str]) -> str:
    """The column of predictions, by the likeliest of the `filled` columns; "" if there is none."""
    is_judged = any(name in filled for name in layouts.JUDGED)
    if is_judged:
        return "" if likeliest in (layouts.ANSWER, *layouts.CONVERSATION) else likeliest
    if not likeliest:
        # An import of judgements has a column of predictions without any text.
        return next((name for name in layouts.PREDICTION if name in cells), "")
    if likeliest == layouts.ANSWER and all(map(_is_list_of_texts, cells[layouts.ANSWER])):
        return ""  # these are gold answers
    return likeliest


def _is_list_of_texts(cell: Any) -> bool:
    value = written_value(cell) if isinstance(cell, str) else cell
    if not isinstance(value, list):
        return False
    return not any(isinstance(part, dict) for part in value)


def _read_judgements(predictions: Predictions) -> None:
    """Read what the file says is right.

    One of SCORES is left aside if it is neither true nor false somewhere, as F1 is; one of JUDGED
    raises LongtailError.
    """
    name = predictions.names.get("correct")
    if not name:
        return
    cells = predictions.cells[name]
    judged = list(map(judgement, cells))
    known = [value for value in judged if value is not None]
    if len(known) == len(judged):
        predictions.correct = known
        return
    if name in layouts.SCORES:
        del predictions.names["correct"]
        return
    row = judged.index(None)
    raise LongtailError(
        f"{predictions.path}: {name} of {predictions.shown_rows([row])} is "
        f"{as_text(cells[row])!r}, expected true or false; correct it"
    )


def _read_texts(predictions: Predictions, pattern: str | None) -> None:
    """Read what was said, cut out by the pattern if any text has it. Notes say what may
    surprise.
    """
    cells = predictions.cells[predictions.names["prediction"]]
    lists = []
    for row, value in enumerate(cells, start=1):
        try:
            lists.append(texts_of(value))
        except UnreadableError as error:
            raise LongtailError(
                f"{predictions.path}: row {row}: the prediction is {error}, {TEXT}; write that "
                "alone"
            ) from None
    unanswered = [row for row, texts_of_row in enumerate(lists) if not texts_of_row]
    if len(unanswered) == len(lists):
        raise LongtailError(
            f"{predictions.path}: no row has an answer, only errors or nothing, expected some; "
            "is it the right file?"
        )
    first_texts = [texts_of_row[0].strip() if texts_of_row else "" for texts_of_row in lists]
    texts = _without_prompts(predictions, first_texts)
    remarks: Counter[str] = Counter()
    remarks[LISTS] = sum(len(texts_of_row) > 1 for texts_of_row in lists)
    remarks[BEGINNING_WITH_PROMPT] = sum(map(ne, texts, first_texts))

    parts = cut_answers(texts, pattern) if pattern else []
    predictions.is_cut = any(part is not None for part in parts)
    if predictions.is_cut:
        texts = [(part or "").strip() for part in parts]
        remarks[WITHOUT_MATCH] = parts.count(None)
    else:
        texts = _without_reasoning(texts, remarks)
        _refuse_brackets(predictions.path, texts)

    remarks[EMPTY] = texts.count("") - len(unanswered)
    for remark in REMARKS:
        if remarks[remark]:
            predictions.notes.append(f"{remarks[remark]:,} of {len(texts):,} predictions {remark}")
    if unanswered:
        predictions.notes.append(
            f"{len(unanswered):,} of {len(texts):,} predictions {UNANSWERED}: "
            f"{predictions.shown_rows(unanswered)}"
        )
    predictions.texts = texts

    unused = predictions.cells.keys() - {predictions.names["prediction"]}
    others = [name for name in layouts.CLEAR_PREDICTION if name in unused]
    if others:
        predictions.notes.append(
            f"`{'`, `'.join(others)}` may be a prediction too, and is not judged"
        )


def _without_prompts(predictions: Predictions, texts: Sequence[str]) -> list[str]:
    """What follows the prompt or the question in each text."""
    remaining = list(texts)
    for role in ("prompt", "question"):
        prompts = predictions.column(predictions.names.get(role, "")) or []
        for row, prompt in enumerate(prompts):
            # A prompt's name, as `base`, is no prompt.
            if " " in prompt and remaining[row].startswith(prompt):
                remaining[row] = remaining[row].removeprefix(prompt).strip()
    return remaining


def _without_reasoning(texts: Sequence[str], remarks: Counter[str]) -> list[str]:
    """What follows the reasoning in each text."""
    answers = []
    for text in texts:
        thoughts, answer = reasoning.split(text)
        answer = answer.strip()
        remarks[REASONING] += bool(thoughts)
        remarks[WHOLE] += len(answer) > LONG_TEXT or bool(WHOLE_TEXT.search(answer))
        answers.append(answer)
    return answers


def _refuse_brackets(path: Path, texts: Sequence[str]) -> None:
    """Raise LongtailError where most predictions are lists or objects that nobody can read."""
    rows = [row for row, text in enumerate(texts) if IN_BRACKETS.fullmatch(text)]
    if 2 * len(rows) > len(texts):
        raise LongtailError(
            f"{path}: row {rows[0] + 1}: the prediction is {texts[rows[0]][:80]}, a list or an "
            f"object that nobody can read for certain, {TEXT}; write JSON"
        )


def _read_gold_answers(predictions: Predictions) -> None:
    """Read the file's gold answers, which only tell questions apart. A note if they can't be read.

    A single text may be several answers, and counts as none; in `reference`, where RAGAS has it,
    it is one.
    """
    name = predictions.names["answers"]
    cells = predictions.cells[name]
    try:
        lists = read_lists(cells, f"{predictions.path.name}: {name}")
    except LongtailError as error:
        predictions.notes.append(f"the answers that it carries are left aside: {error}")
        return

    predictions.answers = []
    for texts, cell in zip(lists, cells, strict=True):
        if texts is None:
            texts = [cell] if name == "reference" else []
        predictions.answers.append(tuple(filter(None, map(as_text, texts))))
