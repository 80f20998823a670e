"""A small dual encoder trained from scratch in seconds: two crops of a document are each other's match (Contriever)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize
from tqdm import tqdm
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines import code, draws, params
from pipelines.checkpoint import Checkpoints, digest
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.ragged import Ragged, padded
from pipelines.retrieval.encoder import mean_pool

DROPPED = 0.1  # of a crop's tokens
SHORTEST, LONGEST = 0.2, 0.6  # of a document, that a crop may be


def train(
    texts: Sequence[str],
    tokenizer: Path,
    folder: Path,
    seed: int,
    settings: params.RetrieverTraining,
    max_tokens: int,
    stage: str,
) -> dict[str, float | list[float]]:
    """Train on the documents' texts by InfoNCE, the other documents of a batch as negatives; save to `folder`.

    Hugging Face's layout; embeddings are the mean of the last hidden states, compared by their cosine. The same
    arguments, machine and number of threads give the same bytes; so does going on from the checkpoints of `stage` that
    a killed training left. Raises LongtailError for fewer than two documents.
    """
    saved = AutoTokenizer.from_pretrained(tokenizer, model_max_length=max_tokens)
    ids = Ragged.of([ids[:max_tokens] for ids, _ in encode(open_tokenizer(tokenizer), texts) if len(ids)])
    if len(ids.lengths) < 2:
        raise LongtailError(f"data/corpus: {len(ids.lengths)} documents, expected at least 2 to train a retriever on")
    model = make_model(saved, seed, settings, max_tokens)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    learnt = list(model.parameters())
    seen = digest([*(weight.detach().numpy() for weight in learnt), ids.values, ids.bounds])
    kept = Checkpoints(stage, seed, settings, seen, code.fingerprint("pipelines.retrieval.contrastive"))
    losses = kept.load(learnt, optimiser).get("losses", [])
    done = len(losses)
    model.train()
    pairs = islice(_pairs(ids, settings.batch_size, draws.generator(seed, "retriever/crops")), done, settings.steps)
    for pair in tqdm(pairs, total=settings.steps, initial=done, desc="retriever", unit="step", mininterval=2):
        left, right = (_embed(model, crops, saved.pad_token_id) for crops in pair)
        own, scores = torch.arange(len(left)), left @ right.T / settings.temperature
        loss = (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if kept.due():
            kept.save({"step": len(losses), "losses": losses}, learnt, optimiser)
    model.eval().save_pretrained(folder)
    saved.save_pretrained(folder)
    return {"loss": float(np.mean(losses[-10:])), "documents": float(len(ids.lengths)), "loss_curve": losses}


def make_model(tokenizer, seed: int, settings: params.RetrieverTraining, max_tokens: int) -> BertModel:
    """An untrained encoder whose word embeddings are large, so that from the start texts are near that share words."""
    torch.manual_seed(int(draws.generator(seed, "retriever/weights").integers(1 << 62)))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=2 * settings.hidden_size,
        max_position_embeddings=max_tokens,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertModel(config, add_pooling_layer=False)
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=0.5)
    return model


def _pairs(ids: Ragged, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[Ragged, Ragged]]:
    """Endlessly, two crops of each document of a batch; every document once before any again."""
    size, order = min(batch_size, len(ids.lengths)), np.empty(0, np.int64)
    while True:
        if len(order) < size:
            order = rng.permutation(len(ids.lengths))
        rows, order = order[:size], order[size:]
        yield _crops(ids, rows, rng), _crops(ids, rows, rng)


def _crops(ids: Ragged, rows: np.ndarray, rng: np.random.Generator) -> Ragged:
    """A random stretch of each document, less a random tenth of its tokens but never all."""
    lengths = ids.lengths[rows]
    kept = np.maximum(1, (lengths * rng.uniform(SHORTEST, LONGEST, len(rows))).astype(np.int64))
    crops = ids.slice(rows, ((lengths - kept + 1) * rng.random(len(rows))).astype(np.int64), kept)
    stays = rng.random(len(crops.values)) >= DROPPED
    stays[crops.bounds[:-1]] = True
    return Ragged(crops.values[stays], np.concatenate([[0], np.cumsum(stays)])[crops.bounds])


def _embed(model: BertModel, crops: Ragged, pad: int) -> torch.Tensor:
    tokens, real = padded(crops, int(crops.lengths.max()), pad)
    mask = torch.from_numpy(real.astype(np.int64))
    hidden = model(input_ids=torch.from_numpy(tokens), attention_mask=mask).last_hidden_state
    return normalize(mean_pool(hidden, mask), dim=-1)
