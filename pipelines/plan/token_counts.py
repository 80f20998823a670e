"""About how many tokens a run's models read, by the params alone. What an earlier run kept is not
read again, so a run may read less.
"""

from pipelines import catalogue
from pipelines.methods import ENSEMBLES, Method
from pipelines.params.params import LM, Answer, Params

QUESTION_TOKENS = 24  # tokens of a question and its answer
OPTIONS_TOKENS = 120  # tokens of a question with its options
VALIDATION_DOCUMENTS = 10  # documents that the language model reads for a validation query of LSR


def count_answers(params: Params, lm: LM) -> int:
    """All answers of a language model to the question sets of a run, by all of its methods."""
    tokens = 0
    for dataset in params.parts.answered:
        answer = params.answer.of(dataset, lm)
        question_tokens = QUESTION_TOKENS
        if catalogue.DATASETS[dataset].protocol.answer == "letter":
            question_tokens = OPTIONS_TOKENS
        for way in params.ways:
            kind = Method.of_name(way).kind
            tokens_by_way = _tokens_of_question(params, lm, answer, question_tokens, kind)
            tokens += answer.max_questions * tokens_by_way
    return tokens


def _tokens_of_question(
    params: Params, lm: LM, answer: Answer, question_tokens: int, kind: str
) -> int:
    """What a question takes by a kind of method: demonstrations, passages, the answer.

    GenRead's model writes a passage of its own first; its demonstrations are the same for all
    questions, and not counted. REPLUG asks with one document after the other: a local model reads
    the demonstrations before them once, a server with each document, and with each token of an
    answer if it mixes their probabilities.
    """
    document_tokens = params.chunk.tokens
    own_tokens = question_tokens + answer.new_tokens
    shots_tokens = answer.n_shots * question_tokens
    if kind == "closed_book":
        return shots_tokens + own_tokens
    if kind == "genread":
        return own_tokens + question_tokens + 2 * answer.passage_tokens

    if answer.shot_passages:
        shots_tokens += answer.n_shots * document_tokens
    if kind not in ENSEMBLES:
        return shots_tokens + own_tokens + answer.passages * document_tokens
    prompts = params.replug.top_k
    if not lm.http:
        return shots_tokens + prompts * (own_tokens + document_tokens)
    if lm.http.tokenizer and not params.replug.vote:
        prompts *= answer.new_tokens
    return prompts * (shots_tokens + own_tokens + document_tokens)


def count_scores(params: Params) -> int:
    """The scores of all test queries: alone, with the documents of each retriever, with BM25's,
    with random ones, with one retriever's in the sizes of the datastore, and the controls.
    """
    parts = params.parts
    logprobs = params.logprobs
    datastore = logprobs.datastore
    searches = len(params.retrievers) + len(parts.tuned) + 3
    prompts = logprobs.max_queries * (1 + searches * logprobs.top_k)
    prompts += datastore.max_queries * len(datastore.shares) * logprobs.top_k
    query_tokens = params.queries.context_tokens + params.queries.continuation_tokens
    return len(parts.scored) * prompts * (params.chunk.tokens + query_tokens)


def count_rounds(params: Params) -> int:
    """How often LSR embeds anew what it searches."""
    return -(-params.lsr.steps // params.lsr.refresh_steps)


def count_lsr_scores(params: Params) -> int:
    """What the language model reads for LSR (REPLUG, section 4): a query's documents, once in each
    round, and those of the validation queries. It reads nothing if it does not teach.
    """
    lsr = params.lsr
    if lsr.likelihood == "holds_answer":
        return 0
    chunk_tokens = params.chunk.tokens
    queries = 0
    prompt_tokens = 0
    if lsr.queries != "qa":
        queries += lsr.lm_queries
        query_tokens = params.queries.context_tokens + params.queries.continuation_tokens
        prompt_tokens = chunk_tokens + query_tokens
    if lsr.queries != "lm":
        queries += lsr.qa_queries
        dataset = next(iter(params.parts.answered), "")
        examples = 1 + lsr.shots(params.answer, dataset, params.lm[lsr.lm])
        prompt_tokens = max(prompt_tokens, examples * (chunk_tokens + QUESTION_TOKENS))
    rounds = count_rounds(params)
    prompts = lsr.top_k * min(lsr.steps * lsr.batch_size, rounds * queries)
    prompts += VALIDATION_DOCUMENTS * lsr.validation_queries * (rounds + 1)
    return prompts * prompt_tokens


def count_lsr_training(params: Params) -> int:
    """What the retriever embeds with a gradient: a backward pass counts as two passes."""
    lsr = params.lsr
    documents = lsr.steps * lsr.batch_size * (lsr.top_k + 1)  # a query counts as a document
    return 3 * documents * params.chunk.tokens
