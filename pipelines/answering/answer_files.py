"""Files of answers, made here or brought in: list them, and join them with the questions that they answer."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.methods import GIVEN, METHODS, short, split
from pipelines.storage import database, parquet

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # the name of an imported model or method: it names a folder and a file
ABOUT = b"longtail"  # key of what an import's file says of itself

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

    First come `lms` in their order, then the imported models by name. Methods are named and ordered as methods.py says,
    those of `retrievers` in their order; names that it does not know come last. Answers of this run's models with other
    retrievers are left out, and so are imports that do not fit (`left_out`). Raises LongtailError for an imported file
    that is not called as `longtail imports` calls it.
    """
    found = {lm: _files(root / "predictions" / dataset / lm, retrievers) for lm in lms}
    found |= _imports(dataset, lms, retrievers, root)[0]
    return {lm: by_method for lm, by_method in found.items() if by_method}


def left_out(dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")) -> list[str]:
    """A sentence for each import that is used nowhere, because its rows are not those of its question set or model."""
    return _imports(dataset, lms, retrievers, root)[1]


def elsewhere(lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")) -> dict[str, list[str]]:
    """Imported model -> the methods that it has answers by, to whatever question set."""
    found: dict[str, dict[str, None]] = {}
    for dataset in dict.fromkeys(file.parts[-3] for file in imports(root)):
        for lm, files in _imports(dataset, lms, retrievers, root)[0].items():
            found.setdefault(lm, {}).update(dict.fromkeys(files))
    return {lm: list(methods) for lm, methods in found.items()}


def way(lm: str | None, method: str | None, lms: Sequence[str], retrievers: Sequence[str]) -> str | None:
    """The method of an imported model that is meant: `method`, else its first with a text; None for other models."""
    if lm is None or lm in lms:
        return None
    ways = [name for name in elsewhere(lms, retrievers).get(lm, ()) if name != "closed_book"]
    return method if method and ways else next(iter(ways), None)


def imports(root: Path = Path("data")) -> list[Path]:
    """Every import, by question set, model and method."""
    return sorted((root / "imported").glob("*/*/*.parquet"))


def about(file: Path) -> dict[str, str]:
    """What `longtail imports` wrote of an import: its kind, the layout and name of its file; else nothing."""
    return json.loads((parquet.schema_of(file).metadata or {}).get(ABOUT, b"{}"))


def kind_by_name(method: str) -> str:
    """What a method is by its name, one of methods.KINDS; "" if the name does not tell."""
    kind = split(method)[0]
    return "" if kind not in METHODS else "closed_book" if kind == "closed_book" else "retrieval"


def _imports(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path
) -> tuple[dict[str, dict[str, Path]], list[str]]:
    """The imported models' files that fit, and a sentence for each other."""
    files, sentences, questions = {}, [], root / "questions" / dataset / f"{dataset}.parquet"
    for folder in sorted((root / "imported" / dataset).glob("*")):
        for file in sorted(folder.glob("*.parquet")):
            if not re.fullmatch(NAME, folder.name) or not re.fullmatch(NAME, file.stem):
                raise LongtailError(
                    f"{file}: expected <model>/<method>.parquet, as opt-13b/bm25.parquet; use `longtail imports`"
                )
        found = {} if folder.name in lms else _files(folder, retrievers, others=True)
        faults = _faults(found, questions) if found and questions.is_file() else {}
        files[folder.name] = {method: file for method, file in found.items() if method not in faults}
        sentences += [
            f"{found[method]} is left out: {why}; import it again, or `longtail imports --remove {found[method]}`"
            for method, why in faults.items()
        ]
    return files, sentences


def _faults(files: Mapping[str, Path], questions: Path) -> dict[str, str]:
    """What is wrong with a model's files, by method: they answer the same questions, all of them the set's.

    Which questions these are the closed-book answers say, without them the first file.
    """
    known = {*parquet.read_parquet(questions, ["question_id"])["question_id"].to_pylist()}
    ids_of, faults = {}, {}
    for method, file in files.items():
        ids = parquet.read_parquet(file, ["question_id"])["question_id"].to_pylist()
        ids_of[method] = known.intersection(ids)
        if foreign := sum(id_ not in known for id_ in ids):
            faults[method] = f"{foreign:,} of its {len(ids):,} rows answer no question of the set"
        elif twice := len(ids) - len({*ids}):
            faults[method] = f"{twice:,} of its ids are there more than once"
        elif not ids:
            faults[method] = "it has no row"
    fitting = [method for method in ("closed_book", *files) if method in files.keys() - faults]
    for method in fitting:
        if ids_of[method] != ids_of[fitting[0]]:
            other, missing = len(ids_of[method] - ids_of[fitting[0]]), len(ids_of[fitting[0]] - ids_of[method])
            of_first = f"that {files[fitting[0]].name} does not, and lacks {missing:,}"
            faults[method] = f"it answers {other:,} questions {of_first}"
    return faults


def _files(folder: Path, retrievers: Sequence[str], others: bool = False) -> dict[str, Path]:
    """Method -> its file, if it has one; with `others`, also of retrievers that the run does not have, and any name.

    The main retriever's file may do without its name. A file whose kind is closed_book is the closed-book answer,
    whatever its name.
    """
    order, known, files = ["", *retrievers], [], {}
    paths = sorted(folder.glob("*.parquet"))
    for file in paths:
        kind, name = split(file.stem)
        if kind in METHODS and (others or name in order or kind in GIVEN):
            place = order.index(name) if name in order else len(order)
            known.append((METHODS.index(kind), place, short(kind, name, retrievers), file))
    for *_, method, file in sorted(known):
        files[method] = file
    for file in paths if others else ():
        if split(file.stem)[0] not in METHODS:
            closed = "closed_book" not in files and about(file).get("kind") == "closed_book"
            files = {"closed_book": file} | files if closed else files | {file.stem: file}
    return files


def join(questions: Path, files: Mapping[str, Path], columns: Mapping[str, str]) -> Joined:
    """Join a question set with the answers of each method by question id. Texts are no key: some occur twice.

    `columns` are names and SQL expressions over the columns of answer.SCHEMA. Raises LongtailError naming a file and an
    id that the file has twice, that it lacks although another file has it, or whose answer it does not judge.
    """
    chosen = ", ".join(f"CAST({expression} AS DOUBLE) AS {name}" for name, expression in columns.items())
    query = f"SELECT question_id, correct IS NULL AS unjudged, {chosen} FROM ({ANSWERS})"
    answers = {method: _read(query, "answers", file) for method, file in files.items()}
    asked = _read(
        """SELECT question_id, relation, CAST(s_pop AS DOUBLE) AS popularity,
                  coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subject,
                  min(subject) OVER same_text != max(subject) OVER same_text AS ambiguous
           FROM questions WINDOW same_text AS (PARTITION BY question)""",
        "questions",
        questions,
    )
    ids_of = {method: of_method.pop("question_id") for method, of_method in answers.items()}
    first, ids = next(zip(files.values(), ids_of.values(), strict=True))
    for method, file in files.items():
        ids_of_file = ids_of[method]
        _refuse(set(ids) - set(ids_of_file), f"{file}: lacks the id {{}} of {first}, expected the same questions")
        _refuse(set(ids_of_file) - set(ids), f"{first}: lacks the id {{}} of {file}, expected the same questions")
        unjudged = ids_of_file[answers[method].pop("unjudged")]
        _refuse(unjudged, f"{file}: does not say whether the answer to the id {{}} is right, expected it of all")
    _refuse(set(ids) - set(asked["question_id"]), f"{questions}: lacks the id {{}} of {first}, expected every question")
    rows = np.searchsorted(asked["question_id"], ids)
    return Joined(ids, *(asked[of][rows] for of in ("relation", "subject", "popularity", "ambiguous")), answers)


def _read(query: str, table: str, file: Path) -> dict[str, np.ndarray]:
    """The columns of a query on a file, which it calls `table`, ordered by question id.

    Numbers are floats with NaN for null, texts objects. Raises LongtailError naming an id that the file has twice.
    """
    rows = database.ask(f"{query} ORDER BY question_id", **{table: file}).fetchnumpy()
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
