"""Stage `base_retriever`: an untuned dual encoder (REPLUG §3.1).

It is trained small on the corpora, or copied at a pinned revision. Training is Contriever's, in
which two crops of a document should find each other.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize
from tqdm import tqdm
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines import draws, methods
from pipelines.corpus import training_files
from pipelines.corpus.tokenizer import encode, open_tokenizer
from pipelines.errors import LongtailError
from pipelines.lm.model_files import check_pinned
from pipelines.lm.ragged import Ragged, padded
from pipelines.methods import Method
from pipelines.params import params
from pipelines.retrieval.encoder import Encoder, mean_pool
from pipelines.retrieval.modules import Modules, write_sentence_transformers_files
from pipelines.retrieval.retriever import RetrievalSettings
from pipelines.retrieval.tower import Tower
from pipelines.storage import checkpoint, parquet
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_key
from pipelines.work import code, stage
from pipelines.work import threads as torch_threads

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
METRICS = Path("data/metrics")
HEADS = 4  # attention heads
LEARNING_RATE = 0.002
TEMPERATURE = 0.05  # of the contrastive loss
TOKENS_DROPPED = 0.1  # share of a crop's tokens that is removed
SHORTEST_CROP = 0.2  # share of its document
LONGEST_CROP = 0.6  # share of its document


class Settings(RetrievalSettings):
    """The sections of params.yaml that this stage reads."""

    seed: int
    parts: params.Parts


def make_retriever(settings: Settings, name: str) -> stage.Metrics:
    """Train or copy the retriever of this name to data/models."""
    retriever = settings.retriever[name]
    out = methods.encoder_folder(Method("dense", name))
    if retriever.source == "pretrained":
        return copy_pretrained(retriever, out)
    files = training_files(CORPUS, settings.parts.corpora)
    return train_on_corpora(
        files,
        TOKENIZER,
        out,
        seed=settings.seed,
        retriever=retriever,
        threads=settings.compute.threads,
    )


def train_on_corpora(
    files: Sequence[Path],
    tokenizer: Path,
    out: Path,
    seed: int,
    retriever: params.Retriever,
    threads: int,
) -> stage.Metrics:
    """Train on the corpora's `files` by InfoNCE with in-batch negatives.

    Saves to `out`, which has the retriever's name. A killed training continues from its checkpoints
    to the same bytes. Raises LongtailError for fewer than two documents, or no settings.
    """
    training = retriever.training
    if training is None:
        problem = "is null, expected its settings where its source is train"
        raise LongtailError(f"params.yaml: retriever.{out.name}.training {problem}")

    torch_threads.use(threads)
    hf_tokenizer = AutoTokenizer.from_pretrained(
        tokenizer, model_max_length=retriever.max_tokens, trust_remote_code=False
    )
    tokens = _read_tokens(files, tokenizer, retriever.max_tokens)
    count = len(tokens.lengths)
    if count < 2:
        problem = f"{count} documents, expected at least 2 to train a retriever on"
        raise LongtailError(f"data/corpus: {problem}")

    model = make_model(hf_tokenizer, seed, training, retriever.max_tokens)
    weights = list(model.parameters())
    optimiser = torch.optim.AdamW(weights, lr=LEARNING_RATE)
    arrays = [weight.detach().numpy() for weight in weights]
    inputs = checkpoint.digest([*arrays, tokens.values, tokens.bounds])
    name = f"base_retriever@{out.name}"
    fingerprint = code.fingerprint("pipelines.retrieval.base_retriever")
    key = content_key((seed, training, inputs), fingerprint)
    checkpoints = checkpoint.Checkpoints(name, key)
    losses = checkpoints.load(weights, optimiser).get("losses", [])

    done = len(losses)
    model.train()
    crops = _pairs_of_crops(tokens, training.batch_size, draws.generator(seed, "retriever/crops"))
    bar = partial(tqdm, desc="retriever", unit="step", mininterval=2)
    steps = islice(crops, done, training.steps)
    for query_crops, document_crops in bar(steps, total=training.steps, initial=done):
        queries = _embed(model, query_crops, hf_tokenizer.pad_token_id)
        documents = _embed(model, document_crops, hf_tokenizer.pad_token_id)
        loss = _contrastive_loss(queries, documents)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if checkpoints.due():
            checkpoints.save({"step": len(losses), "losses": losses}, weights, optimiser)

    with atomic(out) as folder:
        model.eval().save_pretrained(folder)
        hf_tokenizer.save_pretrained(folder)
        write_sentence_transformers_files(
            folder, retriever, width=training.hidden_size, max_tokens=retriever.max_tokens
        )
    WorkStore().forget(name)
    last_loss = float(np.mean(losses[-10:]))
    return {"loss": last_loss, "documents": float(count), "loss_curve": losses}


def _read_tokens(files: Sequence[Path], tokenizer: Path, max_tokens: int) -> Ragged:
    """The first tokens of each text that has any."""
    texts = []
    for file in files:
        texts += parquet.read_parquet(file, columns=["text"])["text"].to_pylist()
    encoded = encode(open_tokenizer(tokenizer), texts)
    first_tokens = [ids[:max_tokens] for ids, _ in encoded if len(ids)]
    return Ragged.of(first_tokens)


def make_model(
    tokenizer, seed: int, training: params.RetrieverTraining, max_tokens: int
) -> BertModel:
    """An untrained encoder.

    Its word embeddings are large, so texts that share words are similar from the start.
    """
    torch.manual_seed(int(draws.generator(seed, "retriever/weights").integers(1 << 62)))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=training.hidden_size,
        num_hidden_layers=training.layers,
        num_attention_heads=HEADS,
        intermediate_size=2 * training.hidden_size,
        max_position_embeddings=max_tokens,
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


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save to `out`, a folder with the retriever's name, the encoder that params.yaml names.

    It is read from `path`, and its query tower from `query_path`, if that is set. Raises
    LongtailError if `path` or a Hub model's revision isn't set, or nothing can be loaded.
    """
    section = f"retriever.{out.name}"
    check_pinned(f"{section}.path", retriever.path, retriever.revision)
    if retriever.query_path:
        check_pinned(f"{section}.query_path", retriever.query_path, retriever.query_revision)
    assert retriever.path is not None, "check_pinned raises"

    open_tower = partial(Tower, max_tokens=retriever.max_tokens)
    documents = open_tower(retriever.path, retriever.revision)
    _check_modules(retriever, documents.modules, section, retriever.path)
    queries = documents
    if retriever.query_path:
        queries = open_tower(retriever.query_path, retriever.query_revision)
        _check_modules(retriever, queries.modules, section, retriever.query_path)

    encoder = Encoder(documents, queries, retriever)
    with atomic(out) as folder:
        encoder.save(folder)
    parameters = sum(weight.numel() for weight in encoder.parameters())
    return {"parameters": float(parameters)}


