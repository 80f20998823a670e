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
from typing import NamedTuple

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

MONTH = "2021-10"
SEED = 0
FIRST_QID = 100
INGEST = params.Ingest(max_reject_share=0.0, memory_gb=1.0)
COMPUTE = SimpleNamespace(threads=1)
POPQA = params.PopQA(
    source="wikidata", sampling="term_frequency", per_relation=2000, refresh=False,
    train_share=0.25,
)  # fmt: skip


class Entity(NamedTuple):
    """A line of entities.csv."""

    label: str
    aliases: list[str]
    title: str
    views: int
    frequency: int

    def cell_of_aliases(self) -> str:
        return json.dumps(self.aliases, separators=(",", ":"))


def rows(quick: bool = False) -> list[Row]:
    entities = 2000 if quick else 300_000
    rounds = 1 if quick else 3
    with measure.in_folder() as folder:
        measure.alone(make_tables, folder, entities)
        n_triples = pq.read_metadata(folder / "wikidata/claims.parquet").num_rows
        theirs = folder / "plain.tsv"
        ours = folder / "popqa/popqa.tsv"
        return measure.beside(
            f"triples and PopQA's questions from {entities:,} entities",
            "csv, dicts and sort",
            "triples",
            n_triples,
            partial(measure.alone, plain, folder, then=lambda _: theirs.read_bytes()),
            partial(measure.alone, longtail, folder, then=lambda _: ours.read_bytes()),
            rounds=rounds,
        )


def world_of(entities: int) -> World:
    """The sample's world with so many entities, and few texts."""
    sizes = params.World(
        entities=entities, lm_documents=1, lm_shards=1, pile_documents=1, questions=1
    )
    return make_world(SEED, sizes)


def make_tables(folder: Path, entities: int) -> None:
    """The sample world's facts as the stages before write them, and the same as CSV."""
    world = world_of(entities)
    draw = np.random.default_rng(SEED)
    labels = world.value_labels + world.labels
    titles = [world.title(item) for item in range(len(labels))]
    views = [world.views(item) for item in range(len(labels))]
    aliases = aliases_of(world)
    qids = FIRST_QID + np.arange(len(labels))
    facts = draw_facts(world, draw)
    frequencies = draw.poisson(np.sqrt(views) / 10)

    for name in ("wikidata", "popularity", "term_frequency"):
        (folder / name).mkdir()
    tables = {
        "wikidata/entities": {
            "qid": qids,
            "label": labels,
            "aliases": aliases,
            "wiki_title": titles,
        },
        "wikidata/claims": {"s": facts[:, 0], "p": facts[:, 1], "o": facts[:, 2]},
        "popularity/views": {"title": titles, "views": views},
        "term_frequency/term_frequency": {"qid": qids, "term_frequency": frequencies},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")

    columns = (qids.tolist(), labels, map(json.dumps, aliases), titles, views, frequencies.tolist())
    with (folder / "entities.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))
    with (folder / "claims.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(facts.tolist())


def aliases_of(world: World) -> list[list[str]]:
    """The aliases of the world's values, and one for each third entity."""
    aliases = [ALIASES.get(label, []) for label in world.value_labels]
    for number, label in enumerate(world.labels):
        has_alias = number % 3 == 0
        aliases.append([f"{label} the {number % 7}"] if has_alias else [])
    return aliases


def draw_facts(world: World, draw: np.random.Generator) -> np.ndarray:
    """The world's facts, (n, 3) int of subject, property and object; a third have a second
    object.
    """
    entities = np.arange(len(world.labels)) + len(world.value_labels)
    subjects = np.repeat(entities, np.diff(world.offsets))
    has_second = draw.random(len(subjects)) < 1 / 3
    second_objects = np.empty_like(world.objects)
    for relation in range(len(RELATION_IDS)):
        of_relation = np.flatnonzero(world.relations == relation)
        second_objects[of_relation] = draw.permutation(world.objects[of_relation])

    relation_numbers = np.array([int(pid[1:]) for pid in RELATION_IDS])
    properties = relation_numbers[world.relations]
    first = np.stack([subjects + FIRST_QID, properties, world.objects + FIRST_QID], axis=1)
    second = np.stack([subjects + FIRST_QID, properties, second_objects + FIRST_QID], axis=1)
    facts = np.concatenate([first, second[has_second]])
    return np.unique(facts, axis=0)


def longtail(folder: Path) -> None:
    """The stages `triples` and `popqa`."""
    build_triples(SimpleNamespace(ingest=INGEST, compute=COMPUTE), folder)
    settings = SimpleNamespace(
        seed=SEED,
        language="en",
        popqa=POPQA,
        popularity=SimpleNamespace(month=MONTH),
        ingest=INGEST,
        compute=COMPUTE,
    )
    build_popqa(settings, folder / "popqa", folder / "triples/triples.parquet", folder / "none.tsv")


def plain(folder: Path) -> None:
    """All of it with csv, dicts and sort, a row at a time."""
    entities = read_entities(folder / "entities.csv")
    objects = defaultdict(list)  # of each subject and property
    sampled = defaultdict(list)  # place, subject and object of each property's triples
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            s, p, o = map(int, row)
            objects[s, p].append(o)
            key = f"Q{s}-P{p}-Q{o}"
            least = math.exp(8 * draws.uniform(SEED, "popqa.keep", key) - 6)
            if entities[s].frequency > least:
                place = draws.uniform(SEED, "popqa.place", key)
                sampled[p].append((place, s, o))

    with (folder / "plain.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(published.COLUMNS)
        for p in sorted(sampled):
            first = sorted(sampled[p])[: POPQA.per_relation]
            for s, o in sorted((s, o) for _, s, o in first):
                answers = [entities[answer] for answer in sorted(objects[s, p])]
                writer.writerow(question_cells(entities, s, p, o, answers))


def read_entities(file: Path) -> dict[int, Entity]:
    """Entities by number."""
    entities = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for qid, label, aliases, title, views, frequency in csv.reader(lines):
            entities[int(qid)] = Entity(
                label, json.loads(aliases), title, int(views), int(frequency)
            )
    return entities


def question_cells(
    entities: dict[int, Entity], s: int, p: int, o: int, answers: list[Entity]
) -> list:
    """The cells of a triple's question, whose right answers are all names of `answers`."""
    relation = RELATIONS[f"P{p}"]
    subject = entities[s]
    thing = entities[o]
    names = []
    for answer in answers:
        names += [answer.label, *answer.aliases]
    return [
        number_of(f"Q{s}-P{p}-Q{o}"),
        subject.label,
        relation.name,
        thing.label,
        s,
        p,
        o,
        subject.cell_of_aliases(),
        thing.cell_of_aliases(),
        f"{ENTITY}Q{s}",
        f"{ENTITY}Q{o}",
        subject.title,
        thing.title,
        subject.views,
        thing.views,
        relation.question(subject.label),
        json.dumps(list(dict.fromkeys(names)), ensure_ascii=False),
    ]
