"""Answers that were made elsewhere, by models that can't run here, imported from whatever file
holds them.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines import methods
from pipelines.answering.answer_files import METADATA_KEY, about, kind_by_name
from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import judgement, read_numbers
from pipelines.foreign.judge_files import JudgedFile, check_pattern, judge_file
from pipelines.foreign.prediction_files import Predictions
from pipelines.foreign.question_tables import Questions, read_question_table
from pipelines.foreign.record_file import Cells
from pipelines.language.language import ENGLISH, Language
from pipelines.questions import matching
from pipelines.safe_text import mended
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.answers import PREDICTIONS

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # it names a folder and a file
# Names with a meaning of their own in tables and figures.
RESERVED = ("none", "random", "never", "always", "adaptive", "oracle")
QUESTIONS_SHOWN = 5  # in a message

# Columns of PREDICTIONS that are taken over, with their types.
MEASURES: dict[str, type] = {
    "doc_id": str,
    "doc_title": str,
    "passage": str,
    "doc_has_answer": bool,
    "similarity": float,
    "mean_log_prob": float,
    "cost": float,
    "prompt_tokens": int,
    "new_tokens": int,
    "lm_calls": int,
}


@dataclass(frozen=True)
class Import:
    """What a file's answers are called."""

    dataset: str
    lm: str
    method: str
    kind: str  # one of methods.KINDS: what the method is, whatever its name


def import_answers(
    file: Path,
    called: Import,
    own_lms: Sequence[str],
    data: Path,
    *,
    partial: bool = False,
    by_position: bool = False,
    pattern: str = "",
    language: Language = ENGLISH,
) -> list[str]:
    """Write data/imported/<dataset>/<lm>/<method>.parquet (PREDICTIONS) from a file of predictions.

    Returns a report in lines; `pattern` and `by_position` are as in `judge_file`. Raises
    LongtailError for a name that can't be one, an `lm` that is one of the params' models
    (`own_lms`), and a file whose rows are not the set's: without `partial`, every row must answer a
    question, and every test question needs a row.
    """
    called = named(called, own_lms)
    folder = data / "imported" / called.dataset / called.lm
    out = folder / f"{called.method}.parquet"
    if called.kind == "closed_book":
        for other in folder.glob("*.parquet"):
            is_closed_book = "closed_book" in (other.stem, about(other).get("kind"))
            if other != out and is_closed_book:
                raise LongtailError(
                    f"{other}: {called.lm} has answers without retrieval there, expected them "
                    "once; remove that file, or give these --kind other"
                )

    source = data / "questions" / called.dataset / f"{called.dataset}.parquet"
    questions = read_question_table(source, needed=("id", "question", "answers"))
    judged = judge_file(file, questions, pattern, MEASURES, by_position=by_position)
    check_pattern(pattern, judged.predictions.is_cut)
    if not partial:
        _check_complete(file, source, questions, judged)

    table = _table(judged, questions, called, language)
    facts = {
        "kind": called.kind,
        "layout": judged.predictions.layout,
        "file": mended(file.name),
        "joined_by": judged.match.by,
    }
    if pattern:
        facts["answer_pattern"] = pattern
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(facts)})
    with atomic(out) as temporary:
        parquet.write_parquet(table.sort_by("question_id"), temporary)

    lines = [*judged.lines, *judged.odd]
    if judged.match.missing:
        lines.append(f"questions of the set without an answer: {len(judged.match.missing):,}")
    lines.append(
        f"answers of {called.lm} by {called.method} ({called.kind}): {out}; `longtail run` tunes "
        "thresholds"
    )
    return lines


def named(called: Import, own_lms: Sequence[str]) -> Import:
    """The names, checked; what the method's name tells is its kind.

    Raises LongtailError naming the option.
    """
    for option, name in (("--lm", called.lm), ("--method", called.method)):
        # _below_ stands in the names of two answers (adaptive/pairs.py:Choice).
        if not re.fullmatch(NAME, name) or "_below_" in name or name in RESERVED:
            raise LongtailError(
                f"{option} {name}: expected a name such as Qwen2.5-7B (letters, digits, dots, - "
                f"and _), not {', '.join(RESERVED)} and nothing with _below_; take another"
            )

    if called.lm in own_lms:
        raise LongtailError(
            f"--lm {called.lm}: expected a name that no model of params.yaml has "
            f"({', '.join(own_lms)}); take another"
        )

    kind = kind_by_name(called.method) or called.kind
    if not kind:
        raise LongtailError(
            f"--method {called.method}: expected --kind too, which says what it is: "
            f"{', '.join(methods.KINDS)}"
        )

    return replace(called, kind=kind)


def _check_complete(file: Path, source: Path, questions: Questions, judged: JudgedFile) -> None:
    """Raise LongtailError for rows without a question, and for test questions without a row."""
    match = judged.match
    faults = []
    for reason, rows in match.rejected.items():
        faults.append(f"rows that {reason} ({len(rows):,}): {judged.predictions.shown_rows(rows)}")

    splits = parquet.read_parquet(source, ["split"])["split"].to_pylist()
    missing = [place for place in match.missing if splits[place] == "test"]
    if missing:
        shown = [questions.asked.questions[place] for place in missing[:QUESTIONS_SHOWN]]
        faults.append(f"test questions without a row ({len(missing):,}): {', '.join(shown)}")
    if faults:
        raise LongtailError(
            f"{file}: {'; '.join(faults)} (joined by {match.by}), expected a row for every test "
            "question and no others; with --partial those are taken that fit"
        )


def _table(
    judged: JudgedFile, questions: Questions, called: Import, language: Language
) -> pa.Table:
    """The answers (PREDICTIONS), in the order of the match; null in columns that the file lacks."""
    predictions = judged.predictions
    match = judged.match
    columns: Cells = dict.fromkeys(PREDICTIONS.schema.names, [None] * len(match.rows))
    columns["question_id"] = [questions.ids[place] for place in match.questions]
    columns["method"] = [called.method] * len(match.rows)
    columns["correct"] = judged.right
    if predictions.texts is not None:
        columns["prediction"] = [predictions.texts[row] for row in match.rows]
        columns["correct_word"] = [
            matching.word(predictions.texts[row], questions.asked.answers[place], language)
            for row, place in match.pairs
        ]
    for name in MEASURES:
        if name in predictions.cells:
            columns[name] = _measures(predictions, name, match.rows)
    return pa.table(columns, schema=PREDICTIONS.schema)


def _measures(predictions: Predictions, name: str, rows: Sequence[int]) -> list[Any]:
    """A column of MEASURES; None for an empty cell."""
    type_ = MEASURES[name]
    if type_ in (float, int):
        where = f"{predictions.path}: {name}"
        numbers = read_numbers(predictions.cells[name], where, "; correct it")
        values = [numbers[row] for row in rows]
        # Tables with empty cells may write 12 as 12.0.
        return [None if math.isnan(value) else type_(value) for value in values]
    texts = predictions.column(name) or []
    if type_ is bool:
        return [judgement(texts[row]) for row in rows]
    return [texts[row] or None for row in rows]
