"""Triples, sampler and builder on a generated world, beside plain Python over the same tables as
CSV.

Both ways join names, views and term frequencies to the claims, sample by the paper's rule, cap each
relation, and write the questions; their popqa.tsv must be the same bytes.
"""

import csv
import json
import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from pipelines import draws
from pipelines.knowledge.triples import build_triples
from pipelines.language.relations import RELATIONS
from pipelines.params import params
from pipelines.questions import published
from pipelines.questions.popqa import build_popqa, number_of
from pipelines.questions.published import ENTITY
from pipelines.world.facts import ALIASES, RELATION_IDS, World, make_world

MONTH, SEED = "2021-10", 0
INGEST = params.Ingest(max_reject_share=0.0, memory_gb=1.0)
POPQA = params.PopQA(
    source="wikidata", sampling="term_frequency", per_relation=2000, mix="drawn", total=None, refresh=False,
    train_share=0.25,
)  # fmt: skip


def world_of(entities: int) -> World:
    sizes = params.World(
        entities=entities, lm_documents=1, lm_shards=1, pile_documents=1, questions=1
    )
    return make_world(SEED, sizes)


def make_tables(folder: Path, entities: int) -> None:
    """The sample world's facts as the stages before write them, and the same as CSV; a third
    have a second object.
    """
    world = world_of(entities)
    rng, values = np.random.default_rng(SEED), len(world.value_labels)
    items = range(values + len(world.labels))
    labels = world.value_labels + world.labels
    aliases = [ALIASES.get(label, []) for label in world.value_labels]
    aliases += [
        [f"{label} the {i % 7}"] if i % 3 == 0 else [] for i, label in enumerate(world.labels)
    ]
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
    pq.write_table(
        pa.table(dict(zip("spo", facts.T, strict=True))), folder / "wikidata/claims.parquet"
    )
    pq.write_table(pa.table({"title": titles, "views": views}), folder / "popularity/views.parquet")
    counted = pa.table({"qid": qids, "term_frequency": frequencies})
    pq.write_table(counted, folder / "term_frequency/term_frequency.parquet")
    with (folder / "entities.csv").open("w", encoding="utf-8", newline="") as file:
        rows = zip(
            qids.tolist(),
            labels,
            map(json.dumps, aliases),
            titles,
            views,
            frequencies.tolist(),
            strict=True,
        )
        csv.writer(file).writerows(rows)
    with (folder / "claims.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(facts.tolist())


def longtail(folder: Path) -> None:
    """The stages `triples` and `popqa`."""
    build_triples(SimpleNamespace(ingest=INGEST, compute=SimpleNamespace(threads=1)), folder)
    settings = SimpleNamespace(
        seed=SEED, language="en", popqa=POPQA, popularity=SimpleNamespace(month=MONTH), ingest=INGEST,
        compute=SimpleNamespace(threads=1),
    )  # fmt: skip
    build_popqa(settings, folder / "popqa", folder / "triples/triples.parquet", folder / "none.tsv")


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
                names = [
                    name
                    for e in sorted(objects[s, p])
                    for name in (entities[e][0], *entities[e][1])
                ]
                writer.writerow([
                    number_of(f"Q{s}-P{p}-Q{o}"), subject[0], relation.name, thing[0], s, p, o,
                    json.dumps(subject[1], separators=(",", ":")), json.dumps(thing[1], separators=(",", ":")),
                    f"{ENTITY}Q{s}", f"{ENTITY}Q{o}", subject[2], thing[2], subject[3], thing[3],
                    relation.question(subject[0]), json.dumps(list(dict.fromkeys(names)), ensure_ascii=False),
                ])  # fmt: skip


def rows(quick: bool = False) -> list[Row]:
    entities, rounds = (2000, 1) if quick else (300_000, 3)
    with measure.in_folder() as folder:
        measure.alone(make_tables, folder, entities)
        triples = pq.read_metadata(folder / "wikidata/claims.parquet").num_rows
        theirs, ours = folder / "plain.tsv", folder / "popqa/popqa.tsv"
        return measure.beside(
            f"triples and PopQA's questions from {entities:,} entities", "csv, dicts and sort", "triples", triples,
            partial(measure.alone, plainly, folder, then=lambda _: theirs.read_bytes()),
            partial(measure.alone, longtail, folder, then=lambda _: ours.read_bytes()), rounds=rounds,
        )  # fmt: skip
