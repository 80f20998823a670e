"""Files of answers, made here or brought in: list them, and join them with the questions that
they answer.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipelines import catalogue
from pipelines.answering import unanswered
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.methods import GIVEN, METHODS, Method, ordered
from pipelines.questions import matching, odd_answers
from pipelines.storage import database, parquet

METADATA_KEY = b"longtail"  # metadata of an import's file: what `about` returns

ASKED = """SELECT question_id, relation AS relations,
    coalesce(CAST(s_uri AS VARCHAR), subj, question_id) AS subjects,
    CAST(s_pop AS DOUBLE) AS popularity,
    min(subjects) OVER same_text != max(subjects) OVER same_text AS ambiguous
    FROM file WINDOW same_text AS (PARTITION BY question)"""

ANSWERS = """SELECT question_id, prediction, correct FROM file
    WHERE prediction IS NOT NULL AND correct IS NOT NULL"""


def sets(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> dict[str, dict[str, Path]]:
    """Language model -> method -> its file of answers (PREDICTIONS) to the questions of
    `dataset`.

    First come `lms` in their order, then the imported models by name. Methods are named and ordered
    as methods.py says, those of `retrievers` in their order; names that it does not know come last.
    Answers of this run's models with other retrievers are left out, and so are imports that do not
    fit (`left_out`).
    """
    files = {lm: _files(root / "predictions" / dataset / lm, retrievers) for lm in lms}
    imported, _ = _imports(dataset, lms, retrievers, root)
    files |= imported
    return {lm: by_method for lm, by_method in files.items() if by_method}


def left_out(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path = Path("data")
) -> list[str]:
    """A sentence for each import that is used nowhere.

    Its rows are not those of its question set or model.
    """
    _, sentences = _imports(dataset, lms, retrievers, root)
    return sentences


def without_answers(files: Mapping[str, Path]) -> str:
    """A sentence on the questions that have no answer by one of a language model's methods.

    `files` are method -> file. "" if all have one.
    """
    ids_of = {}
    for method, file in files.items():
        ids = _read("SELECT question_id FROM file WHERE correct IS NULL", file)["question_id"]
        if len(ids):
            ids_of[method] = set(ids)
    if not ids_of:
        return ""
    counts = ", ".join(f"{method} {len(ids)}" for method, ids in ids_of.items())
    all_ids = set().union(*ids_of.values())
    folder = next(iter(files.values())).parent
    return (
        f"{len(all_ids):,} questions do not count, as the server of {folder.name} gave no answer "
        f"to them ({counts}); {folder / unanswered.FILE} says why, and the next run asks again."
    )


def odd_sentences(
    questions: Path, files: Mapping[str, Path], language: Language = ENGLISH
) -> list[str]:
    """Sentences on what is odd about a language model's answers to a question set.

    `files` are method -> file. Letters of options are few, so those of MMLU may all be the same.
    """
    rule = catalogue.DATASETS[questions.stem].protocol.answer
    counts_of: dict[str, list[str]] = {}  # what is odd -> by which methods
    for method, file in files.items():
        oddities = unanswered.read_remarks(parquet.schema_of(file))
        answers = _read(ANSWERS, file)
        texts = answers["prediction"]
        if rule != "letter":
            golds = read_golds(questions, answers["question_id"])
            oddities |= odd_answers.find_oddities(
                texts, golds, answers["correct"], matching.RULES[rule], language
            )
        for what, count in oddities.items():
            counts_of.setdefault(what, []).append(f"{method} {count:,} of {len(texts):,}")

    sentences = []
    for what, counts in counts_of.items():
        lm = next(iter(files.values())).parent.name
        sentences.append(f"Answers of {lm} to {questions.stem} {what} ({', '.join(counts)}).")
    return sentences


def imports(root: Path = Path("data")) -> list[Path]:
    """Every import, by question set, model and method."""
    return sorted((root / "imported").glob("*/*/*.parquet"))


def about(file: Path) -> dict[str, str]:
    """What `longtail imports` wrote of an import: its kind, the layout and name of its file.

    Nothing for other files.
    """
    return parquet.read_note(parquet.schema_of(file), METADATA_KEY)


def kind_by_name(method: str) -> str:
    """What a method is by its name, one of methods.KINDS; "" if the name does not tell."""
    kind = Method.of_name(method).kind
    if kind not in METHODS:
        return ""
    return "closed_book" if kind == "closed_book" else "retrieval"


def _imports(
    dataset: str, lms: Sequence[str], retrievers: Sequence[str], root: Path
) -> tuple[dict[str, dict[str, Path]], list[str]]:
    """The imported models' files that fit, and a sentence for each file that does not."""
    questions = root / "questions" / dataset / f"{dataset}.parquet"
    fitting: dict[str, dict[str, Path]] = {}
    sentences = []
    for folder in sorted((root / "imported" / dataset).glob("*")):
        files = {}
        if folder.name not in lms:
            files = _files(folder, retrievers, imported=True)
        faults = {}
        if files and questions.is_file():
            faults = _faults(files, questions)
        for method, fault in faults.items():
            file = files.pop(method)
            sentences.append(f"{file} is left out: {fault}; import it again, or remove it")
        fitting[folder.name] = files
    return fitting, sentences


