"""Predictions that other systems wrote: many layouts, read as columns of one form."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.foreign import layouts
from pipelines.foreign.answer_lists import are_answer_lists, read_lists
from pipelines.foreign.cell_values import as_text, clean_id, judgement, number_of
from pipelines.foreign.prediction_texts import UnreadableError, cut_answers, texts_of
from pipelines.foreign.records import RecordFile, read_columns, read_records
from pipelines.sources.question_files import IDS

# Reasoning, or an answer with something before it.
WHOLE_TEXT = re.compile(
    r"</?(?:think|thinking|reasoning|answer|search|information)>|\\boxed\{|.\banswer:",
    re.IGNORECASE | re.DOTALL,
)
IN_BRACKETS = re.compile(r"\{.*\}|\[.*\]", re.DOTALL)
LAYOUT_RECORDS = 100  # records that tell the layout, as the first of all may be an error
ROWS_SHOWN = 5  # in a message
LONG_TEXT = 1000  # characters from which on a text is no answer but says how it was found
# Routes of Adaptive-RAG and tokens of Self-RAG: how often they retrieve.
ROUTES = {"a": 0, "b": 1, "c": 2, "[no retrieval]": 0, "[retrieval]": 1}
TEXT = (
    "expected a text, a list of texts, or an object with `answer`, `text` or an assistant's "
    "`content`"
)
EXPECTED = (
    f"one with what a model said ({', '.join(layouts.PREDICTION)}), or with whether that was right "
    f"({', '.join((*layouts.JUDGED, *layouts.SCORES))})"
)
QUOTING = "hold their question, and perhaps more of the prompt, and all of the text is judged"
PATTERN_ADVICE = (
    "are whole texts of reasoning, or say 'Answer:', where a name that is only mentioned counts; "
    "--answer-pattern '<answer>(.*?)</answer>' or '(?i)answer:(.*)' judges that part alone"
)


@dataclass(frozen=True)
class Predictions:
    """The rows of a file, (rows,) each; a column that the file lacks is None, or has no entry."""

    path: Path
    layout: str  # in words, such as "TSV" or "lm-evaluation-harness' samples"
    rows: int
    names: dict[str, str]  # role, of layouts.ROLES -> the column's name in the file
    ids: dict[str, list[str]]  # column -> ids
    cells: dict[str, list[Any]]  # column -> its cells, as they are in the file
    texts: list[str] | None = None  # what the model said, as NFC, without white space around it
    correct: list[bool] | None = None  # the file's own judgement
    questions: list[str] | None = None
    answers: list[tuple[str, ...]] | None = (
        None  # gold answers in the file; empty where there are none
    )
    calls: list[float] | None = None  # how often the system retrieved, NaN where it is not known
    doubt: list[float] | None = None  # how unsure the system is; infinite where it is not known
    is_cut: bool = False  # whether a pattern cut the predictions out
    described: Sequence[str] = ()  # what the file is and what may surprise about it, in lines

    @property
    def says(self) -> bool:
        """Whether there are predictions or judgements; else there are decisions alone."""
        return self.texts is not None or self.correct is not None

    def column(self, name: str) -> list[str] | None:
        """A column as texts."""
        return list(map(as_text, self.cells[name])) if name in self.cells else None


def read_predictions(
    path: Path, more: Collection[str] = (), pattern: str | None = None
) -> Predictions:
    """The predictions of a file: a table, JSON, JSON lines or Parquet, compressed or not.

    `more` are names of further columns to keep. With RETRIEVED and DOUBT among them, a file that
    has one of these may lack predictions. `pattern` cuts the answers out of longer texts, if any
    text has it; a text without it then is an empty prediction. Raises LongtailError, in one line,
    for a file that has neither predictions nor judgements, has a column twice, or is damaged.
    """
    file = read_records(path, {*layouts.KNOWN, *layouts.FIELDS, *more}, EXPECTED)
    layout, cells = _columns(file, more)
    notes: list[str] = []
    if file.mended:
        notes.append(
            f"{len(file.mended):,} rows have half of a character, as row {file.mended[0]}; "
            "U+FFFD stands for it"
        )

    cells = _first_filter(cells, notes)
    names = _columns_by_role(cells)
    ids = {name: list(map(clean_id, cells[name])) for name in IDS if name in cells}
    correct = None
    if "correct" in names:
        correct = _judgements(path, names["correct"], cells, ids)
        if correct is None:
            del names["correct"]

    numbers = _numbers(cells, notes) if "retrieved" in more else {}
    names |= {role: name for role, (name, _) in numbers.items()}
    if "prediction" not in names and correct is None and not numbers:
        raise LongtailError(
            f"{path}: its columns are {', '.join(file.columns)}, expected {EXPECTED}; rename one"
        )

    predictions = Predictions(
        path=path,
        layout=layout.name or file.kind,
        rows=len(next(iter(cells.values()))),
        names=names,
        ids=ids,
        cells=cells,
        correct=correct,
        calls=numbers["retrieved"][1] if "retrieved" in numbers else None,
        doubt=numbers["doubt"][1] if "doubt" in numbers else None,
    )
    if "question" in names:
        questions = list(map(as_text, cells[names["question"]]))
        predictions = replace(predictions, questions=questions)
    if "prediction" in names:
        texts, is_cut = _texts(predictions, pattern, notes)
        predictions = replace(predictions, texts=texts, is_cut=is_cut)
    if "answers" in names:
        predictions = replace(predictions, answers=_gold_answers(predictions, notes))
    return replace(predictions, described=[_description(predictions, layout), *notes])


def _columns(
    file: RecordFile, more: Collection[str]
) -> tuple[layouts.Layout, dict[str, list[Any]]]:
    """The layout of a file, and the cells of its known columns."""
    first = list(islice(file.records, LAYOUT_RECORDS))
    layout = layouts.layout_of([record for _, record in first])
    records = chain(first, file.records)
    rows = ((number, layouts.flattened(record, layout)) for number, record in records)
    return layout, read_columns(replace(file, records=rows), {*layouts.KNOWN, *more})


def _first_filter(cells: dict[str, list[Any]], notes: list[str]) -> dict[str, list[Any]]:
    """The rows of the first of the harness's filters; a note names the others."""
    filters = list(map(as_text, cells.pop(layouts.FILTER, [])))
    names = list(dict.fromkeys(filters))
    if len(names) < 2:
        return cells
    notes.append(f"of the filters {', '.join(names)}, the responses of {names[0]} are taken")
    is_first = [name == names[0] for name in filters]
    return {name: list(compress(values, is_first)) for name, values in cells.items()}


def _columns_by_role(cells: dict[str, list[Any]]) -> dict[str, str]:
    """Role -> the likeliest of its columns that has something in it."""
    filled = set()
    for name, values in cells.items():
        if any(value not in (None, "") for value in values):
            filled.add(name)

    names = {}
    for role, candidates in layouts.ROLES.items():
        names[role] = next((name for name in candidates if name in filled), "")

    is_judged = not filled.isdisjoint(layouts.JUDGED)
    prediction = names["prediction"]
    if not prediction and not is_judged:
        # An import of judgements has a column of predictions without any text.
        prediction = next((name for name in layouts.PREDICTION if name in cells), "")
    if prediction == "answer" and are_answer_lists(cells["answer"]):
        prediction = ""
    if is_judged and prediction in ("answer", *layouts.CONVERSATION):
        prediction = ""
    names["prediction"] = prediction
    return {role: name for role, name in names.items() if name}


def _judgements(
    path: Path, name: str, columns: dict[str, list[Any]], ids: dict[str, list[str]]
) -> list[bool] | None:
    """What a column says is right.

    None for one of SCORES that is neither true nor false somewhere, as F1 is.
    """
    judged = list(map(judgement, columns[name]))
    known = [value for value in judged if value is not None]
    if len(known) == len(judged):
        return known
    if name in layouts.SCORES:
        return None
    row = judged.index(None)
    key = next(iter(ids.values()))[row] if ids else f"row {row + 1}"
    raise LongtailError(
        f"{path}: {name} of {key} is {as_text(columns[name][row])!r}, expected true or false; "
        "correct it"
    )


