"""Train a small dual encoder as Contriever is trained: two crops of a document should find each
other.
"""

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
from pipelines.retrieval.encoder import mean_pool
from sample.make.sizes import RetrieverTraining

HEADS = 4  # attention heads
LEARNING_RATE = 0.002
TEMPERATURE = 0.05  # of the contrastive loss
TOKENS_DROPPED = 0.1  # share of a crop's tokens that is removed
SHORTEST_CROP = 0.2  # share of its document
LONGEST_CROP = 0.6  # share of its document


def train_retriever(
    texts: Sequence[str], tokenizer: Path, folder: Path, seed: int, settings: RetrieverTraining
) -> list[float]:
    """Train an encoder on `texts` by InfoNCE with in-batch negatives, and save it to `folder`.

    Returns each step's loss. Raises LongtailError for fewer than two texts.
    """
    hf_tokenizer = AutoTokenizer.from_pretrained(
        tokenizer, model_max_length=settings.max_tokens, trust_remote_code=False
    )
    encoded = encode(open_tokenizer(tokenizer), texts)
    tokens = Ragged.of([ids[: settings.max_tokens] for ids, _ in encoded if len(ids)])
    count = len(tokens.lengths)
    if count < 2:
        raise LongtailError(f"{count} texts, expected at least 2 to train a retriever on")

    model = make_model(hf_tokenizer, seed, settings)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    model.train()
    losses = []
    crops = _pairs_of_crops(tokens, settings.batch_size, draws.generator(seed, "retriever/crops"))
    steps = islice(crops, settings.steps)
    for query_crops, document_crops in tqdm(
        steps, total=settings.steps, desc="retriever", unit="step", mininterval=2
    ):
        queries = _embed(model, query_crops, hf_tokenizer.pad_token_id)
        documents = _embed(model, document_crops, hf_tokenizer.pad_token_id)
        loss = _contrastive_loss(queries, documents)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))

    model.eval().save_pretrained(folder)
    hf_tokenizer.save_pretrained(folder)
    return losses


def make_model(tokenizer, seed: int, settings: RetrieverTraining) -> BertModel:
    """An untrained encoder.

    Its word embeddings are large, so texts that share words are similar from the start.
    """
    torch.manual_seed(int(draws.generator(seed, "retriever/weights").integers(1 << 62)))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * settings.hidden_size,
        max_position_embeddings=settings.max_tokens,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertModel(config, add_pooling_layer=False)
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=0.5)
    return model


def _pairs_of_crops(
    tokens: Ragged, batch_size: int, generator: np.random.Generator
) -> Iterator[tuple[Ragged, Ragged]]:
    """Endless batches with two crops of each document.

    Documents come in a random order, and then in another one. What is left of an order and fills no
    batch is left out.
    """
    count = len(tokens.lengths)
    size = min(batch_size, count)
    order = np.empty(0, np.int64)
    while True:
        if len(order) < size:
            order = generator.permutation(count)
        rows = order[:size]
        order = order[size:]
        first = _crops(tokens, rows, generator)
        second = _crops(tokens, rows, generator)
        yield first, second


def _crops(tokens: Ragged, rows: np.ndarray, generator: np.random.Generator) -> Ragged:
    """A random stretch of each document, without a random tenth of its tokens.

    The first token always stays.
    """
    lengths = tokens.lengths[rows]
    shares = generator.uniform(SHORTEST_CROP, LONGEST_CROP, len(rows))
    crop_lengths = np.maximum(1, (lengths * shares).astype(np.int64))
    places = generator.random(len(rows))
    starts = ((lengths - crop_lengths + 1) * places).astype(np.int64)
    crops = tokens.take(rows).slice(starts, crop_lengths)

    stays = generator.random(len(crops.values)) >= TOKENS_DROPPED
    stays[crops.bounds[:-1]] = True
    n_before = np.concatenate([[0], np.cumsum(stays)])  # staying tokens before each token
    return Ragged(crops.values[stays], n_before[crops.bounds])


def _embed(model: BertModel, crops: Ragged, pad: int) -> torch.Tensor:
    tokens, real = padded(crops, int(crops.lengths.max()), pad)
    mask = torch.from_numpy(real.astype(np.int64))
    hidden = model(input_ids=torch.from_numpy(tokens), attention_mask=mask).last_hidden_state
    return normalize(mean_pool(hidden, mask), dim=-1)


def _contrastive_loss(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """InfoNCE in both directions: row i of either (n, dim) should be the most similar to row i."""
    similarities = queries @ documents.T / TEMPERATURE
    match = torch.arange(len(queries))
    return (cross_entropy(similarities, match) + cross_entropy(similarities.T, match)) / 2