def _faults(files: Mapping[str, Path], questions: Path) -> dict[str, str]:
    """What is wrong with a model's files, by method.

    All files have to answer the same questions, all of them the set's. Which questions these are
    the closed-book answers say, without them the first file.
    """
    known = set(_ids(questions))
    first: Path | None = None
    ids_of_first: set[str] = set()
    faults = {}
    for method, file in files.items():
        ids = _ids(file)
        n_fitting = len(known.intersection(ids))
        n_others = len(ids) - n_fitting
        if not n_fitting or n_others:
            faults[method] = (
                f"of its {len(ids):,} rows {n_others:,} answer no question, or one again"
            )
        elif first is None:
            first = file
            ids_of_first = set(ids)
        elif set(ids) != ids_of_first:
            faults[method] = f"it answers other questions than {first.name}"
    return faults


def _ids(file: Path) -> np.ndarray:
    return _read("SELECT question_id FROM file", file)["question_id"]


def _files(folder: Path, retrievers: Sequence[str], imported: bool = False) -> dict[str, Path]:
    """Method -> its file, of the methods that this run has retrievers for.

    Imported ones are of whatever name and retriever. If the kind of such a file is closed_book, it
    is the closed-book answer.
    """
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.parquet")):
        method = Method.of_name(file.stem)
        is_of_run = method.kind in GIVEN or method.retriever in ["", *retrievers]
        if method.kind in METHODS:
            if imported or is_of_run:
                files[method.short_name(retrievers)] = file
        elif imported:
            is_closed_book = about(file).get("kind") == "closed_book"
            files.setdefault("closed_book" if is_closed_book else file.stem, file)
    return _in_order(files, retrievers)


def _in_order(files: Mapping[str, Path], retrievers: Sequence[str]) -> dict[str, Path]:
    """The files by kind of method, then by the order of `retrievers`."""
    order = ["", *retrievers]

    def position(name: str) -> int:
        retriever = Method.of_name(name).retriever
        return order.index(retriever) if retriever in order else len(order)

    names = sorted(files, key=position)
    return {name: files[name] for name in ordered(names)}


def join(
    questions: Path, files: Mapping[str, Path], columns: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Join a question set with the answers of each method by question id. Texts are no key: some
    occur twice.

    Returns ids, relations, subjects, popularity (NaN if not known) and ambiguous (whether the set
    has the same text about another subject as well) of the questions, and by method the `columns`:
    names and SQL expressions over the columns of PREDICTIONS, of numbers and texts. A
    number is NaN, and a text None, if it is not known. Arrays are (n,), ordered by question id. A
    question without an answer by one of the methods is left out (unanswered.py), so that methods
    are compared on the same questions. Raises LongtailError where files have other questions.
    """
    selected = [f"{expression} AS {name}" for name, expression in columns.items()]
    query = f"SELECT question_id, correct IS NULL AS unanswered, {', '.join(selected)} FROM file"
    answers = {method: _read(query, file) for method, file in files.items()}
    asked = _read(ASKED, questions)

    ids_of = {file: answers[method].pop("question_id") for method, file in files.items()}
    first, ids = next(iter(ids_of.items()))
    all_ids = asked.pop("question_id")
    is_repeated = len(set(ids)) < len(ids)
    if is_repeated or not set(ids) <= set(all_ids):
        raise _other_questions(first, questions)
    for file, ids_of_file in ids_of.items():
        if not np.array_equal(ids_of_file, ids):
            raise _other_questions(file, first)

    places = np.searchsorted(all_ids, ids)
    joined = {"ids": all_ids[places]}
    for name, values in asked.items():
        joined[name] = values[places]

    answered = np.ones(len(ids), bool)
    for columns_of_method in answers.values():
        answered &= ~columns_of_method.pop("unanswered")
    for columns_of_table in (joined, *answers.values()):
        for name, values in columns_of_table.items():
            columns_of_table[name] = values[answered]
    return joined, answers


def read_golds(questions: Path, ids: np.ndarray) -> list[list[str]]:
    """The gold answers to the questions with these ids, (n,), all of them in the set."""
    query = "SELECT question_id, coalesce(possible_answers, []) AS golds FROM file"
    golds_of = dict(database.ask(query, file=questions).fetchall())
    return [golds_of[question_id] for question_id in ids]


def _read(query: str, file: Path) -> dict[str, np.ndarray]:
    """The columns of a query on a `file`, ordered by question id: floats with NaN for null,
    texts as objects.
    """
    table = database.ask(f"{query} ORDER BY question_id", file=file).to_arrow_table()
    return {name: table[name].to_numpy() for name in table.column_names}


def _other_questions(file: Path, expected: Path) -> LongtailError:
    return LongtailError(
        f"{file}: has other questions than {expected}, or one twice; run the stage `answer` or the "
        "import again, or repair the file"
    )
