"""Predictions that other people's systems wrote: many layouts, read as columns of one form."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.foreign import layouts
from pipelines.foreign.cell_values import (
    are_answer_lists,
    as_text,
    clean_id,
    composed,
    judgement,
    number_of,
    read_lists,
    written_list,
)
from pipelines.foreign.records import LINES, columns_of, listed, plain, read_any_records
from pipelines.sources.streams import parse_json

REASONING = re.compile(  # or an answer with something before it
    r"</?(?:think|thinking|reasoning|answer|search|information)>|\\boxed\{|.\banswer:",
    re.IGNORECASE | re.DOTALL,
)
BRACKETS = re.compile(r"\{.*\}|\[.*\]", re.DOTALL)  # around all of a text
FIRST = 100  # records that tell the layout, as the first of all may be an error
SHOWN = 5  # rows in a message
LONG = 1000  # characters from which on a text is no answer but says how it was found
QUOTING = "hold their question, and perhaps more of the prompt, and all of the text is judged"
WHOLE = "are whole texts of reasoning, or say 'Answer:', where a name that is only mentioned counts; --answer-pattern "
WHOLE += "'<answer>(.*?)</answer>' or '(?i)answer:(.*)' judges that part alone"
ROUTES = {
    "a": 0,
    "b": 1,
    "c": 2,
    "[no retrieval]": 0,
    "[retrieval]": 1,
}  # of Adaptive-RAG, and Self-RAG's tokens
NUMBERS = {"retrieved": "decision or number of retrievals", "doubt": "number"}
TEXT = "expected a text, a list of texts, or an object with `answer`, `text` or an assistant's `content`"
EXPECTED = (
    f"one with what a model said ({', '.join(layouts.PREDICTION)}), or with whether that was right "
    f"({', '.join((*layouts.JUDGED, *layouts.SCORES))})"
)
PARTS = ("content", "parts")  # fields whose list is one text in parts, not several answers
# Fields that hold an answer, or an object with one, the likeliest first. OpenAI's Responses API has a setting `text`.
FIELDS = (
    "answer",
    *layouts.PREDICTION[:-1],
    "choices",
    "candidates",
    "message",
    "body",
    *PARTS,
    "text",
    "result",
)
FIELDS += ("answers", "value", "data")
# Fields of an object that holds no answer, because a request failed or a system gave nothing but sources.
NO_ANSWER = {
    "id",
    "index",
    "type",
    "object",
    "code",
    "status",
    "status_code",
    "param",
    "request_id",
    "stop_reason",
}
NO_ANSWER |= {"provenance", "meta", "metadata", "usage", "finish_reason", "logprobs"}
NOT_SAID = re.compile(
    "think|thought|reason|tool|function|_call|refus|image|audio|input_text", re.IGNORECASE
)
ASSISTANT = ("assistant", "model", "ai", "gpt", "bot")
OTHERS = ("human", "user", "system", "developer", "tool", "function")
OBJECT = (
    re.compile(  # as programs begin to write one, and as Python and JavaScript write one in a text
        r"\"?[\[(\s]*(?:\{\s*(?:\\*([\"'])[^\"'{}]*\1\s*(?::|=>)|:?\w+=)"
        r"|[A-Z]\w+\(\s*\w+=|content=['\"]|<[\w.]+ object at 0x|\[object Object\])"
    )
)


@dataclass(frozen=True)
class Predictions:
    """The rows of a file, (rows,) each; a column that the file lacks is None or not in its dictionary."""

    path: Path
    layout: str  # in words, such as "TSV" or "lm-evaluation-harness' samples"
    rows: int
    names: dict[str, str]  # one of prediction_layouts.ROLES -> the column's name in the file
    texts: list[str] | None  # what the model said, as NFC, without white space around it
    correct: list[bool] | None  # the file's own judgement
    ids: dict[str, list[str]]  # column -> ids
    questions: list[str] | None
    answers: (
        list[tuple[str, ...]] | None
    )  # the gold answers that the file carries; empty where it has none
    calls: list[float] | None  # how often the system retrieved, NaN where it is not known
    doubt: (
        list[float] | None
    )  # how unsure the system is, in whatever unit; infinite where it is not known
    cells: dict[str, list[Any]]  # column -> its cells, as they are in the file
    is_cut: bool  # whether a pattern cut the predictions out
    described: list[
        str
    ]  # what the file is and what may surprise about it, in lines for the one who brought it

    @property
    def says(self) -> bool:
        """Whether there are predictions or judgements; else there are decisions alone."""
        return self.texts is not None or self.correct is not None

    def column(self, name: str) -> list[str] | None:
        """A column as texts."""
        return list(map(as_text, self.cells[name])) if name in self.cells else None


def read_predictions(
    path: Path, more: Collection[str] = (), pattern: str | None = None, questions: int | None = None
) -> Predictions:
    """The predictions of a file: a table, JSON, JSON lines, lines of text or Parquet, compressed or not.

    `more` are names of further columns to keep; with RETRIEVED and DOUBT among them, a file that has one of these may
    lack predictions. An empty line at a text's end is a prediction if there is one for each of the `questions` then.
    `pattern` cuts the answers out of longer texts, if any text has it; a text without it then is an empty prediction.
    Raises LongtailError, in one line, for a file that has neither predictions nor judgements, has a column twice or
    none below its header, or is damaged.
    """
    kind, header, records = read_any_records(
        path, {*layouts.KNOWN, *layouts.FIELDS, *more}, EXPECTED
    )
    first = list(islice(records, FIRST))
    layout = layouts.layout_of([record for _, record in first])
    rows = ((number, layouts.flattened(row, layout)) for number, row in chain(first, records))
    cells, notes = columns_of(path, rows, {*layouts.KNOWN, *more}), []
    if (
        kind == LINES
    ):  # empty lines at the end are predictions only where there are questions for them
        while len(cells["prediction"]) != questions and cells["prediction"][-1] in ("", "\r"):
            cells["prediction"].pop()
    filters = list(map(as_text, cells.pop(layouts.FILTER, [])))
    if (
        len(several := list(dict.fromkeys(filters))) > 1
    ):  # the harness writes a sample once for each of its filters
        chosen = [name == several[0] for name in filters]
        cells = {name: list(compress(values, chosen)) for name, values in cells.items()}
        notes.append(
            f"of the filters {', '.join(several)}, the responses of {several[0]} are taken"
        )
    names = _columns_by_role(cells)
    ids = {name: list(map(clean_id, cells[name])) for name in layouts.IDS if name in cells}
    correct = _judgements(path, names["correct"], cells, ids) if "correct" in names else None
    numbers = _numbers(cells, notes) if "retrieved" in more else {}
    names |= {role: name for role, (name, _) in numbers.items()}
    if "prediction" not in names and correct is None and not numbers:
        raise LongtailError(
            f"{path}: its columns are {listed(header)}, expected {EXPECTED}; rename one"
        )
    if not correct:
        names.pop("correct", None)
    texts, is_cut = None, False
    if "prediction" in names:
        asked = [
            list(map(as_text, cells[names[role]]))
            for role in ("prompt", "question")
            if role in names
        ]
        said = cells[names["prediction"]]
        texts, is_cut, about_texts = _texts(
            path, said, asked, next(iter(ids.values()), []), pattern
        )
        notes += about_texts
        others = [
            name
            for name in layouts.PREDICTION[:-1]
            if name in cells and name != names["prediction"]
        ]
        notes += [f"`{'`, `'.join(others)}` may be a prediction too, and is not judged"] * bool(
            others
        )
    answers = _carried_answers(path, names["answers"], cells, notes) if "answers" in names else None
    count = len(next(iter(cells.values())))
    kind = layout.name or kind
    columns = [f"{role} in `{layout.columns.get(name, name)}`" for role, name in names.items()]
    columns += [f"ids in `{layout.columns.get(name, name)}`" for name in ids]
    return Predictions(
        path=path,
        layout=kind,
        rows=count,
        names=names,
        texts=texts,
        correct=correct,
        ids=ids,
        questions=list(map(as_text, cells[names["question"]])) if "question" in names else None,
        answers=answers,
        calls=numbers.get("retrieved", ("", None))[1],
        doubt=numbers.get("doubt", ("", None))[1],
        cells=cells,
        is_cut=is_cut,
        described=[f"{path.name}: {kind}, {count:,} rows; {', '.join(columns)}", *notes],
    )


def _columns_by_role(cells: dict[str, list[Any]]) -> dict[str, str]:
    """Role -> the likeliest of its columns that has something in it; columns of predictions as the comments say."""
    filled = {
        name for name, values in cells.items() if any(value not in (None, "") for value in values)
    }
    found = {
        role: next((n for n in names if n in filled), "") for role, names in layouts.ROLES.items()
    }
    judged = not filled.isdisjoint(layouts.JUDGED)
    if not found["prediction"] and not judged:  # an import of judgements has one without any text
        found["prediction"] = next((name for name in layouts.PREDICTION if name in cells), "")
    gold = found["prediction"] == "answer" and are_answer_lists(cells["answer"])
    if gold or (judged and found["prediction"] in ("answer", *layouts.CONVERSATION)):
        found["prediction"] = ""
    return {role: name for role, name in found.items() if name}


def _numbers(cells: dict[str, list[Any]], notes: list[str]) -> dict[str, tuple[str, list[float]]]:
    """Of "retrieved" and "doubt": the likeliest of its columns, and its numbers. A note names one that has none."""
    found: dict[str, tuple[str, list[float]]] = {}
    for role, name in (
        *(("retrieved", name) for name in layouts.RETRIEVED),
        *(("doubt", of) for of in layouts.DOUBT),
    ):
        values = list(map(calls_of if role == "retrieved" else number_of, cells.get(name, ())))
        if None in values:
            said = as_text(cells[name][values.index(None)])[:60]
            notes.append(
                f"`{name}` is left aside: {said!r} in row {values.index(None) + 1} is no {NUMBERS[role]}"
            )
        elif role not in found and not all(map(math.isnan, values)):
            values = (
                values if role == "retrieved" else [layouts.DOUBT[name] * value for value in values]
            )
            found[role] = (
                name,
                [math.inf if role == "doubt" and math.isnan(value) else value for value in values],
            )
    return found


def calls_of(value: Any) -> float | None:
    """How many retrievals a cell speaks of: 1 for yes, NaN if it is empty, None if it speaks of something else.

    Adaptive-RAG's route C stands for several retrievals and counts as two.
    """
    if isinstance(
        value, dict
    ):  # Self-RAG's `all_results`: what it wrote without, and with each passage that it read
        known = all(name == "no_retrieval" or name.startswith("retrieval_") for name in value)
        return float(len(value) > ("no_retrieval" in value)) if known else None
    said = ROUTES.get(as_text(value).lower(), judgement(value))
    number = number_of(value) if said is None else float(said)
    return None if number is None or number < 0 or number % 1 > 0 else number


def cut_answers(texts: Sequence[str], pattern: str) -> list[str | None]:
    """What the first group of `pattern` holds in each text, at the match that begins last; None where a text has none.

    The pattern is of RE2's kind, which takes time in proportion to the text, whatever the pattern; `.` matches line
    ends too. Raises LongtailError for a pattern that is none or has no group, also if there are no texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values, nothing = pa.array(texts, pa.large_string()), pa.array([""], pa.large_string())
    last = rf"(?s)\A.*(?:{pattern}).*\z"
    try:
        pc.match_substring_regex(
            nothing, pattern
        )  # alone, as `last` could close a parenthesis or a bracket of it
        pc.replace_substring_regex(nothing, last, r"\1", max_replacements=1)
        has = pc.match_substring_regex(values, last).to_pylist()
        parts = pc.replace_substring_regex(values, last, r"\1", max_replacements=1).to_pylist()
    except pa.ArrowInvalid as error:
        said = " ".join(str(error).split())[:200].removeprefix("Invalid regular expression: ")
        said = "it has no group" if "Rewrite schema" in said else said
        raise LongtailError(
            f"--answer-pattern {pattern}: {said}; expected a pattern with a group, as '<answer>(.*?)</answer>'"
        ) from None
    return [part if ok else None for part, ok in zip(parts, has, strict=True)]


