"""How methods of answering and indexes are called, and which of the params' `retrievers` each of
them uses.

The main retriever is the first of `retrievers`. Its methods are dense, lsr, hybrid (BM25 and
dense), replug and replug_lsr; those of another retriever have its name after them, as dense_bert.
Files have every retriever's name, the main one's too (dense_contriever.parquet), so that another
order of `retrievers` makes no file anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.errors import LongtailError

# methods whose passages come from a file; a name after them is that of the file's folder
GIVEN = ("given", "replug_given")
# the methods, in the order of tables
METHODS = (
    "closed_book",
    "bm25",
    "dense",
    "lsr",
    "hybrid",
    "genread",
    "replug",
    "replug_lsr",
    *GIVEN,
)
# what a method is whose name does not tell: imported ones have any name
KINDS = ("closed_book", "retrieval", "other")
INDEXES = {  # kind of method -> what is searched; hybrid has no index of its own
    "bm25": "bm25",
    "dense": "dense",
    "lsr": "lsr",
    "hybrid": "hybrid",
    "replug": "dense",
    "replug_lsr": "lsr",
}
ENCODED = INDEXES.keys() - {"bm25"}  # kinds of methods that have a retriever's name
ENSEMBLES = ("replug", "replug_lsr", "replug_given")
# kind of index -> its encoders, below data/
MODELS = {"dense": Path("models/retriever"), "lsr": Path("models/lsr")}
# no names of retrievers: else replug_lsr and dense_below_bm25 had two meanings
RESERVED = ("lsr", "below", "random", "bm25", "given")
NAME = "[a-z0-9]+(?:-[a-z0-9]+)*"
RETRIEVER = rf"(?!(?:{'|'.join(RESERVED)})$){NAME}"
_NAMES = re.compile(
    rf"(dense|lsr|hybrid|replug_lsr|replug)_({RETRIEVER})|((?:replug_)?given)_({NAME})"
)
SIMILARITIES = {"cosine": "cosine", "dot": "dot product"}  # of encoders, in words


def check_name(name: str) -> str:
    """A retriever's name, checked; pydantic turns the ValueError into the user's error."""
    if not re.fullmatch(RETRIEVER, name):
        raise ValueError(
            "should be a name of small letters, digits and single hyphens, and not "
            f"{', '.join(RESERVED)}"
        )
    return name


@dataclass(frozen=True)
class Method:
    """A way to answer, or an index that is searched: its kind, and the retriever that it uses.

    Texts such as dense_contriever are parsed once, where they come in: from params, options and
    names of files.
    """

    kind: str  # of METHODS, of INDEXES' values, or any name where the answers were imported
    # the encoder's name, or the folder of given passages; "" where the kind has none
    retriever: str = ""

    @classmethod
    def parse(cls, text: str, retrievers: Sequence[str]) -> Method:
        """The method that params or a user name; without a name, a kind with an encoder has the
        main retriever.

        Raises LongtailError for an unknown method, or one of a retriever that is not among
        `retrievers`.
        """
        method = cls.of_name(text)
        if method.kind not in METHODS:
            expected = f"expected one of {', '.join(METHODS)}, or as dense_NAME"
            raise LongtailError(f"{text}: no such method, {expected}")
        if method.kind not in ENCODED:
            return method

        is_of_run = not method.retriever or method.retriever in retrievers
        if not retrievers or not is_of_run:
            names = ", ".join(retrievers) or "none"
            raise LongtailError(
                f"{text}: expected a retriever of params.yaml's `retrievers`, which are: {names}"
            )
        return cls(method.kind, method.retriever or retrievers[0])

    @classmethod
    def of_name(cls, text: str) -> Method:
        """The method of a name in a file or table; a name that no kind begins is a kind of its own
        (imported).
        """
        match = _NAMES.fullmatch(text)
        if match is None or text in METHODS:
            return cls(text)
        kind = match[1] or match[3]
        retriever = match[2] or match[4]
        return cls(kind, retriever)

    @property
    def name(self) -> str:
        """The name with the retriever's, as files have it: dense_contriever."""
        if not self.retriever:
            return self.kind
        return f"{self.kind}_{self.retriever}"

    def short_name(self, retrievers: Sequence[str]) -> str:
        """The name in tables: the kind alone for the main retriever, which is the first of
        `retrievers`.
        """
        main = retrievers[0] if retrievers else None
        if self.retriever == main and self.kind not in GIVEN:
            return self.kind
        return self.name

    @property
    def indexes(self) -> list[Method]:
        """The indexes that its passages come from: two for a hybrid, none for a method without."""
        if self.kind == "hybrid":
            return [Method("bm25"), Method("dense", self.retriever)]
        if self.kind in INDEXES:
            return [Method(INDEXES[self.kind], self.retriever)]
        return []

    @property
    def is_ensemble(self) -> bool:
        """Whether each passage has a prompt of its own, and the answers are mixed (REPLUG)."""
        return self.kind in ENSEMBLES


def of_kinds(ways: Iterable[str], *kinds: str) -> list[str]:
    """The ways of these kinds, in the order of tables."""
    return ordered(way for way in ways if Method.of_name(way).kind in kinds)


def ordered(methods: Iterable[str]) -> list[str]:
    """Methods or retrievers in the order of tables, the main retriever's first; equal kinds keep
    their order.
    """
    return sorted(methods, key=_place)


def _place(name: str) -> tuple[int, bool]:
    """The place of a method in tables: by its kind, unknown kinds last, and other retrievers after
    the main one.
    """
    method = Method.of_name(name)
    kinds = ("none", "random", *METHODS)
    place = len(kinds)
    if method.kind in kinds:
        place = kinds.index(method.kind)
    return place, bool(method.retriever)


def run_indexes(retrievers: Sequence[str], tuned: Sequence[str]) -> list[Method]:
    """The indexes of a run: BM25, each retriever untuned, and those of `tuned` tuned."""
    untuned_indexes = [Method("dense", name) for name in retrievers]
    tuned_indexes = [Method("lsr", name) for name in retrievers if name in tuned]
    return [Method("bm25"), *untuned_indexes, *tuned_indexes]


def encoder_folder(index: Method, data: Path = Path("data")) -> Path:
    """The folder of the encoder whose vectors are in an index, dense or lsr."""
    return data / MODELS[index.kind] / index.retriever


def index_folder(index: Method, corpus: str, data: Path = Path("data")) -> Path:
    """The folder of a corpus's index: bm25, dense or lsr."""
    return data / "index" / index.kind / index.retriever / corpus


class HasSimilarity(Protocol):
    """A section of params.yaml's `retriever`, as far as `measure` reads it."""

    @property
    def similarity(self) -> str: ...


def measure(name: str, retrievers: Sequence[str], sections: Mapping[str, HasSimilarity]) -> str:
    """What the similarity of a method's passages is, in words.

    `sections` are those of params.yaml's `retriever`. It is just "similarity" for a method that is
    not the run's.
    """
    method = Method.of_name(name)
    if method.kind in GIVEN:
        return "the file's score"
    fixed = {
        "bm25": "BM25's score",
        "hybrid": "fusion of ranks",
    }
    if method.kind in fixed:
        return fixed[method.kind]

    retriever = method.retriever
    if not retriever and retrievers:
        retriever = retrievers[0]
    if method.kind not in ENCODED or retriever not in sections:
        return "similarity"
    return SIMILARITIES[sections[retriever].similarity]
