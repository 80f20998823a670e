"""The dual encoder (REPLUG §3.1): the mean of the real tokens' last hidden states, for queries and documents alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.tokens import Ragged, padded

logging.disable_progress_bar()  # of loading weights, which takes no time


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the real tokens: hidden (n, tokens, dim), mask (n, tokens) of 0 and 1 -> (n, dim)."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


class Encoder:
    """Any BERT-like model in Hugging Face's layout. With `similarity` cosine its embeddings have length 1."""

    def __init__(
        self, folder: Path, *, similarity: str, batch_size: int, max_tokens: int, device: str = "cpu", threads: int = 1
    ) -> None:
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(f"{folder}: no config.json, expected an encoder in Hugging Face's layout")
        torch.set_num_threads(threads)
        try:
            config = AutoConfig.from_pretrained(folder)
            kind = AutoModel._model_mapping[type(config)]
            # a pooling head is never used, and made up at random where the folder has none
            extra = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(kind).parameters else {}
            if device == "cpu":
                extra["attn_implementation"] = "eager"  # fused attention has a slow backward pass there
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
            self.model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32, **extra)
        except (OSError, ValueError, KeyError) as error:
            raise LongtailError(f"{folder}: not an encoder in safetensors: {' '.join(str(error).split())}") from None
        self.model.eval().to(device)
        self.similarity, self.batch_size, self.device = similarity, batch_size, device
        positions = getattr(config, "max_position_embeddings", None) or max_tokens
        self.max_tokens = min(max_tokens, positions, self.tokenizer.model_max_length)
        self.dim = config.hidden_size

    @classmethod
    def open(cls, folder: Path, retriever: params.Retriever, compute: params.Compute) -> Encoder:
        return cls(
            folder,
            similarity=retriever.similarity,
            batch_size=retriever.batch_size,
            max_tokens=retriever.max_tokens,
            device=compute.device,
            threads=compute.threads,
        )

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, dim) float32; texts of like length share a batch."""
        result = np.empty((len(texts), self.dim), np.float32)
        for rows, vectors in self._batches(texts):
            result[rows] = vectors.float().cpu().numpy()
        return result

    def embed_with_gradient(self, texts: Sequence[str]) -> torch.Tensor:
        """(texts, dim), attached to the encoder's weights: what LSR trains through."""
        parts = list(self._batches(texts))
        back = torch.from_numpy(np.argsort(np.concatenate([rows for rows, _ in parts]))).to(self.device)
        # index_select's gradient is summed in one order; that of advanced indexing is not
        return torch.cat([vectors for _, vectors in parts]).index_select(0, back)

    def save(self, folder: Path) -> None:
        """A Hugging Face folder that AutoModel and AutoTokenizer load."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        if not len(texts):
            return
        encoded = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens, return_attention_mask=False)
        pad = self.tokenizer.pad_token_id or 0
        tokens = Ragged.of([ids or [pad] for ids in encoded["input_ids"]])  # no token at all has no mean
        order = np.argsort(-tokens.lengths, kind="stable")
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            batch = tokens.take(rows)
            ids, real = padded(batch, int(batch.lengths.max()), pad)
            mask = torch.from_numpy(real.astype(np.int64)).to(self.device)
            hidden = self.model(input_ids=torch.from_numpy(ids).to(self.device), attention_mask=mask).last_hidden_state
            vectors = mean_pool(hidden, mask)
            yield rows, normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors
