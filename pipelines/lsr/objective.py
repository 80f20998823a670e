"""LSR's objective (REPLUG §4): train the retriever to prefer the documents that help the language model.

`likelihood` and `lsr_loss` are the formulas. `backward` backpropagates a batch's loss through the encoder, in parts if
the batch doesn't fit on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if (
    TYPE_CHECKING
):  # PyTorch takes seconds to import, and the formulas need only the tensors' own methods
    import torch

    from pipelines.params.params import LSR
    from pipelines.retrieval.encoder import Encoder


def likelihood(sums: np.ndarray, tokens: np.ndarray, kind: str) -> np.ndarray:
    """L(y | d, x) from the continuation's sum of log p and its number of tokens, in any shape.

    For `answer_right`, `sums` are the rewards already: 1 where the language model's own answer is right, else 0.
    """
    if kind == "mean_logprob":
        return sums / np.maximum(tokens, 1)
    return np.exp(sums) if kind == "prob" else sums


def lsr_loss(
    similarities: torch.Tensor,
    log_likelihoods: torch.Tensor,
    gamma: float,
    beta: float | torch.Tensor,
    kl: str,
) -> torch.Tensor:
    """Mean over the batch of KL(Q || P_R) for `q_p`, of KL(P_R || Q) for `p_q`; both inputs (batch, k).

    P_R = softmax(similarities / gamma) is the retriever's distribution over a query's k documents, and
    Q = softmax(log_likelihoods / beta) the language model's; `beta` is a number, or (batch, 1).
    """
    log_p = (similarities / gamma).log_softmax(dim=1)
    log_q = (log_likelihoods / beta).log_softmax(dim=1)
    if kl == "q_p":
        return (log_q.exp() * (log_q - log_p)).sum(1).mean()
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def informative(targets: np.ndarray) -> np.ndarray:
    """Which of n queries teach anything: those whose documents do not all have the same target, (n, k) -> (n,) bool."""
    return targets.max(1) > targets.min(1)


def entropy(logits: np.ndarray | torch.Tensor, temperature: float | torch.Tensor) -> float:
    """Mean entropy of softmax(logits / temperature) over rows of (n, k), a share of the uniform's; 1 without rows."""
    import torch

    if not len(logits):
        return 1.0
    log_p = torch.log_softmax(torch.as_tensor(logits, dtype=torch.float64) / temperature, dim=1)
    nats = -(log_p.exp() * log_p).sum(1).mean()
    return float(nats) / math.log(log_p.shape[1]) if log_p.shape[1] > 1 else 0.0


def beta_of_entropy(log_likelihoods: np.ndarray, share: float) -> float:
    """The beta, at least 1e-6, with which Q = softmax(log_likelihoods / beta), (n, k), has this mean entropy."""
    low, high = math.log(1e-6), math.log(1e6)
    for _ in range(50):  # the entropy rises with beta
        middle = (low + high) / 2
        low, high = (
            (low, middle) if entropy(log_likelihoods, math.exp(middle)) > share else (middle, high)
        )
    return math.exp(low)


def backward(
    encoder: Encoder,
    lsr: LSR,
    documents: Sequence[str],
    queries: Sequence[str],
    loss: Callable[..., torch.Tensor],
) -> None:
    """Add to the encoder's weights the gradient of `loss`, a function of documents and queries as vectors, (n, dim).

    More than `lsr.micro_batch` texts are embedded without gradient first; the loss's gradient at the vectors is then
    backpropagated through one part after the other, each embedded again (Gao et al., 2021, GradCache).
    """
    import torch

    texts, device = (list(documents), list(queries)), torch.device(encoder.documents.device).type
    at_once = lsr.micro_batch is None or sum(map(len, texts)) <= lsr.micro_batch
    parts = [
        (i, rows)
        for i, kind in enumerate(texts)
        for rows in _parts(kind, None if at_once else lsr.micro_batch)
    ]

    def embed(is_query: int, rows: np.ndarray, gradient: bool) -> torch.Tensor:
        # one autocast for each part: it caches the bf16 weights, and weights cached without gradient would get none
        with (
            torch.set_grad_enabled(gradient),
            torch.autocast(device, torch.bfloat16, enabled=lsr.dtype == "bf16"),
        ):
            return encoder.embed_with_gradient([texts[is_query][i] for i in rows], bool(is_query))

    embedded = [embed(*part, at_once) for part in parts]
    vectors = [encoder.parameters()[0].new_zeros(len(kind), encoder.dim) for kind in texts]
    for (is_query, rows), made in zip(parts, embedded, strict=True):
        vectors[is_query][rows] = made.detach()
    loss(*(kind.requires_grad_() for kind in vectors)).backward()
    of_parts = [vectors[is_query].grad[rows] for is_query, rows in parts]
    if at_once:
        torch.autograd.backward(embedded, of_parts)
    else:
        for part, gradient in zip(parts, of_parts, strict=True):
            embed(*part, True).backward(gradient)


def _parts(texts: Sequence[str], size: int | None) -> list[np.ndarray]:
    """The texts' rows: all at once, or in parts of `size` texts of like length."""
    order = (
        np.argsort([len(text) for text in texts], kind="stable") if size else np.arange(len(texts))
    )
    return np.split(order, range(size, len(texts), size)) if size else [order]
