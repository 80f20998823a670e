"""What is retrieved for and scored: language-modelling queries (REPLUG §5) and questions, in one form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt


@dataclass(frozen=True)
class Queries:
    """Texts to search with, and what the language model reads and is asked for; arrays of str (n,)."""

    ids: np.ndarray
    texts: np.ndarray
    contexts: np.ndarray
    continuations: np.ndarray
    separator: str  # between a document and the context

    def __len__(self) -> int:
        return len(self.ids)

    def prompt(self, query: int, text: str | None) -> Prompt:
        return Prompt(self.contexts[query], "" if text is None else text + self.separator)

    def and_then(self, other: Queries) -> Queries:
        names = ("ids", "texts", "contexts", "continuations")
        arrays = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        return Queries(*arrays, self.separator)


def language_modelling(corpus: Path, split: str, seed: int, at_most: int) -> tuple[Queries, np.ndarray, np.ndarray]:
    """The corpus's queries of a split, drawn by hash, with their source_document and source; searched with the context.

    Raises LongtailError where the stage `chunk` did not write them.
    """
    names = ("id", "context", "continuation", "source_document", "source")
    found = _read(
        corpus / "queries.parquet", f"SELECT {', '.join(names)} FROM rows WHERE split = '{split}' ORDER BY id"
    )
    ids, contexts, continuations, *sources = found
    chosen = draws.sample(seed, f"{split} queries", list(ids), at_most) if len(ids) else np.empty(0, np.int64)
    queries = Queries(ids[chosen], contexts[chosen], contexts[chosen], continuations[chosen], separator="\n")
    return queries, sources[0][chosen], sources[1][chosen]


def questions(popqa: Path, seed: int, validation_share: float, at_most: int, held_at_most: int):
    """PopQA's training questions: those to learn from, those that judge, and the titles of the latter's pages.

    Subjects are shared out by hash, so that none is on both sides; (Queries, Queries, (n,) str). Only questions whose
    subject's page is known can judge. Raises LongtailError where the stage `build_popqa` did not write them.
    """
    ids, asked, answers, subjects, pages = _read(
        popqa,
        """SELECT question_id, question, possible_answers[1], coalesce(s_uri, subj), s_wiki_title FROM rows
           WHERE split = 'train' AND len(possible_answers) > 0 ORDER BY question_id""",
    )
    held = draws.uniforms(seed, "lsr validation", subjects) < validation_share
    known = np.array([bool(page) for page in pages], bool)

    def draw(some: np.ndarray, purpose: str, n: int) -> tuple[Queries, np.ndarray]:
        places = np.flatnonzero(some)
        rows = places[draws.sample(seed, purpose, list(ids[places]), n)] if len(places) else places
        contexts = np.array([f"Q: {question} A:" for question in asked[rows]], object)
        wanted = np.array([f" {answer}" for answer in answers[rows]], object)
        return Queries(ids[rows], asked[rows], contexts, wanted, separator="\n\n"), pages[rows]

    (train, _), (judging, titles) = (
        draw(~held, "lsr questions", at_most),
        draw(held & known, "lsr judges", held_at_most),
    )
    return train, judging, titles


def _read(path: Path, query: str) -> list[np.ndarray]:
    """The columns of a query over the Parquet file as `rows`, arrays of object."""
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `dvc repro` runs the stage that writes it")
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(path))  # noqa: F841 (DuckDB finds it by name)
        found = connection.sql(query).to_arrow_table()
    return [column.to_numpy(zero_copy_only=False).astype(object) for column in found.columns]
