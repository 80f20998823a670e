"""The passages that answers are read from: a retriever's best documents, or what the LM itself writes (GenRead)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines import methods
from pipelines.answering import latency, prompts
from pipelines.answering.latency import Batch
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.lm.open_lm import LMWorkers
from pipelines.methods import ENSEMBLES, INDEXES
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.storage import parquet
from pipelines.work import workers

# A row for each question; lists of k, the best passage first, each in a prompt of its own.
SCHEMA = pa.schema(
    {
        "texts": pa.list_(
            pa.string()
        ),  # as the LM reads them, with their titles if answer.passage has these
        "doc_ids": pa.list_(
            pa.string()
        ),  # null if the LM wrote the passage, as are titles and similarities
        "titles": pa.list_(pa.string()),
        "similarities": pa.list_(pa.float32()),
        "prompt_tokens": pa.int32(),  # tokens of the prompt for the passage
        "new_tokens": pa.int32(),  # tokens that the LM wrote for the passage
    }
)
CLOSED_BOOK = {
    "texts": [None],
    "prompt_tokens": 0,
    "new_tokens": 0,
}  # the row of a question without passages


@dataclass(frozen=True)
class Source:
    """`find` takes question texts to their passages (SCHEMA), best asked for `at_once` of them."""

    find: Callable[[list[str]], pa.Table]
    at_once: int
    written: bool  # whether the LM writes them, by one more prompt a question
    by_id: bool = False  # whether `find` takes questions' ids in place of their texts
    lm: LanguageModel | LMWorkers | None = None  # the language model that writes them
    write: Callable[[LanguageModel, list[str]], pa.Table] | None = (
        None  # what it does, in whichever process
    )
    max_tokens: int = 0  # the most tokens of a passage that it writes


def open_source(
    method: str, lm: LanguageModel | LMWorkers | None, chosen: SimpleNamespace, data: Path
) -> Source | None:
    """What finds the passages of a method; None for closed_book. `lm` is needed for genread only.

    `chosen` are params with the sections language, compute, retriever, retrievers, answer and parts, lm for genread,
    replug for ensembles, and reranker for reranked.
    """
    if method == "genread":
        spoken = language.read_language(chosen.language)
        return written(lm, chosen.answer.passage_tokens, spoken, chosen.lm[lm.name].http)
    kind, name = methods.resolve(method, chosen.retrievers)
    if kind in methods.GIVEN:
        from pipelines.answering.given_passages import open_passages

        retriever = open_passages(method, data)
        docs = retriever.read
    elif kind in INDEXES:
        from pipelines.retrieval.retriever import open_index

        corpus = chosen.parts.datastore
        reranker = chosen.reranker if kind == "reranked" else None
        index = methods.Method(kind, name)
        retriever = open_index(index, corpus, chosen, reranker=reranker, data=data)
        *_, docs = inputs(method, chosen, data)
    else:
        return None
    k, clipped = (
        chosen.replug.top_k if kind in ENSEMBLES else chosen.answer.passages,
        kind in chosen.answer.clipped,
    )
    found = retrieved(
        retriever, docs, k, chosen.answer.passage, together=kind not in ENSEMBLES, clipped=clipped
    )
    return replace(found, by_id=kind in methods.GIVEN)


class Opened:
    """What was opened last of each kind, such as a model or an index, kept for the next question."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, Any] | None] = {}

    def get(self, kind: str, how: Callable[[], Any], files: Sequence[Path], *settings: Any) -> Any:
        """What `how` opened before of this kind, or opens now, where the files or the settings are others than then.

        A folder among `files` stands for all files below it.
        """
        every = [
            file
            for path in files
            for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        ]
        states = [
            (str(file), file.stat().st_ino, file.stat().st_size, file.stat().st_mtime_ns)
            for file in every
        ]
        made_of, kept = (repr(settings), states), self._kept.get(kind)
        if kept is None or kept[0] != made_of:
            kept = self._kept[kind] = None  # first, as both may not fit into memory
            self._kept[kind] = kept = made_of, how()
        return kept[1]

    def source(self, method: str, chosen: SimpleNamespace, data: Path) -> Source | None:
        """`open_source` of a method that has files, None for others. Raises LongtailError if an index lacks."""
        files = inputs(method, chosen, data)
        if missing := [
            file.parent for file in files if file.name == "meta.json" and not file.is_file()
        ]:
            raise LongtailError(f"{missing[0]}: no such index; `longtail run` makes it")
        settings = method, vars(chosen)
        return (
            self.get("passages", lambda: open_source(method, None, chosen, data), files, *settings)
            if files
            else None
        )


