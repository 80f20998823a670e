"""Page views of a month: the stage `popularity` beside a Python loop, on generated lines in the dump's layout.

    .venv/bin/python -m benchmarks.pageviews_speed --lines 10000000

Each way runs in a process of its own, on one core, once on the compressed file and once on its lines, and the stage
also with two processes that read parts of the compressed file side by side. All must find the same views. The lines
are sorted as the real ones are, a seventh of them is English Wikipedia's.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.knowledge.popularity import count_views
from pipelines.params import Compute, Ingest, Popularity

ROOT = Path(__file__).resolve().parents[1]
MONTH_GB = 5.0  # compressed, user, spider and automated files together: assumed, 2026-11 (2021-08's user file has 2.3)
MEMORY_GB = 0.1  # ingest.memory_gb: of what the stage joins and sums; beyond it, it spills to disk
BATCH = 250_000  # lines made at once
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


def plain(path: Path, titles: list[str]) -> dict[str, int]:
    """The plain way: a loop over lines, a split, a dict."""
    views: dict[str, int] = {}
    with (bz2.open if path.suffix == ".bz2" else open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            project, title, _, _, count, _ = line.split(" ")
            if project == "en.wikipedia":
                title = unquote(title).replace("_", " ")
                views[title] = views.get(title, 0) + int(count)
    return {title: views[title] for title in titles if title in views}


def stage(path: Path, workers: int) -> dict[str, int]:
    """The stage's way."""
    pa.set_cpu_count(1)
    params = SimpleNamespace(
        popularity=Popularity(source="dump", api="", redirects_api="", month="2021-10", agents="all-agents"),
        contact=None,
        language="en",
        ingest=Ingest(max_reject_share=0.0, memory_gb=MEMORY_GB, record_mb=64.0, rejects_kept=100_000),
        compute=Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu"),
    )
    count_views(params, Path("entities.parquet"), path.parent.parent, Path("out"))
    return dict(zip(*pq.read_table("out/views.parquet", columns=["title", "views"]).to_pydict().values(), strict=True))


def child(way: str, path: Path) -> None:
    """One way on one file; prints seconds (of one core, by the clock), the greatest memory, a digest of the views."""
    before, started, clock = _peak(), time.process_time(), time.monotonic()
    if way == "decompress":
        with path.open("rb") as raw:
            unpack = bz2.BZ2Decompressor()
            found = {"bytes": sum(len(unpack.decompress(block)) for block in iter(lambda: raw.read(1 << 18), b""))}
    elif way == "plain":
        found = plain(path, pq.read_table("entities.parquet")["wiki_title"].to_pylist())
    else:
        found = stage(path, 2 if way == "two" else 1)
    seconds, clock = time.process_time() - started, time.monotonic() - clock
    digest = hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()
    sizes = {"memory": _peak(), "before": before, "articles": len(found)}
    print(json.dumps({"seconds": seconds, "clock": clock, "digest": digest} | sizes))


def _peak() -> int:
    """The process's greatest memory so far, bytes; getrusage would give its parent's where that is greater."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def run(way: str, path: Path, folder: Path) -> dict:
    command = [sys.executable, "-m", "benchmarks.pageviews_speed", "--child", way, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--child", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        packed = folder / "packed/pageviews/pageviews-202110-user.bz2"
        lines = folder / "lines/pageviews/pageviews-202110-user.txt"
        for file in (packed, lines):
            file.parent.mkdir(parents=True)
        titles, count = set(), 0
        with bz2.open(packed, "wb") as one, lines.open("wb") as other:
            for block in make_lines(given.lines):
                one.write(block)
                other.write(block)
                count += block.count(b"\n")
                if block.startswith(b"en.wikipedia "):
                    titles |= {unquote(line.split(" ")[1]).replace("_", " ") for line in block.decode().splitlines()}
        asked = sorted(titles)[::2]  # much of what is viewed is no article: other namespaces, misspellings
        pq.write_table(
            pa.table({"wiki_title": asked + [f"{title} unseen" for title in asked[:1000]]}), folder / "entities.parquet"
        )
        size, unpacked = packed.stat().st_size, lines.stat().st_size
        print(f"{count:,} lines, {unpacked / 1e6:,.0f} MB, {size / 1e6:,.0f} MB as bz2; ingest.memory_gb {MEMORY_GB}\n")
        alone = run("decompress", packed, folder)["seconds"]
        print("| file | way | seconds of one core | memory before + for it, MB | lines a second | full month, hours |")
        print("|---|---|---|---|---|---|")
        for name, file in (("lines", lines), ("bz2", packed)):
            found = {way: run(way, file, folder) for way in ("plain", "stage")}
            assert len({one["digest"] for one in found.values()}) == 1, "the ways find different views"
            for way, one in found.items():
                seconds = one["seconds"]
                cells = [
                    f"{seconds:.1f}",
                    f"{one['before'] / 1e6:.0f} + {(one['memory'] - one['before']) / 1e6:.0f}",
                    f"{count / seconds:,.0f}",
                ]
                print(f"| {name} | {way} | {' | '.join(cells)} | {seconds / size * MONTH_GB * 1e9 / 3600:.2f} |")
            print(f"| {name} | ratio | {found['plain']['seconds'] / found['stage']['seconds']:.1f} | | | |")
        two = run("two", packed, folder)
        assert two["digest"] == found["plain"]["digest"], "two processes find different views"
        times = [found[way]["clock"] / two["clock"] for way in ("plain", "stage")]
        print(f"\nBy the clock, two processes are {times[0]:.1f} times as fast as the loop, {times[1]:.1f} as one.")
        grown = found["plain"]["memory"] - found["plain"]["before"]
        print(
            f"\nBoth ways find the same views of {found['stage']['articles']:,} articles. Decompressing alone takes "
            f"{alone:.1f} s ({unpacked / alone / 1e6:.0f} MB/s), {alone / seconds:.0%} of the stage's time. "
            f"A full month: {MONTH_GB} GB of bz2, some {MONTH_GB * 1e9 / size * count / 1e6:,.0f} million lines. "
            f"There the loop's dict would take up to {grown * MONTH_GB / size:.0f} GB; the stage's memory stays "
            "within ingest.memory_gb and what a block of lines needs. compute.workers parts are read side by side."
        )


if __name__ == "__main__":
    main()
