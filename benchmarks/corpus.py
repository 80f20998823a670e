"""Raw text to 128-token documents: the stage `chunk`, step by step and whole, beside a loop over single documents.

    .venv/bin/python -m benchmarks.corpus
    .venv/bin/python -m benchmarks.corpus --full   # and, by calculation, hours and disk at the papers' size

Both make the same documents of the same generated file with the same tokenizer, which is checked. The loop cleans
wikitext by mwparserfromhell's `strip_code`.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import mwparserfromhell
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks import measure
from benchmarks.corpus_generator import write_pile, write_wikipedia
from benchmarks.measure import Row, Run
from flows import profiles
from pipelines import database, params, shards
from pipelines.corpus import chunk, cut, sample
from pipelines.corpus.clean import wikitext_to_text
from pipelines.corpus.near_duplicates import PERMUTATIONS, bands, near_duplicates, signatures
from pipelines.corpus.token_bytes import open_encoder
from pipelines.corpus.tokenizer import open_tokenizer, train
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, read_raw
from pipelines.sources.streams import open_blocks
from pipelines.sources.wikipedia import parts

ROOT = Path(__file__).resolve().parents[1]
TOKENS, LEAST = 128, 16
# Sizes assumed, as of November 2026.
PILE_BYTES = 886e9  # of text in The Pile (825 GiB), 451 GB as .jsonl.zst
DOCUMENT_BYTES = 128 * 4.2  # of a document, with GPT-2's tokenizer
WIKIPEDIA_XML, WIKIPEDIA_TEXT = 67e9, 14e9  # enwiki of December 2018, 16 GB as .xml.bz2; its prose
CORES = (2, 16)
VOCABULARY = 8192  # of the tokenizer
PEERS = {"pile": "a loop over the documents", "wikipedia": "a loop over the documents, mwparserfromhell's strip_code"}
TITLES = {"pile": "The Pile", "wikipedia": "Wikipedia"}
FILES = ("pile.jsonl.zst", "multistream.xml.bz2")
LIMITS = ("decompress", "clean wikitext", "tokenise")
Disk = tuple[float, float]  # bytes for a byte of text: of docs.parquet, of batches and cuts


class Step(NamedTuple):
    name: str
    seconds: float  # of one process's CPU
    size: float  # MB that it was given


def plain(name: str, file: Path, tokenizer: Path, out: Path) -> None:
    """What a script would do: each document by itself through the tokenizer, its text sliced, all joined and sorted."""
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
        for (begin, end), count in zip(pairwise(bounds), np.diff([*cuts, len(offsets)]), strict=True):
            text = document.text[begin:end]
            own.append((f"{document.source_document}:{offset}", text, int(count), offset))
            offset += len(text.encode())
        rows[document.source_document] = own
    table = [row for name in sorted(rows) for row in rows[name]]
    columns = dict(zip(("id", "text", "tokens", "offset"), zip(*table, strict=True), strict=True))
    pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), out, compression="zstd")


def _documents(name: str, file: Path) -> Iterator[Raw]:
    for row in _raw(name, file):
        if name != "wikipedia":
            yield row
        elif text := "\n".join(_lines(mwparserfromhell.parse(row.text).strip_code())):
            yield row._replace(text=text)


def _lines(text: str) -> Iterator[str]:
    """The lines that have more than marks, as a script would keep them."""
    return (line.strip() for line in text.splitlines() if line.strip(" ."))


def _raw(name: str, file: Path) -> Iterator[Raw]:
    for part in parts(file):
        yield from read_raw(name, part, Rejects(1.0))


def longtail(name: str, file: Path, tokenizer: Path, out: Path, workers: int) -> None:
    shutil.rmtree(shards.SCRATCH, ignore_errors=True)
    chunk.FOR_A_PROCESS = 1  # so that a small file shows what it takes to start them
    raw = Path(tempfile.mkdtemp(dir=".")) / name
    raw.mkdir()
    for one in file.parent.glob(f"{file.name.split('.')[0]}*"):  # a dump, and its index
        (raw / one.name).symlink_to(one.resolve())
    chunk.build(raw, tokenizer, out, name, _chosen(workers))


def _chosen(workers: int) -> SimpleNamespace:
    values = _profile()
    corpus = params.CorpusOf(documents=None, weights=None, query_share=0.0, test_files=None, validation_files=None)
    return SimpleNamespace(
        seed=0,
        language="en",
        compute=params.Compute(**values["compute"] | {"threads": workers, "workers": workers}),
        ingest=params.Ingest(max_reject_share=1.0, memory_gb=2.0, record_mb=64.0, rejects_kept=100_000),
        corpus=dict.fromkeys(("wikipedia", "pile", "wikitext"), corpus),
        chunk=params.Chunk(tokens=TOKENS, min_tokens=LEAST, short="merge"),
        queries=params.Queries(**values["queries"]),
        windows=params.Windows(**values["windows"]),
    )


@cache
def _profile() -> dict:
    return yaml.safe_load(profiles.compose("paper-replug", ROOT))


def steps(name: str, file: Path, tokenizer: Path) -> tuple[list[Step], Disk]:
    """Each step by itself, on what the one before gave; and bytes on disk for a byte of text."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        found = _steps(name, file, tokenizer)
        return found, packed(found[-1].size)


