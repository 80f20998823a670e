"""The sample's fictional world: its entities with their names, popularity and facts, as arrays that hold millions."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import yaml

from pipelines import draws
from pipelines.params import params

_KINDS = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8"))
TYPES: dict[str, tuple[float, list[str]]] = _KINDS["types"]
VALUES: dict[str, list[str] | int] = _KINDS["values"]
OBJECTS, ALIASES, MMLU_SUBJECTS = _KINDS["objects"], _KINDS["aliases"], _KINDS["mmlu_subjects"]
TYPE_NAMES, RELATION_IDS = tuple(TYPES), tuple(OBJECTS)
FACTS = 4  # of one entity, at most
POPULARITY_MEAN, POPULARITY_SD = 3.3, 1.0  # of log10 of the monthly page views
NAMESAKE_SHARE = 0.55  # share of entities that have the name of a more popular entity
BLOCK = 10_000  # entities in one call of a random generator

_ONSETS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr", "st", "pl"]
_VOWELS = list("aeiou")
_CODAS = ["", "n", "l", "r", "s", "m"]


@dataclass(frozen=True)
class World:
    """All entities and values. Items are numbered: first the values, then the entities.

    types, popularity, same_name: (entities,); same_name counts the more popular entities with the same label.
    offsets: (entities + 1,); relations, objects: (facts,). Entity i has the facts offsets[i] to offsets[i + 1]. A
    relation is its position in RELATION_IDS, an object is an item.
    """

    seed: int
    value_labels: list[str]
    value_classes: list[str]
    labels: list[str]
    types: np.ndarray
    popularity: np.ndarray
    same_name: np.ndarray
    offsets: np.ndarray
    relations: np.ndarray
    objects: np.ndarray
    first_names: list[str]
    last_names: list[str]
    pools: dict[str, np.ndarray]  # class or type -> its items

    def item(self, entity: int) -> int:
        return len(self.value_labels) + entity

    def type_name(self, entity: int) -> str:
        return TYPE_NAMES[self.types[entity]]

    def item_label(self, item: int) -> str:
        values = len(self.value_labels)
        return self.value_labels[item] if item < values else self.labels[item - values]

    def qid(self, item: int) -> str:
        """The Wikidata id of an item; it tells nothing about popularity."""
        return f"Q{100 + item}"

    def title(self, item: int) -> str:
        """The Wikipedia title: the label, with the type and a number if a more popular entity has the same label."""
        label, entity = self.item_label(item), item - len(self.value_labels)
        if entity < 0:
            return label[0].upper() + label[1:]
        rank = int(self.same_name[entity])
        return f"{label} ({self.type_name(entity)}, {1800 + rank})" if rank else label

    def facts(self, entity: int) -> list[tuple[str, int]]:
        """The entity's facts as (relation, object item)."""
        span = slice(self.offsets[entity], self.offsets[entity + 1])
        return [
            (RELATION_IDS[r], int(o))
            for r, o in zip(self.relations[span], self.objects[span], strict=True)
        ]

    def labelled_facts(self, entity: int) -> list[tuple[str, str]]:
        """The entity's facts as (relation, object's label)."""
        return [(relation, self.item_label(item)) for relation, item in self.facts(entity)]

    def views(self, item: int) -> int:
        """Views of the item's page in the month."""
        entity = item - len(self.value_labels)
        return int(self.popularity[entity]) if entity >= 0 else 10_000 + 97 * item

    def asked_as_evaluated(self, entity: int) -> bool:
        """Whether C4 asks about this entity in the wordings of the evaluation; true for half of the entities."""
        return draws.uniform(self.seed, "world/wording", self.qid(self.item(entity))) < 0.5

    def blocks(self, purpose: str) -> Iterator[tuple[range, np.random.Generator]]:
        """Yield BLOCK entities at a time, each block with its own random generator."""
        for start in range(0, len(self.labels), BLOCK):
            rng = draws.generator(self.seed, f"world/{purpose}", str(start))
            yield range(start, min(start + BLOCK, len(self.labels))), rng

    def page_draws(self, purpose: str) -> Iterator[tuple[int, list[int]]]:
        """Yield every entity with 24 random numbers, enough for one page about it."""
        for block, rng in self.blocks(purpose):
            yield from zip(block, rng.integers(0, 1 << 30, (len(block), 24)).tolist(), strict=True)


