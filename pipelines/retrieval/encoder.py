"""The dual encoder (REPLUG §3.1), whose vectors are pooled last hidden states.

One model serves both sides, or each side has its own, as in DPR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize

from pipelines import draws, progress
from pipelines.errors import LongtailError
from pipelines.lm.ragged import Ragged, longest_first, padded
from pipelines.params import params
from pipelines.retrieval import token_limits
from pipelines.retrieval.modules import write_sentence_transformers_files
from pipelines.retrieval.tower import WINDOW, Tower
from pipelines.work import devices, threads
from pipelines.work.ahead import prepared

CACHED_TOKENS = 2048  # embedded at once on a CPU: the states of more do not fit into its cache
CACHED_WITH_GRADIENT = 1024  # tokens at once in fp32 with gradients
QUERIES = "query"  # folder of the query tower, inside the document tower's
# words of the texts on which faster numerics are compared with fp32
SAMPLE_WORDS = (1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 64)
CLOSE = 1e-4  # largest 1 - cosine to exact fp32 that is accepted of bf16
CLOSER = 1e-6  # the same, of torch's faster fp32


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the real tokens: hidden (n, tokens, dim), mask (n, tokens) of 0, 1 -> (n, dim)."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def first_state(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The first token's state, as in DPR."""
    return hidden[:, 0]


