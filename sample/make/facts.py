"""The sample's fictional world: its entities with their names, popularity and facts, as arrays that
hold millions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import yaml

from pipelines import draws
from sample.make.sizes import WorldSizes

_KINDS = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8"))
TYPES: dict[str, tuple[float, list[str]]] = _KINDS["types"]
VALUES: dict[str, list[str] | int] = _KINDS["values"]
OBJECTS: dict[str, str] = _KINDS["objects"]
ALIASES: dict[str, list[str]] = _KINDS["aliases"]
MMLU_SUBJECTS: dict[str, list[str]] = _KINDS["mmlu_subjects"]
TYPE_NAMES = tuple(TYPES)
CITY = TYPE_NAMES.index("city")
COUNTRY = TYPE_NAMES.index("country")
RELATION_IDS = tuple(OBJECTS)

FACTS_PER_ENTITY = 4  # at most
POPULARITY_MEAN = 3.3  # of log10 of the monthly page views
POPULARITY_SD = 1.0
NAMESAKE_SHARE = 0.55  # share of entities that have the name of a more popular entity
ENTITIES_PER_BLOCK = 10_000  # entities in one call of a random generator
NUMBERS_PER_PAGE = 24  # random numbers, enough for one page about an entity
MAX_DRAW = 1 << 30  # random numbers are below it

_ONSETS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr", "st", "pl"]
_VOWELS = list("aeiou")
_CODAS = ["", "n", "l", "r", "s", "m"]


@dataclass(frozen=True)
class World:
    """All entities and values. Items are numbered: first the values, then the entities.

    types, popularity, same_name: (entities,); same_name counts the more popular entities with the
    same label. offsets: (entities + 1,); relations, objects: (facts,). Entity i has the facts
    offsets[i] to offsets[i + 1]. A relation is its position in RELATION_IDS, an object is an item.
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

    @property
    def items(self) -> range:
        """All items."""
        return range(len(self.value_labels) + len(self.labels))

    @cached_property
    def distinct_labels(self) -> set[str]:
        """The labels of all entities."""
        return set(self.labels)

    def item(self, entity: int) -> int:
        return len(self.value_labels) + entity

    def type_name(self, entity: int) -> str:
        return TYPE_NAMES[self.types[entity]]

    def item_label(self, item: int) -> str:
        values = len(self.value_labels)
        if item < values:
            return self.value_labels[item]
        return self.labels[item - values]

    def qid(self, item: int) -> str:
        """The Wikidata id of an item; it tells nothing about popularity."""
        return f"Q{100 + item}"

    def title(self, item: int) -> str:
        """The Wikipedia title of an item.

        It is the label, with the type and a number if a more popular entity has the same label.
        """
        label = self.item_label(item)
        entity = item - len(self.value_labels)
        if entity < 0:
            return label[0].upper() + label[1:]
        rank = int(self.same_name[entity])
        if rank == 0:
            return label
        return f"{label} ({self.type_name(entity)}, {1800 + rank})"

    def facts(self, entity: int) -> list[tuple[str, int]]:
        """The entity's facts as (relation, object item)."""
        first, stop = self.offsets[entity : entity + 2]
        relations = [RELATION_IDS[relation] for relation in self.relations[first:stop]]
        objects = self.objects[first:stop].tolist()
        return list(zip(relations, objects, strict=True))

    def labelled_facts(self, entity: int) -> list[tuple[str, str]]:
        """The entity's facts as (relation, object's label)."""
        facts = self.facts(entity)
        return [(relation, self.item_label(item)) for relation, item in facts]

    def views(self, item: int) -> int:
        """Views of the item's page in the month."""
        entity = item - len(self.value_labels)
        if entity < 0:
            return 10_000 + 97 * item
        return int(self.popularity[entity])

    def asked_as_evaluated(self, entity: int) -> bool:
        """Whether C4 asks about this entity in the evaluation's wordings; true for half of the
        entities.
        """
        qid = self.qid(self.item(entity))
        return draws.uniform(self.seed, "world/wording", qid) < 0.5

    def blocks(self, purpose: str) -> Iterator[tuple[range, np.random.Generator]]:
        """Yield ENTITIES_PER_BLOCK entities at a time, each block with its own random generator."""
        for start in range(0, len(self.labels), ENTITIES_PER_BLOCK):
            end = min(start + ENTITIES_PER_BLOCK, len(self.labels))
            rng = draws.generator(self.seed, f"world/{purpose}", str(start))
            yield range(start, end), rng

    def page_draws(self, purpose: str) -> Iterator[tuple[int, list[int]]]:
        """Yield every entity with NUMBERS_PER_PAGE random numbers, enough for one page about it."""
        for block, rng in self.blocks(purpose):
            numbers = rng.integers(0, MAX_DRAW, (len(block), NUMBERS_PER_PAGE))
            yield from zip(block, numbers.tolist(), strict=True)


