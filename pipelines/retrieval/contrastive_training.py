"""Training a small dual encoder from scratch: two crops of a document should find each other (Contriever)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize
from tqdm import tqdm
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines import draws
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.ragged import Ragged, padded
from pipelines.params import params
from pipelines.retrieval.encoder import mean_pool
from pipelines.storage.checkpoint import Checkpoints, digest
from pipelines.work import code

HEADS = 4  # attention heads
LEARNING_RATE = 0.002
TEMPERATURE = 0.05  # of the contrastive loss
DROPPED = 0.1  # share of a crop's tokens that is removed
SHORTEST, LONGEST = 0.2, 0.6  # length of a crop, as a share of its document


def train_encoder(
    texts: Sequence[str], tokenizer: Path, folder: Path, seed: int, retriever: params.Retriever, stage: str
) -> dict[str, float | list[float]]:
    """Train on documents' texts by InfoNCE with in-batch negatives; save to `folder` in Hugging Face's layout.

    The same arguments, machine and number of threads give the same bytes, also if a killed training continues from the
    checkpoints of `stage`. Raises LongtailError for fewer than two documents.
    """
    settings, max_tokens = retriever.training, retriever.max_tokens
    hf_tokenizer = AutoTokenizer.from_pretrained(tokenizer, model_max_length=max_tokens, trust_remote_code=False)
    tokens = Ragged.of([ids[:max_tokens] for ids, _ in encode(open_tokenizer(tokenizer), texts) if len(ids)])
    count = len(tokens.lengths)
    if count < 2:
        raise LongtailError(f"data/corpus: {count} documents, expected at least 2 to train a retriever on")
    model = make_model(hf_tokenizer, seed, settings, max_tokens)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    weights = list(model.parameters())
    inputs = digest([*(weight.detach().numpy() for weight in weights), tokens.values, tokens.bounds])
    checkpoints = Checkpoints(stage, seed, settings, inputs, code.fingerprint(__name__))
    losses = checkpoints.load(weights, optimiser).get("losses", [])
    done = len(losses)
    model.train()
    crops = _pairs_of_crops(tokens, settings.batch_size, draws.generator(seed, "retriever/crops"))
    steps = islice(crops, done, settings.steps)
    for pair in tqdm(steps, total=settings.steps, initial=done, desc="retriever", unit="step", mininterval=2):
        queries, documents = (_embed(model, side, hf_tokenizer.pad_token_id) for side in pair)
        scores, match = queries @ documents.T / TEMPERATURE, torch.arange(len(queries))
        loss = (cross_entropy(scores, match) + cross_entropy(scores.T, match)) / 2
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if checkpoints.due():
            checkpoints.save({"step": len(losses), "losses": losses}, weights, optimiser)
    model.eval().save_pretrained(folder)
    hf_tokenizer.save_pretrained(folder)
    return {"loss": float(np.mean(losses[-10:])), "documents": float(count), "loss_curve": losses}


def make_model(tokenizer, seed: int, settings: params.RetrieverTraining, max_tokens: int) -> BertModel:
    """An untrained encoder. Its word embeddings are large, so texts that share words are similar from the start."""
    torch.manual_seed(int(draws.generator(seed, "retriever/weights").integers(1 << 62)))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * settings.hidden_size,
        max_position_embeddings=max_tokens,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertModel(config, add_pooling_layer=False)
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=0.5)
    return model


def _pairs_of_crops(tokens: Ragged, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[Ragged, Ragged]]:
    """Endless batches with two crops of each document; no document comes again before all others came."""
    size, order = min(batch_size, len(tokens.lengths)), np.empty(0, np.int64)
    while True:
        if len(order) < size:
            order = rng.permutation(len(tokens.lengths))
        rows, order = order[:size], order[size:]
        yield _crops(tokens, rows, rng), _crops(tokens, rows, rng)


def _crops(tokens: Ragged, rows: np.ndarray, rng: np.random.Generator) -> Ragged:
    """A random stretch of each document, without a random tenth of its tokens; the first token always stays."""
    lengths = tokens.lengths[rows]
    crop_lengths = np.maximum(1, (lengths * rng.uniform(SHORTEST, LONGEST, len(rows))).astype(np.int64))
    starts = ((lengths - crop_lengths + 1) * rng.random(len(rows))).astype(np.int64)
    crops = tokens.slice(rows, starts, crop_lengths)
    stays = rng.random(len(crops.values)) >= DROPPED
    stays[crops.bounds[:-1]] = True
    return Ragged(crops.values[stays], np.concatenate([[0], np.cumsum(stays)])[crops.bounds])


def _embed(model: BertModel, crops: Ragged, pad: int) -> torch.Tensor:
    tokens, real = padded(crops, int(crops.lengths.max()), pad)
    mask = torch.from_numpy(real.astype(np.int64))
    hidden = model(input_ids=torch.from_numpy(tokens), attention_mask=mask).last_hidden_state
    return normalize(mean_pool(hidden, mask), dim=-1)
