"""The gradient of a loss over a batch's embeddings, in parts where the batch does not fit (Gao et al., GradCache)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from pipelines import params
from pipelines.retrieval.encoder import Encoder


def backward(
    encoder: Encoder,
    documents: Sequence[str],
    queries: Sequence[str],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    settings: params.LSR,
) -> None:
    """Add to the encoder's weights the gradient of `loss` of the documents' and the queries' vectors, (n, dim) each.

    More than `micro_batch` texts are embedded first without gradient; the loss's gradient at the vectors is then taken
    through each part embedded anew. That is the same gradient, but for the order of its sums.
    """
    both = ((documents, False), (queries, True))
    size = settings.micro_batch or len(documents) + len(queries)
    if len(documents) + len(queries) <= size:
        loss(*(_embedded(encoder, texts, own, settings) for texts, own in both)).backward()
        return
    sides = [(texts, own, list(_parts(texts, size))) for texts, own in both]
    vectors = []
    with torch.no_grad():
        for texts, own, parts in sides:
            made = torch.cat([_embedded(encoder, [texts[i] for i in part], own, settings) for part in parts])
            back = torch.from_numpy(np.argsort(np.concatenate(parts))).to(made.device)
            vectors.append(made.index_select(0, back))
    for one in vectors:
        one.requires_grad_()
    loss(*vectors).backward()
    for (texts, own, parts), whole in zip(sides, vectors, strict=True):
        for part in parts:
            rows = torch.from_numpy(part).to(whole.device)
            _embedded(encoder, [texts[i] for i in part], own, settings).backward(whole.grad.index_select(0, rows))


def _embedded(encoder: Encoder, texts: Sequence[str], queries: bool, settings: params.LSR) -> torch.Tensor:
    # a context of its own for each: one that began without gradient would keep weights cast to bf16 without it
    with torch.autocast(encoder.documents.device, torch.bfloat16, enabled=settings.dtype == "bf16"):
        return encoder.embed_with_gradient(texts, queries)


def _parts(texts: Sequence[str], size: int) -> Iterator[np.ndarray]:
    """Places of at most `size` texts of like length."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    return (order[start : start + size] for start in range(0, len(order), size))
