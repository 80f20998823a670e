"""LSR's objective (REPLUG §4): the retriever should prefer documents that help the language model.

`likelihood` and `lsr_loss` are the formulas. `backward` backpropagates a batch's loss through the
encoder, in parts if the batch doesn't fit on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pipelines.lm.ragged import longest_first

# PyTorch takes seconds to import, and the formulas need only the tensors' own methods.
if TYPE_CHECKING:
    import torch

    from pipelines.lm.ragged import Ragged
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
    documents: Ragged,
    queries: Ragged,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    bf16: bool = False,
) -> None:
    """Add the gradient of `loss` to the encoder's weights.

    The encoder embeds the tokens of documents and queries, and the loss is a function of both as
    vectors, (n, dim) each. More texts than memory is meant for are embedded without gradient first;
    the loss's gradient at the vectors is then backpropagated through one part after the other, each
    embedded again (Gao et al., 2021, GradCache).

    With `bf16` matrices are multiplied in bf16. Nothing waits for the device.
    """
    import torch

    from pipelines.retrieval.encoder import in_order
    from pipelines.work import devices

    device = torch.device(encoder.device)

    def embed(tokens: Ragged, of_queries: bool) -> torch.Tensor:
        # One autocast for each part: it caches the bf16 weights, and weights cached without
        # gradient would get none.
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            return encoder.embed_with_gradient(tokens, queries=of_queries)

    most_tokens = encoder.tokens_with_gradient
    if documents.lengths.sum() + queries.lengths.sum() <= most_tokens:
        document_vectors = embed(documents, of_queries=False)
        query_vectors = embed(queries, of_queries=True)
        loss(document_vectors, query_vectors).backward()
        return

    parts = []
    leaves = []  # nothing behind these vectors is differentiated
    for tokens, of_queries in ((documents, False), (queries, True)):
        batches = []
        for rows in longest_first(tokens.lengths, most_tokens):
            with torch.no_grad():
                vectors = embed(tokens.take(rows), of_queries)
            batches.append((rows, vectors))
        leaf = in_order(batches).requires_grad_()
        leaves.append(leaf)
        parts += [(leaf, rows, tokens.take(rows), of_queries) for rows, _ in batches]
    loss(*leaves).backward()

    for leaf, rows, part, of_queries in parts:
        assert leaf.grad is not None, "the loss uses both"
        gradient = leaf.grad.index_select(0, devices.to_device(rows, device))
        embed(part, of_queries).backward(gradient)
