"""REPLUG's ensemble (REPLUG §3.2), in log space: p(y | x, D') = sum_d lambda(d, x) p(y | d, x).

It also answers: one answer from a question's k prompts, generated under the mixture or elected by a
vote (§6.3), as `replug.mixture` and `replug.vote` decide. The vote needs no more of a language
model than its answers and their log-probabilities. It also elects the answers that the mixture
leaves undecided, as a server shows the likeliest next tokens alone.

Arrays are (queries, documents, tokens), documents best first, so that any smaller k is a slice of
the first k. Tokens beyond a continuation's end hold a log-probability of 0 and add nothing to a
sum. If fewer than k documents were found, the empty places have similarity -inf, which is weight
0, and hold log-probabilities without a document. If no document was found, the k empty places have
equal weights, so the ensemble is the model without documents.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.lm.language_model import Generation, LanguageModel, Prompt, no_answer
from pipelines.params import params
from pipelines.questions.matching import normalise


def log_weights(similarities: np.ndarray, temperature: float) -> np.ndarray:
    """log lambda, (queries, k) float64: softmax of similarity / temperature over k documents."""
    scaled = np.asarray(similarities, np.float64) / temperature
    without_documents = np.isneginf(scaled).all(axis=1, keepdims=True)
    return normalised(np.where(without_documents, 0.0, scaled))


def normalised(logs: np.ndarray) -> np.ndarray:
    """`logs` shifted so that they are logarithms of weights that add up to 1 over the second
    axis."""
    return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)


def token_weights(log_probs: np.ndarray, log_lambda: np.ndarray) -> np.ndarray:
    """log of the documents' weights at each token, (queries, k, 1): lambda at every token."""
    return log_lambda[:, :, None]


def sequence_weights(log_probs: np.ndarray, log_lambda: np.ndarray) -> np.ndarray:
    """log of the documents' weights at each token of mixed sequences, (queries, k, tokens).

    By the chain rule and Bayes' rule the weight is lambda_d p(y_<t | d, x), divided by its sum over
    the documents.
    """
    before = np.zeros(log_probs.shape)  # log-probability of the tokens before each token
    before[:, :, 1:] = np.cumsum(log_probs[:, :, :-1], axis=2, dtype=np.float64)
    return normalised(before + log_lambda[:, :, None])


def token_mixture(log_probs: np.ndarray, log_lambda: np.ndarray) -> np.ndarray:
    """log sum_d lambda_d p(y_t | d, x, y_<t), (queries, tokens)."""
    return np.logaddexp.reduce(log_probs + token_weights(log_probs, log_lambda), axis=1)


def sequence_mixture(log_probs: np.ndarray, log_lambda: np.ndarray) -> np.ndarray:
    """log p of each token, (queries, tokens), if whole sequences are mixed.

    They add up to log sum_d lambda_d p(y | d, x).
    """
    return np.logaddexp.reduce(log_probs + sequence_weights(log_probs, log_lambda), axis=1)


MIXTURES = {"token_mixture": token_mixture, "sequence_mixture": sequence_mixture}
WEIGHTS = {"token_mixture": token_weights, "sequence_mixture": sequence_weights}


def check_ability(lm: LanguageModel, replug: params.Replug) -> None:
    """Raise LongtailError if the language model can't answer as the params say.

    It answers under a mixture, or by a vote.
    """
    if not (replug.vote or lm.mixes):
        raise LongtailError(
            f"{lm.name} can't answer by replug.mixture: {replug.mixture}: that takes the likeliest "
            f"next tokens of a completions server, and lm.{lm.name}.http.tokenizer; set "
            "replug.vote: true in params.yaml"
        )
    if replug.vote and not lm.votes:
        raise LongtailError(
            f"{lm.name} shows no log-probabilities of its answers, which the vote (replug.vote) "
            "needs; take another"
        )


