"""Stage `base_reranker`: a pinned cross-encoder, and a retriever whose best documents it puts into another order.

A cross-encoder reads a query and a document together (Nogueira and Cho 2019). So it sees more than two vectors do, but
embeds nothing in advance, and is asked about a retriever's best documents only.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from pipelines import methods, progress
from pipelines.errors import LongtailError
from pipelines.lm.model_files import load_pretrained, load_tokenizer, save_pretrained
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.documents import Found, Retriever
from pipelines.retrieval.tower import max_positions
from pipelines.work import stage, threads

WINDOW = 8192  # pairs tokenised and sorted by length at once
DECIMALS = 5  # scores are rounded, so that equal documents tie although they are in other batches


class CrossEncoder:
    """A model that scores a query and a document, read together: by its logit, or the second of two less the first."""

    def __init__(self, folder: Path, settings: params.Reranker, compute: params.Compute) -> None:
        """Open the model that the stage wrote. Raises LongtailError if it is not there."""
        if not (folder / "config.json").is_file():
            raise LongtailError(f"{folder}: no cross-encoder; run the stage `base_reranker`")
        threads.use(compute.threads)
        self._tokenizer = load_tokenizer(folder)
        model, _ = load_pretrained(
            AutoModelForSequenceClassification, folder, None, dtype=torch.float32
        )
        self._model, self._device = model.eval().to(compute.device), compute.device
        self._batch_tokens = settings.batch_tokens
        positions = max_positions(model.base_model, settings.max_tokens)
        self._max_tokens = min(settings.max_tokens, positions, self._tokenizer.model_max_length)

    def scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """The score of each query with the text at the same place, (pairs,) float32.

        The longer of the two is cut first, a token at a time, to `max_tokens` together.
        """
        scores = np.empty(len(texts), np.float32)
        for start in range(0, len(texts), WINDOW):
            stop = start + WINDOW
            for rows, logits in self._batches(list(queries[start:stop]), list(texts[start:stop])):
                scores[start + rows] = (
                    logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
                )
                progress.advance(len(rows), len(texts))
        return np.round(scores, DECIMALS)

    def _batches(self, queries: list[str], texts: list[str]):
        """Yield rows of the pairs and their logits, the longest pairs first; at most `batch_tokens` with padding."""
        encoded = self._tokenizer(queries, texts, truncation=True, max_length=self._max_tokens)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        order, start = np.argsort(-lengths, kind="stable"), 0
        while start < len(order):
            rows = order[start : start + max(1, self._batch_tokens // int(lengths[order[start]]))]
            chosen = {
                name: [column[row] for row in rows.tolist()] for name, column in encoded.items()
            }
            batch = self._tokenizer.pad(chosen, padding_side="right", return_tensors="pt").to(
                self._device
            )
            with torch.inference_mode():
                logits = self._model(**batch).logits
            yield rows, logits.float().cpu().numpy()
            start += len(rows)


def rerank(
    encoder: CrossEncoder, queries: Sequence[str], docs: Path, positions: np.ndarray, template: str
) -> Found:
    """Each query's `positions` (queries, n) in the order of the cross-encoder's scores, and these; ties by position.

    It reads documents in the retriever's `template`. A position of -1, for none, stays last, with the score -inf.
    """
    texts = documents.read_documents(docs, positions).filled(template)
    scores = encoder.scores(np.repeat(np.array(queries, object), positions.shape[1]), texts.ravel())
    scores = np.where(positions >= 0, scores.reshape(positions.shape), -np.inf).astype(np.float32)
    order = np.lexsort((positions, -scores), axis=1)
    return np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1)


class Reranked:
    """A retriever with its `candidates` best documents in a cross-encoder's order; implements Retriever."""

    def __init__(
        self,
        retriever: Retriever,
        encoder: CrossEncoder,
        docs: Path,
        template: str,
        candidates: int,
    ) -> None:
        self.count, self._retriever, self._encoder = retriever.count, retriever, encoder
        self._docs, self._template, self._candidates = docs, template, candidates

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> Found:
        """See Retriever.search; the score is the cross-encoder's. At least k documents are read."""
        positions, _ = self._retriever.search(texts, max(k, self._candidates), without)
        positions, scores = rerank(self._encoder, texts, self._docs, positions, self._template)
        return positions[:, :k], scores[:, :k]


def work(chosen: SimpleNamespace) -> stage.Metrics:
    """Save the cross-encoder at `reranker.path`. Raises LongtailError unless it gives one or two logits."""
    settings, out = chosen.reranker, Path("data") / methods.RERANKER
    figures = save_pretrained(
        AutoModelForSequenceClassification, "reranker", settings.path, settings.revision, out
    )
    if (labels := AutoConfig.from_pretrained(out, trust_remote_code=False).num_labels) > 2:
        raise LongtailError(
            f"{settings.path}: gives {labels} logits, expected a cross-encoder with one or two"
        )
    return figures


if __name__ == "__main__":
    out = Path("data") / methods.RERANKER
    stage.run(f"base_reranker@{out.name}", ("reranker",), work, out=str(out))