def _numbers(cells: dict[str, list[Any]], notes: list[str]) -> dict[str, tuple[str, list[float]]]:
    """Of "retrieved" and "doubt" the likeliest column with numbers, and these numbers."""
    columns = {}
    for name in layouts.RETRIEVED:
        calls = _numbers_of_column(name, cells, calls_of, "decision or number of retrievals", notes)
        if calls and "retrieved" not in columns:
            columns["retrieved"] = (name, calls)
    for name, sign in layouts.DOUBT.items():
        values = _numbers_of_column(name, cells, number_of, "number", notes)
        if values and "doubt" not in columns:
            doubt = [math.inf if math.isnan(value) else sign * value for value in values]
            columns["doubt"] = (name, doubt)
    return columns


def _numbers_of_column(
    name: str, cells: dict[str, list[Any]], parse: Any, expected: str, notes: list[str]
) -> list[float] | None:
    """A column's numbers; None if there are none. A note names a column with something else."""
    values = [parse(cell) for cell in cells.get(name, ())]
    if None in values:
        row = values.index(None)
        shown = as_text(cells[name][row])[:60]
        notes.append(f"`{name}` is left aside: {shown!r} in row {row + 1} is no {expected}")
        return None
    return None if all(map(math.isnan, values)) else values


def calls_of(value: Any) -> float | None:
    """How many retrievals a cell speaks of: 1 for yes, NaN if it is empty, None if of none.

    Adaptive-RAG's route C stands for several retrievals and counts as two. An object is Self-RAG's
    `all_results`: what it wrote without, and with each passage that it read.
    """
    if isinstance(value, dict):
        names = set(value) - {"no_retrieval"}
        if not all(name.startswith("retrieval_") for name in names):
            return None
        return float(bool(names))

    text = as_text(value).lower()
    if text in ROUTES:
        return float(ROUTES[text])
    is_yes = judgement(value)
    number = number_of(value) if is_yes is None else float(is_yes)
    if number is None or number < 0 or number % 1 > 0:
        return None
    return number


@dataclass
class Remarks:
    """What may surprise about predictions: how many rows each remark is of, in the order to
    show.
    """

    lists: int = 0
    begin_with_prompt: int = 0
    quoting: int = 0
    without_match: int = 0
    reasoning: int = 0
    whole_texts: int = 0
    empty: int = 0
    rows_without: list[str] = field(default_factory=list)  # each with its id

    def lines(self, n_rows: int) -> list[str]:
        """A line for each remark that is of some row."""
        shown = ", ".join(self.rows_without[:ROWS_SHOWN])
        if len(self.rows_without) > ROWS_SHOWN:
            shown += f" and {len(self.rows_without) - ROWS_SHOWN:,} more"
        remarks = (
            (self.lists, "are lists; the first text of each is judged"),
            (self.begin_with_prompt, "begin with their prompt; what follows it is judged"),
            (self.quoting, QUOTING),
            (self.without_match, "have nothing that --answer-pattern finds"),
            (self.reasoning, "begin with reasoning; what follows it is judged"),
            (self.whole_texts, PATTERN_ADVICE),
            (self.empty, "are empty, and so wrong"),
            (
                len(self.rows_without),
                "have no answer (null, an error, reasoning, tools or sources), and so are wrong: "
                f"{shown}",
            ),
        )
        return [f"{count:,} of {n_rows:,} predictions {what}" for count, what in remarks if count]