def make_world(seed: int, sizes: WorldSizes) -> World:
    """Draw a world: log-normal popularity, shared names, at most FACTS_PER_ENTITY facts for each
    entity.
    """
    rng = draws.generator(seed, "world/entities")
    counts = _counts_by_type(sizes.entities)
    type_numbers = np.arange(len(TYPES), dtype=np.int8)
    types = rng.permutation(np.repeat(type_numbers, counts))
    entities = len(types)
    logs = rng.normal(POPULARITY_MEAN, POPULARITY_SD, entities)
    popularity = np.maximum(1, 10**logs).astype(np.int64)

    first_count = max(80, int(entities**0.5))
    last_count = max(160, int(2 * entities**0.5))
    place_count = int(counts[CITY] + counts[COUNTRY])
    religion_count = VALUES["religion"]
    word_count = first_count + last_count + religion_count + place_count
    words = iter(_words(draws.generator(seed, "world/words"), word_count))
    first_names = list(islice(words, first_count))
    last_names = list(islice(words, last_count))
    religions = list(islice(words, religion_count))
    place_names = list(words)

    value_labels: list[str] = []
    value_classes: list[str] = []
    for class_name, class_labels in (VALUES | {"religion": religions}).items():
        value_labels += class_labels
        value_classes += [class_name] * len(class_labels)

    names = _names(rng, types, popularity, first_count * last_count)
    labels = _labels(names, types, first_names, last_names, place_names)
    pools = _pools(value_classes, types)
    offsets, relations, objects = _facts(rng, types, pools, len(value_labels))
    return World(
        seed=seed,
        value_labels=value_labels,
        value_classes=value_classes,
        labels=labels,
        types=types,
        popularity=popularity,
        same_name=_namesake_ranks(names, popularity),
        offsets=offsets,
        relations=relations,
        objects=objects,
        first_names=first_names,
        last_names=last_names,
        pools=pools,
    )


def _counts_by_type(entities: int) -> np.ndarray:
    """The number of entities of each type, (types,); at least two of each."""
    shares = np.array([share for share, _ in TYPES.values()])
    rounded = np.round(shares * entities).astype(np.int64)
    counts = np.maximum(2, rounded)
    counts[0] = max(2, entities - counts[1:].sum())
    return counts


def _words(rng: np.random.Generator, count: int) -> list[str]:
    """`count` different capitalised words of two syllables, or of three if there are many."""
    syllables = 2 if count < 5000 else 3
    pools = [_ONSETS, _VOWELS] * syllables + [_CODAS]
    words: dict[str, None] = {}  # each once, in order
    while len(words) < count:
        attempts = 2 * (count - len(words)) + 16
        parts = [rng.choice(pool, attempts) for pool in pools]
        for word_parts in zip(*parts, strict=True):
            words["".join(word_parts).capitalize()] = None
    return list(words)[:count]


def _names(
    rng: np.random.Generator, types: np.ndarray, popularity: np.ndarray, space: int
) -> np.ndarray:
    """The number of each entity's name, below `space`. NAMESAKE_SHARE have the name of a more
    popular entity.

    Persons, films, books and clubs share names with each other, and cities with cities. The
    namesake is drawn from all more popular entities, so that the best known entities have the most
    namesakes.
    """
    names = rng.permutation(space)[: len(types)]
    named_after = np.arange(len(types))  # the entity that has an entity's name first
    for shares_names in (types < CITY, types == CITY):
        members = np.flatnonzero(shares_names)
        by_popularity = np.argsort(-popularity[members], kind="stable")
        members = members[by_popularity]
        is_namesake = rng.random(len(members)) < NAMESAKE_SHARE
        is_namesake[:1] = False  # there is nobody more popular

        originals = members[~is_namesake]
        n_more_popular = np.cumsum(~is_namesake)[is_namesake]  # originals, for each namesake
        ranks = (n_more_popular * rng.random(len(n_more_popular))).astype(np.int64)
        named_after[members[is_namesake]] = originals[ranks]

    return names[named_after]


