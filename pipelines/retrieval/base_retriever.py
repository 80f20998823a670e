"""Stage `base_retriever`: the untuned dual encoder, trained small on the corpora or taken at a pinned revision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from pipelines import params, shards, stage
from pipelines.corpus import training_files
from pipelines.errors import LongtailError

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
OUT = Path("data/models/retriever")
STAGE = "base_retriever"
METRICS = Path("data/metrics/base_retriever.json")


def train_on_corpora(
    files: Sequence[Path], tokenizer: Path, out: Path, seed: int, retriever: params.Retriever, threads: int
) -> stage.Metrics:
    """Train on the corpora's `files` and save to `out`. LongtailError for fewer than two documents, or no settings."""
    import pyarrow.parquet as pq
    import torch

    from pipelines import checkpoint
    from pipelines.retrieval import contrastive_training
    from pipelines.retrieval.encoder import write_sentence_transformers_files

    if retriever.training is None:
        raise LongtailError(
            "params.yaml: retriever.training is null, expected its settings where retriever.source is train"
        )
    torch.set_num_threads(threads)
    texts = [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    with shards.atomic(out) as folder:
        metrics = contrastive_training.train(texts, tokenizer, folder, seed, retriever, STAGE)
        write_sentence_transformers_files(folder, retriever, retriever.training.hidden_size, retriever.max_tokens)
    checkpoint.forget(STAGE)
    return metrics


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save to `out` the encoder at `retriever.path`, and the one at `query_path` where there is one.

    Raises LongtailError if `retriever.path` or a Hub model's revision isn't set, or nothing can be loaded.
    """
    from pipelines.lm.model_files import check_pinned, write_source
    from pipelines.retrieval.encoder import QUERIES, Encoder
    from pipelines.retrieval.tower import Tower

    sources = {"retriever.path": (retriever.path, retriever.revision)}
    if retriever.query_path:
        sources["retriever.query_path"] = (retriever.query_path, retriever.query_revision)
    for key, (path, revision) in sources.items():
        check_pinned(key, path, revision)
    towers = [Tower(*source, max_tokens=retriever.max_tokens) for source in sources.values()]
    encoder = Encoder(towers[0], towers[-1], retriever)
    with shards.atomic(out) as folder:
        encoder.save(folder)
        for side, source in zip((folder, folder / QUERIES), sources.values(), strict=False):
            write_source(side, *source)
    return {"parameters": float(sum(weight.numel() for weight in encoder.parameters()))}


def work(params: SimpleNamespace) -> stage.Metrics:
    if params.retriever.source == "pretrained":
        return copy_pretrained(params.retriever, OUT)
    files = training_files(CORPUS, params.parts.corpora)
    return train_on_corpora(files, TOKENIZER, OUT, params.seed, params.retriever, params.compute.threads)


def main() -> None:
    stage.run(STAGE, ("seed", "compute", "retriever", "parts"), work, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