def _texts(
    predictions: Predictions, pattern: str | None, notes: list[str]
) -> tuple[list[str], bool]:
    """What was said, and whether a pattern cut it out of more. Notes say what may surprise."""
    remarks = Remarks()
    texts = _said(predictions, remarks)
    parts = cut_answers(texts, pattern) if pattern else []
    is_cut = any(part is not None for part in parts)
    if is_cut:
        texts = [(part or "").strip() for part in parts]
        remarks.without_match = parts.count(None)
        remarks.quoting = 0
    else:
        split = [reasoning.split(text) for text in texts]
        texts = [answer.strip() for _, answer in split]
        remarks.reasoning = sum(bool(thoughts) for thoughts, _ in split)
        remarks.whole_texts = sum(
            len(text) > LONG_TEXT or bool(WHOLE_TEXT.search(text)) for text in texts
        )
        _refuse_brackets(predictions.path, texts)

    remarks.empty = texts.count("") - len(remarks.rows_without)
    notes += remarks.lines(len(texts))

    used = predictions.names["prediction"]
    others = [name for name in layouts.PREDICTION[:-1] if name in predictions.cells]
    others = [name for name in others if name != used]
    if others:
        notes.append(f"`{'`, `'.join(others)}` may be a prediction too, and is not judged")
    return texts, is_cut


def _said(predictions: Predictions, remarks: Remarks) -> list[str]:
    """What follows the prompt in each row."""
    columns = []
    for role in ("prompt", "question"):
        if role in predictions.names:
            columns.append(list(map(as_text, predictions.cells[predictions.names[role]])))

    keys: list[str] = next(iter(predictions.ids.values()), [])
    texts = []
    for row, value in enumerate(predictions.cells[predictions.names["prediction"]]):
        row_texts = _texts_of_row(predictions.path, row, value)
        if not row_texts:
            key = f" ({keys[row][:80]})" if keys else ""
            remarks.rows_without.append(f"row {row + 1}{key}")
        text = row_texts[0].strip() if row_texts else ""
        # A prompt's name, as `base`, is no prompt.
        prompts = [column[row] for column in columns if " " in column[row]]
        begun_with = [prompt for prompt in prompts if text.startswith(prompt)]
        if begun_with:
            text = text.removeprefix(begun_with[0]).strip()
        texts.append(text)
        remarks.begin_with_prompt += bool(begun_with)
        remarks.quoting += any(prompt in text for prompt in prompts)
        remarks.lists += len(row_texts) > 1

    if len(remarks.rows_without) == len(texts):
        raise LongtailError(
            f"{predictions.path}: no row has an answer, only errors or nothing, expected some; "
            "is it the right file?"
        )

    return texts


def _texts_of_row(path: Path, row: int, value: Any) -> list[str]:
    try:
        return texts_of(value)
    except UnreadableError as error:
        raise LongtailError(
            f"{path}: row {row + 1}: the prediction is {error}, {TEXT}; write that alone"
        ) from None


def _refuse_brackets(path: Path, texts: Sequence[str]) -> None:
    """Raise LongtailError where most predictions are lists or objects that nobody can read."""
    rows = [row for row, text in enumerate(texts) if IN_BRACKETS.fullmatch(text)]
    if 2 * len(rows) > len(texts):
        raise LongtailError(
            f"{path}: row {rows[0] + 1}: the prediction is {texts[rows[0]][:80]}, a list or an "
            f"object that nobody can read for certain, {TEXT}; write JSON"
        )


def _gold_answers(predictions: Predictions, notes: list[str]) -> list[tuple[str, ...]] | None:
    """The gold answers in a file, which only tell questions apart; a note if they can't be read."""
    name = predictions.names["answers"]
    cells = predictions.cells[name]
    try:
        lists = read_lists(cells, f"{predictions.path.name}: {name}")
    except LongtailError as error:
        notes.append(f"the answers that it carries are left aside: {error}")
        return None

    answers = []
    for texts, cell in zip(lists, cells, strict=True):
        if texts is None and name == "reference":  # RAGAS has one text there
            texts = [cell]
        answers.append(tuple(filter(None, map(as_text, texts or ()))))

    return answers


def _description(predictions: Predictions, layout: layouts.Layout) -> str:
    """What a file is, and which columns are what."""
    roles = []
    for role, name in predictions.names.items():
        roles.append(f"{role} in `{layout.columns.get(name, name)}`")
    for name in predictions.ids:
        roles.append(f"ids in `{layout.columns.get(name, name)}`")
    return (
        f"{predictions.path.name}: {predictions.layout}, {predictions.rows:,} rows; "
        f"{', '.join(roles)}"
    )
