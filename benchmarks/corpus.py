"""Raw text to 128-token documents: the stage `chunk` beside a loop over single documents.

Both make the same documents of the same generated file with the same tokenizer. The loop cleans
wikitext by mwparserfromhell's `strip_code`.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import mwparserfromhell
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tokenizers import Tokenizer

from benchmarks import measure, raw_texts
from benchmarks.measure import Row
from flows import profiles
from pipelines.corpus import chunk
from pipelines.corpus.clean import wikitext_to_text
from pipelines.corpus.token_bytes import open_encoder
from pipelines.corpus.tokenizer import open_tokenizer, train_tokenizer
from pipelines.params import params
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, read_raw
from pipelines.sources.streams import open_blocks
from pipelines.sources.wikipedia import source_parts
from pipelines.storage.atomic import SCRATCH

ROOT = Path(__file__).resolve().parents[1]
TOKENS = 128  # of a document
MIN_TOKENS = 16
VOCABULARY = 8192  # of the tokenizer
COLUMNS = ["id", "text", "tokens", "offset"]
SMALL_MEGABYTES = 0.02


@dataclass(frozen=True)
class Source:
    """A kind of raw file, how it is generated, and what its row says."""

    name: str
    title: str
    file: str
    write: Callable[[Path, float], None]
    peer: str
    limit: str


PILE = Source(
    name="pile",
    title="The Pile",
    file="pile.jsonl.zst",
    write=raw_texts.write_pile,
    peer="a loop over the documents",
    limit="decompress, tokenise alone",
)
WIKIPEDIA = Source(
    name="wikipedia",
    title="Wikipedia",
    file="multistream.xml.bz2",
    write=raw_texts.write_wikipedia,
    peer="a loop over the documents, mwparserfromhell's strip_code",
    limit="decompress, clean wikitext, tokenise alone",
)


def rows(quick: bool = False) -> list[Row]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    logging.disable(logging.WARNING)
    table = []
    with measure.in_folder() as folder:
        for source in (PILE, WIKIPEDIA):
            measure.alone(source.write, small_file(folder, source), SMALL_MEGABYTES)
            measure.alone(source.write, whole_file(folder, source), 0.3 if quick else 40.0)
        tokenizer = folder / "tokenizer"
        texts = (document.text for document in read_file(PILE, whole_file(folder, PILE)))
        measure.alone(train_tokenizer, texts, 512 if quick else VOCABULARY, tokenizer)

        for source in (PILE, WIKIPEDIA):
            (folder / source.name).mkdir()
            with chdir(folder / source.name):
                table += compare(source, folder, tokenizer, rounds=1 if quick else 2)
    return table


def small_file(folder: Path, source: Source) -> Path:
    return folder / f"small-{source.file}"


def whole_file(folder: Path, source: Source) -> Path:
    return folder / f"generated-{source.file}"


def compare(source: Source, folder: Path, tokenizer: Path, rounds: int) -> list[Row]:
    for workers in (1, 2):
        settings_of(workers)  # read before the clock starts
    file = whole_file(folder, source)
    small = small_file(folder, source)
    raw_documents = [document.text for document in read_file(source, file)]
    megabytes = sum(len(text.encode()) for text in cleaned(source, raw_documents)) / 1e6

    out = Path("out")
    plain_out = Path("plain.parquet")
    stage = partial(longtail, source, tokenizer=tokenizer, out=out)
    alone = partial(measure.alone, warm=partial(stage, small, workers=1))
    read_ours = partial(read_documents, out / "docs.parquet")
    return measure.beside(
        f"{source.title} to documents, {megabytes:.0f} MB of text",
        source.peer,
        "MB",
        megabytes,
        partial(
            measure.alone,
            plain,
            source,
            file,
            tokenizer,
            plain_out,
            then=partial(read_documents, plain_out),
        ),
        partial(alone, partial(stage, file, workers=1), then=read_ours),
        two=partial(alone, partial(stage, file, workers=2), then=read_ours),
        start=partial(alone, partial(stage, small, workers=2)),
        limit=source.limit,
        most=partial(measure.alone, work_of_all, source, file, tokenizer, raw_documents),
        rounds=rounds,
    )


def read_documents(file: Path, _: None) -> list[dict]:
    """The documents that a way wrote."""
    return pq.read_table(file, columns=COLUMNS).to_pylist()


def work_of_all(source: Source, file: Path, tokenizer: Path, texts: list[str]) -> None:
    """What no way can do without: the source's `limit`."""
    for _ in open_blocks(file):
        pass
    open_encoder(tokenizer)(cleaned(source, texts))