def _check_modules(retriever: params.Retriever, modules: Modules, section: str, path: str) -> None:
    """Raise LongtailError where pooling or similarity differ from what the folder at `path` says.

    Prints which of the encoder's prompts are not used.
    """
    similarity = "cosine" if modules.normalized else None
    for key, needed in (("pooling", modules.pooling), ("similarity", similarity)):
        value = getattr(retriever, key)
        if needed not in (None, value):
            difference = f"{section}.{key} is {value}, and {path} has {needed}"
            raise LongtailError(f"params.yaml: {difference}; set {key}: {needed}")

    prompts = {"query_prefix": modules.query, "document": modules.document}
    for key, prompt in prompts.items():
        beginning = getattr(retriever, key).partition("{")[0]
        if prompt not in (None, beginning):
            problem = f"begins with {beginning!r}, not with the encoder's prompt {prompt!r}"
            print(f"warning: {section}.{key} {problem}", flush=True)


def main() -> None:
    name = stage.arguments(__doc__, retriever="one of params.yaml's retrievers").retriever

    def work(settings: Settings) -> stage.Metrics:
        return make_retriever(settings, name)

    out = methods.encoder_folder(Method("dense", name))
    metrics = METRICS / f"base_retriever_{name}.json"
    stage.run(f"base_retriever@{name}", Settings, work, out=str(out), metrics=metrics)


if __name__ == "__main__":
    main()
