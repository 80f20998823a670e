"""Reading a Wikidata dump: the stage `entities` beside plain Python, on a generated dump and on real entities.

Each way reads the same file and pulls out the same: label, aliases, article and best answers of every item with an
English label or article. Real entities are those of $LONGTAIL_REAL/wikidata, as often as makes a file of some size.
Generated ones have the shape of the real dump: SHAPES are rough figures for the Wikidata of 2026, so that an entity
takes the 15 kB that it takes there on the average. Keys, their order and the layout of statements are the dump's own.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
from concurrent.futures import Executor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row
from pipelines import language, shards
from pipelines.knowledge import entities
from pipelines.pool import processes
from pipelines.relations import RELATIONS
from pipelines.sources import streams, wikidata

PROPERTIES = tuple(RELATIONS)
PEER = "gzip, json.loads of each line"
REAL = "wikidata/wikibase-dump-filter_entities.json"
# Roughly by how often Wikidata has a label in them.
LANGUAGES = [
    "en", "nl", "fr", "de", "es", "sv", "it", "ru", "ar", "uk", "pt", "ast", "pl", "ca", "zh", "ja", "nb", "bn", "he",
    "fa", "tr", "da", "cs", "fi", "vi", "hu", "ro", "id", "ko", "sq", "el", "gl", "nn", "eu", "ga", "eo", "sr", "th",
    "hy", "tg", "bg", "et", "sk", "ka", "hi", "lv", "sl", "hr", "be", "ms", "ta", "te", "mk", "lt", "cy", "la", "az",
    "ur", "kk", "af", "is", "uz", "arz", "en-gb", "en-ca", "zh-hans", "zh-hant", "pt-br", "de-ch", "sh", "br", "ml",
    "mr", "pa", "oc", "an", "tl", "sw", "ceb", "min",
]  # fmt: skip
ITEM_VALUED = [
    "P31", "P17", "P131", "P106", "P19", "P20", "P27", "P21", "P136", "P50", "P57", "P86", "P921", "P1433", "P2860",
    "P279", "P361", "P495", "P407", "P140",
]  # fmt: skip
TEXT_VALUED = [
    "P214", "P227", "P244", "P356", "P698", "P1476", "P2093", "P304", "P433", "P478", "P646", "P373",
]  # fmt: skip
SOURCES = [("P143", 328), ("P143", 48183), ("P248", 5188229), ("P248", 180686), ("P248", 36578)]
SCRIPTS = [(0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939), (0x4E00, 0x5F00)]


class Shape(NamedTuple):
    """A kind of entity; a pair is the least and the most there is of something, drawn uniformly."""

    share: float
    labels: tuple[int, int]
    descriptions: tuple[int, int]
    aliases: tuple[int, int]
    statements: tuple[int, int]
    wikis: tuple[int, int]
    english_label: float
    english_article: bool


SHAPES = [
    Shape(0.36, (1, 4), (2, 45), (0, 1), (12, 28), (0, 0), 0.97, False),  # scholarly articles
    Shape(0.34, (1, 8), (1, 20), (0, 1), (4, 14), (0, 1), 0.72, False),  # categories, stars, genes, hamlets
    Shape(0.20, (2, 30), (2, 25), (0, 6), (10, 30), (1, 4), 0.72, False),  # what other Wikipedias have
    Shape(0.10, (8, 70), (5, 40), (2, 30), (15, 60), (2, 40), 1.00, True),  # what the English Wikipedia has
]


def plain(dump: Path) -> list[tuple]:
    """What a script would do: the gzip module, and json.loads on every line."""
    found = []
    with gzip.open(dump) as file:
        for raw in file:
            line = raw.strip().rstrip(b",")
            if line in (b"[", b"]", b""):
                continue
            entity = json.loads(line)
            if entity["type"] != "item":
                continue
            names, others = entity["labels"], entity.get("aliases")
            label = ((names.get("en") or names.get("mul") or {}).get("value") if names else None) or None
            title = entity["sitelinks"]["enwiki"]["title"] if "enwiki" in entity.get("sitelinks", ()) else None
            if label is None and title is None:
                continue
            aliases = [one["value"] for key in ("en", "mul") for one in (others.get(key, ()) if others else ())]
            aliases = [alias for alias in dict.fromkeys(aliases) if alias and alias != label]
            answers = _answers(entity["claims"]) if title and entity.get("claims") else []
            found.append((int(entity["id"][1:]), label, aliases, title, answers))
    return found


def _answers(claims: dict) -> list[tuple[int, int]]:
    answers: dict[tuple[int, int], None] = {}
    for pid in PROPERTIES:
        statements = claims.get(pid, [])
        best = "preferred" if any(one["rank"] == "preferred" for one in statements) else "normal"
        for one in statements:
            value = one["mainsnak"].get("datavalue", {}).get("value")
            if one["rank"] == best and isinstance(value, dict) and value.get("entity-type") == "item":
                answers[int(pid[1:]), value["numeric-id"]] = None
    return list(answers)


def lines(dump: Path) -> int:
    """Decompressed and split, and nothing looked at."""
    return sum(1 for _ in streams.open_lines(dump))


def longtail(dump: Path, executor: Executor | None = None) -> list[Path]:
    """The stage's own reading, as far as its blocks' Parquet files."""
    shutil.rmtree(shards.SCRATCH, ignore_errors=True)
    stream = ((str(dump), block) for block in wikidata.read_blocks(dump))
    work = partial(entities.parse_block, PROPERTIES, language.ENGLISH)
    return list(shards.map_stream("benchmark", "dump", work, stream, executor, at_once=4))


def two_workers(dump: Path) -> list[Path]:
    """`longtail` with two workers, and their start."""
    with processes(measure.compute(2)) as executor:
        return longtail(dump, executor)


def as_plain(files: list[Path]) -> list[tuple]:
    """What `plain` gives, from the stage's files."""
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    names = ("qid", "label", "aliases", "wiki_title")
    return [(*(r[n] for n in names), list(zip(r["properties"], r["objects"], strict=True))) for r in found]