def _steps(name: str, file: Path, tokenizer: Path) -> list[Step]:
    found: list[Step] = []

    def step(what: str, work: Callable, size: Callable[[object], float], less: float = 0.0):
        started = time.process_time()
        result = work()
        seconds = max(time.process_time() - started - less, 1e-6)
        found.append(Step(what, seconds, size(result) / 1e6))
        return result

    unpacked = step("decompress", lambda: sum(map(len, open_blocks(file))), lambda n: n)
    raw = step("parse", lambda: list(_raw(name, file)), lambda _: unpacked, less=found[0].seconds)
    texts = [row.text for row in raw]
    if name == "wikipedia":
        size = sum(len(text.encode()) for text in texts)
        texts = step("clean wikitext", lambda: [wikitext_to_text(t) for t in texts], lambda _: size)
    size = sum(len(text.encode()) for text in texts)
    encoder = open_encoder(tokenizer)
    encoder(["warm"])
    tokens = step("tokenise", lambda: encoder(texts), lambda _: size)
    whole = np.ones(len(texts), dtype=bool)
    pieces = step("cut", lambda: cut.cut_texts(tokens, whole, TOKENS, LEAST, "merge"), lambda _: size)
    signed = step("signatures", lambda: signatures(tokens.ids, tokens.counts), lambda _: size)
    step("bands", lambda: bands(signed, 0.8), lambda _: size)
    read_rows = [(*row, "corpus") for row in raw]
    step("write batches", lambda: sample.write_batch(read_rows, Path("batch.parquet")), lambda _: size)
    names = ("source_document", "source", "title")
    rows = pa.table({name: [getattr(row, name) for row in raw] for name in names})

    def write() -> None:
        Path("cut").mkdir()
        docs = cut._docs(rows, np.zeros(len(raw)), tokens, pieces)
        pq.write_table(docs, "cut/docs.parquet", compression="zstd")

    step("write pieces", write, lambda _: size)
    query = f"""SELECT {chunk.assemble.DOC_COLUMNS} FROM 'cut/docs.parquet' ORDER BY source_document, "offset\""""
    with database.connect(2.0, 1) as con:
        step("sort and write", lambda: database.write(con, query, Path("docs.parquet")), lambda _: size)
    return found


