"""The entities, names, popularity and facts of the sample's fictional world, as arrays: a million entities fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines import draws, params

# What a subject of each type can be asked, and the share of the entities that are of the type. At most FACTS relations
# of a type are drawn for one entity, so that a page never says everything that could be asked.
TYPES: dict[str, tuple[float, tuple[str, ...]]] = {
    "person": (0.36, ("P106", "P19", "P22", "P25", "P140", "P641")),
    "film": (0.27, ("P57", "P58", "P162", "P86", "P136")),
    "book": (0.13, ("P50", "P136")),
    "club": (0.13, ("P641", "P17", "P462")),
    "city": (0.07, ("P17", "P1376")),
    "country": (0.04, ("P36", "P140")),
}
TYPE_NAMES = tuple(TYPES)
FACTS = 4

# What a relation's object is: a type of entity, or a class of values.
OBJECTS = {
    "P106": "occupation", "P19": "city", "P22": "person", "P25": "person", "P140": "religion", "P641": "sport",
    "P57": "person", "P58": "person", "P162": "person", "P86": "person", "P136": "genre", "P50": "person",
    "P17": "country", "P462": "color", "P36": "city", "P1376": "country",
}  # fmt: skip
RELATION_IDS = tuple(OBJECTS)

VALUES: dict[str, str | int] = {
    "occupation": "painter singer lawyer dancer farmer baker pilot judge teacher sculptor banker surgeon chemist "
    "soldier sailor tailor miner poet writer weaver butcher carpenter diplomat priest",
    "sport": "football tennis rugby cricket hockey golf polo boxing rowing fencing judo handball volleyball baseball "
    "basketball badminton curling squash",
    "genre": "drama comedy thriller western romance horror mystery fantasy satire fable tragedy adventure history "
    "documentary noir parody",
    "color": "red blue green yellow black white purple brown pink grey scarlet golden",
    "religion": 10,  # that many made-up names
}
ALIASES = {  # other names of values; answers may be given by them
    "painter": ["fine painter"], "singer": ["vocalist"], "lawyer": ["barrister"], "football": ["soccer"],
    "grey": ["gray"], "comedy": ["comic work"], "thriller": ["suspense"], "golden": ["gold"],
}  # fmt: skip

_ONSETS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr", "st", "pl"]
_VOWELS = list("aeiou")
_CODAS = ["", "n", "l", "r", "s", "m"]


@dataclass(frozen=True)
class World:
    """Values come first in the numbering of items, then the entities: item = value, or len(value_labels) + entity.

    types, popularity, same_name: (entities,); same_name counts the more popular entities of the same label.
    offsets (entities + 1,), relations, objects (facts,): facts[offsets[i]:offsets[i+1]] are entity i's, relations by
    their position in RELATION_IDS, objects as items.
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

    def item_label(self, item: int) -> str:
        """The English label of a value or an entity."""
        values = len(self.value_labels)
        return self.value_labels[item] if item < values else self.labels[item - values]

    def qid(self, item: int) -> str:
        """The Wikidata id of an item; neither its order nor its size tells anything about popularity."""
        return f"Q{100 + item}"

    def title(self, item: int) -> str:
        """The Wikipedia title: the label, told apart from more popular namesakes as Wikipedia does."""
        label, entity = self.item_label(item), item - len(self.value_labels)
        if entity < 0:
            return label[0].upper() + label[1:]
        rank = int(self.same_name[entity])
        return f"{label} ({TYPE_NAMES[self.types[entity]]}, {1800 + rank})" if rank else label

    def facts(self, entity: int) -> list[tuple[str, int]]:
        """(relation, object item) of an entity."""
        span = slice(self.offsets[entity], self.offsets[entity + 1])
        return [(RELATION_IDS[r], int(o)) for r, o in zip(self.relations[span], self.objects[span], strict=True)]

    def views(self, item: int) -> int:
        """Page views of an item's page in the month."""
        entity = item - len(self.value_labels)
        return int(self.popularity[entity]) if entity >= 0 else 10_000 + 97 * item

    def asked_as_evaluated(self, entity: int) -> bool:
        """Whether the language model's text asks about this entity in the wordings of the evaluation (half of them)."""
        return draws.uniform(self.seed, "world/wording", self.qid(entity + len(self.value_labels))) < 0.5


