"""Stage `base_lm`: make a language model's folder: train it from scratch, save a pretrained one, or name a server."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from pipelines.corpus import training_files
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage, threads

DATA = Path("data")
TOKENIZER = Path("data/models/tokenizer")
OUT = Path("data/models/lm")


def read_c4(folder: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) of the C4 documents in `folder`. The kind is the first label of the URL's host.

    Raises LongtailError with the file and line of a document that is not a JSON object with a text and a url.
    """
    import msgspec

    from pipelines.sources.streams import open_lines, source_files

    class Document(msgspec.Struct):
        text: str
        url: str

    decoder = msgspec.json.Decoder(Document)
    for file in source_files(folder):
        for row, line in enumerate(open_lines(file), start=1):
            try:
                document = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise LongtailError(
                    f"{file}: line {row}: {error}, expected a JSON object with text and url; fetch it again"
                ) from None
            yield urlsplit(document.url).netloc.partition(".")[0], document.text


def read_corpora(folder: Path, corpora: Sequence[str]) -> Iterator[tuple[str, str]]:
    """("any", text) of the documents of the corpora in `folder` that models are trained on."""
    for file in training_files(folder, corpora):
        for batch in parquet.batches(file, columns=["text"]):
            yield from (("any", text) for text in batch["text"].to_pylist())


def train_on_text(
    text: Path, tokenizer: Path, out: Path, seed: int, lm: params.LM, corpora: Sequence[str] = ()
) -> stage.Metrics:
    """Train a model on the folder `text`, C4's or the corpora's, and save it to `out`; returns train_lm's metrics.

    Raises LongtailError where there is no text, or `lm.training` is null.
    """
    from pipelines.lm import train_lm
    from pipelines.storage import checkpoint

    if lm.training is None:
        raise LongtailError(
            f"params.yaml: lm.{out.name}.training is null, expected its settings where source is train"
        )
    threads.use(1)  # steps are so small that a second thread waits more than it works
    documents = read_c4(text) if text.name == "c4" else read_corpora(text, corpora)
    with atomic(out) as folder:
        metrics = train_lm.train_language_model(
            documents, tokenizer, folder, seed, lm.training, f"base_lm@{out.name}"
        )
    checkpoint.forget_checkpoints(f"base_lm@{out.name}")
    return metrics


def name_served(lm: params.LM, out: Path) -> stage.Metrics:
    """Save a served model's URL and name to the folder `out`, with its tokenizer if the params name one."""
    from pipelines.corpus.tokenizer import copy_pretrained

    with atomic(out) as folder:
        if lm.http.tokenizer:
            copy_pretrained(f"lm.{out.name}", lm.http.tokenizer, lm.revision, folder)
        else:
            folder.mkdir()
        write_json(folder / "served.json", {"url": lm.http.url, "model": lm.path})
    return {}


def make_lm(chosen: SimpleNamespace, name: str) -> stage.Metrics:
    """Make the folder of the language model called `name` in the params."""
    lm, out = chosen.lm[name], OUT / name
    if lm.source == "http":
        return name_served(lm, out)
    if lm.source == "train":
        return train_on_text(
            DATA / chosen.lm_text, TOKENIZER, out, chosen.seed, lm, chosen.parts.corpora
        )
    from transformers import AutoModelForCausalLM

    from pipelines.lm.model_files import save_pretrained

    return save_pretrained(AutoModelForCausalLM, f"lm.{name}", lm.path, lm.revision, out)


if __name__ == "__main__":
    name = stage.arguments(__doc__, name="a name from lms in params.yaml").name
    out, metrics = OUT / name, Path(f"data/metrics/base_lm_{name}.json")
    sections = ("seed", "lm", "lm_text", "parts")
    stage.run(
        f"base_lm@{name}",
        sections,
        lambda chosen: make_lm(chosen, name),
        out=str(out),
        metrics=metrics,
    )