def compare(name: str, dump: Path, small: Path, rounds: int) -> list[Row]:
    size, warm = sum(map(len, streams.open_blocks(dump))) / 1e6, partial(longtail, small)
    return measure.beside(
        f"{name}, {lines(dump):,} lines", PEER, "MB", size,
        partial(measure.alone, plain, dump, warm=partial(plain, small)),
        partial(measure.alone, longtail, dump, warm=warm, then=as_plain),
        two=partial(measure.alone, two_workers, dump, then=as_plain), start=partial(measure.alone, two_workers, small),
        limit="decompressing and splitting", most=partial(measure.alone, lines, dump), rounds=rounds,
    )  # fmt: skip


def rows(quick: bool = False) -> list[Row]:
    real, rounds = measure.real(REAL), 1 if quick else 3
    with measure.in_folder():
        small, made, repeated = Path("small.json.gz"), Path("generated.json.gz"), Path("repeated.json.gz")
        write_dump(small, 50)
        write_dump(made, 300 if quick else 20_000)
        found = compare("Wikidata dump, generated", made, small, rounds)
        if not real:
            return [*found, Row("Wikidata dump, real entities repeated", PEER, missing=measure.NO_FILES)]
        with gzip.open(repeated, "wb", 1) as file:
            block = b"".join(real.read_bytes().splitlines(keepends=True)[1:])
            for _ in range(1 if quick else 60):
                file.write(block)
        return found + compare("Wikidata dump, real entities repeated", repeated, small, rounds)


def write_dump(path: Path, entities: int) -> None:
    generator = _Generator(0)
    with gzip.open(path, "wt", 6, encoding="utf-8") as file:
        file.write("[\n")
        for number in range(1, entities + 1):
            end = ",\n" if number < entities else "\n]\n"
            file.write(json.dumps(generator.entity(number), separators=(",", ":")) + end)


@cache
def _hash(*value: object) -> str:
    """The dump's 40 digits for a snak or a reference: the same for the same value."""
    return hashlib.sha1(repr(value).encode()).hexdigest()