def generate(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    similarities: np.ndarray | None,
    new_tokens: int,
    replug: params.Replug,
    language: Language = ENGLISH,
) -> list[Generation]:
    """The answer to each question.

    `prompts` are k in a row for each question, one per document, and `similarities` (n, k) weigh
    them; None stands for one prompt each. An answer that the mixture leaves undecided is elected by
    the vote; its tokens are those of both. Raises LongtailError as `check_ability` does.
    """
    if similarities is None:
        return lm.generate(prompts, new_tokens)
    check_ability(lm, replug)
    log_lambda = log_weights(similarities, replug.temperature)
    if replug.vote:
        return vote(lm.generate(prompts, new_tokens), log_lambda, language)

    mixes_sequences = replug.mixture == "sequence_mixture"
    generations = lm.generate_mixture(
        prompts, log_lambda, new_tokens, sequence_mixture=mixes_sequences
    )
    undecided = [i for i, generation in enumerate(generations) if not generation.decided]
    if not undecided:
        return generations
    print(
        f"{lm.name}: {len(undecided)} of {len(generations)} answers by vote, as the mixture was "
        "undecided"
    )

    k = log_lambda.shape[1]
    voting: list[Prompt] = []
    for i in undecided:
        start = i * k
        voting += prompts[start : start + k]
    elected = vote(lm.generate(voting, new_tokens), log_lambda[undecided], language)
    for i, winner in zip(undecided, elected, strict=True):
        mixed = generations[i]
        generations[i] = replace(
            winner,
            prompt_tokens=mixed.prompt_tokens + winner.prompt_tokens,
            new_tokens=mixed.new_tokens + winner.new_tokens,
            decided=False,
        )
    return generations


def vote(
    generations: Sequence[Generation], log_lambda: np.ndarray, language: Language = ENGLISH
) -> list[Generation]:
    """The elected answer of each question.

    `generations` are k in a row for each, `log_lambda` (questions, k). Answers that are equal
    after `normalise` count as one, which weighs the sum of lambda_d * exp(mean token log-prob); an
    empty text weighs nothing. Of equally heavy answers the one with the earliest document wins, and
    the text is that of the earliest document. The log of the weight takes the place of the mean
    log-prob; tokens are those of all k. A question is not answered where one of its generations has
    no answer. Raises LongtailError if a mean log-prob is not known.
    """
    k = log_lambda.shape[1]
    mean_log_probs = np.array([generation.mean_log_prob for generation in generations])
    if np.isnan(mean_log_probs).any():
        raise LongtailError(
            "the server shows no log-probabilities of its answers, which the vote needs; "
            "take another"
        )
    weights = np.exp(log_lambda + mean_log_probs.reshape(log_lambda.shape))
    elected = []
    for i, weights_of_question in enumerate(weights.tolist()):
        start = i * k
        candidates = generations[start : start + k]
        elected.append(_elect(candidates, weights_of_question, language))
    return elected


def _elect(
    generations: Sequence[Generation], weights: list[float], language: Language
) -> Generation:
    """The elected answer of a question's k generations, by the weight of each."""
    for generation in generations:
        if generation.unanswered:
            return no_answer(generation.unanswered)

    texts = [generation.text.strip() for generation in generations]
    ranks_of_answer: dict[str, list[int]] = {}  # of the documents that led to it
    for rank, text in enumerate(texts):
        ranks_of_answer.setdefault(normalise(text, language), []).append(rank)

    weight = -math.inf
    first_rank = 0
    for ranks in ranks_of_answer.values():  # in the order of their first documents
        # fsum rounds once, in whatever order: equal votes have equal sums
        weight_of_answer = math.fsum(weights[rank] for rank in ranks)
        if weight_of_answer > weight:
            weight = weight_of_answer
            first_rank = ranks[0]

    log_weight = math.log(weight) if weight else -math.inf
    return Generation(
        text=texts[first_rank],
        mean_log_prob=log_weight,
        prompt_tokens=sum(generation.prompt_tokens for generation in generations),
        new_tokens=sum(generation.new_tokens for generation in generations),
    )
