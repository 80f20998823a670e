"""Which knowledge a text came from: its probability, by token, attributed to memory and documents.

REPLUG (§9) names it as a limitation that a prediction can't be traced to the model's own knowledge
or to what was retrieved. Two numbers per token trace it: p(y_t) = sum_d lambda_d p_d(y_t) of the
ensemble, and p_0(y_t) without documents.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.replug import ensemble
from pipelines.scoring.logprob_files import ScoredTexts


@dataclass(frozen=True)
class Attribution:
    """Each token's log-probability under the ensemble, and shares of that probability."""

    weights: np.ndarray  # (n, k) lambda, before any token
    mixed: np.ndarray  # (n, tokens) log p
    # (n, k, tokens) lambda_d p_d / p, the posterior of each document; adds up to 1
    responsibilities: np.ndarray
    # (n, k, tokens) part of the responsibility beyond what the model gives without documents
    documents: np.ndarray
    # (n, tokens) what the model gives without documents; adds up to 1 with `documents`
    memory: np.ndarray


def attribute_tokens(texts: ScoredTexts, temperature: float, mixture: str) -> Attribution:
    """Attribute each token's probability under the ensemble to memory and documents.

    Each term of p = sum_d lambda_d p_d is split at p_0. The model gives lambda_d min(p_d, p_0)
    without documents too, so it belongs to memory; the rest, lambda_d max(0, p_d - p_0), belongs to
    document d. Divided by p, the parts add up to 1. A document that repeats what the model knows
    gets nothing: shares say what changed, not where else the knowledge stands. Under
    `sequence_mixture` lambda_d is the weight at the token (see ensemble).
    """
    log_lambda = ensemble.log_weights(texts.similarities, temperature)
    log_weights = ensemble.WEIGHTS[mixture](texts.log_probs, log_lambda)
    joint = texts.log_probs + log_weights
    mixed = np.logaddexp.reduce(joint, axis=1)
    responsibilities = np.exp(joint - mixed[:, None])
    log_ratio = texts.log_probs_alone[:, None] - texts.log_probs  # log p_0 / p_d
    log_share = np.minimum(log_ratio, 0.0)  # log min(1, p_0 / p_d)
    of_memory = responsibilities * np.exp(log_share)
    return Attribution(
        weights=np.exp(log_lambda),
        mixed=mixed,
        responsibilities=responsibilities,
        documents=responsibilities * -np.expm1(log_share),
        memory=of_memory.sum(1),
    )


def means_over_tokens(shares: np.ndarray, texts: ScoredTexts) -> np.ndarray:
    """The mean of shares (n, ..., tokens) over each text's tokens, (n, ...)."""
    n = len(shares)
    between = [1] * (shares.ndim - 2)
    is_token = texts.is_token.reshape(n, *between, -1)
    lengths = np.maximum(texts.lengths, 1).reshape(n, *between)
    return np.where(is_token, shares, 0.0).sum(-1) / lengths


def token_texts(continuation: str, n_bytes: np.ndarray) -> list[str]:
    """The text of each token: `continuation` cut after each token's bytes.

    A token's bytes never end inside a character.
    """
    encoded = continuation.encode()
    texts = []
    start = 0
    for stop in np.cumsum(n_bytes).tolist():
        texts.append(encoded[start:stop].decode())
        start = stop
    return texts