def make_world(seed: int, sizes: params.World) -> World:
    """Draw a world: log-normal popularity, shared names, at most FACTS facts for each entity."""
    rng = draws.generator(seed, "world/entities")
    shares = np.array([share for share, _ in TYPES.values()])
    counts = np.maximum(2, np.round(shares * sizes.entities)).astype(np.int64)
    counts[0] = max(2, sizes.entities - counts[1:].sum())
    types = rng.permutation(np.repeat(np.arange(len(TYPES), dtype=np.int8), counts))
    n, city = len(types), TYPE_NAMES.index("city")
    popularity = np.maximum(1, 10 ** rng.normal(POPULARITY_MEAN, POPULARITY_SD, n)).astype(np.int64)

    first_count, last_count = max(80, int(n**0.5)), max(160, int(2 * n**0.5))
    place_count = int(counts[city] + counts[TYPE_NAMES.index("country")])
    word_counts = (first_count, last_count, VALUES["religion"], place_count)
    words = iter(_words(draws.generator(seed, "world/words"), sum(word_counts)))
    first_names, last_names, religions, place_names = (
        list(islice(words, count)) for count in word_counts
    )
    values = VALUES | {"religion": religions}
    value_labels = [label for labels in values.values() for label in labels]
    value_classes = [name for name, labels in values.items() for _ in labels]

    names = _names(rng, types, popularity, first_count * last_count)
    place = np.full(n, -1, np.int64)
    place[types >= city] = np.unique(names[types >= city], return_inverse=True)[1]
    labels = [
        place_names[p]
        if p >= 0
        else f"{first_names[name // last_count]} {last_names[name % last_count]}"
        for name, p in zip(names.tolist(), place.tolist(), strict=True)
    ]
    classes = np.array(value_classes)
    pools = {c: np.flatnonzero(classes == c) for c in VALUES}
    pools |= {t: len(value_labels) + np.flatnonzero(types == i) for i, t in enumerate(TYPE_NAMES)}
    offsets, relations, objects = _facts(rng, types, pools, len(value_labels))
    positions, order = np.arange(n), np.lexsort((np.arange(n), -popularity, names))
    new_name, ranks = np.r_[True, np.diff(names[order]) != 0], np.empty(n, np.int64)
    ranks[order] = positions - np.maximum.accumulate(np.where(new_name, positions, 0))
    return World(
        seed, value_labels, value_classes, labels, types, popularity, ranks, offsets, relations, objects, first_names,
        last_names, pools,
    )  # fmt: skip


def _words(rng: np.random.Generator, n: int) -> list[str]:
    """`n` different capitalised words of two syllables, or of three if `n` is large."""
    words: dict[str, None] = {}
    pools = [_ONSETS, _VOWELS] * (2 if n < 5000 else 3) + [_CODAS]
    while len(words) < n:
        parts = [rng.choice(pool, 2 * (n - len(words)) + 16) for pool in pools]
        words |= dict.fromkeys("".join(pieces).capitalize() for pieces in zip(*parts, strict=True))
    return list(words)[:n]


def _names(
    rng: np.random.Generator, types: np.ndarray, popularity: np.ndarray, space: int
) -> np.ndarray:
    """The number of each entity's name, below `space`. NAMESAKE_SHARE have the name of a more popular entity.

    Persons, films, books and clubs share names with each other, and cities with cities. The namesake is drawn from all
    more popular entities, so that the best known entities have the most namesakes.
    """
    numbers, namesake = rng.permutation(space)[: len(types)], np.arange(len(types))
    city = TYPE_NAMES.index("city")
    for members in (np.flatnonzero(types < city), np.flatnonzero(types == city)):
        members = members[np.lexsort((members, -popularity[members]))]
        shared = rng.random(len(members)) < NAMESAKE_SHARE
        shared[:1] = False
        originals = members[~shared]
        more_popular = np.cumsum(~shared)[shared]  # among the originals
        namesake[members[shared]] = originals[
            (more_popular * rng.random(len(more_popular))).astype(np.int64)
        ]
    return numbers[namesake]


def _facts(
    rng: np.random.Generator, types: np.ndarray, pools: dict[str, np.ndarray], values: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The facts as (offsets, relations, objects), see World. A country's capital lies in that country."""
    subjects, relations, objects = [], [], []
    cities, countries = pools["city"], pools["country"]
    # The first cities are the capitals: city i is the capital of country i.
    home = np.r_[
        np.arange(len(countries)),
        rng.integers(0, len(countries), max(0, len(cities) - len(countries))),
    ]
    home = countries[home[: len(cities)]]
    for kind, (type_name, (_, allowed)) in enumerate(TYPES.items()):
        members = np.flatnonzero(types == kind)
        chosen = np.argsort(rng.random((len(members), len(allowed))), axis=1)[:, :FACTS]
        for column, relation in enumerate(allowed):
            who = members[(chosen == column).any(axis=1)]
            pool = pools[OBJECTS[relation]]
            if relation == "P36":
                who, what = who[: len(cities)], cities[: len(who)]
            elif relation == "P1376":
                who, what = who[: len(countries)], countries[: len(cities)]
            elif relation == "P17" and type_name == "city":
                what = home
            else:
                pick = rng.integers(0, len(pool), len(who))
                # Nobody is their own father, so an object that is the subject becomes the next one of its pool.
                what = np.where(
                    pool[pick] == who + values, pool[(pick + 1) % len(pool)], pool[pick]
                )
            subjects.append(who)
            relations.append(np.full(len(who), RELATION_IDS.index(relation), np.int8))
            objects.append(what)
    subject, relation, item = (
        np.concatenate(subjects),
        np.concatenate(relations),
        np.concatenate(objects),
    )
    order = np.lexsort((relation, subject))
    return np.searchsorted(subject[order], np.arange(len(types) + 1)), relation[order], item[order]