def _texts(
    path: Path,
    cells: Sequence[Any],
    asked: Sequence[list[str]],
    ids: Sequence[str],
    pattern: str | None,
) -> tuple[list[str], bool, list[str]]:
    """What was said, whether a pattern cut it out of more, and what may surprise about it, in lines.

    `asked` are columns of prompts or questions. A text that begins with its prompt says what follows it.
    """
    texts, without, is_cut = [], [], False
    counts = Counter[str]()
    for row, value in enumerate(cells):
        try:
            said = texts_of(value)
        except UnreadableError as error:
            raise LongtailError(
                f"{path}: row {row + 1}: the prediction is {error}, {TEXT}; write that alone"
            ) from None
        if not said:
            without.append(f"row {row + 1}" + (f" ({ids[row][:80]})" if ids else ""))
        text = said[0].strip() if said else ""
        prompts = [column[row] for column in asked if " " in column[row]]  # not the prompts' names
        prompt = next((prompt for prompt in prompts if text.startswith(prompt)), "")
        texts.append(text.removeprefix(prompt).strip())
        counts["are lists; the first text of each is judged"] += len(said) > 1
        counts["begin with their prompt; what follows it is judged"] += bool(prompt)
        counts[QUOTING] += any(prompt in texts[-1] for prompt in prompts)
    if len(without) == len(cells):
        raise LongtailError(
            f"{path}: no row has an answer, only errors or nothing, expected some; is it the right file?"
        )
    parts = cut_answers(texts, pattern) if pattern else []
    if is_cut := any(part is not None for part in parts):
        texts = [(part or "").strip() for part in parts]
        counts["have nothing that --answer-pattern finds"] = parts.count(None)
        del counts[QUOTING]
    else:
        apart = [reasoning.split(text) for text in texts]
        texts = [answer.strip() for _, answer in apart]
        counts["begin with reasoning; what follows it is judged"] = sum(
            bool(before) for before, _ in apart
        )
        counts[WHOLE] = sum(len(text) > LONG or bool(REASONING.search(text)) for text in texts)
    bracketed = [row for row, text in enumerate(texts) if BRACKETS.fullmatch(text)]
    if 2 * len(bracketed) > len(cells) and not is_cut:
        raise LongtailError(
            f"{path}: row {bracketed[0] + 1}: the prediction is {texts[bracketed[0]][:80]}, a list or an object that "
            f"nobody can read for certain, {TEXT}; write JSON"
        )
    named = ", ".join(without[:SHOWN]) + (
        f" and {len(without) - SHOWN:,} more" if len(without) > SHOWN else ""
    )
    counts["are empty, and so wrong"] = texts.count("") - len(without)
    counts[
        f"have no answer (null, an error, reasoning, tools or sources), and so are wrong: {named}"
    ] = len(without)
    return (
        texts,
        is_cut,
        [f"{n:,} of {len(texts):,} predictions {what}" for what, n in counts.items() if n],
    )


