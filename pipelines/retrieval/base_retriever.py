"""Stage `base_retriever`: an untuned dual encoder, trained small on the corpora or taken at a pinned revision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.corpus import training_files
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage import parquet, shards
from pipelines.work import stage
from pipelines.work import threads as torch_threads

CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
METRICS = Path("data/metrics")


def train_on_corpora(
    files: Sequence[Path], tokenizer: Path, out: Path, seed: int, retriever: params.Retriever, threads: int
) -> stage.Metrics:
    """Train on the corpora's `files` and save to `out`, a folder with the retriever's name.

    Raises LongtailError for fewer than two documents, or no settings.
    """
    from pipelines.retrieval import contrastive_training
    from pipelines.retrieval.encoder import write_sentence_transformers_files
    from pipelines.storage import checkpoint

    if retriever.training is None:
        raise LongtailError(
            f"params.yaml: retriever.{out.name}.training is null, expected its settings where its source is train"
        )
    stage_name = f"base_retriever@{out.name}"
    torch_threads.use(threads)
    texts = [text for file in files for text in parquet.read_parquet(file, columns=["text"])["text"].to_pylist()]
    with shards.atomic(out) as folder:
        metrics = contrastive_training.train_encoder(texts, tokenizer, folder, seed, retriever, stage_name)
        write_sentence_transformers_files(folder, retriever, retriever.training.hidden_size, retriever.max_tokens)
    checkpoint.forget_checkpoints(stage_name)
    return metrics


def copy_pretrained(retriever: params.Retriever, out: Path) -> stage.Metrics:
    """Save to `out`, a folder with the retriever's name, the encoder at `path`, and the one at `query_path` if any.

    Raises LongtailError if `path` or a Hub model's revision isn't set, or nothing can be loaded.
    """
    from pipelines.lm.model_files import check_pinned
    from pipelines.retrieval.encoder import Encoder
    from pipelines.retrieval.tower import Tower

    sources = {f"retriever.{out.name}.path": (retriever.path, retriever.revision)}
    if retriever.query_path:
        sources[f"retriever.{out.name}.query_path"] = (retriever.query_path, retriever.query_revision)
    for key, (path, revision) in sources.items():
        check_pinned(key, path, revision)
    towers = [Tower(*source, max_tokens=retriever.max_tokens) for source in sources.values()]
    encoder = Encoder(towers[0], towers[-1], retriever)
    with shards.atomic(out) as folder:
        encoder.save(folder)
    return {"parameters": float(sum(weight.numel() for weight in encoder.parameters()))}


def work(params: SimpleNamespace, name: str) -> stage.Metrics:
    retriever, out = params.retriever[name], methods.encoder("dense", name)
    if retriever.source == "pretrained":
        return copy_pretrained(retriever, out)
    files = training_files(CORPUS, params.parts.corpora)
    return train_on_corpora(files, TOKENIZER, out, params.seed, retriever, params.compute.threads)


def main() -> None:
    name = stage.arguments(__doc__, retriever="one of params.yaml's retrievers").retriever
    stage.run(
        f"base_retriever@{name}",
        ("seed", "compute", "retriever", "parts"),
        lambda params: work(params, name),
        out=str(methods.encoder("dense", name)),
        metrics=METRICS / f"base_retriever_{name}.json",
    )


if __name__ == "__main__":
    main()
