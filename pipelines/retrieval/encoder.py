"""The dual encoder (REPLUG §3.1): pooled last hidden states, by one model for both sides or one for each (DPR)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize

from pipelines import draws, params
from pipelines.errors import LongtailError
from pipelines.lm.ragged import padded
from pipelines.retrieval import layout
from pipelines.retrieval.tower import Tower

WINDOW = 8192  # texts tokenised and sorted by length at once
QUERIES = "query"  # folder of the second tower, inside the first one's
SAMPLE = (1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 64)  # words of the texts on which faster numerics are compared with fp32
CLOSE, CLOSER = 1e-4, 1e-6  # 1 - cosine to fp32, at most: of bf16, and of torch's faster fp32


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the real tokens: hidden (n, tokens, dim), mask (n, tokens) of 0 and 1 -> (n, dim)."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def cls_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The first token's state, as BERT and DPR mean it: hidden (n, tokens, dim) -> (n, dim)."""
    return hidden[:, 0]


POOLING = {"mean": mean_pool, "cls": cls_pool}


class Numerics(NamedTuple):
    """How inference multiplies matrices: in which type (sums and norms are fp32), and how precisely where in fp32."""

    dtype: Literal["fp32", "bf16"]
    matmul: Literal["highest", "medium"]


EXACT = Numerics("fp32", "highest")


class Encoder:
    """Texts to vectors. With `similarity` cosine they have length 1; a prefix goes before each side's texts."""

    def __init__(self, documents: Tower, queries: Tower, settings: params.Retriever) -> None:
        if documents.dim != queries.dim:
            raise LongtailError(
                f"retriever.query_path: its vectors have {queries.dim} numbers, those of retriever.path "
                f"{documents.dim}, expected two encoders trained together"
            )
        self.documents, self.queries = documents, queries  # the same one, but for DPR
        self.settings, self.similarity, self.dim = settings, settings.similarity, documents.dim
        self.numerics = EXACT

    @classmethod
    def open(
        cls, folder: Path, retriever: params.Retriever, compute: params.Compute, numerics: Numerics | None = None
    ) -> Encoder:
        """The encoder in a folder that the stage `base_retriever` or `train_lsr` wrote.

        Without `numerics` they follow `retriever.dtype`, checked against fp32. Gradients are always those of fp32.
        Raises LongtailError where the folder holds no encoder.
        """
        torch.set_num_threads(compute.threads)
        folder = Path(folder)
        shape = {"max_tokens": retriever.max_tokens, "device": compute.device}
        documents = Tower(folder, **shape)
        queries = Tower(folder / QUERIES, **shape) if (folder / QUERIES).is_dir() else documents
        encoder = cls(documents, queries, retriever)
        encoder.numerics = encoder._fastest(retriever.dtype) if numerics is None else numerics
        return encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Documents' vectors, (texts, dim) float32; texts of like length share a batch."""
        return self._embed(texts, False, self.numerics)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Queries' vectors, (texts, dim) float32."""
        return self._embed(texts, True, self.numerics)

    def embed_with_gradient(self, texts: Sequence[str], queries: bool = False) -> torch.Tensor:
        """(texts, dim), attached to the encoder's weights: what LSR trains through."""
        parts = list(self._batches(texts, queries))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        # index_select's gradient is summed in one order; that of advanced indexing is not
        return torch.cat([vectors for _, vectors in parts]).index_select(0, torch.from_numpy(order).to(self._device))

    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights of both sides, each once."""
        return [weight for tower in self._towers() for weight in tower.model.parameters()]

    @property
    def facts(self) -> dict[str, str | int]:
        """The params that documents' vectors depend on, beside the weights."""
        names = ("similarity", "pooling", "document_prefix", "max_tokens")
        return {name: getattr(self.settings, name) for name in names}

    def save(self, folder: Path) -> None:
        """The documents' encoder as a Hugging Face folder, and inside it the queries', where that is another.

        One encoder for both sides is sentence-transformers' folder as well.
        """
        self.documents.save(folder)
        if self.queries is not self.documents:
            self.queries.save(folder / QUERIES)
        else:
            layout.write(folder, self.settings, self.dim, self.documents.max_tokens)

    @property
    def _device(self) -> str:
        return self.documents.device

    def _towers(self) -> list[Tower]:
        return [self.documents] if self.queries is self.documents else [self.documents, self.queries]

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str], queries: bool, numerics: Numerics) -> np.ndarray:
        result = np.empty((len(texts), self.dim), np.float32)
        with _computing(numerics, self._device):
            for start in range(0, len(texts), WINDOW):
                for rows, vectors in self._batches(texts[start : start + WINDOW], queries):
                    result[start + rows] = vectors.cpu().numpy()
        return result

    def _batches(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Places in `texts` and their vectors, the longest first; at most `batch_tokens` tokens, padding included."""
        tower, prefix = self.documents, self.settings.document_prefix
        if queries:
            tower, prefix = self.queries, self.settings.query_prefix
        tokens = tower.tokens([prefix + text for text in texts])
        order = np.argsort(-tokens.lengths, kind="stable")
        start = 0
        while start < len(order):
            width = int(tokens.lengths[order[start]])
            rows = order[start : start + max(1, self.settings.batch_tokens // width)]
            vectors = POOLING[self.settings.pooling](*tower.hidden(*padded(tokens.take(rows), width, tower.pad)))
            yield rows, normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors
            start += len(rows)

    def _fastest(self, asked: str) -> Numerics:
        """The fastest numerics that `asked` allows within CLOSE or CLOSER of fp32; says so where one is not."""
        if asked == "bf16" or (asked == "auto" and has_bf16(self._device)):
            error = self._error(Numerics("bf16", "highest"))
            if error < CLOSE:
                return Numerics("bf16", "highest")
            print(
                f"retriever: bf16 vectors have cosine {1 - error:.5f} with fp32's, expected more than {1 - CLOSE}; "
                "fp32 is used",
                flush=True,
            )
        if self._device != "cpu":
            return EXACT
        fast = Numerics("fp32", "medium")
        error = self._error(fast)
        if error < CLOSER:
            return fast
        print(
            f"retriever: faster fp32 (matmul precision medium) is off by 1 - cosine {error:.1e}, expected less than "
            f"{CLOSER:.0e}; exact fp32 is used",
            flush=True,
        )
        return EXACT

    def _error(self, numerics: Numerics) -> float:
        """The largest 1 - cosine between vectors computed so and exactly."""
        words = np.array(sorted(self.documents.tokenizer.get_vocab()))
        draw = draws.generator(0, "encoder/sample")
        texts = [" ".join(draw.choice(words, n)) for n in SAMPLE]
        error = 0.0
        for queries in (False, True)[: len(self._towers())]:
            vectors = (self._embed(texts, queries, how).astype(np.float64) for how in (numerics, EXACT))
            cosines = cosine_similarity(*map(torch.from_numpy, vectors))
            error = max(error, float(torch.nan_to_num(1 - cosines, nan=1.0).max()))
        return error


def has_bf16(device: str) -> bool:
    """Whether the device multiplies bf16 in hardware, several times faster than fp32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


@contextmanager
def _computing(numerics: Numerics, device: str) -> Iterator[None]:
    """torch's precision of fp32 products is the whole process's, a language model's too: so only for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(numerics.matmul)
    try:
        with torch.autocast(device, torch.bfloat16, enabled=numerics.dtype == "bf16"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
