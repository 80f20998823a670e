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
    corpus: Path,
    corpora: Sequence[str],
    tokenizer: Path,
    out: Path,
    seed: int,
    retriever: params.Retriever,
    threads: int,
) -> stage.Metrics:
    """Train on the documents of the corpora in `corpus` that models learn from, save to `out`; see `tiny.train`.

    Raises LongtailError where a corpus isn't there, or no `retriever.training`.
    """
    import pyarrow.parquet as pq
    import torch

    from pipelines import checkpoint
    from pipelines.retrieval import contrastive, layout

    if retriever.training is None:
        raise LongtailError(
            "params.yaml: retriever.training is null, expected its settings where retriever.source is train"
        )
    files = training_files(corpus, corpora)
    torch.set_num_threads(threads)
    texts = [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    with shards.atomic(out) as folder:
        metrics = contrastive.train(texts, tokenizer, folder, seed, retriever.training, retriever.max_tokens, STAGE)
        layout.write(folder, retriever, retriever.training.hidden_size, retriever.max_tokens)
    checkpoint.forget(STAGE)
    return metrics


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save the encoder in a local folder, or of a Hub model at a pinned revision, to `out`; the queries' own with it.

    Raises LongtailError where `retriever.path` or a needed revision isn't set, or nothing can be loaded.
    """
    from pipelines.lm.pretrained import check_pinned
    from pipelines.retrieval.encoder import Encoder
    from pipelines.retrieval.tower import Tower

    sides = {"retriever.path": (retriever.path, retriever.revision)}
    if retriever.query_path:
        sides["retriever.query_path"] = (retriever.query_path, retriever.query_revision)
    for key, side in sides.items():
        check_pinned(key, *side)
    towers = [Tower(*side, max_tokens=retriever.max_tokens) for side in sides.values()]
    encoder = Encoder(towers[0], towers[-1], retriever)
    with shards.atomic(out) as folder:
        encoder.save(folder)
    return {"parameters": float(sum(weight.numel() for weight in encoder.parameters()))}


def work(chosen: SimpleNamespace) -> stage.Metrics:
    if chosen.retriever.source == "pretrained":
        return copy_pretrained(chosen.retriever, OUT)
    return train_on_corpora(
        CORPUS, chosen.parts.corpora, TOKENIZER, OUT, chosen.seed, chosen.retriever, chosen.compute.threads
    )


def main() -> None:
    stage.run(STAGE, ("seed", "compute", "retriever", "parts"), work, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
