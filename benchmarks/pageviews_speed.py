"""Page views of a month: the stage `popularity` beside a Python loop, on the sample world's lines.

Each way reads the compressed file and its lines, and the stage also with two processes that read
parts of the compressed file side by side.
"""

import bz2
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.sampler import world_of
from pipelines.knowledge.popularity import count_views
from pipelines.params.params import Ingest, Popularity
from pipelines.world import wikimedia_dumps

MEMORY_GB = 0.1  # ingest.memory_gb: of what the stage joins and sums; beyond it, it spills to disk
TINY = b"en.wikipedia A 1 desktop 1 A1\n"
PROJECT = "en.wikipedia"
UNSEEN = 1000  # titles that no line has
READ_BYTES = 1 << 18


def rows(quick: bool = False) -> list[Row]:
    entities = 2_000 if quick else 300_000
    with measure.in_folder() as folder:
        packed = folder / "packed/pageviews/pageviews-202110-user.bz2"
        lines = folder / "lines/pageviews/pageviews-202110-user.txt"
        n_lines = measure.alone(write, packed, lines, entities).result
        tiny = folder / "tiny/pageviews/pageviews-202110-user.bz2"
        tiny.parent.mkdir(parents=True)
        for agents in ("user", "automated"):  # two files, so that two workers start
            tiny.with_name(f"pageviews-202110-{agents}.bz2").write_bytes(bz2.compress(TINY))

        compare = partial(
            measure.beside,
            peer="a loop over the lines",
            unit="lines",
            size=n_lines,
            rounds=1 if quick else 2,
        )
        label = f"a month's page views, {n_lines:,} lines"
        of_lines = compare(
            f"{label}, plain lines",
            plain=partial(measure.alone, plain, lines),
            ours=partial(measure.alone, stage, lines, warm=partial(stage, tiny)),
        )
        of_packed = compare(
            f"{label}, bz2",
            plain=partial(measure.alone, plain, packed),
            ours=partial(measure.alone, stage, packed, warm=partial(stage, tiny)),
            two=partial(measure.alone, stage, packed, 2),
            start=partial(measure.alone, stage, tiny, 2),
            limit="bz2 alone",
            most=partial(measure.alone, unpacked, packed),
        )
        return of_lines + of_packed


def write(packed: Path, lines: Path, entities: int) -> int:
    """Both files, and entities.parquet: half of the titles, since much of what is viewed is no
    article, and others. Returns how many lines there are.
    """
    written = b"".join(wikimedia_dumps.pageviews(world_of(entities)))
    for file in (packed, lines):
        file.parent.mkdir(parents=True)
    lines.write_bytes(written)
    packed.write_bytes(bz2.compress(written))

    viewed = set()
    for line in written.decode().splitlines():
        project, title, *_ = line.split(" ")
        if project == PROJECT:
            viewed.add(unquote(title).replace("_", " "))
    articles = sorted(viewed)[::2]
    unseen = [f"{title} unseen" for title in articles[:UNSEEN]]
    pq.write_table(pa.table({"wiki_title": articles + unseen}), "entities.parquet")
    return written.count(b"\n")


def plain(path: Path) -> dict[str, int]:
    """The plain way: a loop over lines, a split, a dict."""
    titles = pq.read_table("entities.parquet")["wiki_title"].to_pylist()
    open_text = bz2.open if path.suffix == ".bz2" else open
    views: dict[str, int] = {}
    with open_text(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            project, title, _, _, count, _ = line.split(" ")
            if project == PROJECT:
                title = unquote(title).replace("_", " ")
                views[title] = views.get(title, 0) + int(count)
    return {title: views[title] for title in titles if title in views}


def stage(path: Path, workers: int = 1) -> dict[str, int]:
    """The stage's way."""
    popularity = Popularity(
        source="dump", api="", redirects_api="", month="2021-10", agents="all-agents"
    )
    settings = SimpleNamespace(
        popularity=popularity,
        language="en",
        ingest=Ingest(max_reject_share=0.0, memory_gb=MEMORY_GB),
        compute=measure.compute(workers),
    )
    count_views(settings, Path("entities.parquet"), path.parent.parent, Path("out"))
    table = pq.read_table("out/views.parquet").to_pydict()
    return dict(zip(table["title"], table["views"], strict=True))


def unpacked(path: Path) -> int:
    """Bytes, decompressed and thrown away."""
    decompressor = bz2.BZ2Decompressor()
    size = 0
    with path.open("rb") as raw:
        for block in iter(partial(raw.read, READ_BYTES), b""):
            size += len(decompressor.decompress(block))
    return size
