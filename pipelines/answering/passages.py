"""The passages that answers are read from: a retriever's best documents, or what the LM writes.

A language model writes its own passage by the method GenRead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.answering import prompts, question_shards
from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.lm.open_lm import LMWorkers
from pipelines.methods import GIVEN, INDEXES, Method
from pipelines.params import params
from pipelines.params.param_types import LMName, RetrieverName, Section
from pipelines.retrieval import documents
from pipelines.storage import parquet
from pipelines.work import workers

SEARCHED_AT_ONCE = 4096  # questions: reading documents passes over the whole of docs.parquet
WRITTEN_AT_ONCE = 256  # passages that a local language model writes in one shard

# A row for each question; lists of k, the best passage first, each in a prompt of its own.
SCHEMA = pa.schema(
    {
        # as the LM reads them, with their titles if answer.passage has these
        "texts": pa.list_(pa.string()),
        # null if the LM wrote the passage, as are titles and similarities
        "doc_ids": pa.list_(pa.string()),
        "titles": pa.list_(pa.string()),
        "similarities": pa.list_(pa.float32()),
        "prompt_tokens": pa.int32(),  # tokens of the prompt for the passage
        "new_tokens": pa.int32(),  # tokens that the LM wrote for the passage
        "best": pa.string(),  # the best passage alone, as a demonstration shows it
    }
)
# The same where the LM writes the passages, and why it wrote none.
WRITTEN = SCHEMA.append(pa.field("unanswered", pa.string()))
# The row of a question without passages.
CLOSED_BOOK = {"texts": [None], "prompt_tokens": 0, "new_tokens": 0, "best": None}


class PassageSettings(Section):
    """The sections of params.yaml by which passages are found."""

    language: str
    compute: params.Compute
    lm: dict[LMName, params.LM]
    retriever: dict[RetrieverName, params.Retriever]
    retrievers: list[RetrieverName]
    parts: params.Parts
    answer: params.Answer
    replug: params.Replug


@dataclass(frozen=True)
class Source:
    """What finds the passages of questions."""

    # texts of questions -> their passages (SCHEMA, or WRITTEN)
    find: Callable[[list[str]], pa.Table]
    at_once: int  # questions that `find` is best called with
    written: bool  # whether the LM writes the passages, by one more prompt a question
    by_id: bool = False  # whether `find` takes questions' ids in place of their texts
    lm: LanguageModel | LMWorkers | None = None  # the language model that writes them
    # What that language model does, in whichever process.
    write: Callable[[LanguageModel, list[str]], pa.Table] | None = None
    max_tokens: int = 0  # the most tokens of a passage that it writes


def open_source(
    method: str,
    lm: LanguageModel | LMWorkers | None,
    settings: PassageSettings,
    data: Path,
    spoken: Language = ENGLISH,
) -> Source | None:
    """What finds the passages of a method; None for closed_book. Only genread needs `lm`.

    `spoken` says how a question set asks for a passage, and joins several.
    """
    if method == "genread":
        server = settings.lm[lm.name].http
        return written(lm, settings.answer.passage_tokens, spoken, server)

    parsed = Method.parse(method, settings.retrievers)
    k = settings.replug.top_k if parsed.is_ensemble else settings.answer.passages
    template = settings.answer.passage
    between = None if parsed.is_ensemble else spoken.between_passages
    clipped = not {parsed.kind, parsed.name}.isdisjoint(settings.answer.clipped)
    if parsed.kind in GIVEN:
        from pipelines.answering.given_passages import open_passages

        given = open_passages(method, data)
        return retrieved(
            given, given.read, k, template, between=between, clipped=clipped, by_id=True
        )
    if parsed.kind in INDEXES:
        from pipelines.retrieval.retriever import open_index

        corpus = settings.parts.datastore
        retriever = open_index(parsed, corpus, settings, data=data)
        docs = _docs(corpus, data)
        return retrieved(retriever, docs, k, template, between=between, clipped=clipped)
    return None


def inputs(method: str, settings: PassageSettings, data: Path) -> list[Path]:
    """The files that a method retrieves with: given passages, or what its indexes were made of.

    These are the descriptions of the indexes, and last the documents.
    """
    parsed = Method.parse(method, settings.retrievers)
    if parsed.kind in GIVEN:
        from pipelines.answering.given_passages import passage_files

        return passage_files(method, data)
    if parsed.kind not in INDEXES:
        return []
    corpus = settings.parts.datastore
    files = []
    for index in parsed.indexes:
        files.append(methods.index_folder(index, corpus, data) / "meta.json")
    files.append(_docs(corpus, data))
    return files


def _docs(corpus: str | None, data: Path) -> Path:
    return data / f"corpus/{corpus}/docs.parquet"


def prompts_of_question(
    settings: Any,
    dataset: str,
    pool: prompts.Questions,
    place: int,
    lm: str,
    source: Source | None,
) -> tuple[list[Prompt], pa.Table | None]:
    """What the stage `answer` sends for one question of `pool`.

    Also returns the passages (SCHEMA) of the question, in the first row, and of its demonstrations
    if these have any; None without a source. `settings` have the sections seed, language, lm and
    answer.
    """
    spoken = prompts.language_of(dataset, settings.language)
    n_shots = settings.answer.of(dataset, settings.lm[lm]).n_shots
    is_written = source is not None and source.written
    (shots,) = prompts.demonstrations(
        settings.seed, dataset, pool, [place], n_shots, common=is_written
    )

    table = None
    rows = {question: CLOSED_BOOK for question in (place, *shots)}
    if source is not None:
        searched = [place, *shots] if settings.answer.shot_passages else [place]
        keys = pool.ids if source.by_id else pool.texts
        table = source.find([keys[question] for question in searched])
        rows |= zip(searched, table.to_pylist(), strict=True)
    return question_prompts(pool, [place], [shots], [rows[place]], rows, spoken), table


def question_prompts(
    pool: prompts.Questions,
    asked: Sequence[int],
    shots: Sequence[Sequence[int]],
    rows: Sequence[dict],
    rows_of_shots: Mapping[int, dict],
    spoken: Language,
) -> list[Prompt]:
    """The prompts of the questions asked: one for each of a question's passages, in its row.

    Before it stand the question's demonstrations, each with the best passage in its own row.
    """
    sent = []
    for position, row, shots_of_question in zip(asked, rows, shots, strict=True):
        examples = []
        for shot in shots_of_question:
            examples.append(pool.example(shot, rows_of_shots[shot]["best"]))
        for passage in row["texts"]:
            sent.append(prompts.question_prompt(pool.texts[position], passage, examples, spoken))
    return sent


def retrieved(
    retriever: documents.Retriever,
    docs: Path | Callable[[np.ndarray], documents.Documents],
    k: int,
    template: str,
    *,
    between: str | None,
    clipped: bool = False,
    by_id: bool = False,
) -> Source:
    """A source that gives the k best documents of each question.

    Each document is a passage of its own; or they are one passage, with `between` between
    documents: the best document first, and the id, title and similarity of the best.
    `template` says how the LM reads a document's title and text. With `clipped` a text ends at its
    last ". ", as PopQA's authors cut it, and a text without ". " becomes a full stop. `docs` is the
    file of documents, or a function that reads the documents at some positions.
    """

    def find(texts: list[str]) -> pa.Table:
        positions, similarities = retriever.search(texts, k)
        if callable(docs):
            found = docs(positions)
        else:
            found = documents.read_documents(docs, positions)
        if clipped:
            found = found._replace(texts=_CLIP(found.texts))

        passages = found.filled(template)
        ids = found.ids
        titles = found.titles
        best = passages[:, 0]
        if between is not None:  # fewer than k documents leave empty places
            passages = _joined(passages, positions >= 0, between)
            ids = ids[:, :1]
            titles = titles[:, :1]
            similarities = similarities[:, :1]
        columns = [column.tolist() for column in (passages, ids, titles, similarities)]
        no_tokens = [0] * len(texts)
        return pa.table([*columns, no_tokens, no_tokens, best.tolist()], schema=SCHEMA)

    return Source(find, at_once=SEARCHED_AT_ONCE, written=False, by_id=by_id)


def _clip(text: str) -> str:
    """The text up to its last ". "; an empty text stays empty."""
    if not text:
        return ""
    return f"{text.rpartition('. ')[0]}."


_CLIP = np.vectorize(_clip, otypes=[object])


def _joined(passages: np.ndarray, is_there: np.ndarray, between: str) -> np.ndarray:
    """One passage of those in each row, (n, 1)."""
    joined = []
    for row, places in zip(passages, is_there, strict=True):
        joined.append(between.join(row[places]))
    return np.array(joined, object)[:, None]


def written(
    lm: LanguageModel | LMWorkers,
    max_tokens: int,
    spoken: Language = ENGLISH,
    server: params.LMServer | None = None,
) -> Source:
    """A passage of at most `max_tokens`, which ends with its first line, as published."""
    write = partial(write_passages, max_tokens, spoken)
    at_once = workers.shard_size(WRITTEN_AT_ONCE, 1, server)
    return Source(
        find=partial(write, lm),
        at_once=at_once,
        written=True,
        lm=lm,
        write=write,
        max_tokens=max_tokens,
    )


def write_passages(
    max_tokens: int, spoken: Language, lm: LanguageModel, texts: list[str]
) -> pa.Table:
    """The passages (WRITTEN) that a LM writes for questions."""
    asked_for = [prompts.passage_prompt(text, spoken) for text in texts]
    rows = []
    for generation in lm.generate(asked_for, max_tokens):
        text = generation.text.strip()
        row = {
            "texts": [text],
            "doc_ids": [None],
            "titles": [None],
            "similarities": [None],
            "prompt_tokens": generation.prompt_tokens,
            "new_tokens": generation.new_tokens,
            "best": text,
            "unanswered": generation.unanswered or None,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, WRITTEN)


def check_written(unwritten: Iterable[str | None]) -> None:
    """Raise LongtailError with the first reason why the LM wrote no passage, if there is one."""
    for reason in filter(None, unwritten):
        raise LongtailError(f"no passage for a demonstration or question: {reason}")


class Lookup:
    """The passages of all questions that are asked or shown as demonstrations.

    Each question is searched once, because many questions share a demonstration. Finished shards of
    the search stay under `name` and `key` until the caller forgets them.
    """

    def __init__(self, source: Source | None, texts: dict[int, str], name: str, key: str) -> None:
        """`texts` are those of the questions, by their positions in the question set."""
        self._questions = np.array(sorted(texts), np.int64)
        self._table: pa.Table | None = None
        if source is None:
            return

        def read(shard: slice) -> list[str]:
            return [texts[question] for question in self._questions[shard].tolist()]

        def find(_: Any, queries: list[str]) -> pa.Table:
            return source.find(queries)

        def write(_: slice, passages: pa.Table, path: Path) -> None:
            parquet.write_parquet(passages, path)

        def length(queries: list[str]) -> int:
            characters = sum(len(text) for text in queries)
            return characters + workers.BYTES_PER_TOKEN * source.max_tokens * len(queries)

        steps = workers.Steps(read, source.write or find, write, length)
        self._table = question_shards.map_shards(
            source.lm,
            name,
            key,
            n_questions=len(self._questions),
            at_once=source.at_once,
            steps=steps,
            schema=WRITTEN if source.written else SCHEMA,
            unit="question or demonstration",
        )

    def rows(self, questions: Sequence[int]) -> list[dict]:
        """Each question's row of SCHEMA, or CLOSED_BOOK."""
        if self._table is None:
            return [CLOSED_BOOK] * len(questions)
        places = np.searchsorted(self._questions, questions)
        return self._table.take(places).to_pylist()