def make_world(seed: int, world: params.World) -> World:
    """Draw the world: log-normal popularity, shared names, up to FACTS facts an entity."""
    n = world.entities
    rng = draws.generator(seed, "world/entities")
    shares = np.array([share for share, _ in TYPES.values()])
    counts = np.maximum(2, np.round(shares * n)).astype(np.int64)
    counts[0] = max(2, n - counts[1:].sum())
    types = rng.permutation(np.repeat(np.arange(len(TYPES), dtype=np.int8), counts))
    n = len(types)
    popularity = np.maximum(1, 10 ** rng.normal(world.popularity_mean, world.popularity_sd, n)).astype(np.int64)

    firsts, lasts = max(80, int(n**0.5)), max(160, int(2 * n**0.5))
    religions, places = VALUES["religion"], int(counts[TYPE_NAMES.index("city")] + counts[TYPE_NAMES.index("country")])
    words = _words(draws.generator(seed, "world/words"), firsts + lasts + religions + places)
    first_names, last_names = words[:firsts], words[firsts : firsts + lasts]
    value_labels, value_classes = [], []
    for name, labels in VALUES.items():
        labels = labels.split() if isinstance(labels, str) else words[firsts + lasts : firsts + lasts + religions]
        value_labels += labels
        value_classes += [name] * len(labels)

    name = _names(rng, types, popularity, firsts * lasts, world.namesake_share)
    place_words = words[firsts + lasts + religions :]
    is_place = types >= TYPE_NAMES.index("city")
    place = np.full(n, -1, np.int64)
    place[is_place] = np.unique(name[is_place], return_inverse=True)[1]
    labels = [
        place_words[p] if p >= 0 else f"{first_names[k // lasts]} {last_names[k % lasts]}"
        for k, p in zip(name.tolist(), place.tolist(), strict=True)
    ]
    values = len(value_labels)
    classes = np.array(value_classes)
    pools = {c: np.flatnonzero(classes == c) for c in VALUES}
    pools |= {t: values + np.flatnonzero(types == i) for i, t in enumerate(TYPE_NAMES)}
    offsets, relations, objects = _facts(rng, types, pools, values)
    return World(
        seed, value_labels, value_classes, labels, types, popularity, _ranks(name, popularity), offsets, relations,
        objects, first_names, last_names, pools,
    )  # fmt: skip


def _words(rng: np.random.Generator, n: int) -> list[str]:
    """`n` different capitalised words of two syllables, or three where that many would be too few."""
    found: dict[str, None] = {}
    syllables = 2 if n < 5000 else 3
    while len(found) < n:
        size = 2 * (n - len(found)) + 16
        pools = [_ONSETS, _VOWELS] * syllables + [_CODAS]
        parts = [rng.choice(pool, size) for pool in pools]
        for pieces in zip(*parts, strict=True):
            found["".join(pieces).capitalize()] = None
    return list(found)[:n]


def _names(rng: np.random.Generator, types: np.ndarray, popularity: np.ndarray, space: int, share: float) -> np.ndarray:
    """A name's number for each entity: its own, or with probability `share` that of a more popular one.

    Persons, films, books and clubs share names with each other, cities with cities; two countries of one name would
    make every address in them ambiguous. The namesake is any of those more popular, so that the best known share theirs
    with the most, as in life.
    """
    n = len(types)
    own = rng.permutation(space)[:n]
    parent = np.arange(n)
    city = TYPE_NAMES.index("city")
    for members in (np.flatnonzero(types < city), np.flatnonzero(types == city)):  # places are called by other words
        members = members[np.lexsort((members, -popularity[members]))]
        shared = rng.random(len(members)) < share
        shared[:1] = False
        originals = members[~shared]
        above = np.cumsum(~shared)[shared]  # more popular entities with a name of their own
        parent[members[shared]] = originals[(above * rng.random(len(above))).astype(np.int64)]
    return own[parent]


def _ranks(name: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """How many more popular entities have the same name, (entities,)."""
    order = np.lexsort((np.arange(len(name)), -popularity, name))
    new = np.r_[True, np.diff(name[order]) != 0]
    start = np.maximum.accumulate(np.where(new, np.arange(len(name)), 0))
    ranks = np.empty(len(name), np.int64)
    ranks[order] = np.arange(len(name)) - start
    return ranks


def _facts(
    rng: np.random.Generator, types: np.ndarray, pools: dict[str, np.ndarray], values: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The facts as (offsets, relations, objects), see World. A country's capital lies in it and is its capital."""
    subjects, relations, objects = [], [], []
    cities, countries = pools["city"], pools["country"]
    home = np.r_[np.arange(len(countries)), rng.integers(0, len(countries), max(0, len(cities) - len(countries)))]
    home = countries[home[: len(cities)]]  # the first cities, one for each country, are the capitals
    for kind, (_, allowed) in enumerate(TYPES.values()):
        members = np.flatnonzero(types == kind)
        chosen = np.argsort(rng.random((len(members), len(allowed))), axis=1)[:, :FACTS]
        for column, relation in enumerate(allowed):
            who = members[(chosen == column).any(axis=1)]
            pool = pools[OBJECTS[relation]]
            if relation == "P36":
                who, what = who[: len(cities)], cities[: len(who)]
            elif relation == "P1376":
                who, what = who[: len(countries)], countries[: len(cities)]
            elif relation == "P17" and TYPE_NAMES[kind] == "city":
                what = home
            else:
                pick = rng.integers(0, len(pool), len(who))
                what = pool[pick]
                what = np.where(what == who + values, pool[(pick + 1) % len(pool)], what)  # nobody's own father
            subjects.append(who)
            relations.append(np.full(len(who), RELATION_IDS.index(relation), np.int8))
            objects.append(what)
    subject, relation, item = np.concatenate(subjects), np.concatenate(relations), np.concatenate(objects)
    order = np.lexsort((relation, subject))
    offsets = np.searchsorted(subject[order], np.arange(len(types) + 1))
    return offsets, relation[order], item[order]
