"""Stage `base_retriever`: the untuned dual encoder, trained small on the corpora or taken at a pinned revision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pipelines import params, shards, stage
from pipelines.errors import LongtailError

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
OUT = Path("data/models/retriever")
METRICS = Path("data/metrics/base_retriever.json")


def train_on_corpora(
    corpus: Path, tokenizer: Path, out: Path, seed: int, retriever: params.Retriever, threads: int
) -> stage.Metrics:
    """Train on the documents of every <name>/docs.parquet in `corpus`, save to the folder `out`; see `tiny.train`.

    Raises LongtailError where there are no documents, or no `retriever.training`.
    """
    import pyarrow.parquet as pq
    import torch

    from pipelines.retrieval import tiny

    if retriever.training is None:
        raise LongtailError(
            "params.yaml: retriever.training is null, expected its settings where retriever.source is train"
        )
    files = sorted(corpus.glob("*/docs.parquet"))
    if not files:
        raise LongtailError(f"{corpus}: no */docs.parquet, expected at least one corpus; run the stage `chunk`")
    torch.set_num_threads(threads)
    texts = [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    with shards.atomic(out) as folder:
        return tiny.train(texts, tokenizer, folder, seed, retriever.training, retriever.max_tokens)


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save the encoder in a local folder, or of a Hub model at a pinned revision, to `out`.

    Raises LongtailError where `retriever.path` or a needed `retriever.revision` isn't set, or nothing can be loaded.
    """
    from transformers import AutoModel

    from pipelines.lm.pretrained import save_pretrained

    return save_pretrained(AutoModel, "retriever", retriever.path, retriever.revision, out)


def work(chosen: SimpleNamespace) -> stage.Metrics:
    if chosen.retriever.source == "pretrained":
        return copy_pretrained(chosen.retriever, OUT)
    return train_on_corpora(CORPUS, TOKENIZER, OUT, chosen.seed, chosen.retriever, chosen.compute.threads)


def main() -> None:
    stage.run("base_retriever", ("seed", "compute", "retriever"), work, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
