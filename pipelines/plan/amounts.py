"""How many documents a run has, and how many tokens its models read (for `longtail plan` and `longtail init`).

Tokens follow from the params. They are upper bounds: what earlier runs kept is not read again.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.methods import ENSEMBLES, of_kinds
from pipelines.params.params import LM, Params
from pipelines.sources.streams import DECOMPRESSORS

LOCK = Path("dvc.lock")
DOCUMENT = 500  # bytes of a compressed source file per document: 240 for DPR's passages, 760 for Wikipedia
UNPACKED = 2.5  # times as many bytes has a file that is not compressed
QUESTION = 24  # tokens of a question and its answer
OPTIONS = 120  # tokens of an MMLU question with its options
MMLU = 14_042  # questions
SHOWN = 10  # documents of a validation query


class Reading(NamedTuple):
    what: str  # that one language model is asked, by one kind of stage
    prompts: int
    tokens: int  # read and written: what a server counts
    stages: tuple[int, ...]  # by stage, without the beginnings that a local model reads once for several prompts


class Tuning(NamedTuple):
    queries: int  # that LSR learns from to tune one retriever (REPLUG §4)
    refreshes: int
    pairs: int  # (query, document) or (query, none) that the language model reads
    lm_tokens: int
    trained: int  # tokens embedded with gradient in all steps


def readings(params: Params, lm: LM) -> list[Reading]:
    """What a language model is asked outside of LSR's training; kinds without prompts are left out."""
    return [one for one in (answers(params, lm.n_shots), _scores(params), _benchmarks(params)) if one.prompts]


def answers(params: Params, n_shots: int | None = None) -> Reading:
    """All answers of a language model, after `n_shots` demonstrations, or answer.n_shots.

    GenRead asks twice, for the passage and for the answer. It shows all questions the same demonstrations, and REPLUG
    shows them before each document of a question. A local model reads such a beginning once.
    """
    parts, ways, answer, k = params.parts, params.ways, params.answer, params.replug.top_k
    n_shots = answer.n_shots if n_shots is None else n_shots
    of_document, written, new = QUESTION + params.chunk.tokens, QUESTION + answer.passage_tokens, answer.new_tokens
    closed_book = (n_shots + 1) * QUESTION + new
    with_passages = (n_shots + 1) * (QUESTION + answer.passages * params.chunk.tokens) + new
    ensemble = k * ((n_shots + 1) * of_document + new), n_shots * of_document + k * (of_document + new)
    retrieving = len(of_kinds(ways, "bm25", "dense", "lsr", "hybrid", "reranked"))
    methods = [  # prompts of a question, their tokens, and those that a local model reads
        *[(1, closed_book, closed_book)] * ("closed_book" in ways),
        *[(2, (n_shots + 2) * written + 2 * new, 2 * written + new)] * ("genread" in ways),
        *[(1, with_passages, with_passages)] * retrieving,
        *[(k, *ensemble)] * len(of_kinds(ways, *ENSEMBLES)),
    ]
    questions = len(parts.answered) * answer.max_questions
    prompts, tokens = (questions * sum(numbers) for numbers in list(zip(*methods, strict=True))[:2])
    stages = tuple(answer.max_questions * read for _, _, read in methods) * len(parts.answered)
    return Reading("answers", prompts, tokens, stages)


def _scores(params: Params) -> Reading:
    """Each test query alone, with documents of every retriever and random ones, those of the curve, and controls."""
    parts, logprobs = params.parts, params.logprobs
    retrievers = 1 + len(params.retrievers) + len(parts.tuned) + 1  # BM25's and random documents
    prompts = logprobs.max_queries * (1 + retrievers * logprobs.top_k)
    prompts += logprobs.datastore.max_queries * len(logprobs.datastore.shares) * logprobs.top_k
    length = params.chunk.tokens + params.queries.context_tokens + params.queries.continuation_tokens
    tokens = prompts * length
    if logprobs.controls:
        one_prompt = length + (params.replug.top_k - 1) * params.chunk.tokens
        concatenated = 1 + (params.retrievers[0] in parts.tuned)
        prompts += logprobs.max_queries * (1 + concatenated)
        tokens += logprobs.max_queries * (length + concatenated * one_prompt)
    return Reading("scores", prompts * len(parts.scored), tokens * len(parts.scored), (tokens,) * len(parts.scored))


