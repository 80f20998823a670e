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


def plain(path: Path) -> dict[str, int]:
    """The plain way: a loop over lines, a split, a dict."""
    titles = pq.read_table("entities.parquet")["wiki_title"].to_pylist()
    views: dict[str, int] = {}
    with (bz2.open if path.suffix == ".bz2" else open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            project, title, _, _, count, _ = line.split(" ")
            if project == "en.wikipedia":
                title = unquote(title).replace("_", " ")
                views[title] = views.get(title, 0) + int(count)
    return {title: views[title] for title in titles if title in views}


def stage(path: Path, workers: int = 1) -> dict[str, int]:
    """The stage's way."""
    params = SimpleNamespace(
        popularity=Popularity(
            source="dump", api="", redirects_api="", month="2021-10", agents="all-agents"
        ),
        language="en",
        ingest=Ingest(max_reject_share=0.0, memory_gb=MEMORY_GB),
        compute=measure.compute(workers),
    )
    count_views(params, Path("entities.parquet"), path.parent.parent, Path("out"))
    return dict(
        zip(
            *pq.read_table("out/views.parquet", columns=["title", "views"]).to_pydict().values(),
            strict=True,
        )
    )


def unpacked(path: Path) -> int:
    """Bytes, decompressed and thrown away."""
    unpack = bz2.BZ2Decompressor()
    with path.open("rb") as raw:
        return sum(len(unpack.decompress(block)) for block in iter(lambda: raw.read(1 << 18), b""))


def write(packed: Path, lines: Path, entities: int) -> int:
    """Both files, and entities.parquet: half of the titles, since much of what is viewed is no
    article, and others.
    """
    for file in (packed, lines):
        file.parent.mkdir(parents=True)
    written = b"".join(wikimedia_dumps.pageviews(world_of(entities)))
    lines.write_bytes(written)
    packed.write_bytes(bz2.compress(written))
    rows = (line.split(" ") for line in written.decode().splitlines())
    asked = sorted({unquote(row[1]).replace("_", " ") for row in rows if row[0] == "en.wikipedia"})[
        ::2
    ]
    asked += [f"{title} unseen" for title in asked[:1000]]
    pq.write_table(pa.table({"wiki_title": asked}), "entities.parquet")
    return written.count(b"\n")


def rows(quick: bool = False) -> list[Row]:
    entities, rounds = (2_000, 1) if quick else (300_000, 2)
    with measure.in_folder() as folder:
        packed = folder / "packed/pageviews/pageviews-202110-user.bz2"
        plainly = folder / "lines/pageviews/pageviews-202110-user.txt"
        tiny = folder / "tiny/pageviews/pageviews-202110-user.bz2"
        tiny.parent.mkdir(parents=True)
        for agents in ("user", "automated"):  # two files, so that two workers start
            tiny.with_name(f"pageviews-202110-{agents}.bz2").write_bytes(bz2.compress(TINY))
        lines = measure.alone(write, packed, plainly, entities).result

        def beside(name: str, path: Path, **others) -> list[Row]:
            return measure.beside(
                f"a month's page views, {lines:,} lines, {name}", "a loop over the lines", "lines", lines,
                partial(measure.alone, plain, path),
                partial(measure.alone, stage, path, warm=partial(stage, tiny)), rounds=rounds, **others,
            )  # fmt: skip

        others = {
            "two": partial(measure.alone, stage, packed, 2),
            "start": partial(measure.alone, stage, tiny, 2),
        }
        others |= {"limit": "bz2 alone", "most": partial(measure.alone, unpacked, packed)}
        return beside("plain lines", plainly) + beside("bz2", packed, **others)
