"""The offline sample: a seeded fictional world, written in the formats of the real sources and read by their readers.

What the language model is trained on is kept apart from what it is evaluated with and retrieves from:
- C4, on which the language model is trained, states facts of the world in wordings of its own.
- C4 also holds whole pages in the wordings of Wikipedia and the Pile. They are about invented subjects, new ones in
  each document, and teach a small model to read but nothing about the world.
- C4 asks about half of the entities (`World.asked_as_evaluated`) in the wordings of PopQA and EntityQuestions too. So
  knowledge of a fact can be told from having seen the question.
The Pile and WikiText repeat the facts of Wikipedia's pages: the Pile in its own wordings, WikiText in Wikipedia's.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import zstandard

from pipelines.params import params
from pipelines.world.facts import make_world
from pipelines.world.question_sets import question_sets
from pipelines.world.text_corpora import c4, pile, wikitext
from pipelines.world.wikimedia_dumps import pageviews, redirect_tables, wikidata, wikipedia

# Without a time in it; zstd's command writes a checksum too.
COMPRESSORS = {
    ".gz": lambda file: gzip.GzipFile("", "wb", 6, file, mtime=0),
    ".bz2": lambda file: bz2.BZ2File(file, "wb"),
    ".zst": lambda file: zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(file, closefd=False),
}


def write_world(folder: Path, seed: int, sizes: params.World, months: Sequence[str]) -> None:
    """Write every data set below `folder`, laid out as data/raw; equal arguments give equal bytes.

    Page views are of these months, YYYY-MM, the last of which is the world's.
    """
    world = make_world(seed, sizes)
    _write(folder / "wikidata/world.json.gz", wikidata(world))
    for before, month in enumerate(reversed(months)):
        _write(folder / f"pageviews/pageviews-{month.replace('-', '')}-user.bz2", pageviews(world, before))
    for name, table in redirect_tables(world).items():
        _write(folder / f"redirects/world-{name}.sql.gz", [table])
    _write(folder / "wikipedia/world-pages-articles.xml.bz2", wikipedia(world))
    _write(folder / "pile/00.jsonl.zst", pile(world, sizes.pile_documents))
    documents = c4(world, sizes)
    for shard in range(sizes.lm_shards):
        path = folder / f"c4/c4-train.{shard:05d}-of-{sizes.lm_shards:05d}.json.gz"
        _write(path, islice(documents, -(-sizes.lm_documents // sizes.lm_shards)))
    for path, content in question_sets(world, sizes.questions):
        _write(folder / path, [content.encode()])
    for split, text in wikitext(world).items():
        _write(folder / f"wikitext/wiki.{split}.tokens", [text.encode()])
    (folder / "popqa").mkdir(parents=True, exist_ok=True)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file, compressed by its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, COMPRESSORS.get(path.suffix, nullcontext)(file) as out:
        for piece in pieces:
            out.write(piece)
