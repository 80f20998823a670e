"""Answers that were made elsewhere, by models that can't run here, imported from a table of ids and answers."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines import methods, params, parquet, shards
from pipelines.answering.answer import SCHEMA
from pipelines.errors import LongtailError
from pipelines.questions import matching
from pipelines.sources.streams import open_text, parse_json

PREDICTION = ("prediction", "pred")  # names that a column may have: ours, and that of PopQA's result files
CORRECT = ("correct", "is_correct")
IDS = (("question_id", "question_id"), ("id", "id"), ("id", "question_id"))  # id columns of file and question set
TELLING = ("s_uri", "o_uri", "relation", "prop", "subj", "obj")  # columns that tell questions of the same text apart
TRUTH = dict.fromkeys(("True", "true", "TRUE", "1"), True) | dict.fromkeys(("False", "false", "FALSE", "0"), False)
SHOWN = 5  # ids in a message

Columns = dict[str, list[str]]  # a table as text, by column; "" for an empty cell


# Columns of answer.SCHEMA that are taken over, with their parsers. Tables with empty cells may write 12 as 12.0.
MEASURES: dict[str, Callable[[str], Any]] = dict.fromkeys(("doc_id", "doc_title", "passage"), str)
MEASURES |= dict.fromkeys(("similarity", "margin", "mean_log_prob", "cost"), float)
MEASURES |= dict.fromkeys(("prompt_tokens", "new_tokens", "lm_calls"), lambda text: int(float(text)))
MEASURES["doc_has_answer"] = TRUTH.__getitem__
WANTED = {*PREDICTION, *CORRECT, *MEASURES, *TELLING, "question_id", "id", "question"}


class Matched(NamedTuple):
    """Which questions the rows of a file answer."""

    questions: list[int]  # rows of the question set
    rows: list[int]  # rows of the file that answer these questions
    by: str  # the columns that they are joined by
    left_out: int  # number of rows of the file that answer no question
    unanswered: int  # number of test questions without a row


def import_answers(
    file: Path, dataset: str, lm: str, method: str, own_lms: Sequence[str], data: Path, *, partial: bool = False
) -> list[str]:
    """Write data/imported/<dataset>/<lm>/<method>.parquet (answer.SCHEMA) from a .csv, .tsv or .jsonl file.

    Returns a report in lines. Predictions are judged here like all others; without predictions the file's own judgement
    counts. Raises LongtailError for an unknown method, an `lm` that is one of the params' models (`own_lms`), and
    whatever `match` refuses.
    """
    if methods.split(method)[0] not in methods.METHODS:
        known = ", ".join(methods.METHODS)
        raise LongtailError(f"--method {method}: expected one of {known}; or as dense_NAME, with a retriever's name")
    if not re.fullmatch(params.LM_NAME, lm) or lm in own_lms:
        raise LongtailError(
            f"--lm {lm}: expected a name such as opt-13b (small letters, digits, - and _) that no model of params.yaml "
            f"has ({', '.join(own_lms)}); take another"
        )
    source = data / "questions" / dataset / f"{dataset}.parquet"
    if not source.is_file():
        raise LongtailError(f"{source}: no such file, expected the question set; run its stage first")
    questions, columns = parquet.read(source), read(file)
    prediction, correct = (next((c for c in names if c in columns), None) for names in (PREDICTION, CORRECT))
    if not (prediction or correct):
        raise LongtailError(
            f"{file}: none of its columns is {', '.join(PREDICTION)} (what the model said) or {', '.join(CORRECT)} "
            "(whether that was right), expected one of them; rename it"
        )
    matched = match(file, columns, questions, partial=partial)
    asked = questions.select(["question_id", "possible_answers"]).take(matched.questions).to_pydict()
    ids, answers = asked["question_id"], asked["possible_answers"]
    answered = {name: [values[row] for row in matched.rows] for name, values in columns.items()}
    judged_there = _parsed(file, answered, correct, ids) if correct else None
    made = {"question_id": ids, "method": [method] * len(ids), "correct": judged_there}
    if prediction:
        texts = [text.strip() for text in answered[prediction]]
        made |= {"prediction": texts, "correct": list(map(matching.substring, texts, answers))}
        made["correct_word"] = list(map(matching.word, texts, answers))
    made |= {name: _parsed(file, answered, name, ids) for name in MEASURES if name in answered}
    nothing = [None] * len(ids)
    table = pa.table({name: made.get(name, nothing) for name in SCHEMA.names}, schema=SCHEMA).sort_by("question_id")
    out = data / "imported" / dataset / lm / f"{method}.parquet"
    with shards.atomic(out) as temporary:
        parquet.write(table, temporary)
    return _report(out, matched, made["correct"], judged_there if prediction else None)


def read(file: Path) -> Columns:
    """The columns of WANTED that a table has, as text. The suffix says its format; .gz, .bz2 or .zst may follow.

    Raises LongtailError naming a line that has other columns than the first.
    """
    kinds = {".csv": ",", ".tsv": "\t", ".jsonl": None}
    kind = next((suffix for suffix in reversed(file.suffixes) if suffix in kinds), None)
    if kind is None:
        raise LongtailError(f"{file}: expected a name that ends in {', '.join(kinds)}; rename it to what it is")
    records = _objects(file) if kind == ".jsonl" else _cells(file, kinds[kind])
    names, columns = None, {}
    for number, record in records:
        if names is None:
            names, columns = record.keys(), {name: [] for name in record if name in WANTED}
        if record.keys() != names:
            raise LongtailError(f"{file}: line {number}: other columns than the first, expected the same in every row")
        for name, values in columns.items():
            values.append(record[name])
    return columns


def match(file: Path, columns: Columns, questions: pa.Table, *, partial: bool = False) -> Matched:
    """Which question each row of `file` answers.

    Rows are joined by id. Without ids they are joined by the question's text and as many columns of TELLING as tell the
    set's questions apart. Raises LongtailError naming an id that two rows have, or a text that stands for several
    questions; without `partial` also an id that no question of the set has, and a test question without an answer.
    """
    names, keys, known = _keys(file, columns, questions)
    rows: dict[tuple, int] = {}
    for row, key in enumerate(keys):
        if rows.setdefault(key, row) != row:
            raise LongtailError(
                f"{file}: rows {rows[key] + 1} and {row + 1} are both {_shown([key])} ({names}), expected one answer "
                "to each question; leave one out"
            )
    unknown = [key for key in rows if key not in known]
    splits = questions["split"].to_pylist()
    missing = [key for key, place in known.items() if splits[place] == "test" and key not in rows]
    for keys, what in ((unknown, "answers to questions that are not in the set"), (missing, "test questions without")):
        if keys and (not partial or len(unknown) == len(rows)):
            raise LongtailError(
                f"{file}: {len(keys)} {what}: {_shown(keys)} ({names}), expected an answer to every test question, and "
                "to no other set's; with --partial those are taken that both have"
            )
    both = [key for key in known if key in rows]
    return Matched([known[key] for key in both], [rows[key] for key in both], names, len(unknown), len(missing))


def _keys(file: Path, columns: Columns, questions: pa.Table) -> tuple[str, list[tuple], dict[tuple, int]]:
    """The columns that rows are joined by, in words; each row's key in the file; key -> row of the question set."""
    candidates = []
    for ours, theirs in IDS:
        if ours in columns and theirs in questions.column_names:
            known = {(text,): place for place, text in enumerate(_texts(questions, theirs))}
            keys = [(text,) for text in columns[ours]]
            candidates.append((sum(key in known for key in keys), f"{ours} = {theirs}", keys, known))
    if candidates:
        return max(candidates, key=lambda candidate: candidate[0])[1:]
    if "question" not in columns:
        raise LongtailError(f"{file}: it has no column question_id, id or question, expected one of them; add it")
    names, n = ["question"], questions.num_rows
    more_names = [name for name in TELLING if name in columns and name in questions.column_names]
    while True:
        known, twice = {}, None
        for place, key in enumerate(zip(*(_texts(questions, name) for name in names), strict=True)):
            twice = key if key in known else twice
            known[key] = place
        if not twice:
            return ", ".join(names), list(zip(*(columns[name] for name in names), strict=True)), known
        if not more_names:
            raise LongtailError(
                f"{file}: it has no ids, and {_shown([twice])} is several of the {n} questions ({', '.join(names)}), "
                f"expected a column question_id or id, or such that tell them apart ({', '.join(TELLING)}); add one"
            )
        names.append(more_names.pop(0))