class _Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        scripts = [("eaiourstlnmdkgbpvhc", 4000)] + [("".join(map(chr, range(*span))), 500) for span in SCRIPTS]
        self.words = [self._word(letters) for letters, count in scripts for _ in range(count)]

    def _word(self, letters: str) -> str:
        return "".join(self.random.choices(letters, k=self.random.randint(3, 9))).capitalize()

    def _name(self) -> str:
        return " ".join(self.random.choices(self.words, k=self.random.randint(1, 3)))

    def entity(self, number: int) -> dict:
        r = self.random
        shape = r.choices(SHAPES, [shape.share for shape in SHAPES])[0]
        labels, descriptions, aliases, statements, wikis = (r.randint(*pair) for pair in shape[1:6])
        name, described, english = self._name(), self._name(), r.random() < shape.english_label
        languages = ["en"] * english + r.sample(LANGUAGES[1:], labels)
        spoken = [x for x in r.sample(LANGUAGES, descriptions) if x != "en" or english]
        others = r.sample(languages, min(len(languages), (aliases + 1) // 2))
        sites = [f"{x.replace('-', '_')}wiki" for x in r.sample(LANGUAGES[1:], wikis)]
        sites += ["enwiki"] * shape.english_article
        day = f"+20{r.randint(12, 25)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}T00:00:00Z"
        references = [self._reference(day) for _ in range(2)]
        claims: dict[str, list] = {}
        for _ in range(statements):
            pid = r.choice(ITEM_VALUED if r.random() < 0.6 else TEXT_VALUED)
            claims.setdefault(pid, []).append(self._statement(f"Q{number}", pid, references))
        return {
            **{"type": "item", "id": f"Q{number}"},
            "labels": {x: {"language": x, "value": name if r.random() < 0.8 else self._name()} for x in languages},
            "descriptions": {x: {"language": x, "value": described} for x in spoken},
            "aliases": {x: [{"language": x, "value": self._name()} for _ in range(r.randint(1, 3))] for x in others},
            "claims": claims,
            "sitelinks": {site: {"site": site, "title": name, "badges": []} for site in sites},
            **{"pageid": 100 + number, "ns": 0, "title": f"Q{number}"},
            "lastrevid": 2_000_000_000 + r.randint(0, 10**8),
            "modified": f"2026-0{r.randint(1, 9)}-{r.randint(10, 28)}T12:{r.randint(10, 59)}:{r.randint(10, 59)}Z",
        }

    def _statement(self, qid: str, pid: str, references: list[dict]) -> dict:
        r = self.random
        if pid in ITEM_VALUED:
            snak = _item_snak(pid, int(r.paretovariate(0.4)) % 115_000_000 + 1)
        else:
            value = {"value": f"{r.choice(self.words)}{r.randint(1, 10**7)}", "type": "string"}
            snak = {"snaktype": "value", "property": pid, "datavalue": value, "datatype": "external-id"}
        if r.random() < 0.01:
            snak = {"snaktype": "somevalue", "property": pid, "datatype": snak["datatype"]}
        statement: dict = {"mainsnak": snak, "type": "statement"}
        if r.random() < 0.2:
            statement |= {"qualifiers": {"P642": [_hashed(_item_snak("P642", r.randint(1, 99)))]}}
            statement |= {"qualifiers-order": ["P642"]}
        uuid = f"{r.getrandbits(128):032X}"
        statement["id"] = f"{qid}${uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
        statement["rank"] = r.choices(["normal", "preferred", "deprecated"], [96, 3, 1])[0]
        if r.random() < 0.7:
            statement["references"] = [r.choice(references)]
        return statement

    def _reference(self, day: str) -> dict:
        pid, source = self.random.choice(SOURCES)
        time = {"time": day, "timezone": 0, "before": 0, "after": 0, "precision": 11}
        time["calendarmodel"] = "http://www.wikidata.org/entity/Q1985727"
        value = {"value": time, "type": "time"}
        retrieved = {"snaktype": "value", "property": "P813", "datavalue": value, "datatype": "time"}
        snaks = {pid: [_hashed(_item_snak(pid, source))], "P813": [_hashed(retrieved)]}
        return {"hash": _hash(pid, source, day), "snaks": snaks, "snaks-order": [pid, "P813"]}


def _item_snak(pid: str, o: int) -> dict:
    value = {"value": {"entity-type": "item", "numeric-id": o, "id": f"Q{o}"}, "type": "wikibase-entityid"}
    return {"snaktype": "value", "property": pid, "datavalue": value, "datatype": "wikibase-item"}


def _hashed(snak: dict) -> dict:
    return {**snak, "hash": _hash(snak["property"], json.dumps(snak["datavalue"]))}
