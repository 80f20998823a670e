"""Raw text to 128-token documents: the stage `chunk` beside a loop over single documents.

Both make the same documents of the same generated file with the same tokenizer. The loop cleans
wikitext by mwparserfromhell's `strip_code`.
"""

import bz2
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import mwparserfromhell
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

from benchmarks import measure
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
TOKENS, LEAST = 128, 16
VOCABULARY = 8192  # of the tokenizer
TITLES = {"pile": "The Pile", "wikipedia": "Wikipedia"}
PEERS = {
    "pile": "a loop over the documents",
    "wikipedia": "a loop over the documents, mwparserfromhell's strip_code",
}
LIMITS = {
    "pile": "decompress, tokenise alone",
    "wikipedia": "decompress, clean wikitext, tokenise alone",
}
FILES = ("pile.jsonl.zst", "multistream.xml.bz2")
STREAM = 100  # pages in a bz2 stream


def plain(name: str, file: Path, tokenizer: Path, out: Path) -> None:
    """What a script would do: each document by itself through the tokenizer, its text sliced,
    all joined and sorted.
    """
    encode = open_tokenizer(tokenizer).encode
    rows = {}
    for document in _documents(name, file):
        if document.source_document in rows:
            continue
        offsets = encode(document.text, add_special_tokens=False).offsets
        # Where a token ends inside a character, the next one begins before its end.
        cuts, position = [0], 0
        while len(offsets) - position > TOKENS:
            position += TOKENS
            while offsets[position][0] < offsets[position - 1][1]:
                position -= 1
            cuts.append(position)
        if len(offsets) - cuts[-1] < LEAST and len(cuts) > 1:
            cuts.pop()
        if len(offsets) < LEAST:
            continue
        bounds = [0, *(offsets[cut - 1][1] for cut in cuts[1:]), len(document.text)]
        own, offset = [], 0
        for (begin, end), count in zip(
            pairwise(bounds), np.diff([*cuts, len(offsets)]), strict=True
        ):
            text = document.text[begin:end]
            own.append((f"{document.source_document}:{offset}", text, int(count), offset))
            offset += len(text.encode())
        rows[document.source_document] = own
    table = [row for name in sorted(rows) for row in rows[name]]
    columns = dict(zip(("id", "text", "tokens", "offset"), zip(*table, strict=True), strict=True))
    pq.write_table(
        pa.table({key: list(values) for key, values in columns.items()}), out, compression="zstd"
    )


def _documents(name: str, file: Path) -> Iterator[Raw]:
    """Of wikitext the lines that have more than marks, as a script would keep them."""
    for row in _raw(name, file):
        if name != "wikipedia":
            yield row
            continue
        lines = mwparserfromhell.parse(row.text).strip_code().splitlines()
        if text := "\n".join(line.strip() for line in lines if line.strip(" .")):
            yield row._replace(text=text)


def _raw(name: str, file: Path) -> Iterator[Raw]:
    for part in source_parts(file):
        yield from read_raw(name, part, Rejects(1.0))


def longtail(name: str, file: Path, tokenizer: Path, out: Path, workers: int) -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    chunk.BYTES_PER_PROCESS = 1  # so that a small file shows what it takes to start them
    raw = Path(tempfile.mkdtemp(dir=".")) / name
    raw.mkdir()
    (raw / file.name).symlink_to(file.resolve())
    chunk.build(raw, tokenizer, out, name, _chosen(workers))


@cache
def _chosen(workers: int) -> SimpleNamespace:
    values = yaml.safe_load(profiles.compose("paper-replug", ROOT))
    corpus = params.Corpus(
        documents=None, query_share=0.0, test_files=None, validation_files=None
    )
    return SimpleNamespace(
        seed=0,
        language="en",
        compute=params.Compute(**values["compute"] | {"threads": workers, "workers": workers}),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=2.0),
        corpus=dict.fromkeys(("wikipedia", "pile", "wikitext"), corpus),
        chunk=params.Chunk(tokens=TOKENS, min_tokens=LEAST),
        queries=params.Queries(**values["queries"]),
        windows=params.Windows(**values["windows"]),
    )


def cleaned(name: str, texts: list[str]) -> list[str]:
    return [wikitext_to_text(text) for text in texts] if name == "wikipedia" else texts


def limit(name: str, file: Path, tokenizer: Path, texts: list[str]) -> None:
    """What no way can do without: LIMITS."""
    for _ in open_blocks(file):
        pass
    open_encoder(tokenizer)(cleaned(name, texts))