def _texts(table: pa.Table, name: str) -> list[str]:
    return ["" if value is None else str(value) for value in table[name].to_pylist()]


def _shown(keys: Sequence[tuple]) -> str:
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(" | ".join(map(str, key)) for key in keys[:SHOWN]) + more


def _cells(file: Path, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader((line + "\n" for line in open_text(file)), delimiter=delimiter, strict=True)
    try:
        header = next(reader)
        for cells in reader:
            if len(cells) != len(header):
                raise LongtailError(
                    f"{file}: line {reader.line_num}: {len(cells)} columns, expected {len(header)} as in the first"
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise LongtailError(f"{file}: line {reader.line_num}: {error}, expected a quoted table") from None


def _objects(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(open_text(file), start=1):
        try:
            record = parse_json(line)
        except ValueError as error:
            raise LongtailError(f"{file}: line {number}: {error}, expected a JSON object") from None
        if not isinstance(record, dict):
            raise LongtailError(f"{file}: line {number}: expected a JSON object")
        yield number, {name: "" if value is None else str(value) for name, value in record.items()}


def _parsed(file: Path, answered: Columns, name: str, ids: list[str]) -> list:
    """A column's values; an empty cell is None in the columns of MEASURES, an error in CORRECT."""
    parse, values = MEASURES.get(name, TRUTH.__getitem__), []
    for id_, text in zip(ids, answered[name], strict=True):
        try:
            values.append(parse(text) if text or name in CORRECT else None)
        except (ValueError, KeyError):
            what = "true or false" if name in (*CORRECT, "doc_has_answer") else "a number"
            raise LongtailError(f"{file}: {name} of {id_} is {text!r}, expected {what}; correct it") from None
    return values


def _report(out: Path, matched: Matched, correct: list[bool], judged_there: list[bool] | None) -> list[str]:
    lines = [f"{len(correct)} answers, joined by {matched.by}; {100 * sum(correct) / max(1, len(correct)):.1f} % right"]
    if judged_there is not None and (differ := sum(a != b for a, b in zip(judged_there, correct, strict=True))):
        lines.append(f"{differ} of them are judged differently than in the file: predictions are judged here")
    if matched.left_out or matched.unanswered:
        lines.append(
            f"{matched.left_out} rows that no question of the set has were left out; "
            f"{matched.unanswered} test questions have no answer"
        )
    return [*lines, f"the answers: {out}; `longtail run` tunes thresholds for them"]
