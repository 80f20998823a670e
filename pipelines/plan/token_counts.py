"""How many tokens the language models of a run read, by the params alone: answers, scores
and LSR.

All counts are upper bounds, as work that an earlier run kept is not done again.
"""

from dataclasses import dataclass

from pipelines import catalogue
from pipelines.methods import ENSEMBLES, Method
from pipelines.params.params import LM, Answer, Params

QUESTION_TOKENS = 24  # tokens of a question and its answer
OPTIONS_TOKENS = 120  # tokens of a question with its options
VALIDATION_DOCUMENTS = 10  # documents that the language model reads for a validation query of LSR


@dataclass
class Reading:
    """What one kind of work, or one question, asks of one language model."""

    work: str  # the kind of work, as the plan's table names it
    prompts: int
    sent_tokens: int  # tokens of prompts and answers, as a server bills them
    read_tokens: int  # tokens that a local model reads: prompts' common beginning is read once


@dataclass(frozen=True)
class Tuning:
    """What LSR's training of one retriever takes."""

    reading: Reading  # of the language model that scores documents
    refreshes: int  # how often what the retriever searches is embedded anew
    trained_tokens: int  # tokens that the retriever embeds with a gradient


def count_answers(params: Params, lm: LM) -> Reading:
    """All answers of a language model to the question sets of a run, by all of its methods."""
    answers = Reading("answers", prompts=0, sent_tokens=0, read_tokens=0)
    for dataset in params.parts.answered:
        for way in params.ways:
            answer = params.answer.of(dataset, lm)
            question = _reading_of_question(params, lm, dataset, answer, Method.of_name(way))
            answers.prompts += answer.max_questions * question.prompts
            answers.sent_tokens += answer.max_questions * question.sent_tokens
            answers.read_tokens += answer.max_questions * question.read_tokens
    return answers


def _reading_of_question(
    params: Params, lm: LM, dataset: str, answer: Answer, method: Method
) -> Reading:
    """What a question takes by a method.

    GenRead asks twice, for the passage and for the answer, and shows all questions the same
    demonstrations. REPLUG shows the demonstrations before each document of a question. A local
    model reads such a common beginning once.
    """
    question_tokens = QUESTION_TOKENS
    if catalogue.DATASETS[dataset].protocol.answer == "letter":
        question_tokens = OPTIONS_TOKENS
    document_tokens = params.chunk.tokens
    shots_tokens = answer.n_shots * question_tokens
    shots_with_passage = answer.n_shots if answer.shot_passages else 0

    if method.kind == "closed_book":
        tokens = shots_tokens + question_tokens + answer.new_tokens
        return Reading(method.kind, 1, tokens, tokens)

    if method.kind == "genread":
        written_tokens = question_tokens + answer.passage_tokens
        read_tokens = 2 * written_tokens + answer.new_tokens
        shared_tokens = shots_tokens + shots_with_passage * answer.passage_tokens
        sent_tokens = shared_tokens + 2 * (written_tokens + answer.new_tokens)
        return Reading(method.kind, 2, sent_tokens, read_tokens)

    if method.kind in ENSEMBLES:
        documents = params.replug.top_k
        shared_tokens = shots_tokens + shots_with_passage * document_tokens
        own_tokens = question_tokens + document_tokens
        mixes_by_token = bool(lm.http and lm.http.tokenizer and not params.replug.vote)
        prompts = documents * answer.new_tokens if mixes_by_token else documents
        new_tokens = documents * answer.new_tokens
        sent_tokens = prompts * (shared_tokens + own_tokens) + new_tokens
        read_tokens = shared_tokens + documents * own_tokens + new_tokens
        return Reading(method.kind, prompts, sent_tokens, read_tokens)

    passages = shots_with_passage + answer.passages
    tokens = shots_tokens + question_tokens + answer.new_tokens + passages * document_tokens
    return Reading(method.kind, 1, tokens, tokens)


def count_scores(params: Params) -> Reading:
    """The scores of all test queries: alone, with each retriever's documents, and the controls.

    Random documents count as a retriever, and so does BM25. The curve over sizes of the datastore
    has documents of its own.
    """
    parts = params.parts
    logprobs = params.logprobs
    datastore = logprobs.datastore
    retrievers = 1 + len(params.retrievers) + len(parts.tuned) + 1

    prompts = logprobs.max_queries * (1 + retrievers * logprobs.top_k)
    prompts += datastore.max_queries * len(datastore.shares) * logprobs.top_k
    query_tokens = params.queries.context_tokens + params.queries.continuation_tokens
    prompt_tokens = params.chunk.tokens + query_tokens
    tokens = prompts * prompt_tokens

    if logprobs.controls:
        main_is_tuned = params.retrievers[:1] == parts.tuned[:1]
        concatenated = 2 if main_is_tuned else 1
        concatenated_tokens = prompt_tokens + (params.replug.top_k - 1) * params.chunk.tokens
        prompts += logprobs.max_queries * (1 + concatenated)
        tokens += logprobs.max_queries * (prompt_tokens + concatenated * concatenated_tokens)

    corpora = len(parts.scored)
    return Reading("scores", corpora * prompts, corpora * tokens, corpora * tokens)


def count_tuning(params: Params) -> Tuning:
    """LSR's training of a retriever (REPLUG, section 4).

    In each round between refreshes the language model reads a query's documents once, and each
    query once alone. A query's documents share its demonstrations, which a local model reads once.
    """
    lsr = params.lsr
    document_tokens = params.chunk.tokens
    context_tokens = params.queries.context_tokens
    continuation_tokens = params.queries.continuation_tokens

    lm_queries = 0
    if lsr.queries != "qa" and params.parts.scored:
        lm_queries = lsr.lm_queries
    queries = lm_queries
    if lsr.queries != "lm":
        queries += lsr.qa_queries
    lm_share = lm_queries / max(1, queries)
    qa_share = 1 - lm_share

    starts = range(0, lsr.steps, lsr.refresh_steps)
    documents_read = 0
    for start in starts:
        steps = min(lsr.refresh_steps, lsr.steps - start)
        documents_read += lsr.top_k * min(steps * lsr.batch_size, queries)
    read_alone = min(lsr.steps * lsr.batch_size, queries)
    validations = len(starts) + 1
    validation_prompts = validations * lsr.validation_queries * VALIDATION_DOCUMENTS

    query_tokens = lm_share * (context_tokens + continuation_tokens) + qa_share * QUESTION_TOKENS
    tokens = round(documents_read * (document_tokens + query_tokens) + read_alone * query_tokens)
    tokens += validation_prompts * (document_tokens + context_tokens + continuation_tokens)
    if lsr.likelihood == "answer_right":
        tokens += (documents_read + read_alone) * params.answer.new_tokens
    dataset = next(iter(params.parts.answered), "")
    n_shots = lsr.shots(params.answer, dataset, params.lm[lsr.lm])
    shots_tokens = round(qa_share * n_shots * (document_tokens + QUESTION_TOKENS))
    with_shots = documents_read + read_alone
    with_own_shots = documents_read // lsr.top_k + read_alone

    reading = Reading(
        work="LSR",
        prompts=with_shots + validation_prompts,
        sent_tokens=tokens + with_shots * shots_tokens,
        read_tokens=tokens + with_own_shots * shots_tokens,
    )
    searched_tokens = lm_share * context_tokens + qa_share * QUESTION_TOKENS
    tokens_of_query = round(lsr.top_k * document_tokens + searched_tokens)
    trained_tokens = lsr.steps * lsr.batch_size * tokens_of_query
    return Tuning(reading=reading, refreshes=len(starts), trained_tokens=trained_tokens)
