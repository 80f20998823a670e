"""The passages that answers are read from: a retriever's best documents, or what the LM itself writes (GenRead)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.answering import prompts

if TYPE_CHECKING:
    from pipelines.lm.language_model import LanguageModel
    from pipelines.retrieval.retriever import Retriever

# A row for each question; lists of k, the best passage first.
SCHEMA = pa.schema(
    {
        "texts": pa.list_(pa.string()),
        "doc_ids": pa.list_(pa.string()),  # this and the next two hold nulls where the LM wrote the passage
        "titles": pa.list_(pa.string()),
        "similarities": pa.list_(pa.float32()),
        "prompt_tokens": pa.int32(),  # this and the next: what the LM was sent for the passage, and what it wrote
        "new_tokens": pa.int32(),
    }
)


@dataclass(frozen=True)
class Source:
    """`find` takes question texts to their passages (SCHEMA), best asked for `at_once` of them."""

    find: Callable[[list[str]], pa.Table]
    at_once: int
    written: bool  # by the LM: one prompt more a question


def retrieved(retriever: Retriever, docs: Path, k: int) -> Source:
    """The k best documents each; many questions at once, since reading documents passes over the whole of `docs`."""
    from pipelines.retrieval import documents

    def find(texts: list[str]) -> pa.Table:
        positions, similarities = retriever.search(texts, k)
        found = documents.read(docs, positions)
        nothing = [0] * len(texts)
        lists = [found.texts, found.ids, found.titles, similarities]
        return pa.table([*(values.tolist() for values in lists), nothing, nothing], schema=SCHEMA)

    return Source(find, at_once=4096, written=False)


def written(lm: LanguageModel, max_tokens: int) -> Source:
    """A passage of at most `max_tokens`, which ends with its first line, as published."""

    def find(texts: list[str]) -> pa.Table:
        made = lm.generate([prompts.passage_prompt(text) for text in texts], max_tokens)
        unknown = [[None]] * len(texts)
        tokens = [[one.prompt_tokens for one in made], [one.new_tokens for one in made]]
        return pa.table([[[one.text.strip()] for one in made], unknown, unknown, unknown, *tokens], schema=SCHEMA)

    return Source(find, at_once=256, written=True)
