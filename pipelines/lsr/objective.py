"""LSR's objective (REPLUG §4): train the retriever to prefer the documents that help the language model.

`likelihood` and `lsr_loss` are the formulas. `GradientCache` backpropagates a batch's loss through the encoder, in
parts if the batch doesn't fit on the device, and on several GPUs (Gao et al., 2021, GradCache).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from pipelines.params import LSR
from pipelines.retrieval.encoder import Encoder


def likelihood(sums: np.ndarray, tokens: np.ndarray, kind: str) -> np.ndarray:
    """L(y | d, x) from the continuation's sum of log p and its number of tokens, in any shape.

    `prob` is the continuation's probability as in the papers, which is about 0 over many tokens.
    """
    if kind == "mean_logprob":
        return sums / np.maximum(tokens, 1)
    return np.exp(sums) if kind == "prob" else sums


def lsr_loss(
    similarities: torch.Tensor, log_likelihoods: torch.Tensor, gamma: float, beta: float, kl: str
) -> torch.Tensor:
    """Mean over the batch of KL(Q || P_R) for `q_p`, of KL(P_R || Q) for `p_q`; both inputs (batch, k).

    P_R = softmax(similarities / gamma) is the retriever's distribution over a query's k documents, and
    Q = softmax(log_likelihoods / beta) the language model's. Only `similarities` should carry a gradient.
    """
    log_p = torch.log_softmax(similarities / gamma, dim=1)
    log_q = torch.log_softmax(log_likelihoods / beta, dim=1)
    if kl == "q_p":
        return (log_q.exp() * (log_q - log_p)).sum(1).mean()
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def entropy(logits: np.ndarray | torch.Tensor, temperature: float) -> float:
    """Mean entropy of softmax(logits / temperature) over the rows of (n, k), as a share of the uniform one's."""
    log_p = torch.log_softmax(torch.as_tensor(logits, dtype=torch.float64) / temperature, dim=1)
    nats = -(log_p.exp() * log_p).sum(1).mean()
    return float(nats) / math.log(log_p.shape[1]) if log_p.shape[1] > 1 else 0.0


class Part(NamedTuple):
    """Texts that an encoder embeds at once."""

    is_query: bool
    rows: np.ndarray  # of the queries or the documents


class GradientCache:
    """Adds the gradient of a loss over a batch's embeddings to the encoder's weights.

    Several GPUs share the batch's texts, each with a copy of the encoder, in threads of one process. The loss sees all
    vectors at once, so the gradient is that of one GPU except for the order of its sums, which is fixed for a number
    of GPUs. Tests run the copies on one CPU; no run on several GPUs has been made yet.
    """

    def __init__(self, encoder: Encoder, copies: Sequence[Encoder], lsr: LSR) -> None:
        self.encoder, self._encoders = encoder, [encoder, *copies]
        self._micro_batch, self._bf16 = lsr.micro_batch, lsr.dtype == "bf16"

    def backward(self, documents: Sequence[str], queries: Sequence[str], loss: Callable[..., torch.Tensor]) -> None:
        """Add the gradient of `loss`, a function of the documents' and the queries' vectors, (n, dim) each.

        More than `micro_batch` texts a device are first embedded without gradient. The loss's gradient at the vectors
        is then backpropagated through one part after the other, each embedded again.
        """
        texts, size = (documents, queries), self._micro_batch
        at_once = size is None or sum(-(-len(kind) // len(self._encoders)) for kind in texts) <= size
        parts = [list(self._parts(texts, i, None if at_once else size)) for i in range(len(self._encoders))]
        with torch.no_grad():
            for weight, *copies in self._weights():
                for copy in copies:
                    copy.copy_(weight)
        embedded = self._on_each_device(parts, lambda encoder, part: self._embed(encoder, texts, part, at_once))
        vectors = [_joined(parts, embedded, is_query) for is_query in (False, True)]
        if at_once:
            loss(*vectors).backward()
        else:
            for leaf in vectors:
                leaf.requires_grad_()
            loss(*vectors).backward()

            def backpropagate(encoder: Encoder, part: Part) -> None:
                rows = torch.from_numpy(part.rows).to(vectors[0].device)
                gradient = vectors[part.is_query].grad.index_select(0, rows)
                again = self._embed(encoder, texts, part, gradient=True)
                again.backward(gradient.to(again.device))

            self._on_each_device(parts, backpropagate)
        self._add_gradients()

    def _parts(self, texts: Sequence[Sequence[str]], device: int, size: int | None) -> Iterator[Part]:
        """A device's share of the documents and of the queries: whole, or in parts of `size` texts of like length."""
        for is_query, kind in enumerate(texts):
            order = np.argsort([len(text) for text in kind], kind="stable") if size else np.arange(len(kind))
            share = order[device :: len(self._encoders)]
            step = size or max(1, len(share))
            for start in range(0, len(share), step):
                yield Part(bool(is_query), share[start : start + step])

    def _on_each_device(self, parts: list[list[Part]], work: Callable[[Encoder, Part], Any]) -> list[list[Any]]:
        """`work` for each part of each device; devices work at the same time."""

        def on_device(encoder: Encoder, parts_of_device: list[Part]) -> list[Any]:
            return [work(encoder, part) for part in parts_of_device]

        if len(self._encoders) == 1:
            return [on_device(self.encoder, parts[0])]
        with ThreadPoolExecutor(len(self._encoders)) as pool:
            return list(pool.map(on_device, self._encoders, parts))

    def _embed(self, encoder: Encoder, texts: Sequence[Sequence[str]], part: Part, gradient: bool) -> torch.Tensor:
        # one autocast for each part: it caches the bf16 weights, and those cached without gradient would stay without
        device = torch.device(encoder.documents.device).type
        with torch.set_grad_enabled(gradient), torch.autocast(device, torch.bfloat16, enabled=self._bf16):
            return encoder.embed_with_gradient([texts[part.is_query][i] for i in part.rows], part.is_query)

    def _weights(self) -> Iterator[tuple[torch.nn.Parameter, ...]]:
        """Each of the encoder's weights, with its copies."""
        return zip(*(encoder.parameters() for encoder in self._encoders), strict=True)

    def _add_gradients(self) -> None:
        """Add the copies' gradients to the encoder's, in the order of the devices."""
        for weight, *copies in self._weights():
            for copy in copies:
                if copy.grad is not None:
                    gradient = copy.grad.to(weight.device)
                    weight.grad, copy.grad = gradient if weight.grad is None else weight.grad + gradient, None


def _joined(parts: list[list[Part]], embedded: list[list[torch.Tensor]], is_query: bool) -> torch.Tensor:
    """All vectors of the queries, or of the documents, on the first device and in the order of the texts."""
    pairs = [pair for of_device in zip(parts, embedded, strict=True) for pair in zip(*of_device, strict=True)]
    rows, vectors = zip(*((part.rows, made) for part, made in pairs if part.is_query == is_query), strict=True)
    device = vectors[0].device
    back = torch.from_numpy(np.argsort(np.concatenate(rows))).to(device)
    return torch.cat([made.to(device) for made in vectors]).index_select(0, back)
