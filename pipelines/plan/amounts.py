"""How many documents a run has, and how many tokens its models read (for `longtail plan` and `longtail init`).

Tokens follow from the params. They are upper bounds: what earlier runs kept is not read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.methods import ENSEMBLES, of_kinds
from pipelines.params.params import LM, Params
from pipelines.sources.source_documents import is_psgs
from pipelines.sources.streams import DECOMPRESSORS, open_lines

LOCK = Path("dvc.lock")
DOCUMENT = 500  # bytes of a compressed source file per document: 270 for The Pile, 760 for Wikipedia
UNPACKED = 2.5  # times as many bytes has a file that is not compressed
PASSAGE = 240  # bytes of DPR's compressed passages per passage
COUNTED = 1 << 26  # bytes of a file of passages that is short enough to count them
QUESTION = 24  # tokens of a question and its answer
OPTIONS = 120  # tokens of an MMLU question with its options
MMLU = 14_042  # questions
SHOWN = 10  # documents of a validation query


class Reading(NamedTuple):
    """What one language model is asked by one kind of stage."""

    what: str
    prompts: int
    tokens: int  # read and written: what a server counts
    stages: tuple[int, ...]  # by stage, without the beginnings that a local model reads once for several prompts


class Tuning(NamedTuple):
    """What LSR reads to tune one retriever (REPLUG §4)."""

    queries: int  # learnt from
    refreshes: int
    pairs: int  # (query, document) or (query, none) that the language model reads
    lm_tokens: int
    trained: int  # tokens embedded with gradient in all steps
    at_once: int  # tokens embedded with gradient at once


def readings(params: Params, lm: LM) -> list[Reading]:
    """What a language model is asked outside of LSR's training; kinds without prompts are left out."""
    asked = (answers(params, lm.n_shots), _scores(params), _benchmarks(params))
    return [reading for reading in asked if reading.prompts]


def answers(params: Params, n_shots: int | None = None) -> Reading:
    """All answers of a language model, after `n_shots` demonstrations, or answer.n_shots.

    GenRead asks twice, for the passage and for the answer. It shows all questions the same demonstrations, and REPLUG
    shows them before each document of a question. A local model reads such a beginning once.
    """
    parts, ways, answer, k = params.parts, params.ways, params.answer, params.replug.top_k
    n_shots = answer.n_shots if n_shots is None else n_shots
    length, new = QUESTION + answer.passages * params.chunk.tokens, answer.new_tokens
    of_document, written = QUESTION + params.chunk.tokens, QUESTION + answer.passage_tokens
    with_passages = len(of_kinds(ways, "bm25", "dense", "lsr", "hybrid", "reranked"))
    methods = [  # prompts of a question, their tokens, and those that a local model reads
        *[(1, (n_shots + 1) * QUESTION + new, (n_shots + 1) * QUESTION + new)] * ("closed_book" in ways),
        *[(2, (n_shots + 2) * written + 2 * new, 2 * written + new)] * ("genread" in ways),
        *[(1, (n_shots + 1) * length + new, (n_shots + 1) * length + new)] * with_passages,
        *[(k, k * ((n_shots + 1) * of_document + new), n_shots * of_document + k * (of_document + new))]
        * len(of_kinds(ways, *ENSEMBLES)),
    ]
    questions = len(parts.answered) * answer.max_questions
    prompts, tokens = (questions * sum(numbers) for numbers in list(zip(*methods, strict=True))[:2])
    stages = tuple(answer.max_questions * read for _, _, read in methods) * len(parts.answered)
    return Reading("answers", prompts, tokens, stages)


def reranked(params: Params) -> int:
    """Pairs of a question and a document that a reranker reads for all language models' answers."""
    questions = len(params.parts.answered) * params.answer.max_questions * len(params.lms)
    return questions * params.reranker.candidates * len(of_kinds(params.ways, "reranked"))


def _scores(params: Params) -> Reading:
    """Each test query alone, with the documents of every retriever, with random ones, with those of the curve.

    The controls are a longer context, and all documents in one prompt, as if each one had room.
    """
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
    refreshes = -(-lsr.steps // lsr.refresh_steps)
    rounds = [min(lsr.refresh_steps, lsr.steps - number * lsr.refresh_steps) for number in range(refreshes)]
    drawn = sum(min(steps * lsr.batch_size, queries) for steps in rounds)
    alone = min(lsr.steps * lsr.batch_size, queries)
    validation = (refreshes + 1) * lsr.validation_queries * SHOWN
    lm_share = n_lm / max(1, queries)
    query = lm_share * (context + continuation) + (1 - lm_share) * QUESTION
    texts_of_step = lsr.batch_size * (lsr.top_k + 1)
    return Tuning(
        queries=queries,
        refreshes=refreshes,
        pairs=drawn * lsr.top_k + alone + validation,
        lm_tokens=round(drawn * lsr.top_k * (length + query) + alone * query)
        + validation * (length + context + continuation),
        trained=lsr.steps * lsr.batch_size * round(lsr.top_k * length + lm_share * context + (1 - lm_share) * QUESTION),
        at_once=min(texts_of_step, lsr.micro_batch or texts_of_step) * length,
    )


def documents_by_corpus(params: Params, made: Collection[str]) -> dict[str, tuple[int | None, str]]:
    """Documents of each corpus, None where nothing at hand says how many, and how the number was found.

    `made` are the stages that ran with these params (`made_by`).
    """
    from pipelines.retrieval import documents

    found: dict[str, tuple[int | None, str]] = {}
    for corpus in params.parts.corpora:
        docs = Path("data/corpus") / corpus / "docs.parquet"
        globs = params.fetch.files.get(corpus, []) if params.fetch.source == "files" else []
        files = sorted({file for glob in globs for file in Path(params.fetch.root or ".").glob(glob)})
        if docs.is_file() and {"fetch", "tokenizer@documents", f"chunk@{corpus}"} <= set(made):
            found[corpus] = documents.count_documents(docs), "counted"
        elif wanted := params.corpus[corpus].documents:
            found[corpus] = wanted, "at most, as the params say"
        elif files:
            number, counted = documents_in(files)
            found[corpus] = number, "counted in its files" if counted else "a guess by the sizes of its files"
        else:
            found[corpus] = None, "unknown until it is there"
    return found


def documents_in(files: Iterable[Path]) -> tuple[int, bool]:
    """How many documents a corpus has that is made of these files, and whether they were counted.

    DPR's passages are a document each, and counted where they are few. Otherwise the files' sizes give a guess.
    """
    number, counted = 0.0, True
    for file in files:
        size = file.stat().st_size * (1 if file.suffix in (*DECOMPRESSORS, ".parquet") else 1 / UNPACKED)
        if is_psgs(file) and size < COUNTED:
            number += max(0, sum(1 for _ in open_lines(file)) - 1)  # without the header
        else:
            number, counted = number + size / (PASSAGE if is_psgs(file) else DOCUMENT), False
    return int(number), counted


def made_by(values: dict[str, Any]) -> set[str]:
    """The stages whose last run, as dvc.lock says, had these values of params.yaml."""
    stages = yaml.load(LOCK.read_bytes(), yaml.CSafeLoader)["stages"] if LOCK.is_file() else {}
    return {
        stage
        for stage, entry in stages.items()
        if all(_value(values, key) == value for key, value in entry.get("params", {}).get("params.yaml", {}).items())
    }


def _value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
