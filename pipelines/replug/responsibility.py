"""Which knowledge a text came from: its probability, token by token, attributed to memory and documents (REPLUG §9).

REPLUG names it as a limitation that a prediction can't be traced to the model's own knowledge or to what was retrieved.
Two numbers per token trace it: p(y_t) = sum_d lambda_d p_d(y_t) of the ensemble, and p_0(y_t) without documents.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.replug import ensemble
from pipelines.scoring.logprobs import ScoredTexts


@dataclass(frozen=True)
class Attribution:
    """The documents' weights, each token's log-probability under the ensemble, and shares of that probability."""

    weights: np.ndarray  # (n, k) lambda, before any token
    mixed: np.ndarray  # (n, tokens) log p
    responsibilities: (
        np.ndarray
    )  # (n, k, tokens) lambda_d p_d / p, the posterior of each document; adds up to 1
    documents: (
        np.ndarray
    )  # (n, k, tokens) part of the responsibility beyond what the model gives without documents
    memory: (
        np.ndarray
    )  # (n, tokens) what the model gives without documents; adds up to 1 with `documents`


def attribute_tokens(texts: ScoredTexts, temperature: float, mixture: str) -> Attribution:
    """Attribute each token's probability under the ensemble to memory and documents.

    Each term of p = sum_d lambda_d p_d is split at p_0: lambda_d min(p_d, p_0) the model gives without documents too,
    so it belongs to memory; the rest, lambda_d max(0, p_d - p_0), to document d. Divided by p, the parts add up to 1. A
    document that repeats what the model knows gets nothing: shares say what changed, not where else the knowledge
    stands. Under `sequence_mixture` lambda_d is the weight at the token (see ensemble).
    """
    weights = ensemble.log_weights(texts.similarities, temperature)
    joint = texts.log_probs + ensemble.WEIGHTS[mixture](texts.log_probs, weights)
    mixed = np.logaddexp.reduce(joint, axis=1)
    responsibilities = np.exp(joint - mixed[:, None])
    known = np.minimum(texts.closed[:, None] - texts.log_probs, 0.0)  # log of min(1, p_0 / p_d)
    documents = responsibilities * -np.expm1(known)
    memory = (responsibilities * np.exp(known)).sum(1)
    return Attribution(np.exp(weights), mixed, responsibilities, documents, memory)


def of_texts(shares: np.ndarray, texts: ScoredTexts) -> np.ndarray:
    """The mean of shares (n, ..., tokens) over each text's tokens, (n, ...)."""
    inside = texts.real.reshape(len(shares), *[1] * (shares.ndim - 2), -1)
    return np.where(inside, shares, 0.0).sum(-1) / np.maximum(texts.lengths, 1).reshape(
        -1, *[1] * (shares.ndim - 2)
    )


def token_texts(continuation: str, n_bytes: np.ndarray) -> list[str]:
    """The text of each token: `continuation` cut after each token's bytes, which never end inside a character."""
    whole, stops = continuation.encode(), np.cumsum(n_bytes).tolist()
    return [whole[a:b].decode() for a, b in zip([0, *stops], stops, strict=False)]
