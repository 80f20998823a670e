"""The passages that answers are read from: a retriever's best documents, or what the LM writes (GenRead)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.answering import latency, prompts
from pipelines.answering.latency import Batch
from pipelines.language import language
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.lm.open_lm import LMWorkers
from pipelines.methods import INDEXES, Method
from pipelines.params import params
from pipelines.params.params_models import LMName, RetrieverName
from pipelines.retrieval import documents
from pipelines.retrieval import retriever as retrievers
from pipelines.storage import parquet
from pipelines.work import workers

QUESTIONS_AT_ONCE = 4096  # searched together, as reading documents passes over all of them
PASSAGES_AT_ONCE = 256  # written by a local LM in one shard

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
    }
)
# The row of a question without passages.
CLOSED_BOOK = {"texts": [None], "prompt_tokens": 0, "new_tokens": 0}


class AnsweringSettings(retrievers.RetrievalSettings):
    """The sections of params.yaml that finding passages and asking a LM needs."""

    seed: int
    language: str
    parts: params.Parts
    lm: dict[LMName, params.LM]
    retrievers: list[RetrieverName]
    reranker: params.Reranker | None
    answer: params.Answer
    replug: params.Replug


@dataclass(frozen=True)
class Source:
    """`find` takes question texts to their passages (SCHEMA), best asked for `at_once` of them."""

    find: Callable[[list[str]], pa.Table]
    at_once: int
    written: bool  # whether the LM writes them, by one more prompt a question
    by_id: bool = False  # whether `find` takes questions' ids in place of their texts
    lm: LanguageModel | LMWorkers | None = None  # the language model that writes them
    # what it does, in whichever process
    write: Callable[[LanguageModel, list[str]], pa.Table] | None = None
    max_tokens: int = 0  # the most tokens of a passage that it writes


def open_source(
    name: str, lm: LanguageModel | LMWorkers | None, settings: AnsweringSettings, data: Path
) -> Source | None:
    """What finds the passages of a method; None for closed_book. `lm` is needed for genread only."""
    method = Method.parse(name, settings.retrievers)
    if method.kind == "genread":
        return written(
            lm,
            settings.answer.passage_tokens,
            language.read_language(settings.language),
            settings.lm[lm.name].http,
        )
    if method.kind in methods.GIVEN:
        from pipelines.answering.given_passages import open_passages

        given = open_passages(name, data)
        source = _retrieved(given, given.read, method, settings)
        return replace(source, by_id=True)
    if method.kind not in INDEXES:
        return None
    corpus = settings.parts.datastore
    index = retrievers.open_index(
        Method(INDEXES[method.kind], method.retriever),
        corpus,
        settings,
        reranker=settings.reranker if method.kind == "reranked" else None,
        data=data,
    )
    return _retrieved(index, data / "corpus" / corpus / "docs.parquet", method, settings)


def _retrieved(
    retriever: documents.Retriever,
    docs: Path | Callable[[np.ndarray], documents.Documents],
    method: Method,
    settings: AnsweringSettings,
) -> Source:
    """What a method reads of the documents that a retriever finds."""
    return retrieved(
        retriever,
        docs,
        settings.replug.top_k if method.is_ensemble else settings.answer.passages,
        settings.answer.passage,
        together=not method.is_ensemble,
        clipped=method.kind in settings.answer.clipped,
    )


def inputs(name: str, settings: AnsweringSettings, data: Path) -> list[Path]:
    """The files that a method retrieves with.

    These are descriptions of indexes, a cross-encoder, and last the documents; or given passages.
    """
    method = Method.parse(name, settings.retrievers)
    if method.kind in methods.GIVEN:
        from pipelines.answering.given_passages import passage_files

        return passage_files(name, data)
    if method.kind not in INDEXES:
        return []
    corpus = settings.parts.datastore
    files = []
    for index in Method(INDEXES[method.kind], method.retriever).indexes:
        files.append(methods.index_folder(index, corpus, data) / "meta.json")
    if method.kind == "reranked":
        files.append(data / methods.RERANKER)
    return [*files, data / f"corpus/{corpus}/docs.parquet"]


def prompts_of_question(
    settings: AnsweringSettings,
    dataset: str,
    pool: prompts.Questions,
    place: int,
    lm: str,
    source: Source | None,
) -> tuple[list[Prompt], Prompt, pa.Table | None]:
    """What the stage `answer` sends for one question of `pool`, and the same without any passage.

    Also returns the passages (SCHEMA) of the question, in the first row, and of its demonstrations
    if these have any; None without a source.
    """
    n_shots = settings.answer.of(settings.lm[lm]).n_shots
    lm_writes = source is not None and source.written
    (shots,) = prompts.demonstrations(
        settings.seed, dataset, pool, [place], n_shots, common=lm_writes
    )
    searched = [place]
    if settings.answer.shot_passages:
        searched += shots
    table = None
    texts = [[None]]
    if source:
        keys = pool.ids if source.by_id else pool.texts
        table = source.find([keys[i] for i in searched])
        texts = table["texts"].to_pylist()
    texts += [[None]] * (1 + len(shots) - len(texts))

    examples = []
    bare_examples = []
    for shot, shot_texts in zip(shots, texts[1:], strict=True):
        examples.append((pool.texts[shot], pool.shown[shot], shot_texts[0]))
        bare_examples.append((pool.texts[shot], pool.shown[shot], None))
    spoken = language.read_language(settings.language)
    question = pool.texts[place]
    sent = []
    for passage in texts[0]:
        sent.append(prompts.question_prompt(question, passage, examples, spoken))
    return sent, prompts.question_prompt(question, None, bare_examples, spoken), table


def retrieved(
    retriever: documents.Retriever,
    docs: Path | Callable[[np.ndarray], documents.Documents],
    k: int,
    template: str,
    *,
    together: bool,
    clipped: bool = False,
) -> Source:
    """The k best documents of each question, each a passage of its own, or all `together` as one.

    The LM reads a document's title and text as `template` puts them. If `clipped`, the text ends at
    its last ". ", as PopQA's authors cut it: a text without any is a full stop. One passage has its
    documents best first, a blank line between, and the id, title and similarity of the best. `docs`
    may be a function of positions.
    """

    def find(texts: list[str]) -> pa.Table:
        positions, similarities = retriever.search(texts, k)
        if callable(docs):
            found = docs(positions)
        else:
            found = documents.read_documents(docs, positions)
        if clipped:
            found = found._replace(texts=_clip(found.texts))
        columns = [found.filled(template), found.ids, found.titles, similarities]
        if together:  # fewer than k documents leave empty places
            joined = []
            for row, is_filled in zip(columns[0], positions >= 0, strict=True):
                joined.append("\n\n".join(row[is_filled]))
            columns = [values[:, :1] for values in columns]
            columns[0] = np.array(joined, object)[:, None]
        no_tokens = [0] * len(texts)
        lists = [values.tolist() for values in columns]
        return pa.table([*lists, no_tokens, no_tokens], schema=SCHEMA)

    return Source(find, QUESTIONS_AT_ONCE, written=False)


def _clip_text(text: str) -> str:
    return text and f"{text.rpartition('. ')[0]}."


_clip = np.vectorize(_clip_text, otypes=[object])


def written(
    lm: LanguageModel | LMWorkers,
    max_tokens: int,
    spoken: Language = ENGLISH,
    server: params.LMServer | None = None,
) -> Source:
    """A passage of at most `max_tokens`, which ends with its first line, as published."""
    write = partial(write_passages, max_tokens, spoken)
    return Source(
        find=partial(write, lm),
        at_once=workers.shard_size(PASSAGES_AT_ONCE, 1, server),
        written=True,
        lm=lm,
        write=write,
        max_tokens=max_tokens,
    )


def write_passages(
    max_tokens: int, spoken: Language, lm: LanguageModel, texts: list[str]
) -> pa.Table:
    """The passages (SCHEMA) that a LM writes for questions."""
    asked = [prompts.passage_prompt(text, spoken) for text in texts]
    rows = []
    for generation in lm.generate(asked, max_tokens):
        rows.append(
            {
                "texts": [generation.text.strip()],
                "doc_ids": [None],
                "titles": [None],
                "similarities": [None],
                "prompt_tokens": generation.prompt_tokens,
                "new_tokens": generation.new_tokens,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def timed(work: Callable[[Any, Any], Any], lm: Any, task: Any) -> tuple[Any, float, str]:
    """What `work` gives for a task, the seconds that it took, and the machine.

    On a server, where tasks overlap, the seconds are the LM's own count.
    """
    started = time.monotonic()
    result = work(lm, task)
    ended = time.monotonic()
    seconds = lm.took(started, ended) if hasattr(lm, "took") else ended - started
    return result, seconds, latency.machine()


def write_shard(table: pa.Table, path: Path, seconds: float, machine: str) -> None:
    """Write a shard's rows and, beside them, how many seconds they took on which machine."""
    measured = {"seconds": str(seconds), "machine": machine}
    parquet.write_parquet(table.replace_schema_metadata(measured), path)