def near(count: int) -> Step:
    """The near-duplicate join of random signatures, one in ten a query's, one in a hundred with a likeness."""
    import duckdb

    rng = np.random.default_rng(0)
    own = rng.integers(0, 2**32, (count, PERMUTATIONS), dtype=np.uint32)
    own[count - count // 100 :] = own[: count // 100]
    names = [f"d{i}" for i in range(count)]
    splits = ["train" if i < count // 10 else "corpus" for i in range(count)]
    parts = bands(own, 0.8)
    signed = pa.FixedSizeListArray.from_arrays(pa.array(own.ravel()), PERMUTATIONS)
    banded = pa.FixedSizeListArray.from_arrays(pa.array(parts.ravel()), parts.shape[1]).cast(pa.list_(pa.uint64()))
    pq.write_table(
        pa.table({"source_document": names, "split": splits, "signature": signed, "bands": banded}), "s.parquet"
    )
    con = duckdb.connect(config={"threads": 1})
    started = time.process_time()
    found = near_duplicates(con, "read_parquet('s.parquet')", 0.8)
    assert len(found) == count // 100
    return Step("near-duplicate join", time.process_time() - started, count / 1e6)


def packed(size: float) -> Disk:
    """Bytes on disk for a byte of text, of which there are `size` MB: of docs.parquet, and of batches and cuts."""
    raw, cut, docs = (
        Path(name).stat().st_size / 1e6 / size for name in ("batch.parquet", "cut/docs.parquet", "docs.parquet")
    )
    return docs, raw + cut


def in_full(measured: dict[str, tuple[list[Step], Disk]], joined: Step) -> str:
    """Hours and disk at the papers' size."""
    own, wiki = ({one.name: one.seconds / one.size for one in found} for found, _ in measured.values())  # seconds a MB
    cutting = ("tokenise", "cut", "signatures", "bands", "write batches", "write pieces")
    reading = PILE_BYTES / 1e6 * (own["decompress"] + own["parse"])
    text = 36e6 * DOCUMENT_BYTES / 1e6
    queries = 0.01 * PILE_BYTES / 1e6
    drawn = 2 * reading + (1.1 * text + queries) * sum(own[name] for name in cutting)
    whole = reading + PILE_BYTES / 1e6 * sum(own[name] for name in cutting)
    last = text * own["sort and write"] + 5.3 * joined.seconds / joined.size  # 5.3 million source documents
    dump = WIKIPEDIA_XML / 1e6 * (wiki["decompress"] + wiki["parse"] + wiki["clean wikitext"])
    dump += WIKIPEDIA_TEXT / 1e6 * sum(wiki[name] for name in cutting if name not in ("signatures", "bands"))
    end = WIKIPEDIA_TEXT / 1e6 * wiki["sort and write"]
    rows = [
        ("36M documents of The Pile, drawn first", drawn, last, text, 1.1 * text + queries, "pile"),
        ("the same, cut whole and thrown away after", whole, last, text, PILE_BYTES / 1e6, "pile"),
        ("all of Wikipedia (December 2018)", dump, end, WIKIPEDIA_TEXT / 1e6, WIKIPEDIA_TEXT / 1e6, "wikipedia"),
    ]
    lines = [
        "",
        "| in full | " + " | ".join(f"hours, {n} cores" for n in CORES) + " | docs.parquet, GB | scratch, GB |",
    ]
    lines.append("|---|" + "---|" * (len(CORES) + 2))
    for what, mapped, single, kept, cut_, name in rows:
        hours = " | ".join(f"{(mapped / cores + single) / 3600:.1f}" for cores in CORES)
        docs, scratch = measured[name][1]
        lines.append(f"| {what} | {hours} | {kept * docs / 1e3:,.0f} | {(cut_ * scratch + kept * docs) / 1e3:,.0f} |")
    return "\n".join(lines)


def compare(name: str, file: Path, small: Path, tokenizer: Path, rounds: int) -> tuple[list[Row], list[Step], Disk]:
    """The rows of a corpus, its steps, and what they wrote; raises where documents differ."""

    def way(workers: int, file: Path) -> Run:
        warm = partial(longtail, name, small, tokenizer, out, 1)
        return measure.alone(longtail, name, file, tokenizer, out, workers, warm=warm)

    def ours(workers: int) -> Run:
        run = way(workers, file)
        expected = pq.read_table("plain.parquet")
        made = pq.read_table(out / "docs.parquet", columns=expected.column_names)
        assert made.to_pylist() == expected.to_pylist(), "longtail and plain differ"
        return run

    out, simple = Path("out"), partial(measure.alone, plain, name, file, tokenizer, Path("plain.parquet"))
    ways = {"loop": simple, "one": partial(ours, 1), "two": partial(ours, 2), "start": partial(way, 2, small)}
    loop, one, two, start = measure.best(ways, rounds).values()
    warm = partial(steps, name, small, tokenizer)
    tried = [measure.alone(steps, name, file, tokenizer, warm=warm).result for _ in range(rounds)]
    found = [min(same, key=lambda step: step.seconds) for same in zip(*(made for made, _ in tried), strict=True)]
    disk = tried[0][1]
    size, limits = found[-1].size, [step for step in found if step.name in LIMITS]
    what, peer = f"{TITLES[name]} to documents, {size:.0f} MB of text", PEERS[name]
    limit = f"{', '.join(step.name for step in limits)} alone", size / sum(step.seconds for step in limits)
    made = [
        measure.row(what, peer, "MB", size, loop, one, limit=limit[0], most=limit[1]),
        *measure.rows_of_two_workers(what, peer, "MB", size, loop, two, start),
    ]
    return made, found, disk


def rows(quick: bool = False, full: bool = False, megabytes: float = 40.0) -> list[Row]:
    """`megabytes` of each corpus are generated; `full` prints the hours and disk at the papers' size."""
    os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
    logging.disable(logging.WARNING)
    compared = {}
    with measure.in_folder():
        small, files = ([Path(f"{size}-{name}") for name in FILES] for size in ("small", "generated"))
        for file, tiny, write in zip(files, small, (write_pile, write_wikipedia), strict=True):
            measure.alone(write, tiny, 0.02)
            measure.alone(write, file, 0.3 if quick else megabytes)
        measure.alone(_train, files[0], 512 if quick else VOCABULARY)
        for name, *paths in zip(TITLES, files, small, strict=True):
            of_name = [path.resolve() for path in (*paths, Path("tokenizer"))]
            Path(name).mkdir()
            with chdir(name):
                compared[name] = compare(name, *of_name, 1 if quick else 2)
        joined = near(2000 if quick else 200_000) if full or quick else None
    if joined:
        print(in_full({name: one[1:] for name, one in compared.items()}, joined))
    return [row for made, *_ in compared.values() for row in made]


def _train(file: Path, vocabulary: int) -> None:
    train((row.text for row in _documents("pile", file)), vocabulary, Path("tokenizer"))


if __name__ == "__main__":
    measure.main(rows)
