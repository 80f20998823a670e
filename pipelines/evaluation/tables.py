"""The tables that the stage `analyse` writes: the columns of each, how these are shown, and how rows are kept.

A column of `Interval`s takes three in the Parquet file: <name>, <name>_low and <name>_high, null if there was nothing
to measure. Studies bring tables of their own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pipelines import all_studies, catalogue
from pipelines.evaluation.accuracy import GUESSED
from pipelines.intervals import NOTHING, Interval
from pipelines.storage import parquet

ENDS = ("", "_low", "_high")  # of an Interval's columns
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ANSWERS = {"dataset": str, "lm": str, "method": str}
_BOTH = {"questions": int, "substring": Interval, "word": Interval}  # accuracy by both rules of being right
_GAINS = {"gain": Interval, "gain_word": Interval}  # over closed-book answers, by both rules
_BIN = {"bin": int, "least": float, "below": float, "popularity": float}  # of log popularity
COMPARED: dict[str, dict[str, type]] = {  # also of the questions that all language models answered, as common_<name>
    "accuracy": _ANSWERS | _BOTH | {"popularity_known": int, "correlation": Interval},
    "accuracy_by_relation": _ANSWERS | {"relation": str} | _BOTH | {"correlation": Interval},
    "accuracy_by_log_popularity": _ANSWERS | _BIN | _BOTH | _GAINS,
    "accuracy_by_relation_and_popularity": _ANSWERS | {"relation": str} | _BIN | _BOTH | _GAINS,
}
TABLES: dict[str, dict[str, type]] = {
    "models": {"lm": str, "parameters": int, "family": str, "imported": bool, "judged": str},
    "left_out": {"dataset": str, "why": str},
    "popularity": {"dataset": str, "least": float, "below": float, "questions": int},
    **COMPARED,
    **{f"common_{name}": columns for name, columns in COMPARED.items()},
    "guessable": {"dataset": str, "lm": str, "relation": str, "usual": str, "questions": int}
    | {name: Interval for name in (*GUESSED, "closed_book", "closed_book_word")},
    "accuracy_by_group": _ANSWERS | {"group": str} | _BOTH,
    "accuracy_by_popularity": _ANSWERS | {"decile": int, "popularity": float} | _BOTH | _GAINS,
    "accuracy_by_relative_popularity": _ANSWERS | {"bin": int, "relative_popularity": float} | _BOTH,
    "retrieval_effect": _ANSWERS
    | {"group": str, "questions": int}
    | {f"{name}{rule}": Interval for rule in ("", "_word") for name in ("closed_book", "augmented", "gain")},
    "comparisons": _ANSWERS
    | {"against_lm": str, "against": str, "questions": int, "only_this": int, "only_that": int, "p": float}
    | {"gain": Interval, "gain_word": Interval, "recall_gain": Interval},
    "recall": _ANSWERS | {"answers": str, "questions": int, "share": Interval, "recall": Interval},
    "costs": _ANSWERS
    | {"questions": int, "calls": float, "prompt_tokens": float, "new_tokens": float, "cost_per_1000": float},
    "savings": _ANSWERS
    | {"questions": int, "retrieved": Interval}
    | {f"{what}_saved": Interval for what in ("calls", "tokens", "cost")},
    "examples": _ANSWERS
    | {"effect": str, "question_id": str, "relation": str, "question": str, "answer": str, "popularity": int}
    | {"doc_title": str, "doc_has_answer": bool, "passage": str, "passage_answer": str}
    | {"closed_book": str, "augmented": str},
    "bits_per_byte": {"corpus": str, "lm": str, "retriever": str, "k": int, "bits_per_byte": Interval}
    | {f"saved{against}": Interval for against in ("", "_over_random", "_over_dense")}
    | {"perplexity": Interval, "word_perplexity": Interval},
    "tasks": {"task": str, "lm": str, "method": str, "answered_by": str, "category": str, "questions": int}
    | {"accuracy": Interval, "gain": Interval},
    "retrievers": {"retriever": str, "bits_per_byte": Interval, "saved": Interval}
    | {f"{dataset}_{what}": Interval for dataset in catalogue.names("answered") for what in ("recall_at_1", "word")}
    | {"real_recall_at_1": Interval, "real_recall_at_10": Interval},
}  # fmt: skip
for _study in all_studies.studies_offering("TABLES"):
    for _name, _columns in _study.TABLES.items():
        TABLES[_name] = {column: Interval if kind == "Interval" else kind for column, kind in _columns.items()}


@dataclass(frozen=True)
class Column:
    """How a column is shown: what it is called, what its values are, and the rule of being right that they follow."""

    label: str
    unit: str = ""  # share: of questions, in per cent; points: a difference of shares; name: of a method, corpus, ...
    rule: str = ""


COLUMNS = {  # of these tables and others; a column that is not here is called by its name
    "dataset": Column("questions of", "name"),
    "lm": Column("language model"),
    "method": Column("answered", "name"),
    "against": Column("less", "name"),
    "against_lm": Column("less"),
    "retriever": Column("documents", "name"),
    "relation": Column("relation", "relation"),
    "substring": Column("substring", "share", "substring"),
    "word": Column("word", "share", "word"),
    "gain": Column("change", "points", "substring"),
    "gain_word": Column("change, word", "points", "word"),
    "recall_gain": Column("recall", "points"),
    "difference": Column("difference", "points"),
    "closed_book": Column("closed-book", "share", "substring"),
    "closed_book_word": Column("closed-book, word", "share", "word"),
    "augmented": Column("augmented", "share", "substring"),
    "augmented_word": Column("augmented, word", "share", "word"),
    "named": Column("names an answer", "share"),
    "majority": Column("usual answer", "share", "substring"),
    "majority_word": Column("usual answer, word", "share", "word"),
    "guessable": Column("guessable", "share"),
    "popularity": Column("median page views"),
    "counted_in": Column("counted in", "name"),
    "linked_share": Column("linked", "share"),
    "retrieved": Column("retrieves", "share"),
    "train_adaptive": Column("training", "share"),
    "ece": Column("ECE", "share"),
    "share_of_saved": Column("share of saved", "share"),
    "saved": Column("saved against none, %"),
    "saved_over_dense": Column("saved against dense, %"),
    "saved_over_random": Column("saved against random, %"),
    **{name: Column(name, "name") for name in ("corpus", "text", "task")},
    **{name: Column(name, "share") for name in ("recall", "share", "accuracy", "confidence", "own", "carried")},
    **{name: Column(name, "share") for name in ("adaptive", "always", "never", "oracle")},
}
_SHARES = ("accuracy", "retrieved")
NUMBERED = {"k", "decile", "bin", "least", "most"}  # columns of numbers that name a row, as texts do


def column(name: str) -> Column:
    """How a column is shown; <name>_splits is over splits, and recalls and accuracies are shares."""
    if name in COLUMNS:
        return COLUMNS[name]
    if (base := name.removesuffix("_splits")) != name:
        return replace(column(base), label=f"{column(base).label}, over splits")
    if "recall_at_" in name or name.endswith("_word"):
        return Column(name.replace("_at_", "@"), "share")
    kind, _, what = name.partition("_")
    return Column(f"{COLUMNS[kind].label}, {what}", "share") if kind in _SHARES else Column(name.replace("_", " "))


def write_analyses(folder: Path, name: str, rows: Iterable[dict]) -> None:
    """Write rows, dicts with the columns of TABLES[name], to <folder>/<name>.parquet."""
    kinds, flat = TABLES[name], []
    fields = [
        (f"{column}{end}", _TYPES.get(kind, pa.float64()))
        for column, kind in kinds.items()
        for end in (ENDS if kind is Interval else ENDS[:1])
    ]
    for row in rows:
        assert set(row) == set(kinds), f"{name}: {set(row) ^ set(kinds)}"
        cells: dict = {}
        for column, value in row.items():
            nothing = isinstance(value, float) and math.isnan(value)
            cells |= value.columns(column) if isinstance(value, Interval) else {column: None if nothing else value}
        flat.append(cells)
    parquet.write_parquet(pa.Table.from_pylist(flat, pa.schema(fields)), folder / f"{name}.parquet")


def read_analyses(folder: Path, name: str) -> list[dict]:
    """The rows that `write` wrote."""
    intervals = [column for column, kind in TABLES[name].items() if kind is Interval]
    rows = parquet.read_parquet(folder / f"{name}.parquet").to_pylist()
    for row in rows:
        for column in intervals:
            parts = [row.pop(f"{column}{end}") for end in ENDS]
            row[column] = NOTHING if parts[0] is None else Interval(*parts)
    return rows


def popularity_of(data: Path, name: str) -> tuple[Path, str]:
    """The file and the column with the popularity of what a question set asks about."""
    folder = data / "questions" / name
    if catalogue.DATASETS[name].answered:
        return folder / f"{name}.parquet", "s_pop"
    return folder / "popularity.parquet", "popularity"
