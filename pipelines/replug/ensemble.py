"""REPLUG's ensemble in log space (REPLUG §3.2): p(y | x, D') = sum over documents of lambda(d, x) p(y | d, x).

Arrays are (queries, documents, tokens), documents best first, so that any smaller k is a slice of the first k. Tokens
beyond a continuation's end hold a log-probability of 0 and add nothing to a sum. If fewer than k documents were found,
the empty places have similarity -inf, which is weight 0, and hold log-probabilities without a document. If no document
was found, the k empty places have equal weights, so the ensemble is the model without documents.
"""

import math

import numpy as np


def log_weights(similarities: np.ndarray, temperature: float) -> np.ndarray:
    """log lambda, (queries, k) float64: softmax over the k documents of similarity / temperature."""
    scaled = np.asarray(similarities, np.float64) / temperature
    return normalised(np.where(np.isneginf(scaled).all(axis=1, keepdims=True), 0.0, scaled))


def normalised(logs: np.ndarray) -> np.ndarray:
    """Logarithms of weights, less a number, so that the weights add up to 1 over the second axis."""
    return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)


def token_weights(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log of the documents' weights at each token, (queries, k, 1): lambda at every token."""
    return weights[:, :, None]


def sequence_weights(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log of the documents' weights at each token if whole sequences are mixed, (queries, k, tokens).

    By the chain rule and Bayes' rule the weight is lambda_d p(y_<t | d, x), divided by its sum over the documents.
    """
    before = np.zeros(log_probs.shape)  # log-probability of the tokens before each token
    before[:, :, 1:] = np.cumsum(log_probs[:, :, :-1], axis=2, dtype=np.float64)
    return normalised(before + weights[:, :, None])


def token_mixture(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log sum_d lambda_d p(y_t | d, x, y_<t), (queries, tokens)."""
    return np.logaddexp.reduce(log_probs + token_weights(log_probs, weights), axis=1)


def sequence_mixture(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log p of each token, (queries, tokens), that add up to log sum_d lambda_d p(y | d, x) over whole sequences."""
    return np.logaddexp.reduce(log_probs + sequence_weights(log_probs, weights), axis=1)


MIXTURES = {"token_mixture": token_mixture, "sequence_mixture": sequence_mixture}
WEIGHTS = {"token_mixture": token_weights, "sequence_mixture": sequence_weights}


def bits_per_byte(nats: np.ndarray | float, n_bytes: np.ndarray | int) -> np.ndarray | float:
    """-sum log p / (ln 2 * bytes), both summed over a corpus: not the mean of the queries' bits per byte."""
    return nats / (math.log(2) * n_bytes)
