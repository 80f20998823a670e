"""Page views of a month: the stage `popularity` beside a Python loop, on generated lines in the dump's layout.

Each way reads the compressed file and its lines, and the stage also with two processes that read parts of the
compressed file side by side. The lines are sorted as the real ones are, a seventh of them is English Wikipedia's.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from pipelines.knowledge.popularity import count_views
from pipelines.params import Ingest, Popularity

MEMORY_GB = 0.1  # ingest.memory_gb: of what the stage joins and sums; beyond it, it spills to disk
BATCH = 250_000  # lines made at once
TINY = b"en.wikipedia A 1 desktop 1 A1\n"
SHARES = {  # of the lines
    "ar.wikipedia": 3, "commons.wikimedia": 8, "de.wikipedia": 9, "en.wikipedia": 14, "en.wiktionary": 6,
    "es.wikipedia": 8, "fr.wikipedia": 9, "fr.wiktionary": 4, "it.wikipedia": 6, "ja.wikipedia": 7, "nl.wikipedia": 4,
    "pl.wikipedia": 4, "pt.wikipedia": 5, "ru.wikipedia": 8, "zh.wikipedia": 5,
}  # fmt: skip
ACCESS = pa.array(["desktop", "mobile-web", "mobile-app"])
MOST = 200  # views that a "views by day" is made for; more of them repeat its pattern


def make_lines(lines: int) -> Iterator[bytes]:
    """Sorted lines of all projects, BATCH at a time."""
    rng = np.random.default_rng(0)
    syllables = [f"{c}{v}{e}" for c in "bdfghklmnprstvw" for v in "aeiou" for e in ("", "n", "r", "s")]
    picks = rng.integers(0, len(syllables), (30_000, 3)).tolist()
    words = pa.array(sorted({"".join(syllables[i] for i in row[: 1 + row[0] % 3]).capitalize() for row in picks}))
    days = np.stack([rng.multinomial(1 + i % MOST, np.full(31, 1 / 31)) for i in range(100 * MOST)])
    by_day = pa.array(["".join(f"{chr(65 + d)}{n}" for d, n in enumerate(row) if n) for row in days.tolist()])
    for project, share in SHARES.items():
        wanted = lines * share // sum(SHARES.values())
        for start in range(0, wanted, BATCH):
            count = min(BATCH, wanted - start)
            titles = _titles(rng, words, count).take(pa.array(np.sort(rng.integers(0, count, count))))
            titles = titles.take(pc.sort_indices(titles))
            views = np.minimum(1 + rng.pareto(0.9, count), 1e6).astype(np.int64)
            first = pc.rank(titles, tiebreaker="min").to_numpy().astype(np.int64)
            ids = pa.array(1000 + first * 37 + start, pa.int64()).cast(pa.string())
            ids = pc.if_else(pa.array(first % 12 == 0), "null", ids)
            day = by_day.take(pa.array(rng.integers(0, 100, count) * MOST + (views - 1) % MOST))
            access = ACCESS.take(pa.array((np.arange(1, count + 1) - first) % 3))
            columns = [pa.repeat(project, count), titles, ids, access, pa.array(views).cast(pa.string()), day]
            made = pc.binary_join_element_wise(*columns, " ")
            yield "\n".join(made.to_pylist()).encode() + b"\n"


def _titles(rng: np.random.Generator, words: pa.Array, count: int) -> pa.Array:
    """Titles of one to three words; some percent-encoded, not in ASCII, of other namespaces, or told apart."""
    one, two, three = (words.take(pa.array(rng.integers(0, len(words), count))) for _ in range(3))
    length, kind = rng.random(count), rng.random(count)
    titles = pc.if_else(pa.array(length < 0.7), pc.binary_join_element_wise(one, two, "_"), one)
    titles = pc.if_else(pa.array(length < 0.2), pc.binary_join_element_wise(titles, three, "_"), titles)
    for share, before, after in ((0.02, "", "%C3%A9"), (0.05, "", "é"), (0.15, "Talk:", ""), (0.08, "", "_(film)")):
        changed = pc.binary_join_element_wise(before, titles, after, "")
        titles = pc.if_else(pa.array((kind >= 0) & (kind < share)), changed, titles)
        kind = kind - share
    return titles


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
        popularity=Popularity(source="dump", api="", redirects_api="", month="2021-10", agents="all-agents"),
        contact=None,
        language="en",
        ingest=Ingest(max_reject_share=0.0, memory_gb=MEMORY_GB, record_mb=64.0),
        compute=measure.compute(workers),
    )
    count_views(params, Path("entities.parquet"), path.parent.parent, Path("out"))
    return dict(zip(*pq.read_table("out/views.parquet", columns=["title", "views"]).to_pydict().values(), strict=True))


def unpacked(path: Path) -> int:
    """Bytes, decompressed and thrown away."""
    unpack = bz2.BZ2Decompressor()
    with path.open("rb") as raw:
        return sum(len(unpack.decompress(block)) for block in iter(lambda: raw.read(1 << 18), b""))


def write(packed: Path, lines: Path, count: int) -> None:
    """Both files, and entities.parquet: half of the titles, since much of what is viewed is no article, and others."""
    titles = set()
    for file in (packed, lines):
        file.parent.mkdir(parents=True)
    with bz2.open(packed, "wb") as one, lines.open("wb") as other:
        for block in make_lines(count):
            one.write(block)
            other.write(block)
            if block.startswith(b"en.wikipedia "):
                titles |= {unquote(line.split(" ")[1]).replace("_", " ") for line in block.decode().splitlines()}
    asked = sorted(titles)[::2]
    asked += [f"{title} unseen" for title in asked[:1000]]
    pq.write_table(pa.table({"wiki_title": asked}), "entities.parquet")


def rows(quick: bool = False) -> list[Row]:
    lines, rounds = (20_000, 1) if quick else (1_500_000, 2)
    with measure.in_folder() as folder:
        packed = folder / "packed/pageviews/pageviews-202110-user.bz2"
        plainly = folder / "lines/pageviews/pageviews-202110-user.txt"
        tiny = folder / "tiny/pageviews/pageviews-202110-user.bz2"
        tiny.parent.mkdir(parents=True)
        for agents in ("user", "automated"):  # two files, so that two workers start
            tiny.with_name(f"pageviews-202110-{agents}.bz2").write_bytes(bz2.compress(TINY))
        measure.alone(write, packed, plainly, lines)

        def beside(name: str, path: Path, **others) -> list[Row]:
            return measure.beside(
                f"a month's page views, {lines:,} lines, {name}", "a loop over the lines", "lines", lines,
                partial(measure.alone, plain, path),
                partial(measure.alone, stage, path, warm=partial(stage, tiny)), rounds=rounds, **others,
            )  # fmt: skip

        others = {"two": partial(measure.alone, stage, packed, 2), "start": partial(measure.alone, stage, tiny, 2)}
        others |= {"limit": "bz2 alone", "most": partial(measure.alone, unpacked, packed)}
        return beside("plain lines", plainly) + beside("bz2", packed, **others)