def cleaned(source: Source, texts: list[str]) -> list[str]:
    if source is WIKIPEDIA:
        return [wikitext_to_text(text) for text in texts]
    return texts


def longtail(source: Source, file: Path, *, tokenizer: Path, out: Path, workers: int) -> None:
    """The stage."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    chunk.BYTES_PER_PROCESS = 1  # so that a small file shows what it takes to start them
    raw = Path(tempfile.mkdtemp(dir=".")) / source.name
    raw.mkdir()
    (raw / file.name).symlink_to(file)
    chunk.build(raw, tokenizer, out, source.name, settings_of(workers))


@cache
def settings_of(workers: int) -> SimpleNamespace:
    values = yaml.safe_load(profiles.compose("paper-replug", ROOT))
    compute = values["compute"] | {"threads": workers, "workers": workers}
    corpus = params.Corpus(documents=None, query_share=0.0, test_files=None, validation_files=None)
    return SimpleNamespace(
        seed=0,
        language="en",
        compute=params.Compute(**compute),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=2.0),
        corpus=dict.fromkeys(("wikipedia", "pile", "wikitext"), corpus),
        chunk=params.Chunk(tokens=TOKENS, min_tokens=MIN_TOKENS),
        queries=params.Queries(**values["queries"]),
        windows=params.Windows(**values["windows"]),
    )


def plain(source: Source, file: Path, tokenizer: Path, out: Path) -> None:
    """What a script would do: each document by itself through the tokenizer, its text sliced,
    all joined and sorted.
    """
    opened = open_tokenizer(tokenizer)
    documents: dict[str, list[tuple]] = {}
    for document in plain_documents(source, file):
        if document.source_document not in documents:
            documents[document.source_document] = plain_cut(document, opened)

    table = []
    for name in sorted(documents):
        table += documents[name]
    columns = [list(values) for values in zip(*table, strict=True)]
    pq.write_table(pa.table(columns, names=COLUMNS), out, compression="zstd")


def plain_documents(source: Source, file: Path) -> Iterator[Raw]:
    """Of wikitext the lines that have more than marks, as a script would keep them."""
    for document in read_file(source, file):
        if source is not WIKIPEDIA:
            yield document
            continue
        lines = mwparserfromhell.parse(document.text).strip_code().splitlines()
        text = "\n".join(line.strip() for line in lines if line.strip(" ."))
        if text:
            yield document._replace(text=text)


def read_file(source: Source, file: Path) -> Iterator[Raw]:
    for part in source_parts(file):
        yield from read_raw(source.name, part, Rejects(1.0))


def plain_cut(document: Raw, tokenizer: Tokenizer) -> list[tuple]:
    """The rows, by COLUMNS, of a source document's parts; none if it is too short."""
    offsets = tokenizer.encode(document.text, add_special_tokens=False).offsets
    if len(offsets) < MIN_TOKENS:
        return []
    cuts = plain_cuts(offsets)
    ends = [offsets[cut - 1][1] for cut in cuts[1:]]  # of characters
    bounds = [0, *ends, len(document.text)]
    token_bounds = [*cuts, len(offsets)]

    rows = []
    n_bytes = 0
    for number, (begin, end) in enumerate(pairwise(bounds)):
        text = document.text[begin:end]
        n_tokens = token_bounds[number + 1] - token_bounds[number]
        rows.append((f"{document.source_document}:{n_bytes}", text, n_tokens, n_bytes))
        n_bytes += len(text.encode())
    return rows


def plain_cuts(offsets: list[tuple[int, int]]) -> list[int]:
    """The first token of each part, from the tokens' characters; a short rest joins the last."""
    cuts = [0]
    while len(offsets) - cuts[-1] > TOKENS:
        cut = cuts[-1] + TOKENS
        # where a token ends inside a character, the next one begins before its end
        while offsets[cut][0] < offsets[cut - 1][1]:
            cut -= 1
        cuts.append(cut)
    if len(cuts) > 1 and len(offsets) - cuts[-1] < MIN_TOKENS:
        cuts.pop()
    return cuts
