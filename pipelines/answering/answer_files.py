"""Files of answers, made here or brought in: which there are, and joined with the questions that they answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import database
from pipelines.errors import LongtailError
from pipelines.methods import ENCODED, METHODS, short, split
from pipelines.params import LM_NAME

# Answers imported before `margin` was a column do not have it.
ANSWERS = "SELECT * FROM answers UNION ALL BY NAME SELECT NULL::FLOAT AS margin WHERE false"


@dataclass(frozen=True)
class Joined:
    """Questions and their answers; arrays (n,), ordered by question id."""

    ids: np.ndarray
    relations: np.ndarray
    subjects: np.ndarray
    popularity: np.ndarray  # float64, NaN if not known
    ambiguous: np.ndarray  # bool: the question set has the same text about another subject as well
    answers: dict[str, dict[str, np.ndarray]]  # method -> column -> float64, NaN if not known


def sets(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> dict[str, dict[str, Path]]:
    """Language model -> method -> its file of answers (answer.SCHEMA) to the questions of `dataset`.

    First come `lms` in their order (params.lms: the main one first), then the imported models by name. Methods are
    named and ordered as methods.py says, those of `retrievers` (params.retrievers) in their order. What has no file is
    left out, and so are this run's models' answers with another retriever. Raises LongtailError for an imported file
    that is not called as `longtail import-answers` calls it.
    """
    imported = root / "imported" / dataset
    for file in sorted(imported.glob("*/*.parquet")):
        if not re.fullmatch(LM_NAME, file.parent.name) or split(file.stem)[0] not in METHODS:
            raise LongtailError(
                f"{file}: expected <model>/<method>.parquet, as opt-13b/bm25.parquet; bring it in by import-answers"
            )
    elsewhere = sorted({file.parent.name for file in imported.glob("*/*.parquet")} - set(lms))
    found = {lm: _files(root / "predictions" / dataset / lm, retrievers) for lm in lms}
    found |= {lm: _files(imported / lm, retrievers, others=True) for lm in elsewhere}
    return {lm: by_method for lm, by_method in found.items() if by_method}


def _files(folder: Path, retrievers: Sequence[str], others: bool = False) -> dict[str, Path]:
    """Method -> its file, if it has one; with `others`, also of retrievers that the run does not have.

    The main retriever's file may do without its name.
    """
    elsewhere = {split(file.stem)[1] for file in folder.glob("*.parquet")} - {"", *retrievers} if others else ()
    files: dict[str, Path] = {}
    for kind in METHODS:
        names = [*retrievers, *sorted(elsewhere)] if kind in ENCODED else []
        of_kind = {kind: folder / f"{kind}.parquet"}
        for name in names:
            file = folder / f"{kind}_{name}.parquet"
            if file.is_file():
                of_kind[short(kind, name, retrievers)] = file
        files |= {method: file for method, file in of_kind.items() if file.is_file()}
    return files


def join(questions: Path, files: Mapping[str, Path], columns: Mapping[str, str]) -> Joined:
    """Join a question set with the answers of each method by question id. Texts are no key: some occur twice.

    `columns` are names and SQL expressions over the columns of answer.SCHEMA. Raises LongtailError naming a file and an
    id that the file has twice, that it lacks although another file has it, or whose answer it does not judge.
    """
    chosen = ", ".join(f"CAST({expression} AS DOUBLE) AS {name}" for name, expression in columns.items())
    answers = {
        method: _read(f"SELECT question_id, correct IS NULL AS unjudged, {chosen} FROM ({ANSWERS})", file)
        for method, file in files.items()
    }
    asked = _read(
        """SELECT question_id, relation, CAST(s_pop AS DOUBLE) AS popularity,
                  coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subject,
                  min(subject) OVER same_text != max(subject) OVER same_text AS ambiguous
           FROM answers WINDOW same_text AS (PARTITION BY question)""",
        questions,
    )
    ids_of = {method: columns_of_method.pop("question_id") for method, columns_of_method in answers.items()}
    first, ids = next(zip(files.values(), ids_of.values(), strict=True))
    for method, file in files.items():
        ids_of_file = ids_of[method]
        _refuse(set(ids) - set(ids_of_file), f"{file}: lacks the id {{}} of {first}, expected the same questions")
        _refuse(set(ids_of_file) - set(ids), f"{first}: lacks the id {{}} of {file}, expected the same questions")
        unjudged = ids_of_file[answers[method].pop("unjudged")]
        _refuse(unjudged, f"{file}: does not say whether the answer to the id {{}} is right, expected it of all")
    _refuse(set(ids) - set(asked["question_id"]), f"{questions}: lacks the id {{}} of {first}, expected every question")
    rows = np.searchsorted(asked["question_id"], ids)
    relations, subjects, popularity, ambiguous = (
        asked[name][rows] for name in ("relation", "subject", "popularity", "ambiguous")
    )
    return Joined(ids, relations, subjects, popularity, ambiguous, answers)


def _read(query: str, file: Path) -> dict[str, np.ndarray]:
    """The columns of a query on a file, ordered by question id; numbers as floats with NaN for null, text as objects.

    Raises LongtailError naming an id that the file has twice.
    """
    rows = database.ask(f"{query} ORDER BY question_id", answers=file).fetchnumpy()
    columns = {
        name: np.ma.filled(values, np.nan) if values.dtype.kind == "f" else np.ma.getdata(values)
        for name, values in rows.items()
    }
    ids = columns["question_id"]
    _refuse(ids[1:][ids[1:] == ids[:-1]], f"{file}: has the id {{}} more than once, expected every id once")
    return columns


def _refuse(ids: Iterable[str], message: str) -> None:
    """Raise LongtailError if there are ids, naming the first in the place of {} in the message."""
    if len(distinct := sorted(set(ids))):
        more = f" (and {len(distinct) - 1:,} more)" if len(distinct) > 1 else ""
        raise LongtailError(
            f"{message.format(f'{distinct[0]}{more}')}; run the stage `answer` or the import again, or repair the file"
        )