def compare(name: str, file: Path, small: Path, tokenizer: Path, rounds: int) -> list[Row]:
    _chosen(1), _chosen(2)  # read once, before the clock starts
    out, beside, texts = Path("out"), Path("plain.parquet"), [row.text for row in _raw(name, file)]
    names = ["id", "text", "tokens", "offset"]

    def ours(file: Path, workers: int, **then) -> measure.Run:
        warm = partial(longtail, name, small, tokenizer, out, 1)
        return measure.alone(longtail, name, file, tokenizer, out, workers, warm=warm, **then)

    def made(_) -> list[dict]:
        return pq.read_table(out / "docs.parquet", columns=names).to_pylist()

    size = sum(len(text.encode()) for text in cleaned(name, texts)) / 1e6
    return measure.beside(
        f"{TITLES[name]} to documents, {size:.0f} MB of text", PEERS[name], "MB", size,
        partial(measure.alone, plain, name, file, tokenizer, beside, then=lambda _: pq.read_table(beside).to_pylist()),
        partial(ours, file, 1, then=made), two=partial(ours, file, 2, then=made), start=partial(ours, small, 2),
        limit=LIMITS[name], most=partial(measure.alone, limit, name, file, tokenizer, texts), rounds=rounds,
    )  # fmt: skip


def rows(quick: bool = False) -> list[Row]:
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    logging.disable(logging.WARNING)
    found = []
    with measure.in_folder():
        small, files = (
            [Path(f"{size}-{name}") for name in FILES] for size in ("small", "generated")
        )
        for file, tiny, write in zip(files, small, (write_pile, write_wikipedia), strict=True):
            measure.alone(write, tiny, 0.02)
            measure.alone(write, file, 0.3 if quick else 40.0)
        texts, tokenizer = (row.text for row in _documents("pile", files[0])), Path("tokenizer")
        measure.alone(train_tokenizer, texts, 512 if quick else VOCABULARY, tokenizer)
        for name, *paths in zip(TITLES, files, small, strict=True):
            of_name = [path.resolve() for path in (*paths, tokenizer)]
            Path(name).mkdir()
            with chdir(name):
                found += compare(name, *of_name, 1 if quick else 2)
    return found


def write_pile(path: Path, megabytes: float) -> None:
    """Documents of made-up words, as frequent as words are, of lengths as mixed as the Pile's."""
    rng = np.random.default_rng(0)
    words, chances = _words(rng)
    with zstandard.open(path, "wt") as file:
        size = 0
        while size < megabytes * 1e6:
            text = _prose(rng, words, chances, int(rng.lognormal(5.8, 1.2)) + 5)
            size += len(text)
            file.write(
                json.dumps({"text": text, "meta": {"pile_set_name": f"Set{size % 7}"}}) + "\n"
            )


def write_wikipedia(path: Path, megabytes: float) -> None:
    """Pages with an infobox, links, references and sections, about as much of them as a real page
    has.

    A multistream dump with its index, as Wikipedia's own are: STREAM pages in each bz2 stream.
    """
    rng = np.random.default_rng(1)
    words, chances = _words(rng)
    pages, size = [], 0
    while size < megabytes * 1e6:
        box = "".join(f"| {word} = [[{word}]]\n" for word in rng.choice(words, 20))
        parts = [f"{{{{Infobox\n{box}}}}}\n'''A''' is a [[{words[5]}|thing]]."]
        for title in rng.choice(words, int(rng.integers(1, 8))):
            prose = _prose(rng, words, chances, 150).split(". ")
            parts += [
                f"== {title} ==",
                *(f"{one}.&lt;ref&gt;{{{{cite|{one[:30]}}}}}&lt;/ref&gt;" for one in prose),
            ]
        text = "\n".join(parts)
        size += len(text)
        head = f"<page><title>Page {size}</title><ns>0</ns><id>{size}</id>"
        pages.append(f"{head}<revision><id>1</id><text>{text}</text></revision></page>\n")
    data, index = bz2.compress(b"<mediawiki>"), []
    for first in range(0, len(pages), STREAM):
        own = pages[first : first + STREAM]
        index += [f"{len(data)}:{first + i}:Page {first + i}\n" for i in range(len(own))]
        data += bz2.compress("".join(own).encode())
    path.write_bytes(data + bz2.compress(b"</mediawiki>"))
    beside = path.name.replace("-multistream.xml", "-multistream-index.txt")
    path.with_name(beside).write_bytes(bz2.compress("".join(index).encode()))


def _words(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(
        ["".join(rng.choice(letters, max(int(rng.poisson(6)), 1))) for _ in range(50_000)]
    )
    chances = 1 / np.arange(3, 50_003)
    return words, np.cumsum(chances / chances.sum())


def _prose(rng: np.random.Generator, words: np.ndarray, chances: np.ndarray, count: int) -> str:
    own = words[np.minimum(np.searchsorted(chances, rng.random(count)), len(words) - 1)]
    sentences = [" ".join(part).capitalize() for part in np.array_split(own, max(count // 18, 1))]
    return ". ".join(sentences) + ".\n"