def prompts_of_question(
    chosen: SimpleNamespace,
    dataset: str,
    pool: prompts.Questions,
    place: int,
    lm: str,
    source: Source | None,
) -> tuple[list[Prompt], Prompt, pa.Table | None]:
    """What the stage `answer` sends for one question of `pool`, and the same as one prompt without any passage.

    Also returns the passages (SCHEMA) of the question, in the first row, and of its demonstrations if these have any;
    None without a source. `chosen` are params with the sections seed, language, lm and answer.
    """
    n_shots, written = (
        chosen.answer.of(chosen.lm[lm]).n_shots,
        source is not None and source.written,
    )
    (shots,) = prompts.demonstrations(chosen.seed, dataset, pool, [place], n_shots, common=written)
    asked = source and (pool.ids if source.by_id else pool.texts)
    searched = (place, *shots) if chosen.answer.shot_passages else (place,)
    found = source.find([asked[i] for i in searched]) if source else None
    read = found["texts"].to_pylist() if source else [[None]]
    read += [[None]] * (1 + len(shots) - len(read))
    examples = [
        (pool.texts[i], pool.shown[i], texts[0]) for i, texts in zip(shots, read[1:], strict=True)
    ]
    spoken = language.read_language(chosen.language)
    sent = [
        prompts.question_prompt(pool.texts[place], passage, examples, spoken) for passage in read[0]
    ]
    bare = [(*example[:2], None) for example in examples]
    return sent, prompts.question_prompt(pool.texts[place], None, bare, spoken), found


def inputs(method: str, chosen: SimpleNamespace, data: Path) -> list[Path]:
    """What a method retrieves with: descriptions of indexes, a cross-encoder, last the documents; or given passages."""
    kind, name = methods.resolve(method, chosen.retrievers)
    if kind in methods.GIVEN:
        from pipelines.answering.given_passages import passage_files

        return passage_files(method, data)
    if kind not in INDEXES:
        return []
    corpus = chosen.parts.datastore
    folders = [
        methods.index_folder(index, corpus, data) for index in methods.Method(kind, name).indexes
    ]
    files = [folder / "meta.json" for folder in folders] + [data / methods.RERANKER] * (
        kind == "reranked"
    )
    return [*files, data / f"corpus/{corpus}/docs.parquet"]


def retrieved(
    retriever: documents.Retriever,
    docs: Path | Callable[[np.ndarray], documents.Documents],
    k: int,
    template: str,
    *,
    together: bool,
    clipped: bool = False,
) -> Source:
    """The k best documents of each question, each a passage of its own, or all `together` as one passage.

    The LM reads a document's title and text as `template` puts them; `clipped`, the text ends at its last ". ", as
    PopQA's authors cut it: a text without any is a full stop. One passage has its documents best first, a blank line
    between, and the id, title and similarity of the best. `docs` may be a function of positions.
    """

    def find(texts: list[str]) -> pa.Table:
        positions, similarities = retriever.search(texts, k)
        found = docs(positions) if callable(docs) else documents.read_documents(docs, positions)
        if clipped:
            clip = np.vectorize(
                lambda text: text and f"{text.rpartition('. ')[0]}.", otypes=[object]
            )
            found = found._replace(texts=clip(found.texts))
        texts_read = found.filled(template)
        columns = [texts_read, found.ids, found.titles, similarities]
        if together:  # fewer than k documents leave empty places
            joined = [
                "\n\n".join(row[places])
                for row, places in zip(texts_read, positions >= 0, strict=True)
            ]
            columns = [
                np.array(joined, object)[:, None],
                *(values[:, :1] for values in columns[1:]),
            ]
        nothing = [0] * len(texts)
        return pa.table([*(values.tolist() for values in columns), nothing, nothing], schema=SCHEMA)

    return Source(
        find, at_once=4096, written=False
    )  # many at once: reading documents passes over the whole of `docs`


