"""The gradient of a loss over a batch's embeddings, in parts where the batch does not fit (Gao et al., GradCache).

Several GPUs share a batch's texts, each with a copy of the encoder, in threads of this one process: as the loss sees
all vectors at once, the gradient is that of one GPU but for the order of its sums, which is fixed for their number.
torch's DistributedDataParallel would have each process take its own loss and average, and be one more thing to start,
kill and resume; its DataParallel sends all weights at each forward pass, here they go round once a step. What threads
cost is Python's lock: it is held while a layer's work is handed to a GPU, which is little as long as a part is large.
All of this is tested with copies on one CPU; on several GPUs it has not been run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from pipelines import params
from pipelines.retrieval.encoder import Encoder


class Part(NamedTuple):
    """Texts that an encoder embeds at once."""

    queries: bool
    rows: np.ndarray  # of the documents or the queries


class Gradients:
    """Of `encoder`; `copies` of it, each on a device of its own, do a share of the work."""

    def __init__(self, encoder: Encoder, copies: Sequence[Encoder], settings: params.LSR) -> None:
        self.encoder, self._encoders, self._settings = encoder, [encoder, *copies], settings

    def backward(
        self,
        documents: Sequence[str],
        queries: Sequence[str],
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        """Add to the encoder's weights the gradient of `loss` of documents' and queries' vectors, (n, dim) each.

        A device with more than `micro_batch` texts embeds them first without gradient; the loss's gradient at the
        vectors is then taken through each part embedded anew.
        """
        sides = (documents, queries)
        size = self._settings.micro_batch
        whole = size is None or sum(-(-len(texts) // len(self._encoders)) for texts in sides) <= size
        shares = [list(self._parts(sides, number, None if whole else size)) for number in range(len(self._encoders))]
        self._spread()
        made = self._each(shares, lambda encoder, part: self._embedded(encoder, sides, part, gradient=whole))
        vectors = [_joined(shares, made, own) for own in (False, True)]
        if whole:
            loss(*vectors).backward()
        else:
            for one in vectors:
                one.requires_grad_()
            loss(*vectors).backward()

            def through(encoder: Encoder, part: Part) -> None:
                rows = torch.from_numpy(part.rows).to(vectors[0].device)
                wanted = vectors[part.queries].grad.index_select(0, rows)
                again = self._embedded(encoder, sides, part, gradient=True)
                again.backward(wanted.to(again.device))

            self._each(shares, through)
        self._collect()

    def _parts(self, sides: Sequence[Sequence[str]], number: int, size: int | None) -> Iterator[Part]:
        """Those of the device of that number: each side's share at once, or at most `size` texts of like length."""
        for queries, texts in enumerate(sides):
            order = np.argsort([len(text) for text in texts], kind="stable") if size else np.arange(len(texts))
            own = order[number :: len(self._encoders)]
            at_once = size or max(1, len(own))
            for start in range(0, len(own), at_once):
                yield Part(bool(queries), own[start : start + at_once])

    def _each(self, shares: list[list[Part]], work: Callable[[Encoder, Part], Any]) -> list[list[Any]]:
        """`work` for each device's parts, devices side by side."""

        def own(encoder: Encoder, parts: list[Part]) -> list[Any]:
            return [work(encoder, part) for part in parts]

        if len(self._encoders) == 1:
            return [own(self.encoder, shares[0])]
        with ThreadPoolExecutor(len(self._encoders)) as pool:
            return list(pool.map(own, self._encoders, shares))

    def _embedded(self, encoder: Encoder, sides: Sequence[Sequence[str]], part: Part, gradient: bool) -> torch.Tensor:
        # a context of its own for each: one that began without gradient would keep weights cast to bf16 without it
        kind, half = torch.device(encoder.documents.device).type, self._settings.dtype == "bf16"
        with torch.set_grad_enabled(gradient), torch.autocast(kind, torch.bfloat16, enabled=half):
            return encoder.embed_with_gradient([sides[part.queries][i] for i in part.rows], part.queries)

    @torch.no_grad()
    def _spread(self) -> None:
        """Give the copies the weights of this moment."""
        for weight, *others in self._weights():
            for other in others:
                other.copy_(weight)

    def _collect(self) -> None:
        """Add the copies' gradients to the encoder's, in their order."""
        for weight, *others in self._weights():
            for other in others:
                if other.grad is not None:
                    own = other.grad.to(weight.device)
                    weight.grad, other.grad = own if weight.grad is None else weight.grad + own, None

    def _weights(self) -> Iterator[tuple[torch.nn.Parameter, ...]]:
        return zip(*(one.parameters() for one in self._encoders), strict=True)


def _joined(shares: list[list[Part]], made: list[list[torch.Tensor]], queries: bool) -> torch.Tensor:
    """All vectors of one side on the first device, in the order of its texts."""
    pairs = [pair for parts, vectors in zip(shares, made, strict=True) for pair in zip(parts, vectors, strict=True)]
    rows, vectors = zip(*((part.rows, own) for part, own in pairs if part.queries == queries), strict=True)
    device = vectors[0].device
    back = torch.from_numpy(np.argsort(np.concatenate(rows))).to(device)
    return torch.cat([own.to(device) for own in vectors]).index_select(0, back)
