"""Triples, sampler and builder on a world of a million entities, beside plain Python over the same tables as CSV.

    .venv/bin/python -m benchmarks.sampler

Both ways join names, views and term frequencies to the claims, sample by the paper's rule, cap each relation, and write
the questions; their popqa.tsv must be the same bytes. Each part runs in a process of its own, whose peak memory counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws, params
from pipelines.knowledge.triples import build_triples
from pipelines.questions import published
from pipelines.questions.popqa import build_popqa, number_of
from pipelines.questions.published import ENTITY
from pipelines.relations import RELATIONS
from pipelines.world.facts import ALIASES, RELATION_IDS, make_world

# Assumed of the full Wikidata (November 2026): items with an English article, and their best-ranked statements with the
# sixteen relations: some 2 million persons with 1.8 occupations each, 1.6 million of known birthplace, 2 million things
# in a country, and so on.
FULL_ENTITIES, FULL_TRIPLES = 7_500_000, 12_000_000
MONTH, SEED = "2021-10", 0
INGEST = params.Ingest(max_reject_share=0.0, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000)
POPQA = params.PopQA(
    source="wikidata",
    sampling="term_frequency",
    per_relation=2000,
    mix="drawn",
    total=None,
    refresh=False,
    train_share=0.25,
)
LARGE = POPQA.model_copy(update={"sampling": "all", "per_relation": 50_000})
THREADS = 2


def make_tables(folder: Path, entities: int) -> None:
    """The sample world's facts as the stages before write them, and the same as CSV; a third have a second object."""
    world = make_world(
        SEED,
        params.World(
            entities=entities, month=MONTH, lm_documents=1, lm_shards=1, lm_mixture={"world": 1.0}, pile_documents=1,
            questions=1, popularity_mean=3.3, popularity_sd=1.0, mention_exponent=0.85, namesake_share=0.5,
        ),
    )  # fmt: skip
    rng, values = np.random.default_rng(SEED), len(world.value_labels)
    items = range(values + len(world.labels))
    labels = world.value_labels + world.labels
    aliases = [ALIASES.get(label, []) for label in world.value_labels]
    aliases += [[f"{label} the {i % 7}"] if i % 3 == 0 else [] for i, label in enumerate(world.labels)]
    titles = [world.title(item) for item in items]
    views = [world.views(item) for item in items]
    qids = 100 + np.arange(len(items))

    subjects = np.repeat(np.arange(len(world.labels)), np.diff(world.offsets)) + values
    second = rng.random(len(subjects)) < 1 / 3
    others = np.empty_like(world.objects)
    for relation in range(len(RELATION_IDS)):
        at = np.flatnonzero(world.relations == relation)
        others[at] = rng.permutation(world.objects[at])
    numbers = np.array([int(pid[1:]) for pid in RELATION_IDS])[world.relations]
    facts = np.stack([subjects, numbers, world.objects], axis=1)
    facts = np.concatenate([facts, np.stack([subjects, numbers, others], axis=1)[second]])
    facts = np.unique(np.add(facts, [100, 0, 100]), axis=0)
    frequencies = rng.poisson(np.array(views) ** 0.5 / 10)

    for name in ("wikidata", "popularity", "term_frequency"):
        (folder / name).mkdir()
    pq.write_table(
        pa.table({"qid": qids, "label": labels, "aliases": aliases, "wiki_title": titles}),
        folder / "wikidata/entities.parquet",
    )
    pq.write_table(pa.table(dict(zip("spo", facts.T, strict=True))), folder / "wikidata/claims.parquet")
    pq.write_table(pa.table({"title": titles, "views": views}), folder / "popularity/views.parquet")
    counted = pa.table({"qid": qids, "term_frequency": frequencies})
    pq.write_table(counted, folder / "term_frequency/term_frequency.parquet")
    with (folder / "entities.csv").open("w", encoding="utf-8", newline="") as file:
        rows = zip(qids.tolist(), labels, map(json.dumps, aliases), titles, views, frequencies.tolist(), strict=True)
        csv.writer(file).writerows(rows)
    with (folder / "claims.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(facts.tolist())
    print(f"{len(items):,} entities, {len(facts):,} triples")


def join(folder: Path) -> None:
    build_triples(SimpleNamespace(ingest=INGEST, compute=SimpleNamespace(threads=THREADS)), folder)


def ask(folder: Path, popqa: params.PopQA, out: str) -> None:
    settings = SimpleNamespace(
        seed=SEED, language="en", popqa=popqa, popularity=SimpleNamespace(month=MONTH), ingest=INGEST,
        compute=SimpleNamespace(threads=THREADS),
    )  # fmt: skip
    build_popqa(settings, folder / out, folder / "triples/triples.parquet", folder / "none.tsv")


def plainly(folder: Path) -> None:
    """All of it with csv, dicts and sort, a row at a time."""
    with (folder / "entities.csv").open(encoding="utf-8", newline="") as file:
        entities = {
            int(qid): (label, json.loads(aliases), title, int(views), int(frequency))
            for qid, label, aliases, title, views, frequency in csv.reader(file)
        }
    objects = defaultdict(list)
    kept = defaultdict(list)
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        for s, p, o in csv.reader(file):
            objects[int(s), int(p)].append(int(o))
            frequency, key = entities[int(s)][4], f"Q{s}-P{p}-Q{o}"
            if frequency > math.exp(8 * draws.uniform(SEED, "popqa.keep", key) - 6):
                kept[int(p)].append((draws.uniform(SEED, "popqa.place", key), int(s), int(o)))
    with (folder / "plain.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(published.COLUMNS)
        for p in sorted(kept):
            relation = RELATIONS[f"P{p}"]
            for s, o in sorted((s, o) for _, s, o in sorted(kept[p])[: POPQA.per_relation]):
                subject, thing = entities[s], entities[o]
                names = [name for e in sorted(objects[s, p]) for name in (entities[e][0], *entities[e][1])]
                writer.writerow([
                    number_of(f"Q{s}-P{p}-Q{o}"), subject[0], relation.name, thing[0], s, p, o,
                    json.dumps(subject[1], separators=(",", ":")), json.dumps(thing[1], separators=(",", ":")),
                    f"{ENTITY}Q{s}", f"{ENTITY}Q{o}", subject[2], thing[2], subject[3], thing[3],
                    relation.question(subject[0]), json.dumps(list(dict.fromkeys(names)), ensure_ascii=False),
                ])  # fmt: skip


def measured(work: Callable, *words) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory (GB) of `work(*words)` in a process of its own."""
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_measure, args=(send, work, words))
    process.start()
    send.close()
    try:
        return receive.recv()
    finally:
        process.join()


def _measure(send, work: Callable, words: tuple) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work(*words)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    send.send((time.perf_counter() - wall, time.process_time() - cpu, peak))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        measured(make_tables, folder, given.entities)  # its peak would count for every process started after it
        triples = pq.read_metadata(folder / "wikidata/claims.parquet").num_rows
        rows = {
            "triples (join)": measured(join, folder),
            "build_popqa (sample, ask)": measured(ask, folder, POPQA, "popqa"),
            "plain Python, both": measured(plainly, folder),
            "build_popqa, cap of 50,000": measured(ask, folder, LARGE, "large"),
        }
        same = (folder / "popqa/popqa.tsv").read_bytes() == (folder / "plain.tsv").read_bytes()
        asked = pq.read_metadata(folder / "popqa/popqa.parquet").num_rows
        large = pq.read_metadata(folder / "large/popqa.parquet").num_rows
    assert same, "the two ways' popqa.tsv differ"
    print(
        f"{asked:,} questions, the same bytes both ways ({large:,} with the larger cap); "
        f"memory_gb {INGEST.memory_gb}, {THREADS} threads\n"
    )
    print(f"{'':34}{'wall s':>8}{'CPU s':>8}{'peak GB':>9}{'triples/s':>12}")
    for name, (wall, cpu, peak) in rows.items():
        print(f"{name:34}{wall:8.1f}{cpu:8.1f}{peak:9.2f}{triples / wall:12,.0f}")
    ours = [rows["triples (join)"], rows["build_popqa (sample, ask)"]]
    plain = rows["plain Python, both"]
    wall, cpu, peak = sum(r[0] for r in ours), sum(r[1] for r in ours), max(r[2] for r in ours)
    print(f"{'plain / ours':34}{plain[0] / wall:8.1f}{plain[1] / cpu:8.1f}{plain[2] / peak:9.1f}")
    scale, memory = FULL_TRIPLES / triples, plain[2] * max(FULL_TRIPLES / triples, FULL_ENTITIES / given.entities)
    print(
        f"\nFull Wikidata ({FULL_TRIPLES / 1e6:.0f} million triples assumed): {wall * scale / 3600:.3f} hours within "
        f"the same memory limit; plainly {plain[0] * scale / 3600:.3f} hours and {memory:.0f} GB"
    )


if __name__ == "__main__":
    main()