def _benchmarks(params: Params) -> Reading:
    """Each question closed-book, and in ensembles: with every retriever's documents, BM25's and random ones."""
    parts, tasks = params.parts, params.tasks
    main = params.retrievers[:1]
    each = 1 + params.replug.top_k * (2 + len(main) + len(set(main) & set(parts.tuned)))
    prompts, stages = 0, []
    for task in parts.benchmarks:
        questions = min(tasks.max_questions, MMLU) if task == "mmlu" else tasks.max_questions
        shots, length = (tasks.mmlu_shots, OPTIONS) if task == "mmlu" else (tasks.qa_shots, QUESTION)
        prompts += questions * each
        stages.append(questions * each * ((shots + 1) * (length + params.chunk.tokens) + tasks.new_tokens))
    return Reading("benchmarks", prompts, sum(stages), tuple(stages))


def tuning(params: Params) -> Tuning:
    """What LSR reads to tune a retriever; in each of its rounds the language model reads a query's documents once."""
    lsr, length = params.lsr, params.chunk.tokens
    context, continuation = params.queries.context_tokens, params.queries.continuation_tokens
    n_lm = lsr.lm_queries if lsr.queries != "qa" and params.parts.scored else 0
    queries = n_lm + (lsr.qa_queries if lsr.queries != "lm" else 0)
    rounds = [min(lsr.refresh_steps, lsr.steps - done) for done in range(0, lsr.steps, lsr.refresh_steps)]
    drawn = lsr.top_k * sum(min(steps * lsr.batch_size, queries) for steps in rounds)
    alone = min(lsr.steps * lsr.batch_size, queries)
    validation = (len(rounds) + 1) * lsr.validation_queries * SHOWN
    lm_share = n_lm / max(1, queries)
    query = lm_share * (context + continuation) + (1 - lm_share) * QUESTION
    read = round(drawn * (length + query) + alone * query) + validation * (length + context + continuation)
    of_query = round(lsr.top_k * length + lm_share * context + (1 - lm_share) * QUESTION)
    return Tuning(queries, len(rounds), drawn + alone + validation, read, lsr.steps * lsr.batch_size * of_query)


def documents_by_corpus(params: Params, made: Collection[str]) -> dict[str, tuple[int | None, str]]:
    """Documents of each corpus, None if unknown, and how it is known; `made` are the stages of `made_by`."""
    from pipelines.retrieval import documents

    found: dict[str, tuple[int | None, str]] = {}
    for corpus in params.parts.corpora:
        docs = Path("data/corpus") / corpus / "docs.parquet"
        globs = params.fetch.files.get(corpus, []) if params.fetch.source == "files" else []
        files = {file for glob in globs for file in Path(params.fetch.root or ".").glob(glob)}
        if docs.is_file() and {"fetch", "tokenizer@documents", f"chunk@{corpus}"} <= set(made):
            found[corpus] = documents.count_documents(docs), "counted"
        elif wanted := params.corpus[corpus].documents:
            found[corpus] = wanted, "at most, as the params say"
        elif files:
            packed = {file: file.suffix in (*DECOMPRESSORS, ".parquet") for file in files}
            size = sum(file.stat().st_size / (1 if packed[file] else UNPACKED) for file in files)
            found[corpus] = int(size / DOCUMENT), "a guess by the sizes of its files"
        else:
            found[corpus] = None, "unknown until it is there"
    return found


def made_by(values: dict[str, Any]) -> set[str]:
    """The stages whose last run, as dvc.lock says, had these values of params.yaml."""
    stages = yaml.load(LOCK.read_bytes(), yaml.CSafeLoader)["stages"] if LOCK.is_file() else {}

    def value(key: str) -> Any:
        return reduce(lambda found, part: found.get(part) if isinstance(found, dict) else None, key.split("."), values)

    read = {stage: entry.get("params", {}).get("params.yaml", {}) for stage, entry in stages.items()}
    return {stage for stage, keys in read.items() if all(value(key) == of_run for key, of_run in keys.items())}
