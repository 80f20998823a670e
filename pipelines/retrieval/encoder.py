"""The dual encoder (REPLUG §3.1): pooled last hidden states, by one model for both sides or one for each (DPR)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize

from pipelines import draws, progress
from pipelines.errors import LongtailError
from pipelines.lm.ragged import padded
from pipelines.params import params
from pipelines.retrieval.modules import POOLINGS
from pipelines.retrieval.tower import Tower
from pipelines.work import threads

WINDOW = 8192  # texts tokenised and sorted by length at once
CACHED = (
    2048  # tokens embedded at once on a CPU, at most: the states of more do not fit into its cache
)
CACHED_WITH_GRADIENT = 1024  # tokens at once in fp32 with gradients
QUERIES = "query"  # folder of the query tower, inside the document tower's
SAMPLE = (
    1,
    1,
    2,
    2,
    4,
    4,
    8,
    8,
    16,
    16,
    64,
)  # words of the texts on which faster numerics are compared with fp32
CLOSE, CLOSER = (
    1e-4,
    1e-6,
)  # largest 1 - cosine to exact fp32 that is accepted: of bf16, and of torch's faster fp32


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the real tokens: hidden (n, tokens, dim), mask (n, tokens) of 0 and 1 -> (n, dim)."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


POOLING = {  # hidden (n, tokens, dim) and mask (n, tokens), 1 for real tokens, which come first -> (n, dim)
    "mean": mean_pool,
    "cls": lambda hidden, mask: hidden[:, 0],  # the first token's state, as in DPR
    "lasttoken": lambda hidden, mask: hidden[torch.arange(len(mask)), mask.sum(1) - 1],
}


class Numerics(NamedTuple):
    """The type in which inference multiplies matrices (sums and norms are fp32), and torch's precision for fp32."""

    dtype: Literal["fp32", "bf16"]
    matmul: Literal["highest", "medium"]


EXACT = Numerics("fp32", "highest")


class Encoder:
    """Turns texts into vectors, of length 1 if `similarity` is cosine; callers fill in the template of documents."""

    def __init__(self, documents: Tower, queries: Tower, settings: params.Retriever) -> None:
        """`documents` and `queries` are the same tower, except for DPR."""
        if documents.dim != queries.dim:
            raise LongtailError(
                f"retriever.query_path: its vectors have {queries.dim} numbers, those of retriever.path "
                f"{documents.dim}, expected two encoders trained together"
            )
        self.documents, self.queries, self.device = documents, queries, documents.device
        self._towers = [documents] if queries is documents else [documents, queries]
        self.settings, self.similarity, self.dim = settings, settings.similarity, documents.dim
        self.numerics = EXACT

    @classmethod
    def open(
        cls,
        folder: Path,
        retriever: params.Retriever,
        compute: params.Compute,
        numerics: Numerics | None = None,
    ) -> Encoder:
        """Open the encoder in a folder that the stage `base_retriever` or `train_lsr` wrote.

        Without `numerics`, inference uses the fastest that `retriever.dtype` allows and that agree with fp32. Gradients
        are fp32. Raises LongtailError if the folder holds no encoder.
        """
        threads.use(compute.threads)
        folder = Path(folder)
        options = {"max_tokens": retriever.max_tokens, "device": compute.device}
        documents = Tower(folder, **options)
        queries = Tower(folder / QUERIES, **options) if (folder / QUERIES).is_dir() else documents
        encoder = cls(documents, queries, retriever)
        encoder.numerics = encoder.fastest(retriever.dtype) if numerics is None else numerics
        return encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of documents in their template, (texts, dim) float32."""
        return self._embed(texts, False, self.numerics)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Queries' vectors, (texts, dim) float32."""
        return self._embed(texts, True, self.numerics)

    def embed_with_gradient(self, texts: Sequence[str], queries: bool = False) -> torch.Tensor:
        """Vectors (texts, dim) with gradients to the encoder's weights, for LSR."""
        kind = self.documents.model.config._attn_implementation
        if self.device == "cpu" and torch.is_autocast_enabled("cpu"):
            self._attend("eager")  # the fused backward pass is slow in bf16
        batches = list(self._batches(texts, queries))
        self._attend(kind)
        order = np.argsort(np.concatenate([rows for rows, _ in batches]))
        # index_select sums its gradient in a fixed order; advanced indexing does not
        vectors = torch.cat([vectors for _, vectors in batches])
        return vectors.index_select(0, torch.from_numpy(order).to(vectors.device))

    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights of both sides; a shared tower's weights are there once."""
        return [weight for tower in self._towers for weight in tower.model.parameters()]

    @property
    def facts(self) -> dict[str, str | int]:
        """The params, other than the weights, that documents' vectors depend on."""
        names = ("similarity", "pooling", "document", "max_tokens")
        return {name: getattr(self.settings, name) for name in names}

    def save(self, folder: Path) -> None:
        """Save a Hugging Face folder, with another query tower inside; else sentence-transformers can load it too."""
        for tower, place in zip(self._towers, (folder, folder / QUERIES), strict=False):
            tower.save(place)
        if len(self._towers) == 1:
            write_sentence_transformers_files(
                folder, self.settings, self.dim, self.documents.max_tokens
            )

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str], queries: bool, numerics: Numerics) -> np.ndarray:
        result = np.empty((len(texts), self.dim), np.float32)
        with _computing(numerics, self.documents.device):
            for start in range(0, len(texts), WINDOW):
                for rows, vectors in self._batches(texts[start : start + WINDOW], queries):
                    result[start + rows] = vectors.cpu().numpy()
                    progress.advance(len(rows), len(texts))
        return result

    def _batches(
        self, texts: Sequence[str], queries: bool
    ) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Rows of `texts` and their vectors, the longest texts first; at most `batch_tokens` tokens with padding."""
        at_once = self.settings.batch_tokens
        if self.device == "cpu" and not torch.is_grad_enabled():
            at_once = min(at_once, CACHED)
        elif self.device == "cpu" and not torch.is_autocast_enabled("cpu"):
            at_once = min(at_once, CACHED_WITH_GRADIENT)
        tower = self.queries if queries else self.documents
        tokens = tower.tokens(
            [self.settings.query_prefix + text for text in texts] if queries else texts
        )
        order = np.argsort(-tokens.lengths, kind="stable")
        start = 0
        while start < len(order):
            width = int(tokens.lengths[order[start]])
            rows = order[start : start + max(1, at_once // width)]
            vectors = POOLING[self.settings.pooling](
                *tower.hidden(*padded(tokens.take(rows), width, tower.pad))
            )
            yield rows, normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors
            start += len(rows)

    def fastest(self, dtype: str) -> Numerics:
        """The fastest numerics that `retriever.dtype` allows and that agree with exact fp32; says which do not."""
        limits = {}
        if dtype == "bf16" or (dtype == "auto" and has_bf16(self.documents.device)):
            limits[Numerics("bf16", "highest")] = CLOSE
        if self.documents.device == "cpu":
            limits[Numerics("fp32", "medium")] = CLOSER
        exact = self._of_sample(EXACT)
        for numerics, limit in limits.items():
            if (error := _difference(self._of_sample(numerics), exact)) < limit:
                return numerics
            print(
                f"retriever: {numerics.dtype} with matmul precision {numerics.matmul} is not used; its vectors are off "
                f"by 1 - cosine {error:.1e}, expected less than {limit:.0e}",
                flush=True,
            )
        return EXACT

    def _attend(self, kind: str) -> None:
        for tower in self._towers:
            if tower.model.config._attn_implementation != kind:
                tower.model.set_attn_implementation(kind)

    def _of_sample(self, numerics: Numerics) -> list[np.ndarray]:
        """The vectors of sample texts, by each tower."""
        words = np.array(sorted(self.documents.tokenizer.get_vocab()))
        draw = draws.generator(0, "encoder/sample")
        texts = [" ".join(draw.choice(words, n)) for n in SAMPLE]
        return [
            self._embed(texts, queries, numerics) for queries in (False, True)[: len(self._towers)]
        ]


def _difference(vectors: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The largest 1 - cosine; 1 where one is no number."""
    pairs = (
        map(torch.from_numpy, map(np.float64, pair)) for pair in zip(vectors, others, strict=True)
    )
    return max(
        float(torch.nan_to_num(1 - cosine_similarity(*pair), nan=1.0).max()) for pair in pairs
    )


