"""The offline sample: a seeded fictional world, written in the formats of the real sources and read
by their readers.

What the language model is trained on is kept apart from what it is evaluated with and retrieves
from:
- C4, on which the language model is trained, states facts of the world in wordings of its own.
- C4 also holds whole pages in the wordings of Wikipedia and the Pile. They are about invented
  subjects, new ones in each document, and teach a small model to read but nothing about the world.
- C4 asks about half of the entities (`World.asked_as_evaluated`) in the wordings of PopQA and
  EntityQuestions too. So knowledge of a fact can be told from having seen the question. The Pile
  repeats the facts of Wikipedia's pages in its own wordings.
"""

import bz2
import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import zstandard

from sample.make.facts import World, make_world
from sample.make.question_sets import question_sets
from sample.make.sizes import WorldSizes
from sample.make.text_corpora import c4, pile
from sample.make.wikimedia_dumps import pageviews, redirect_tables, wikidata, wikipedia


def write_world(folder: Path, seed: int, sizes: WorldSizes, months: Sequence[str]) -> None:
    """Write every data set below `folder`, laid out as data/raw; equal arguments give equal bytes.

    Page views are of these months, YYYY-MM; the last one is the world's month.
    """
    world = make_world(seed, sizes)
    (folder / "popqa").mkdir(parents=True, exist_ok=True)
    for name, pieces in _files(world, sizes, months):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, _compressed(file, path.suffix) as out:
            for piece in pieces:
                out.write(piece)


def _files(
    world: World, sizes: WorldSizes, months: Sequence[str]
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield (path below the folder, content in pieces) of each file. A file is read before the next
    one.
    """
    yield "wikidata/world.json.gz", wikidata(world)
    for months_before, month in enumerate(reversed(months)):
        name = f"pageviews/pageviews-{month.replace('-', '')}-user.bz2"
        yield name, pageviews(world, months_before)

    for name, table in redirect_tables(world).items():
        yield f"redirects/world-{name}.sql.gz", [table]
    yield "wikipedia/world-pages-articles.xml.bz2", wikipedia(world)

    yield "pile/00.jsonl.zst", pile(world, sizes.pile_documents)
    documents = c4(world, sizes)
    documents_per_shard = -(-sizes.lm_documents // sizes.lm_shards)
    for shard in range(sizes.lm_shards):
        name = f"c4/c4-train.{shard:05d}-of-{sizes.lm_shards:05d}.json.gz"
        yield name, islice(documents, documents_per_shard)

    for path, text in question_sets(world, sizes.questions):
        yield path, [text.encode()]


def _compressed(file: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    """A writer that compresses as the suffix says, without the time, so that equal content is equal
    bytes.
    """
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", 6, file, mtime=0)
    if suffix == ".bz2":
        return bz2.BZ2File(file, "wb")
    if suffix == ".zst":
        # zstd's command writes a checksum too
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        return compressor.stream_writer(file, closefd=False)
    return nullcontext(file)
