"""REPLUG's ensemble in log space (REPLUG §3.2): p(y | x, D') = sum over documents of lambda(d, x) p(y | d, x).

Arrays are (queries, documents, tokens), documents best first, so that any smaller k is a slice of the first k. Tokens
beyond a continuation's end hold a log-probability of 0 and add nothing to a sum.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_softmax, logsumexp


def comparable(scores: np.ndarray, retriever: str) -> np.ndarray:
    """What lambda is a softmax of, (queries, k): cosine or dot product as it is, BM25 as a share of the best score.

    BM25's scale grows with the query's length and the terms' rarity, so a softmax of it would pick one document on long
    queries; its share of the best score lies in [0, 1] like a cosine. Random documents have no similarity: all get 0.
    """
    if retriever == "random":
        return np.zeros_like(scores)
    if retriever == "bm25":
        best = scores.max(axis=1, keepdims=True, initial=0)
        return np.divide(scores, best, out=np.zeros_like(scores), where=best > 0)
    return scores


def log_weights(similarities: np.ndarray, temperature: float) -> np.ndarray:
    """log lambda, (queries, k): softmax over the k documents of similarity / temperature."""
    return log_softmax(np.asarray(similarities, np.float64) / temperature, axis=1)


def token_mixture(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log sum_d lambda_d p(y_t | d, x, y_<t), (queries, tokens): the documents are mixed anew at every token."""
    return logsumexp(log_probs + weights[:, :, None], axis=1)


def sequence_mixture(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mixture of whole sequences, (queries, tokens), by the chain rule: tokens add up to the sequence's."""
    reached = logsumexp(np.cumsum(log_probs, axis=2, dtype=np.float64) + weights[:, :, None], axis=1)
    return np.diff(reached, axis=1, prepend=0.0)  # the weights add up to one: nothing said yet has log-probability 0


MIXTURES = {"token_mixture": token_mixture, "sequence_mixture": sequence_mixture}


def responsibilities(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """lambda_d p(y_t | d, x, y_<t) over its sum: how much of each token each document gave, (queries, k, tokens)."""
    joint = log_probs + weights[:, :, None]
    return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))


def bits_per_byte(nats: np.ndarray | float, n_bytes: np.ndarray | int) -> np.ndarray | float:
    """-sum log p / (ln 2 * bytes) of sums over a corpus, not a mean of the queries' own."""
    return nats / (math.log(2) * n_bytes)