def has_bf16(device: str) -> bool:
    """Whether the device multiplies bf16 in hardware, several times faster than fp32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


def write_sentence_transformers_files(
    folder: Path, settings: params.Retriever, width: int, max_tokens: int
) -> None:
    """Write pooling, length, prefixes and similarity, so that `SentenceTransformer(folder)` embeds as Encoder does.

    `width` is the length of a vector. The library has prefixes only: its caller joins title and text as the template.
    """
    modules = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
    ]  # old names, which every version of the library knows
    written = {
        POOLINGS[mode]: mode == settings.pooling for mode in ("cls", "mean", settings.pooling)
    }
    files = {"1_Pooling/config.json": {"word_embedding_dimension": width, **written}}
    if settings.similarity == "cosine":
        modules.append(("Normalize", "2_Normalize"))
    files |= {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": path,
                "type": f"sentence_transformers.models.{module}",
            }
            for i, (module, path) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": max_tokens, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {
                "query": settings.query_prefix,
                "document": settings.document.partition("{")[0],
            },
            "default_prompt_name": None,
            "similarity_fn_name": settings.similarity,
        },
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _computing(numerics: Numerics, device: str) -> Iterator[None]:
    """Compute with `numerics` inside the block only: torch's fp32 precision also applies to the language model."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(numerics.matmul)
    try:
        with torch.autocast(device, torch.bfloat16, enabled=numerics.dtype == "bf16"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


class Vectors:
    """An encoder with MLflow's interface: predictions are vectors of texts."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def predict(self, texts: Any, params: Mapping[str, Any] | None = None) -> np.ndarray:
        """Vectors (n, dim) float32 of a data frame's only column: documents in their template, or queries."""
        embed = (
            self._encoder.embed_queries if (params or {}).get("queries") else self._encoder.embed
        )
        return embed(texts.iloc[:, 0].tolist())


def _load_pyfunc(folder: str, settings: Mapping[str, Any]) -> Vectors:
    """The encoder in a folder, as MLflow loads it by this name; `settings` has the section `retriever`'s values."""
    compute = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
    return Vectors(Encoder.open(Path(folder), params.Retriever(**settings), compute))
