"""Language-modelling queries (REPLUG §5) and questions, in the form in which they are searched with and scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import Prompt
from pipelines.storage import database


@dataclass(frozen=True)
class Queries:
    """What the retriever reads, what the language model reads, and what it is to continue with; arrays of str (n,)."""

    ids: np.ndarray
    texts: np.ndarray  # searched with
    contexts: np.ndarray
    continuations: np.ndarray
    document: str  # template of the document in front of the context (retrieval/documents.py)

    def __len__(self) -> int:
        return len(self.ids)

    def prompt(self, row: int, document: str | None) -> Prompt:
        """What the language model reads; `document` is in the template, or None."""
        return Prompt(self.contexts[row], document or "")

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.ids, self.texts, self.contexts, self.continuations

    def take(self, rows: np.ndarray) -> Queries:
        return Queries(*(column[rows] for column in self.columns()), self.document)

    def and_then(self, other: Queries) -> Queries:
        columns = zip(self.columns(), other.columns(), strict=True)
        return Queries(*map(np.concatenate, columns), self.document)


def read_language_modelling(
    corpus: Path, split: str, seed: int, at_most: int
) -> tuple[Queries, np.ndarray, np.ndarray]:
    """Queries of a corpus's split, drawn by hash, with their source_document and source; LongtailError if no file.

    The language model reads a document's text without its title, as published: both texts run on.
    """
    names = "id, context, continuation, source_document, source"
    query = f"SELECT {names} FROM rows WHERE split = ? ORDER BY id"
    ids, contexts, continuations, source_documents, sources = _read(corpus / "queries.parquet", query, [split])
    chosen = draws.sample(seed, f"{split} queries", list(ids), at_most) if len(ids) else np.empty(0, np.int64)
    queries = Queries(ids[chosen], contexts[chosen], contexts[chosen], continuations[chosen], document="{text}\n")
    return queries, source_documents[chosen], sources[chosen]


def read_questions(
    popqa: Path,
    seed: int,
    validation_share: float,
    n_train: int,
    n_validation: int,
    passage: str,
    language: Language = ENGLISH,
) -> tuple[Queries, Queries, np.ndarray]:
    """Questions of PopQA's train split to learn from, questions for validation, and their page titles (n,).

    The language model reads a document as when it answers: in the template `passage`, with a blank line behind it. The
    two share no subject. Only questions whose subject's page is known can validate. Raises LongtailError if there is no
    file.
    """
    ids, questions, answers, subjects, pages = _read(
        popqa,
        """SELECT question_id, question, possible_answers[1], coalesce(s_uri, subj), s_wiki_title FROM rows
           WHERE split = 'train' AND len(possible_answers) > 0 ORDER BY question_id""",
    )
    held_out = draws.uniforms(seed, "lsr validation", subjects) < validation_share
    has_page = np.array([bool(page) for page in pages], bool)

    def draw(eligible: np.ndarray, purpose: str, at_most: int) -> tuple[Queries, np.ndarray]:
        places = np.flatnonzero(eligible)
        rows = places[draws.sample(seed, purpose, list(ids[places]), at_most)] if len(places) else places
        contexts = np.array([language.asked(question) for question in questions[rows]], object)
        triples = zip(contexts, questions[rows], answers[rows], strict=True)
        answered = [language.answered(question, answer)[len(asked) :] for asked, question, answer in triples]
        continuations = np.array(answered, object)
        return Queries(ids[rows], questions[rows], contexts, continuations, f"{passage}\n\n"), pages[rows]

    train, _ = draw(~held_out, "lsr questions", n_train)
    validation, titles = draw(held_out & has_page, "lsr judges", n_validation)
    return train, validation, titles


def _read(path: Path, query: str, values: database.Values = None) -> list[np.ndarray]:
    """The columns of a query over a Parquet file, which the query calls `rows`; arrays of object."""
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `dvc repro` runs the stage that writes it")
    table = database.ask(query, values, rows=path).to_arrow_table()
    return [column.to_numpy(zero_copy_only=False).astype(object) for column in table.columns]
