"""Stage `base_retriever`: an untuned dual encoder, trained small on the corpora or taken at a pinned revision.

Training is Contriever's, in which two crops of a document should find each other.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

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
from pipelines.params import params
from pipelines.retrieval.encoder import Encoder, mean_pool, write_sentence_transformers_files
from pipelines.retrieval.modules import Modules
from pipelines.retrieval.tower import Tower
from pipelines.storage import checkpoint, parquet
from pipelines.storage.atomic import atomic
from pipelines.work import code, stage
from pipelines.work import threads as torch_threads

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
METRICS = Path("data/metrics")
HEADS = 4  # attention heads
LEARNING_RATE = 0.002
TEMPERATURE = 0.05  # of the contrastive loss
DROPPED = 0.1  # share of a crop's tokens that is removed
SHORTEST, LONGEST = 0.2, 0.6  # length of a crop, as a share of its document


def train_on_corpora(
    files: Sequence[Path],
    tokenizer: Path,
    out: Path,
    seed: int,
    retriever: params.Retriever,
    threads: int,
) -> stage.Metrics:
    """Train on the corpora's `files` by InfoNCE with in-batch negatives; save to `out`, which has the retriever's name.

    A killed training continues from its checkpoints to the same bytes. Raises LongtailError for fewer than two
    documents, or no settings.
    """
    settings, max_tokens, name = (
        retriever.training,
        retriever.max_tokens,
        f"base_retriever@{out.name}",
    )
    if settings is None:
        raise LongtailError(
            f"params.yaml: retriever.{out.name}.training is null, expected its settings where its source is train"
        )
    torch_threads.use(threads)
    texts = [
        text
        for file in files
        for text in parquet.read_parquet(file, columns=["text"])["text"].to_pylist()
    ]
    hf_tokenizer = AutoTokenizer.from_pretrained(
        tokenizer, model_max_length=max_tokens, trust_remote_code=False
    )
    tokens = Ragged.of(
        [ids[:max_tokens] for ids, _ in encode(open_tokenizer(tokenizer), texts) if len(ids)]
    )
    count = len(tokens.lengths)
    if count < 2:
        raise LongtailError(
            f"data/corpus: {count} documents, expected at least 2 to train a retriever on"
        )
    model = make_model(hf_tokenizer, seed, settings, max_tokens)
    weights = list(model.parameters())
    optimiser = torch.optim.AdamW(weights, lr=LEARNING_RATE)
    inputs = checkpoint.digest(
        [*(weight.detach().numpy() for weight in weights), tokens.values, tokens.bounds]
    )
    fingerprint = code.fingerprint("pipelines.retrieval.base_retriever")
    checkpoints = checkpoint.Checkpoints(name, seed, settings, inputs, fingerprint)
    losses = checkpoints.load(weights, optimiser).get("losses", [])
    done = len(losses)
    model.train()
    crops = _pairs_of_crops(tokens, settings.batch_size, draws.generator(seed, "retriever/crops"))
    steps = islice(crops, done, settings.steps)
    for pair in tqdm(
        steps, total=settings.steps, initial=done, desc="retriever", unit="step", mininterval=2
    ):
        queries, documents = (_embed(model, side, hf_tokenizer.pad_token_id) for side in pair)
        scores, match = queries @ documents.T / TEMPERATURE, torch.arange(len(queries))
        loss = (cross_entropy(scores, match) + cross_entropy(scores.T, match)) / 2
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if checkpoints.due():
            checkpoints.save({"step": len(losses), "losses": losses}, weights, optimiser)
    with atomic(out) as folder:
        model.eval().save_pretrained(folder)
        hf_tokenizer.save_pretrained(folder)
        write_sentence_transformers_files(folder, retriever, settings.hidden_size, max_tokens)
    checkpoint.forget_checkpoints(name)
    return {"loss": float(np.mean(losses[-10:])), "documents": float(count), "loss_curve": losses}


def make_model(
    tokenizer, seed: int, settings: params.RetrieverTraining, max_tokens: int
) -> BertModel:
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


def _pairs_of_crops(
    tokens: Ragged, batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[Ragged, Ragged]]:
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
    crop_lengths = np.maximum(
        1, (lengths * rng.uniform(SHORTEST, LONGEST, len(rows))).astype(np.int64)
    )
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


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save to `out`, a folder with the retriever's name, the encoder at `path`, and the one at `query_path` if any.

    Raises LongtailError if `path` or a Hub model's revision isn't set, or nothing can be loaded.
    """
    sources = {f"retriever.{out.name}.path": (retriever.path, retriever.revision)}
    if retriever.query_path:
        sources[f"retriever.{out.name}.query_path"] = (
            retriever.query_path,
            retriever.query_revision,
        )
    for key, (path, revision) in sources.items():
        check_pinned(key, path, revision)
    towers = [Tower(*source, max_tokens=retriever.max_tokens) for source in sources.values()]
    for tower in towers:
        _compare(retriever, tower.modules, f"retriever.{out.name}")
    encoder = Encoder(towers[0], towers[-1], retriever)
    with atomic(out) as folder:
        encoder.save(folder)
    return {"parameters": float(sum(weight.numel() for weight in encoder.parameters()))}


def _compare(retriever: params.Retriever, said: Modules, section: str) -> None:
    """Raise LongtailError for other settings than the encoder's folder needs; print which prompts are not used."""
    for key, needed in {
        "pooling": said.pooling,
        "similarity": "cosine" if said.normalized else None,
    }.items():
        if needed not in (None, is_ := getattr(retriever, key)):
            raise LongtailError(
                f"params.yaml: {section}.{key} is {is_}, and {retriever.path} has {needed}; set {key}: {needed}"
            )
    prompts = {"query_prefix": said.query, "document": said.document}
    for key, prompt in prompts.items():
        used = getattr(retriever, key).partition("{")[0]
        if prompt not in (None, used):
            line = f"{section}.{key} begins with {used!r}, not with the encoder's prompt {prompt!r}"
            print(f"warning: {line}", flush=True)


def work(params: SimpleNamespace, name: str) -> stage.Metrics:
    retriever, out = params.retriever[name], methods.encoder("dense", name)
    if retriever.source == "pretrained":
        return copy_pretrained(retriever, out)
    files = training_files(CORPUS, params.parts.corpora)
    return train_on_corpora(files, TOKENIZER, out, params.seed, retriever, params.compute.threads)


if __name__ == "__main__":
    name = stage.arguments(__doc__, retriever="one of params.yaml's retrievers").retriever
    stage.run(
        f"base_retriever@{name}",
        ("seed", "compute", "retriever", "parts"),
        lambda params: work(params, name),
        out=str(methods.encoder("dense", name)),
        metrics=METRICS / f"base_retriever_{name}.json",
    )
