"""How many documents a run has, and how many tokens its models read, by its params (for `longtail plan`).

Tokens are upper bounds: what earlier runs kept is not read again.
"""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines import methods
from pipelines.params.params import LM, Params
from pipelines.params.params_file import value_at

LOCK = Path("dvc.lock")
QUESTION = 24  # tokens of a question and its answer
OPTIONS = 120  # tokens of an MMLU question with its options
MMLU = 14_042  # questions
SHOWN = 10  # documents of a validation query


class Reading(NamedTuple):
    what: str  # the work that one kind of stage asks of one language model
    prompts: int
    tokens: int  # tokens of prompts and answers, as a server counts them
    read: int  # tokens that a local model reads: a beginning that prompts share is read once


def count_answers(params: Params, lm: LM) -> Reading:
    """All answers of a language model.

    GenRead asks twice, for the passage and for the answer. It shows all questions the same demonstrations, and REPLUG
    shows them before each document of a question: a local model reads such a beginning once.
    """
    answer, k, document = params.answer.of(lm), params.replug.top_k, params.chunk.tokens
    n_shots, new, shown = answer.n_shots, answer.new_tokens, answer.n_shots * answer.shot_passages
    of_document, shots = QUESTION + document, n_shots * QUESTION
    closed_book = shots + QUESTION + new
    with_passages = closed_book + (shown + 1) * answer.passages * document
    before = shots + shown * document
    by_token = lm.http and lm.http.tokenizer and not params.replug.vote  # how a server mixes
    sent = k * (new if by_token else 1)
    ensemble = sent, sent * (before + of_document) + k * new, before + k * (of_document + new)
    written = QUESTION + answer.passage_tokens
    kinds = {  # kind of way -> prompts of a question, their tokens, and those that a local model reads
        "closed_book": (1, closed_book, closed_book),
        "genread": (2, shots + shown * answer.passage_tokens + 2 * (written + new), 2 * written + new),
        **dict.fromkeys(methods.ENSEMBLES, ensemble),
    }
    retrieving = 1, with_passages, with_passages
    questions = len(params.parts.answered) * answer.max_questions
    ways = [kinds.get(methods.split(way)[0], retrieving) for way in params.ways]
    return Reading("answers", *(questions * sum(way[place] for way in ways) for place in range(3)))


def count_scores(params: Params) -> Reading:
    """Each test query alone, with every retriever's and random documents, the curve's documents, and controls."""
    parts, logprobs = params.parts, params.logprobs
    retrievers = 1 + len(params.retrievers) + len(parts.tuned) + 1  # BM25's and random documents
    prompts = logprobs.max_queries * (1 + retrievers * logprobs.top_k)
    prompts += logprobs.datastore.max_queries * len(logprobs.datastore.shares) * logprobs.top_k
    length = params.chunk.tokens + params.queries.context_tokens + params.queries.continuation_tokens
    tokens = prompts * length
    if logprobs.controls:
        one_prompt = length + (params.replug.top_k - 1) * params.chunk.tokens
        concatenated = 1 + (params.retrievers[:1] == parts.tuned[:1])
        prompts += logprobs.max_queries * (1 + concatenated)
        tokens += logprobs.max_queries * (length + concatenated * one_prompt)
    tokens *= len(parts.scored)
    return Reading("scores", prompts * len(parts.scored), tokens, tokens)


def count_benchmarks(params: Params) -> Reading:
    """Each question closed-book, in ensembles of the main retriever's documents, tuned or not, and with all in one."""
    tasks, main, prompts, tokens = params.tasks, params.retrievers[:1], 0, 0
    k, document, in_one = params.replug.top_k, params.chunk.tokens, int(params.tasks.concatenated)
    each = 1 + in_one + k * (len(main) + len({*main} & {*params.parts.tuned}))
    for task in params.parts.benchmarks:
        most, shots, length = (MMLU, tasks.mmlu_shots, OPTIONS) if task == "mmlu" else (None, tasks.qa_shots, QUESTION)
        questions = min(tasks.max_questions, most or tasks.max_questions)
        prompts += questions * each
        whole = (shots + 1) * (length + document) + tasks.new_tokens
        tokens += questions * (each * whole + in_one * (k - 1) * document)
    return Reading("benchmarks", prompts, tokens, tokens)


def count_tuning(params: Params) -> tuple[Reading, int, int]:
    """LSR's training of a retriever: what the language model reads, refreshes, and tokens embedded with gradient.

    In each round between refreshes the language model reads a query's documents once, and each query once alone. A
    query's documents share its demonstrations, which a local model reads once.
    """
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
    shots = round((1 - lm_share) * lsr.shots(params.answer, params.lm[lsr.lm]) * (length + QUESTION))
    read += (drawn + alone) * params.answer.new_tokens * (lsr.likelihood == "answer_right")
    billed, read = read + (drawn + alone) * shots, read + (drawn // lsr.top_k + alone) * shots
    reading = Reading("LSR", drawn + alone + validation, billed, read)
    return reading, len(rounds), lsr.steps * lsr.batch_size * of_query


def count_documents(params: Params, values: dict[str, Any]) -> dict[str, tuple[int | None, str]]:
    """Documents of each corpus, None if unknown, and how it is known; `values` are those of params.yaml."""
    from pipelines.retrieval import documents

    found: dict[str, tuple[int | None, str]] = {}
    for corpus in params.parts.corpora:
        docs, most = Path("data/corpus") / corpus / "docs.parquet", params.corpus[corpus].documents
        if docs.is_file() and {"fetch", "tokenizer@documents", f"chunk@{corpus}"} <= _made_by(values):
            found[corpus] = documents.count_documents(docs), "counted"
        else:
            found[corpus] = most, "at most, as the params say" if most else "unknown until `longtail run corpus`"
    return found


def _made_by(values: dict[str, Any]) -> set[str]:
    """The stages whose last run, as dvc.lock says, had these values of params.yaml."""
    stages = yaml.load(LOCK.read_bytes(), yaml.CSafeLoader)["stages"] if LOCK.is_file() else {}
    read = {stage: entry.get("params", {}).get("params.yaml", {}) for stage, entry in stages.items()}
    return {stage for stage, keys in read.items() if all(value_at(values, key) == keys[key] for key in keys)}
