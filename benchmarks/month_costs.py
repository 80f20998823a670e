"""What a month embeds: two months of the sample's world, and two states of its pages and real ones.

    .venv/bin/python -m benchmarks.month_costs --files FILES --models MODELS --work WORK --out OUT.csv

FILES is a folder of real data sets and MODELS one of encoders, as of benchmarks.real_models. The
sample's encoder and tokenizer are those of the finished run in this folder; the encoder stays the
same in both months. The second month of the world has 5 % more entities. In the second state of
pages, a tenth of them has a sentence of another page after one of their paragraphs, and 5 % are
new. Each second month is embedded with the first one kept, and from scratch.
"""

from __future__ import annotations

import argparse
import bz2
import re
import shutil
import time
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.project_copy import write_csv
from pipelines import draws, methods
from pipelines.corpus import chunk
from pipelines.methods import Method
from pipelines.params import params, params_file
from pipelines.params.param_types import Section
from pipelines.retrieval import embeddings
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.kept_vectors import embed_new_texts
from pipelines.storage.work_store import KEPT
from pipelines.world.generator import write_world

HEAD = [
    "corpus", "documents", "embedded", "CPU seconds", "CPU seconds from scratch", "MB of vectors",
    "MB of hashes", "equal vectors (%)", "largest difference of a number", "largest 1 - cosine",
]  # fmt: skip
GROWTH = 1.05  # entities of the second month for each of the first
EDITED = 0.1  # share of pages with a paragraph
NEW = 0.05  # share of pages
REAL_PASSAGE = 128  # tokens
REAL_PAGES = 100  # of the file, redirects included
DUMP = "wikipedia/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
PAGE = re.compile(r"<page>.*?</page>\n?", re.DOTALL)
# of prose, on a line of its own
PARAGRAPH = re.compile(r"(?<=[\n>])(?:'''|[A-Z])[^\n<]{80,}(?=\n)")
COMPUTE = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
MINILM = params.Retriever(
    source="pretrained", path=None, revision=None, query_path=None, query_revision=None, pooling="mean",
    similarity="cosine", query_prefix="", document="{title} {text}", dtype="auto", batch_tokens=4096,
    max_tokens=256, training=None,
)  # fmt: skip


class Settings(Section):
    """The sections of params.yaml that this benchmark reads, beside those of the stage `chunk`."""

    world: params.World
    retriever: dict[str, params.Retriever]


@dataclass(frozen=True)
class Months:
    """A corpus in two months, and the encoder of both."""

    name: str
    first: Path  # docs.parquet
    second: Path
    model: Path
    retriever: params.Retriever


@dataclass(frozen=True)
class Sample:
    """The sample's world, settings and models; folders are absolute."""

    world: params.World
    chunking: chunk.Settings
    retriever: params.Retriever
    tokenizer: Path
    encoder: Path

    @classmethod
    def read(cls) -> Sample:
        settings = params_file.load_settings(Settings)
        return cls(
            world=settings.world,
            chunking=params_file.load_settings(chunk.Settings),
            retriever=settings.retriever["dense"],
            tokenizer=chunk.TOKENIZER.absolute(),
            encoder=methods.encoder_folder(Method("dense", "dense")).absolute(),
        )


@dataclass(frozen=True)
class Embedded:
    """A month's vectors, and what they took."""

    vectors: np.ndarray  # (documents, dim)
    new: int  # texts
    seconds: float  # of CPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--files", "--models", "--work", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()

    dump = (arguments.files / DUMP).absolute()
    minilm = (arguments.models / "minilm").absolute()
    out = arguments.out.absolute()
    sample = Sample.read()

    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = []
    with chdir(arguments.work):
        for months in [*sample_months(sample), real_months(dump, minilm, sample.chunking)]:
            row = measure(months)
            print(*row, flush=True)
            rows.append(row)
    write_csv(out, HEAD, rows)


def sample_months(sample: Sample) -> list[Months]:
    """The sample's world, drawn anew and edited."""
    grown = sample.world.model_copy(update={"entities": round(GROWTH * sample.world.entities)})
    for name, world in (("sample", sample.world), ("grown", grown)):
        write_world(Path(name), 0, world, ["2026-10"])
    first, second = write_states(Path("sample/wikipedia/world-pages-articles.xml.bz2"))

    docs = {}
    for raw in (Path("sample/wikipedia"), Path("grown/wikipedia"), first, second):
        docs[raw] = cut(raw, sample.tokenizer, sample.chunking)
    of_sample = partial(Months, model=sample.encoder, retriever=sample.retriever)
    return [
        of_sample(
            "sample, drawn anew",
            first=docs[Path("sample/wikipedia")],
            second=docs[Path("grown/wikipedia")],
        ),
        of_sample("sample, edited", first=docs[first], second=docs[second]),
    ]


