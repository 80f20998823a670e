"""A cross-encoder, and a retriever whose best documents it reorders.

A cross-encoder reads a query and a document together (Nogueira and Cho 2019). So it sees more than
two vectors do. But it embeds nothing in advance, and reads a retriever's best documents only.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from pipelines import progress
from pipelines.errors import LongtailError
from pipelines.lm.model_files import load_pretrained, load_tokenizer
from pipelines.lm.ragged import longest_first
from pipelines.params import params
from pipelines.retrieval import documents, token_limits
from pipelines.retrieval.documents import Found, Retriever, Sources
from pipelines.retrieval.tower import WINDOW, max_positions
from pipelines.work import threads

SCORE_DECIMALS = 5  # so that equal documents tie although they are in other batches


class CrossEncoder:
    """A model that scores a query and a document, read together.

    The score is the model's logit, or the second of two logits less the first.
    """

    def __init__(self, folder: Path, settings: params.Reranker, compute: params.Compute) -> None:
        """Open the model that the stage wrote. Raises LongtailError if it is not there."""
        if not (folder / "config.json").is_file():
            raise LongtailError(f"{folder}: no cross-encoder; run the stage `base_reranker`")
        threads.use(compute.threads)
        self._tokenizer = load_tokenizer(folder)
        model, _ = load_pretrained(
            AutoModelForSequenceClassification, folder, None, dtype=torch.float32
        )
        self._model = model.eval().to(compute.device)
        self._device = compute.device
        self._batch_tokens = token_limits.tokens_in_pass(
            [self._model], self._device, settings.batch_tokens
        )
        positions = max_positions(model.base_model, settings.max_tokens)
        self._max_tokens = min(settings.max_tokens, positions, self._tokenizer.model_max_length)

    def scores(
        self, queries: Sequence[str] | np.ndarray, texts: Sequence[str] | np.ndarray
    ) -> np.ndarray:
        """The score of each query with the text at the same place, (pairs,) float32.

        The longer of the two is cut first, a token at a time, to `max_tokens` together.
        """
        scores = np.empty(len(texts), np.float32)
        for start in range(0, len(texts), WINDOW):
            window = slice(start, start + WINDOW)
            for rows, logits in self._batches(list(queries[window]), list(texts[window])):
                score = logits[:, 0]
                if logits.shape[1] == 2:
                    score = logits[:, 1] - logits[:, 0]
                scores[start + rows] = score
                progress.advance(len(rows), len(texts))
        return np.round(scores, SCORE_DECIMALS)

    def _batches(
        self, queries: list[str], texts: list[str]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows of the pairs and their logits, the longest pairs first.

        A batch has at most `batch_tokens` tokens, padding included.
        """
        encoded = self._tokenizer(queries, texts, truncation=True, max_length=self._max_tokens)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        for rows in longest_first(lengths, self._batch_tokens):
            batch = {}
            for name, column in encoded.items():
                batch[name] = [column[row] for row in rows.tolist()]
            padded = self._tokenizer.pad(batch, padding_side="right", return_tensors="pt")
            with torch.inference_mode():
                logits = self._model(**padded.to(self._device)).logits
            yield rows, logits.float().cpu().numpy()


def rerank(
    encoder: CrossEncoder, queries: Sequence[str], docs: Path, positions: np.ndarray, template: str
) -> Found:
    """Each query's `positions` (queries, n) in the order of the cross-encoder's scores, and these.

    The cross-encoder reads documents in the retriever's `template`. Ties are ordered by position. A
    position of -1, for no document, stays last, with the score -inf.
    """
    texts = documents.read_documents(docs, positions).filled(template)
    repeated = np.repeat(np.array(queries, object), positions.shape[1])
    scores = encoder.scores(repeated, texts.ravel()).reshape(positions.shape)
    scores[positions < 0] = -np.inf
    order = np.lexsort((positions, -scores), axis=1)
    return np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1)


class Reranked:
    """A retriever with its `candidates` best documents in a cross-encoder's order.

    Implements Retriever.
    """

    def __init__(
        self,
        retriever: Retriever,
        encoder: CrossEncoder,
        docs: Path,
        template: str,
        candidates: int,
    ) -> None:
        self.count = retriever.count
        self._retriever = retriever
        self._encoder = encoder
        self._docs = docs
        self._template = template
        self._candidates = candidates

    def search(self, texts: Sequence[str], k: int, without: Sources = None) -> Found:
        """See Retriever.search; the score is the cross-encoder's. At least k documents are read."""
        depth = max(k, self._candidates)
        positions, _ = self._retriever.search(texts, depth, without)
        positions, scores = rerank(self._encoder, texts, self._docs, positions, self._template)
        return positions[:, :k], scores[:, :k]
