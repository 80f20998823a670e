"""LSR's objective (REPLUG §4): the retriever's distribution over documents is drawn to the language model's."""

from __future__ import annotations

import math

import numpy as np
import torch


def likelihood(sums: np.ndarray, tokens: np.ndarray, kind: str) -> np.ndarray:
    """L(y | d, x) out of the continuation's sum of log p and its number of tokens, in any shape.

    `mean_logprob` is per token, `sum_logprob` the whole, `prob` the papers' probability: about 0 over many tokens.
    """
    if kind == "mean_logprob":
        return sums / np.maximum(tokens, 1)
    return np.exp(sums) if kind == "prob" else sums


def lsr_loss(
    similarities: torch.Tensor, log_likelihoods: torch.Tensor, gamma: float, beta: float, kl: str
) -> torch.Tensor:
    """Mean over the batch of KL(Q || P_R) for `q_p`, of KL(P_R || Q) for `p_q`; both inputs (batch, k).

    P_R = softmax(similarities / gamma) is the retriever's, Q = softmax(log_likelihoods / beta) the language model's,
    over the same k documents. Only `similarities` should carry a gradient.
    """
    log_p = torch.log_softmax(similarities / gamma, dim=1)
    log_q = torch.log_softmax(log_likelihoods / beta, dim=1)
    if kl == "q_p":
        return (log_q.exp() * (log_q - log_p)).sum(1).mean()
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def entropy(logits: np.ndarray | torch.Tensor, temperature: float) -> float:
    """Mean entropy of softmax(logits / temperature) over the rows of (n, k), as a share of the uniform one's."""
    log_p = torch.log_softmax(torch.as_tensor(logits, dtype=torch.float64) / temperature, dim=1)
    own = -(log_p.exp() * log_p).sum(1).mean()
    return float(own) / math.log(log_p.shape[1]) if log_p.shape[1] > 1 else 0.0