def real_months(dump: Path, minilm: Path, settings: chunk.Settings) -> Months:
    """Real pages, edited, in passages of REAL_PASSAGE tokens."""
    passages = settings.chunk.model_copy(update={"tokens": REAL_PASSAGE})
    settings = settings.model_copy(update={"chunk": passages})
    first, second = write_states(dump, REAL_PAGES)
    return Months(
        "real pages, edited",
        first=cut(first, minilm, settings),
        second=cut(second, minilm, settings),
        model=minilm,
        retriever=MINILM,
    )


def write_states(dump: Path, limit: int | None = None) -> tuple[Path, Path]:
    """The folders of a dump's first pages in two states."""
    with bz2.open(dump, "rt", encoding="utf-8") as file:
        text = file.read()
    pages = PAGE.findall(text)[:limit]
    head = text[: text.index("<page>")]
    n_new = round(NEW * len(pages))
    states = {"first": pages[:-n_new], "second": edit(pages)}

    folders = []
    for state, pages_of_state in states.items():
        folder = Path(f"{dump.stem}-{state}")
        folder.mkdir(exist_ok=True)
        content = "".join([head, *pages_of_state, "</mediawiki>\n"])
        with bz2.open(folder / "pages-articles.xml.bz2", "wt", encoding="utf-8") as out:
            out.write(content)
        folders.append(folder)
    first, second = folders
    return first, second


def edit(pages: list[str]) -> list[str]:
    """The pages, EDITED of which have a sentence of another page after a paragraph."""
    generator = draws.generator(0, "months/edits")
    articles = [number for number, page in enumerate(pages) if PARAGRAPH.search(page)]
    drawn = generator.choice(articles, round(EDITED * len(articles)), replace=False).tolist()
    sources = drawn[1:] + drawn[:1]
    edited = list(pages)
    for number, source in zip(drawn, sources, strict=True):
        last_paragraph = PARAGRAPH.findall(pages[source])[-1]
        sentence, _, _ = last_paragraph.partition(". ")
        paragraph = str(generator.choice(PARAGRAPH.findall(pages[number])))
        edited[number] = pages[number].replace(paragraph, f"{paragraph} {sentence}.", 1)
    return edited


def cut(raw: Path, tokenizer: Path, settings: chunk.Settings) -> Path:
    """The docs.parquet of Wikipedia's pages in a folder."""
    out = raw.with_name(f"{raw.name}-corpus")
    chunk.build(raw, tokenizer, out, "wikipedia", settings)
    return out / "docs.parquet"


def measure(months: Months) -> list[str]:
    """The row of a corpus."""
    shutil.rmtree(KEPT.folder, ignore_errors=True)
    embed(months, months.first)
    with_kept = embed(months, months.second)
    hashes = sum(file.stat().st_size for file in KEPT.folder.rglob("hashes.npy"))
    shutil.rmtree(KEPT.folder)
    scratch = embed(months, months.second)

    equal = (with_kept.vectors == scratch.vectors).all(axis=1)
    difference = np.abs(with_kept.vectors - scratch.vectors).max()
    cosines = cosines_of(with_kept.vectors, scratch.vectors)
    megabytes = 2 * with_kept.vectors.size / 1e6
    return [
        months.name,
        f"{len(equal)}",
        f"{with_kept.new}",
        f"{with_kept.seconds:.1f}",
        f"{scratch.seconds:.1f}",
        f"{megabytes:.2f}",
        f"{hashes / 1e6:.2f}",
        f"{100 * equal.mean():.2f}",
        f"{difference:.1e}",
        f"{1 - cosines.min():.1e}",
    ]


def cosines_of(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosines of rows (n, dim), (n,)."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return (left * right).sum(axis=1) / lengths


def embed(months: Months, docs: Path) -> Embedded:
    """A month's vectors, as the stage `index` makes them."""
    encoder = Encoder.open(months.model, months.retriever, COMPUTE)
    out = Path("embeddings")
    shutil.rmtree(out, ignore_errors=True)
    started = time.process_time()
    new = embed_new_texts(
        docs, months.model, out, encoder=encoder, compute=COMPUTE, name="index@months"
    )
    seconds = time.process_time() - started
    embeddings.forget_embeddings("index@months")
    written = Embeddings(out)
    return Embedded(written.rows(0, written.count, np.float64), new, seconds)


if __name__ == "__main__":
    main()
