"""Stage `base_lm`: the language model, trained small on raw text, taken at a pinned revision, or named on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from pipelines import params, shards, stage
from pipelines.errors import LongtailError

C4 = Path("data/raw/c4")
CORPUS = Path("data/corpus")
TOKENIZER = Path("data/models/tokenizer")
OUT = Path("data/models/lm")
METRICS = Path("data/metrics/base_lm.json")


def read_c4(folder: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) of the C4 documents in `folder`; the kind is the first label of the url's host.

    Raises LongtailError naming a file and line that is no JSON object with a text and a url.
    """
    import msgspec

    from pipelines.sources.text import open_lines, source_files

    class Document(msgspec.Struct):
        text: str
        url: str

    decoder = msgspec.json.Decoder(Document)
    for file in source_files(folder):
        for row, line in enumerate(open_lines(file), start=1):
            try:
                document = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise LongtailError(
                    f"{file}: line {row}: {error}, expected a JSON object with text and url; fetch it again"
                ) from None
            yield urlsplit(document.url).netloc.partition(".")[0], document.text


def read_corpora(folder: Path) -> Iterator[tuple[str, str]]:
    """("any", text) of the documents of every corpus in `folder`, sorted by corpus."""
    import pyarrow.parquet as pq

    for file in sorted(folder.glob("*/docs.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(columns=["text"]):
            yield from (("any", text) for text in batch["text"].to_pylist())


def train_on_text(c4: Path, corpus: Path, tokenizer: Path, out: Path, seed: int, lm: params.LM) -> stage.Metrics:
    """Train from scratch on the text that `lm.training.text` names, save to the folder `out`; returns what `tiny` does.

    Raises LongtailError where there is no text, or no `lm.training`.
    """
    import torch

    from pipelines.lm import tiny

    if lm.training is None:
        raise LongtailError("params.yaml: lm.training is null, expected its settings where lm.source is train")
    torch.set_num_threads(1)  # steps are so small that a second thread costs more in waiting than it does in work
    documents = read_c4(c4) if lm.training.text == "c4" else read_corpora(corpus)
    with shards.atomic(out) as folder:
        return tiny.train(documents, tokenizer, folder, seed, lm.training)


def name_served(lm: params.LM, out: Path) -> stage.Metrics:
    """Write down which server and model the language model is; nothing is fetched."""
    if not lm.url or not lm.path:
        raise LongtailError(
            "params.yaml: lm.source is http, so lm.url (the server) and lm.path (the model's name) must be set"
        )
    with shards.atomic(out) as folder:
        folder.mkdir()
        shards.write_json(folder / "served.json", {"url": lm.url, "model": lm.path})
    return {}


def work(chosen: SimpleNamespace) -> stage.Metrics:
    lm = chosen.lm
    if lm.source == "train":
        return train_on_text(C4, CORPUS, TOKENIZER, OUT, chosen.seed, lm)
    if lm.source == "pretrained":
        from transformers import AutoModelForCausalLM

        from pipelines.lm.pretrained import save_pretrained

        return save_pretrained(AutoModelForCausalLM, "lm", lm.path, lm.revision, OUT)
    return name_served(lm, OUT)


def main() -> None:
    stage.run("base_lm", ("seed", "lm"), work, out=str(OUT), metrics=METRICS)


if __name__ == "__main__":
    main()
