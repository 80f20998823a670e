"""Answers that were made elsewhere, by models that can't run here, imported from whatever file holds them."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pipelines import methods
from pipelines.answering.answer_files import METADATA_KEY, about, kind_by_name
from pipelines.answering.predictions import PREDICTIONS
from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import judgement, read_numbers
from pipelines.foreign.join_predictions import shown_rows
from pipelines.foreign.judge_files import check_pattern, judge_file
from pipelines.foreign.prediction_files import Predictions
from pipelines.foreign.question_tables import read_question_table
from pipelines.language.language import ENGLISH, Language
from pipelines.questions import matching
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # it names a folder and a file
# Names with a meaning of their own in tables and figures, or in the names of two answers (adaptive/pairs.py:Choice).
RESERVED = ("none", "random", "never", "always", "adaptive", "oracle")

# Columns of PREDICTIONS that are taken over, with their types. Tables with empty cells may write 12 as 12.0.
MEASURES: dict[str, type] = dict.fromkeys(("doc_id", "doc_title", "passage"), str) | {
    "doc_has_answer": bool
}
MEASURES |= dict.fromkeys(("similarity", "mean_log_prob", "cost"), float)
MEASURES |= dict.fromkeys(("prompt_tokens", "new_tokens", "lm_calls"), int)


class Import(NamedTuple):
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

    Returns a report in lines; `pattern` and `by_position` are as in `judge_file`. Raises LongtailError for a name that
    can't be one, an `lm` that is one of the params' models (`own_lms`), and a file whose rows are not the set's:
    without `partial`, every row must answer a question, and every test question needs a row.
    """
    called = named(called, own_lms)
    out = data / "imported" / called.dataset / called.lm / f"{called.method}.parquet"
    for other in out.parent.glob("*.parquet") if called.kind == "closed_book" else ():
        if other != out and "closed_book" in (other.stem, about(other).get("kind")):
            raise LongtailError(
                f"{other}: {called.lm} has closed-book answers there, expected them once; remove that by "
                f"`longtail imports --remove {other}`, or give these --kind other"
            )
    source = data / "questions" / called.dataset / f"{called.dataset}.parquet"
    splits = parquet.read_parquet(source, ["split"])["split"].to_pylist()
    questions = read_question_table(source, needed=("id", "question", "answers"))
    predictions, match, right, lines = judge_file(
        file, questions, pattern, MEASURES, by_position=by_position
    )
    check_pattern(pattern, predictions.is_cut)
    missing = [
        questions.asked.questions[place] for place in match.missing if splits[place] == "test"
    ]
    faults = [
        f"{len(rows):,} rows {why}: {shown_rows(predictions, rows)}"
        for why, rows in match.rejected.items()
    ]
    faults += (
        [f"{len(missing):,} test questions have no row: {', '.join(missing[:5])}"]
        if missing
        else []
    )
    if faults and not partial:
        raise LongtailError(
            f"{file}: {'; '.join(faults)} (joined by {match.by}), expected a row for every test question and no "
            "others; with --partial those are taken that fit"
        )
    ids = [questions.ids[place] for place in match.questions]
    made = {"question_id": ids, "method": [called.method] * len(ids), "correct": right}
    if predictions.texts is not None:
        made["prediction"] = texts = [predictions.texts[row] for row in match.rows]
        answers = [questions.asked.answers[place] for place in match.questions]
        made["correct_word"] = [
            matching.word(*pair, language) for pair in zip(texts, answers, strict=True)
        ]
    made |= {
        name: _measures(predictions, name, match.rows)
        for name in MEASURES
        if name in predictions.cells
    }
    nothing = [None] * len(ids)
    said = {
        "kind": called.kind,
        "layout": predictions.layout,
        "file": file.name,
        "joined_by": match.by,
    }
    schema = PREDICTIONS.with_metadata(
        {METADATA_KEY: json.dumps(said | ({"answer_pattern": pattern} if pattern else {}))}
    )
    table = pa.table(
        {name: made.get(name, nothing) for name in PREDICTIONS.names}, schema=schema
    ).sort_by("question_id")
    with atomic(out) as temporary:
        parquet.write_parquet(table, temporary)
    lines += (
        [f"{len(match.missing):,} questions of the set have no answer"] if match.missing else []
    )
    return [
        *lines,
        f"answers of {called.lm} by {called.method} ({called.kind}): {out}; `longtail run` tunes thresholds",
    ]


def named(called: Import, own_lms: Sequence[str]) -> Import:
    """The names, checked; what the method's name tells is its kind. Raises LongtailError naming the option."""
    for option, name in (("--lm", called.lm), ("--method", called.method)):
        if not re.fullmatch(NAME, name) or "_below_" in name or name in RESERVED:
            raise LongtailError(
                f"{option} {name}: expected a name such as Qwen2.5-7B (letters, digits, dots, - and _), not "
                f"{', '.join(RESERVED)} and nothing with _below_; take another"
            )
    if called.lm in own_lms:
        raise LongtailError(
            f"--lm {called.lm}: expected a name that no model of params.yaml has ({', '.join(own_lms)}); take another"
        )
    if not (kind := kind_by_name(called.method) or called.kind):
        listed = ", ".join(methods.KINDS)
        raise LongtailError(
            f"--method {called.method}: expected --kind too, which says what it is: {listed}"
        )
    return called._replace(kind=kind)


def _measures(predictions: Predictions, name: str, rows: Sequence[int]) -> list:
    """A column of MEASURES; None for an empty cell."""
    kind, texts = MEASURES[name], predictions.column(name) or []
    if kind in (float, int):
        numbers = read_numbers(
            predictions.cells[name], f"{predictions.path}: {name}", "; correct it"
        )
        return [None if math.isnan(numbers[row]) else kind(numbers[row]) for row in rows]
    return [texts[row] or None if kind is str else judgement(texts[row]) for row in rows]