def _carried_answers(
    path: Path, name: str, cells: dict[str, list[Any]], notes: list[str]
) -> list[tuple[str, ...]] | None:
    """The gold answers that a file carries, which only tell questions apart: a note says why they can't be read."""
    try:
        lists = read_lists(
            cells[name], f"{path.name}: {name}", firsts=list(map(as_text, cells.get("obj", ())))
        )
    except LongtailError as error:
        notes.append(
            f"the answers that it carries are left aside: {str(error).partition('; say')[0]}"
        )
        return None
    return [tuple(filter(None, map(as_text, texts or ()))) for texts in lists]


def _judgements(
    path: Path, name: str, columns: dict[str, list[Any]], ids: dict[str, list[str]]
) -> list[bool] | None:
    """What a column says is right; None for one of SCORES that is neither true nor false somewhere, such as F1."""
    judged = list(map(judgement, columns[name]))
    if None not in judged or name in layouts.SCORES:
        return None if None in judged else judged
    row = judged.index(None)
    which, said = (
        next(iter(ids.values()))[row] if ids else f"row {row + 1}",
        as_text(columns[name][row]),
    )
    raise LongtailError(
        f"{path}: {name} of {which} is {said!r}, expected true or false; correct it"
    )


class UnreadableError(ValueError):
    """A prediction that holds no text; the message says what it is."""