def read_shards(files: Sequence[Path], schema: pa.Schema) -> tuple[pa.Table, list[Batch]]:
    """The rows of all shards, and what each of them took, in whichever run and machine."""
    tables = [schema.empty_table()]
    batches = []
    for file in files:
        table = parquet.read_parquet(file, schema=schema)
        measured = parquet.schema_of(file).metadata
        machine = measured.get(b"machine", b"").decode()
        tables.append(table)
        batches.append(Batch(table.num_rows, float(measured[b"seconds"]), machine))
    return pa.concat_tables(tables), batches


class Lookup:
    """The passages of all questions asked or shown.

    Many questions share a demonstration, so each is searched once. Finished shards of the search
    stay under `name` and `key` until the caller forgets them. `batches` is how long each took.
    """

    def __init__(self, source: Source | None, texts: dict[int, str], name: str, key: str) -> None:
        """`texts` are those of the questions, by their positions in the question set."""
        self.batches: list[Batch] = []
        self._texts = texts
        self._source = source
        self._questions = np.array(sorted(texts), np.int64)
        self._table: pa.Table | None = None
        if source is None:
            return

        tasks = []
        for start in range(0, len(self._questions), source.at_once):
            tasks.append(self._questions[start : start + source.at_once])
        files = workers.map_texts(
            source.lm,
            name,
            key,
            tasks,
            workers.Steps(self._read, partial(timed, self._find()), self._write, self._length),
            sizes=[len(task) for task in tasks],
            unit="question or demonstration",
        )
        self._table, self.batches = read_shards(files, SCHEMA)

    def rows(self, questions: Sequence[int]) -> list[dict]:
        """Each question's row of SCHEMA, or CLOSED_BOOK."""
        if self._table is None:
            return [CLOSED_BOOK] * len(questions)
        return self._table.take(np.searchsorted(self._questions, questions)).to_pylist()

    def _read(self, task: np.ndarray) -> list[str]:
        return [self._texts[question] for question in task.tolist()]

    def _find(self) -> Callable[[Any, list[str]], pa.Table]:
        """What finds or writes the passages, of the LM and the texts."""
        source = self._source
        if source.lm:
            return source.write

        def find(_: Any, texts: list[str]) -> pa.Table:
            return source.find(texts)

        return find

    def _length(self, texts: list[str]) -> int:
        """How many characters there are to read and to write."""
        to_write = workers.BYTES_PER_TOKEN * self._source.max_tokens * len(texts)
        return sum(map(len, texts)) + to_write

    @staticmethod
    def _write(_: np.ndarray, result: tuple[pa.Table, float, str], path: Path) -> None:
        table, seconds, machine = result
        write_shard(table, path, seconds, machine)