def last_state(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The last real token's state."""
    rows = torch.arange(len(mask), device=mask.device)
    return hidden[rows, mask.sum(1) - 1]


# hidden (n, tokens, dim) and mask (n, tokens), 1 for real tokens, which come first -> (n, dim)
POOLING = {"mean": mean_pool, "cls": first_state, "lasttoken": last_state}


class Numerics(NamedTuple):
    """The type in which inference multiplies matrices, and torch's precision for fp32.

    Sums and norms are fp32.
    """

    dtype: Literal["fp32", "bf16"]
    matmul: Literal["highest", "medium"]


EXACT = Numerics("fp32", "highest")
BF16 = Numerics("bf16", "highest")


class Encoder:
    """Turns texts into vectors, of length 1 if `similarity` is cosine.

    Callers fill documents into their template.
    """

    def __init__(self, documents: Tower, queries: Tower, settings: params.Retriever) -> None:
        """`documents` and `queries` are the same tower, except for DPR."""
        if documents.dim != queries.dim:
            raise LongtailError(
                f"retriever.query_path: its vectors have {queries.dim} numbers, those of "
                f"retriever.path {documents.dim}, expected two encoders trained together"
            )
        self.documents = documents
        self.queries = queries
        self._text_queries = queries
        if settings.text_query_tokens is not None:
            self._text_queries = queries.cut_to(settings.text_query_tokens)
        self._towers = [documents] if queries is documents else [documents, queries]
        self.device = documents.device
        self.dim = documents.dim
        self.settings = settings
        self.similarity = settings.similarity
        self.numerics = EXACT

        models = [tower.model for tower in self._towers]
        self._tokens_in_pass = token_limits.tokens_in_pass(models, self.device)
        # Tokens of texts that are embedded with gradients at once, at most.
        self.tokens_with_gradient = token_limits.tokens_with_gradient(models, self.device)
        self.on_gpu = devices.total_memory(self.device) is not None
        self._computes = Lock()  # a GPU has memory for the batches of one thread

    @classmethod
    def open(
        cls,
        folder: Path,
        retriever: params.Retriever,
        compute: params.Compute,
        numerics: Numerics | None = None,
    ) -> Encoder:
        """Open the encoder in a folder that the stage `base_retriever` or `train_lsr` wrote.

        Without `numerics`, inference uses the fastest that `retriever.dtype` allows and that agree
        with fp32. An encoder in training is opened with EXACT. Raises LongtailError if the folder
        holds no encoder.
        """
        threads.use(compute.threads)
        folder = Path(folder)
        open_tower = partial(Tower, max_tokens=retriever.max_tokens, device=compute.device)
        documents = open_tower(folder)
        queries = documents
        if (folder / QUERIES).is_dir():
            queries = open_tower(folder / QUERIES)

        encoder = cls(documents, queries, retriever)
        if numerics is None:
            numerics = encoder.fastest(retriever.dtype)
        return encoder.with_numerics(numerics)

    def with_numerics(self, numerics: Numerics) -> Encoder:
        """This encoder with other numerics for inference.

        On a GPU, bf16 weights take the place of an autocast for each batch.
        """
        towers = self._towers
        if self.on_gpu and numerics == BF16:
            towers = [tower.in_bf16() for tower in towers]
        encoder = Encoder(towers[0], towers[-1], self.settings)
        encoder.numerics = numerics
        return encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of documents in their template, (texts, dim) float32."""
        return self._embed(texts, queries=False)

    def embed_queries(self, texts: Sequence[str], of_texts: bool = False) -> np.ndarray:
        """Queries' vectors, (texts, dim) float32.

        `of_texts`: they are queries of language modelling, not questions.
        """
        return self._embed(texts, queries=True, of_texts=of_texts)

    def tokens(self, texts: Sequence[str], queries: bool = False, of_texts: bool = False) -> Ragged:
        """The tokens of documents in their template, or of queries, as the encoder reads them."""
        if not queries:
            return self.documents.tokens(texts)
        tower = self._text_queries if of_texts else self.queries
        prefix = self.settings.query_prefix
        return tower.tokens([prefix + text for text in texts])

    def embed_with_gradient(self, tokens: Ragged, queries: bool = False) -> torch.Tensor:
        """Vectors (texts, dim) with gradients to the encoder's fp32 weights, for LSR."""
        tower = self.queries if queries else self.documents
        assert tower.model.dtype == torch.float32, "an encoder in training is opened with EXACT"
        usual_attention = tower.model.config._attn_implementation
        if self.device == "cpu" and torch.is_autocast_enabled("cpu"):
            _attend(tower, "eager")  # the fused backward pass is slow in bf16
        try:
            return in_order(self._batches(tokens, queries))
        finally:
            _attend(tower, usual_attention)

    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights of both sides; a shared tower's weights are there once."""
        weights = []
        for tower in self._towers:
            weights += tower.model.parameters()
        return weights

    @property
    def facts(self) -> dict[str, str | int]:
        """The params, other than the weights, that documents' vectors depend on."""
        names = ("similarity", "pooling", "document", "max_tokens")
        return {name: getattr(self.settings, name) for name in names}

    def save(self, folder: Path) -> None:
        """Save a Hugging Face folder, with a query tower inside if there is one.

        A folder of one tower can be loaded by sentence-transformers, too.
        """
        self.documents.save(folder)
        if self.queries is not self.documents:
            self.queries.save(folder / QUERIES)
            return
        write_sentence_transformers_files(
            folder, self.settings, width=self.dim, max_tokens=self.documents.max_tokens
        )

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str], queries: bool, of_texts: bool = False) -> np.ndarray:
        """Vectors (texts, dim), window by window; a window's stay on the device until its end."""

        def tokenise(start: int) -> Ragged:
            return self.tokens(texts[start : start + WINDOW], queries, of_texts)

        result = np.empty((len(texts), self.dim), np.float32)
        starts = range(0, len(texts), WINDOW)
        for start, tokens in prepared(starts, tokenise, in_thread=self.on_gpu):
            with self._computes, self._computing():
                batches = self._batches(tokens, queries, n_texts=len(texts))
                vectors = in_order(batches).cpu().numpy()
            result[start : start + WINDOW] = vectors
        return result

    def _batches(
        self, tokens: Ragged, queries: bool, n_texts: int = 0
    ) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield rows of `tokens` and their vectors, the longest texts first.

        With `n_texts`, progress counts the rows as parts of so many texts.
        """
        tower = self.queries if queries else self.documents
        pool = POOLING[self.settings.pooling]
        most_tokens = self._tokens_at_once()

        for rows in longest_first(tokens.lengths, most_tokens):
            width = int(tokens.lengths[rows[0]])
            ids, real = padded(tokens.take(rows), width, tower.pad)
            hidden, mask = tower.hidden(ids, real)
            vectors = pool(hidden, mask)
            if self.similarity == "cosine":
                vectors = normalize(vectors, dim=-1)
            progress.advance(len(rows), n_texts)
            yield rows, vectors

    def _tokens_at_once(self) -> int:
        """The tokens in a batch, padding included, at most."""
        most = self._tokens_in_pass
        if self.on_gpu:
            return most
        if not torch.is_grad_enabled():
            return min(most, CACHED_TOKENS)
        if not torch.is_autocast_enabled("cpu"):
            return min(most, CACHED_WITH_GRADIENT)
        return most

    def fastest(self, dtype: str) -> Numerics:
        """The fastest numerics that `retriever.dtype` allows and that agree with exact fp32.

        Prints which do not agree.
        """
        limits = {}
        if dtype == "bf16" or (dtype == "auto" and devices.has_bf16(self.documents.device)):
            limits[BF16] = CLOSE
        if self.documents.device == "cpu":
            limits[Numerics("fp32", "medium")] = CLOSER

        exact = self.with_numerics(EXACT).sample_vectors()
        for numerics, limit in limits.items():
            vectors = self.with_numerics(numerics).sample_vectors()
            error = _difference(vectors, exact)
            if error < limit:
                return numerics
            print(
                f"retriever: {numerics.dtype} with matmul precision {numerics.matmul} is not used; "
                f"its vectors are off by 1 - cosine {error:.1e}, expected less than {limit:.0e}"
            )
        return EXACT

    def sample_vectors(self) -> list[np.ndarray]:
        """The vectors of sample texts, by each tower."""
        words = np.array(sorted(self.documents.tokenizer.get_vocab()))
        generator = draws.generator(0, "encoder/sample")
        texts = [" ".join(generator.choice(words, n)) for n in SAMPLE_WORDS]
        vectors = [self._embed(texts, queries=False)]
        if len(self._towers) == 2:
            vectors.append(self._embed(texts, queries=True))
        return vectors

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute with the encoder's numerics inside the block only.

        Outside of it, torch's precision for fp32 applies to the language model, too.
        """
        dtype, matmul = self.numerics
        autocasts = dtype == "bf16" and self.documents.model.dtype == torch.float32
        autocast = torch.autocast(self.device, torch.bfloat16, enabled=autocasts)
        with devices.products_in(matmul), autocast:
            yield


def in_order(batches: Iterable[tuple[np.ndarray, torch.Tensor]]) -> torch.Tensor:
    """The vectors (texts, dim) of batches of rows, ordered by row, on their device."""
    rows, vectors = zip(*batches, strict=True)
    order = np.argsort(np.concatenate(rows))
    joined = torch.cat(vectors)
    # index_select sums its gradient in a fixed order; advanced indexing does not.
    return joined.index_select(0, devices.to_device(order, joined.device))


def _attend(tower: Tower, implementation: str) -> None:
    """Have a tower's model compute attention in one of transformers' ways."""
    if tower.model.config._attn_implementation != implementation:
        tower.model.set_attn_implementation(implementation)


def _difference(vectors: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest 1 - cosine; 1 where a cosine is no number."""
    largest = []
    for approximate, true in zip(vectors, exact, strict=True):
        cosines = cosine_similarity(
            torch.from_numpy(approximate).double(), torch.from_numpy(true).double()
        )
        largest.append(float(torch.nan_to_num(1 - cosines, nan=1.0).max()))
    return max(largest)
