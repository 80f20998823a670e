"""LSR's objective (REPLUG §4): the retriever should prefer documents that help the language model.

`likelihood` and `lsr_loss` are the formulas. `backward` backpropagates a batch's loss through the
encoder, in parts if the batch doesn't fit on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

# PyTorch takes seconds to import, and the formulas need only the tensors' own methods.
if TYPE_CHECKING:
    import torch

    from pipelines.params.params import LSR
    from pipelines.retrieval.encoder import Encoder


def likelihood(sums: np.ndarray, tokens: np.ndarray, kind: str) -> np.ndarray:
    """L(y | d, x) from the continuation's sum of log p and its number of tokens, in any shape.

    For `answer_right`, `sums` are the rewards already: 1 where the language model's own answer is
    right, else 0.
    """
    if kind == "mean_logprob":
        return sums / np.maximum(tokens, 1)
    if kind == "prob":
        return np.exp(sums)
    return sums


def lsr_loss(
    similarities: torch.Tensor,
    log_likelihoods: torch.Tensor,
    gamma: float,
    beta: float | torch.Tensor,
    kl: str,
) -> torch.Tensor:
    """Mean over the batch of KL(Q || P_R) for `q_p`, of KL(P_R || Q) for `p_q`.

    Both inputs are (batch, k). P_R = softmax(similarities / gamma) is the retriever's distribution
    over a query's k documents, and Q = softmax(log_likelihoods / beta) the language model's; `beta`
    is a number, or (batch, 1).
    """
    log_p = (similarities / gamma).log_softmax(dim=1)
    log_q = (log_likelihoods / beta).log_softmax(dim=1)
    if kl == "q_p":
        return (log_q.exp() * (log_q - log_p)).sum(1).mean()
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def informative(targets: np.ndarray) -> np.ndarray:
    """Which of n queries teach anything, (n, k) -> (n,) bool.

    Those do whose documents do not all have the same target.
    """
    return targets.max(1) > targets.min(1)


def entropy(logits: np.ndarray | torch.Tensor, temperature: float | torch.Tensor) -> float:
    """Mean entropy of softmax(logits / temperature) over rows of (n, k), a share of the uniform's.

    It is 1 without rows.
    """
    import torch

    if not len(logits):
        return 1.0
    scaled = torch.as_tensor(logits, dtype=torch.float64) / temperature
    k = scaled.shape[1]
    if k == 1:
        return 0.0
    log_p = torch.log_softmax(scaled, dim=1)
    nats = -(log_p.exp() * log_p).sum(1).mean()
    return float(nats) / math.log(k)


def beta_of_entropy(log_likelihoods: np.ndarray, share: float) -> float:
    """The beta, at least 1e-6, with which Q has this mean entropy.

    Q = softmax(log_likelihoods / beta), (n, k).
    """
    low = math.log(1e-6)
    high = math.log(1e6)
    for _ in range(50):  # the entropy rises with beta
        middle = (low + high) / 2
        if entropy(log_likelihoods, math.exp(middle)) > share:
            high = middle
        else:
            low = middle
    return math.exp(low)


def backward(
    encoder: Encoder,
    lsr: LSR,
    documents: Sequence[str],
    queries: Sequence[str],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """Add the gradient of `loss` to the encoder's weights.

    The loss is a function of documents and queries as vectors, (n, dim) each. More than
    `lsr.micro_batch` texts are embedded without gradient first; the loss's gradient at the vectors
    is then backpropagated through one part after the other, each embedded again (Gao et al., 2021,
    GradCache).
    """
    import torch

    device = torch.device(encoder.documents.device).type
    n_texts = len(documents) + len(queries)
    at_once = lsr.micro_batch is None or n_texts <= lsr.micro_batch
    size = None if at_once else lsr.micro_batch
    texts_of_sides = {"documents": documents, "queries": queries}

    def embed(side: str, rows: np.ndarray, gradient: bool) -> torch.Tensor:
        # One autocast for each part: it caches the bf16 weights, and weights cached without
        # gradient would get none.
        with (
            torch.set_grad_enabled(gradient),
            torch.autocast(device, torch.bfloat16, enabled=lsr.dtype == "bf16"),
        ):
            texts = [texts_of_sides[side][row] for row in rows]
            return encoder.embed_with_gradient(texts, queries=side == "queries")

    # the loss's gradient at the vectors, which are leaves: nothing behind them is differentiated
    parts = []
    leaves = {}
    for side, texts in texts_of_sides.items():
        parts += [(side, rows) for rows in _parts(texts, size)]
        leaves[side] = encoder.parameters()[0].new_zeros(len(texts), encoder.dim)
    embedded = [embed(side, rows, gradient=at_once) for side, rows in parts]
    for (side, rows), vectors in zip(parts, embedded, strict=True):
        leaves[side][rows] = vectors.detach()
    loss(leaves["documents"].requires_grad_(), leaves["queries"].requires_grad_()).backward()

    # from the vectors back to the weights
    gradients = []
    for side, rows in parts:
        gradient = leaves[side].grad
        assert gradient is not None, "the loss uses both"
        gradients.append(gradient[rows])
    if at_once:
        torch.autograd.backward(embedded, gradients)
        return
    for (side, rows), gradient in zip(parts, gradients, strict=True):
        embed(side, rows, gradient=True).backward(gradient)


def _parts(texts: Sequence[str], size: int | None) -> list[np.ndarray]:
    """The texts' rows: all at once, or in parts of `size` texts of like length."""
    if size is None:
        return [np.arange(len(texts))]
    order = np.argsort([len(text) for text in texts], kind="stable")
    return np.split(order, range(size, len(texts), size))