def texts_of(value: Any) -> list[str]:
    """What was said, as NFC: no text where there is no answer, several where there are several answers.

    An object counts by the likeliest of FIELDS that it has; messages of a user or a tool, and reasoning, never count.
    Raises UnreadableError for anything that no text is known of.
    """
    try:
        texts = _texts_of(value)
        "".join(texts).encode()
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableError("half of a surrogate pair") from None
    return texts


def _texts_of(value: Any, *, in_parts: bool = False) -> list[str]:
    if isinstance(value, str):
        written = _written(value.strip())
        return [composed(value)] if written is None else _texts_of(written)
    if isinstance(value, dict):
        return _of_object(value)
    if isinstance(value, list):
        return _of_list(value, in_parts=in_parts)
    if value is None:
        return []
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | date):
        raise UnreadableError(
            str(value).lower() if isinstance(value, bool) else f"of the type {type(value).__name__}"
        )
    return [as_text(int(value) if isinstance(value, float) and value.is_integer() else value)]


def _written(text: str) -> Any:
    """What a text spells: a text in JSON, a list or an object, as JSON or as Python does; None for another text."""
    if (
        text[:1] == '"' == text[-1:] and "\\" in text
    ):  # without an escape, the quotes may be a title's
        with suppress(ValueError):
            return parse_json(text)
    if not OBJECT.match(text):
        return written_list(text) if text[:1] == "[" else None
    for parse in (parse_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return parse(text)
    raise UnreadableError(f"an object that is cut, damaged or oddly spelled ({text[:40]})")


def _of_list(values: list[Any], *, in_parts: bool) -> list[str]:
    objects = [value for value in values if isinstance(value, dict)]
    if any(map(_speaker, objects)):
        if (speaker := _speaker(objects[-1]) or objects[-1].get("type")) not in ASSISTANT:
            raise UnreadableError(f"a list of messages, the last of which is of the role {speaker}")
        return _of_object(objects[-1])
    types = [str(value.get("type")) for value in objects]
    if not in_parts and len(values) > 1 and any(type(value) in (int, float) for value in values):
        raise UnreadableError("a list of numbers")
    said = [text for value in values for text in _texts_of(value)]
    if said and (in_parts or any("text" in type_ or NOT_SAID.search(type_) for type_ in types)):
        return _texts_of("".join(said))
    return said


def _of_object(value: dict[str, Any]) -> list[str]:
    speaker = _speaker(value)
    if speaker and speaker not in ASSISTANT:
        raise UnreadableError(f"a message of the role {speaker}")
    if NOT_SAID.search(str(value.get("type"))) or value.get("thought"):
        return []
    fields = {plain(str(name)): inside for name, inside in value.items()}
    if isinstance(fields.get("message"), str):  # as errors have it
        del fields["message"]
    known = [name for name in FIELDS if name in fields]
    for name in known:
        if fields[name] is not None:  # Parquet has all objects' fields in each
            return _texts_of(fields[name], in_parts=name in PARTS)
    if (
        known
        or fields.get("error")
        or all(name in NO_ANSWER or NOT_SAID.search(name) for name in fields)
    ):
        return []
    raise UnreadableError(f"an object with the fields {listed(map(str, value))}")


def _speaker(message: Mapping[str, Any]) -> str:
    """Whose message an object is, in small letters; "" for no message. LangChain's have a type in place of a role."""
    role, kind = (
        message.get("role", message.get("from") if "value" in message else None),
        str(message.get("type")),
    )
    return str(role).lower() if role is not None else kind * (kind in (*ASSISTANT, *OTHERS))