def _labels(
    names: np.ndarray,
    types: np.ndarray,
    first_names: list[str],
    last_names: list[str],
    place_names: list[str],
) -> list[str]:
    """The label of each entity: a place's name is one word, any other name two."""
    is_place = types >= CITY
    places = np.full(len(types), -1, np.int64)
    _, places[is_place] = np.unique(names[is_place], return_inverse=True)
    labels = []
    for name, place in zip(names.tolist(), places.tolist(), strict=True):
        if place >= 0:
            labels.append(place_names[place])
        else:
            first, last = divmod(name, len(last_names))
            labels.append(f"{first_names[first]} {last_names[last]}")

    return labels


def _pools(value_classes: list[str], types: np.ndarray) -> dict[str, np.ndarray]:
    """Class or type -> its items."""
    pools = {}
    type_names = np.array(TYPE_NAMES)[types]
    classes = np.concatenate([value_classes, type_names])
    for class_name in (*VALUES, *TYPES):
        pools[class_name] = np.flatnonzero(classes == class_name)
    return pools


def _namesake_ranks(names: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """The number of more popular entities with the same name, (entities,)."""
    positions = np.arange(len(names))
    order = np.lexsort((positions, -popularity, names))
    is_new_name = np.diff(names[order], prepend=-1) != 0
    first_positions = np.where(is_new_name, positions, 0)
    first_of_name = np.maximum.accumulate(first_positions)
    ranks = np.empty(len(names), np.int64)
    ranks[order] = positions - first_of_name
    return ranks


def _facts(
    rng: np.random.Generator, types: np.ndarray, pools: dict[str, np.ndarray], values: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The facts as (offsets, relations, objects), see World. A country's capital lies in that
    country.
    """
    cities = pools["city"]
    countries = pools["country"]
    capitals = min(len(cities), len(countries))
    # (type, relation) -> the object of each entity of the type, or of the first ones
    linked = {
        ("city", "P17"): _countries_of_cities(rng, cities, countries),
        ("city", "P1376"): countries[:capitals],
        ("country", "P36"): cities[:capitals],
    }

    subject_parts = []
    relation_parts = []
    object_parts = []
    for type_number, type_name in enumerate(TYPES):
        _, type_relations = TYPES[type_name]
        members = np.flatnonzero(types == type_number)
        keys = rng.random((len(members), len(type_relations)))
        drawn = np.argsort(keys, axis=1)[:, :FACTS_PER_ENTITY]
        for column, relation in enumerate(type_relations):
            places = np.flatnonzero((drawn == column).any(axis=1))
            linked_objects = linked.get((type_name, relation))
            if linked_objects is None:
                subjects = members[places]
                pool = pools[OBJECTS[relation]]
                objects = _draw_objects(rng, pool, subjects + values)
            else:
                places = places[places < len(linked_objects)]
                subjects = members[places]
                objects = linked_objects[places]

            subject_parts.append(subjects)
            relation_number = RELATION_IDS.index(relation)
            relations = np.full(len(subjects), relation_number, np.int8)
            relation_parts.append(relations)
            object_parts.append(objects)

    subjects = np.concatenate(subject_parts)
    relations = np.concatenate(relation_parts)
    objects = np.concatenate(object_parts)
    order = np.lexsort((relations, subjects))
    entities = np.arange(len(types) + 1)
    offsets = np.searchsorted(subjects[order], entities)
    return offsets, relations[order], objects[order]


def _countries_of_cities(
    rng: np.random.Generator, cities: np.ndarray, countries: np.ndarray
) -> np.ndarray:
    """The country of each city, (cities,). The first cities are the capitals: city i is country
    i's.
    """
    others = max(0, len(cities) - len(countries))
    drawn = rng.integers(0, len(countries), others)
    countries_in_order = np.concatenate([countries, countries[drawn]])
    return countries_in_order[: len(cities)]


def _draw_objects(
    rng: np.random.Generator, pool: np.ndarray, subject_items: np.ndarray
) -> np.ndarray:
    """An object from the pool for each subject.

    Nobody is their own father, so an object that is the subject becomes the next one of its pool.
    """
    places = rng.integers(0, len(pool), len(subject_items))
    is_subject = pool[places] == subject_items
    places = (places + is_subject) % len(pool)
    return pool[places]