def written(
    lm: LanguageModel | LMWorkers,
    max_tokens: int,
    spoken: Language = ENGLISH,
    server: params.LMServer | None = None,
) -> Source:
    """A passage of at most `max_tokens`, which ends with its first line, as published."""
    write, at_once = partial(write_passages, max_tokens, spoken), workers.shard_size(256, 1, server)
    return Source(
        partial(write, lm), at_once, written=True, lm=lm, write=write, max_tokens=max_tokens
    )


def write_passages(
    max_tokens: int, spoken: Language, lm: LanguageModel, texts: list[str]
) -> pa.Table:
    """The passages (SCHEMA) that a LM writes for questions."""
    generations = lm.generate([prompts.passage_prompt(text, spoken) for text in texts], max_tokens)
    rows = [
        {
            "texts": [made.text.strip()],
            "prompt_tokens": made.prompt_tokens,
            "new_tokens": made.new_tokens,
        }
        | {name: [None] for name in ("doc_ids", "titles", "similarities")}
        for made in generations
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def timed(work: Callable[[Any, Any], Any], lm: Any, task: Any) -> tuple[Any, float, str]:
    """What `work` gives for a task, the seconds that it took (on a server, where tasks overlap), and the machine."""
    started = time.monotonic()
    made, ended = work(lm, task), time.monotonic()
    return (
        made,
        lm.took(started, ended) if hasattr(lm, "took") else ended - started,
        latency.machine(),
    )


def write_shard(table: pa.Table, path: Path, seconds: float, machine: str) -> None:
    """Write a shard's rows and, beside them, how many seconds they took on which machine."""
    parquet.write_parquet(
        table.replace_schema_metadata({"seconds": str(seconds), "machine": machine}), path
    )


def read_shards(files: Sequence[Path], schema: pa.Schema) -> tuple[pa.Table, list[Batch]]:
    """The rows of all shards, and what each of them took, in whichever run and on whichever machine."""
    tables = [parquet.read_parquet(file, schema=schema) for file in files]
    measured = [parquet.schema_of(file).metadata for file in files]
    batches = [
        Batch(table.num_rows, float(of_shard[b"seconds"]), of_shard.get(b"machine", b"").decode())
        for table, of_shard in zip(tables, measured, strict=True)
    ]
    return pa.concat_tables([schema.empty_table(), *tables]), batches


class Lookup:
    """The passages of all questions asked or shown. Many questions share a demonstration, so each is searched once.

    Finished shards of the search stay under `name` and `key` until the caller forgets them. `batches` is how long each
    of them took.
    """

    def __init__(self, source: Source | None, texts: dict[int, str], name: str, key: str) -> None:
        """`texts` are those of the questions, by their positions in the question set."""
        self._questions, self._table, self.batches = np.array(sorted(texts), np.int64), None, []
        if source is None:
            return

        def read(questions: np.ndarray) -> list[str]:
            return [texts[question] for question in questions.tolist()]

        def write(_: np.ndarray, answered: tuple[pa.Table, float, str], path: Path) -> None:
            write_shard(answered[0], path, *answered[1:])

        def length(asked: list[str]) -> int:
            return sum(map(len, asked)) + workers.BYTES_PER_TOKEN * source.max_tokens * len(asked)

        starts = range(0, len(self._questions), source.at_once)
        parts = [self._questions[start : start + source.at_once] for start in starts]
        work = partial(timed, source.write if source.lm else lambda _, asked: source.find(asked))
        steps, sizes = workers.Steps(read, work, write, length), [len(part) for part in parts]
        files = workers.map_texts(
            source.lm, name, key, parts, steps, sizes=sizes, unit="question or demonstration"
        )
        self._table, self.batches = read_shards(files, SCHEMA)

    def rows(self, questions: Sequence[int]) -> list[dict]:
        """Each question's row of SCHEMA, or CLOSED_BOOK."""
        if self._table is None:
            return [CLOSED_BOOK] * len(questions)
        return self._table.take(np.searchsorted(self._questions, questions)).to_pylist()
