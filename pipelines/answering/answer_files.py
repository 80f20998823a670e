"""Files of answers, made here or brought in: list them, and join them with the questions that they answer."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.methods import GIVEN, METHODS, ordered, short, split
from pipelines.storage import database, parquet

ABOUT = b"longtail"  # key of what an import's file says of itself


def sets(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> dict[str, dict[str, Path]]:
    """Language model -> method -> its file of answers (predictions.PREDICTIONS) to the questions of `dataset`.

    First come `lms` in their order, then the imported models by name. Methods are named and ordered as methods.py says,
    those of `retrievers` in their order; names that it does not know come last. Answers of this run's models with other
    retrievers are left out, and so are imports that do not fit (`left_out`).
    """
    found = {lm: _files(root / "predictions" / dataset / lm, retrievers) for lm in lms}
    found |= _imports(dataset, lms, retrievers, root)[0]
    return {lm: by_method for lm, by_method in found.items() if by_method}


def left_out(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> list[str]:
    """A sentence for each import that is used nowhere, because its rows are not those of its question set or model."""
    return _imports(dataset, lms, retrievers, root)[1]


def elsewhere(
    lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> dict[str, list[str]]:
    """Imported model -> the methods that it has answers by, to whatever question set."""
    found: dict[str, dict[str, None]] = {}
    for dataset in dict.fromkeys(file.parts[-3] for file in imports(root)):
        for lm, files in _imports(dataset, lms, retrievers, root)[0].items():
            found.setdefault(lm, {}).update(dict.fromkeys(files))
    return {lm: list(methods) for lm, methods in found.items()}


def way(
    lm: str | None, method: str | None, lms: Sequence[str], retrievers: Sequence[str]
) -> str | None:
    """The method of an imported model that is meant: `method`, else its first with a text; None for other models."""
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
        found = {} if folder.name in lms else _files(folder, retrievers, others=True)
        faults = _faults(found, questions) if found and questions.is_file() else {}
        files[folder.name] = {
            method: file for method, file in found.items() if method not in faults
        }
        sentences += [
            f"{found[method]} is left out: {why}; import it again, or `longtail imports --remove {found[method]}`"
            for method, why in faults.items()
        ]
    return files, sentences


def _faults(files: Mapping[str, Path], questions: Path) -> dict[str, str]:
    """What is wrong with a model's files, by method: they answer the same questions, all of them the set's.

    Which questions these are the closed-book answers say, without them the first file.
    """
    ids_of = {
        method: _read("SELECT question_id FROM file", file)["question_id"]
        for method, file in files.items()
    }
    known, faults = {*_read("SELECT question_id FROM file", questions)["question_id"]}, {}
    for method, ids in ids_of.items():
        fitting = len(known.intersection(ids))
        if not fitting or fitting != len(ids):
            faults[method] = (
                f"of its {len(ids):,} rows {len(ids) - fitting:,} answer no question, or one again"
            )
    like, *others = [method for method in files if method not in faults] or [""]
    for method in others:
        if {*ids_of[method]} != {*ids_of[like]}:
            faults[method] = f"it answers other questions than {files[like].name}"
    return faults


def _files(folder: Path, retrievers: Sequence[str], others: bool = False) -> dict[str, Path]:
    """Method -> its file, if it has one; with `others`, also of retrievers that the run does not have, and any name.

    The main retriever's file may do without its name. A file whose kind is closed_book is the closed-book answer,
    whatever its name.
    """
    order, known, files = ["", *retrievers], [], {}
    for file in sorted(folder.glob("*.parquet")):
        kind, name = split(file.stem)
        if kind in METHODS and (others or name in order or kind in GIVEN):
            place = order.index(name) if name in order else len(order)
            known.append((METHODS.index(kind), place, short(kind, name, retrievers), file))
        elif others:
            files["closed_book" if about(file).get("kind") == "closed_book" else file.stem] = file
    files |= {method: file for *_, method, file in sorted(known)}
    return {method: files[method] for method in ordered(files)}


def join(
    questions: Path, files: Mapping[str, Path], columns: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Join a question set with the answers of each method by question id. Texts are no key: some occur twice.

    Returns ids, relations, subjects, popularity (NaN if not known) and ambiguous (whether the set has the same text
    about another subject as well) of the questions, and by method the `columns`: names and SQL expressions over the
    columns of predictions.PREDICTIONS, as floats, NaN if not known. Arrays are (n,), ordered by question id. Raises LongtailError
    naming a file and an id that it has twice, or that only one of two files has.
    """
    chosen = ", ".join(
        f"CAST({expression} AS DOUBLE) AS {name}" for name, expression in columns.items()
    )
    answers = {
        method: _read(f"SELECT question_id, {chosen} FROM file", file)
        for method, file in files.items()
    }
    asked = _read(
        """SELECT question_id, relation AS relations, coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subjects,
                  CAST(s_pop AS DOUBLE) AS popularity,
                  min(subjects) OVER same_text != max(subjects) OVER same_text AS ambiguous
           FROM file WINDOW same_text AS (PARTITION BY question)""",
        questions,
    )
    ids_of = {file: answers[method].pop("question_id") for method, file in files.items()}
    first, ids = next(iter(ids_of.items()))
    places = np.searchsorted(asked["question_id"], ids)
    for file, of_file in ids_of.items():
        _refuse(of_file[1:][of_file[1:] == of_file[:-1]], f"{file}: has the id {{}} more than once")
        _refuse(set(of_file) ^ set(ids), f"{file}: it or {first} lacks the id {{}}")
    _refuse(set(ids) - set(asked["question_id"]), f"{questions}: lacks the id {{}} of {first}")
    asked = {name: values[places] for name, values in asked.items()}
    return {"ids": asked.pop("question_id")} | asked, answers


def _read(query: str, file: Path) -> dict[str, np.ndarray]:
    """The columns of a query on a `file`, ordered by question id: floats with NaN for null, texts as objects."""
    table = database.ask(f"{query} ORDER BY question_id", file=file).to_arrow_table()
    return {name: table[name].to_numpy() for name in table.column_names}


def _refuse(ids: Collection[str], message: str) -> None:
    """Raise LongtailError if there are ids, naming the first in the place of {} in the message."""
    if len(ids):
        raise LongtailError(
            f"{message.format(min(ids))}, expected the same questions once; run the stage `answer` or the import "
            "again, or repair the file"
        )
